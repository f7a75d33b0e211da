"""Parts of RocksDB's files: integers, blocks, records of logs, batches and deleted ranges, hostile ones too."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import lz4.block
import pytest
import zstandard

from rmqctl.store.native.units import entries_of_batch
from rmqctl.store.rocksdb import database, records
from rmqctl.store.rocksdb.database import _Deletions, batch_entries
from rmqctl.store.rocksdb.records import BLOCK_SIZE, MalformedError, RecordReader, masked_crc32c, varint
from rmqctl.store.rocksdb.table import RANGE_DELETION, KeyEntry, _plain, block_pairs
from tests.hostile.making import framed


def _varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return data + bytes((value,))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**32 - 1, 2**63, 2**64 - 1])
def test_integers_at_the_ends_of_their_sizes(value: int) -> None:
    data = _varint(value)
    assert varint(b"x" + data + b"y", 1) == (value, 1 + len(data))
    with pytest.raises(MalformedError):
        varint(data[:-1], 0)


def test_an_integer_without_an_end_is_malformed() -> None:
    with pytest.raises(MalformedError):
        varint(b"\xff" * 1000, 0)


def _block(*entries: tuple[int, bytes, bytes]) -> bytes:
    data = b""
    for shared, rest, value in entries:
        data += _varint(shared) + _varint(len(rest)) + _varint(len(value)) + rest + value
    return data + struct.pack("<II", 0, 1)


def test_keys_share_their_beginnings() -> None:
    long = b"v" * 300
    block = _block((0, b"topic-a01234567", b"1"), (6, b"b01234567", long), (0, b"z" * 200, b""))
    assert list(block_pairs(block)) == [
        (b"topic-a01234567", b"1"),
        (b"topic-b01234567", long),
        (b"z" * 200, b""),
    ]


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\1\2\3",
        struct.pack("<I", 7),
        struct.pack("<I", 0xFFFFFFFF),
        _block((9, b"01234567", b"")),
        _block((0, b"short", b"")),
        _varint(0) + _varint(2**62) + _varint(1) + struct.pack("<II", 0, 1),
        b"\x00\x08\x09" + b"01234567" + struct.pack("<II", 0, 1),
    ],
)
def test_a_malformed_block_is_refused(block: bytes) -> None:
    with pytest.raises(MalformedError):
        list(block_pairs(block))


def test_a_small_block_that_would_become_huge_is_refused() -> None:
    for compression, data in (
        (4, _varint(1 << 40) + lz4.block.compress(b"x" * 100, store_size=False)),
        (7, _varint(1 << 40) + zstandard.ZstdCompressor().compress(b"x" * 100)),
        (7, _varint(100) + zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20))),
        (4, _varint(100) + lz4.block.compress(bytes(1 << 20), store_size=False)),
        (4, _varint(200) + lz4.block.compress(b"x" * 100, store_size=False)),
        (4, b"\x05garbage"),
        (7, b"\x05garbage"),
        (9, b"anything"),
    ):
        with pytest.raises(MalformedError):
            _plain(data, compression)


def _reader(folder: Path, data: bytes, number: int = 5) -> RecordReader:
    path = folder / "records"
    path.write_bytes(data)
    return RecordReader(path, number)


def test_records_over_several_blocks(tmp_path: Path) -> None:
    payloads = [b"a" * 100, b"b" * 70_000, b"", b"c" * (BLOCK_SIZE - 7), b"d" * 32_000, b"e"]
    data = framed(*payloads)
    reader = _reader(tmp_path, data)
    assert [record.data for record in reader] == payloads
    assert reader.end == (len(data), "", False)


def test_a_torn_end_is_no_damage_and_a_hole_is(tmp_path: Path) -> None:
    data = framed(*[bytes((number,)) * 9000 for number in range(12)])
    whole = [record.data for record in _reader(tmp_path, data)]
    for size in range(1, len(data), 501):
        for torn in (data[:size], data[:size] + bytes(5000)):
            reader = _reader(tmp_path, torn)
            found = [record.data for record in reader]
            assert found == whole[: len(found)]
            assert not reader.end.is_damage, size
    broken = data[:9500] + b"X" + data[9501:]
    reader = _reader(tmp_path, broken)
    # the rest of its block goes with it, and RocksDB goes on with the next
    assert [record.data for record in reader] == [whole[0], *whole[4:]]
    assert reader.end.is_damage
    assert reader.end.problem == "a record's checksum is wrong"


def test_a_file_that_is_used_again_ends_where_its_former_life_goes_on(tmp_path: Path) -> None:
    def recycled(number: int, payload: bytes) -> bytes:
        body = struct.pack("<I", number) + payload
        return struct.pack("<IHB", masked_crc32c(b"\x05" + body), len(body), 5) + body

    data = recycled(9, b"new") + recycled(4, b"old")
    reader = _reader(tmp_path, data, 9)
    assert [record.data for record in reader] == [b"new"]
    assert reader.end.problem == ""


def test_a_record_without_an_end_is_damage_and_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_LARGEST_RECORD", 3 * BLOCK_SIZE)
    reader = _reader(tmp_path, framed(bytes(5 * BLOCK_SIZE), b"next"))
    assert [record.data for record in reader] == [b"next"]
    assert reader.end.is_damage
    # zeros at the end are read once, and those of a hole not at all
    path = tmp_path / "records"
    path.write_bytes(framed(b"first"))
    os.truncate(path, 1 << 40)
    assert [record.data for record in RecordReader(path, 5)] == [b"first"]


@pytest.mark.parametrize("limit", [1 << 30, 5000])
def test_entries_of_logs_are_in_order_in_memory_and_on_disk(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LARGEST_IN_MEMORY", limit)
    monkeypatch.setattr(database, "_LOGGED_AT_ONCE", 4)
    draw, entries = random.Random(5), database.LoggedEntries()
    taken = []
    for sequence in range(2000):
        key = b"key-%03d" % draw.randrange(300)
        taken.append((draw.randrange(3), KeyEntry(key, sequence, draw.choice((0, 1)), bytes(draw.randrange(100)))))
        family, one = taken[-1]
        entries.take([(family, one.key, -one.sequence, one.kind, one.value)])
    for family in range(4):
        for begin, end in ((b"", None), (b"key-050", b"key-200"), (b"key-299", b"l"), (b"x", None), (b"", b"key-000")):
            newest = {
                one.key: one
                for number, one in taken
                if number == family and begin <= one.key and (end is None or one.key < end)
            }
            found = [one for part in database._merged(entries.within(family, begin, end)) for one in part]
            assert entries.has_within(family, begin, end) is bool(newest)
            assert found == sorted(found, key=lambda one: (one.key, -one.sequence))
            firsts: dict[bytes, KeyEntry] = {}
            for one in found:
                firsts.setdefault(one.key, one)
            assert firsts == newest
        assert entries.count(family) == sum(number == family for number, _ in taken)


def test_batches_of_several_families() -> None:
    data = struct.pack("<QI", 70, 4)
    data += b"\x01" + _varint(1) + b"a" + _varint(2) + b"AA"
    data += b"\x05" + _varint(3) + _varint(1) + b"b" + _varint(0)
    data += b"\x04" + _varint(3) + _varint(1) + b"b"
    data += b"\x0f" + _varint(1) + b"a" + _varint(1) + b"c"
    assert list(batch_entries(data)) == [
        (0, KeyEntry(b"a", 70, 1, b"AA")),
        (3, KeyEntry(b"b", 71, 1, b"")),
        (3, KeyEntry(b"b", 72, 0, b"")),
        (0, KeyEntry(b"a", 73, RANGE_DELETION, b"c")),
    ]
    assert entries_of_batch(data) is None
    assert entries_of_batch(data[:-5]) == [
        (0, b"a", -70, 1, b"AA"), (3, b"b", -71, 1, b""), (3, b"b", -72, 0, b""),
    ]  # fmt: skip
    for wrong in (data[:5], data[:-1], struct.pack("<QI", 1, 1) + b"\x63", struct.pack("<QI", 1, 1) + b"\x01\xff"):
        with pytest.raises(MalformedError):
            list(batch_entries(wrong))
        assert entries_of_batch(wrong) is None


def test_deleted_ranges_hide_what_is_older() -> None:
    draw = random.Random(7)
    for _ in range(300):
        ranges = [
            KeyEntry(bytes((draw.randrange(20),)), draw.randrange(50), RANGE_DELETION, bytes((draw.randrange(20),)))
            for _ in range(draw.randrange(6))
        ]
        ranges = [entry for entry in ranges if entry.key < entry.value]
        deletions = _Deletions(ranges)
        for key in range(21):
            for sequence in (0, 10, 25, 49):
                entry = KeyEntry(bytes((key,)), sequence, 1, b"")
                expected = any(one.key <= entry.key < one.value and one.sequence > sequence for one in ranges)
                assert deletions.hide(entry) == expected, (ranges, entry)
