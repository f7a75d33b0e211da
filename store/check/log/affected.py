"""How many messages a stretch of the log held, by the queue units that point into it."""

from __future__ import annotations

from rmqctl.formats.errors import UnsupportedError
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.store_files import StoreFiles

# a unit is read for each step of a search in each queue: beyond this many queues it is left
_MOST_READS = 200_000
_STEPS = 40


class AffectedMessages:
    """Counts units by physical offset. Units are in the order of the log, so two searches a queue find them."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._reads_left = _MOST_READS
        self._queues: list[ConsumeQueue] | None = None

    def count(self, begin: int, end: int) -> int | None:
        """Units that point into [begin, end) of the log; None if that would take too long, or nothing can be known."""
        if self._queues is None:
            self._queues = self._simple_queues()
        self._reads_left -= _STEPS * len(self._queues)
        if not self._queues or self._reads_left < 0:
            return None
        return sum(_first_slot(queue, end) - _first_slot(queue, begin) for queue in self._queues)

    def _simple_queues(self) -> list[ConsumeQueue]:
        try:
            queues = self._files.queues.all()
        except UnsupportedError:
            return []
        return [queue for queue in queues if isinstance(queue, ConsumeQueue)]


def _first_slot(queue: ConsumeQueue, physical_offset: int) -> int:
    """The first slot whose unit points at or behind an offset; unwritten slots count as before it."""
    low, high = queue.first_slot, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        unit = queue.unit(middle)
        if unit is None or not unit.is_written or unit.physical_offset < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low
