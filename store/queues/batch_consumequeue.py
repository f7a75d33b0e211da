"""One batch consumequeue of 46-byte units: not placed by queue offset, so searched by it (docs/formats.md)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import RemovedError, WriteFailedError
from rmqctl.formats.layouts import BATCH_CONSUMEQUEUE_UNIT
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.queues.unit import QueueUnit

UNIT_SIZE = BATCH_CONSUMEQUEUE_UNIT.size
DEFAULT_FILE_SIZE = 300_000 * UNIT_SIZE
_CHUNK_UNITS = 4096


def pack_batch_unit(unit: QueueUnit) -> bytes:
    """The 46 bytes of `unit`."""
    return BATCH_CONSUMEQUEUE_UNIT.struct.pack(
        unit.physical_offset,
        unit.size,
        unit.tags_code,
        unit.store_timestamp,
        unit.queue_offset,
        unit.batch_size,
        unit.compacted_offset,
        0,
    )


class BatchConsumeQueue:
    """Units of one topic and queue with queue.type=BatchCQ. A unit is valid with offset and base >= 0, sizes > 0."""

    kind = "BatchCQ"

    def __init__(
        self, topic: str, queue_id: int, directory: Path, file_size: int | None, descriptors: Descriptors
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.files = MappedFileQueue([directory], file_size, descriptors)
        # held where files of the queue are added or taken away: units lie by their number from the first file on
        self.changing = threading.RLock()
        self._units: list[QueueUnit] | None = None
        self._written = 0

    def load(self) -> None:
        """List the queue's files."""
        self.files.load()

    def _all(self) -> list[QueueUnit]:
        if self._units is None:
            self._units = list(self._read_all())
        return self._units

    def _read_all(self) -> Iterator[QueueUnit]:
        self._written = 0
        for file in self.files.files:
            for position in range(0, file.size, _CHUNK_UNITS * UNIT_SIZE):
                try:
                    data = file.read(position, _CHUNK_UNITS * UNIT_SIZE)
                except RemovedError:
                    break
                whole = len(data) - len(data) % UNIT_SIZE
                for fields in BATCH_CONSUMEQUEUE_UNIT.struct.iter_unpack(data[:whole]):
                    physical_offset, size, tags_code, store_timestamp, base, batch_size, compacted_offset, _ = fields
                    if physical_offset < 0 or size <= 0 or base < 0 or batch_size <= 0:
                        return
                    self._written += 1
                    yield QueueUnit(
                        base, physical_offset, size, tags_code, store_timestamp, batch_size, compacted_offset
                    )

    def look_again(self) -> None:
        """Take in what another process changed."""
        self.files.look_again()
        self.reread()

    def reread(self) -> None:
        """Forget what was read, after files of the queue were removed."""
        self._units = None

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last message."""
        units = self._all()
        return units[-1].next_queue_offset if units else 0

    def min_offset(self, commitlog_min_offset: int) -> int:
        """Base offset of the first unit whose batch is still in the commitlog; the end if there is none."""
        for unit in self._all():
            if unit.physical_offset >= commitlog_min_offset:
                return unit.queue_offset
        return self.max_offset

    def unit(self, queue_offset: int) -> QueueUnit | None:
        """The unit whose batch holds `queue_offset`."""
        for unit in self.units(queue_offset):
            return unit if unit.queue_offset <= queue_offset else None
        return None

    def units(self, begin: int, end: int | None = None) -> Iterator[QueueUnit]:
        """Units of batches that reach into [begin, end)."""
        for unit in self._all():
            # nothing reaches into a range without an offset
            if end is not None and (unit.queue_offset >= end or begin >= end):
                return
            if unit.next_queue_offset > begin:
                yield unit

    def units_by_file(self) -> Iterator[list[QueueUnit]]:
        """Units as they lie in the queue's files, file by file."""
        per_file = max(1, self.files.file_size // UNIT_SIZE)
        units = self._all()
        for first in range(0, len(units), per_file):
            yield units[first : first + per_file]

    def append(self, unit: QueueUnit) -> None:
        """Write `unit` behind the last one; files are created as needed. Not flushed."""
        with self.changing:
            self._append(unit)

    def _append(self, unit: QueueUnit) -> None:
        if unit.queue_offset < self.max_offset:
            raise WriteFailedError(
                f"unit of offset {unit.queue_offset} does not follow the queue's end {self.max_offset}",
                file=self.directory,
            )
        if not self.files.file_size:
            self.files.file_size = DEFAULT_FILE_SIZE
        per_file = self.files.file_size // UNIT_SIZE
        units = self._all()
        first = self.files.files[0].start_offset if self.files.files else 0
        start = first + self._written // per_file * self.files.file_size
        file = self.files.find(start)
        if file is None:
            file = self.files.create_file(start)
            file.set_positions(self.files.file_size)
        io.write_range(file.path, self._written % per_file * UNIT_SIZE, pack_batch_unit(unit))
        self._written += 1
        units.append(unit)

    def close(self) -> None:
        """Nothing is kept open."""
