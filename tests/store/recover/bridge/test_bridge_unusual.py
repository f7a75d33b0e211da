"""Bridging where not only the log is damaged: units that contradict one another, files that end early or change."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import BLANK_FRAME
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.journal.undo import undo
from rmqctl.store.log.walk import Damage
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.bridge import DAMAGED_PROPERTY, recover_bridging
from rmqctl.store.recover.report import RecoverReport
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, Row, tree_state, truth
from tests.store.logs import bytes_to_read
from tests.store.recover.bridge.test_bridge import FILE, assert_bridged, bridge, records, zero
from tests.store.recover.bridge.test_bridge_batches import (
    NAME,
    TOPIC,
    assert_dense,
    fillers,
    garble,
    overwrite,
    units,
    without_queues,
    written,
)
from tests.store.recover.bridge.test_bridge_batches import bridge as bridge_batches


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_two_spans_in_a_file_that_is_too_short(golden_store: GoldenStore) -> None:
    """It gets its length once, and every slot of both spans a message."""
    store = golden_store("short-middle")
    zero(store, 600000, 600004)
    report = bridge(store, "short-middle")
    rows = [row for row in truth("clean").messages if row["phyOffset"] <= 600000 or row["phyOffset"] >= 667058]
    [lost] = [row for row in rows if row["phyOffset"] <= 600000 < row["phyOffset"] + row["storeSize"]]
    assert [(row["physical_offset"], row["end_offset"], row["fillers"]) for row in report.bridged] == [
        (lost["phyOffset"], lost["phyOffset"] + lost["storeSize"], 1),
        (667058, 786432, 131),
    ]
    path = f"commitlog/{524288:020d}"
    assert [row["path"] for row in report.operations if row["operation"] == "resize"] == [path]
    assert (store / path).stat().st_size == FILE
    found = {one.physical_offset: one for one in records(store) if isinstance(one, StoredMessage)}
    assert not [one for one in records(store) if isinstance(one, Damage)]
    assert {row["phyOffset"] for row in rows} <= found.keys()
    assert found[lost["phyOffset"]].properties() == {DAMAGED_PROPERTY: report.bridged[0]["reason"]}
    assert bridge(store, "short-middle").operations == []


def test_lost_messages_of_megabytes_are_written_one_after_the_other(tmp_path: Path) -> None:
    """Their fillers are as large, and are not in memory together."""
    config = StoreConfig(
        mapped_file_size_commit_log=8 << 20,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=500,
        max_index_num=2000,
    )
    sizes = [10, 1_500_000, 1_200_000, 100_000, 10]
    with MessageStore.open(tmp_path / "store", "rw", config, create=True) as store:
        results = [store.put(Message("T", bytes([65 + n]) * size)) for n, size in enumerate(sizes)]
    offsets = [one.physical_offset for one in results if one.physical_offset is not None]
    begin, end = offsets[1], offsets[4]
    for offset in offsets[1:4]:
        patch(tmp_path / "store/commitlog" / f"{0:020d}", offset, bytes(100))
    with StoreFiles(tmp_path / "store", config) as files:
        report = recover_bridging(files)
    assert [(row["physical_offset"], row["end_offset"], row["fillers"]) for row in report.bridged] == [(begin, end, 3)]
    writes = [row for row in report.operations if row["operation"] == "write" and "commitlog" in row["path"]]
    assert [row["bytes"] for row in writes] == [offsets[n + 1] - offsets[n] for n in (1, 2, 3)]
    found = [one for one in records(tmp_path / "store") if isinstance(one, StoredMessage)]
    assert [(one.physical_offset, one.queue_offset) for one in found] == [(at, n) for n, at in enumerate(offsets)]
    assert (found[0].body, found[4].body) == (b"A" * 10, b"E" * 10)
    assert all(one.body.startswith(b"rmqctl: the message that stood here was damaged") for one in found[1:4])


def test_the_last_message_of_the_last_file_before_its_blank_frame(golden_store: GoldenStore) -> None:
    """Behind the filler follows no message any more, only the end of a full file."""
    store = golden_store("clean")
    last = max((row for row in truth("clean").messages if row["phyOffset"] < FILE), key=lambda row: row["phyOffset"])
    for path in (store / "commitlog").iterdir():
        if int(path.name):
            path.unlink()
    patch(store / "commitlog" / f"{0:020d}", last["phyOffset"], bytes(40))
    report = bridge(store, "clean")
    assert [(row["physical_offset"], row["fillers"]) for row in report.bridged] == [(last["phyOffset"], 1)]
    assert report.end_offset == FILE
    [filler] = [one for one in records(store) if one.physical_offset == last["phyOffset"]]
    assert isinstance(filler, StoredMessage)
    with StoreFiles(store) as files:
        queue = files.queues.find(last["topic"], last["queueId"])
        assert queue is not None
        unit = queue.unit(last["queueOffset"])
        assert unit is not None
        assert (unit.physical_offset, unit.size) == (last["phyOffset"], filler.total_size)
        assert queue.max_offset == last["queueOffset"] + 1
    assert bridge(store, "clean").operations == []


def test_nothing_is_left_behind_the_blank_frame_that_ends_a_file_anew(golden_store: GoldenStore) -> None:
    """What lay there would look like the end of a message to whoever looks at the file byte by byte."""
    store = golden_store("clean")
    blank = 261787
    patch(store / "commitlog" / f"{0:020d}", blank, b"\xee" * 300)
    report = bridge(store, "clean")
    assert [(row["physical_offset"], row["end_offset"]) for row in report.bridged] == [(blank, FILE)]
    content = (store / "commitlog" / f"{0:020d}").read_bytes()
    assert content[blank + BLANK_FRAME.size :] == bytes(FILE - blank - BLANK_FRAME.size)


def other_unit(store: Path, golden: str, lost: Row) -> None:
    """A unit of another queue points at the lost message too, with another size."""
    folder = store / "consumequeue"
    others = sorted(
        path for path in folder.glob("*/*/*") if path.parent != folder / lost["topic"] / str(lost["queueId"])
    )
    patch(others[-1], 0, struct.pack(">qi", lost["phyOffset"], lost["storeSize"] - 10))


def test_units_that_do_not_agree_on_the_size_of_a_lost_message(golden_store: GoldenStore) -> None:
    """The first one is believed; the other's queue keeps its own message."""
    store = golden_store("crc-flip-old")
    [lost] = [row for row in truth("clean").messages if row["phyOffset"] == 402516]
    other_unit(store, "clean", lost)
    [filler] = assert_bridged_once(store, 402516)
    assert filler.total_size == lost["storeSize"]


def assert_bridged_once(store: Path, begin: int) -> list[StoredMessage]:
    bridge(store, "crc-flip-old")
    return assert_bridged(store, "clean", begin, begin + 1)


def test_batch_units_that_do_not_agree_on_the_size_of_a_lost_batch(golden_store: GoldenStore) -> None:
    store = golden_store(NAME)
    batch, other = written(0, 4), written(1, 6)
    garble(store, batch, batch)
    path = store / "batchconsumequeue" / TOPIC / "1" / f"{0:020d}"
    at = path.read_bytes().index(struct.pack(">qi", other.physical_offset, other.size))
    patch(path, at, struct.pack(">qi", batch.physical_offset, batch.size - 10))
    bridge_batches(store)
    assert [(one.queue_id, one.queue_offset, one.total_size) for one in fillers(store)] == [(0, 4, batch.size)]
    assert_dense(store)


def test_a_batch_with_a_queue_offset_below_zero_bounds_no_gap(golden_store: GoldenStore) -> None:
    """No checksum covers queueOffset, and no unit is made of such a batch: gaps are between those before and behind."""
    store = golden_store(NAME)
    garble(store, written(0, 4), written(0, 4))
    wrong = written(0, 16)
    overwrite(store, wrong.physical_offset + 20, (-5).to_bytes(8, "big", signed=True))
    without_queues(store)
    report = bridge_batches(store)
    assert report.slot_conflicts == 1
    assert [(one.queue_id, one.queue_offset, one.properties()["INNER_NUM"]) for one in fillers(store)] == [(0, 4, "5")]
    assert wrong.physical_offset not in {batch.physical_offset for batch in units(store)}


def bridging(store: Path, config: StoreConfig, at_each: Callable[[int], None]) -> RecoverReport:
    with StoreFiles(store, config) as files:
        return recover_bridging(files, change=ChangeOptions(progress=at_each))


def test_a_gap_that_is_no_whole_file_is_refused(golden_store: GoldenStore) -> None:
    """With a size that is not the broker's the missing file seems to be a part of one, or several."""
    store = golden_store("gap")
    before = tree_state(store.parent)
    with pytest.raises(
        RefusedError, match="986432: 37856 bytes of the log are missing there, which is no whole file of 100000"
    ) as told:
        bridging(store, StoreConfig(mapped_file_size_commit_log=100_000), lambda passed: None)
    assert "mappedFileSizeCommitLog" in (told.value.hint or "")
    assert tree_state(store.parent) == before


def test_a_missing_file_behind_one_that_is_too_long(golden_store: GoldenStore) -> None:
    """What sticks out of the one is not taken for a part of the other."""
    store = golden_store("gap")
    before = store / "commitlog" / f"{1048576 - FILE:020d}"
    with before.open("ab") as file:
        file.write(b"\xee" * 10)
    report = bridge(store, "gap")
    assert [(row["physical_offset"], row["end_offset"], row["fillers"]) for row in report.bridged] == [
        (1048103, 1048576, 0),  # the blank frame, which does not reach to the end of so long a file
        (1048576, 1310720, 304),
    ]
    assert before.stat().st_size == FILE
    assert_bridged(store, "clean", 1048576, 1310720)
    assert bridge(store, "gap").operations == []


@pytest.mark.parametrize("name", ["gap", "v4-gap"])
def test_a_file_of_no_bytes_in_the_middle_is_filled(golden_store: GoldenStore, name: str) -> None:
    """It is as if it were missing, and must not be taken for one that was made ahead."""
    store = golden_store(name)
    path = store / "commitlog" / f"{1048576:020d}"
    path.touch()
    os.utime(path, ns=(10**18, 10**18))
    before = tree_state(store)
    report = bridge(store, name)
    assert [(row["operation"], row["path"]) for row in report.operations if row["path"].endswith(path.name)] == [
        ("resize", f"commitlog/{path.name}"),
        *[("write", f"commitlog/{path.name}")] * 2,
    ]
    assert path.stat().st_size == FILE
    assert_bridged(store, "clean" if name == "gap" else "v4-clean", 1048576, 1310720)
    assert bridge(store, name).operations == []
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


def test_a_message_that_changes_once_it_was_passed(golden_store: GoldenStore) -> None:
    """Fillers take hosts and times from the message before the damage, which must still be one."""
    store = golden_store("crc-flip-old")
    rows = [row for row in truth("clean").messages if row["phyOffset"] < 402516]
    path = store / "commitlog" / f"{262144:020d}"
    with StoreFiles(store) as files:
        whole = bytes_to_read(files.log)
    passed = 0

    def another_program(count: int) -> None:
        nonlocal passed
        passed += count
        if passed == whole:
            patch(path, rows[-1]["phyOffset"] - 262144, b"\xff" * 8)

    with pytest.raises(RefusedError, match="has changed while it was read") as told:
        bridging(store, StoreConfig(), another_program)
    assert (told.value.physical_offset, told.value.hint) == (rows[-1]["phyOffset"], "run it again")
    assert not store.with_name("crc-flip-old.rmqctl").exists()
