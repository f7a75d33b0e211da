"""Queues and index after a cleaning: RocketMQ's rules 5 and 6, and its own view of such a store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.store.clean.cleaner import clean
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.clean.plan import Because, judge_ext, judge_followers, judge_index, judge_queue
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.files.layout import file_name
from rmqctl.store.log.walk import Damage, walk
from rmqctl.store.queues.consumequeue import ConsumeQueue, ext_offset
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state, truth
from tests.store.clean.cleaning import (
    HOUR,
    IDLE,
    NO_PAUSE,
    NOW,
    SIZE,
    age,
    age_all,
    log_files,
    queue_ranges,
    reasons,
    run,
)
from tests.store.index.offsets import offsets_of


def test_6_queues_begin_where_rocketmq_lets_them_begin(golden_store: GoldenStore) -> None:
    """RocketMQ itself was started on `first-gone`: the clean store without its first two commitlog files."""
    store = golden_store("clean")
    age_all(store)
    run(store, CleanOptions(batch_maximum=2, pause=0))
    view = truth("first-gone")
    assert queue_ranges(store) == {(row["topic"], row["queueId"]): (row["min"], row["max"]) for row in view.queues}
    with StoreFiles(store) as files:
        assert files.log.min_offset == view.summary["minPhy"]
        assert [record.physical_offset for record in walk(files.log) if isinstance(record, StoredMessage)] == [
            row["phyOffset"] for row in view.messages
        ]


@pytest.mark.parametrize("count", [1, 4, 8])
@pytest.mark.parametrize("name", ["clean", "v4-clean"])
def test_5_what_is_left_is_whole_and_what_is_stale_is_gone(golden_store: GoldenStore, name: str, count: int) -> None:
    store = golden_store(name)
    age_all(store)
    low = count * SIZE
    old_files = {path for path in (store / "consumequeue").rglob("*") if path.is_file()}
    run(store, CleanOptions(batch_maximum=count, pause=0))
    messages = [row for row in truth(name).messages if row["phyOffset"] >= low]
    with StoreFiles(store) as files:
        records = list(walk(files.log))
        assert not [record for record in records if isinstance(record, Damage)]
        found = [record.physical_offset for record in records if isinstance(record, StoredMessage)]
        assert found == [row["phyOffset"] for row in messages]
        for row in messages:
            for unit_row in row["cq"]:
                queue = files.queues.find(unit_row["topic"], unit_row["queueId"])
                assert queue is not None
                unit = queue.unit(unit_row["offset"])
                assert unit is not None
                assert unit.physical_offset == row["phyOffset"]
    offsets = {
        (row["topic"], row["queueId"], unit["offset"]): row["phyOffset"]
        for row in truth(name).messages
        for unit in row["cq"]
    }
    for path in old_files:
        topic, queue_id = path.parts[-3], int(path.parts[-2])
        last_slot = int(path.name) // 20 + 99
        last_of_queue = max(slot for key, number, slot in offsets if (key, number) == (topic, queue_id))
        is_last = last_slot >= last_of_queue
        stale = not is_last and offsets[topic, queue_id, last_slot] < low
        assert path.exists() is not stale, path


def test_5_index_files_go_with_their_last_message_and_never_the_last(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    names = sorted(path.name for path in (store / "index").iterdir())
    ends = [row["endPhyOffset"] for row in truth("clean").summary["indexFiles"]]
    assert ends[0] < 3 * SIZE < ends[1] < 8 * SIZE, "the test needs these to prove anything"
    run(store, CleanOptions(batch_maximum=2, pause=0))
    assert sorted(path.name for path in (store / "index").iterdir()) == names
    run(store, CleanOptions(batch_maximum=1, pause=0))
    assert sorted(path.name for path in (store / "index").iterdir()) == names[1:]
    run(store, CleanOptions(batch_maximum=5, pause=0))
    assert sorted(path.name for path in (store / "index").iterdir()) == names[2:]


def test_5_keys_of_what_is_left_are_still_found(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    run(store, CleanOptions(batch_maximum=6, pause=0))
    with StoreFiles(store) as files:
        for row in truth("clean").messages:
            key = row["properties"].get("UNIQ_KEY")
            if key and row["phyOffset"] >= 6 * SIZE:
                assert row["phyOffset"] in offsets_of(files.index, row["topic"], key)


def test_5_stale_files_go_even_if_the_commitlog_was_shortened_by_others(golden_store: GoldenStore) -> None:
    """The first run after a start follows any min offset above 0, whoever made it."""
    store, twin = golden_store("clean"), golden_store("clean")
    age_all(twin)
    gone = {d.path.relative_to(twin) for d in run(twin, CleanOptions(batch_maximum=4, pause=0)).removed}
    for path in log_files(store)[:4]:
        path.unlink()
    age_all(store, 0)
    report = run(store)
    assert {d.path.relative_to(store) for d in report.removed} == {p for p in gone if p.parts[0] != "commitlog"}
    assert {p.parts[0] for p in gone} == {"commitlog", "consumequeue", "index"}


def test_5_the_only_file_of_a_queue_stays_even_if_all_its_units_are_stale(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    run(store, CleanOptions(batch_maximum=8, pause=0))
    low = 8 * SIZE
    old = [row for row in truth("clean").queues if row["lastOffset"] < low]
    assert old
    ranges = queue_ranges(store)
    for row in old:
        assert ranges[row["topic"], row["queueId"]] == (row["max"], row["max"]), "empty, and its end is not forgotten"


def test_5_a_queue_file_that_ends_in_a_hole_is_not_trusted(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    path = store / "consumequeue" / "topic-with-dash" / "0" / file_name(0)
    with path.open("r+b") as file:
        file.seek(1980)
        file.write(bytes(20))
    report = run(store, CleanOptions(batch_maximum=8, pause=0))
    mine = [decision for decision in report.decisions if decision.path.parent == path.parent]
    assert [decision.because.value for decision in mine][:2] == ["damaged", "behind_a_kept_file"]
    assert path.exists()


def test_5_placeholders_count_as_stale(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    path = store / "consumequeue" / "topic-with-dash" / "0" / file_name(0)
    path.write_bytes(bytes.fromhex("00000000000000007fffffff0000000000000000") * 100)
    run(store, CleanOptions(batch_maximum=1, pause=0))
    assert not path.exists()


def test_5_batch_queues_follow(golden_store: GoldenStore) -> None:
    store = golden_store("innerbatch")
    config = StoreConfig()
    # the message at 160456 is the one at offset 28 of queue 0, in its first file of ten units
    row = next(row for row in truth("innerbatch").queues if row["topic"] == "InnerBatchTopic" and row["queueId"] == 0)
    assert row["storeTimestampAndPhyAt"][1][::2] == [28, 160456]
    with StoreFiles(store, config) as files:
        queue = files.queues.find("InnerBatchTopic", 0)
        assert queue is not None
        ends = [unit.physical_offset for unit in queue.units(0)]
        assert [d.goes for d in judge_queue(queue, ends[9])] == [False, False]
        assert [d.goes for d in judge_queue(queue, ends[9] + 1)] == [True, False]
        assert queue.min_offset(160456) == 28
    second = store / "commitlog" / file_name(SIZE)
    second.write_bytes(b"x".ljust(SIZE, b"\0"))
    age_all(store)
    with StoreFiles(store, config) as files:
        queue = files.queues.find("InnerBatchTopic", 0)
        assert queue is not None
        assert (queue.min_offset(0), queue.max_offset) == (0, 57)
        clean(files, NO_PAUSE, now=NOW, usage=IDLE)
        assert sorted(path.name for path in queue.directory.iterdir()) == [file_name(460)]
        assert (queue.min_offset(SIZE), queue.max_offset) == (57, 57)
        assert len(list(queue.units(0))) == 5, "units of the removed file are forgotten"


@pytest.mark.parametrize("more", [None, 0, 1])
def test_6_ext_files_before_the_first_unit_go(golden_store: GoldenStore, more: int | None) -> None:
    """`more`: by how many bytes the first file ends behind the address of the unit; None for files of 50 bytes."""
    store = golden_store("cqext")
    with StoreFiles(store) as files:
        queue = max(files.queues.all(), key=lambda candidate: candidate.max_offset)
        assert isinstance(queue, ConsumeQueue)
        addresses = [ext_offset(unit.tags_code) for unit in queue.units(0)]
        offsets = [unit.physical_offset for unit in queue.units(0)]
        assert addresses[0] == 0
        assert len(addresses) >= 5
        third = addresses[3]
        assert third is not None
        size = 50 if more is None else third + more
        directory = store / "consumequeue_ext" / queue.topic / str(queue.queue_id)
        whole = (directory / file_name(0)).read_bytes()
        (directory / file_name(0)).unlink()
        for start in range(0, third + 200, size):
            (directory / file_name(start)).write_bytes(whole[start : start + size])
        ext = ConsumeQueueExt(directory, size, files.descriptors)
        ext.load()
        gone = [d.start_offset for d in judge_ext(queue, ext, offsets[3]) if d.goes]
        assert gone == [start for start in range(0, third, size) if start + size <= third]
        assert bool(gone) == (more != 1)
        assert not [d for d in judge_ext(queue, ext, 0) if d.goes]
        assert not [d for d in judge_ext(queue, ext, 1 << 40) if d.goes], "an empty queue names no ext unit"
        for path in sorted(directory.iterdir())[1:]:
            path.unlink()
        ext.files.look_again()
        assert [d.because for d in judge_ext(queue, ext, offsets[3])] == [Because.LAST]


def test_5_an_index_file_stays_as_long_as_its_last_message_and_the_last_one_always(golden_store: GoldenStore) -> None:
    with StoreFiles(golden_store("clean")) as files:
        end = files.index.files[0].header.end_physical_offset
        assert [d.because for d in judge_index(files.index, end)][:2] == [Because.STILL_USED, Because.BEHIND]
        assert next(judge_index(files.index, end + 1)).because is Because.STALE
        everything = [d.because for d in judge_index(files.index, 1 << 40)]
        assert everything == [Because.STALE] * (len(files.index.files) - 1) + [Because.LAST]


def test_a_rocksdb_s_queues_are_left_to_the_broker(golden_store: GoldenStore) -> None:
    store = golden_store("rocksdb")
    (store / "commitlog" / file_name(SIZE)).write_bytes(b"x".ljust(SIZE, b"\0"))
    age_all(store)
    before = tree_state(store / "consumequeue")
    report = run(store)
    assert reasons(report) == ["expired", "last"]
    assert "RocksDB" in " ".join(report.notes)
    assert tree_state(store / "consumequeue") == before


def test_files_of_several_commitlog_directories_go_in_the_order_of_their_offsets(
    golden_store: GoldenStore, tmp_path: Path
) -> None:
    store = golden_store("multipath")
    config = read_broker_conf(broker_conf("multipath", store.parent))
    for directory in ("cl-a", "cl-b"):
        for path in (store / directory).iterdir():
            age(path, 100 * HOUR)
    with StoreFiles(store, config) as files:
        report = clean(files, CleanOptions(batch_maximum=3, pause=0), now=NOW, usage=IDLE)
    assert [decision.start_offset for decision in report.removed if decision.kind == "commitlog"] == [0, SIZE, 2 * SIZE]
    assert [path.name for path in (store / "cl-a").iterdir()] == [file_name(4 * SIZE)]
    assert [path.name for path in (store / "cl-b").iterdir()] == [file_name(3 * SIZE)]


def test_5_what_is_damaged_stays_and_so_does_what_is_behind_it(golden_store: GoldenStore) -> None:
    """A queue file of another size, an index file that is none: what they hold is not certain."""
    store = golden_store("clean")
    with StoreFiles(store) as files:
        queue = next(queue for queue in files.queues.all() if len(queue.files.files) > 2)
        size = queue.files.file_size
        short = queue.files.files[0].path
        index = files.index.files[0].path
        number = len(files.index.files)
    os.truncate(short, size - 20)
    os.truncate(index, 10)
    with StoreFiles(store) as files:
        found = files.queues.find(queue.topic, queue.queue_id)
        assert found is not None
        decisions = list(judge_queue(found, 1 << 40))
        assert [one.because for one in decisions[:2]] == [Because.DAMAGED, Because.BEHIND]
        assert (decisions[0].path, decisions[0].detail) == (short, f"{size - 20} bytes instead of {size}")
        rows = list(judge_index(files.index, 1 << 40))
        assert [one.because for one in rows] == [Because.DAMAGED, *[Because.BEHIND] * (number - 2), Because.LAST]
        assert rows[0].path == index
        assert rows[0].detail


def test_5_followers_of_every_kind_of_queue(golden_store: GoldenStore) -> None:
    """Of a batch queue no ext file is asked for, of queues in a RocksDB nothing."""
    with StoreFiles(golden_store("innerbatch")) as files:
        kinds = [one.kind for one in judge_followers(files, 1 << 40)]
        assert {"consumequeue", "batchconsumequeue", "index"} <= set(kinds)
        assert list(judge_followers(files, 0)) == []
    with StoreFiles(golden_store("rocksdb")) as files:
        assert {one.kind for one in judge_followers(files, 1 << 40)} == {"index"}
