"""The commitlog against the queues: in which state each message stands in its queue (see `tally.SlotState`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from rmqctl.formats.layouts import CONSUMEQUEUE_EXT_UNIT_HEAD
from rmqctl.store.check.queues.tally import QueuesTally, QueueTally, SlotState, Stretch
from rmqctl.store.columns.batch import Int64s
from rmqctl.store.files.layout import topic_directory
from rmqctl.store.queues.batch_consumequeue import BatchConsumeQueue
from rmqctl.store.queues.consumequeue import UNIT_SIZE
from rmqctl.store.queues.consumequeue_ext import ConsumeQueueExt
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, QueueSlot, highest_plausible
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import MAXIMUM_EXT_ADDRESS, PLACEHOLDER_SIZE, QueueKey, QueueUnit, ext_offset
from rmqctl.store.recover.mend.slot_order import LARGEST_BATCH
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_runs import QueueRun, Run, route
from rmqctl.store.survey.run_units import UNIT, Units, joined_units, read_units

# bytes of units that wait to be compared; what a unit takes, and what a run of a queue does besides
_WAITING = 32 << 20
_UNIT_BYTES, _RUN_BYTES = 28, 400
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
        self._waiting: dict[QueueKey, list[QueueRun]] = {}
        self._waiting_bytes = 0
        self._files = files
        self._levels = files.config.delay_levels()
        self._queues: dict[QueueKey, AnyConsumeQueue | None] = {}
        self._batches: dict[QueueKey, dict[int, QueueUnit]] = {}
        self._ext: dict[QueueKey, ConsumeQueueExt] = {}
        self._per_file = files.queues.consumequeue_file_size() // UNIT_SIZE

    @property
    def tally(self) -> QueuesTally:
        """What all runs so far have shown."""
        self.compare()
        return self._tally

    def take(self, run: Run) -> None:
        """The next run of the log."""
        route(run, self._files.log, self._levels, self)
        if self._waiting_bytes >= _WAITING:
            self.compare()

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether the queue has 46-byte units already."""
        return isinstance(self._queue((topic, queue_id)), BatchConsumeQueue)

    def _queue(self, key: QueueKey) -> AnyConsumeQueue | None:
        if key not in self._queues:
            self._queues[key] = self._files.queues.find(*key)
        return self._queues[key]

    def _tally_of(self, key: QueueKey, is_batch: bool) -> QueueTally:
        found = self._tally.queues.get(key)
        if found is None:
            found = self._tally.queues[key] = QueueTally(is_batch)
        return found

    def add_units(self, run: QueueRun) -> None:
        """The log implies these units of a queue with 20-byte units."""
        self._waiting.setdefault((run.topic, run.queue_id), []).append(run)
        self._waiting_bytes += _bytes_of(run)

    def compare(self) -> None:
        """Compare what waits until now. UnreadableError leaves the rest of it out."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        self._compare_waiting(waiting)

    def _compare_queue(self, key: QueueKey) -> None:
        """Compare what waits of one queue."""
        runs = self._waiting.pop(key, [])
        self._waiting_bytes -= sum(map(_bytes_of, runs))
        self._compare_waiting({key: runs} if runs else {})

    def _compare_waiting(self, waiting: dict[QueueKey, list[QueueRun]]) -> None:
        """What can be said of units is worked out for those of all queues at once: most have few."""
        if not waiting:
            return
        keys = list(waiting)
        runs = list(itertools.chain.from_iterable(waiting.values()))
        slots, units = np.concatenate([run.slots for run in runs]), joined_units([run.units for run in runs])
        numbers = np.repeat(np.arange(len(keys)), [sum(len(run.slots) for run in waiting[key]) for key in keys])
        highest = highest_plausible(units["physical_offset"].astype(np.int64), self._per_file)
        possible = (slots >= 0) & (slots <= highest)
        if not possible.all():
            self._tally_implausible(keys, numbers[~possible], slots[~possible], units[~possible])
            numbers, slots, units = numbers[possible], slots[possible], units[possible]
        for number, begin, stretch in _stretches(numbers, slots, units):
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
        states = self._states(key, slots, units, there)
        for state in np.unique(states).tolist():
            chosen = states == state
            tally.add_units(SlotState(state), slots[chosen], units[chosen])

    def _states(self, key: QueueKey, slots: Int64s, units: Units, there: Units) -> Int64s:
        same_offset = there["physical_offset"] == units["physical_offset"]
        same_size = there["size"] == units["size"]
        same_code = there["tags_code"] == units["tags_code"]
        states: Int64s = np.full(len(slots), SlotState.ELSEWHERE, np.int64)
        states[same_offset & ~same_size] = SlotState.SIZE
        states[same_offset & same_size] = SlotState.DELIVERY if key[0] == SCHEDULE_TOPIC else SlotState.TAGS
        states[same_offset & same_size & same_code] = SlotState.MATCHED
        addressed = same_offset & same_size & ~same_code & (there["tags_code"] <= MAXIMUM_EXT_ADDRESS)
        for number in np.flatnonzero(addressed).tolist():
            states[number] = self._ext_state(key, int(there["tags_code"][number]), int(units["tags_code"][number]))
        at_start = there["physical_offset"] == 0
        states[at_start & (there["size"] == 0)] = SlotState.MISSING
        states[at_start & (there["size"] == PLACEHOLDER_SIZE)] = SlotState.PLACEHOLDER
        return states

    def _ext_state(self, key: QueueKey, address: int, wanted: int) -> SlotState:
        ext = self._ext.get(key)
        if ext is None:
            directory = topic_directory(self._files.layout.consumequeue_ext, key[0]) / str(key[1])
            size = self._files.config.mapped_file_size_consume_queue_ext
            ext = self._ext[key] = ConsumeQueueExt(directory, size, self._files.descriptors)
            ext.load()
        # only the head is needed: reading the bit map too would double the time
        head = ext.files.read(ext_offset(address) or 0, CONSUMEQUEUE_EXT_UNIT_HEAD.size)
        if len(head) < CONSUMEQUEUE_EXT_UNIT_HEAD.size:
            return SlotState.EXT
        size, tags_code, _, bit_map_size = CONSUMEQUEUE_EXT_UNIT_HEAD.unpack_from(head, 0)
        if bit_map_size < 0 or size != CONSUMEQUEUE_EXT_UNIT_HEAD.size + bit_map_size:
            return SlotState.EXT
        return SlotState.MATCHED if tags_code == wanted else SlotState.TAGS

    def add(self, slot: QueueSlot) -> None:
        """The log implies this slot."""
        key, unit = (slot.topic, slot.queue_id), slot.unit
        queue = self._queue(key)
        if isinstance(queue, BatchConsumeQueue) or (queue is None and slot.is_batch):
            self._compare_queue(key)
            tally = self._tally_of(key, True)
            if not 0 <= unit.queue_offset < _HIGHEST_BASE or not 0 < unit.batch_size <= LARGEST_BATCH:
                base = cut_off(unit.queue_offset)
                tally.add(SlotState.IMPLAUSIBLE, _stretch_of(unit._replace(queue_offset=base, batch_size=1)))
                return
            stretch = _stretch_of(unit)
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


def _bytes_of(run: QueueRun) -> int:
    return len(run.slots) * _UNIT_BYTES + _RUN_BYTES


def _runs_of(numbers: Int64s) -> Iterator[tuple[int, int]]:
    """[begin, end) of the rows that have the same number."""
    begins = np.flatnonzero(np.diff(numbers, prepend=-1))
    return zip(begins.tolist(), [*begins[1:].tolist(), len(numbers)], strict=True)


def _stretches(numbers: Int64s, slots: Int64s, units: Units) -> Iterator[tuple[int, int, Stretch]]:
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


def _stretch_of(unit: QueueUnit) -> Stretch:
    offset = unit.physical_offset
    return Stretch(unit.queue_offset, unit.next_queue_offset, offset, offset, 1, unit.size)
