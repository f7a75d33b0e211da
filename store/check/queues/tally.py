"""What comparing a part of the log with the queues has found: small, picklable, merged in the log's order."""

from __future__ import annotations

import enum
import itertools
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqctl.store.columns.batch import Flags, Int64s
from rmqctl.store.survey.run_units import Units

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
    units: int
    bytes: int
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
        """The last one, None if there is none."""
        return Stretch(*self._rows[-_WIDTH:]) if self._rows else None

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


class SlotState(enum.IntEnum):
    """How a message of the log stands in its queue."""

    IMPLIED = 0
    """All messages of the queue but the implausible ones."""
    MATCHED = 1
    """Its slot holds its unit."""
    MISSING = 2
    """Its slot holds zeros or is in no file."""
    PLACEHOLDER = 3
    """Its slot holds the filler of a slot that never had a message."""
    SIZE = 4
    """Its slot points at it with another size."""
    TAGS = 5
    """Its slot points at it with another tags code."""
    DELIVERY = 6
    """A delayed message: its slot points at it with another delivery time."""
    EXT = 7
    """Its slot points at it, but its ext unit cannot be read."""
    FIELDS = 8
    """A batch: its unit says another store time or number of messages."""
    ELSEWHERE = 9
    """Its slot points somewhere else."""
    IMPLAUSIBLE = 10
    """Its queue offset cannot be right."""


_STATES = {int(state): state for state in SlotState}


class QueueTally:
    """One queue: the stretches of each state."""

    __slots__ = ("is_batch", "states")

    def __init__(self, is_batch: bool) -> None:
        self.is_batch = is_batch
        self.states: dict[SlotState, Stretches] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueTally) and self.is_batch == other.is_batch and self.states == other.states

    __hash__ = None  # type: ignore[assignment]  # it changes

    def of(self, state: SlotState) -> Stretches:
        """The stretches of a state."""
        found = self.states.get(state)
        return Stretches() if found is None else found

    @property
    def life(self) -> int:
        """How often queue offsets have gone back so far."""
        last = self.of(SlotState.IMPLIED).last
        return last.life if last is not None else 0

    def add(self, state: SlotState, stretch: Stretch) -> None:
        """The next messages of the queue that are in this state; IMPLIED before any other."""
        life = 0
        if state is SlotState.IMPLIED:
            life = self._life_from(stretch.slot_begin)
        elif state is not SlotState.IMPLAUSIBLE:
            life = self.life
        self.states.setdefault(state, Stretches()).add(stretch._replace(life=life))

    def _life_from(self, slot: int) -> int:
        """The life of a message that comes next."""
        last = self.of(SlotState.IMPLIED).last
        return 0 if last is None else last.life + (slot < last.slot_end)

    def add_units(self, state: SlotState, slots: Int64s, units: Units) -> None:
        """The same, message by message."""
        sizes, offsets = units["size"].astype(np.int64), units["physical_offset"].astype(np.int64)
        life = 0 if state is SlotState.IMPLAUSIBLE else self.life
        self.states.setdefault(state, Stretches()).add_units(slots, offsets, sizes, life)

    def merge(self, later: QueueTally) -> None:
        """Add what the part of the log that follows has for this queue."""
        implied = next(iter(later.of(SlotState.IMPLIED)), None)
        lives = self._life_from(implied.slot_begin) if implied is not None else 0
        for state, stretches in later.states.items():
            found = self.states.setdefault(state, Stretches())
            found.merge(stretches, 0 if state is SlotState.IMPLAUSIBLE else lives)


class QueuesTally:
    """All queues of a part of the log, by topic and queue id."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], QueueTally] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as columns: one array for all queues takes a tenth of the time of an object for each."""
        kinds, lengths, rows = array("q"), array("q"), array("q")
        for tally in self.queues.values():
            kinds.append(len(tally.states) << 1 | tally.is_batch)
            for state, stretches in tally.states.items():
                kinds.append(state)
                lengths.append(len(stretches._rows))
                rows.extend(stretches._rows)
        topics, queue_ids = zip(*self.queues, strict=True) if self.queues else ((), ())
        return _tally_of_columns, (topics, array("q", queue_ids), kinds, lengths, rows)

    def merge(self, later: QueuesTally) -> None:
        """Add the part of the log that follows; `later` is used up."""
        for key, tally in later.queues.items():
            found = self.queues.get(key)
            if found is None:
                self.queues[key] = tally
            else:
                found.merge(tally)

    def last_matched(self) -> int:
        """Physical offset of the last message that has its unit; -1 if none has."""
        matched = [tally.of(SlotState.MATCHED).table()[:, 3] for tally in self.queues.values()]
        return max((int(offsets.max()) for offsets in matched if len(offsets)), default=-1)


def _tally_of_columns(
    topics: Sequence[str], queue_ids: Sequence[int], kinds: Sequence[int], lengths: Sequence[int], rows: array[int]
) -> QueuesTally:
    """What `QueuesTally.__reduce__` wrote. `kinds`: for each queue how many states it has, twice, one more for a batch
    queue, then these; `lengths`: how many numbers of `rows` each state has."""
    made = QueuesTally()
    states, ends = iter(kinds), itertools.accumulate(lengths, initial=0)
    begin = next(ends)
    for key in zip(topics, queue_ids, strict=True):
        head = next(states)
        tally = made.queues[key] = QueueTally(bool(head & 1))
        for state in itertools.islice(states, head >> 1):
            stretches = tally.states[_STATES[state]] = Stretches()
            end = next(ends)
            stretches._rows = rows[begin:end]
            begin = end
    return made
