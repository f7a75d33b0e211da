"""The ext units of a consumequeue: tag, store time and filter bit map by address (docs/formats.md)."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.layouts import CONSUMEQUEUE_EXT_UNIT_HEAD, CONSUMEQUEUE_UNIT
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors, end_of_nonzero
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue, ext_address, ext_offset

DEFAULT_EXT_FILE_SIZE = 48 * 1024 * 1024


class ExtUnit(NamedTuple):
    """`store_timestamp` in ms; `bit_map` holds the bloom filter hits of SQL92 subscriptions."""

    size: int
    tags_code: int
    store_timestamp: int
    bit_map: bytes


class ConsumeQueueExt:
    """Ext units of one topic and queue, read only."""

    def __init__(self, directory: Path, file_size: int | None, descriptors: Descriptors) -> None:
        self.directory = directory
        self.files = MappedFileQueue([directory], file_size, descriptors)

    def load(self) -> None:
        """List the files."""
        self.files.load()

    def unit(self, offset: int) -> ExtUnit | None:
        """The unit at byte `offset` of the ext queue; None where there is no whole unit."""
        head = self._head(offset)
        if head is None:
            return None
        size, tags_code, store_timestamp, bit_map_size = head
        bit_map = self.files.read(offset + CONSUMEQUEUE_EXT_UNIT_HEAD.size, bit_map_size)
        return ExtUnit(size, tags_code, store_timestamp, bit_map) if len(bit_map) == bit_map_size else None

    def tags_code(self, offset: int) -> int | None:
        """Its tags code, read without its bit map, which takes half of the time; None where there is no whole unit."""
        head = self._head(offset)
        file = self.files.find(offset) if head is not None else None
        return head[1] if head is not None and file is not None and offset + head[0] <= file.end_offset else None

    def _head(self, offset: int) -> tuple[int, int, int, int] | None:
        """Size, tags code, store time and size of the bit map; None where these make no unit."""
        data = self.files.read(offset, CONSUMEQUEUE_EXT_UNIT_HEAD.size)
        if len(data) < CONSUMEQUEUE_EXT_UNIT_HEAD.size:
            return None
        size, tags_code, store_timestamp, bit_map_size = CONSUMEQUEUE_EXT_UNIT_HEAD.unpack_from(data, 0)
        is_unit = bit_map_size >= 0 and size == CONSUMEQUEUE_EXT_UNIT_HEAD.size + bit_map_size
        return (size, tags_code, store_timestamp, bit_map_size) if is_unit else None


# Appends ext units for the units of one queue (ConsumeQueueExt#put).

# a unit without a bit map: a plain broker calculates none (enableCalcFilterBitMap=false)
_UNIT_SIZE = CONSUMEQUEUE_EXT_UNIT_HEAD.size
# in place of a unit's size: the rest of the file is blank
_BLANK = struct.pack(">h", -1)
# a unit is never nearer than this to the end of its file (END_BLANK_DATA_LENGTH)
_LEAST_BLANK = 4
# the queue files at its end in which RocketMQ looks for the last address (ConsumeQueue#recover)
_LAST_FILES = 3
_CHUNK_UNITS = 8192
_ZEROS = bytes(1 << 16)


class ExtAppender:
    """The ext units of one queue. Used by one thread. Nothing is flushed: `wrote` is called with each file written to.

    Where ext units cannot be put behind those that the queue refers to, it gets none: a unit keeps its plain tags code,
    as in RocketMQ where a put of an ext unit fails. That is said once.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        descriptors: Descriptors,
        last_offset: int | None,
        wrote: Callable[[Path], None],
        say: Callable[[str], None],
    ) -> None:
        """`last_offset`: byte of the ext unit that the queue refers to last; None where it refers to none. `say` is
        called with the sentence for people."""
        self._ext = ConsumeQueueExt(directory, file_size, descriptors)
        self._ext.load()
        self._ext.files.is_shared = False
        self._wrote = wrote
        self._say = say
        self._appending: tuple[MappedFile, int] | None = None
        self._end = self._find_end(last_offset)

    def _find_end(self, last_offset: int | None) -> int | None:
        """Return the byte that the next unit goes to, behind the last one that the queue refers to; None where there is
        no such place."""
        files = self._ext.files
        why = ""
        if files.problems:
            why = f"{files.problems[0].path.name}: {files.problems[0].detail}"
        elif blank_at(0, files.file_size):
            why = f"a file of {files.file_size} bytes holds no unit"
        elif last_offset is None:
            return self._end_of_units()
        elif (unit := self._ext.unit(last_offset)) is not None:
            return last_offset + unit.size
        else:
            why = f"the queue refers to a unit at byte {last_offset} that is not there"
        self._say(f"{self._ext.directory}: no ext units are written ({why})")
        return None

    def _end_of_units(self) -> int:
        """Return the end of the units in the last file; 0 without files (ConsumeQueueExt#recover)."""
        if not self._ext.files.files:
            return 0
        last = self._ext.files.files[-1]
        offset = last.start_offset
        while (unit := self._ext.unit(offset)) is not None:
            offset += unit.size
        return offset

    def append(self, tags_code: int, store_timestamp: int) -> int:
        """Write a unit; return what goes into the queue as tags code: its address, or `tags_code` without a unit."""
        if self._end is None:
            return tags_code
        blank = blank_at(self._end, self._ext.files.file_size)
        if blank:
            self._write(self._end, _BLANK[:blank])
            self._end += blank
        address = ext_address(self._end)
        self._write(self._end, CONSUMEQUEUE_EXT_UNIT_HEAD.struct.pack(_UNIT_SIZE, tags_code, store_timestamp, 0))
        self._end += _UNIT_SIZE
        return address

    def _write(self, offset: int, data: bytes) -> None:
        if self._appending is None or offset >= self._appending[0].end_offset:
            self.release()
            self._appending = self._opened(offset)
        file, descriptor = self._appending
        io.write_at(descriptor, file.path, offset - file.start_offset, data)
        self._wrote(file.path)

    def _opened(self, offset: int) -> tuple[MappedFile, int]:
        """Return the file of byte `offset`, open for writing. What the queue no longer refers to goes: a broker reads
        the units of a file one after the other, and must not meet half of one."""
        files = self._ext.files
        file = files.find(offset)
        if file is None:
            file = files.create_file(offset - offset % files.file_size)
            file.set_positions(files.file_size)
        descriptor = io.open_for_writing(file.path)
        try:
            begin = offset - file.start_offset
            stop = end_of_nonzero(files.descriptors, file.path, begin, file.size)
            while begin < stop:
                count = min(stop - begin, len(_ZEROS))
                io.write_at(descriptor, file.path, begin, memoryview(_ZEROS)[:count])
                begin += count
        except BaseException:
            os.close(descriptor)
            raise
        return file, descriptor

    def release(self) -> None:
        """Close the descriptor of the file being appended to; who calls this flushes the file by name."""
        if self._appending is not None:
            os.close(self._appending[1])
            self._appending = None


def blank_at(offset: int, file_size: int) -> int:
    """Return how many bytes stay blank at byte `offset`, up to the end of its file; 0 where a unit goes there."""
    rest = file_size - offset % file_size
    return rest if rest - _LEAST_BLANK < _UNIT_SIZE else 0


def last_ext_offset(queue: ConsumeQueue) -> int | None:
    """Return the byte of the ext unit that the units in the last files of a queue refer to last; None for none."""
    end = queue.max_offset
    begin = queue.files.files[-_LAST_FILES:][0].start_offset // UNIT_SIZE if queue.files.files else end
    while begin < end:
        first = max(begin, end - _CHUNK_UNITS)
        data = b"".join(data for _, data in queue.unit_bytes(first, end))
        codes = [fields[2] for fields in CONSUMEQUEUE_UNIT.struct.iter_unpack(data)]
        for code in reversed(codes):
            if (offset := ext_offset(code)) is not None:
                return offset
        end = first
    return None
