"""Lives of a queue: which messages of the log a queue still has, and which belong to a topic that was deleted since.

A topic that is deleted and created again starts at queue offset 0, while the log keeps the old messages. So queue
offsets do not only rise along the log. The newest life of a queue has its slots.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.log.implied import QueueRun, SlotTarget, read_units
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, BatchConsumeQueue, ConsumeQueue, QueueKey
from rmqctl.store.queues.dispatch import QueueSlot
from rmqctl.store.queues.queue_table import AnyConsumeQueue

_WIDTH = 4
# units of a queue that are read to see which life it holds, at each end of the slots in question
_READ_AT_MOST = 1 << 16

IsEarlier = Callable[[str, int, int], bool]
HeldUnits = Callable[[int, int], Int64s]
"""Physical offsets in the units of slots [begin, end) of a queue, those of written units only."""


class SlotRow(NamedTuple):
    """Messages of one queue whose slots count up by one along the log. Slots [slot_begin, slot_end); physical offsets
    of the first and the last message."""

    slot_begin: int
    slot_end: int
    first_offset: int
    last_offset: int


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


class LifeRows:
    """The stretches of one queue, collected in the order of the log."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = array("q")

    def __iter__(self) -> Iterator[SlotRow]:
        rows = self._rows
        for at in range(0, len(rows), _WIDTH):
            yield SlotRow(*rows[at : at + _WIDTH])

    def add(self, slot_begin: int, slot_end: int, first_offset: int, last_offset: int) -> None:
        """Add the messages that follow along the log."""
        rows = self._rows
        if rows and rows[-3] == slot_begin:
            rows[-3], rows[-1] = slot_end, last_offset
        else:
            rows.extend((slot_begin, slot_end, first_offset, last_offset))


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


def goes_back(rows: Iterable[SlotRow]) -> bool:
    """Return whether queue offsets fall anywhere along the log."""
    end = -1
    for row in rows:
        if row.slot_begin < end:
            return True
        end = row.slot_end
    return False


def held_by(queue: AnyConsumeQueue | None) -> HeldUnits:
    """Return a reader of the physical offsets that the files of a queue hold."""
    if isinstance(queue, BatchConsumeQueue):
        units = {unit.queue_offset: unit.physical_offset for unit in queue.units(0)}
        return lambda begin, end: np.array([units[slot] for slot in units if begin <= slot < end], np.int64)

    def read(begin: int, end: int) -> Int64s:
        if not isinstance(queue, ConsumeQueue):
            return np.empty(0, np.int64)
        begin, end = max(begin, queue.first_slot), min(end, queue.max_offset)
        if begin >= end:
            return np.empty(0, np.int64)
        units = read_units(queue, begin, end - begin)
        offsets, sizes = units["physical_offset"].astype(np.int64), units["size"]
        return offsets[(offsets >= 0) & (sizes > 0) & (sizes < PLACEHOLDER_SIZE)]

    return read


def superseded(rows: Iterable[SlotRow], held: HeldUnits) -> Lives:
    """Return the messages of one queue that its present life does not have. `rows`: all stretches of the queue."""
    listed = list(rows)
    return Lives(_Settling(listed, held).settle()) if goes_back(listed) else Lives(())


class _Settling:
    """Goes through the stretches of a queue in the order of the log and keeps the newest life."""

    def __init__(self, rows: list[SlotRow], held: HeldUnits) -> None:
        self._rows = rows
        self._held = held
        self._kept: list[SlotRow] = []
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

    def _decide(self, run: list[SlotRow], is_stray: bool) -> None:
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

    def _begin_again(self, slot: int, run: list[SlotRow]) -> None:
        """The run takes all slots from `slot` on."""
        is_deleted = slot <= self._kept[0].slot_begin
        while self._kept and self._kept[-1].slot_end > slot:
            row = self._kept.pop()
            begin = max(slot, row.slot_begin)
            self._gone.append(Superseded(begin, *row[1:], is_deleted))
            if begin > row.slot_begin:
                self._kept.append(row._replace(slot_end=begin))
                break
        self._kept += run

    def _take_slots(self, run: list[SlotRow]) -> None:
        """The run takes its own slots; what is before and after them stays."""
        for row in run:
            left: list[SlotRow] = []
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

    def _reject(self, run: list[SlotRow]) -> None:
        """The run gets no slot that the kept ones have; what is after them stays."""
        for row in run:
            kept_end = self._kept[-1].slot_end
            if row.slot_begin < kept_end:
                taken = row._replace(slot_end=min(row.slot_end, kept_end))
                self._gone.append(Superseded(*taken, False))
            if row.slot_end > kept_end:
                self._kept.append(row._replace(slot_begin=max(row.slot_begin, kept_end)))


class LiveSlots:
    """Passes the slots of a run on to `target`, without the superseded messages of some queues.

    `is_earlier`: whether the message of a topic and queue at a physical offset is from before the topic was created.
    `deleted`: how many messages of deleted topics were left out; `twice`: how many whose queue offsets were given
    twice.
    """

    def __init__(
        self, target: SlotTarget, lives: Mapping[QueueKey, Lives], is_earlier: IsEarlier = lambda *_: False
    ) -> None:
        self.deleted = 0
        self.twice = 0
        self._target = target
        self._lives = lives
        self._is_earlier = is_earlier

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue has 46-byte units already."""
        return self._target.is_batch_topic(topic, queue_id)

    def add(self, slot: QueueSlot) -> None:
        """Pass a slot on unless its message is superseded."""
        if self._is_earlier(slot.topic, slot.queue_id, slot.unit.physical_offset):
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
        # units are in the order of the log
        if self._is_earlier(run.topic, run.queue_id, int(run.units["physical_offset"][-1])):
            self.deleted += len(run.units)
            return
        lives = self._lives.get((run.topic, run.queue_id))
        if not lives:
            self._target.add_units(run)
            return
        offsets = run.units["physical_offset"].astype(np.int64)
        left_out = lives.mask(run.slots, offsets)
        deleted = lives.mask(run.slots, offsets, is_deleted=True)
        self.deleted += int(np.count_nonzero(deleted))
        self.twice += int(np.count_nonzero(left_out & ~deleted))
        live = ~left_out
        if live.any():
            rows = run.rows[live] if run.rows is not None else None
            self._target.add_units(run._replace(slots=run.slots[live], units=run.units[live], rows=rows))
