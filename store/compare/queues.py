"""The commitlog against the queues: the state of each message in its queue, and the slot it can have."""

from __future__ import annotations

import enum
import itertools
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import MINIMUM_FRAME_SIZE
from rmqctl.store.compare.lives import Stretch, Stretches, stretch_of
from rmqctl.store.files.layout import topic_directory
from rmqctl.store.log.columns import Flags, Int64s
from rmqctl.store.log.implied import (
    UNIT,
    GatheredUnits,
    QueueRun,
    QueueRuns,
    Run,
    Units,
    consecutive,
    read_units,
    route,
)
from rmqctl.store.queues.consumequeue import (
    LARGEST_BATCH,
    MAXIMUM_EXT_ADDRESS,
    PLACEHOLDER_SIZE,
    UNIT_SIZE,
    BatchConsumeQueue,
    QueueKey,
    QueueUnit,
    ext_offset,
)
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, FurtherSlots, QueueSlot, highest_plausible
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.store_files import StoreFiles

# What comparing a part of the log with the queues has found: small, picklable, merged in the log's order.


class SlotState(enum.IntEnum):
    """State of a message of the log in its queue."""

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


# How units stand in a queue, whoever asks: check, its tasks on Spark, recover, and the opening of a store for writing.

CodeAt = Callable[[int], int | None]
"""The tags code of the ext unit at a byte of the ext queue; None without one."""


def are_led_to(implied: Units, there: Units) -> Flags:
    """Which messages the units lead to that stand in their slots."""
    led: Flags = (there["physical_offset"] == implied["physical_offset"]) & (there["size"] == implied["size"])
    return led


def unit_states(implied: Units, there: Units, code_at: CodeAt, other_code: SlotState = SlotState.TAGS) -> Int64s:
    """The state of each unit that the log implies, in its slot. `other_code`: that of one with a wrong tags code."""
    is_led = are_led_to(implied, there)
    is_same = is_led & (there["tags_code"] == implied["tags_code"])
    states: Int64s = np.full(len(implied), SlotState.ELSEWHERE, np.int64)
    states[there["physical_offset"] == implied["physical_offset"]] = SlotState.SIZE
    states[is_led] = other_code
    for number in np.flatnonzero(is_led & ~is_same & (there["tags_code"] <= MAXIMUM_EXT_ADDRESS)).tolist():
        code = code_at(ext_offset(int(there["tags_code"][number])) or 0)
        state = SlotState.EXT if code is None else SlotState.TAGS
        states[number] = SlotState.MATCHED if code == int(implied["tags_code"][number]) else state
    at_start = there["physical_offset"] == 0
    states[at_start & (there["size"] == 0)] = SlotState.MISSING
    states[at_start & (there["size"] == PLACEHOLDER_SIZE)] = SlotState.PLACEHOLDER
    # a placeholder too, where recover wants one
    states[is_same] = SlotState.MATCHED
    return states


# Which slot a unit has in its queue: the one rule by which recover compares queues and rebuild writes them anew.


class SlotOrder(ABC):
    """A queue of 20-byte units, which come in the order of the log. The first message of a slot has it, as in RocketMQ:
    where queue offsets go back, `LiveSlots` leaves out what is superseded.

    `per_file`: units of one file. `conflicts`: units whose slot another one has, or that cannot stand where they say.
    `rows`: all units but those that cannot stand where they say. Subclasses decide what becomes of slots: `_begin`,
    `_keep`, `_put`.
    """

    def __init__(self, per_file: int) -> None:
        self.conflicts = 0
        self.rows = Stretches()
        self._per_file = per_file
        self._next: int | None = None
        """The slot behind the last one that was put; None before the first."""
        self._end_of_previous = 0

    @abstractmethod
    def _begin(self, queue_offset: int) -> int:
        """The first slot of the queue, if its first message has this one."""

    @abstractmethod
    def _keep(self, begin: int, end: int) -> None:
        """Put what belongs into the next slots, [begin, end), of which no message is."""

    @abstractmethod
    def _put(self, packed: bytes) -> None:
        """Put units, as they stand in a file, into the next slots, and bring `_next` behind them."""

    def _is_known(self, queue_offset: int) -> bool:
        """Whether the queue has this slot already, so that it need not be asked whether there can be one."""
        return False

    def add(self, unit: QueueUnit) -> None:
        """The log implies `unit`."""
        if not self._is_known(unit.queue_offset) and not self._is_plausible(unit):
            self.conflicts += 1
            return
        self.rows.add(stretch_of(unit))
        self._end_of_previous = unit.end
        if self._next is None:
            self._next = self._begin(unit.queue_offset)
        if unit.queue_offset < self._next:
            self.conflicts += 1
            return
        if unit.queue_offset > self._next:
            self._keep(self._next, unit.queue_offset)
        self._put(CONSUMEQUEUE_UNIT.struct.pack(unit.physical_offset, unit.size, unit.tags_code))

    def _is_plausible(self, unit: QueueUnit) -> bool:
        """Whether a message can stand so far on in its queue. No checksum covers queueOffset: a flipped bit must not
        fill the disk with placeholders and leave no slot for the messages behind it.

        Every message takes the space of a frame in the log. What a broker is known to skip beyond that (units that came
        back after a truncation, phantom units) is less than a file of the queue.
        """
        room = max(0, unit.physical_offset - self._end_of_previous) // MINIMUM_FRAME_SIZE
        return 0 <= unit.queue_offset <= (self._next or 0) + room + self._per_file

    def add_units(self, slots: Int64s, units: Units) -> None:
        """`add` for many units, in their order."""
        for begin, end in consecutive(slots):
            at = begin
            while at < end and slots[at] != self._next:
                self.add(QueueUnit(int(slots[at]), *units[at].item()))
                at += 1
            if at < end:
                # what follows one another without a gap stands where it should
                last = units[end - 1]
                first_offset, last_offset = int(units[at]["physical_offset"]), int(last["physical_offset"])
                self.rows.add(Stretch(int(slots[at]), int(slots[end - 1]) + 1, first_offset, last_offset))
                self._end_of_previous = last_offset + int(last["size"])
                self._put(units[at:end].tobytes())


def has_batch_slot(unit: QueueUnit, next_offset: int, rows: Stretches | None = None) -> bool:
    """Whether a unit of 46 bytes can be the next one of its queue, whose units before it end at `next_offset`. They
    stand one behind the other wherever they begin, so there is no slot to keep free. `rows` gets every unit that could
    stand somewhere."""
    if unit.queue_offset < 0 or not 0 < unit.batch_size <= LARGEST_BATCH:
        return False
    if rows is not None and unit.queue_offset < _HIGHEST_BASE:
        rows.add(stretch_of(unit))
    return unit.queue_offset >= next_offset


# units that wait to be compared: of a queue on average, and in all
_WAITING_OF_A_QUEUE, _WAITING = 4_500, 1_000_000
# stretches that are made objects of at a time
_AT_ONCE = 4096
# offsets of messages in batches are not bound to places in the log; this only keeps arithmetic within 64 bits
_HIGHEST_BASE = 1 << 62


class QueuesComparison:
    """Compares runs, in the log's order, and tallies what it finds. For a part of the log or all of it.

    Units of a queue wait until there are many: small files have a run each, and few messages of each queue in it.
    """

    def __init__(self, files: StoreFiles) -> None:
        self._tally = QueuesTally()
        self._waiting = GatheredUnits[QueueKey]()
        self._files = files
        self._levels = files.config.delay_levels()
        self._queues: dict[QueueKey, AnyConsumeQueue | None] = {}
        self._batches: dict[QueueKey, dict[int, QueueUnit]] = {}
        self._ext: dict[QueueKey, ConsumeQueueExt] = {}
        self._per_file = files.queues.consumequeue_file_size() // UNIT_SIZE
        self._further = FurtherSlots(lambda topic, queue_id: self._queue((topic, queue_id)))

    @property
    def tally(self) -> QueuesTally:
        """What all runs so far have shown."""
        self.compare()
        return self._tally

    def take(self, run: Run) -> None:
        """The next run of the log."""
        queues = run.queues
        if run.special or not isinstance(queues, QueueRuns) or any(map(self._has_other_units, queues.keys)):
            with_light = self._files.config.fills_light_queues
            route(run, self._files.log, self._levels, self, with_light=with_light, further=self._further)
        else:
            self._waiting.add(queues.keys, queues)
        if self._waiting.rows >= min(_WAITING_OF_A_QUEUE * len(self._waiting.numbers), _WAITING):
            self.compare()

    def _has_other_units(self, key: QueueKey) -> bool:
        return key not in self._waiting.numbers and self.is_batch_topic(*key)

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the queue has 46-byte units already."""
        return isinstance(self._queue((topic, queue_id)), BatchConsumeQueue)

    def _queue(self, key: QueueKey) -> AnyConsumeQueue | None:
        if key not in self._queues:
            try:
                self._queues[key] = self._files.queues.find_any(*key)
            except CorruptError:  # of a RocksDB beside the files, which is a finding of its own
                self._queues[key] = self._files.queues.find(*key)
        return self._queues[key]

    def _tally_of(self, key: QueueKey, is_batch: bool) -> QueueTally:
        found = self._tally.queues.get(key)
        if found is None:
            found = self._tally.queues[key] = QueueTally(is_batch)
        return found

    def add_units(self, run: QueueRun) -> None:
        """The log implies these units of a queue with 20-byte units."""
        runs = QueueRuns.of([run])
        self._waiting.add(runs.keys, runs)

    def compare(self) -> None:
        """Compare what waits until now, that of all queues at once: most have few units. UnreadableError leaves the
        rest of it out."""
        if not self._waiting.rows:
            return
        keys = list(self._waiting.numbers)
        numbers, slots, units = self._waiting.take()
        highest = highest_plausible(units["physical_offset"].astype(np.int64), self._per_file)
        possible = (slots >= 0) & (slots <= highest)
        if not possible.all():
            self._tally_implausible(keys, numbers[~possible], slots[~possible], units[~possible])
            numbers, slots, units = numbers[possible], slots[possible], units[possible]
        for number, begin, stretch in stretches_of(numbers, slots, units):
            end = begin + stretch.units
            self._compare(keys[number], stretch, slots[begin:end], units[begin:end])

    def _tally_implausible(self, keys: list[QueueKey], numbers: Int64s, slots: Int64s, units: Units) -> None:
        """Units whose slots cannot be right, by queue: `numbers` of `keys`, ascending."""
        slots = np.clip(slots, -_HIGHEST_BASE, _HIGHEST_BASE)
        for begin, end in _runs_of(numbers):
            tally = self._tally_of(keys[int(numbers[begin])], False)
            tally.add_units(SlotState.IMPLAUSIBLE, slots[begin:end], units[begin:end])

    def _compare(self, key: QueueKey, stretch: Stretch, slots: Int64s, units: Units) -> None:
        """Units of consecutive slots."""
        queue = self._queue(key)
        assert not isinstance(queue, BatchConsumeQueue)
        tally = self._tally_of(key, False)
        tally.add(SlotState.IMPLIED, stretch)
        if queue is None:
            tally.add(SlotState.MISSING, stretch)
            return
        there = read_units(queue, stretch.slot_begin, stretch.units)
        if there.tobytes() == units.tobytes():
            tally.add(SlotState.MATCHED, stretch)
            return
        other_code = SlotState.DELIVERY if key[0] == SCHEDULE_TOPIC else SlotState.TAGS
        states = unit_states(units, there, partial(self._code_at, key), other_code)
        for state in np.unique(states).tolist():
            chosen = states == state
            tally.add_units(SlotState(state), slots[chosen], units[chosen])

    def _code_at(self, key: QueueKey, offset: int) -> int | None:
        """The tags code of an ext unit of a queue."""
        ext = self._ext.get(key)
        if ext is None:
            directory = topic_directory(self._files.layout.consumequeue_ext, key[0]) / str(key[1])
            size = self._files.config.mapped_file_size_consume_queue_ext
            ext = self._ext[key] = ConsumeQueueExt(directory, size, self._files.descriptors)
            ext.load()
        return ext.tags_code(offset)

    def add(self, slot: QueueSlot) -> None:
        """The log implies this slot."""
        key, unit = (slot.topic, slot.queue_id), slot.unit
        queue = self._queue(key)
        if isinstance(queue, BatchConsumeQueue) or (queue is None and slot.is_batch):
            if self._waiting.has(key):
                self.compare()
            tally = self._tally_of(key, True)
            if not (has_batch_slot(unit, 0) and unit.queue_offset < _HIGHEST_BASE):
                base = cut_off(unit.queue_offset)
                tally.add(SlotState.IMPLAUSIBLE, stretch_of(unit._replace(queue_offset=base, batch_size=1)))
                return
            stretch = stretch_of(unit)
            tally.add(SlotState.IMPLIED, stretch)
            tally.add(self._batch_state(key, queue, unit), stretch)
            return
        packed = np.array([(unit.physical_offset, unit.size, unit.tags_code)], UNIT)
        self.add_units(QueueRun(slot.topic, slot.queue_id, np.array([unit.queue_offset], np.int64), packed, None))

    def _batch_state(self, key: QueueKey, queue: BatchConsumeQueue | None, unit: QueueUnit) -> SlotState:
        units = self._batches.get(key)
        if units is None:
            units = self._batches[key] = {} if queue is None else {one.queue_offset: one for one in queue.units(0)}
        there = units.get(unit.queue_offset)
        if there is None:
            return SlotState.MISSING
        if there.physical_offset != unit.physical_offset:
            return SlotState.ELSEWHERE
        if there.size != unit.size:
            return SlotState.SIZE
        if there.tags_code != unit.tags_code:
            return SlotState.TAGS
        same = (there.store_timestamp, there.batch_size) == (unit.store_timestamp, unit.batch_size)
        return SlotState.MATCHED if same else SlotState.FIELDS


def cut_off(queue_offset: int) -> int:
    """A queue offset that cannot be right as far as it can be reckoned with: the ends of 64 bits overflow."""
    return max(-_HIGHEST_BASE, min(queue_offset, _HIGHEST_BASE))


def _runs_of(numbers: Int64s) -> Iterator[tuple[int, int]]:
    """[begin, end) of the rows that have the same number."""
    begins = np.flatnonzero(np.diff(numbers, prepend=-1))
    return zip(begins.tolist(), [*begins[1:].tolist(), len(numbers)], strict=True)


def stretches_of(numbers: Int64s, slots: Int64s, units: Units) -> Iterator[tuple[int, int, Stretch]]:
    """Units of consecutive slots of one queue as one stretch: the number of the queue, the place of the first unit, and
    what they are together."""
    if not len(slots):
        return
    opens = np.ones(len(slots), np.bool_)
    opens[1:] = (numbers[1:] != numbers[:-1]) | (slots[1:] - slots[:-1] != 1)
    begins = np.flatnonzero(opens)
    ends = np.append(begins[1:], len(slots))
    offsets = units["physical_offset"]
    firsts, lasts = offsets[begins].astype(np.int64), offsets[ends - 1].astype(np.int64)
    sizes = np.add.reduceat(units["size"].astype(np.int64), begins)
    columns = (
        numbers[begins],
        begins,
        slots[begins],
        slots[begins] + (ends - begins),
        firsts,
        lasts,
        ends - begins,
        sizes,
    )
    table = np.stack(columns, axis=1)
    for at in range(0, len(table), _AT_ONCE):
        for number, begin, *fields in table[at : at + _AT_ONCE].tolist():
            yield number, begin, Stretch(*fields)
