"""Integers that a store's files hold, at the ends of their fields, through the code that writes and reads them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry, IndexFile, IndexHeader, time_difference
from rmqctl.store.log.implied import packed_entries
from rmqctl.store.queues.consumequeue import (
    PLACEHOLDER_SIZE,
    BatchConsumeQueue,
    ConsumeQueue,
    QueueUnit,
    ext_address,
    ext_offset,
)
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt, ExtUnit
from rmqctl.store.store_files import Checkpoint, read_checkpoint, write_checkpoint
from rmqctl.store.timer.wheel import SlotAt, slots_from

SHORT, INT, LONG = 1 << 15, 1 << 31, 1 << 63
GEOMETRY = Geometry(10, 20)
BEGIN = 1_700_000_000_000


def index_file(path: Path) -> IndexFile:
    io.create_file(path, GEOMETRY.file_size)
    return IndexFile(path, GEOMETRY, Descriptors())


# ---- index files


@pytest.mark.parametrize(
    ("begin", "stored", "seconds"),
    [
        (BEGIN, BEGIN, 0),
        (BEGIN, BEGIN + 999, 0),
        (BEGIN, BEGIN + 1000, 1),
        (BEGIN, BEGIN - 1, 0),
        (BEGIN, -LONG + BEGIN, 0),
        (BEGIN, BEGIN + (INT - 1) * 1000 - 1, INT - 2),
        (BEGIN, BEGIN + (INT - 1) * 1000, INT - 1),
        (BEGIN, BEGIN + INT * 1000, INT - 1),
        (BEGIN, LONG - 1, INT - 1),
        (1, LONG - 1, INT - 1),
        (LONG - 1, LONG - 1, 0),
        (0, BEGIN, 0),
        (-LONG, BEGIN, 0),
    ],
)
def test_the_time_of_an_index_entry_stays_in_its_field(tmp_path: Path, begin: int, stored: int, seconds: int) -> None:
    """IndexFile#putKey: seconds since the file's begin, at most Integer.MAX_VALUE, 0 for an earlier time."""
    assert time_difference(begin, stored) == seconds
    file = index_file(tmp_path / "index")
    file.put(5, 0, begin)
    file.put(5, 100, stored)
    file.close()
    (written,) = struct.unpack_from(">i", file.path.read_bytes(), GEOMETRY.entry_position(2) + 12)
    assert written == seconds
    columns = np.array([5], np.int32), np.array([100]), np.array([stored])
    packed = packed_entries(*columns, begin, np.array([1], np.int32))
    assert packed.tobytes() == struct.pack(">iqii", 5, 100, seconds, 1)


@pytest.mark.parametrize("key_hash", [0, INT - 1])
@pytest.mark.parametrize("offset", [0, LONG - 1])
def test_an_index_entry_is_found_at_the_ends_of_hash_and_offset(tmp_path: Path, key_hash: int, offset: int) -> None:
    file = index_file(tmp_path / "index")
    file.put(key_hash, offset, BEGIN)
    file.close()
    again = IndexFile(file.path, GEOMETRY, Descriptors())
    assert [(one.key_hash, one.physical_offset) for one in again.chain(key_hash)] == [(key_hash, offset)]
    assert again.header == IndexHeader(BEGIN, BEGIN, offset, offset, 1, 2)


@pytest.mark.parametrize(
    ("count", "read", "is_full"), [(-INT, 1, False), (-1, 1, False), (0, 1, False), (INT - 1, INT - 1, True)]
)
def test_any_count_of_an_index_header_is_read(tmp_path: Path, count: int, read: int, is_full: bool) -> None:
    file = index_file(tmp_path / "index")
    file.path.write_bytes(struct.pack(">4q2i", -LONG, LONG - 1, -LONG, LONG - 1, INT - 1, count))
    again = IndexFile(file.path, GEOMETRY, Descriptors())
    assert again.header == IndexHeader(-LONG, LONG - 1, -LONG, LONG - 1, INT - 1, read)
    assert again.is_full is is_full


@pytest.mark.parametrize("number", [-INT, -1, 0, 1, 2, INT - 1])
def test_a_slot_with_any_number_leads_to_an_entry_or_to_none(tmp_path: Path, number: int) -> None:
    file = index_file(tmp_path / "index")
    file.put(5, 100, BEGIN)
    file.close()
    io.write_range(file.path, GEOMETRY.slot_position(5), struct.pack(">i", number))
    again = IndexFile(file.path, GEOMETRY, Descriptors())
    assert again.raw_slot(5) == number
    assert again.slot(5) == (1 if number == 1 else 0)


# ---- queues

UNITS = [
    QueueUnit(0, 0, 1, 0),
    QueueUnit(0, LONG - 1, PLACEHOLDER_SIZE - 1, LONG - 1),
    QueueUnit(0, 1, 100, -LONG),
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_reads_back(tmp_path: Path, unit: QueueUnit) -> None:
    queue = ConsumeQueue("T", 0, tmp_path / "0", 80, Descriptors())
    queue.load()
    queue.append(unit)
    queue.close()
    (file,) = (tmp_path / "0").iterdir()
    assert file.read_bytes()[:20] == struct.pack(">qiq", unit.physical_offset, unit.size, unit.tags_code)
    again = ConsumeQueue("T", 0, tmp_path / "0", 80, Descriptors())
    again.load()
    assert again.unit(0) == unit


@pytest.mark.parametrize(
    "unit",
    [
        QueueUnit(0, 0, 1, -LONG, -LONG, 1, -INT),
        QueueUnit(LONG - SHORT, LONG - 1, INT - 1, LONG - 1, LONG - 1, SHORT - 1, INT - 1),
    ],
)
def test_a_batch_unit_reads_back(tmp_path: Path, unit: QueueUnit) -> None:
    queue = BatchConsumeQueue("T", 0, tmp_path / "0", 46 * 4, Descriptors())
    queue.load()
    queue.append(unit)
    (file,) = (tmp_path / "0").iterdir()
    fields = unit.physical_offset, unit.size, unit.tags_code, unit.store_timestamp, unit.queue_offset
    assert file.read_bytes()[:46] == struct.pack(">qiqqqhii", *fields, unit.batch_size, unit.compacted_offset, 0)
    again = BatchConsumeQueue("T", 0, tmp_path / "0", 46 * 4, Descriptors())
    again.load()
    assert list(again.units(0)) == [unit]


@pytest.mark.parametrize(
    ("size", "bits", "is_unit"),
    [(20, 0, True), (SHORT - 1, SHORT - 21, True), (-SHORT, SHORT - 20, False), (-1, -21, False), (0, -20, False)],
)
@pytest.mark.parametrize("long", [-LONG, LONG - 1])
def test_an_ext_unit_of_any_size(tmp_path: Path, size: int, bits: int, is_unit: bool, long: int) -> None:
    """Both sizes are signed shorts: the largest unit has 32,767 bytes."""
    (tmp_path / ("0" * 20)).write_bytes(struct.pack(">hqqh", size, long, long, bits) + bytes(SHORT))
    ext = ConsumeQueueExt(tmp_path, None, Descriptors())
    ext.load()
    assert ext.unit(0) == (ExtUnit(size, long, long, bytes(bits)) if is_unit else None)


@pytest.mark.parametrize("offset", [0, LONG - INT - 1])
def test_the_last_ext_address_is_below_every_hash(offset: int) -> None:
    assert ext_offset(ext_address(offset)) == offset
    assert ext_offset(ext_address(LONG - INT)) is None


# ---- checkpoint and timer wheel


@pytest.mark.parametrize("long", [-LONG, -1, 0, LONG - 1])
def test_a_checkpoint_reads_back(tmp_path: Path, long: int) -> None:
    path = tmp_path / "checkpoint"
    for place in range(6):
        checkpoint = Checkpoint(*(long if at == place else 0 for at in range(6)))
        write_checkpoint(path, checkpoint)
        assert path.read_bytes()[:48] == struct.pack(">6q", *checkpoint)
        assert read_checkpoint(path) == checkpoint
        assert 0 <= checkpoint.min_timestamp < LONG


@pytest.mark.parametrize(("long", "number"), [(1, -INT), (LONG - 1, INT - 1)])
def test_a_slot_of_the_wheel_reads_back(tmp_path: Path, long: int, number: int) -> None:
    slot = SlotAt(0, long * 1000, long, long, number, number)
    path = tmp_path / "timerwheel"
    path.write_bytes(slot.packed() + bytes(32))
    assert slot.packed() == struct.pack(">qqqii", long, long, long, number, number)
    assert slots_from(path, Descriptors(), 1) == [slot]
