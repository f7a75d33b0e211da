"""What runs of messages imply, as arrays: the vector form of `rmqctl.store.queues.dispatch`, for work on whole logs.

Messages that columns do not describe completely (`NeedsPlain`) stay messages and take the plain way.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from rmqctl.formats.message import StoredMessage
from rmqctl.store.columns.batch import ColumnRecord, Columns, Flags, Int32s, Int64s, MessageColumns
from rmqctl.store.columns.topics import TopicIds
from rmqctl.store.commitlog.one_message import walked_message
from rmqctl.store.commitlog.walk import Blank, Damage, Empty
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.dispatch import QueueSlot, queue_slots
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.survey.refused_rows import split_at_refused
from rmqctl.store.survey.run_units import UnitColumns, Units, units_by_queue


class QueueRun(NamedTuple):
    """Units of one queue in the order of the log. `rows`: the places of their messages in the run, ascending; None in a
    run without special messages."""

    topic: str
    queue_id: int
    slots: Int64s
    units: Units
    rows: Int64s | None

    def unit(self, number: int) -> QueueUnit:
        """One of the units."""
        return QueueUnit(int(self.slots[number]), *self.units[number].item())


@dataclass(slots=True)
class Run:
    """Messages [physical_offset, end) that follow one another without a gap, and what they imply.

    `special`: messages that take the plain way, with their places in the run; `queues` has the units of all others,
    `key_*` the index entries of all, those of tags where the digest was made `tags`. `unplaceable`: messages whose
    topic cannot be a directory. Timestamps in ms.
    """

    physical_offset: int
    end: int
    messages: int
    last_message_offset: int
    last_store_timestamp: int
    unplaceable: int = 0
    queues: list[QueueRun] = field(default_factory=list)
    special: list[tuple[int, StoredMessage]] = field(default_factory=list)
    key_hashes: Int32s = field(default_factory=lambda: np.empty(0, np.int32))
    key_offsets: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    key_timestamps: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    key_is_tag: Flags = field(default_factory=lambda: np.empty(0, np.bool_))

    def keys(self, *, with_tags: bool) -> tuple[Int32s, Int64s, Int64s]:
        """Return hashes, physical offsets and times of the index entries, those of tags only if asked for."""
        if with_tags or not self.key_is_tag.any():
            return self.key_hashes, self.key_offsets, self.key_timestamps
        chosen = ~self.key_is_tag
        return self.key_hashes[chosen], self.key_offsets[chosen], self.key_timestamps[chosen]


RunRecord = Run | Blank | Empty | Damage


class Digest:
    """Makes runs of batches; may serve several threads. `delay_levels` in ms. `columns`: what it needs of batches.

    `tags`: with the index entries of tags. `refuses`: messages at which a broker ends its log are damage."""

    def __init__(
        self,
        delay_levels: tuple[int, ...],
        *,
        queues: bool = True,
        keys: bool = True,
        tags: bool = False,
        refuses: bool = True,
    ) -> None:
        self.delay_levels = delay_levels
        self.with_queues = queues
        self.with_keys = keys
        self.with_tags = keys and tags
        self._refuses = refuses
        self.topics = TopicIds()
        self._safe: Flags = np.empty(0, np.bool_)
        self._judging = threading.Lock()

    @property
    def columns(self) -> Columns:
        """The columns that `runs` needs."""
        wanted = Columns.HEAD | Columns.TOPIC
        wanted |= Columns.TAGS if self.with_queues or self._refuses else Columns.NONE
        wanted |= Columns.KEYS if self.with_keys else Columns.NONE
        return wanted | (Columns.TAG_KEYS if self.with_tags else Columns.NONE)

    def runs(self, records: Iterable[ColumnRecord]) -> list[RunRecord]:
        """The records with all messages between two others as one run."""
        made: list[RunRecord] = []
        collected: _Collected | None = None
        for record in split_at_refused(records) if self._refuses else records:
            if isinstance(record, MessageColumns):
                collected = collected or _Collected(self)
                collected.add(record)
                continue
            if collected is not None:
                made.append(collected.finish())
                collected = None
            made.append(record)
        if collected is not None:
            made.append(collected.finish())
        return made

    def safe_topics(self) -> Flags:
        """Whether the topic of each id can be a directory name."""
        with self._judging:
            names = self.topics.names
            known, there = len(self._safe), len(names)
            if known < there:
                judged = np.array([is_safe_topic(name) for name in names[known:there]], np.bool_)
                self._safe = np.concatenate([self._safe, judged])
            return self._safe


class _Collected:
    """The batches of one run."""

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._run: Run | None = None
        self._units: list[UnitColumns] = []
        self._keys: list[MessageColumns] = []

    def add(self, batch: MessageColumns) -> None:
        run = self._run
        if run is None:
            run = self._run = Run(batch.begin, batch.end, 0, 0, 0)
        safe = self._digest.safe_topics()[batch.topic_id]
        run.unplaceable += batch.rows - int(np.count_nonzero(safe))
        if self._digest.with_queues:
            self._add_units(run, batch, safe)
        if self._digest.with_keys:
            self._keys.append(batch)
        run.messages += batch.rows
        run.end = batch.end
        run.last_message_offset = int(batch.physical_offset[-1])
        run.last_store_timestamp = int(batch.store_timestamp[-1])

    def _add_units(self, run: Run, batch: MessageColumns, safe: Flags) -> None:
        plain = batch.needs_plain != 0
        taken = batch.has_queue_slot & safe & (batch.queue_id >= 0) & ~plain
        tags_codes = batch.unit_tags_code(self._digest.delay_levels)
        self._units.append(
            UnitColumns(
                batch.topic_id,
                batch.queue_id,
                batch.queue_offset,
                batch.physical_offset,
                batch.size,
                tags_codes,
                taken,
            )
        )
        for row in np.flatnonzero(plain).tolist():
            message = walked_message(batch.log, int(batch.physical_offset[row]), int(batch.size[row]))
            run.special.append((run.messages + row, message))

    def finish(self) -> Run:
        """The run of the batches so far."""
        assert self._run is not None
        run, names = self._run, self._digest.topics.names
        run.queues = [
            QueueRun(names[queue.topic_id], *queue[1:]) for queue in units_by_queue(self._units, bool(run.special))
        ]
        if self._keys:
            run.key_hashes = np.concatenate([batch.key_hash for batch in self._keys])
            run.key_is_tag = np.concatenate([batch.key_is_tag for batch in self._keys])
            run.key_offsets, run.key_timestamps = np.empty((2, len(run.key_hashes)), np.int64)
            begin = 0
            for batch in self._keys:
                rows = batch.key_row
                end = begin + len(rows)
                np.take(batch.physical_offset, rows, out=run.key_offsets[begin:end], mode="clip")
                np.take(batch.store_timestamp, rows, out=run.key_timestamps[begin:end], mode="clip")
                begin = end
        return run


class SlotTarget(Protocol):
    """Who takes the slots of a run."""

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the queue has 46-byte units already."""

    def add(self, slot: QueueSlot) -> Any:
        """The log implies this slot."""

    def add_units(self, run: QueueRun) -> Any:
        """The log implies these units of a queue with 20-byte units."""


def route(run: Run, log: MappedFileQueue, delay_levels: tuple[int, ...], target: SlotTarget) -> None:
    """Give `target` all slots of a run, those of each queue in the order of the log."""
    touched: set[tuple[str, int]] = set()
    for _, message in run.special:
        touched.add((message.topic, message.queue_id))
        touched |= {(slot.topic, slot.queue_id) for slot in queue_slots(message, delay_levels)}
    mixed: list[tuple[int, StoredMessage | QueueRun, int]] = [(row, message, 0) for row, message in run.special]
    for queue in run.queues:
        if (queue.topic, queue.queue_id) in touched:
            assert queue.rows is not None
            mixed += [(row, queue, number) for number, row in enumerate(queue.rows.tolist())]
        elif target.is_batch_topic(queue.topic, queue.queue_id):
            for number in range(len(queue.slots)):
                _route_unit(log, queue.unit(number), delay_levels, target)
        else:
            target.add_units(queue)
    mixed.sort(key=lambda item: item[0])
    for _, item, number in mixed:
        if isinstance(item, StoredMessage):
            _route_message(item, delay_levels, target)
        elif target.is_batch_topic(item.topic, item.queue_id):
            _route_unit(log, item.unit(number), delay_levels, target)
        else:
            target.add(QueueSlot(item.topic, item.queue_id, item.unit(number), False))


def _route_unit(log: MappedFileQueue, unit: QueueUnit, delay_levels: tuple[int, ...], target: SlotTarget) -> None:
    _route_message(walked_message(log, unit.physical_offset, unit.size), delay_levels, target)


def _route_message(message: StoredMessage, delay_levels: tuple[int, ...], target: SlotTarget) -> None:
    for slot in queue_slots(message, delay_levels, target.is_batch_topic(message.topic, message.queue_id)):
        target.add(slot)


def consecutive(slots: Int64s) -> list[tuple[int, int]]:
    """[begin, end) of the longest stretches of `slots` that count up by one."""
    edges = [0, *(np.flatnonzero(slots[1:] - slots[:-1] != 1) + 1).tolist(), len(slots)]
    return list(itertools.pairwise(edges)) if len(slots) else []
