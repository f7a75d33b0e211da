"""How RocksDB stores integers, strings, checksums, and the records that manifests and write-ahead logs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import RemovedError, UnreadableError
from rmqctl.formats.layouts import ROCKSDB_RECORD
from rmqctl.store.files.reading import Descriptors, first_nonzero, is_file, status_of

# Integers, strings and checksums as RocksDB stores them: little-endian, varints, masked CRC-32C or XXH3.

DAMAGE_HINT = (
    "keep a copy of the folder; `rmqctl check --explain RMQ-RDB-001` says which databases a broker makes again"
)
NO_CHECKSUM, CRC32C, XXHASH, XXHASH64, XXH3 = range(5)
"""Checksum types of a table's footer (ChecksumType of RocksDB's table.h)."""
_MASK_DELTA = 0xA282EAD8
_LAST_BYTE_FACTOR = 0x6B9083D9
_WORD = 0xFFFFFFFF
_LONGEST_VARINT = 10


class MalformedError(ValueError):
    """Bytes that do not hold what their place requires."""


def varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the varint at `position` and the position after it. Raises: MalformedError."""
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    for at in range(position, min(position + _LONGEST_VARINT, len(data))):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise MalformedError("an integer has no end")


def prefixed(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the string behind its length at `position`, and the position after it. Raises: MalformedError."""
    length, position = varint(data, position)
    end = position + length
    if end > len(data):
        raise MalformedError(f"a string of {length} bytes exceeds its record")
    return data[position:end], end


@cache
def _crc32c() -> Callable[[bytes | memoryview], int]:
    try:
        from crc32c import crc32c  # by the processor's own instruction
    except ImportError:
        import crcmod.predefined

        slower: Callable[[bytes | memoryview], int] = crcmod.predefined.mkCrcFun("crc-32c")
        return slower
    return crc32c


def masked_crc32c(data: bytes | memoryview) -> int:
    """Return the CRC-32C of `data` as RocksDB stores it: rotated, with a constant added (crc32c::Mask)."""
    crc = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _WORD


def block_checksum(kind: int, stored: memoryview) -> int | None:
    """Return the checksum of a block: `stored` ends with its compression byte. None for `kind` 0 and an unknown one
    (ComputeBuiltinChecksumWithLastByte)."""
    if kind == CRC32C:
        return masked_crc32c(stored)
    if kind == XXH3:
        import xxhash

        return (xxhash.xxh3_64_intdigest(stored[:-1]) ^ stored[-1] * _LAST_BYTE_FACTOR) & _WORD
    if kind in (XXHASH, XXHASH64):
        import xxhash

        digest = xxhash.xxh32_intdigest if kind == XXHASH else xxhash.xxh64_intdigest
        return digest(stored) & _WORD
    return None


BLOCK_SIZE = 32 * 1024
_HEADER = ROCKSDB_RECORD.struct
_NOTHING, _FULL, _FIRST, _MIDDLE, _LAST = range(5)
_RECYCLED = 4
"""Added to the types of records in a log file that is used again; the number of its log follows the header."""
_LOG_NUMBER_SIZE = 4
_SECTOR = 512
_LARGEST_RECORD = 64 << 20
"""Bytes of a record that are put together at most; RocketMQ's batches are far smaller."""


class FramedRecord(NamedTuple):
    """A record and the position of its first part in the file."""

    position: int
    data: bytes


class RecordEnd(NamedTuple):
    """Where records end, or are damaged. `problem`: why before the end of the file, "" for a clean end.

    What is not damage is the torn end that a killed writer leaves.
    """

    position: int
    problem: str = ""
    is_damage: bool = False


class RecordReader:
    """Iterates over the records of the file `path`, a block at a time; `end` holds afterwards where they end, and why,
    or the first damage.

    After damage it goes on with the next block, as RocksDB does. `number`: the number in the file's name, which
    recycled records repeat. Raises: FileNotFoundError; UnreadableError.
    """

    def __init__(self, path: Path, number: int, descriptors: Descriptors | None = None) -> None:
        self._path = path
        self._number = number & 0xFFFFFFFF
        self._descriptors = descriptors or Descriptors(1)
        self._size = 0
        # a place, and where the first byte after it is that is not zero
        self._zeros = (0, -1)
        self.end = RecordEnd(0)

    def __iter__(self) -> Iterator[FramedRecord]:
        begin, parts, size = 0, list[bytes](), 0
        for position, kind, payload in self._parts():
            if kind == _FULL:
                parts = []
                yield FramedRecord(position, payload)
                continue
            if kind == _FIRST:
                begin, parts, size = position, [], 0
            elif not parts:
                self._note(RecordEnd(position, "a record has no first part", is_damage=True))
                continue
            parts.append(payload)
            size += len(payload)
            if size > _LARGEST_RECORD:
                self._note(RecordEnd(begin, f"a record is longer than {_LARGEST_RECORD} bytes", is_damage=True))
                parts = []
            elif kind == _LAST:
                yield FramedRecord(begin, b"".join(parts))
                parts = []
        if parts:
            self._note(RecordEnd(begin, "the last record is not complete"))

    def _note(self, end: RecordEnd) -> None:
        """Keep the first damage; without damage, the last end."""
        if not self.end.is_damage:
            self.end = end

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        status = status_of(self._path)
        if status is None:
            raise FileNotFoundError(self._path)
        if not is_file(self._path):
            raise UnreadableError("is not a regular file", file=self._path, hint="move it away")
        self._size = status.st_size
        for begin in range(0, self._size, BLOCK_SIZE):
            try:
                yield begin, self._descriptors.read(self._path, begin, min(BLOCK_SIZE, self._size - begin))
            except RemovedError as error:
                raise FileNotFoundError(self._path) from error

    def _parts(self) -> Iterator[tuple[int, int, bytes]]:
        for first, block in self._blocks():
            at = 0
            while at < len(block) and BLOCK_SIZE - at >= _HEADER.size:
                position, begin = first + at, at + _HEADER.size
                left = BLOCK_SIZE - begin
                checksum, size, kind = _HEADER.unpack_from(block, at) if begin <= len(block) else (0, left, _FULL)
                end = begin + size
                if kind == _NOTHING and not size and self._is_zeros_from(position):
                    self._note(RecordEnd(position))
                    return
                if (end > len(block) and size <= left) or begin > len(block):
                    # whole but for its length, or a writer went on after it
                    is_damage = masked_crc32c(block[begin - 1 :]) == checksum or _has_record(block, at + 1)
                    said = "a record's length is wrong" if is_damage else "the last record is not complete"
                    self._note(RecordEnd(position, said, is_damage))
                    return
                if size > left or masked_crc32c(block[begin - 1 : end]) != checksum:
                    is_torn = size <= left and self._is_torn(position, first + end)
                    self._note(RecordEnd(position, "a record's checksum is wrong", is_damage=not is_torn))
                    break
                if kind > _LAST:
                    number = self._number.to_bytes(_LOG_NUMBER_SIZE, "little")
                    if kind > _LAST + _RECYCLED or block[begin : begin + _LOG_NUMBER_SIZE] != number:
                        # of the file's former life
                        self._note(RecordEnd(position))
                        return
                    kind, begin = kind - _RECYCLED, begin + _LOG_NUMBER_SIZE
                yield position, kind, block[begin:end]
                at = end
        if not self.end.problem:
            self._note(RecordEnd(self._size))

    def _is_torn(self, position: int, end: int) -> bool:
        """Return whether a power cut left zeros at the end of what was being written: the last sector of the record, or
        all from its last byte to beyond it."""
        sector = max(position, (end - 1) // _SECTOR * _SECTOR)
        return self._is_zeros_from(sector) or (end < self._size and self._is_zeros_from(end - 1))

    def _is_zeros_from(self, position: int) -> bool:
        begin, nonzero = self._zeros
        if not begin <= position <= nonzero:
            found = first_nonzero(self._descriptors, self._path, position, self._size)
            nonzero = self._size if found is None else found
            self._zeros = position, nonzero
        return nonzero >= self._size


def _has_record(block: bytes, begin: int) -> bool:
    """Return whether a whole record is anywhere in the rest of a block."""
    for at in range(begin, len(block) - _HEADER.size):
        checksum, size, kind = _HEADER.unpack_from(block, at)
        end = at + _HEADER.size + size
        is_possible = size and end <= len(block) and 0 < kind <= _LAST + _RECYCLED
        if is_possible and masked_crc32c(block[at + _HEADER.size - 1 : end]) == checksum:
            return True
    return False
