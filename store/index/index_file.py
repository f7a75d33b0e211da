"""One key index file: header, hash slots and chained entries (docs/formats.md)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.formats.layouts import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file import ReferenceCount
from rmqctl.store.files.reading import Descriptors

DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
_SECOND = 1000
# entries that are read at once: a third of a KiB
_CHAIN_BLOCK = 16


class Geometry(NamedTuple):
    """Slots and entries of an index file (maxHashSlotNum, maxIndexNum), which the file itself does not say."""

    slots: int
    entries: int

    @property
    def file_size(self) -> int:
        """Bytes of a file with this geometry."""
        return INDEX_HEADER.size + INDEX_SLOT.size * self.slots + INDEX_ENTRY.size * self.entries

    def slot_position(self, key_hash: int) -> int:
        """Byte position of the slot of `key_hash`."""
        return INDEX_HEADER.size + INDEX_SLOT.size * (key_hash % self.slots)

    def entry_position(self, entry: int) -> int:
        """Byte position of an entry."""
        return INDEX_HEADER.size + INDEX_SLOT.size * self.slots + INDEX_ENTRY.size * entry


def files_needed(used: Iterable[tuple[Geometry, int]]) -> int | None:
    """Return how many files would do for the entries of these, given as geometry and number of entries of each; None
    unless at least half of the files, and more than one, are too many."""
    files = list(used)
    if not files:
        return None
    left, needed = sum(entries for _, entries in files), 0
    for entries in sorted((max(1, geometry.entries - 1) for geometry, _ in files), reverse=True):
        needed += 1
        left -= entries
        if left <= 0:
            break
    too_many = len(files) - needed
    return needed if too_many >= max(2, needed) else None


class IndexHeader(NamedTuple):
    """Times in ms. `index_count` is the number of the next entry; entry 0 is never used."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


def time_difference(begin: int, store_timestamp: int) -> int:
    """What the entry of a message holds as its time: seconds since the file's begin, as far as 32 bits can say them.
    (IndexFile#putKey)"""
    return min(max(0, (store_timestamp - begin) // _SECOND), 0x7FFFFFFF) if begin > 0 else 0


def next_entry(
    header: IndexHeader, key_hash: int, physical_offset: int, store_timestamp: int, previous: int
) -> tuple[bytes, IndexHeader]:
    """Return the bytes of the entry `header.index_count` and the header then; `previous`: what its slot has, 0 for
    nothing. (IndexFile#putKey)

    Unlike RocketMQ's, the first entry's time is relative to the file's own begin, so that no time reads late.
    """
    first = header.index_count <= 1
    begin = store_timestamp if first else header.begin_timestamp
    entry = INDEX_ENTRY.struct.pack(key_hash, physical_offset, time_difference(begin, store_timestamp), previous)
    return entry, IndexHeader(
        begin,
        store_timestamp,
        physical_offset if first else header.begin_physical_offset,
        physical_offset,
        header.hash_slot_count + (previous == 0),
        header.index_count + 1,
    )


class IndexEntry(NamedTuple):
    """An entry with its number; `timestamp` in ms, truncated to seconds from the header's begin."""

    number: int
    key_hash: int
    physical_offset: int
    timestamp: int
    previous: int


class IndexFile:
    """Reading and appending. Opening reads the header only."""

    def __init__(self, path: Path, geometry: Geometry, descriptors: Descriptors) -> None:
        self.path = path
        self.geometry = geometry
        self._descriptors = descriptors
        self._writer: int | None = None
        self.reference = ReferenceCount(self.close)
        self.header = self.read_header()

    def read_header(self) -> IndexHeader:
        """The header as it is on disk now; a count below 1 reads as 1, as RocketMQ loads it."""
        data = self._descriptors.read(self.path, 0, INDEX_HEADER.size)
        if len(data) < INDEX_HEADER.size:
            raise CorruptError(
                f"index file has {len(data)} bytes, less than its header",
                file=self.path,
                hint="`rmqctl rebuild --index` rebuilds the index from the commitlog",
            )
        header = IndexHeader(*INDEX_HEADER.unpack_from(data, 0))
        return header._replace(index_count=max(1, header.index_count))

    @contextlib.contextmanager
    def hold(self) -> Iterator[bool]:
        """Keep the file from being removed while it is read; False if it is gone (see MappedFile.hold)."""
        held = self.reference.hold()
        if held and not self._descriptors.pin(self.path):
            self.reference.release()
            held = False
        try:
            yield held
        finally:
            if held:
                self._descriptors.unpin(self.path)
                self.reference.release()

    @property
    def is_full(self) -> bool:
        """Whether the next key needs a new file."""
        return self.header.index_count >= self.geometry.entries

    def raw_slot(self, key_hash: int) -> int:
        """Return the value in the slot of `key_hash`, valid or not; 0 past the file's end."""
        data = self._descriptors.read(self.path, self.geometry.slot_position(key_hash), INDEX_SLOT.size)
        return int(INDEX_SLOT.unpack_from(data, 0)[0]) if len(data) == INDEX_SLOT.size else 0

    def slot(self, key_hash: int) -> int:
        """Newest entry of the chain of `key_hash`; 0 where the slot is empty or holds no entry number."""
        entry = self.raw_slot(key_hash)
        return entry if 0 < entry < self.header.index_count else 0

    def belongs(self, entry: IndexEntry, key_hash: int) -> bool:
        """Whether `entry` can be in the chain of `key_hash`: a hash that shares its slot."""
        slot = self.geometry.slot_position
        return entry.key_hash >= 0 and slot(entry.key_hash) == slot(key_hash)

    def entry(self, number: int) -> IndexEntry:
        """Entry `number`; CorruptError where the file ends before it."""
        data = self._descriptors.read(self.path, self.geometry.entry_position(number), INDEX_ENTRY.size)
        if len(data) < INDEX_ENTRY.size:
            raise self._beyond_end(number)
        return self._entry(number, INDEX_ENTRY.unpack_from(data, 0))

    def _beyond_end(self, number: int) -> CorruptError:
        return CorruptError(f"index entry {number} is beyond the end of the file", file=self.path)

    def _entry(self, number: int, fields: tuple[int, ...]) -> IndexEntry:
        key_hash, physical_offset, difference, previous = fields
        return IndexEntry(
            number, key_hash, physical_offset, self.header.begin_timestamp + difference * _SECOND, previous
        )

    def read_slots(self) -> bytes:
        """Bytes of all slots; zeros where the file ends before them."""
        length = self.geometry.slots * INDEX_SLOT.size
        return self._descriptors.read(self.path, self.geometry.slot_position(0), length).ljust(length, b"\0")

    def read_entries(self, number: int, count: int) -> bytes:
        """Bytes of `count` entries from `number` on; fewer where the file ends."""
        return self._descriptors.read(self.path, self.geometry.entry_position(number), count * INDEX_ENTRY.size)

    def entries(self) -> Iterator[IndexEntry]:
        """All entries in the order they were put."""
        number, chunk = 1, 8192
        while number < self.header.index_count:
            count = min(chunk, self.header.index_count - number)
            data = self.read_entries(number, count)
            whole = len(data) - len(data) % INDEX_ENTRY.size
            if not whole:
                raise self._beyond_end(number)
            for fields in INDEX_ENTRY.struct.iter_unpack(data[:whole]):
                yield self._entry(number, fields)
                number += 1

    def chain(self, key_hash: int) -> Iterator[IndexEntry]:
        """Entries of the slot of `key_hash`, newest first, other hashes of the slot included.

        A chain must lead to ever smaller numbers; CorruptError where it does not (a cycle, a wild number). Its first
        entry may be the one that the header does not count yet: that is written last (IndexFile#putKey).
        """
        number = self.raw_slot(key_hash)
        number = number if number <= self.header.index_count else 0
        first, block = number + 1, b""
        while number > 0:
            if number < first:  # entries of one key tend to lie near one another: a short chain is one read
                behind, first = number + 1, max(1, number + 1 - _CHAIN_BLOCK)
                try:
                    block = self.read_entries(first, behind - first)
                except UnreadableError:  # of a bad page beside it an entry knows nothing
                    first, block = number, self.read_entries(number, 1)
            fields = block[(number - first) * INDEX_ENTRY.size :][: INDEX_ENTRY.size]
            if len(fields) < INDEX_ENTRY.size:
                raise self._beyond_end(number)
            entry = self._entry(number, INDEX_ENTRY.unpack_from(fields, 0))
            yield entry
            if not 0 <= entry.previous < number:
                raise CorruptError(
                    f"chain of index entry {number} leads on to {entry.previous}",
                    file=self.path,
                    hint="`rmqctl rebuild --index` rebuilds the index from the commitlog",
                )
            number = entry.previous

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> None:
        """Append an entry for a message; the file must not be full. Not flushed. (IndexFile#putKey)"""
        number = self.header.index_count
        entry, self.header = next_entry(self.header, key_hash, physical_offset, store_timestamp, self.slot(key_hash))
        # entry before slot before header: a reader never follows a number to bytes not yet written
        self._write(self.geometry.entry_position(number), entry)
        self._write(self.geometry.slot_position(key_hash), INDEX_SLOT.struct.pack(number))
        self._write(0, INDEX_HEADER.struct.pack(*self.header))

    def put_entries(self, entries: bytes | memoryview, header: IndexHeader) -> None:
        """Append whole entries and then the header that counts them; who calls this sets their slots afterwards. A
        reader that comes between finds all entries but these."""
        self._write(self.geometry.entry_position(self.header.index_count), entries)
        self._write(0, INDEX_HEADER.struct.pack(*header))
        self.header = header

    def _write(self, position: int, data: bytes | memoryview) -> None:
        if self._writer is None:
            self._writer = io.open_for_writing(self.path)
        io.write_at(self._writer, self.path, position, data)

    def flush(self) -> None:
        """fsync what was put."""
        if self._writer is not None:
            io.flush_descriptor(self._writer, self.path)

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self.release()
        self._descriptors.forget(self.path)

    def release(self) -> None:
        """Close without flushing; for a store that failed."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def destroy(self, interval: int, now: int | None = None) -> bool:
        """Remove the file unless a reader holds it; True when it is gone (see MappedFile.destroy)."""
        if not self.reference.shutdown(interval, now):
            return False
        self._descriptors.forget(self.path)
        io.remove(self.path)
        return True


# Finds out how many slots and entries an index file has: the file does not say (docs/formats.md).

_WINDOW = 1 << 20
_CHECKED_ENTRIES = 64
LARGEST_FILE = 0x7FFFFFFF
"""RocketMQ computes the size of an index file as a signed 32-bit number."""


def infer_geometry(path: Path, size: int, descriptors: Descriptors) -> Geometry | None:
    """The geometry that fits both the length of the file and its entries; None if nothing fits.

    RocketMQ's default ratio of four entries a slot is tried first, then every place where the last entry's physical
    offset, known from the header, occurs in the file.
    """
    if size > LARGEST_FILE:
        return None
    usual = [Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES), _four_to_one(size)]
    for geometry in usual:
        if geometry is not None and geometry.file_size == size and fits(path, geometry, descriptors):
            return geometry
    return _search(path, size, descriptors)


def _four_to_one(size: int) -> Geometry | None:
    slots, rest = divmod(size - INDEX_HEADER.size, INDEX_SLOT.size + 4 * INDEX_ENTRY.size)
    return Geometry(slots, 4 * slots) if slots > 0 and rest == 0 else None


def fits(path: Path, geometry: Geometry, descriptors: Descriptors) -> bool:
    """Whether the first and last entries are what the header says, with offsets in order and sane chains."""
    head = descriptors.read(path, 0, INDEX_HEADER.size)
    if len(head) < INDEX_HEADER.size:
        return False
    _, _, begin_offset, end_offset, _, count = INDEX_HEADER.unpack_from(head, 0)
    if count > geometry.entries:
        return False
    if count <= 1:
        return True
    first = min(count, _CHECKED_ENTRIES) - 1
    data = descriptors.read(path, geometry.entry_position(1), first * INDEX_ENTRY.size)
    if first < count - 1:
        data += descriptors.read(path, geometry.entry_position(count - 1), INDEX_ENTRY.size)
    numbers = sorted({*range(1, first + 1), count - 1})
    if len(data) < len(numbers) * INDEX_ENTRY.size:
        return False
    previous_offset = begin_offset
    for number, entry in zip(numbers, INDEX_ENTRY.struct.iter_unpack(data), strict=True):
        key_hash, physical_offset, _, previous = entry
        if key_hash < 0 or not previous_offset <= physical_offset <= end_offset or not 0 <= previous < number:
            return False
        if number == 1 and physical_offset != begin_offset:
            return False
        previous_offset = physical_offset
    return bool(previous_offset == end_offset)


def _search(path: Path, size: int, descriptors: Descriptors) -> Geometry | None:
    head = descriptors.read(path, 0, INDEX_HEADER.size)
    if len(head) < INDEX_HEADER.size:
        return None
    _, _, _, end_offset, _, count = INDEX_HEADER.unpack_from(head, 0)
    if count <= 1 or end_offset <= 0:
        return None
    wanted = end_offset.to_bytes(8, "big")
    # the last entry stands at header + 4 * slots + 20 * (count - 1), its offset field 4 bytes further on
    lead = INDEX_HEADER.size + INDEX_ENTRY.size * (count - 1) + INDEX_ENTRY.offset("physical_offset")
    position = lead
    while position < size:
        window = descriptors.read(path, position, _WINDOW)
        found = window.find(wanted)
        while found >= 0:
            slots, rest = divmod(position + found - lead, INDEX_SLOT.size)
            entries, odd = divmod(size - INDEX_HEADER.size - INDEX_SLOT.size * slots, INDEX_ENTRY.size)
            geometry = Geometry(slots, entries)
            fitting = slots > 0 and rest == odd == 0 and fits(path, geometry, descriptors)
            if fitting and _leads_to(count - 1, path, geometry, descriptors):
                return geometry
            found = window.find(wanted, found + 1)
        if len(window) < _WINDOW:
            return None
        position += _WINDOW - len(wanted) + 1
    return None


def _leads_to(number: int, path: Path, geometry: Geometry, descriptors: Descriptors) -> bool:
    """Whether the slot of the last entry leads to it. A message has several keys, so its offset is in several entries,
    and the one before the first is zeros, which a log that begins at 0 can have: that fits too."""
    entry = descriptors.read(path, geometry.entry_position(number), INDEX_ENTRY.size)
    (key_hash, *_) = INDEX_ENTRY.unpack_from(entry, 0)
    slot = descriptors.read(path, geometry.slot_position(key_hash), INDEX_SLOT.size)
    return bool(INDEX_SLOT.unpack_from(slot, 0)[0] == number)
