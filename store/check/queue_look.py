"""The queues against the commitlog: what the units point at that no message of the log accounts for."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from rmqctl.store.check.cross import Level, LogSeen
from rmqctl.store.compare.lives import Lives, Slots, Stretch, Stretches, Superseded, held_by, slots_of, superseded
from rmqctl.store.compare.queues import QueueTally, SlotState
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import data_extents
from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.log.implied import UNIT, Units
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, UNIT_SIZE, BatchConsumeQueue, ConsumeQueue, QueueUnit
from rmqctl.store.queues.dispatch import may_lack_further_slots, queue_slots
from rmqctl.store.queues.queue_table import AnyConsumeQueue, beginning
from rmqctl.store.store_files import StoreFiles

# A queue's present life among what the log implies for it: the tally without what later messages superseded.


class LiveTally(NamedTuple):
    """A queue without its superseded messages.

    `deleted`: the messages of deleted topics, `twice`: those whose queue offset a later message has.
    """

    tally: QueueTally
    deleted: Stretches
    twice: Stretches


def live_tally(log: MappedFileQueue, queue: AnyConsumeQueue | None, tally: QueueTally, *, is_whole: bool) -> LiveTally:
    """Return what the present life of a queue is made of. `is_whole`: all of the log was compared."""
    rows = list(tally.of(SlotState.IMPLIED))
    found = superseded(rows, held_by(queue)) if is_whole else _before_its_first_unit(log, queue, rows)
    deleted, twice = Stretches(), Stretches()
    if not found:
        return LiveTally(tally, deleted, twice)
    live = QueueTally(tally.is_batch)
    for state, stretches in tally.states.items():
        if state is SlotState.IMPLAUSIBLE:
            live.states[state] = stretches
            continue
        for stretch in stretches:
            kept, gone = _divided(stretch, found)
            for part in kept:
                live.states.setdefault(state, Stretches()).add(part)
            if state is SlotState.IMPLIED:
                for part, one in gone:
                    (deleted if one.is_deleted else twice).add(part)
    return LiveTally(live, deleted, twice)


def _before_its_first_unit(log: MappedFileQueue, queue: AnyConsumeQueue | None, rows: list[Stretch]) -> Lives:
    """Where only a part of the log was compared: the messages that stand before the one of the queue's first slot."""
    first = beginning(queue, partial(message_if_any, log)) if queue is not None and rows else None
    if first is None:
        return Lives(())
    return Lives(
        Superseded(*row[:4], True)
        for row in rows
        if row.last_offset < first.physical_offset and row.slot_begin >= first.queue_offset
    )


def _divided(stretch: Stretch, found: Lives) -> tuple[list[Stretch], list[tuple[Stretch, Superseded]]]:
    """The parts of a stretch that live, and those that are superseded."""
    kept, gone = [stretch], []
    for one in found.between(stretch.first_offset, stretch.last_offset):
        left = []
        for part in kept:
            begin, end = max(part.slot_begin, one.slot_begin), min(part.slot_end, one.slot_end)
            is_inside = one.first_offset <= stretch.first_offset and stretch.last_offset <= one.last_offset
            if begin >= end or not is_inside:
                left.append(part)
                continue
            # where the first message of a part stands is not known
            first = part.first_offset if begin == stretch.slot_begin else -1
            gone.append((_part(part, begin, end)._replace(first_offset=first), one))
            left += [
                _part(part, low, high) for low, high in ((part.slot_begin, begin), (end, part.slot_end)) if low < high
            ]
        kept = left
    return kept, gone


def _part(stretch: Stretch, begin: int, end: int) -> Stretch:
    """Some slots of a stretch. Of its messages only the first and the last one are known by their place."""
    if (begin, end) == (stretch.slot_begin, stretch.slot_end):
        return stretch
    slots = end - begin
    units = max(1, stretch.units * slots // max(1, stretch.slot_end - stretch.slot_begin))
    return stretch._replace(
        slot_begin=begin, slot_end=end, units=units, bytes=stretch.bytes * units // max(1, stretch.units)
    )


# the slots that the comparison in the other direction has said all about
_TOLD = (
    SlotState.MATCHED,
    SlotState.MISSING,
    SlotState.PLACEHOLDER,
    SlotState.SIZE,
    SlotState.TAGS,
    SlotState.DELIVERY,
    SlotState.EXT,
    SlotState.FIELDS,
)
# units whose messages are read in one queue and in one store: each costs a read somewhere in the log
_READ_OF_A_QUEUE = 2_000
_READ_AT_MOST = 50_000
_EVERYTHING = 1 << 62
# slots that are read whether there is a hole among them or not
_WORTH_A_LOOK = 1 << 20


class UnitVerdict(enum.Enum):
    """What is wrong with a unit that no message accounts for."""

    HOLE = "zeros"
    GARBAGE = "values that no unit has"
    ORDER = "an earlier place of the log than the unit before it"
    STALE = "an expired message, after units of messages that are not expired"
    PAST = "a place past the end of the log"
    DAMAGED = "a damaged part of the log"
    NO_MESSAGE = "a place where no message begins"
    NOT_QUEUED = "a message that takes no slot"
    OTHER_QUEUE = "a message of another queue"
    OTHER_SLOT = "a message of another slot"
    TAKEN = "an earlier message with the same queue offset"
    DELETED = "a message from before the topic was deleted and created again"


class Sample(NamedTuple):
    """A unit, and what was found where it points."""

    unit: QueueUnit
    found: str | None


@dataclass(slots=True)
class Suspicion:
    """Units of one queue with one verdict. `first`: the one of the lowest slot; `bytes`: sizes that they give."""

    first: Sample
    units: int = 0
    bytes: int = 0


@dataclass(slots=True)
class QueueLook:
    """What was found in one queue. `unread`: units that point at some message which was not read any more."""

    suspicions: dict[UnitVerdict, Suspicion] = field(default_factory=dict)
    unread: int = 0

    def note(
        self, verdict: UnitVerdict, unit: QueueUnit, found: str | None = None, units: int = 1, size: int = 0
    ) -> None:
        """Some units have this verdict; `unit` is the first of them."""
        known = self.suspicions.get(verdict)
        if known is None:
            known = self.suspicions[verdict] = Suspicion(Sample(unit, found))
        known.units += units
        known.bytes += size


def damaged_slots(log: MappedFileQueue, seen: LogSeen) -> Slots:
    """Physical offsets inside damage, and those of missing files, also where the walk did not pass them."""
    spans = [(span.physical_offset, span.end) for span in seen.damaged]
    for before, after in itertools.pairwise(log.files):
        if before.end_offset < after.start_offset:
            spans.append((before.end_offset, after.start_offset))
    return slots_of(spans)


def told_slots(tally: QueueTally) -> Slots:
    """Return slots that the log has judged."""
    parts = [tally.of(state).slots() for state in _TOLD if len(tally.of(state))]
    if not parts:
        return Slots(np.empty(0, np.int64), np.empty(0, np.int64))
    return Slots.of(np.concatenate([part.begins for part in parts]), np.concatenate([part.ends for part in parts]))


class UnitLook:
    """Looks through the queues of one store; reads no more messages than it may."""

    def __init__(self, files: StoreFiles, seen: LogSeen) -> None:
        self._files = files
        self._seen = seen
        self._levels = files.config.delay_levels()
        self._left = _READ_AT_MOST
        self._left_of_queue = _READ_OF_A_QUEUE
        ranges = seen.ranges if seen.level is not Level.QUICK else [(seen.log_begin, seen.log_end)]
        self._ranges = slots_of(ranges)
        self._damaged = damaged_slots(files.log, seen)

    def look(self, queue: AnyConsumeQueue, live: LiveTally) -> QueueLook:
        """Everything in the queue's files that the comparison with the log has not accounted for."""
        result, tally = QueueLook(), live.tally
        if _is_accounted_for(queue, tally) and not live.twice:
            return result
        self._left_of_queue = _READ_OF_A_QUEUE
        told = told_slots(tally)
        # from here on no unit may point at what has expired
        matched = tally.of(SlotState.MATCHED).table()[:, 0]
        live_from = int(matched.min()) if len(matched) else _EVERYTHING
        displaced = tally.of(SlotState.ELSEWHERE).slots()
        for slots, units in _unaccounted(queue, told):
            rest = self._note_deleted(result, slots, units, live.deleted)
            self._judge(result, queue, slots[rest], units[rest], live_from, displaced)
        for stretch in live.twice:
            message = message_if_any(self._files.log, stretch.first_offset)
            if message is not None and message.topic != queue.topic and may_lack_further_slots(message.topic):
                continue
            result.note(
                UnitVerdict.TAKEN, QueueUnit(stretch.slot_begin, stretch.first_offset, 0, 0), None, stretch.units
            )
        for stretch in tally.of(SlotState.ELSEWHERE):
            for begin, end in told.common(stretch.slot_begin, stretch.slot_end):
                offset = stretch.first_offset if begin == stretch.slot_begin else -1
                result.note(UnitVerdict.TAKEN, QueueUnit(begin, offset, 0, 0), None, end - begin)
        return result

    def _note_deleted(self, result: QueueLook, slots: Int64s, units: Units, deleted: Stretches) -> Flags:
        """Note the units that lead to messages of a deleted topic; return which are left."""
        left: Flags = np.ones(len(slots), np.bool_)
        offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        for stretch in deleted:
            found = (offsets >= stretch.first_offset) & (offsets <= stretch.last_offset) & (sizes > 0)
            places = np.flatnonzero(found & (slots >= stretch.slot_begin) & (slots < stretch.slot_end) & left)
            if len(places):
                left[places] = False
                unit = QueueUnit(int(slots[places[0]]), *units[int(places[0])].item())
                result.note(UnitVerdict.DELETED, unit, None, len(places), int(sizes[places].sum()))
        return left

    def look_at_end(self, queue: AnyConsumeQueue) -> QueueLook:
        """The last unit of the queue, all others taken on trust."""
        result = QueueLook()
        last = queue.unit(queue.max_offset - 1)
        if last is not None and last.is_written:
            units = np.array([(last.physical_offset, last.size, last.tags_code)], UNIT)
            nothing = Slots(np.empty(0, np.int64), np.empty(0, np.int64))
            # one read a queue is no more than what was asked for: it does not count
            left, self._left, self._left_of_queue = self._left, 1, 1
            self._judge(result, queue, np.array([last.queue_offset], np.int64), units, _EVERYTHING, nothing)
            self._left = left
        return result

    def _judge(
        self, result: QueueLook, queue: AnyConsumeQueue, slots: Int64s, units: Units, live_from: int, displaced: Slots
    ) -> None:
        """Units of ascending slots."""
        seen = self._seen
        offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        # what messages displaced from their slot find there matters, wherever it points
        is_displaced = displaced.contain(slots)
        rest: Flags = ~((offsets == 0) & (sizes == PLACEHOLDER_SIZE))

        def take(verdict: UnitVerdict, chosen: Flags) -> None:
            nonlocal rest
            chosen = chosen & rest
            rest = rest & ~chosen
            places = np.flatnonzero(chosen)
            if len(places):
                first = int(places[0])
                unit = QueueUnit(int(slots[first]), *units[first].item())
                size = int(np.maximum(sizes[places], 0).sum()) if verdict is not UnitVerdict.GARBAGE else 0
                result.note(verdict, unit, None, len(places), size)

        empty = (offsets == 0) & (sizes == 0)
        if seen.is_whole:
            take(UnitVerdict.HOLE, empty)
        rest &= ~empty
        take(UnitVerdict.GARBAGE, (offsets < 0) | (sizes <= 0) | (sizes >= PLACEHOLDER_SIZE))
        expired = offsets < seen.log_begin
        take(UnitVerdict.STALE, expired & ((slots >= live_from) | is_displaced))
        backward = np.zeros(len(slots), np.bool_)
        backward[1:] = (offsets[1:] < offsets[:-1]) & expired[:-1] & rest[:-1]
        take(UnitVerdict.ORDER, expired & backward)
        rest &= ~expired
        is_asked = is_displaced | self._ranges.contain(offsets)
        take(UnitVerdict.DAMAGED, self._damaged.contain(offsets) & is_asked)
        if seen.is_live:
            rest &= offsets < seen.log_end  # what came since the end was looked up
        take(UnitVerdict.PAST, offsets >= seen.log_end)
        rest &= is_asked
        for number in np.flatnonzero(rest).tolist():
            self._read(result, queue, QueueUnit(int(slots[number]), *units[number].item()), bool(is_displaced[number]))

    def _read(self, result: QueueLook, queue: AnyConsumeQueue, unit: QueueUnit, is_displaced: bool) -> None:
        """Judge a unit by the message it points at."""
        if self._left <= 0 or self._left_of_queue <= 0:
            result.unread += 1
            return
        self._left -= 1
        self._left_of_queue -= 1
        verdict, found = self._verdict(queue, unit)
        if verdict is UnitVerdict.TAKEN and not is_displaced:
            return  # nothing is wrong with it: the unit came while the store was looked at
        if verdict is UnitVerdict.NO_MESSAGE and unit.physical_offset < self._files.log.min_offset:
            return  # its file was removed meanwhile
        result.note(verdict, unit, found, 1, unit.size)

    def _verdict(self, queue: AnyConsumeQueue, unit: QueueUnit) -> tuple[UnitVerdict, str | None]:
        message = message_if_any(self._files.log, unit.physical_offset)
        if message is None:
            return UnitVerdict.NO_MESSAGE, None
        is_batch = isinstance(queue, BatchConsumeQueue)
        slots = list(queue_slots(message, self._levels, is_batch))
        if not slots:
            return UnitVerdict.NOT_QUEUED, f"{message.topic} queue {message.queue_id}"
        own = [slot.unit for slot in slots if (slot.topic, slot.queue_id) == (queue.topic, queue.queue_id)]
        if not own:
            return (
                UnitVerdict.OTHER_QUEUE,
                f"{slots[0].topic} queue {slots[0].queue_id} slot {slots[0].unit.queue_offset}",
            )
        if any(one.queue_offset == unit.queue_offset for one in own):
            return UnitVerdict.TAKEN, None
        return UnitVerdict.OTHER_SLOT, f"slot {own[0].queue_offset}"


def _is_accounted_for(queue: AnyConsumeQueue, tally: QueueTally) -> bool:
    """Whether one stretch of messages of the log has all units of the queue, as of nearly all of many queues."""
    matched = tally.of(SlotState.MATCHED)
    if isinstance(queue, BatchConsumeQueue) or len(matched) != 1 or len(tally.of(SlotState.ELSEWHERE)):
        return False
    [only] = matched
    return only.slot_begin <= queue.first_slot and queue.max_offset <= only.slot_end


def _unaccounted(queue: AnyConsumeQueue, told: Slots) -> Iterator[tuple[Int64s, Units]]:
    """Return units whose slots were not judged, with their slots."""
    if isinstance(queue, BatchConsumeQueue):
        left = [unit for unit in queue.units(0) if not told.common(unit.queue_offset, unit.queue_offset + 1)]
        slots = np.array([unit.queue_offset for unit in left], np.int64)
        yield slots, np.array([(unit.physical_offset, unit.size, unit.tags_code) for unit in left], UNIT)
        return
    for begin, end in told.gaps(queue.first_slot, queue.max_offset):
        for first, stop in _with_data(queue, begin, end):
            for slot, data in queue.unit_bytes(first, stop):
                units = np.frombuffer(data, UNIT)
                yield np.arange(slot, slot + len(units), dtype=np.int64), units


def _with_data(queue: ConsumeQueue, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of the slots [begin, end) worth reading: of a large hole in a sparse file one unit is enough."""
    if end - begin < _WORTH_A_LOOK:
        yield begin, end
        return
    for file in queue.files.files:
        first_byte = max(begin * UNIT_SIZE, file.start_offset) - file.start_offset
        stop_byte = min(end * UNIT_SIZE, file.end_offset) - file.start_offset
        if first_byte >= stop_byte:
            continue
        reached = (file.start_offset + first_byte) // UNIT_SIZE
        for low, high in data_extents(file.path, first_byte, stop_byte):
            first = max((file.start_offset + low) // UNIT_SIZE, reached)
            if first > reached:
                yield reached, reached + 1
            reached = (file.start_offset + high - 1) // UNIT_SIZE + 1
            yield first, reached
