"""What runs of messages imply, as arrays: the vector form of `rmqctl.store.queues.dispatch`, for work on whole logs.

Messages that columns do not describe completely (`NeedsPlain`) stay messages and take the plain way.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY
from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.formats.properties import CRC32
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import Bytes, ColumnRecord, Flags, Int32s, Int64s, MessageColumns, TopicIds, batch_of
from rmqctl.store.log.parallel import walk_parallel
from rmqctl.store.log.walk import Blank, Damage, Empty, Progress, Unproved, refused_span, walk, walked_message
from rmqctl.store.native.tables import Columns, NeedsPlain
from rmqctl.store.native.units import LARGEST_DIFFERENCE, count_units, pack_entries, place_units
from rmqctl.store.queues.consumequeue import ConsumeQueue, QueueUnit
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, FurtherSlots, QueueSlot, queue_slots

# `refused` on columns: batches are split at messages at which a broker ends its log.


def may_be_refused(batch: MessageColumns) -> Iterator[tuple[int, StoredMessage]]:
    """Yield row and message of all that could have a number that does not parse: few, if any."""
    suspects = (batch.needs_plain & int(NeedsPlain.INNER_BATCH)) != 0
    if batch.topics.find(SCHEDULE_TOPIC) >= 0:
        suspects |= batch.is_of_topic(SCHEDULE_TOPIC) & (batch.delay_level == 0)
    for row in np.flatnonzero(suspects).tolist():
        yield row, batch.message(row)


def split_at_refused(records: Iterable[ColumnRecord]) -> Iterator[ColumnRecord]:
    """Yield the records, with refused messages as damage between the batches of the others."""
    for record in records:
        if not isinstance(record, MessageColumns):
            yield record
            continue
        spans = {row: span for row, message in may_be_refused(record) if (span := refused_span(message, record.log))}
        begin = 0
        for row, span in spans.items():
            yield from _between(record, begin, row)
            yield span
            begin = row + 1
        yield from _between(record, begin, record.rows)


def _between(batch: MessageColumns, begin: int, end: int) -> Iterator[MessageColumns]:
    """Yield rows [begin, end) of a batch, unless there are none."""
    if end - begin == batch.rows:
        yield batch
    elif end > begin:
        yield batch_of([batch.message(row) for row in range(begin, end)], batch.log, batch.topics, batch.asked)


# The units that the messages of a run imply, brought together by queue.

Units = NDArray[np.void]
UNIT = CONSUMEQUEUE_UNIT.dtype()
"""A unit of 20 bytes as in a queue file."""
# numpy brings fields into the machine's byte order when it moves them: it must not see any
_OPAQUE = np.dtype((np.void, UNIT.itemsize))
_NO_NUMBERS: Int64s = np.empty(0, np.int64)
_NO_UNITS: Units = np.empty(0, UNIT)
# beyond so many pairs of a topic and a queue id they are sorted, not counted
_MOST_CODES = 1 << 16


def read_units(queue: ConsumeQueue, begin: int, count: int) -> Units:
    """Return `count` units of a queue from `begin` on; zeros if the file is missing or short."""
    pieces: list[bytes] = []
    position, end = begin * UNIT.itemsize, (begin + count) * UNIT.itemsize
    for file in queue.files.files:
        if file.end_offset <= position:
            continue
        if position >= end or file.start_offset >= end:
            break
        if file.start_offset > position:
            pieces.append(bytes(file.start_offset - position))
            position = file.start_offset
        length = min(end, file.end_offset) - position
        pieces.append(file.read(position - file.start_offset, length).ljust(length, b"\0"))
        position += length
    pieces.append(bytes(end - position))
    return np.frombuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces), UNIT)


def joined_units(parts: Sequence[Units]) -> Units:
    """One behind the other, at least one part."""
    return np.concatenate([part.view(_OPAQUE) for part in parts]).view(UNIT)


class UnitColumns(NamedTuple):
    """What the units of some messages are made of, a row each. `taken`: the rows that have one."""

    topic_ids: Int32s
    queue_ids: Int32s
    slots: Int64s
    physical_offsets: Int64s
    sizes: Int32s
    tags_codes: Int64s
    taken: Flags


class QueueUnits(NamedTuple):
    """Units of many queues, those of each up to its one of `ends`, in the order of the messages. `rows`: the places of
    these, ascending in each queue, where they matter."""

    topic_ids: Int64s
    queue_ids: Int64s
    ends: Int64s
    slots: Int64s
    units: Units
    rows: Int64s | None


def units_by_queue(parts: Sequence[UnitColumns], with_rows: bool) -> QueueUnits:
    """The units of all parts by topic and queue, in ascending order of their numbers; queue ids are not negative."""
    if not parts:
        return QueueUnits(_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, _NO_UNITS, None)
    highest = max(int(part.queue_ids[part.taken].max(initial=0)) for part in parts)
    topics = max(int(part.topic_ids.max(initial=0)) for part in parts) + 1
    if with_rows or topics * (highest + 1) > _MOST_CODES:
        return sorted_by_queue(parts, with_rows)
    return _counted_by_queue(parts, topics, highest + 1)


def sorted_by_queue(parts: Sequence[UnitColumns], with_rows: bool) -> QueueUnits:
    """The same where there may be more queues than can be counted: numpy sorts."""
    taken = np.concatenate([part.taken for part in parts])
    topics, queue_ids, slots = (np.concatenate([part[at] for part in parts])[taken] for at in range(3))
    fields = np.empty(len(taken), UNIT)
    for name, at in (("physical_offset", 3), ("size", 4), ("tags_code", 5)):
        fields[name] = np.concatenate([part[at] for part in parts])
    width = int(queue_ids.max(initial=0)) + 1
    codes = topics.astype(np.int64) * width + queue_ids
    order = _stable_order(codes)
    codes = codes[order]
    ends = np.flatnonzero(np.append(codes[1:] != codes[:-1], [True][: len(codes)])) + 1
    of_queues = codes[ends - 1]
    units = fields.view(_OPAQUE)[taken][order].view(UNIT)
    rows = np.flatnonzero(taken)[order] if with_rows else None
    return QueueUnits(of_queues // width, of_queues % width, ends, slots[order], units, rows)


def _stable_order(codes: Int64s) -> Int64s:
    """Return the order of codes that are not negative; equal ones keep theirs. Numpy sorts 16-bit numbers at once."""
    return np.argsort(codes.astype(np.uint16) if int(codes.max(initial=0)) <= 0xFFFF else codes, kind="stable")


def _counted_by_queue(parts: Sequence[UnitColumns], topics: int, queues: int) -> QueueUnits:
    counts = np.zeros(topics * queues, np.int64)
    for part in parts:
        count_units(part.topic_ids, part.queue_ids, part.taken.view(np.uint8).data, queues, counts)
    ends = np.cumsum(counts)
    places = ends - counts
    slots = np.empty(int(ends[-1]), np.int64)
    units = np.empty(int(ends[-1]), UNIT)
    for part in parts:
        place_units(*part[:-1], part.taken.view(np.uint8).data, queues, places, slots, units.view(np.uint8).data)
    codes = np.flatnonzero(counts)
    return QueueUnits(codes // queues, codes % queues, ends[codes], slots, units, None)


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
class QueueRuns:
    """Units of many queues as columns: those of each key up to its one of `ends`, at least one."""

    keys: list[tuple[str, int]]
    ends: Int64s
    slots: Int64s
    units: Units
    rows: Int64s | None

    @staticmethod
    def of(runs: Sequence[QueueRun]) -> QueueRuns:
        """Return runs of different queues as columns."""
        if not runs:
            return QueueRuns([], _NO_NUMBERS, _NO_NUMBERS, _NO_UNITS, None)
        keys = [(run.topic, run.queue_id) for run in runs]
        slots, units = np.concatenate([run.slots for run in runs]), joined_units([run.units for run in runs])
        rows = [run.rows for run in runs if run.rows is not None]
        ends = np.cumsum([len(run.slots) for run in runs])
        return QueueRuns(keys, ends, slots, units, np.concatenate(rows) if rows else None)

    @property
    def counts(self) -> Int64s:
        """How many units each queue has."""
        return np.diff(self.ends, prepend=0)

    def highest_slots(self) -> list[int]:
        """Return the highest slot of each queue."""
        return np.maximum.reduceat(self.slots, self.ends - self.counts).tolist() if self.keys else []

    def chosen(self, mask: Flags) -> QueueRuns:
        """Return some of the units; queues without any are left out."""
        ends = np.cumsum(mask, dtype=np.int64)[self.ends - 1]
        left = np.diff(ends, prepend=0) > 0
        keys = list(itertools.compress(self.keys, left.tolist()))
        rows = None if self.rows is None else self.rows[mask]
        return QueueRuns(keys, ends[left], self.slots[mask], self.units.view(_OPAQUE)[mask].view(UNIT), rows)

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[QueueRun]:
        begin = 0
        for (topic, queue_id), end in zip(self.keys, self.ends.tolist(), strict=True):
            rows = None if self.rows is None else self.rows[begin:end]
            yield QueueRun(topic, queue_id, self.slots[begin:end], self.units[begin:end], rows)
            begin = end


def columns_of(queues: list[QueueRun] | QueueRuns) -> QueueRuns:
    """Return the units of queues as columns."""
    return queues if isinstance(queues, QueueRuns) else QueueRuns.of(queues)


_Queue = TypeVar("_Queue")


class GatheredUnits(Generic[_Queue]):
    """Units of many queues in the order of the log, to be brought together by queue. `numbers`: of all queues that ever
    had some."""

    def __init__(self) -> None:
        self.rows = 0
        self.numbers: dict[_Queue, int] = {}
        self._parts: list[tuple[list[int], QueueRuns]] = []

    def add(self, queues: Iterable[_Queue], runs: QueueRuns) -> None:
        """Add units of these queues, which stand for the keys of `runs`."""
        numbers = self.numbers
        self._parts.append(([numbers.setdefault(queue, len(numbers)) for queue in queues], runs))
        self.rows += len(runs.slots)

    def has(self, queue: _Queue) -> bool:
        """Return whether there are units of a queue."""
        number = self.numbers.get(queue)
        return number is not None and any(number in numbers for numbers, _ in self._parts)

    def take(self) -> tuple[Int64s, Int64s, Units]:
        """Return the number of the queue, the slot and the unit of all, by queue; then there are none."""
        parts, self._parts, self.rows = self._parts, [], 0
        if not parts:
            return _NO_NUMBERS, _NO_NUMBERS, _NO_UNITS
        numbers = np.concatenate([np.repeat(np.array(numbers, np.int64), runs.counts) for numbers, runs in parts])
        order = _stable_order(numbers)
        slots = np.concatenate([runs.slots for _, runs in parts])[order]
        units = np.concatenate([runs.units.view(_OPAQUE) for _, runs in parts])[order].view(UNIT)
        return numbers[order], slots, units


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
    queues: list[QueueRun] | QueueRuns = field(default_factory=list)
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


class _KeyColumns(NamedTuple):
    """The keys of one batch, each with the row of its message; the other columns are those of the messages."""

    hash: Int32s
    is_tag: Flags
    row: Int32s
    physical_offsets: Int64s
    store_timestamps: Int64s


class _Collected:
    """The batches of one run."""

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._run: Run | None = None
        self._units: list[UnitColumns] = []
        self._keys: list[_KeyColumns] = []

    def add(self, batch: MessageColumns) -> None:
        run = self._run
        if run is None:
            run = self._run = Run(batch.begin, batch.end, 0, 0, 0)
        safe = self._digest.safe_topics()[batch.topic_id]
        run.unplaceable += batch.rows - int(np.count_nonzero(safe))
        if self._digest.with_queues:
            self._add_units(run, batch, safe)
        if self._digest.with_keys:
            # the batch itself may have its bytes of the log with it
            self._keys.append(
                _KeyColumns(
                    batch.key_hash, batch.key_is_tag, batch.key_row, batch.physical_offset, batch.store_timestamp
                )
            )
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
                batch.topic_id, batch.queue_id, batch.queue_offset, batch.physical_offset, batch.size, tags_codes, taken
            )
        )
        for row in np.flatnonzero(plain).tolist():
            message = walked_message(batch.log, int(batch.physical_offset[row]), int(batch.size[row]))
            run.special.append((run.messages + row, message))

    def finish(self) -> Run:
        """The run of the batches so far."""
        assert self._run is not None
        run, names = self._run, self._digest.topics.names
        found = units_by_queue(self._units, bool(run.special))
        topics = map(names.__getitem__, found.topic_ids.tolist())
        run.queues = QueueRuns([*zip(topics, found.queue_ids.tolist(), strict=True)], *found[2:])
        if self._keys:
            run.key_hashes = np.concatenate([keys.hash for keys in self._keys])
            run.key_is_tag = np.concatenate([keys.is_tag for keys in self._keys])
            run.key_offsets, run.key_timestamps = np.empty((2, len(run.key_hashes)), np.int64)
            begin = 0
            for keys in self._keys:
                end = begin + len(keys.row)
                np.take(keys.physical_offsets, keys.row, out=run.key_offsets[begin:end], mode="clip")
                np.take(keys.store_timestamps, keys.row, out=run.key_timestamps[begin:end], mode="clip")
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


def route(
    run: Run,
    log: MappedFileQueue,
    delay_levels: tuple[int, ...],
    target: SlotTarget,
    *,
    with_light: bool = True,
    further: FurtherSlots | None = None,
) -> None:
    """Give `target` all slots of a run, those of each queue in the order of the log; without `with_light` none in
    further queues. `further` knows the places in these, where offsets of messages may be ahead of them."""
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
            _route_message(item, delay_levels, target, with_light=with_light, further=further)
        elif target.is_batch_topic(item.topic, item.queue_id):
            _route_unit(log, item.unit(number), delay_levels, target)
        else:
            target.add(QueueSlot(item.topic, item.queue_id, item.unit(number), False))


def _route_unit(log: MappedFileQueue, unit: QueueUnit, delay_levels: tuple[int, ...], target: SlotTarget) -> None:
    _route_message(walked_message(log, unit.physical_offset, unit.size), delay_levels, target)


def _route_message(
    message: StoredMessage,
    delay_levels: tuple[int, ...],
    target: SlotTarget,
    *,
    with_light: bool = True,
    further: FurtherSlots | None = None,
) -> None:
    for slot in queue_slots(message, delay_levels, target.is_batch_topic(message.topic, message.queue_id)):
        if with_light or not slot.is_further:
            target.add(slot if further is None else further.placed(slot))


def consecutive(slots: Int64s) -> list[tuple[int, int]]:
    """[begin, end) of the longest stretches of `slots` that count up by one."""
    edges = [0, *(np.flatnonzero(slots[1:] - slots[:-1] != 1) + 1).tolist(), len(slots)]
    return list(itertools.pairwise(edges)) if len(slots) else []


# The entries of an index file, many at once; native.units links and packs them.

ENTRY = INDEX_ENTRY.dtype()
_SECOND = 1000


def time_differences(timestamps: Int64s, first: int) -> Int64s:
    """What entries of these times hold in a file whose first entry has the time `first`, all in ms: the whole seconds
    between, as far as the field can say. A damaged time may be anything. (IndexFile#putKey)"""
    if first <= 0:
        return np.zeros(len(timestamps), np.int64)
    later = np.maximum(timestamps, first) - first
    differences: Int64s = np.minimum(later // _SECOND, LARGEST_DIFFERENCE)
    return differences


def packed_entries(hashes: Int32s, offsets: Int64s, timestamps: Int64s, first: int, previous: Int32s) -> Bytes:
    """The bytes of entries. `first`: the time of the file's first one."""
    entries: Bytes = np.empty(len(hashes) * INDEX_ENTRY.size, np.uint8)
    pack_entries(hashes, offsets, timestamps, first, previous, entries.data)
    return entries


# The walk by runs instead of messages, on columns and both cores.

PIECE = 32 * 1024 * 1024
"""Bytes of the log of which the implied is held in memory at once, for each thread and twice more."""


def walk_runs(
    log: MappedFileQueue, digest: Digest, begin: int = 0, *, crc_from: int = 0, progress: Progress | None = None
) -> Iterator[RunRecord]:
    """What `walk` yields from physical offset `begin` on, messages as runs."""
    results = walk_parallel(
        log,
        digest.runs,
        begin,
        crc_from=crc_from,
        columns=digest.columns,
        topics=digest.topics,
        progress=progress,
        piece=PIECE,
    )
    for records in results:
        yield from records


_NO_CRC = sys.maxsize


def judged_runs(
    log: MappedFileQueue, digest: Digest, config: StoreConfig, begin: int = 0, *, progress: Progress | None = None
) -> Iterator[RunRecord]:
    """What `walk_runs` yields, CRCs judged as a broker's start does: not at all without checkCRCOnRecover, and with
    forceVerifyPropCRC each message needs that of the whole frame (CommitLog#checkMessageAndReturnSize)."""
    checks = config.check_crc_on_recover
    for record in walk_runs(log, digest, begin, crc_from=begin if checks else _NO_CRC, progress=progress):
        if isinstance(record, Run) and checks and config.force_verify_prop_crc:
            yield from _with_frame_crcs(log, digest, record)
        else:
            yield record


def _with_frame_crcs(log: MappedFileQueue, digest: Digest, run: Run) -> Iterator[RunRecord]:
    """Yield a run, or in its place the stretches that have frame CRCs and the damage between them."""
    without = []
    for record in walk(log, run.physical_offset, crc_from=_NO_CRC):
        if record.physical_offset >= run.end:
            break
        if isinstance(record, StoredMessage) and CRC32 not in record.properties():
            without.append(Unproved(record.physical_offset, record.end, Reason.PROPERTY_CRC, "has no frame CRC", ""))
    if not without:
        yield run
        return
    begin = run.physical_offset
    for damage in [*without, None]:
        end = run.end if damage is None else damage.physical_offset
        if begin < end:
            records = walk_columns(log, begin, end, crc_from=_NO_CRC, columns=digest.columns, topics=digest.topics)
            yield from digest.runs(records)
        if damage is not None:
            file = log.find(damage.physical_offset)
            yield damage if file is None else damage._replace(file=str(file.path))
            begin = damage.end
