"""Cost of a start: good messages past the end of the log, and messages that no queue leads to."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.message import Reason
from rmqctl.store.answers.config_offsets import KnownNames
from rmqctl.store.compare.queues import stretches_of
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import ColumnRecord, Int64s, MessageColumns
from rmqctl.store.log.implied import GatheredUnits, QueueRun, QueueRuns, Run, Units, columns_of, route
from rmqctl.store.log.parallel import walk_parallel
from rmqctl.store.log.walk import Damage, message_if_any
from rmqctl.store.native.tables import Columns
from rmqctl.store.predict.broker_queues import SimulatedDispatch, SimulatedQueue, SimulatedQueues
from rmqctl.store.predict.walked import WalkedLog
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.dispatch import FurtherSlots, QueueSlot
from rmqctl.store.queues.queue_table import beginning, is_in_rocksdb_alone

_OF_FILES = (Reason.GAP, Reason.SHORT_FILE)
_ROWS_AT_ONCE = 1 << 19
"""The number of units compared with their queues together: a log with damage or many queues has few in each run."""


def count_behind(log: MappedFileQueue, end_offset: int) -> tuple[int, int]:
    """Good messages from `end_offset` on, and their bytes."""
    messages = size = 0
    for counted in walk_parallel(log, _count, end_offset, columns=Columns.NONE):
        messages += counted[0]
        size += counted[1]
    return messages, size


def _count(records: Iterator[ColumnRecord]) -> tuple[int, int]:
    messages = size = 0
    for record in records:
        if isinstance(record, MessageColumns):
            messages += record.rows
            size += record.end - record.begin
    return messages, size


class Unqueued(NamedTuple):
    """`messages`: queue slots of good messages at which no unit points. `damaged`: physical offsets without a good
    message. `queues`: a row for each queue that lacks some, with the first and last of its queue offsets, and the
    physical offset of the first."""

    messages: int
    damaged: list[int]
    queues: list[dict[str, Any]]


def count_unqueued(
    log: MappedFileQueue,
    queues: SimulatedQueues,
    dispatch: SimulatedDispatch,
    walked: WalkedLog,
    levels: tuple[int, ...],
    names: KnownNames,
) -> Unqueued:
    """Return what of `log`, which ends where the broker's does, no unit of the queues leads to.

    Messages of a removed topic, and those from before their topic was deleted and created again, need no unit.
    """
    counter = _Unqueued(queues, dispatch, names)
    further = FurtherSlots(names.files.queues.find)
    damaged: list[int] = []
    for part in walked.all(log):
        for record in part.records:
            if isinstance(record, Run) and not counter.take(record):
                route(record, log, levels, counter, further=further)
            if isinstance(record, Damage) and record.reason not in _OF_FILES:
                damaged.append(record.physical_offset)
    counter.finish()
    rows = [row for _, row in sorted(counter.rows.items())]
    inside = [offset for offset in damaged if offset < log.max_offset]
    return Unqueued(sum(row["messages"] for row in rows), inside, rows)


class _Unqueued:
    """Compares the slots of messages with the queues."""

    def __init__(self, queues: SimulatedQueues, dispatch: SimulatedDispatch, names: KnownNames) -> None:
        self._queues = queues
        self._dispatch = dispatch
        self._files = names.files
        self._is_earlier = names.earlier_life()
        self._beginning = functools.cache(self._find_beginning)
        self._is_in_rocksdb = functools.cache(functools.partial(is_in_rocksdb_alone, self._files.layout))
        self._waiting = GatheredUnits[SimulatedQueue]()
        self.rows: dict[tuple[str, int], dict[str, Any]] = {}

    def take(self, run: Run) -> bool:
        """Take a run without special messages, all of whose queues have files of 20-byte units; False for others."""
        runs = columns_of(run.queues)
        queues = [self._queues.by_key.get((*key, False)) for key in runs.keys]
        if run.special or not all(queues) or any(self.is_batch_topic(*key) for key in runs.keys):
            return False
        self._gather([queue for queue in queues if queue is not None], runs)
        return True

    def _gather(self, queues: list[SimulatedQueue], runs: QueueRuns) -> None:
        self._waiting.add(queues, runs)
        if self._waiting.rows >= _ROWS_AT_ONCE:
            self.finish()

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """As the dispatch has it."""
        return self._dispatch.is_batch_topic(topic, queue_id)

    def add(self, slot: QueueSlot) -> None:
        """One slot. A batch queue is not placed by offsets: any unit will do."""
        queue = self._queues.by_key.get((slot.topic, slot.queue_id, slot.is_batch))
        unit = slot.unit
        slots, offsets = np.array([unit.queue_offset], np.int64), np.array([unit.physical_offset], np.int64)
        if queue is None:
            is_missing = not self._is_earlier(slot.topic, unit.physical_offset)
        elif queue.is_batch:
            is_missing = unit.physical_offset not in queue.all_offsets()
        else:
            self._count_wrong(queue, slots, offsets)
            return
        if is_missing:
            self._note(slot.topic, slot.queue_id, slots, offsets)

    def add_units(self, run: QueueRun) -> None:
        """Slots of one queue, those before its minimum included: they are not served."""
        queue = self._queues.by_key.get((run.topic, run.queue_id, False))
        if queue is None:
            offsets = _offsets(run.units)
            # a run is in the order of the log: where its last message belongs to an earlier life, all do
            if not self._is_earlier(run.topic, int(offsets[-1])):
                self._note(run.topic, run.queue_id, run.slots, offsets)
            return
        self._gather([queue], QueueRuns.of([run]))

    def finish(self) -> None:
        """Compare what waits."""
        queues = list(self._waiting.numbers)
        numbers, slots, units = self._waiting.take()
        for number, begin, stretch in stretches_of(numbers, slots, units):
            queue, part = queues[number], units[begin : begin + stretch.units]
            if not queue.holds(stretch.slot_begin, part):
                self._count_wrong(queue, slots[begin : begin + stretch.units], _offsets(part))

    def _count_wrong(self, queue: SimulatedQueue, slots: Int64s, offsets: Int64s) -> None:
        wrong = queue.offsets_at(slots) != offsets
        first = self._beginning(queue.topic, queue.queue_id) if wrong.any() else None
        if first is not None:
            wrong &= (offsets >= first.physical_offset) | (slots < first.queue_offset)
        if wrong.any():
            self._note(queue.topic, queue.queue_id, slots[wrong], offsets[wrong])

    def _note(self, topic: str, queue_id: int, slots: Int64s, offsets: Int64s) -> None:
        """Messages of a queue, in the order of the log, that no unit leads to; not of light queues in a RocksDB alone,
        which the broker reads beside its files unless a storeType says that it has none."""
        if not self._files.config.store_type and self._is_in_rocksdb(topic):
            return
        first, last = int(slots.min()), int(slots.max())
        row = self.rows.setdefault(
            (topic, queue_id),
            {
                "topic": topic,
                "queue_id": queue_id,
                "messages": 0,
                "first_offset": first,
                "last_offset": last,
                "physical_offset": int(offsets[0]),
            },
        )
        row["messages"] += len(slots)
        row["physical_offset"] = min(row["physical_offset"], int(offsets[0]))
        row["first_offset"], row["last_offset"] = min(row["first_offset"], first), max(row["last_offset"], last)

    def _find_beginning(self, topic: str, queue_id: int) -> QueueUnit | None:
        """Return the first unit of the queue as it is before the start."""
        queue = self._files.queues.find(topic, queue_id)
        return None if queue is None else beginning(queue, functools.partial(message_if_any, self._files.log))


def _offsets(units: Units) -> Int64s:
    return units["physical_offset"].astype(np.int64)
