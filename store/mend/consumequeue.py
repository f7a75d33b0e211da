"""Compares consume queues with what the log implies and plans the bytes that must change (no queue stays wrong)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from formats.errors import RefusedError
from formats.layouts import CONSUMEQUEUE_UNIT
from formats.message import MINIMUM_FRAME_SIZE
from store.files.layout import file_name
from store.files.mapped_file import MappedFile
from store.files.plan import ClearRange, CreateFile, MoveAway, Plan, Resize, WriteRange
from store.files.reading import Descriptors, end_of_nonzero
from store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from store.queues.consumequeue_ext import ConsumeQueueExt
from store.queues.unit import PLACEHOLDER_SIZE, QueueUnit, ext_offset

_FLUSH_UNITS = 8192
_PLACEHOLDER = CONSUMEQUEUE_UNIT.struct.pack(0, PLACEHOLDER_SIZE, 0)
_EMPTY = bytes(UNIT_SIZE)


class QueueFiles:
    """The files of one queue as they will be: existing ones, and those the plan creates."""

    def __init__(self, directory: Path, file_size: int, existing: list[MappedFile], plan: Plan) -> None:
        self.directory = directory
        self.file_size = file_size
        self._files = {file.start_offset: file for file in existing}
        self._created: set[int] = set()
        self._plan = plan
        for file in existing:
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
        path = self.directory / file_name(start)
        if start not in self._files and start not in self._created:
            self._plan.add(CreateFile(path, self.file_size))
            self._created.add(start)
        self._plan.add(WriteRange(path, offset - start, data))

    def clear_from(self, end: int, descriptors: Descriptors) -> None:
        """Plan that nothing is left at or behind byte `end`."""
        for start, file in sorted(self._files.items()):
            if start >= end:
                self._plan.add(MoveAway(file.path))
            elif start + self.file_size > end:
                begin = end - start
                stop = end_of_nonzero(descriptors, file.path, begin, min(file.size, self.file_size))
                if stop > begin:
                    self._plan.add(ClearRange(file.path, begin, stop - begin))


class ConsumeQueueMend:
    """One queue of 20-byte units. Units come in the order of the log; `finish` plans the tail.

    `is_gone(physical_offset)` says that a message cannot be compared with: expired, or inside damage that stays.
    """

    def __init__(
        self,
        queue: ConsumeQueue,
        ext_directory: Path,
        file_size: int,
        descriptors: Descriptors,
        is_gone: Callable[[int], bool],
    ) -> None:
        self.queue = queue
        self.plan = Plan()
        self.added = 0
        self.removed = 0
        self.conflicts = 0
        self._descriptors = descriptors
        self._is_gone = is_gone
        self._ext_directory = ext_directory
        for problem in queue.files.problems:
            if problem.kind == "empty":
                self.plan.add(MoveAway(problem.path))
            elif problem.kind in ("stray", "unreadable"):
                raise RefusedError(
                    f"does not belong into a queue: {problem.detail}",
                    file=problem.path,
                    hint="a broker would not start with it: move it elsewhere, then run the command again",
                )
        self._files = QueueFiles(queue.directory, file_size, queue.files.files, self.plan)
        self._per_file = file_size // UNIT_SIZE
        self._next: int | None = None
        self._end_of_previous = 0
        self._buffer: list[bytes] = []
        self._buffer_start = 0
        self._ext: ConsumeQueueExt | None = None

    @property
    def changed(self) -> bool:
        """Whether anything of this queue is planned to change."""
        return bool(self.plan)

    def add(self, unit: QueueUnit) -> None:
        """The log implies `unit`. The first message of a slot has it, as in RocketMQ."""
        if not self._is_plausible(unit):
            self.conflicts += 1
            return
        if self._next is None:
            first = self.queue.first_slot if self.queue.files.files else unit.queue_offset
            self._next = self._buffer_start = min(first, unit.queue_offset - unit.queue_offset % self._per_file)
        if unit.queue_offset < self._next:
            self.conflicts += 1
            return
        if unit.queue_offset > self._next:
            self._keep(self._next, unit.queue_offset)
        self._put(CONSUMEQUEUE_UNIT.struct.pack(unit.physical_offset, unit.size, unit.tags_code))

    def _is_plausible(self, unit: QueueUnit) -> bool:
        """Whether a message can stand so far on in its queue. No checksum covers queueOffset: a flipped bit must not
        fill the disk with placeholders and leave no slot for the messages behind it.

        Every message takes a frame's room in the log. What a broker is known to skip beyond that (units that came back
        after a truncation, phantom units) is less than a file of the queue.
        """
        room = max(0, unit.physical_offset - self._end_of_previous) // MINIMUM_FRAME_SIZE
        limit = max((self._next or 0) + room + self._per_file, self.queue.max_offset)
        if not 0 <= unit.queue_offset <= limit:
            return False
        self._end_of_previous = unit.end
        return True

    def _put(self, packed: bytes) -> None:
        self._buffer.append(packed)
        self._next = (self._next or 0) + 1
        if len(self._buffer) >= _FLUSH_UNITS or self._next % self._per_file == 0:
            self._flush()

    def _keep(self, begin: int, end: int) -> None:
        """Slots that no message implies: what stands there stays if its message is gone, else a placeholder."""
        for slot in range(begin, end):
            existing = self._existing(slot)
            unit = QueueUnit(slot, *CONSUMEQUEUE_UNIT.unpack_from(existing, 0))
            stays = unit.is_placeholder or (unit.is_written and self._is_gone(unit.physical_offset))
            self._put(existing if stays else _PLACEHOLDER)

    def _existing(self, slot: int) -> bytes:
        return self._files.read(slot * UNIT_SIZE, UNIT_SIZE)

    def _flush(self) -> None:
        """Compare the buffered units with the file; plan one write from the first to the last that differ."""
        wanted = b"".join(self._buffer)
        start, self._buffer = self._buffer_start, []
        self._buffer_start = self._next or 0
        existing = self._files.read(start * UNIT_SIZE, len(wanted))
        if existing == wanted:
            return
        differing = [
            position
            for position in range(0, len(wanted), UNIT_SIZE)
            if not self._is_same(existing[position : position + UNIT_SIZE], wanted[position : position + UNIT_SIZE])
        ]
        if not differing:
            return
        for position in differing:
            _, size, _ = CONSUMEQUEUE_UNIT.unpack_from(existing, position)
            self.removed += 0 < size < PLACEHOLDER_SIZE
        self.added += len(differing)
        begin, end = differing[0], differing[-1] + UNIT_SIZE
        data = bytearray(existing[begin:end])
        for position in differing:
            data[position - begin : position - begin + UNIT_SIZE] = wanted[position : position + UNIT_SIZE]
        self._files.write(start * UNIT_SIZE + begin, bytes(data))

    def _is_same(self, existing: bytes, wanted: bytes) -> bool:
        """Equal, or equal but for a tags code that addresses an ext unit with the wanted code."""
        if existing == wanted:
            return True
        physical_offset, size, tags_code = CONSUMEQUEUE_UNIT.unpack_from(existing, 0)
        wanted_offset, wanted_size, wanted_code = CONSUMEQUEUE_UNIT.unpack_from(wanted, 0)
        address = ext_offset(tags_code)
        if address is None or (physical_offset, size) != (wanted_offset, wanted_size):
            return False
        if self._ext is None:
            self._ext = ConsumeQueueExt(self._ext_directory, None, self._descriptors)
            self._ext.load()
        unit = self._ext.unit(address)
        return unit is not None and unit.tags_code == wanted_code

    def finish(self) -> None:
        """Behind the last implied unit only units of messages that are gone may stay; the rest is cleared."""
        if self._next is None:
            self._next = self._buffer_start = self.queue.first_slot
        end = self.queue.max_offset
        while self._next < end:
            existing = self._existing(self._next)
            unit = QueueUnit(self._next, *CONSUMEQUEUE_UNIT.unpack_from(existing, 0))
            if not unit.is_written or not self._is_gone(unit.physical_offset):
                break
            self._put(existing)
        if self._buffer:
            self._flush()
        self.removed += sum(unit.is_written for unit in self.queue.units(self._next))
        # files of zeros go too: each would become a phantom unit at a broker's next start
        self._files.clear_from(self._next * UNIT_SIZE, self._descriptors)
