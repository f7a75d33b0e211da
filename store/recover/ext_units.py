"""Plans the ext units of the units that a recovery puts into a queue (enableConsumeQueueExt)."""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path

import numpy as np

from rmqctl.formats.errors import RefusedError, UnreadableError
from rmqctl.formats.layouts import CONSUMEQUEUE_EXT_UNIT_HEAD, CONSUMEQUEUE_UNIT
from rmqctl.store.files import io
from rmqctl.store.files.layout import file_name
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors, end_of_nonzero
from rmqctl.store.journal.kept import Spilled
from rmqctl.store.journal.plan import ClearRange, CreateFile, Install, MoveAway, Plan, Resize, WriteRange
from rmqctl.store.log.columns import Flags
from rmqctl.store.log.implied import UNIT, Units
from rmqctl.store.log.walk import walked_message
from rmqctl.store.options import say
from rmqctl.store.queues.consumequeue import (
    MAXIMUM_EXT_ADDRESS,
    PLACEHOLDER_SIZE,
    ConsumeQueue,
    QueueUnit,
    ext_address,
    ext_offset,
)
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt, ExtAppender, blank_at
from rmqctl.store.queues.queue_table import QueueTable, list_queues

# The files of one queue as a plan will leave them: reading what is there, planning what is to be there.

Spill = Callable[[bytes], Spilled]


def plan_empty_ext(queues: QueueTable, plan: Plan, topics: Container[str] | None = None) -> None:
    """Plan the removal of ext files of no bytes, those of `topics` (None for all): they hold no unit, and 4.x does not
    start with one. Where the plan puts a new folder they go with the old one; those that the plan changes stay."""
    renewed = {operation.path for operation in plan.operations if isinstance(operation, Install)}
    changed = set(plan.paths())
    for topic, _, directory in list_queues(queues.layout.consumequeue_ext):
        if (topics is None or topic in topics) and directory not in renewed:
            ext = MappedFileQueue([directory], None, queues.descriptors)
            ext.load()
            for path in ext.empty_files().values():
                if path not in changed:
                    plan.add(MoveAway(path))


class QueueFiles:
    """The files of one queue as they will be: existing ones, and those the plan creates.

    `spill` takes the bytes of the plan, which otherwise stay in memory.
    """

    def __init__(self, queue: MappedFileQueue, file_size: int, plan: Plan, spill: Spill | None = None) -> None:
        self._directory = queue.directories[0]
        self.file_size = file_size
        self._files = {file.start_offset: file for file in queue.files}
        self._empty = queue.empty_files()
        self._created: set[int] = set()
        self._plan = plan
        self._spill = spill
        for file in queue.files:
            if file.start_offset % file_size:
                raise RefusedError(
                    f"the name is no multiple of the file size {file_size}",
                    file=file.path,
                    hint="give the broker's configuration with -c, or rebuild the queues with `rmqctl rebuild`",
                )
            if file.size != file_size:
                plan.add(Resize(file.path, file_size))

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of one file; zeros where there is no file or it is short."""
        start = offset - offset % self.file_size
        file = self._files.get(start)
        data = file.read(offset - start, length) if file is not None else b""
        return data.ljust(length, b"\0")

    def write(self, offset: int, data: bytes) -> None:
        """Plan to put `data`, all of one file."""
        start = offset - offset % self.file_size
        path = self._directory / file_name(start)
        if start not in self._files and start not in self._created:
            is_there = self._empty.pop(start, None) is not None
            self._plan.add(Resize(path, self.file_size) if is_there else CreateFile(path, self.file_size))
            self._created.add(start)
        kept = data if self._spill is None else self._spill(data)
        self._plan.add(WriteRange(path, offset - start, kept))

    def clear_from(self, end: int, descriptors: Descriptors) -> None:
        """Plan that nothing is left at or behind byte `end`, and no file that is still empty."""
        for path in self._empty.values():
            self._plan.add(MoveAway(path))
        for start, file in sorted(self._files.items()):
            if start >= end:
                self._plan.add(MoveAway(file.path))
            elif start + self.file_size > end:
                begin = end - start
                stop = end_of_nonzero(descriptors, file.path, begin, min(file.size, self.file_size))
                if stop > begin:
                    self._plan.add(ClearRange(file.path, begin, stop - begin))


_UNIT_SIZE = CONSUMEQUEUE_EXT_UNIT_HEAD.size
_CHUNK_UNITS = 8192


class ExtUnits:
    """Ext units of one queue, for units in the order of their slots; `finish` plans them.

    A unit gets the ext unit that it had where that still follows the one before it. Where the bytes of that ext unit
    are wrong, they are written again. Units after the last address of the queue get new ext units. Every other unit
    keeps its plain tags code: a broker removes each ext unit after the one that its queue refers to last.
    """

    def __init__(self, directory: Path, file_size: int, descriptors: Descriptors, log: MappedFileQueue) -> None:
        self._file_size = file_size
        self._log = log
        self._ext = ConsumeQueueExt(directory, file_size, descriptors)
        self._ext.load()
        self._further: set[int] = set()
        self._next: int | None = None
        """The byte after the ext unit of the last slot that has one; None before the first."""
        self._top = 0
        """The byte after the highest ext unit that the queue will refer to."""
        self._last_slot: int | None = None
        self._pieces: list[tuple[int, bytearray]] = []
        self._appends = False
        self._is_refused = False
        for problem in self._ext.files.problems:
            if problem.kind not in ("empty", "gap"):
                self._refuse(f"{problem.path.name}: {problem.detail}")
        if blank_at(0, file_size):
            self._refuse(f"a file of {file_size} bytes holds no unit")

    def leave_out(self, physical_offset: int) -> None:
        """Give the unit of this message no ext unit: the queue has it by multi-dispatch."""
        self._further.add(physical_offset)

    def follow(self, units: Units) -> None:
        """Take note of units that stay as they are."""
        addresses = units["tags_code"][units["tags_code"] <= MAXIMUM_EXT_ADDRESS]
        if not len(addresses):
            return
        for code in {int(addresses.max()), int(addresses[-1])}:
            offset = ext_offset(code)
            assert offset is not None
            unit = self._ext.unit(offset)
            if unit is None:
                self._refuse(f"the queue refers to a unit at byte {offset} that is not there")
                return
            self._passed(offset + unit.size)

    def give(self, queue: ConsumeQueue, first_slot: int, there: Units, implied: Units, differs: Flags) -> None:
        """Change the tags codes of those `implied` units that differ from those `there` into addresses. A unit that is
        right once its ext unit is written again does not differ any more."""
        begin = 0
        for place in np.flatnonzero(differs).tolist():
            self.follow(there[begin:place])
            begin = place + 1
            physical_offset, size, tags_code = implied[place].item()
            if self._is_refused or not 0 < size < PLACEHOLDER_SIZE or physical_offset in self._further:
                continue
            try:
                time = walked_message(self._log, physical_offset, size).store_timestamp
            except UnreadableError:  # a filler that the plan puts there
                continue
            had = there[place].item()
            address = ext_offset(had[2]) if had[:2] == (physical_offset, size) else None
            following = ext_offset(int(there["tags_code"][place + 1])) if place + 1 < len(there) else None
            found = self._found(tags_code, time)
            if found is None and address is not None:
                found = self._written_again(address, following, tags_code, time)
            if found is None and first_slot + place > self._last_slot_with_ext(queue):
                found = self._appended(tags_code, time)
            if found is not None:
                implied["tags_code"][place] = ext_address(found)
                differs[place] = found != address
        self.follow(there[begin:])

    def _passed(self, end: int) -> None:
        self._next = end
        self._top = max(self._top, end)

    def _begin(self) -> int:
        """Return the byte at which the next unit is expected."""
        if self._next is not None:
            return self._next
        files = self._ext.files.files
        return files[0].start_offset if files else 0

    def _found(self, tags_code: int, time: int) -> int | None:
        """Return the byte of the ext unit that follows, if it is this message's."""
        begin = self._begin()
        for offset in dict.fromkeys(
            (begin, begin + blank_at(begin, self._file_size), _next_file(begin, self._file_size))
        ):
            unit = self._ext.unit(offset)
            if unit is not None:
                if (unit.tags_code, unit.store_timestamp) != (tags_code, time):
                    return None
                self._passed(offset + unit.size)
                return offset
        return None

    def _written_again(self, address: int, following: int | None, tags_code: int, time: int) -> int | None:
        """Write the ext unit at `address` again if that is its place. `following`: the address of the next unit."""
        begin = self._begin()
        blank = blank_at(begin, self._file_size)
        if address == _next_file(begin, self._file_size) and self._next is not None:
            blank = address - begin
        if address != begin + blank:
            return None
        unit = self._ext.unit(address)
        size = _UNIT_SIZE if unit is None else unit.size
        if unit is None and following is not None and 0 <= following - address - _UNIT_SIZE <= 0x7FFF - _UNIT_SIZE:
            size = following - address
            if address // self._file_size != following // self._file_size:
                size = _UNIT_SIZE
        self._put_blank(begin, blank)
        self._write(address, CONSUMEQUEUE_EXT_UNIT_HEAD.struct.pack(size, tags_code, time, size - _UNIT_SIZE))
        self._passed(address + size)
        if following == _next_file(address, self._file_size):
            self._put_blank(address + size, following - address - size)
        return address

    def _appended(self, tags_code: int, time: int) -> int:
        offset = max(self._begin(), self._top)
        blank = blank_at(offset, self._file_size)
        self._put_blank(offset, blank)
        offset += blank
        self._write(offset, CONSUMEQUEUE_EXT_UNIT_HEAD.struct.pack(_UNIT_SIZE, tags_code, time, 0))
        self._passed(offset + _UNIT_SIZE)
        self._appends = True
        return offset

    def _put_blank(self, offset: int, size: int) -> None:
        is_put = bool(self._pieces) and self._pieces[-1][0] + len(self._pieces[-1][1]) > offset
        if size and not is_put:
            self._write(offset, b"\xff\xff".ljust(size, b"\0")[:size])

    def _write(self, offset: int, data: bytes) -> None:
        if self._pieces:
            start, last = self._pieces[-1]
            is_same_file = start // self._file_size == offset // self._file_size
            if start + len(last) == offset and is_same_file:
                last += data
                return
        self._pieces.append((offset, bytearray(data)))

    def _last_slot_with_ext(self, queue: ConsumeQueue) -> int:
        """Return the last slot of the queue, as it is now, that refers to an ext unit that is there; -1 for none."""
        if self._last_slot is None:
            self._last_slot = self._find_last_slot(queue) if self._ext.files.files else -1
        return self._last_slot

    def _find_last_slot(self, queue: ConsumeQueue) -> int:
        end = queue.max_offset
        while end > queue.first_slot:
            first = max(queue.first_slot, end - _CHUNK_UNITS)
            units = np.frombuffer(b"".join(data for _, data in queue.unit_bytes(first, end)), UNIT)
            for number in np.flatnonzero(units["tags_code"] <= MAXIMUM_EXT_ADDRESS)[::-1].tolist():
                if self._ext.unit(ext_offset(int(units["tags_code"][number])) or 0) is not None:
                    return first + int(number)
            end = first
        return -1

    def _refuse(self, why: str) -> None:
        if not self._is_refused:
            say(f"{self._ext.directory}: no ext units are written ({why})")
        self._is_refused = True

    def finish(self, plan: Plan, descriptors: Descriptors, spill: Spill | None) -> None:
        """Plan the ext units. What follows units that are appended goes, as with a broker."""
        if not self._pieces:
            return
        files = QueueFiles(self._ext.files, self._file_size, plan, spill)
        for offset, data in self._pieces:
            files.write(offset, bytes(data))
        if self._appends:
            files.clear_from(self._top, descriptors)


def _next_file(offset: int, file_size: int) -> int:
    return offset - offset % file_size + file_size


# Gives a queue that was written to a folder its ext units, in the order of its units (enableConsumeQueueExt).


def put_ext_units(directory: Path, ext: Path, file_size: int, log: MappedFileQueue, without: Container[int]) -> int:
    """Write an ext unit to the folder `ext` for each unit in `directory`, and its address into the unit; return the
    bytes of the ext files. Units of messages at the physical offsets `without` stay as they are."""
    written: set[Path] = set()
    with Descriptors() as descriptors:
        appender = ExtAppender(ext, file_size, descriptors, None, written.add, say)
        try:
            for path in sorted(directory.iterdir()):
                data = bytearray(path.read_bytes())
                for at in range(0, len(data) - CONSUMEQUEUE_UNIT.size + 1, CONSUMEQUEUE_UNIT.size):
                    unit = QueueUnit(0, *CONSUMEQUEUE_UNIT.unpack_from(data, at))
                    if unit.is_written and unit.physical_offset not in without:
                        message = walked_message(log, unit.physical_offset, unit.size)
                        code = appender.append(unit.tags_code, message.store_timestamp)
                        data[at : at + CONSUMEQUEUE_UNIT.size] = CONSUMEQUEUE_UNIT.struct.pack(*unit[1:3], code)
                io.write_range(path, 0, data)
        finally:
            appender.release()
    return len(written) * file_size
