"""Which slot a unit has in its queue: the one rule by which recover compares queues and rebuild writes them anew."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import MINIMUM_FRAME_SIZE
from rmqctl.store.columns.batch import Int64s
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.survey.lives import LifeRows
from rmqctl.store.survey.log_runs import consecutive
from rmqctl.store.survey.run_units import Units

# the batch size of a unit of 46 bytes is a signed 16-bit integer
LARGEST_BATCH = 0x7FFF
# no queue gets so far: this only keeps arithmetic within 64 bits
_HIGHEST_BASE = 1 << 62


class SlotOrder(ABC):
    """A queue of 20-byte units, which come in the order of the log. The first message of a slot has it, as in RocketMQ:
    where queue offsets go back, `lives.LiveSlots` leaves out what is superseded.

    `per_file`: units of one file. `conflicts`: units whose slot another one has, or that cannot stand where they say.
    `rows`: all units but those that cannot stand where they say.
    Whoever derives from it says what becomes of slots: `_begin`, `_keep`, `_put`.
    """

    def __init__(self, per_file: int) -> None:
        self.conflicts = 0
        self.rows = LifeRows()
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
        self.rows.add(unit.queue_offset, unit.next_queue_offset, unit.physical_offset, unit.physical_offset)
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

        Every message takes a frame's room in the log. What a broker is known to skip beyond that (units that came back
        after a truncation, phantom units) is less than a file of the queue.
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
                self.rows.add(int(slots[at]), int(slots[end - 1]) + 1, first_offset, last_offset)
                self._end_of_previous = last_offset + int(last["size"])
                self._put(units[at:end].tobytes())


def has_batch_slot(unit: QueueUnit, next_offset: int, rows: LifeRows | None = None) -> bool:
    """Whether a unit of 46 bytes can be the next one of its queue, whose units before it end at `next_offset`. They
    stand one behind the other wherever they begin, so there is no slot to keep free. `rows` gets every unit that could
    stand somewhere."""
    if unit.queue_offset < 0 or not 0 < unit.batch_size <= LARGEST_BATCH:
        return False
    if rows is not None and unit.queue_offset < _HIGHEST_BASE:
        rows.add(unit.queue_offset, unit.next_queue_offset, unit.physical_offset, unit.physical_offset)
    return unit.queue_offset >= next_offset
