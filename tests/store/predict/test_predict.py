"""Predictions against what the real brokers did to every golden when they started on it."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.config.releases import RELEASES, Release
from rmqctl.store.log.implied import Run
from rmqctl.store.log.walk import Blank, walk
from rmqctl.store.options import Events
from rmqctl.store.predict import Prediction, predict
from rmqctl.store.predict.broker_log import BrokerReading
from rmqctl.store.predict.prediction import Start
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, OF_5_5, GoldenStore, base_of, broker_conf, properties, tree_state, truth
from tests.opened import store_path
from tests.quick import goldens_of

ROCKSDB = "rocksdb"
# a controller's broker recovers by rules that are not followed
NAMES = [name for name in (*GOLDENS, *OF_5_5) if name not in (ROCKSDB, "v55-controller")]
# the oracle could not read one queue of it: there is no truth about that
UNREAD = {("v4-cq-truncated", "topic-with-dash", 0)}
# the broker waits 30 seconds for queues that it cannot create, and marks itself as broken
UNPLACEABLE = "longtopic-toolong"
# its files are read by the compaction store, whose topics have other rules
COMPACTED = "compaction"


def _release(name: str) -> Release:
    return RELEASES[str(truth(name).summary["version"]).removeprefix("V").replace("_", ".")]


def _opened(name: str) -> StoreFiles:
    path = store_path(name)
    return StoreFiles(path, read_broker_conf(broker_conf(name, path.parent)))


def _batch_topics(name: str) -> list[str]:
    found = {key.split(".")[1]: value for key, value in properties(name).items() if key.startswith("topic.")}
    return [topic for topic, value in found.items() if "BatchCQ" in value]


def _start(name: str) -> tuple[Start, Prediction]:
    with _opened(name) as files:
        start = Start(files, _release(name), _batch_topics(name) or None, Events())
        return start, start.run()


def _files(name: str, which: str) -> dict[str, tuple[int, str]]:
    return {row["path"]: (row["size"], row["sha256"]) for row in truth(name).summary[which]}


@pytest.mark.parametrize("name", goldens_of(NAMES))
def test_whether_it_loads_and_where_the_log_ends(name: str) -> None:
    _, found = _start(name)
    json.dumps(asdict(found))  # plain values only
    summary = truth(name).summary
    assert found.loads == bool(summary["load"])
    assert found.was_clean is not summary["abortBefore"]
    if not found.loads:
        assert "length not matched message store config value, please check it manually" in str(found.error)
        assert (found.start_file, found.end_offset, found.messages_lost) == (None, None, 0)
        return
    assert (found.error, found.end_offset) == (None, summary["maxPhy"])


@pytest.mark.parametrize("name", goldens_of(NAMES))
def test_files_that_go_and_no_others(name: str) -> None:
    _, found = _start(name)
    before, after = _files(name, "filesBefore"), _files(name, "filesAfter")
    gone = {path for path in before if path not in after and Path(path).name not in ("abort", "abort.bak")}
    # a RocksDB that is opened begins new files, and removes those that they follow
    gone = {path for path in gone if not path.startswith("rocksdbstore/")}
    assert set(found.files_deleted) | set(found.index_files_deleted) == gone
    assert all(path.startswith("index/") for path in found.index_files_deleted)
    assert not any(path.startswith("index/") for path in found.files_deleted)


@pytest.mark.parametrize("name", goldens_of(NAMES, "innerbatch", "lmq", "log-gone", "first-gone"))
def test_every_queue_ends_up_as_in_the_real_broker(name: str) -> None:
    start, found = _start(name)
    if not found.loads:
        assert found.queues_changed == []
        return
    rows = {(row["topic"], row["queue_id"]): row for row in found.queues_changed}
    for row in truth(name).queues:
        topic, queue_id = row["topic"], row["queueId"]
        if (name, topic, queue_id) in UNREAD:
            continue
        queue = next((start.queues.by_key[topic, queue_id, batch] for batch in (False, True)
                      if (topic, queue_id, batch) in start.queues.by_key), None)  # fmt: skip
        if queue is None or not (queue.files or row["max"]):
            assert row["max"] == 0, (topic, queue_id)  # 4.9.8 lists queues that have nothing on disk
            continue
        assert (queue.min_offset, queue.max_offset) == (row["min"], row["max"]), (topic, queue_id)
        assert _digest(name, start, topic, queue_id) in (None, row.get("unitsSha256")), (topic, queue_id)
        if (topic, queue_id) in rows:
            changed = rows[topic, queue_id]
            assert (changed["min_after"], changed["max_after"]) == (row["min"], row["max"])
    served = {(row["topic"], row["queueId"]) for row in truth(name).queues}
    assert rows.keys() <= served or name == UNPLACEABLE


def _digest(name: str, start: Start, topic: str, queue_id: int) -> str | None:
    """The units of a queue as the oracle hashed them; None for queues that it showed in another form."""
    queue = start.queues.by_key.get((topic, queue_id, False))
    if queue is None or queue.is_batch or "cqext" in name:
        return None
    lines = []
    for number, (first, _) in enumerate(queue.files):
        for place, unit in enumerate(queue.units_of(number)[: max(0, queue.end - first)], first):
            if place >= queue.min_offset:
                lines.append(f"{place},{int(unit['physical_offset'])},{int(unit['size'])},{int(unit['tags_code'])}")
    return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()


@pytest.mark.parametrize("name", goldens_of(NAMES))
def test_messages_that_go(name: str) -> None:
    _, found = _start(name)
    base = base_of(name)
    if not found.loads or base is None:
        assert found.messages_lost == 0
        return
    kept = {row["phyOffset"] for row in truth(name).messages}
    end = truth(name).summary["maxPhy"]
    # what the damage itself hit was no message any more, and what is in a missing file is not the broker's doing
    behind = [row for row in truth(base).messages if row["phyOffset"] not in kept and row["phyOffset"] > end]
    if kept:
        assert (found.messages_lost, found.bytes_lost) == (len(behind), sum(row["storeSize"] for row in behind))


@pytest.mark.parametrize("name", goldens_of(name for name in NAMES if name not in (UNPLACEABLE, COMPACTED, "lmq")))
def test_messages_that_no_queue_leads_to(name: str) -> None:
    _, found = _start(name)
    if not found.loads:
        return
    units = {(row["topic"], row["queueId"]): row for row in truth(name).queues}
    unserved = 0
    for row in truth(name).messages:
        queue = units.get((row["topic"], row["queueId"]))
        if not has_queue_slot(row["sysFlag"]) or not row["checkOk"] or queue is None:
            continue
        unserved += not queue["min"] <= row["queueOffset"] < queue["max"]
    lost_queues = sum(
        1 for row in truth(name).messages
        if has_queue_slot(row["sysFlag"]) and row["checkOk"] and (row["topic"], row["queueId"]) not in units
    )  # fmt: skip
    # a garbage unit within its queue, topic-with-dash/0 at 100, which the truths of 5.5.0 do not show
    unserved += name == "v55-cq-garbage"
    # units in wrong slots lead to no message of theirs, and the truth of which is not told for each message
    assert found.messages_unqueued >= unserved + lost_queues or name.startswith("v4-cq-truncated")
    if not any(row["units_misplaced"] for row in found.queues_changed) and "cq-truncated" not in name:
        assert found.messages_unqueued == unserved + lost_queues


def test_topics_that_are_no_directories_are_told() -> None:
    _, found = _start(UNPLACEABLE)
    assert ["8 messages have topics that cannot be directory names" in text for text in found.warnings] == [True]


def test_numbers_of_the_notable_ones() -> None:
    """As the notes on the goldens have them: each a known defect of the broker."""
    _, future = _start("checkpoint-future")
    assert future.start_file == "00000000000002097152"
    assert sum(row["units_misplaced"] for row in future.queues_changed) == 51
    _, lost = _start("cq-lost-abort")
    assert lost.start_offset == 1048576
    assert sum(row["min_after"] > 0 for row in lost.queues_changed) > 20
    _, cut = _start("crc-flip-last")
    assert (cut.end_offset, cut.messages_lost, cut.end_reason) == (2106230, 25, "CRC check failed")
    assert sum(row["units_dropped"] for row in cut.queues_changed) == 26
    _, third = _start("crc-flip-third")
    assert (third.messages_lost, third.queues_changed) == (0, [])


def test_the_older_broker_starts_three_files_back() -> None:
    """Measured: 4.9.8 finds the damage that 5.3.3 does not look at, and deletes two files."""
    with _opened("crc-flip-third") as files:
        found = predict(files, "4.9.8")
    assert (found.end_offset, found.start_offset) == (1695806, 1572864)
    gone = [path for path in found.files_deleted if path.startswith("commitlog/")]
    assert gone == ["commitlog/00000000000001835008", "commitlog/00000000000002097152"]


def test_the_older_broker_reads_no_long_topics() -> None:
    """Measured: it cuts the log at the first V2 frame and drops the queues."""
    with _opened("longtopic") as files:
        found = predict(files, "4.9.8")
    assert (found.end_offset, found.messages_lost) == (157207, 12)


@pytest.mark.parametrize("broker", RELEASES)
def test_nothing_is_changed(broker: str, golden_store: GoldenStore) -> None:
    for name in ("crc-flip-last-abort", "empty-last", "cq-lost"):
        store = golden_store(name)
        before = tree_state(store)
        with StoreFiles(store) as files:
            predict(files, broker)
        assert tree_state(store) == before


def test_what_is_not_known_is_said() -> None:
    with StoreFiles(store_path("clean")) as files, pytest.raises(UsageError, match=r"known|5\.3\.3"):
        predict(files, "3.2.6")
    with StoreFiles(store_path(ROCKSDB)) as files:
        assert predict(files, "5.3.3").loads


def test_a_name_of_right_length_that_is_no_number(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "commitlog" / "copy").write_bytes(bytes(262144))
    with StoreFiles(store, StoreConfig()) as files:
        found = predict(files, "5.3.3")
    assert (found.loads, found.error) == (
        False, 'load exception: java.lang.NumberFormatException: For input string: "copy"'
    )  # fmt: skip


def test_a_folder_inside_the_commitlog(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "commitlog" / "kept").mkdir()
    with StoreFiles(store) as files:
        assert predict(files, "5.3.3").loads
        assert "length not matched" in str(predict(files, "4.9.8").error)


def test_a_queue_file_of_zeros_becomes_a_queue_with_one_unit(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    directory = store / "consumequeue" / "Empty" / "0"
    directory.mkdir(parents=True)
    (directory / ("0" * 20)).write_bytes(bytes(2000))
    for broker in RELEASES:
        with StoreFiles(store) as files:
            rows = predict(files, broker).queues_changed
        assert [(row["topic"], row["max_before"], row["max_after"]) for row in rows] == [("Empty", 0, 1)]


def test_units_lost_at_the_end_after_a_clean_stop(golden_store: GoldenStore) -> None:
    """5.3.3 skips the first lost message and puts the next ones one slot too low; 4.9.8 puts back all of them."""
    with _opened("clean") as files:
        last = max(files.log.files, key=lambda file: file.start_offset).start_offset
    store = golden_store("clean")
    cut = 0
    for path in sorted(store.glob("consumequeue/*/*/*")):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 20):
            if int.from_bytes(data[at : at + 8], "big") >= last:
                data[at : at + 20] = bytes(20)
                cut += 1
        path.write_bytes(data)
    assert cut > 10
    with StoreFiles(store) as files:
        five = predict(files, "5.3.3")
    with StoreFiles(store) as files:
        four = predict(files, "4.9.8")
    assert four.messages_unqueued == 0
    assert sum(row["units_added"] for row in four.queues_changed) == cut
    # the queues end with the last message of the file before: its blank frame lies between, and nothing is skipped
    assert (five.messages_unqueued, sum(row["units_added"] for row in five.queues_changed)) == (0, cut)


def _broken_from_the_start(store: Path) -> None:
    """Not shut down, and without a checkpoint: the whole log is read."""
    (store / "abort").write_text("1")
    (store / "checkpoint").unlink(missing_ok=True)


def test_a_blank_frame_of_another_size(golden_store: GoldenStore) -> None:
    """4.9.8 goes by the magic alone; 5.3.3 ends the log where a frame does not fit into its file."""
    store = golden_store("v4-clean")
    _broken_from_the_start(store)
    with StoreFiles(store) as files:
        blank = next(record for record in walk(files.log) if isinstance(record, Blank))
        end = files.log.max_offset
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(blank.physical_offset)
        file.write(b"\x40")
    with StoreFiles(store) as files:
        four, five = predict(files, "4.9.8"), predict(files, "5.3.3")
    assert (four.messages_lost, [name for name in four.files_deleted if "commitlog" in name]) == (0, [])
    assert four.end_offset is not None
    assert end - 262144 < four.end_offset <= end
    assert five.end_offset == blank.physical_offset
    assert five.messages_lost > 2000


@pytest.mark.parametrize("queues", [True, False])
def test_a_gap_before_an_empty_file_keeps_the_older_broker_waiting(golden_store: GoldenStore, queues: bool) -> None:
    """Its dispatch comes to the gap and no further, and it starts only when that has come to the log's end."""
    store = golden_store("v4-clean")
    _broken_from_the_start(store)
    last = max((store / "commitlog").iterdir())
    start = int(last.name)
    (store / "commitlog" / f"{start + 2 * 262144:020d}").write_bytes(bytes(262144))
    with StoreFiles(store) as files:
        # the log's last file is full, so that its dispatch goes on behind it
        *_, end = (record for record in walk(files.log) if isinstance(record, StoredMessage))
    with last.open("r+b") as file:
        file.seek(end.end - start)
        file.write((start + 262144 - end.end).to_bytes(4, "big") + bytes.fromhex("CBD43194"))
    if not queues:
        shutil.rmtree(store / "consumequeue")
    with StoreFiles(store) as files:
        found = predict(files, "4.9.8")
        newer = predict(files, "5.3.3")
    assert (found.loads, newer.loads) == (False, True)
    assert found.is_harmful
    assert f"reputOffset={start + 262144} maxOffset={start + 2 * 262144} behind=262144" in str(found.error)


def test_the_dispatcher_of_the_older_broker_goes_on_behind_a_size_it_believes(golden_store: GoldenStore) -> None:
    """A frame whose lengths do not make up its size is passed over by that size, over the file's end as well."""
    store = golden_store("v4-clean")
    with StoreFiles(store) as files:
        messages = [record for record in walk(files.log) if isinstance(record, StoredMessage)]
        broken = next(one for one in messages if one.physical_offset > 262144 * 6 + 1000)
        further = next(one for one in messages if one.physical_offset > 262144 * 7 + 1000)
    with (store / "commitlog" / f"{262144 * 6:020d}").open("r+b") as file:
        file.seek(broken.physical_offset - 262144 * 6)
        file.write((further.physical_offset - broken.physical_offset).to_bytes(4, "big"))
    with StoreFiles(store) as files:
        start = Start(files, RELEASES["4.9.8"], None, Events())
        log = start._load_log()
        seen: list[int] = []
        reading = BrokerReading(log, start.release, start.walked, Events())
        assert reading.catch_up(262144 * 6, _Seen(seen)) == log.max_offset
    assert [at for at in seen if at >= broken.physical_offset][:1] == [further.physical_offset]
    assert seen[0] < broken.physical_offset


class _Seen:
    """Notes where what is taken begins."""

    def __init__(self, offsets: list[int]) -> None:
        self._offsets = offsets

    def take_run(self, run: Run) -> None:
        self._offsets.append(run.physical_offset)

    def take_message(self, message: StoredMessage) -> None:
        self._offsets.append(message.physical_offset)
