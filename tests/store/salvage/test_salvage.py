"""Salvage of goldens that were broken, renamed, cut and mixed: every good message, each once, and nothing else."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import NotAStoreError, NotFoundError, RefusedError, UnreadableError, UsageError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.predict import predict
from rmqctl.store.recover.recover import recover
from rmqctl.store.salvage.salvage import salvage
from rmqctl.store.salvage.write import SalvageReport
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state, truth
from tests.opened import store_path
from tests.quick import goldens_of
from tests.store.light_queues import LISTED, runs_ahead
from tests.store.logs import frame
from tests.store.write.writing import SMALL, files_below, stored_messages

FILE = 262144
TIME = 1_700_000_000_000


def _key(message: StoredMessage) -> tuple[object, ...]:
    """Everything but the places."""
    return message._replace(physical_offset=0, queue_offset=0)


def _kept(message: StoredMessage) -> tuple[object, ...]:
    """Everything but the place in the log."""
    return message._replace(physical_offset=0)


def _rows(report: SalvageReport) -> list[dict[str, Any]]:
    assert report.lost_and_found is not None
    return [json.loads(line) for line in Path(report.lost_and_found).read_text().splitlines()]


def _is_whole(root: Path, config: StoreConfig | None = None) -> None:
    """Recovery finds nothing to do, and no broker would lose or misplace anything."""
    with StoreFiles(root, config) as files:
        report = recover(files, change=ChangeOptions(dry_run=True))
        assert (report.operations, report.queues_changed, report.damaged) == ([], 0, [])
    with StoreFiles(root, config) as files:
        found = predict(files, "5.3.3")
    assert (found.loads, found.queues_changed, found.messages_unqueued, found.files_deleted) == (True, [], 0, [])


WHOLE = ["clean", "features", "propcrc", "innerbatch", "lmq", "v4-features", "longtopic"]


@pytest.mark.parametrize("name", goldens_of(WHOLE))
@pytest.mark.parametrize("offsets", ["keep", "renumber"])
def test_a_sound_store_becomes_the_same_store(name: str, offsets: Any, tmp_path: Path) -> None:
    source, target = store_path(name), tmp_path / "new"
    before = tree_state(source)
    report = salvage([source], target, offsets=offsets)
    assert (report.found, report.salvaged, report.strange_spans, report.left_out) == (
        len(truth(name).messages), len(truth(name).messages), 0, 0
    )  # fmt: skip
    if name not in ("propcrc", "innerbatch", "lmq"):  # what depends on the place is made anew in these
        assert list(map(_kept, stored_messages(target))) == list(map(_kept, stored_messages(source)))
    _is_whole(target)
    assert tree_state(source) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "new.lost-and-found.jsonl"]
    for queue in truth(name).queues:
        with StoreFiles(target) as files:
            found = files.queues.find(queue["topic"], queue["queueId"])
        assert (found.max_offset if found else 0) == queue["max"]


def test_renamed_and_shuffled_files(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    loose = tmp_path / "loose"
    loose.mkdir()
    for number, path in enumerate(sorted((store / "commitlog").iterdir(), key=lambda path: path.name[::-1])):
        path.rename(loose / f"recovered-{number}.bin")
    report = salvage([loose], tmp_path / "new")
    assert (report.found, report.salvaged, report.runs, report.strange_spans) == (2500, 2500, 9, 0)
    assert list(map(_kept, stored_messages(tmp_path / "new"))) == list(map(_kept, stored_messages(store_path("clean"))))


def test_a_disk_image(tmp_path: Path) -> None:
    """Log files at odd places of other bytes, out of order: places say nothing, and bases may be negative."""
    source = store_path("clean")
    chance = random.Random(7)
    image = tmp_path / "disk.img"
    files = sorted((source / "commitlog").iterdir())
    chance.shuffle(files)
    with image.open("wb") as out:
        for path in files:
            out.write(chance.randbytes(chance.randrange(1, 90_000)))
            out.write(path.read_bytes())
        out.write(chance.randbytes(5000))
    report = salvage([image], tmp_path / "new", config=StoreConfig(mapped_file_size_commit_log=FILE))
    assert (report.found, report.salvaged, report.duplicates) == (2500, 2500, 0)
    assert list(map(_kept, stored_messages(tmp_path / "new"))) == list(map(_kept, stored_messages(source)))
    rows = _rows(report)
    assert {row["cause"] for row in rows} <= {"no_message", "magic", "size"}
    assert report.strange_bytes == sum(row["end"] - row["begin"] for row in rows)


def test_copies_count_once(golden_store: GoldenStore, tmp_path: Path) -> None:
    one, other = golden_store("clean"), golden_store("crc-flip-old")
    report = salvage([one, other / "commitlog", one / "commitlog" / ("0" * 20)], tmp_path / "new")
    assert (report.found, report.duplicates, report.salvaged) == (4999, 2499, 2500)
    _is_whole(tmp_path / "new")


LEFT = {
    "crc-flip-last": 2499, "crc-flip-old": 2499, "gap": 2196, "first-gone": 1885, "short-middle": 2369,
    "torn-zero": 2499, "tail-garbage-clean": 2500, "stray-file": 2500, "crash": 2500,
}  # fmt: skip
"""How many messages there are in broken goldens."""


@pytest.mark.parametrize("name", goldens_of(LEFT))
@pytest.mark.parametrize("offsets", ["keep", "renumber"])
def test_broken_goldens(name: str, offsets: Any, tmp_path: Path) -> None:
    messages = LEFT[name]
    report = salvage([store_path(name)], tmp_path / "new", offsets=offsets)
    assert (report.found, report.salvaged, report.renumbered) == (messages, messages, 0)
    _is_whole(tmp_path / "new")
    if offsets == "keep":
        old = {(m.topic, m.queue_id, m.queue_offset): _kept(m) for m in stored_messages(store_path(name))}
        with MessageStore.open(tmp_path / "new") as store:
            for (topic, queue_id, offset), wanted in old.items():
                assert [_kept(one) for one in store.get(topic, queue_id, offset, 1).messages] == [wanted]
    else:
        with StoreFiles(tmp_path / "new") as files:
            units = [unit for queue in files.queues.all() for unit in queue.units(0)]
        assert len(units) == messages
        assert all(unit.is_written for unit in units)


def test_a_damaged_span_is_told(tmp_path: Path) -> None:
    report = salvage([store_path("crc-flip-last")], tmp_path / "new")
    [row] = _rows(report)
    begin = 2106230 - 2097152
    assert row["cause"] == "body_crc"
    assert row["source"].endswith("00000000000002097152")
    assert begin <= row["begin"] < row["end"] <= begin + 316


def test_a_message_inside_a_damaged_one_is_none(tmp_path: Path) -> None:
    """A body may hold frames of another log; they count for nothing where the frame around them is known."""
    inner = frame(77_000, b"decoy")
    outer = frame(0, b"x" * 40 + inner + b"y" * 40)
    broken = outer.replace(b"x" * 40, b"x" * 39 + b"z")
    good = frame(len(outer), b"good", queue_offset=1)
    path = tmp_path / ("0" * 20)
    path.write_bytes(broken + good)
    report = salvage([path], tmp_path / "new", offsets="renumber")
    assert (report.found, report.salvaged) == (1, 1)
    assert [row["cause"] for row in _rows(report)] == ["body_crc"]


def _two_generations(path: Path) -> None:
    """A log that was cut and written on: behind the new end, zeros, and old frames."""
    new = frame(0, b"new", queue_offset=0, store_timestamp=TIME + 1000)
    gap = bytes(64)
    old = frame(len(new) + 64, b"old", queue_offset=1, store_timestamp=TIME)
    path.write_bytes(new + gap + old)


def test_stale_messages_on_request(tmp_path: Path) -> None:
    path = tmp_path / ("0" * 20)
    _two_generations(path)
    without = salvage([path], tmp_path / "without")
    assert (without.found, without.stale, without.salvaged) == (2, 1, 1)
    assert [row["cause"] for row in _rows(without)] == ["stale"]
    both = salvage([path], tmp_path / "both", stale=True)
    assert (both.stale, both.salvaged) == (1, 2)
    assert sorted(message.body for message in stored_messages(tmp_path / "both")) == [b"new", b"old"]


def test_an_offset_that_is_taken(tmp_path: Path) -> None:
    """Two messages of one queue and one offset: both are stored, the second at the end, and that is told."""
    one = frame(0, b"one", queue_offset=5)
    other = frame(len(one), b"other", queue_offset=5)
    last = frame(len(one) + len(other), b"last", queue_offset=6)
    path = tmp_path / "log"
    path.write_bytes(one + other + last)
    report = salvage([path], tmp_path / "new")
    assert (report.salvaged, report.renumbered) == (3, 1)
    found = {message.queue_offset: message.body for message in stored_messages(tmp_path / "new")}
    assert found == {5: b"one", 6: b"last", 7: b"other"}
    _is_whole(tmp_path / "new")


@pytest.mark.parametrize("first", [0, 100])
def test_the_newest_life_of_a_queue_keeps_its_offsets(first: int, tmp_path: Path) -> None:
    """A topic that was deleted and created again: consumers go on in its present queue, and older messages follow."""
    bodies = [(b"old-%d" % slot, first + slot) for slot in range(5)] + [(b"new-%d" % slot, slot) for slot in range(3)]
    log = b""
    for body, queue_offset in bodies:
        log += frame(len(log), body, queue_offset=queue_offset)
    (tmp_path / "log").write_bytes(log)
    report = salvage([tmp_path / "log"], tmp_path / "new")
    assert (report.salvaged, report.renumbered, report.duplicates) == (8, 5, 0)
    assert {row["detail"] for row in _rows(report)} == {
        "its topic was deleted and created again: a later message has its queue offset"
    }
    found = {message.queue_offset: message.body for message in stored_messages(tmp_path / "new")}
    assert [found[slot] for slot in range(8)] == [b"new-%d" % slot for slot in range(3)] + [
        b"old-%d" % slot for slot in range(5)
    ]
    _is_whole(tmp_path / "new")


@pytest.mark.parametrize("topic", ["../../out", "a/b", "..", ".", "x\0y", "t" * 127 + "/"])
def test_topics_that_lead_elsewhere(topic: str, tmp_path: Path) -> None:
    bad = frame(0, b"bad", topic=topic)
    good = frame(len(bad), b"good")
    (tmp_path / "log").write_bytes(bad + good)
    report = salvage([tmp_path / "log"], tmp_path / "new")
    assert (report.found, report.salvaged, report.left_out) == (2, 1, 1)
    assert [(row["cause"], row["topic"]) for row in _rows(report)] == [("topic", topic)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "new", "new.lost-and-found.jsonl"]
    assert [path.name for path in (tmp_path / "new" / "consumequeue").iterdir()] == ["T"]


def test_offsets_that_would_fill_the_disk(tmp_path: Path) -> None:
    """Queue offsets may say anything: what would need too much filler is numbered anew, and told."""
    offsets = [0, 10**9, (1 << 62), 1]
    log = b""
    for offset in offsets:
        log += frame(len(log), b"%d" % offset, queue_offset=offset)
    for topic in range(40):
        log += frame(len(log), b"far", topic=f"Far{topic}", queue_offset=299_999)
    (tmp_path / "log").write_bytes(log)
    report = salvage([tmp_path / "log"], tmp_path / "new")
    assert report.salvaged == len(offsets) + 40
    assert report.renumbered >= 2
    used = sum(path.stat().st_blocks * 512 for path in (tmp_path / "new").rglob("*"))
    assert used < 200_000_000


def test_messages_that_would_end_the_log_of_a_broker(tmp_path: Path) -> None:
    bad = frame(0, b"bad", topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "soon"})
    good = frame(len(bad), b"good")
    (tmp_path / "log").write_bytes(bad + good)
    report = salvage([tmp_path / "log"], tmp_path / "new")
    assert (report.salvaged, [row["cause"] for row in _rows(report)]) == (1, ["unreadable"])


def test_more_than_one_queue_of_many_sizes(tmp_path: Path) -> None:
    """What we wrote ourselves, cut anywhere: all messages before the cut."""
    with MessageStore.open(tmp_path / "store", "rw", SMALL, create=True) as store:
        for number in range(300):
            store.put(Message(f"T{number % 3}", os.urandom(number * 5), number % 4, properties={"KEYS": f"k{number}"}))
    [first, *_] = sorted((tmp_path / "store" / "commitlog").iterdir())
    (tmp_path / "part").write_bytes(first.read_bytes()[:30_011])
    whole = [m for m in stored_messages(tmp_path / "store") if m.end <= 30_011]
    report = salvage([tmp_path / "part"], tmp_path / "new", config=SMALL)
    assert report.salvaged == len(whole) > 50
    assert list(map(_key, stored_messages(tmp_path / "new"))) == list(map(_key, whole))
    with MessageStore.open(tmp_path / "new", config=SMALL) as store:
        assert [message.body for message in store.query("T1", "k4").messages] == [whole[4].body]


def test_targets_that_are_refused(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    before = tree_state(store.parent)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_bytes(b"")
    link = tmp_path / "link"
    link.symlink_to(store)
    for target in (store, store / "new", store / "commitlog", link / "new", store.parent, tmp_path / "full"):
        with pytest.raises(RefusedError):
            salvage([store], target)
    with pytest.raises(RefusedError):
        salvage([store / "commitlog" / ("0" * 20)], store / "commitlog" / "new" / ".." / ("0" * 20))
    assert tree_state(store.parent) == before


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        salvage([tmp_path / "nowhere"], tmp_path / "new")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnreadableError):
        salvage([tmp_path / "fifo"], tmp_path / "new")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        salvage([tmp_path / "empty"], tmp_path / "new")
    (tmp_path / "noise").write_bytes(os.urandom(5000))
    with pytest.raises(NotFoundError):
        salvage([tmp_path / "noise"], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "fifo", "noise"]


def test_a_link_inside_a_folder_is_not_followed(golden_store: GoldenStore, tmp_path: Path) -> None:
    folder = tmp_path / "loose"
    folder.mkdir()
    (folder / "link").symlink_to(golden_store("clean") / "commitlog" / ("0" * 20))
    (folder / "log").write_bytes(frame(0, b"one"))
    assert salvage([folder], tmp_path / "new").found == 1


def test_groups_and_topics_come_along(golden_store: GoldenStore, tmp_path: Path) -> None:
    kept = salvage([golden_store("broker-real")], tmp_path / "new")
    assert kept.config_files == ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"]
    fresh = salvage([golden_store("broker-real")], tmp_path / "other", offsets="renumber")
    assert fresh.config_files == ["topics.json", "subscriptionGroup.json"]


def test_a_thin_image(tmp_path: Path) -> None:
    """Holes of terabytes cost nothing; frames behind them are found."""
    one = frame(0, b"one")
    two = frame(5_000_000, b"two", queue_offset=1)
    image = tmp_path / "thin.img"
    with image.open("wb") as file:
        file.write(one)
        file.seek((1 << 40) + 4097)
        file.write(two)
        file.truncate(1 << 41)
    report = salvage([image], tmp_path / "new")
    assert (report.found, report.salvaged, report.strange_spans) == (2, 2, 0)


def test_magic_codes_across_the_edges_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.store.salvage.carve._SEARCHED", 300)
    chance = random.Random(3)
    log = b""
    for number in range(200):
        log += chance.randbytes(chance.randrange(1, 250)) + frame(number * 1000, b"b" * number, queue_offset=number)
    (tmp_path / "log").write_bytes(log)
    report = salvage([tmp_path / "log"], tmp_path / "new")
    assert (report.found, report.salvaged, report.runs, report.strange_spans) == (200, 200, 200, 200)


def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        salvage([store_path("clean")], tmp_path / "new", events=Events(progress=interrupted))
    assert list(tmp_path.iterdir()) == []


def test_no_store_is_made_among_the_files_of_another(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("noindex")
    loose = tmp_path / "loose"
    loose.mkdir()
    file = next((store / "commitlog").iterdir())
    (loose / "a.bin").write_bytes(file.read_bytes())
    before = tree_state(store), tree_state(loose)
    for sources, target in (
        ([store / "commitlog"], store / "new"),
        ([file], store / "commitlog" / "new"),
        ([loose / "a.bin"], store / "consumequeue" / "new"),
    ):
        with pytest.raises(RefusedError, match=r"inside the store"):
            salvage(sources, target)
    assert (tree_state(store), tree_state(loose)) == before
    assert salvage([loose / "a.bin"], loose / "new").salvaged > 0


def test_with_the_setting_ext_units_are_those_of_the_broker(golden_store: GoldenStore, tmp_path: Path) -> None:
    source = golden_store("cqext")
    config = read_broker_conf(broker_conf("cqext", source.parent))
    salvage([source], tmp_path / "new", config=config)
    for folder in ("consumequeue", "consumequeue_ext"):
        assert files_below(tmp_path / "new" / folder) == files_below(source / folder)


def test_a_light_queue_whose_offsets_run_ahead_keeps_its_places(tmp_path: Path) -> None:
    runs_ahead(tmp_path / "store")
    report = salvage([tmp_path / "store"], tmp_path / "new")
    assert (report.salvaged, report.renumbered) == (len(LISTED), 0)
    with MessageStore.open(tmp_path / "new", "r") as opened:
        assert [one.code for one in opened.check() if one.severity.is_alarm] == []
        assert [one.queue_offset for one in opened.get("%LMQ%a", 0, 0).messages] == list(range(len(LISTED)))
