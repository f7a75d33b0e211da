"""The log framing of RocksDB, which manifests and write-ahead logs share: records in blocks of 32 KiB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.formats.layouts import ROCKSDB_RECORD
from rmqctl.store.rocksdb.coding import masked_crc32c

BLOCK_SIZE = 32 * 1024
_HEADER = ROCKSDB_RECORD.struct
_NOTHING, _FULL, _FIRST, _MIDDLE, _LAST = range(5)
_RECYCLED = 4
"""Added to the types of records in a log file that is used again; the number of its log follows the header."""
_LOG_NUMBER_SIZE = 4


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
    """Iterates over the records of one file; `end` holds afterwards where they end, and why, or the first damage.

    After damage it goes on with the next block, as RocksDB does. `number`: the number in the file's name, which
    recycled records repeat.
    """

    def __init__(self, data: bytes, number: int) -> None:
        self._data = data
        self._number = number & 0xFFFFFFFF
        self.end = RecordEnd(0)

    def __iter__(self) -> Iterator[FramedRecord]:
        begin, parts = 0, list[bytes]()
        for position, kind, payload in self._parts():
            if kind in (_FULL, _FIRST):
                begin, parts = position, []
            elif not parts:
                self._note(RecordEnd(position, "a record has no first part", is_damage=True))
                continue
            parts.append(payload)
            if kind in (_FULL, _LAST):
                yield FramedRecord(begin, b"".join(parts))
                parts = []
        if parts:
            self._note(RecordEnd(begin, "the last record is not complete"))

    def _note(self, end: RecordEnd) -> None:
        """Keep the first damage; without damage, the last end."""
        if not self.end.is_damage:
            self.end = end

    def _parts(self) -> Iterator[tuple[int, int, bytes]]:
        data, position = self._data, 0
        while position < len(data):
            left = BLOCK_SIZE - position % BLOCK_SIZE
            if left < _HEADER.size:
                position += left
                continue
            begin = position + _HEADER.size
            checksum, size, kind = _HEADER.unpack_from(data, position) if begin <= len(data) else (0, left, _FULL)
            end = begin + size
            if kind == _NOTHING and not size and self._is_zeros_from(position):
                self._note(RecordEnd(position))
                return
            if (end > len(data) and size <= left - _HEADER.size) or begin > len(data):
                self._note(RecordEnd(position, "the last record is not complete"))
                return
            if size > left - _HEADER.size or masked_crc32c(data[begin - 1 : end]) != checksum:
                # a power cut leaves zeros at the end of what was being written
                is_torn = self._is_zeros_from(min(end, position + left) - 1)
                self._note(RecordEnd(position, "a record's checksum is wrong", is_damage=not is_torn))
                position += left
                continue
            if kind > _LAST:
                if kind > _LAST + _RECYCLED or data[begin : begin + _LOG_NUMBER_SIZE] != self._number.to_bytes(
                    _LOG_NUMBER_SIZE, "little"
                ):  # of the file's former life
                    self._note(RecordEnd(position))
                    return
                kind, begin = kind - _RECYCLED, begin + _LOG_NUMBER_SIZE
            yield position, kind, data[begin:end]
            position = end
        if not self.end.problem:
            self._note(RecordEnd(len(data)))

    def _is_zeros_from(self, position: int) -> bool:
        return self._data.count(0, position) == len(self._data) - position
