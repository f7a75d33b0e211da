"""Writes one new queue to a folder, file by file, in the order of the log."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats.layouts import BATCH_CONSUMEQUEUE_UNIT, CONSUMEQUEUE_UNIT
from rmqctl.store.columns.batch import Int64s
from rmqctl.store.files import io
from rmqctl.store.files.layout import file_name
from rmqctl.store.queues.batch_consumequeue import pack_batch_unit
from rmqctl.store.queues.unit import PLACEHOLDER_SIZE, QueueUnit
from rmqctl.store.recover.mend.slot_order import SlotOrder, has_batch_slot
from rmqctl.store.survey.run_units import Units

_PLACEHOLDER = CONSUMEQUEUE_UNIT.struct.pack(0, PLACEHOLDER_SIZE, 0)
_BUFFER = 256 * 1024
_PLACEHOLDERS_AT_ONCE = 8192


class QueueWriter(SlotOrder):
    """A queue of 46-byte units if `is_batch`. `file_size` in bytes. Nothing is flushed to disk."""

    def __init__(
        self, directory: Path, is_batch: bool, file_size: int, below: Path | None = None, *, writes: bool = True
    ) -> None:
        """`below`: the directory is made below this one, which must be there, see io.make_directories. Without
        `writes` nothing is made, only counted."""
        self._unit_size = BATCH_CONSUMEQUEUE_UNIT.size if is_batch else CONSUMEQUEUE_UNIT.size
        super().__init__(file_size // self._unit_size)
        self.directory = directory
        self.file_bytes = 0
        """Sizes of all files, 0 if no unit could be put."""
        self._writes = writes
        self._below = below
        self._file_size = file_size
        self.is_batch = is_batch
        self._file_bytes = self._per_file * self._unit_size
        self._position = 0
        self._buffer = bytearray()
        self._file: Path | None = None

    def add(self, unit: QueueUnit) -> None:
        """The log implies `unit`."""
        if not self.is_batch:
            super().add(unit)
        elif has_batch_slot(unit, self._next or 0, self.rows):
            self._write(pack_batch_unit(unit))
            self._next = unit.next_queue_offset
        else:
            self.conflicts += 1

    def add_units(self, slots: Int64s, units: Units) -> None:
        """`add` for many units, in their order."""
        if not self.is_batch:
            super().add_units(slots, units)
            return
        for slot, unit in zip(slots.tolist(), units, strict=True):
            self.add(QueueUnit(slot, *unit.item()))

    def _begin(self, queue_offset: int) -> int:
        first = queue_offset - queue_offset % self._per_file
        self._position = first * self._unit_size
        return first

    def _keep(self, begin: int, end: int) -> None:
        for first in range(begin, end, _PLACEHOLDERS_AT_ONCE):
            self._put(_PLACEHOLDER * min(end - first, _PLACEHOLDERS_AT_ONCE))

    def _put(self, packed: bytes) -> None:
        self._write(packed)
        self._next = (self._next or 0) + len(packed) // self._unit_size

    def _write(self, packed: bytes) -> None:
        at = 0
        while at < len(packed):
            if self._file is None:
                start = self._position // self._file_bytes * self._file_size
                self._file = self.directory / file_name(start)
                self.file_bytes += self._file_size
                if self._writes:
                    io.make_directories(self.directory, self._below)
                    io.create_file(self._file, self._file_size)
            piece = packed[at : at + self._file_bytes - self._position % self._file_bytes]
            self._buffer += piece
            self._position += len(piece)
            at += len(piece)
            if self._position % self._file_bytes == 0:
                self.flush()
                self._file = None
            elif len(self._buffer) >= _BUFFER:
                self.flush()

    def flush(self) -> None:
        """Write what is held in memory."""
        if self._file is not None and self._buffer and self._writes:
            position = self._position % self._file_bytes or self._file_bytes
            io.write_range(self._file, position - len(self._buffer), self._buffer)
        self._buffer = bytearray()
