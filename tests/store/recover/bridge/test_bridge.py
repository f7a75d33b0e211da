"""Bridging: well-formed frames take the place of damage, every slot that was lost has one, everything else stays."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import Message, StoredMessage, decode_message, frame_bytes, prepare_frame
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.journal.undo import undo
from rmqctl.store.log.walk import Damage, Empty, walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.bridge import DAMAGED_PROPERTY, PADDING_TOPIC, recover_bridging
from rmqctl.store.recover.report import RecoverReport
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state, truth
from tests.quick import sample

FILE = 262144


def bridge(store: Path, golden: str, *, dry_run: bool = False) -> RecoverReport:
    conf = read_broker_conf(broker_conf(golden, store.parent))
    with StoreFiles(store, conf) as files:
        return recover_bridging(files, change=ChangeOptions(dry_run=dry_run))


def zero(store: Path, begin: int, end: int) -> None:
    while begin < end:
        stop = min(end, begin - begin % FILE + FILE)
        with (store / "commitlog" / f"{begin - begin % FILE:020d}").open("r+b") as file:
            file.seek(begin % FILE)
            file.write(bytes(stop - begin))
        begin = stop


def records(store: Path) -> list[Any]:
    with StoreFiles(store) as files:
        return list(walk(files.log))


def assert_bridged(store: Path, golden: str, begin: int, end: int) -> list[StoredMessage]:
    """No damage, no hole; the golden's messages outside [begin, end) as they were; a filler for each slot inside.
    Returns the fillers."""
    found = records(store)
    assert not [record for record in found if isinstance(record, Damage)]
    assert [record for record in found if isinstance(record, Empty)] in ([], found[-1:])
    messages = {record.physical_offset: record for record in found if isinstance(record, StoredMessage)}
    rows = truth(golden).messages
    lost = [row for row in rows if row["phyOffset"] < end and row["phyOffset"] + row["storeSize"] > begin]
    gone = {row["phyOffset"] for row in lost}
    for row in rows:
        if row["phyOffset"] not in gone:
            message = messages.pop(row["phyOffset"])
            assert (message.topic, message.queue_offset, message.total_size) == (
                row["topic"],
                row["queueOffset"],
                row["storeSize"],
            )
    fillers = [message for message in messages.values() if has_queue_slot(message.sys_flag)]
    assert all(message.topic == PADDING_TOPIC for message in messages.values() if message not in fillers)
    assert sorted((m.topic, m.queue_id, m.queue_offset) for m in fillers) == sorted(
        (row["topic"], row["queueId"], row["queueOffset"]) for row in lost if has_queue_slot(row["sysFlag"])
    )
    with StoreFiles(store) as files:
        for message in fillers:
            queue = files.queues.find(message.topic, message.queue_id)
            assert queue is not None
            unit = queue.unit(message.queue_offset)
            assert unit is not None
            assert (unit.physical_offset, unit.size) == (message.physical_offset, message.total_size)
        for queue in files.queues.all():
            assert all(unit.is_written for unit in queue.units(queue.min_offset(files.log.min_offset)))
    times = [record.store_timestamp for record in found if isinstance(record, StoredMessage)]
    assert times == sorted(times)
    return fillers


@pytest.mark.parametrize(
    ("name", "base", "begin", "end", "fillers"),
    [
        ("crc-flip-old", "clean", 402516, 402517, 1),
        ("crc-flip-old-abort", "crash", 402516, 402517, 1),
        ("crc-flip-third", "clean", 1695806, 1695807, 1),
        ("crc-flip-last", "clean", 2106230, 2106231, 1),
        ("v4-crc-flip-old", "v4-clean", 402371, 402372, 1),
        ("gap", "clean", 1048576, 1310720, 304),
        ("v4-gap", "v4-clean", 1048576, 1310720, 307),
        ("short-middle", "clean", 667058, 786432, 131),
    ],
)
def test_damaged_goldens(golden_store: GoldenStore, name: str, base: str, begin: int, end: int, fillers: int) -> None:
    store = golden_store(name)
    before = tree_state(store)
    planned = bridge(store, name, dry_run=True)
    assert tree_state(store) == before
    report = bridge(store, name)
    assert planned.bridged == report.bridged
    assert planned.operations == report.operations
    assert report.damaged == []
    assert [row["fillers"] for row in report.bridged] == [fillers]
    found = assert_bridged(store, base, begin, end)
    if fillers == 1:  # in place of the very frame, marked and readable
        [filler] = found
        assert (filler.physical_offset, filler.total_size) == (
            report.bridged[0]["physical_offset"],
            report.bridged[0]["end_offset"] - report.bridged[0]["physical_offset"],
        )
        assert filler.properties() == {DAMAGED_PROPERTY: "body_crc"}
        assert filler.body.startswith(b"rmqctl: the message that stood here was damaged")
    again = bridge(store, name)
    assert (again.operations, again.bridged) == ([], [])
    with StoreFiles(store) as files:
        undo(files.layout)
    after = tree_state(store)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {".", "lock"}


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (0, 5000),
        (600000, 600004),
        (600000, 700000),
        (500000, 600000),  # over a file's end
        (261787, 262144),  # a blank frame
        (261780, 262200),  # and what is around it
        (524288, 1048576),  # two whole files
        (300000, 1300000),
    ],
)
def test_zeros_anywhere(golden_store: GoldenStore, begin: int, end: int) -> None:
    store = golden_store("clean")
    zero(store, begin, end)
    bridge(store, "clean")
    assert_bridged(store, "clean", begin, end)


def swap(store: Path, one: int, other: int) -> None:
    paths = [store / "commitlog" / f"{start:020d}" for start in (one, other)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)


PAIRS = [(number, number + 1) for number in range(7)] + [(2, 4), (4, 6)]


@pytest.mark.parametrize("pair", sample(PAIRS, [(3, 4), (4, 6)]), ids=str)
def test_swapped_files(golden_store: GoldenStore, pair: tuple[int, int]) -> None:
    """Of two swapped files one is fuller than the other, whose blank frame then covers the place of its last messages:
    these are lost like all others of the file, and nothing is left for a second recovery."""
    store = golden_store("clean")
    swap(store, pair[0] * FILE, pair[1] * FILE)
    report = bridge(store, "clean")
    assert (len(report.bridged), report.slot_conflicts) == (2, 0)
    found = [record for record in records(store) if isinstance(record, StoredMessage)]
    messages = {record.physical_offset: record for record in found if has_queue_slot(record.sys_flag)}
    spans = [(row["physical_offset"], row["end_offset"]) for row in report.bridged]
    for row in truth("clean").messages:
        is_swapped = row["phyOffset"] // FILE in pair
        assert is_swapped == any(begin <= row["phyOffset"] < end for begin, end in spans)
        message = messages.pop(row["phyOffset"])
        # each filler where the message stood, with its slot
        assert (message.topic, message.queue_id, message.queue_offset) == (
            row["topic"],
            row["queueId"],
            row["queueOffset"],
        )
        assert is_swapped or message.total_size == row["storeSize"]
    assert [message.topic for message in messages.values()] == []
    with MessageStore.open(store, "r", read_broker_conf(broker_conf("clean", store.parent))) as opened:
        assert [f for f in opened.check("full") if f.code not in ("RMQ-LOG-017", "RMQ-TIME-001")] == []
    again = bridge(store, "clean")
    assert (again.operations, again.bridged, again.slot_conflicts) == ([], [], 0)


@pytest.mark.parametrize("golden", ["features", "lmq", "propcrc", "longtopic", "cqext"])
def test_garbage_among_all_kinds_of_messages(golden_store: GoldenStore, golden: str) -> None:
    rows = truth(golden).messages
    first, last = rows[len(rows) // 4], rows[-3]
    begin, end = first["phyOffset"] + 5, last["phyOffset"]
    store = golden_store(golden)
    for start in range(begin - begin % FILE, end, FILE):
        path = store / "commitlog" / f"{start:020d}"
        low, high = max(begin, start), min(end, start + FILE)
        with path.open("r+b") as file:
            file.seek(low - start)
            file.write(hashlib.shake_128(golden.encode()).digest(high - low))
    bridge(store, golden)
    fillers = assert_bridged_multi(store, golden, begin, end)
    assert fillers
    if golden == "lmq":
        assert any("INNER_MULTI_DISPATCH" in filler.properties() for filler in fillers)
    if golden == "propcrc":
        assert all("__CRC32#" in filler.properties() for filler in fillers)
    if golden == "features":
        delayed = [filler for filler in fillers if filler.topic == "SCHEDULE_TOPIC_XXXX"]
        # a broker's delay service passes over a message for this topic
        assert {filler.properties()["REAL_TOPIC"] for filler in delayed} == {"RMQ_SYS_TRANS_HALF_TOPIC"}


def assert_bridged_multi(store: Path, golden: str, begin: int, end: int) -> list[StoredMessage]:
    """As `assert_bridged`; the queues as RocketMQ itself saw them are as long as before."""
    fillers = assert_bridged(store, golden, begin, end)
    with StoreFiles(store) as files:
        lengths = {(queue.topic, queue.queue_id): queue.max_offset for queue in files.queues.all()}
    for row in truth(golden).queues:
        if row["max"]:
            assert lengths[(row["topic"], row["queueId"])] == row["max"], row
    return fillers


def test_without_queues_the_missing_slots_tell(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "commitlog" / f"{1048576:020d}").unlink()
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    report = bridge(store, "clean")
    assert not [record for record in records(store) if isinstance(record, Damage)]
    [row] = report.bridged
    lost = [m for m in truth("clean").messages if 1048576 <= m["phyOffset"] < 1310720]
    later = {(m["topic"], m["queueId"]) for m in truth("clean").messages if m["phyOffset"] >= 1310720}
    told = [m for m in lost if (m["topic"], m["queueId"]) in later]
    assert row["fillers"] == len(told) < len(lost)
    with StoreFiles(store) as files:
        for queue in files.queues.all():
            assert all(unit.is_written for unit in queue.units(0))


def test_a_commitlog_file_keeps_its_age(golden_store: GoldenStore) -> None:
    store = golden_store("gap")
    zero(store, 5000, 5100)
    names = [path.name for path in (store / "commitlog").iterdir()]
    for number, name in enumerate(sorted(names)):
        os.utime(store / "commitlog" / name, ns=(10**18, 10**18 + number))
    bridge(store, "gap")
    times = {path.name: path.stat().st_mtime_ns for path in (store / "commitlog").iterdir()}
    assert times[f"{0:020d}"] == 10**18
    assert times[f"{1048576:020d}"] == times[f"{1310720:020d}"] == 10**18 + 4


def test_a_torn_tail_is_cut_and_not_bridged(golden_store: GoldenStore) -> None:
    store = golden_store("torn-zero")
    zero(store, 402516, 402520)
    report = bridge(store, "torn-zero")
    assert report.end_offset == 2135296
    assert [row["physical_offset"] for row in report.bridged] == [402516]


def test_units_that_are_wrong_make_no_fillers(golden_store: GoldenStore) -> None:
    """Units that point into the damage but whose slot a good message has, or which no message can have."""
    store = golden_store("crc-flip-old")
    queue = store / "consumequeue" / "OrderTopic" / "0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[0:12] = (402516).to_bytes(8, "big") + (762).to_bytes(4, "big")
    queue.write_bytes(data)
    bridge(store, "crc-flip-old")
    assert_bridged(store, "clean", 402516, 402517)


def test_a_span_too_small_for_a_frame_is_taken_by_the_message_before(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Forty bytes between two good frames: nobody but a program writes that."""
    store = golden_store("clean")
    rows = truth("clean").messages
    first, second = rows[10], rows[11]
    path = store / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    # the message is made shorter by its body, so that a few bytes are left before the next
    message = decode_message(data, first["phyOffset"], FILE, first["phyOffset"])
    assert len(message.body) > 40
    copy = Message(
        topic=message.topic, body=message.body[:-40], queue_id=message.queue_id,
        property_bytes=message.property_bytes, sys_flag=message.sys_flag, born_host=message.born_host,
    )  # fmt: skip
    parts = prepare_frame(copy, message.store_host, message.born_timestamp)
    frame = frame_bytes(parts, message.queue_offset, message.physical_offset, message.store_timestamp)
    at = first["phyOffset"]
    path.write_bytes(data[:at] + frame + b"\xaa" * 40 + data[second["phyOffset"] :])
    report = bridge(store, "clean")
    assert [(row["physical_offset"], row["end_offset"], row["fillers"]) for row in report.bridged] == [
        (second["phyOffset"] - 40, second["phyOffset"], 0)
    ]
    found = {record.physical_offset: record for record in records(store) if isinstance(record, StoredMessage)}
    assert len(found) == 2500
    assert found[at].body == message.body[:-40]
    assert found[at].properties() == message.properties()
    with StoreFiles(store) as files:
        queue = files.queues.find(message.topic, message.queue_id)
        assert queue is not None
        unit = queue.unit(message.queue_offset)
        assert unit is not None
        assert unit.size == found[at].total_size == first["storeSize"]
    assert bridge(store, "clean").operations == []


def damaged_at_the_start_of_a_file(store: Path, length: int) -> None:
    """The first bytes of a file are no message, and the first message is as much shorter."""
    path = store / "commitlog" / f"{524288:020d}"
    data = bytearray(path.read_bytes())
    first = decode_message(data, 0, FILE, 524288)
    assert len(first.body) > length
    copy = Message(
        topic=first.topic, body=first.body[:-length], queue_id=first.queue_id,
        property_bytes=first.property_bytes, born_host=first.born_host,
    )  # fmt: skip
    parts = prepare_frame(copy, first.store_host, first.born_timestamp)
    shorter = frame_bytes(parts, first.queue_offset, 524288 + length, first.store_timestamp)
    data[:length], data[length : first.total_size] = b"\xaa" * length, shorter
    path.write_bytes(data)


def test_a_small_span_at_the_start_of_a_file_is_refused(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    damaged_at_the_start_of_a_file(store, 30)
    before = tree_state(store.parent)
    with pytest.raises(RefusedError, match="30 damaged bytes are too few for a frame"):
        bridge(store, "clean")
    after = tree_state(store.parent)
    assert {p for p in after if before.get(p) != after[p]} <= {".", "clean.broker.conf"}


@pytest.mark.parametrize("length", [92, 93, 104, 105, 120])
def test_a_span_that_can_have_been_a_message_is_bridged(length: int, golden_store: GoldenStore) -> None:
    """Nobody knows which one: the shortest messages have a topic of one character and nothing else."""
    store = golden_store("clean")
    damaged_at_the_start_of_a_file(store, length)
    [row] = bridge(store, "clean").bridged
    assert (row["physical_offset"], row["end_offset"], row["padding_bytes"]) == (524288, 524288 + length, length)
    found = {record.physical_offset: record for record in records(store) if isinstance(record, StoredMessage)}
    assert (found[524288].total_size, has_queue_slot(found[524288].sys_flag)) == (length, False)
    assert not [record for record in records(store) if isinstance(record, Damage)]
    assert bridge(store, "clean").operations == []
