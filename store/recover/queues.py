"""Compares consume queues with what the log implies and plans the bytes that must change (no queue stays wrong)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rmqctl.store.compare.lives import Lives, Stretches, held_by, superseded
from rmqctl.store.compare.queues import SlotOrder, SlotState, has_batch_slot, unit_states
from rmqctl.store.files.layout import file_name, topic_directory
from rmqctl.store.files.mapped_file_queue import MappedFileQueue, stranger_error
from rmqctl.store.files.reading import Descriptors, end_of_nonzero
from rmqctl.store.journal.plan import ClearRange, CreateFile, MoveAway, Plan, Resize, WriteRange
from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.log.implied import UNIT, QueueRun, Units
from rmqctl.store.log.survey import LogSurvey
from rmqctl.store.queues.consumequeue import (
    BATCH_UNIT_SIZE,
    PLACEHOLDER_SIZE,
    UNIT_SIZE,
    BatchConsumeQueue,
    ConsumeQueue,
    QueueKey,
    QueueUnit,
    pack_batch_unit,
)
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt
from rmqctl.store.queues.dispatch import LMQ_PREFIX, QueueSlot
from rmqctl.store.queues.queue_table import AnyConsumeQueue, QueueTable, is_in_rocksdb_alone
from rmqctl.store.recover.ext_units import ExtUnits, QueueFiles, Spill

# Which messages a unit or an index entry may point at although the log does not hold them.

IsGone = Callable[[int], bool]


class Gone:
    """Messages before the log's first, which have expired, and those inside damage that stays.

    Knows the damage that `survey` knows at the time it is asked.
    """

    def __init__(self, log_min_offset: int, survey: LogSurvey) -> None:
        self._log_min_offset = log_min_offset
        self._survey = survey

    def __call__(self, physical_offset: int) -> bool:
        """Whether the message at this offset is gone."""
        return physical_offset < self._log_min_offset or self._survey.is_in_damage(physical_offset)

    def mask(self, physical_offsets: Int64s) -> Flags:
        """The same for many."""
        gone: Flags = physical_offsets < self._log_min_offset
        spans = self._survey.tolerated
        if spans:
            # spans are in the order of the log and do not overlap; the first one is for offsets before all
            begins = np.array([-1 << 63, *(span.physical_offset for span in spans)], np.int64)
            ends = np.array([-1 << 63, *(span.end for span in spans)], np.int64)
            span = np.searchsorted(begins, physical_offsets, side="right") - 1
            gone |= physical_offsets < ends[span]
        return gone


def gone_mask(is_gone: IsGone, physical_offsets: Int64s) -> Flags:
    """`is_gone` of many offsets."""
    if isinstance(is_gone, Gone):
        return is_gone.mask(physical_offsets)
    return np.array([is_gone(offset) for offset in physical_offsets.tolist()], np.bool_)


_FLUSH_UNITS = 8192
_NO_UNITS = bytes(_FLUSH_UNITS * UNIT_SIZE)
_PLACEHOLDER = np.array((0, PLACEHOLDER_SIZE, 0), UNIT)


class ConsumeQueueMend(SlotOrder):
    """One queue of 20-byte units. Units come in the order of the log; `finish` plans the tail.

    `is_gone(physical_offset)` says that a message cannot be compared with: expired, or inside damage that stays.
    `spill`: see QueueFiles. `ext_units`: gives units that are put their ext units; None where they get none.
    """

    def __init__(
        self,
        queue: ConsumeQueue,
        ext_directory: Path,
        file_size: int,
        descriptors: Descriptors,
        is_gone: IsGone,
        spill: Spill | None = None,
        ext_units: ExtUnits | None = None,
    ) -> None:
        super().__init__(file_size // UNIT_SIZE)
        self.queue = queue
        self.plan = Plan()
        self.added = 0
        self.removed = 0
        self._descriptors = descriptors
        self._is_gone = is_gone
        self._ext_directory = ext_directory
        for problem in queue.files.problems:
            if problem.kind in ("stray", "unreadable"):
                raise stranger_error(problem, "a queue")
        self._spill = spill
        self._ext_units = ext_units
        self._files = QueueFiles(queue.files, file_size, self.plan, spill)
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._buffer_start = 0
        self._ext: ConsumeQueueExt | None = None

    @property
    def changed(self) -> bool:
        """Whether anything of this queue is planned to change."""
        return bool(self.plan)

    @property
    def end(self) -> int:
        """The slot after the last one, once `finish` was called."""
        return self._next or 0

    def _begin(self, queue_offset: int) -> int:
        first = self.queue.first_slot if self.queue.files.files else queue_offset
        self._buffer_start = min(first, queue_offset - queue_offset % self._per_file)
        return self._buffer_start

    def _is_known(self, queue_offset: int) -> bool:
        return 0 <= queue_offset <= self.queue.max_offset

    def _put(self, packed: bytes) -> None:
        at = 0
        while at < len(packed):
            first = self._next or 0
            room = min(_FLUSH_UNITS - self._buffered, self._per_file - first % self._per_file)
            piece = packed[at : at + room * UNIT_SIZE]
            count = len(piece) // UNIT_SIZE
            self._buffer.append(piece)
            self._buffered += count
            self._next = first + count
            if count == room:
                self._flush()
            at += len(piece)

    def _keep(self, begin: int, end: int) -> None:
        """Keep the stored unit if its message is gone, else put a placeholder."""
        while begin < end:
            existing = self._existing(begin, end)
            kept = existing.copy()
            kept[~(_are_placeholders(existing) | self._points_at_gone(existing))] = _PLACEHOLDER
            self._put(kept.tobytes())
            begin += len(existing)

    def _existing(self, begin: int, end: int) -> Units:
        """Some of the units that stand in the slots [begin, end) now."""
        count = min(end - begin, _FLUSH_UNITS, self._per_file - begin % self._per_file)
        return np.frombuffer(self._files.read(begin * UNIT_SIZE, count * UNIT_SIZE), UNIT)

    def _end_of_gone(self) -> int:
        """The slot behind the last unit of a message that is gone, of those that only such and placeholders precede."""
        at = end = self._next or 0
        while at < self.queue.max_offset:
            existing = self._existing(at, self.queue.max_offset)
            gone = self._points_at_gone(existing)
            stays = gone | _are_placeholders(existing)
            count = len(stays) if stays.all() else int(np.argmin(stays))
            places = np.flatnonzero(gone[:count])
            if len(places):
                end = at + int(places[-1]) + 1
            if count < len(stays):
                break
            at += count
        return end

    def _points_at_gone(self, existing: Units) -> Flags:
        points = (existing["physical_offset"] >= 0) & (existing["size"] > 0) & (existing["size"] < PLACEHOLDER_SIZE)
        if points.any():
            points[points] = gone_mask(self._is_gone, existing["physical_offset"][points].astype(np.int64))
        return points

    def leave_without_ext(self, physical_offset: int) -> None:
        """Give the unit of this message no ext unit: the queue has it by multi-dispatch."""
        if self._ext_units is not None:
            self._ext_units.leave_out(physical_offset)

    def _flush(self) -> None:
        """Compare the buffered units with the file; plan one write from the first to the last that differ."""
        wanted = bytearray().join(self._buffer)
        start, self._buffer, self._buffered = self._buffer_start, [], 0
        self._buffer_start = self._next or 0
        existing = self._files.read(start * UNIT_SIZE, len(wanted))
        there, implied = np.frombuffer(existing, UNIT), np.frombuffer(wanted, UNIT)
        if existing == wanted:
            if self._ext_units is not None:
                self._ext_units.follow(there)
            return
        if existing == _NO_UNITS[: len(existing)]:
            # a new file, or the rest of one after the last unit: nothing to compare with
            if self._ext_units is not None:
                self._ext_units.give(self.queue, start, there, implied, np.ones(len(implied), bool))
            self.added += len(wanted) // UNIT_SIZE
            self._files.write(start * UNIT_SIZE, bytes(wanted))
            return
        differs = unit_states(implied, there, self._ext_code) != SlotState.MATCHED
        if self._ext_units is not None:
            self._ext_units.give(self.queue, start, there, implied, differs)
        places = np.flatnonzero(differs)
        if not len(places):
            return
        size = there["size"]
        self.removed += int(np.count_nonzero(differs & (size > 0) & (size < PLACEHOLDER_SIZE)))
        self.added += len(places)
        begin, end = int(places[0]), int(places[-1]) + 1
        data = there.copy()
        data[differs] = implied[differs]
        self._files.write((start + begin) * UNIT_SIZE, data[begin:end].tobytes())

    def _ext_code(self, offset: int) -> int | None:
        if self._ext is None:
            self._ext = ConsumeQueueExt(self._ext_directory, None, self._descriptors)
            self._ext.load()
        return self._ext.tags_code(offset)

    def finish(self) -> None:
        """Behind the last implied unit only units of messages that are gone may stay, and placeholders before them; the
        rest is cleared. A queue must not end with placeholders: 4.x would dispatch nothing any more."""
        if self._next is None:
            self._next = self._buffer_start = self.queue.first_slot
        end = self._end_of_gone()
        while self._next < end:
            self._put(self._existing(self._next, end).tobytes())
        if self._buffer:
            self._flush()
        if self._ext_units is not None:
            self._ext_units.finish(self.plan, self._descriptors, self._spill)
        self.removed += sum(unit.is_written for unit in self.queue.units(self._next))
        # files of zeros go too: each would become a phantom unit at a broker's next start
        self._files.clear_from(self._next * UNIT_SIZE, self._descriptors)


def _are_placeholders(units: Units) -> Flags:
    is_placeholder: Flags = (units["size"] == PLACEHOLDER_SIZE) & (units["physical_offset"] == 0)
    return is_placeholder


# Compares one batch consumequeue with what the log implies and plans its bytes.


class BatchConsumeQueueMend:
    """One queue of 46-byte units, which stand one behind the other in the order of the log."""

    def __init__(
        self, queue: BatchConsumeQueue, file_size: int, descriptors: Descriptors, is_gone: Callable[[int], bool]
    ) -> None:
        self.queue = queue
        self.plan = Plan()
        self.added = 0
        self.removed = 0
        self.conflicts = 0
        self.rows = Stretches()
        self._file_size = file_size
        self._descriptors = descriptors
        self._existing = list(queue.units(0))
        self._wanted = [unit for unit in self._existing if is_gone(unit.physical_offset)]

    @property
    def changed(self) -> bool:
        """Whether anything of this queue is planned to change."""
        return bool(self.plan)

    @property
    def end(self) -> int:
        """The queue offset after the last message."""
        return self._wanted[-1].next_queue_offset if self._wanted else 0

    def add(self, unit: QueueUnit) -> None:
        """The log implies `unit`."""
        if has_batch_slot(unit, self.end, self.rows):
            self._wanted.append(unit)
        else:
            self.conflicts += 1

    def finish(self) -> None:
        """Plan every file whose units differ, and that nothing is left behind the last unit."""
        existing, wanted = set(self._existing), set(self._wanted)
        self.added, self.removed = len(wanted - existing), len(existing - wanted)
        files = {file.start_offset: file for file in self.queue.files.files}
        empty = self.queue.files.empty_files()
        first = min(files, default=0)
        per_file = self._file_size // BATCH_UNIT_SIZE
        end = first
        for start in range(0, len(self._wanted), per_file):
            data = b"".join(pack_batch_unit(unit) for unit in self._wanted[start : start + per_file])
            path = self.queue.directory / file_name(end)
            file = files.pop(end, None)
            if file is None and empty.pop(end, None) is None:
                self.plan.add(CreateFile(path, self._file_size))
            elif file is None or file.size != self._file_size:
                self.plan.add(Resize(path, self._file_size))
            if file is None or file.read(0, len(data)) != data:
                self.plan.add(WriteRange(path, 0, data))
            if file is not None:
                stop = end_of_nonzero(self._descriptors, path, len(data), min(file.size, self._file_size))
                if stop > len(data):
                    self.plan.add(ClearRange(path, len(data), stop - len(data)))
            end += self._file_size
        for path in [*(file.path for file in files.values()), *empty.values()]:
            self.plan.add(MoveAway(path))


# All queues of a store against the log: each implied slot goes to the mend of its queue.

AnyMend = ConsumeQueueMend | BatchConsumeQueueMend


class QueuesMend:
    """`is_gone(physical_offset)`: the message is expired or in damage that stays, so a unit of it may stay.

    `spill`: see QueueFiles. `log_with_ext`: the log, where units get ext units (enableConsumeQueueExt); else None.
    """

    def __init__(
        self,
        queues: QueueTable,
        descriptors: Descriptors,
        is_gone: IsGone,
        spill: Spill | None = None,
        log_with_ext: MappedFileQueue | None = None,
    ) -> None:
        self._queues = queues
        self._descriptors = descriptors
        self._is_gone = is_gone
        self._spill = spill
        self._log_with_ext = log_with_ext
        self._elsewhere: dict[str, bool] = {}
        self._mends: dict[tuple[str, int], AnyMend] = {
            (queue.topic, queue.queue_id): self._mend(queue) for queue in queues.all()
        }

    def _mend(self, queue: AnyConsumeQueue) -> AnyMend:
        if isinstance(queue, BatchConsumeQueue):
            return BatchConsumeQueueMend(queue, self._queues.batch_file_size(), self._descriptors, self._is_gone)
        ext = topic_directory(self._queues.layout.consumequeue_ext, queue.topic) / str(queue.queue_id)
        size = self._queues.consumequeue_file_size()
        ext_units = None
        if self._log_with_ext is not None:
            ext_units = ExtUnits(ext, self._queues.ext_file_size(), self._descriptors, self._log_with_ext)
        return ConsumeQueueMend(queue, ext, size, self._descriptors, self._is_gone, self._spill, ext_units)

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the queue has 46-byte units already."""
        return isinstance(self._mends.get((topic, queue_id)), BatchConsumeQueueMend)

    def add(self, slot: QueueSlot) -> None:
        """The log implies this slot."""
        if self._is_elsewhere(slot.topic):
            return
        mend = self._of(slot.topic, slot.queue_id, slot.is_batch)
        if slot.is_further and isinstance(mend, ConsumeQueueMend):
            mend.leave_without_ext(slot.unit.physical_offset)
        mend.add(slot.unit)

    def add_units(self, run: QueueRun) -> None:
        """The log implies these units of a queue that is no batch queue."""
        if self._is_elsewhere(run.topic):
            return
        mend = self._of(run.topic, run.queue_id, False)
        assert isinstance(mend, ConsumeQueueMend)
        mend.add_units(run.slots, run.units)

    def _is_elsewhere(self, topic: str) -> bool:
        """Return whether the queues of a topic may be in a RocksDB alone: then no file is made for them."""
        if not topic.startswith(LMQ_PREFIX):
            return False
        if topic not in self._elsewhere:
            self._elsewhere[topic] = is_in_rocksdb_alone(self._queues.layout, topic)
        return self._elsewhere[topic]

    def _of(self, topic: str, queue_id: int, is_batch: bool) -> AnyMend:
        mend = self._mends.get((topic, queue_id))
        if mend is None:
            mend = self._mends[(topic, queue_id)] = self._mend(self._queues.absent(topic, queue_id, is_batch))
        return mend

    def finish(self, plan: Plan) -> None:
        """Add the changes of all queues to `plan`."""
        for _, mend in sorted(self._mends.items()):
            mend.finish()
            plan.operations += mend.plan.operations

    def lives(self) -> dict[QueueKey, Lives]:
        """Return what later messages have superseded, by queue: of queues whose offsets go back along the log."""
        found = {key: superseded(mend.rows, held_by(mend.queue)) for key, mend in self._mends.items() if mend.conflicts}
        return {key: lives for key, lives in found.items() if lives}

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """The end of each queue, by topic and queue id, once `finish` was called."""
        return {key: mend.end for key, mend in self._mends.items()}

    @property
    def changed(self) -> int:
        """Queues that change."""
        return sum(mend.changed for mend in self._mends.values())

    @property
    def added(self) -> int:
        """Units that are put or put right."""
        return sum(mend.added for mend in self._mends.values())

    @property
    def removed(self) -> int:
        """Units that go or are put right."""
        return sum(mend.removed for mend in self._mends.values())

    @property
    def conflicts(self) -> int:
        """Messages whose slot another message of the log has taken."""
        return sum(mend.conflicts for mend in self._mends.values())
