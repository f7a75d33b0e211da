"""One sorted table of a RocksDB (NNNNNN.sst): its blocks, entries by key, and range deletions."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import ROCKSDB_BLOCK_TRAILER, ROCKSDB_FOOTER
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.native.units import (
    LARGEST_BLOCK,
    LARGEST_KEY,
    LARGEST_KEYS,
    MOST_ENTRIES,
    entries_in,
    find_blocks,
    is_well_formed,
)
from rmqctl.store.rocksdb.records import DAMAGE_HINT, NO_CHECKSUM, MalformedError, block_checksum, varint

if TYPE_CHECKING:
    import zstandard

Report = Callable[[CorruptError], None]

PUT, DELETION, SINGLE_DELETION, RANGE_DELETION = 1, 0, 7, 15
"""Kinds of entries (ValueType of dbformat.h) that RocketMQ's databases hold."""
_TRAILER = ROCKSDB_BLOCK_TRAILER.struct
_FOOTER = ROCKSDB_FOOTER.struct
_MAGIC = 0x88E241B785F4CFF7
_NEWEST_FORMAT = 5
_LARGEST_DATA_BLOCK = 4 << 20
"""Data blocks have 32 KiB and what the last entry has more; the index of a large table is one block."""
_MOST_BLOCKS = 1 << 20
_READ_AT_ONCE = 1 << 18
_PLAIN, _LZ4, _LZ4HC, _ZSTD = 0, 4, 5, 7
_HASHED = 1 << 31
_OF_THREAD = threading.local()
_RANGE_DELETIONS = b"rocksdb.range_del"
_PROPERTIES = b"rocksdb.properties"
_TWO_LEVELS = 2
_DELTA_BLOCKS = b"rocksdb.index.value.is.delta.encoded"
_USER_KEYS = b"rocksdb.index.key.is.user.key"
_FAMILY = b"rocksdb.column.family.name"
_ENTRIES = b"rocksdb.num.entries"
_INDEX_TYPE = b"rocksdb.block.based.table.index.type"


class Handle(NamedTuple):
    """Where a block is: its offset, and its size without the trailer."""

    offset: int
    size: int


class KeyEntry(NamedTuple):
    """One entry: a user key, its sequence number and kind, and the value, for a range deletion its end."""

    key: bytes
    sequence: int
    kind: int
    value: bytes


class SortedTable:
    """A table, read on demand. Damage of its footer or index is raised; that of a block is reported and its entries
    are left out."""

    def __init__(self, path: Path, size: int, descriptors: Descriptors) -> None:
        self.path = path
        self._size = size
        self._descriptors = descriptors
        # the last data block: the next range of keys often begins in it
        self._last: tuple[Handle, tuple[bytes, int]] | None = None

    @cached_property
    def _ends(self) -> tuple[int, Handle, Handle]:
        """Return the type of checksum and the handles of metaindex and index. Raises: CorruptError."""
        data = self._descriptors.read(self.path, max(0, self._size - _FOOTER.size), _FOOTER.size)
        if len(data) < _FOOTER.size:
            raise self._corrupt("is shorter than its manifest says", self._size)
        kind, handles, version, magic = _FOOTER.unpack(data)
        if magic != _MAGIC:
            raise self._corrupt("does not end with the magic number of a table", self._size - 8)
        if version > _NEWEST_FORMAT:
            raise self._corrupt(f"has format version {version}, which is not read", self._size - 12)
        try:
            meta, position = _handle(handles, 0)
            index, _ = _handle(handles, position)
        except MalformedError as error:
            raise self._corrupt(f"its footer is malformed: {error}", self._size - _FOOTER.size) from error
        return kind, meta, index

    @cached_property
    def _meta(self) -> dict[bytes, Handle]:
        found = {}
        for key, value in self._pairs(self.block(self._ends[1]), self._ends[1]):
            found[key] = self._parsed_handle(value, self._ends[1])
        return found

    @cached_property
    def _properties(self) -> dict[bytes, bytes]:
        handle = self._meta.get(_PROPERTIES)
        return {} if handle is None else dict(self._pairs(self.block(handle), handle))

    def _property(self, name: bytes) -> int:
        value = self._properties.get(name, b"")
        if name == _INDEX_TYPE:
            return int.from_bytes(value[:4], "little")
        try:
            return varint(value, 0)[0] if value else 0
        except MalformedError:
            return 0

    @property
    def entry_count(self) -> int:
        """How many entries the table says it has; 0 where it does not say. Raises: CorruptError."""
        return self._property(_ENTRIES)

    @property
    def family(self) -> str:
        """The name of its column family; "" where it does not say. Raises: CorruptError."""
        return self._properties.get(_FAMILY, b"").decode("utf-8", "replace")

    @cached_property
    def blocks(self) -> list[tuple[bytes, Handle]]:
        """The data blocks in order, each with a user key that none of its keys exceeds. Raises: CorruptError."""
        found = self._in_order(self._index_entries(self._ends[2]))
        if self._property(_INDEX_TYPE) == _TWO_LEVELS:
            found = self._in_order(entry for _, part in found for entry in self._index_entries(part))
        return found

    def _in_order(self, entries: Iterator[tuple[bytes, Handle]]) -> list[tuple[bytes, Handle]]:
        """Return the entries, of which a small block may claim any number, and the same block again and again."""
        found: list[tuple[bytes, Handle]] = []
        end = keys = 0
        for key, handle in entries:
            if handle.offset < end or not 0 <= handle.size <= LARGEST_BLOCK:
                raise self._corrupt("blocks overlap, or have impossible sizes", handle.offset)
            end, keys = handle.offset + handle.size, keys + len(key)
            if len(found) >= _MOST_BLOCKS or keys > LARGEST_BLOCK:
                raise self._corrupt(f"its index has more than {_MOST_BLOCKS} blocks, or longer keys than any", 0)
            found.append((key, handle))
        return found

    def _index_entries(self, handle: Handle) -> Iterator[tuple[bytes, Handle]]:
        is_delta, has_user_keys = bool(self._property(_DELTA_BLOCKS)), bool(self._property(_USER_KEYS))
        block = self.block(handle)
        try:
            position, end = 0, _entries_end(block)
            # nearly all: no key shares bytes with another
            if 0 < (count := find_blocks(block, end, is_delta, array("q"))) <= _MOST_BLOCKS:
                places, trailer = array("q", (0,)) * (4 * count), 0 if has_user_keys else 8
                find_blocks(block, end, is_delta, places)
                for begin, stop, offset, size in zip(*(places[field::4] for field in range(4)), strict=True):
                    yield block[begin : max(stop - trailer, begin)], Handle(offset, size)
                return
            key, last = b"", Handle(0, 0)
            while position < end:
                shared, position = varint(block, position)
                unshared, position = varint(block, position)
                if not is_delta:
                    _, position = varint(block, position)
                if shared > len(key) or position + unshared > end:
                    raise MalformedError("a key exceeds its block")
                key = key[:shared] + block[position : position + unshared]
                position += unshared
                if is_delta and shared:
                    grown, position = varint(block, position)
                    size = last.size + (grown >> 1 ^ -(grown & 1))
                    last = Handle(last.offset + last.size + _TRAILER.size, size)
                else:
                    last, position = _handle(block, position)
                yield (key if has_user_keys else key[:-8]), last
        except MalformedError as error:
            raise self._corrupt(f"its index is malformed: {error}", handle.offset) from error

    def block(self, handle: Handle, largest: int = LARGEST_BLOCK) -> bytes:
        """Return the plain bytes of a block. Raises: CorruptError, RemovedError, UnreadableError."""
        return self._plain(handle, self._stored(handle.offset, handle.size + _TRAILER.size), largest)

    def _stored(self, offset: int, size: int) -> memoryview:
        size = min(size, self._size - offset)
        return memoryview(self._descriptors.read(self.path, offset, size) if size > 0 else b"")

    def _plain(self, handle: Handle, data: memoryview, largest: int) -> bytes:
        """Return the plain bytes of a block. `data`: what is stored of it, trailer included. Raises: CorruptError."""
        if handle.offset + handle.size + _TRAILER.size > self._size:
            raise self._corrupt(f"block of {handle.size} bytes exceeds the file", handle.offset)
        if len(data) < handle.size + _TRAILER.size:
            raise self._corrupt("is shorter than its manifest says", len(data))
        compression, stored = _TRAILER.unpack_from(data, handle.size)
        kind = self._ends[0]
        computed = block_checksum(kind, data[: handle.size + 1])
        if computed is None and kind != NO_CHECKSUM:
            raise self._corrupt(f"checksums of type {kind} are not known", self._size - _FOOTER.size)
        if computed is not None and computed != stored:
            raise self._corrupt("checksum of the block is wrong", handle.offset)
        try:
            return _plain(data[: handle.size], compression, largest)
        except MalformedError as error:
            raise self._corrupt(f"block cannot be decompressed: {error}", handle.offset) from error

    def _pairs(self, block: bytes, handle: Handle) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from block_pairs(block)
        except MalformedError as error:
            raise self._corrupt(f"block is malformed: {error}", handle.offset) from error

    def entries(self, begin: bytes, end: bytes | None, on_damage: Report) -> Iterator[list[KeyEntry]]:
        """Yield entries with keys in [begin, end) in order, those of a block at a time, newest first for each key;
        `end` None: to the last.

        Raises: CorruptError for a damaged footer or index.
        """
        blocks = self.blocks
        first = bisect_left(blocks, begin, key=lambda entry: entry[0])
        for number in range(first, len(blocks)):
            found = self.entries_of(blocks[number][1], on_damage)
            if found and begin <= found[0].key and (end is None or found[-1].key < end):
                yield found
                continue
            behind = len(found)
            if end is not None:
                behind = next((at for at, entry in enumerate(found) if entry.key >= end), behind)
            chosen = [entry for entry in found[:behind] if entry.key >= begin]
            if chosen:
                yield chosen
            if behind < len(found):
                return

    def entries_of(self, handle: Handle, on_damage: Report) -> list[KeyEntry]:
        """Return the entries of one data block, of a damaged one those before the damage."""
        found: list[KeyEntry] = []
        try:
            block, end = self._data_block(handle, self._stored(handle.offset, handle.size + _TRAILER.size))
            entries = entries_in(block, end, bytearray(LARGEST_KEY), array("q", (0, 0, 0)))
            if entries is not None:
                return list(map(KeyEntry._make, entries))
            for internal, value in self._pairs(block, handle):
                packed = int.from_bytes(internal[-8:], "little")
                found.append(KeyEntry(internal[:-8], packed >> 8, packed & 0xFF, value))
        except CorruptError as error:
            on_damage(error)
        return found

    def blocks_within(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the plain data blocks that keys in [begin, end) may be in, and where their entries end.

        Raises: CorruptError.
        """
        blocks = self.blocks
        first = stop = bisect_left(blocks, begin, key=lambda entry: entry[0])
        while stop < len(blocks) and (stop == first or blocks[stop - 1][0] < end):
            stop += 1
        if first < stop and self._last is not None and self._last[0] == blocks[first][1]:
            yield self._last[1]
            first += 1
        for handle, data in self._stored_blocks(first, stop):
            self._last = handle, self._data_block(handle, data)
            yield self._last[1]

    def _stored_blocks(self, first: int, stop: int) -> Iterator[tuple[Handle, memoryview]]:
        """Yield the data blocks [first, stop) as they are stored, with their trailers; many are read at once."""
        handles = [handle for _, handle in self.blocks[first:stop]]
        data, at = memoryview(b""), 0
        for number, handle in enumerate(handles):
            size = handle.size + _TRAILER.size
            if handle.offset + size > at + len(data):
                at = handle.offset
                last = bisect_right(handles, at + _READ_AT_ONCE, number + 1, key=_end) - 1
                data = self._stored(at, max(_end(handles[last]) - at, size))
            yield handle, data[handle.offset - at : handle.offset - at + size]

    def _data_block(self, handle: Handle, data: memoryview) -> tuple[bytes, int]:
        block = self._plain(handle, data, _LARGEST_DATA_BLOCK)
        try:
            return block, _entries_end(block)
        except MalformedError as error:
            raise self._corrupt(f"block is malformed: {error}", handle.offset) from error

    def check(self, on_damage: Report) -> None:
        """Report damaged blocks. Raises: CorruptError for a damaged footer or index."""
        sizes = array("q", (0, 0, 0))
        for handle, data in self._stored_blocks(0, len(self.blocks)):
            try:
                block, end = self._data_block(handle, data)
                for _ in () if is_well_formed(block, end, sizes) else self._pairs(block, handle):
                    pass
            except CorruptError as error:
                on_damage(error)

    def range_deletions(self) -> list[KeyEntry]:
        """Return the deletions of key ranges: [key, value). Raises: CorruptError."""
        handle = self._meta.get(_RANGE_DELETIONS)
        if handle is None:
            return []
        found = []
        for internal, end in self._pairs(self.block(handle), handle):
            found.append(KeyEntry(internal[:-8], int.from_bytes(internal[-8:], "little") >> 8, RANGE_DELETION, end))
        return found

    def _parsed_handle(self, value: bytes, block: Handle) -> Handle:
        try:
            return _handle(value, 0)[0]
        except MalformedError as error:
            raise self._corrupt(f"handle of a block is malformed: {error}", block.offset) from error

    def _corrupt(self, message: str, offset: int) -> CorruptError:
        return CorruptError(message, file=self.path, physical_offset=offset, hint=DAMAGE_HINT)


def _end(handle: Handle) -> int:
    return handle.offset + handle.size + _TRAILER.size


def _handle(data: bytes, position: int) -> tuple[Handle, int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    if size > LARGEST_BLOCK:
        raise MalformedError(f"a block of {size} bytes is larger than any that is written")
    return Handle(offset, size), position


def _entries_end(block: bytes) -> int:
    """Return where the entries of a block end: before the restart points and their count, and a hash index if it has
    one."""
    if len(block) < 4:
        raise MalformedError("a block has no count of restart points")
    count = int.from_bytes(block[-4:], "little")
    end = len(block) - 4
    if count & _HASHED:
        count &= ~_HASHED
        end -= 2
        end -= int.from_bytes(block[end : end + 2], "little")
    end -= count * 4
    if end < 0:
        raise MalformedError("restart points exceed their block")
    return end


def block_pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a data block in order. Raises: MalformedError."""
    position, end = 0, _entries_end(block)
    key, count, keys = b"", 0, 0
    while position < end:
        # lengths below 128 are one byte, which almost all are
        shared, unshared, length = block[position : position + 3]
        if shared | unshared | length < 0x80:
            position += 3
        else:
            shared, position = varint(block, position)
            unshared, position = varint(block, position)
            length, position = varint(block, position)
        value = position + unshared
        if shared > len(key) or value + length > end:
            raise MalformedError("an entry exceeds its block")
        key = key[:shared] + block[position:value]
        if len(key) < 8:
            raise MalformedError("a key is shorter than its sequence number")
        # what a key shares with the one before takes no bytes in the block: a small one may claim any amount
        count, keys = count + 1, keys + len(key)
        if count > MOST_ENTRIES or keys > LARGEST_KEYS:
            raise MalformedError("a block has more entries than any that is written")
        position = value + length
        yield key, block[value:position]


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    """The thread's own: to make one takes longer than a block."""
    import zstandard

    made: zstandard.ZstdDecompressor | None = getattr(_OF_THREAD, "zstd", None)
    if made is None:
        made = _OF_THREAD.zstd = zstandard.ZstdDecompressor()
    return made


def _plain(data: bytes | memoryview, compression: int, largest: int = LARGEST_BLOCK) -> bytes:
    if compression not in (_PLAIN, _LZ4, _LZ4HC, _ZSTD):
        raise MalformedError(f"compression {compression} is not known")
    size, position = (len(data), 0) if compression == _PLAIN else varint(data, 0)
    if size > largest:
        raise MalformedError(f"a block of {size} bytes is larger than any that is written")
    if compression == _PLAIN:
        return bytes(data)
    frame = memoryview(data)[position:]
    if compression == _ZSTD:
        import zstandard

        try:
            # a frame that names its size is given that much memory, whatever the limit is; -1: it names none
            named = zstandard.frame_content_size(frame)
            if named not in (-1, size):
                raise MalformedError(f"{named} bytes would come out in place of {size}")
            plain = _zstd_decompressor().decompress(frame, max_output_size=max(1, size))
        except zstandard.ZstdError as error:
            raise MalformedError(str(error)) from error
    else:
        import lz4.block

        try:
            plain = lz4.block.decompress(frame, uncompressed_size=size)
        except lz4.block.LZ4BlockError as error:
            raise MalformedError(str(error)) from error
    if len(plain) != size:
        raise MalformedError(f"{len(plain)} bytes came out in place of {size}")
    return plain
