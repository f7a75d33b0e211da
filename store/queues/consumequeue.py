"""One consumequeue of 20-byte units: reading it, whole or broken, by offset and by time, and appending to it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from rmqctl.formats.errors import RemovedError, WriteFailedError
from rmqctl.formats.layouts import BATCH_CONSUMEQUEUE_UNIT, CONSUMEQUEUE_UNIT
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors, end_of_nonzero, named

# One entry of a consume queue, and how its tags code is to be read (docs/formats.md).

# ConsumeQueue#fillPreBlank: what stands in slots before the first message of a queue that began later
PLACEHOLDER_SIZE = 0x7FFFFFFF
# ConsumeQueueExt: a tags code at or below this is the address of an ext unit
MAXIMUM_EXT_ADDRESS = -0x80000001
_EXT_ADDRESS_BASE = -(1 << 63)

QueueKey = tuple[str, int]
"""Topic and queue id."""


class QueueUnit(NamedTuple):
    """A slot of a queue. `batch_size` is 1 but for inner batches, whose `queue_offset` is that of the first message.

    `store_timestamp` (ms) and `compacted_offset` stand in batch units only; 0 and -1 elsewhere.
    """

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int = 0
    batch_size: int = 1
    compacted_offset: int = -1

    @property
    def is_written(self) -> bool:
        """Whether the slot points at something: neither zeros nor a placeholder."""
        return self.physical_offset >= 0 and 0 < self.size < PLACEHOLDER_SIZE

    @property
    def is_placeholder(self) -> bool:
        """Whether the slot only keeps the place of a message that was never in this queue's files."""
        return self.size == PLACEHOLDER_SIZE and self.physical_offset == 0

    @property
    def is_nonsense(self) -> bool:
        """Return whether the slot has a value that no program writes: no message, no placeholder, and not the zeros of
        an empty slot."""
        is_empty = self.physical_offset == 0 and self.size == 0
        return not (self.is_written or self.is_placeholder or is_empty)

    @property
    def end(self) -> int:
        """Physical offset behind the message."""
        return self.physical_offset + self.size

    @property
    def next_queue_offset(self) -> int:
        """Queue offset behind this unit."""
        return self.queue_offset + self.batch_size


def ext_offset(tags_code: int) -> int | None:
    """Byte offset in the ext queue that `tags_code` addresses, None if it is a plain code."""
    return tags_code - _EXT_ADDRESS_BASE if tags_code <= MAXIMUM_EXT_ADDRESS else None


def ext_address(offset: int) -> int:
    """The tags code that addresses byte `offset` of the ext queue."""
    return offset + _EXT_ADDRESS_BASE


UNIT_SIZE = CONSUMEQUEUE_UNIT.size
DEFAULT_FILE_SIZE = 300_000 * UNIT_SIZE
_PLACEHOLDER = CONSUMEQUEUE_UNIT.struct.pack(0, PLACEHOLDER_SIZE, 0)
_CHUNK_UNITS = 8192


class ConsumeQueue:
    """Units of one topic and queue. Queue offset n is at byte n * 20 of the queue's files.

    Loading trusts nothing: the end is the last byte that is not zero, and a zero unit before it is a hole.
    """

    kind = "SimpleCQ"

    def __init__(
        self, topic: str, queue_id: int, directory: Path, file_size: int | None, descriptors: Descriptors
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.files = MappedFileQueue([directory], file_size, descriptors)
        self._descriptors = descriptors
        self._end: int | None = None
        self._min_offset: tuple[int, int] | None = None
        self._appending: tuple[Path, int] | None = None

    def load(self) -> None:
        """List the queue's files (see MappedFileQueue.load)."""
        self.files.load()

    def look_again(self) -> None:
        """Take in what another process changed."""
        self.files.look_again()
        self._end = self._min_offset = None

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last unit; that of the first slot for a queue without units."""
        if self._end is None:
            self._end = self._find_end()
        return self._end

    def _find_end(self) -> int:
        for file in reversed(self.files.files):
            with file.hold() as held:
                if not held:  # the topic was deleted meanwhile
                    continue
                end = end_of_nonzero(self._descriptors, file.path, 0, file.size)
            if end:
                return file.start_offset // UNIT_SIZE + -(-end // UNIT_SIZE)
        return self.first_slot

    @property
    def first_slot(self) -> int:
        """Queue offset of the first slot in the first file; 0 without files."""
        return self.files.files[0].start_offset // UNIT_SIZE if self.files.files else 0

    def min_offset(self, commitlog_min_offset: int) -> int:
        """Queue offset of the first unit whose message is still in the commitlog; else the end.

        Units are in the order of the log, so a binary search finds it (ConsumeQueue#correctMinOffset, without its
        restriction to the first file). A hole or a missing file inside the queue hides nothing before it. Invalid units
        right before it are not taken for expired ones: reading them reports the damage.
        """
        if self._min_offset is not None and self._min_offset[0] == commitlog_min_offset:
            return self._min_offset[1]
        low, high = self.first_slot, self.max_offset
        first = self.unit(low) if low < high else None
        if first is not None and first.is_written and first.physical_offset >= commitlog_min_offset:
            high = low  # as in every queue of which nothing has expired
        while low < high:
            middle = (low + high) // 2
            unit = self._written_up_to(low, middle)
            if unit is None or unit.physical_offset < commitlog_min_offset:
                low = middle + 1
            else:
                high = unit.queue_offset
        while low > self.first_slot and (before := self.unit(low - 1)) is not None and before.is_nonsense:
            low -= 1
        self._min_offset = (commitlog_min_offset, low)
        return low

    def _written_up_to(self, low: int, slot: int) -> QueueUnit | None:
        """Return the last written unit in [low, slot], None without one."""
        unit = self.unit(slot)
        if unit is None or not unit.is_written:
            unit = None
            for earlier in self.units(low, slot):
                if earlier.is_written:
                    unit = earlier
        return unit

    def unit(self, queue_offset: int) -> QueueUnit | None:
        """The unit at `queue_offset`: zeros and placeholders too; None outside the queue's files."""
        data = self.files.read(queue_offset * UNIT_SIZE, UNIT_SIZE)
        if len(data) < UNIT_SIZE:
            return None
        return QueueUnit(queue_offset, *CONSUMEQUEUE_UNIT.unpack_from(data, 0))

    def units(self, begin: int, end: int | None = None) -> Iterator[QueueUnit]:
        """Units of slots [begin, end), zeros and placeholders too; slots of missing files are left out."""
        for slot, data in self.unit_bytes(begin, end):
            for number, fields in enumerate(CONSUMEQUEUE_UNIT.struct.iter_unpack(data)):
                yield QueueUnit(slot + number, *fields)

    def unit_bytes(
        self, begin: int, end: int | None = None, chunk_units: int = _CHUNK_UNITS
    ) -> Iterator[tuple[int, bytes]]:
        """The same as runs of whole units as stored, each with the slot of its first."""
        end = self.max_offset if end is None else min(end, self.max_offset)
        for file in self.files.files:
            file_begin = file.start_offset // UNIT_SIZE
            slot = max(begin, file_begin)
            stop = min(end, file_begin + file.size // UNIT_SIZE)
            while slot < stop:
                count = min(chunk_units, stop - slot)
                try:
                    data = file.read((slot - file_begin) * UNIT_SIZE, count * UNIT_SIZE)
                except RemovedError:  # its slots are left out, as those of any missing file
                    break
                whole = len(data) - len(data) % UNIT_SIZE
                if not whole:
                    break
                yield slot, data[:whole]
                slot += whole // UNIT_SIZE

    def unit_run(self, begin: int, count: int) -> bytes:
        """Up to `count` units from slot `begin` on as stored: all of one file, fewer where that or the queue ends or
        what follows cannot be had."""
        count = min(count, self.max_offset - begin)
        if count <= 0:
            return b""
        try:
            data = self.files.read(begin * UNIT_SIZE, count * UNIT_SIZE)
        except RemovedError:
            return b""
        return data if len(data) == count * UNIT_SIZE else data[: len(data) - len(data) % UNIT_SIZE]

    def append(self, unit: QueueUnit) -> None:
        """Write `unit` at the slot of its queue offset, as `append_run` does."""
        packed = CONSUMEQUEUE_UNIT.struct.pack(unit.physical_offset, unit.size, unit.tags_code)
        self.append_run(unit.queue_offset, packed)

    def append_run(self, queue_offset: int, packed: bytes | memoryview) -> None:
        """Write units at consecutive slots from `queue_offset` on, the end of the queue or behind it. `packed`: their
        bytes.

        Slots between are filled with placeholders, as the broker does for a queue that begins later; missing files
        are created. Not flushed.
        """
        end = self.max_offset
        if queue_offset < end:
            raise WriteFailedError(
                f"unit of slot {queue_offset} does not follow the queue's end {end}", file=self.directory
            )
        if not self.files.file_size:
            self.files.file_size = DEFAULT_FILE_SIZE
        per_file = self.files.file_size // UNIT_SIZE
        if queue_offset > end:
            self._min_offset = None  # it may have been the queue's end, where now there is no unit
        first = end if self.files.files else queue_offset - queue_offset % per_file
        while first < queue_offset:
            count = min(queue_offset, (first // per_file + 1) * per_file) - first
            self._write(first, _PLACEHOLDER * count)
            first += count
        written = 0
        while written < len(packed):
            count = min(len(packed), written + (per_file - first % per_file) * UNIT_SIZE) - written
            self._write(first, packed[written : written + count])
            written += count
            first += count // UNIT_SIZE
            # what is written counts, should the rest fail
            self._end = first

    def _write(self, slot: int, data: bytes | memoryview) -> None:
        offset = slot * UNIT_SIZE
        start = offset - offset % self.files.file_size
        file = self.files.find(offset)
        if file is None:
            file = self.files.create_file(start)
            file.set_positions(self.files.file_size)
        if self._appending is None or self._appending[0] != file.path:
            self.close()
            self._appending = (file.path, io.open_for_writing(file.path))
        io.write_at(self._appending[1], file.path, offset - start, data)

    def release(self) -> None:
        """Close the descriptor of the file being appended to; who calls this flushes the file by name later."""
        if self._appending is not None:
            os.close(self._appending[1])
            self._appending = None

    def close(self) -> None:
        """Flush and close the file being appended to; no later call would flush it."""
        if self._appending is not None:
            path, descriptor = self._appending
            io.flush_descriptor(descriptor, path)
            os.close(descriptor)
            self._appending = None


# One batch consumequeue of 46-byte units: not placed by queue offset, so searched by it (docs/formats.md).

BATCH_UNIT_SIZE = BATCH_CONSUMEQUEUE_UNIT.size
DEFAULT_BATCH_FILE_SIZE = 300_000 * BATCH_UNIT_SIZE

# the batch size of a unit of 46 bytes is a signed 16-bit integer
LARGEST_BATCH = 0x7FFF
_BATCH_CHUNK_UNITS = 4096


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
            for position in range(0, file.size, _BATCH_CHUNK_UNITS * BATCH_UNIT_SIZE):
                try:
                    data = file.read(position, _BATCH_CHUNK_UNITS * BATCH_UNIT_SIZE)
                except RemovedError:
                    break
                whole = len(data) - len(data) % BATCH_UNIT_SIZE
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
        """Base offset of the first unit whose batch is still in the commitlog; else the end."""
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
        per_file = max(1, self.files.file_size // BATCH_UNIT_SIZE)
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
            self.files.file_size = DEFAULT_BATCH_FILE_SIZE
        per_file = self.files.file_size // BATCH_UNIT_SIZE
        units = self._all()
        first = self.files.files[0].start_offset if self.files.files else 0
        start = first + self._written // per_file * self.files.file_size
        file = self.files.find(start)
        if file is None:
            file = self.files.create_file(start)
            file.set_positions(self.files.file_size)
        io.write_range(file.path, self._written % per_file * BATCH_UNIT_SIZE, pack_batch_unit(unit))
        self._written += 1
        units.append(unit)

    def close(self) -> None:
        """Nothing is kept open."""


def sparse_units(path: Path) -> Iterator[QueueUnit]:
    """Yield the units of a file of a compacted queue up to the first that ends a scan (SparseConsumeQueue#recover).
    UnreadableError."""
    with named(path):
        data = path.read_bytes()
    whole = len(data) - len(data) % BATCH_UNIT_SIZE
    for (
        physical_offset,
        size,
        tags_code,
        store_timestamp,
        base,
        batch_size,
        compacted_offset,
        _,
    ) in BATCH_CONSUMEQUEUE_UNIT.struct.iter_unpack(data[:whole]):
        if physical_offset < 0 or size <= 0 or base < 0 or batch_size <= 0:
            return
        yield QueueUnit(base, physical_offset, size, tags_code, store_timestamp, batch_size, compacted_offset)


# The queue offset for a point in time, by binary search over the store times of a queue's messages.
#
# Rules of 5.3.3 (ConsumeQueue#getOffsetInQueueByTime). Store times never go back along a queue unless the broker's
# clock did.

Boundary = Literal["lower", "upper"]
StoreTime = Callable[[QueueUnit], int | None]
# a store time that the next message's falls short of by more than this, ms, is taken for a flipped bit
_LEAP = 86_400_000


def offset_by_time(
    queue: ConsumeQueue | BatchConsumeQueue, timestamp: int, boundary: Boundary, min_offset: int, store_time: StoreTime
) -> int:
    """Queue offset for `timestamp` (ms) in [min_offset, max_offset].

    `lower`: the first message stored at or after it, else the end of the queue. `upper`: the last message stored at or
    before it, else the first one of the queue. In a queue of batches the answer is the base of a batch, found by
    RocketMQ's own rule: a time at or after the last batch of a file gives that batch, for both boundaries.

    `store_time` answers None for a unit whose message cannot be read; such units are passed over, where RocketMQ gives
    up and answers 0. So are times below 0, which no broker writes, and a time more than a day later than that of the
    next message: a flipped bit must not lead past good messages.
    """
    if isinstance(queue, BatchConsumeQueue):
        return _in_batches(queue, timestamp, boundary, min_offset)
    return _in_slots(queue, timestamp, boundary, min_offset, store_time)


def _in_slots(queue: ConsumeQueue, timestamp: int, boundary: Boundary, min_offset: int, store_time: StoreTime) -> int:
    low, high = min_offset, queue.max_offset
    # slots before `low` go to the left of the boundary, slots from `high` on to its right
    while low < high:
        middle = (low + high) // 2
        known, time = _next_known(queue, middle, high, store_time)
        if time is None:
            high = middle
            continue
        if time > timestamp + _LEAP and known + 1 < high:
            following, later = _next_known(queue, known + 1, high, store_time)
            if later is not None and later < time - _LEAP:
                known, time = following, later
        if time < timestamp or (boundary == "upper" and time == timestamp):
            low = known + 1
        else:
            high = middle
    # what stands just before `low` is a message: `low` only ever moves behind one
    return low if boundary == "lower" else max(low - 1, min_offset)


def _next_known(queue: ConsumeQueue, begin: int, end: int, store_time: StoreTime) -> tuple[int, int | None]:
    """Return the first slot in [begin, end) whose message has a readable time; (end, None) without one."""
    unit = queue.unit(begin)
    time = store_time(unit) if unit is not None else None
    if time is not None and time >= 0:
        return begin, time
    for later in queue.units(begin + 1, end):
        time = store_time(later)
        if time is not None and time >= 0:
            return later.queue_offset, time
    return end, None


def _in_batches(queue: BatchConsumeQueue, timestamp: int, boundary: Boundary, min_offset: int) -> int:
    """RocketMQ looks into one file only: the newest that begins at or before the time, else the first.

    (BatchConsumeQueue#getOffsetInQueueByTime) The units carry their store times, so no message is read for it.
    """
    files = [timed for units in queue.units_by_file() if (timed := _timed(units, min_offset))]
    if not files:
        return max(min_offset, 0)
    chosen = next((timed for timed in reversed(files) if timed[0][0] <= timestamp), files[0])
    if timestamp >= chosen[-1][0]:
        return chosen[-1][1]
    if boundary == "lower":
        return next(offset for time, offset in chosen if time >= timestamp)
    return max((offset for time, offset in chosen if time <= timestamp), default=chosen[0][1])


def _timed(units: list[QueueUnit], min_offset: int) -> list[tuple[int, int]]:
    """(store time, base offset) of batches that are still in the commitlog."""
    found = [
        (unit.store_timestamp, unit.queue_offset)
        for unit in units
        if unit.queue_offset >= min_offset and unit.store_timestamp >= 0
    ]
    return [
        one for number, one in enumerate(found) if number + 1 == len(found) or found[number + 1][0] >= one[0] - _LEAP
    ]
