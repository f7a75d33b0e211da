"""Stretches of slots along the log, and lives of a queue: which messages of the log a queue still has, and which belong
to a topic that was deleted since.

A topic that is deleted and created again starts at queue offset 0, while the log keeps the old messages. So queue
offsets do not only rise along the log. The newest life of a queue has its slots.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.log.implied import QueueRun, SlotTarget, read_units
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, BatchConsumeQueue, ConsumeQueue, QueueKey, QueueUnit
from rmqctl.store.queues.dispatch import QueueSlot
from rmqctl.store.queues.queue_table import AnyConsumeQueue

_WIDTH = 7


class Stretch(NamedTuple):
    """Units whose slots count up by one along the log.

    Slots [slot_begin, slot_end); `first_offset` and `last_offset`: physical offsets of the messages of the first and
    the last one; `units` and `bytes`: how many messages these are and their sizes. `life`: how often queue offsets went
    back in the queue before; stretches of two lives never join.
    """

    slot_begin: int
    slot_end: int
    first_offset: int
    last_offset: int
    units: int = 0
    bytes: int = 0
    life: int = 0


class Stretches:
    """Stretches in the order of the log. The same however the log was cut: neighbours that fit together are one."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = array("q")

    def __len__(self) -> int:
        return len(self._rows) // _WIDTH

    def __iter__(self) -> Iterator[Stretch]:
        rows = self._rows
        for at in range(0, len(rows), _WIDTH):
            yield Stretch(*rows[at : at + _WIDTH])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stretches) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, stretch: Stretch) -> None:
        """The next stretch along the log."""
        rows = self._rows
        if rows and rows[-6] == stretch.slot_begin and rows[-1] == stretch.life:
            rows[-6] = stretch.slot_end
            rows[-4] = stretch.last_offset
            rows[-3] += stretch.units
            rows[-2] += stretch.bytes
        else:
            rows.extend(stretch)

    def add_units(self, slots: Int64s, offsets: Int64s, sizes: Int64s, life: int) -> None:
        """The next units along the log, one by one: their slots, physical offsets and sizes. At least one, all of one
        life."""
        edges = np.flatnonzero(slots[1:] - slots[:-1] != 1) + 1
        begins, ends = np.append(0, edges), np.append(edges, len(slots))
        table = np.empty((len(begins), _WIDTH), np.int64)
        table[:, 0], table[:, 1] = slots[begins], slots[ends - 1] + 1
        table[:, 2], table[:, 3] = offsets[begins], offsets[ends - 1]
        table[:, 4], table[:, 5] = ends - begins, np.add.reduceat(sizes, begins)
        table[:, 6] = life
        self.add(Stretch(*table[0].tolist()))
        self._rows.frombytes(table[1:].tobytes())

    def merge(self, later: Stretches, lives: int = 0) -> None:
        """Add those of the part of the log that follows, before which queue offsets went back `lives` times."""
        if len(later):
            table = later.table().copy()
            table[:, 6] += lives
            self.add(Stretch(*table[0].tolist()))
            self._rows.frombytes(table[1:].tobytes())

    @property
    def last(self) -> Stretch | None:
        """The last one, None without any."""
        return Stretch(*self._rows[-_WIDTH:]) if self._rows else None

    @property
    def last_life(self) -> tuple[int, int] | None:
        """Physical offsets of the first and the last message of the last life, None without any."""
        last = self.last
        first = next((one.first_offset for one in self if last is not None and one.life == last.life), None)
        return None if first is None or last is None else (first, last.last_offset)

    @property
    def units(self) -> int:
        """Messages in all stretches."""
        return sum(self._rows[4::_WIDTH])

    @property
    def bytes(self) -> int:
        """Their sizes."""
        return sum(self._rows[5::_WIDTH])

    def slots(self) -> Slots:
        """The slots as a set."""
        table = self.table()
        return Slots.of(table[:, 0].copy(), table[:, 1].copy())

    def table(self) -> Int64s:
        """All stretches as rows with the fields of `Stretch`; valid as long as nothing is added."""
        return np.frombuffer(self._rows, np.int64).reshape(-1, _WIDTH)


class Slots(NamedTuple):
    """A set of numbers: ascending intervals [begin, end) that do not touch."""

    begins: Int64s
    ends: Int64s

    @staticmethod
    def of(begins: Int64s, ends: Int64s) -> Slots:
        """The union of intervals in any order."""
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order], ends[order]
        if not len(begins):
            return Slots(begins, ends)
        reach = np.maximum.accumulate(ends)
        opens = np.ones(len(begins), np.bool_)
        opens[1:] = begins[1:] > reach[:-1]
        closes = np.ones(len(begins), np.bool_)
        closes[:-1] = opens[1:]
        return Slots(begins[opens], reach[closes])

    def contain(self, numbers: Int64s) -> Flags:
        """Which of the numbers are in the set."""
        if not len(self.begins):
            return np.zeros(len(numbers), np.bool_)
        at = np.searchsorted(self.begins, numbers, side="right") - 1
        inside: Flags = (at >= 0) & (numbers < self.ends[at])
        return inside

    def common(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The parts of [begin, end) that are in the set."""
        if begin >= end:
            return []
        first = int(np.searchsorted(self.ends, begin, side="right"))
        last = int(np.searchsorted(self.begins, end, side="left"))
        lows, highs = self.begins[first:last].tolist(), self.ends[first:last].tolist()
        return [(max(low, begin), min(high, end)) for low, high in zip(lows, highs, strict=True)]

    def gaps(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The parts of [begin, end) that are not in the set."""
        found: list[tuple[int, int]] = []
        for low, high in self.common(begin, end):
            if low > begin:
                found.append((begin, low))
            begin = high
        if begin < end:
            found.append((begin, end))
        return found


def slots_of(ranges: list[tuple[int, int]]) -> Slots:
    """The union of intervals [begin, end)."""
    table = np.array(ranges, np.int64).reshape(-1, 2)
    return Slots.of(table[:, 0], table[:, 1])


def stretch_of(unit: QueueUnit) -> Stretch:
    """A message alone."""
    offset = unit.physical_offset
    return Stretch(unit.queue_offset, unit.next_queue_offset, offset, offset, 1, unit.size)


# units of a queue that are read to see which life it holds, at each end of the slots in question
_READ_AT_MOST = 1 << 16

HeldUnits = Callable[[int, int], Int64s]
"""Physical offsets in the units of slots [begin, end) of a queue, those of written units only."""


class Superseded(NamedTuple):
    """Messages of a stretch whose slots belong to later messages, or that had no free slot.

    Slots [slot_begin, slot_end), physical offsets in [first_offset, last_offset]. `is_deleted`: the queue began again
    later in the log; otherwise the queue offsets were given twice.
    """

    slot_begin: int
    slot_end: int
    first_offset: int
    last_offset: int
    is_deleted: bool

    def has(self, slot: int, physical_offset: int) -> bool:
        """Return whether the message is one of these."""
        return self.slot_begin <= slot < self.slot_end and self.first_offset <= physical_offset <= self.last_offset


class Lives:
    """The superseded messages of one queue, for lookup by slot and physical offset."""

    def __init__(self, superseded: Iterable[Superseded]) -> None:
        self.superseded = sorted(superseded, key=lambda one: (one.first_offset, one.slot_begin))
        self._firsts = [one.first_offset for one in self.superseded]

    def __bool__(self) -> bool:
        return bool(self.superseded)

    def find(self, slot: int, physical_offset: int) -> Superseded | None:
        """Return the superseded stretch that has this message, None for a message with a slot of its own."""
        for at in range(bisect.bisect_right(self._firsts, physical_offset) - 1, -1, -1):
            one = self.superseded[at]
            if one.has(slot, physical_offset):
                return one
            if one.last_offset < physical_offset:
                break
        return None

    def between(self, first_offset: int, last_offset: int) -> Sequence[Superseded]:
        """Return the stretches that may have messages in [first_offset, last_offset]."""
        # stretches of one queue do not overlap in the log, but for parts of the same one
        low = bisect.bisect_right(self._firsts, first_offset)
        while low and self.superseded[low - 1].last_offset >= first_offset:
            low -= 1
        return self.superseded[low : bisect.bisect_right(self._firsts, last_offset)]

    def mask(self, slots: Int64s, offsets: Int64s, *, is_deleted: bool = False) -> Flags:
        """Return which messages are superseded, or with `is_deleted` those of deleted topics only. `offsets`: physical
        offsets, ascending."""
        found = np.zeros(len(slots), np.bool_)
        if len(slots):
            for one in self.between(int(offsets[0]), int(offsets[-1])):
                if is_deleted and not one.is_deleted:
                    continue
                inside = (offsets >= one.first_offset) & (offsets <= one.last_offset)
                found |= inside & (slots >= one.slot_begin) & (slots < one.slot_end)
        return found


def goes_back(rows: Iterable[Stretch]) -> bool:
    """Return whether queue offsets fall anywhere along the log."""
    end = -1
    for row in rows:
        if row.slot_begin < end:
            return True
        end = row.slot_end
    return False


def held_by(queue: AnyConsumeQueue | None) -> HeldUnits:
    """Return a reader of the physical offsets that the files of a queue hold."""

    @cache
    def batches() -> dict[int, int]:
        return {unit.queue_offset: unit.physical_offset for unit in queue.units(0)} if queue is not None else {}

    def read(begin: int, end: int) -> Int64s:
        if isinstance(queue, BatchConsumeQueue):
            return np.array([offset for slot, offset in batches().items() if begin <= slot < end], np.int64)
        if not isinstance(queue, ConsumeQueue):
            return np.empty(0, np.int64)
        begin, end = max(begin, queue.first_slot), min(end, queue.max_offset)
        if begin >= end:
            return np.empty(0, np.int64)
        units = read_units(queue, begin, end - begin)
        offsets, sizes = units["physical_offset"].astype(np.int64), units["size"]
        return offsets[(offsets >= 0) & (sizes > 0) & (sizes < PLACEHOLDER_SIZE)]

    return read


def superseded(rows: Iterable[Stretch], held: HeldUnits) -> Lives:
    """Return the messages of one queue that its present life does not have. `rows`: all stretches of the queue."""
    listed = list(rows)
    return Lives(_Settling(listed, held).settle()) if goes_back(listed) else Lives(())


class _Settling:
    """Goes through the stretches of a queue in the order of the log and keeps the newest life."""

    def __init__(self, rows: list[Stretch], held: HeldUnits) -> None:
        self._rows = rows
        self._held = held
        self._kept: list[Stretch] = []
        """Ascending, without overlaps."""
        self._gone: list[Superseded] = []

    def settle(self) -> list[Superseded]:
        at = 0
        while at < len(self._rows):
            row = self._rows[at]
            if not self._kept or row.slot_begin >= self._kept[-1].slot_end:
                self._kept.append(row)
                at += 1
                continue
            end, is_stray = self._run_from(at)
            self._decide(self._rows[at:end], is_stray)
            at = end
        return self._gone

    def _run_from(self, at: int) -> tuple[int, bool]:
        """The run of stretches that begins lower than the kept ones end: where it ends, and whether the kept ones go
        on after it as if it were not there."""
        kept_end, units, end = self._kept[-1].slot_end, 0, self._rows[at].slot_begin
        for number in range(at, len(self._rows)):
            row = self._rows[number]
            if row.slot_begin < end:
                return number, False
            # where a wrong queue offset stands in a message, the slot of that message may be left out
            if number > at and row.slot_begin != end and kept_end <= row.slot_begin <= kept_end + units:
                return number, True
            end = row.slot_end
            units += row.slot_end - row.slot_begin
        return len(self._rows), False

    def _decide(self, run: list[Stretch], is_stray: bool) -> None:
        kept_end, first = self._kept[-1].slot_end, run[0]
        slot = first.slot_begin
        newer, older = self._counted(slot, kept_end, first.first_offset)
        is_single = len(run) == 1 and first.slot_end - slot == 1
        if is_stray:
            if newer > older:
                self._begin_again(slot, run)
            elif any(self._counted(row.slot_begin, row.slot_end, first.first_offset)[0] for row in run):
                self._take_slots(run)
            else:
                self._reject(run)
            return
        if newer and newer >= older:
            self._begin_again(self._lowest_held(slot, first.first_offset), run)
        elif slot <= self._kept[0].slot_begin and not (is_single and slot):
            # one message of the slot more, and not a queue that begins again
            is_copy = is_single or kept_end - slot == 1
            if is_copy and self._counted(slot, slot + 1, first.first_offset)[1]:
                self._reject(run)
            else:
                self._begin_again(slot, run)
        elif newer:
            self._take_slots(run)
        elif older or (is_single and slot != kept_end - 1):
            self._reject(run)
        else:
            self._begin_again(slot, run)

    def _counted(self, begin: int, end: int, first_offset: int) -> tuple[int, int]:
        """How many units of slots [begin, end) lead to `first_offset` or later, and how many to earlier messages."""
        parts = [(begin, min(end, begin + _READ_AT_MOST)), (max(begin + _READ_AT_MOST, end - _READ_AT_MOST), end)]
        newer = older = 0
        for low, high in parts:
            if low < high:
                offsets = self._held(low, high)
                newer += int(np.count_nonzero(offsets >= first_offset))
                older += int(np.count_nonzero(offsets < first_offset))
        return newer, older

    def _lowest_held(self, slot: int, first_offset: int) -> int:
        """The first slot of the new life, where the files hold units of messages that the log lost to damage."""
        last = self._kept[-1].last_offset
        while slot > 0:
            offsets = self._held(slot - 1, slot)
            if not len(offsets) or not last < offsets[0] < first_offset:
                break
            slot -= 1
        return slot

    def _begin_again(self, slot: int, run: list[Stretch]) -> None:
        """The run takes all slots from `slot` on."""
        is_deleted = slot <= self._kept[0].slot_begin
        while self._kept and self._kept[-1].slot_end > slot:
            row = self._kept.pop()
            begin = max(slot, row.slot_begin)
            self._gone.append(Superseded(begin, *row[1:4], is_deleted))
            if begin > row.slot_begin:
                self._kept.append(row._replace(slot_end=begin))
                break
        self._kept += run

    def _take_slots(self, run: list[Stretch]) -> None:
        """The run takes its own slots; what is before and after them stays."""
        for row in run:
            left: list[Stretch] = []
            for kept in self._kept:
                begin, end = max(kept.slot_begin, row.slot_begin), min(kept.slot_end, row.slot_end)
                if begin >= end:
                    left.append(kept)
                    continue
                self._gone.append(Superseded(begin, end, kept.first_offset, kept.last_offset, False))
                left += [
                    kept._replace(slot_begin=low, slot_end=high)
                    for low, high in ((kept.slot_begin, begin), (end, kept.slot_end))
                    if low < high
                ]
            self._kept = sorted([*left, row])

    def _reject(self, run: list[Stretch]) -> None:
        """The run gets no slot that the kept ones have; what is after them stays."""
        for row in run:
            kept_end = self._kept[-1].slot_end
            if row.slot_begin < kept_end:
                taken = row._replace(slot_end=min(row.slot_end, kept_end))
                self._gone.append(Superseded(*taken[:4], False))
            if row.slot_end > kept_end:
                self._kept.append(row._replace(slot_begin=max(row.slot_begin, kept_end)))


class AbsentQueues:
    """Queues without files: judges which of their messages are from before their topic was created again, and collects
    what the log holds of each queue, by which that is known for certain at the end of the log.

    `present`: queues with files; `is_earlier`: judges the message of a topic at a physical offset.
    """

    def __init__(self, present: Container[QueueKey], is_earlier: Callable[[str, int], bool]) -> None:
        self.lives: dict[QueueKey, tuple[int, int]] = {}
        """Physical offsets of the first and the last message of the last life of each queue."""
        self.left_out: dict[QueueKey, int] = {}
        """Physical offset of the last message that was left out."""
        self._present = present
        self._is_earlier = is_earlier
        self._last_slots: dict[QueueKey, int] = {}

    def leaves_out(self, topic: str, queue_id: int, slots: Int64s, offsets: Int64s) -> bool:
        """Return whether units that come next along the log, at least one, are those of an earlier topic."""
        key = topic, queue_id
        if key in self._present:
            return False
        begin, last = int(offsets[0]), int(offsets[-1])
        backwards = np.flatnonzero(slots[1:] <= slots[:-1])
        if len(backwards):
            begin = int(offsets[backwards[-1] + 1])
        elif slots[0] > self._last_slots.get(key, slots[0]):
            begin = self.lives[key][0]
        self.lives[key] = begin, last
        self._last_slots[key] = int(slots[-1])
        if not self._is_earlier(topic, last):
            return False
        self.left_out[key] = last
        return True


class LiveSlots:
    """Passes the slots of a run on to `target`, without the superseded messages of some queues.

    `absent`: queues without files, which may be from before their topic was created.
    `deleted`: how many messages of deleted topics were left out; `twice`: how many whose queue offsets were given
    twice.
    """

    def __init__(self, target: SlotTarget, lives: Mapping[QueueKey, Lives], absent: AbsentQueues | None = None) -> None:
        self.deleted = 0
        self.twice = 0
        self._target = target
        self._lives = lives
        self._absent = absent

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue has 46-byte units already."""
        return self._target.is_batch_topic(topic, queue_id)

    def add(self, slot: QueueSlot) -> None:
        """Pass a slot on unless its message is superseded."""
        unit = slot.unit
        if self._absent is not None and self._absent.leaves_out(
            slot.topic, slot.queue_id, np.array([unit.queue_offset]), np.array([unit.physical_offset])
        ):
            self.deleted += 1
            return
        lives = self._lives.get((slot.topic, slot.queue_id))
        found = lives.find(slot.unit.queue_offset, slot.unit.physical_offset) if lives else None
        if found is None:
            self._target.add(slot)
        elif found.is_deleted:
            self.deleted += 1
        else:
            self.twice += 1

    def add_units(self, run: QueueRun) -> None:
        """Pass units on but those of superseded messages."""
        stored = run.units["physical_offset"]
        if self._absent is not None and self._absent.leaves_out(run.topic, run.queue_id, run.slots, stored):
            self.deleted += len(run.units)
            return
        lives = self._lives.get((run.topic, run.queue_id))
        if not lives:
            self._target.add_units(run)
            return
        offsets = stored.astype(np.int64)
        left_out = lives.mask(run.slots, offsets)
        deleted = lives.mask(run.slots, offsets, is_deleted=True)
        self.deleted += int(np.count_nonzero(deleted))
        self.twice += int(np.count_nonzero(left_out & ~deleted))
        live = ~left_out
        if live.any():
            rows = run.rows[live] if run.rows is not None else None
            self._target.add_units(run._replace(slots=run.slots[live], units=run.units[live], rows=rows))
