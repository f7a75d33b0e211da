"""Lookups by key say what part of the log they cover: an answer, certain absence, or what stands in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.output import outcome as exit_codes
from rmqctl.store.options import Events
from rmqctl.store.read.query import NotIndexedError, damage_error, indexed_range
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, broker_conf, properties, truth
from tests.opened import reader, store_path
from tests.quick import goldens_of
from tests.rmqctl.looking import run
from tests.store.logs import changed, damages, frame, log_of

# as RocketMQ left or met them: no index, a broken one, queues that say nothing of the topics, damage after the index
NO_INDEX = {"noindex", "index-lost", "index-lost-abort"}
INDEX_IN_DOUBT = NO_INDEX | {"index-garbage", "cq-lost", "cq-lost-abort", "v4-cq-lost"}
LOG_IN_DOUBT = {
    *("torn-zero", "torn-zero-clean", "tail-garbage-clean", "v4-torn-garbage"),
    *("crc-flip-last-abort", "v4-crc-flip-last-abort"),
    *("log-gone", "log-gone-abort", "v4-log-gone"),
}


@pytest.mark.parametrize("name", goldens_of(GOLDENS, "torn-zero", "index-lost", "index-garbage", "log-gone", "cq-lost"))
def test_nothing_matched_is_1_and_what_damage_may_hide_is_7_for_every_lookup(name: str) -> None:
    place: list[object] = ["-s", store_path(name)]
    if "store.storePathCommitLog" in properties(name):
        place += ["-c", broker_conf(name, store_path(name).parent)]
    code = {True: exit_codes.DAMAGE_IN_THE_WAY, False: exit_codes.DAMAGE_OR_NOTHING}
    unknown = "F" * 32
    for how in (["query", "-k", unknown], ["query", "-i", unknown]):
        done = run(*how, *place)
        assert done.code == code[name in INDEX_IN_DOUBT | LOG_IN_DOUBT], (how, done)
        assert name not in INDEX_IN_DOUBT or ("--scan" in done.err and "rebuild --index" in done.err)
        done = run(*how, "--scan", *place)
        assert done.code == code[name in LOG_IN_DOUBT], (how, done)
    assert run("where", unknown, *place).code == code[name in LOG_IN_DOUBT]


@pytest.mark.parametrize("name", sorted(INDEX_IN_DOUBT))
def test_index_damage_stands_in_the_way_of_no_scan(name: str) -> None:
    row = next(one for one in truth(name).messages if "UNIQ_KEY" in one["properties"])
    key = row["properties"]["UNIQ_KEY"]
    done = run("query", "-k", key, "--scan", "--json", "-s", store_path(name))
    assert (done.code, [one["physical_offset"] for one in done.objects]) == (0, [row["phyOffset"]]), done.err
    assert done.err.count("the whole commitlog is searched") == 1
    assert run("query", "-i", key, "--scan", "-s", store_path(name)).code == 0


def test_a_scan_reads_the_log_once_for_all_topics() -> None:
    look, read = reader("index-lost"), list[int]()
    for topics in ([], ["-t", "*", "-t", "OrderTopic"]):
        done = run("query", "-k", "hot", *topics, "--scan", "--json", "-n", 9, "-s", store_path("index-lost"))
        hot = [row["phyOffset"] for row in truth("clean").messages if row["keys"] and "hot" in row["keys"].split()]
        assert [one["physical_offset"] for one in done.objects] == sorted(hot, reverse=True)[:9]
    look.telling(Events(read.append)).find("F" * 32, scan=True)
    assert sum(read) <= look.files.log.max_offset


def test_what_a_sound_index_does_not_cover_is_searched_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed broker's index ends before the log does."""
    look = reader("torn-zero")
    end = indexed_range(look.files.index)
    last = next(row for row in truth("crash").messages if end is not None and row["phyOffset"] > end[1])
    topic, key = last["topic"], last["properties"]["UNIQ_KEY"]
    assert not look.indexed(topic, key).messages
    assert [one.physical_offset for one in look.query(topic, key).messages] == [last["phyOffset"]]
    monkeypatch.setattr("rmqctl.store.read.reader.UNASKED_BYTES", 1000)
    found = look.query(topic, key)
    assert (found.messages, [type(error) for error in found.damaged]) == ([], [NotIndexedError])
    done = run("query", "-k", key, "-s", store_path("torn-zero"))
    assert (done.code, done.out) == (exit_codes.DAMAGE_IN_THE_WAY, "")
    assert "of the commitlog, from offset" in done.err
    assert "--scan searches" in done.err
    assert [one.physical_offset for one in look.query(topic, key, scan=True).messages] == [last["phyOffset"]]


def test_a_message_that_the_index_leads_to_and_the_log_has_lost_is_not_absent(golden_store: GoldenStore) -> None:
    """Its entry leads where zeros are: the end of the log is lost. No search of the log makes up for that."""
    store = golden_store("clean")
    last = [row for row in truth("clean").messages if "UNIQ_KEY" in row["properties"]][-1]
    path = max((store / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.truncate(last["phyOffset"] - int(path.name))
        file.truncate(262144)
    for scan in ([], ["--scan"]):
        done = run("query", "-k", last["properties"]["UNIQ_KEY"], *scan, "-s", store)
        assert (done.code, done.out) == (exit_codes.DAMAGE_IN_THE_WAY, ""), done.err


def test_queues_that_lag_the_log_hide_messages_and_give_no_offsets(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    with StoreFiles(store) as files:
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in files.queues.all()}
    lost = next(row for row in truth("crash").messages if row["queueOffset"] >= ends[row["topic"], row["queueId"]])
    place = ["-t", lost["topic"], "-q", lost["queueId"]]
    done = run("query", "-s", store, *place, "-o", lost["queueOffset"])
    assert (done.code, done.out) == (exit_codes.DAMAGE_IN_THE_WAY, "")
    assert "not found, but the log goes on after its queues" in done.err
    assert "rmqctl recover" in done.err
    assert run("cat", *place, "--order", "queue", "-n", 1, "-s", store).code == exit_codes.OK
    whole = ["-t", lost["topic"]]
    for command in (["query", *place, "--at", "now"], ["cat", *place, "--order", "queue"], ["du", *whole, "--quick"]):
        done = run(*command, "-s", store)
        assert (done.code, bool(done.out)) == (exit_codes.DAMAGE_OR_NOTHING, True)
        assert "not certain: " in done.err
        assert "rmqctl recover" in done.err


@pytest.mark.parametrize("loss", ["last unit", "file"])
def test_a_message_that_its_queue_lacks_is_damage_and_not_absent(golden_store: GoldenStore, loss: str) -> None:
    store = golden_store("clean")
    rows = [row for row in truth("clean").messages if (row["topic"], row["queueId"]) == ("OrderTopic", 1)]
    (file,) = (store / "consumequeue/OrderTopic/1").iterdir()
    units = file.read_bytes()
    file.write_bytes(units[: 20 * (len(rows) - 1)].ljust(2000, b"\0") if loss == "last unit" else bytes(2000))
    place = ["-t", "OrderTopic", "-q", 1, "-o"]
    done = run("query", "-s", store, *place, len(rows) - 1)
    assert (done.code, done.out) == (exit_codes.DAMAGE_IN_THE_WAY, "")
    assert f"lacks its message {len(rows) - 1}" in done.err
    assert f"rmqctl query -o {rows[-1]['phyOffset']}" in done.err
    assert run("query", "-s", store, *place, len(rows)).code == exit_codes.DAMAGE_OR_NOTHING


def test_damage_is_told_with_its_end_and_its_size(tmp_path: Path) -> None:
    one = frame(0)
    log = log_of(tmp_path, changed(one, 90, b"\xff") + frame(len(one)))
    [damage] = damages(log)
    error: CorruptError = damage_error(damage)
    assert error.message.startswith(f"damaged up to {len(one)} ({len(one)} bytes): ")
    assert (error.file, error.physical_offset) == (str(log.files[0].path), 0)
