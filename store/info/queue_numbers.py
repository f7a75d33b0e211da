"""Counting the messages of one queue by its units. Long queues are counted on arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.offset_by_time import StoreTime
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import PLACEHOLDER_SIZE, QueueUnit

ARRAYS_FROM = 50_000
"""Units of all queues together from which on numpy is worth importing."""
# the last of these that leads to a message nearly always is the very last one
_LATEST_UNITS = 64
_CHUNK_UNITS = 1 << 17

"""Store time in ms of the message that a unit points at, None if there is none."""


@dataclass(slots=True)
class QueueNumbers:
    """`messages` and `bytes` as the units say; times in ms of the first and last message that can be read."""

    messages: int = 0
    bytes: int = 0
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None


def arrays_pay(queues: Iterable[AnyConsumeQueue], commitlog_min_offset: int) -> bool:
    """Return whether these queues have enough units, all together, to count them on arrays."""
    units = 0
    for queue in queues:
        units += queue.max_offset - queue.min_offset(commitlog_min_offset)
        if units >= ARRAYS_FROM:
            return True
    return False


def count_queue(queue: AnyConsumeQueue, minimum: int, store_time: StoreTime, on_arrays: bool) -> QueueNumbers:
    """Count the units from queue offset `minimum` on; `on_arrays` where the queues have many, see `arrays_pay`."""
    if on_arrays and isinstance(queue, ConsumeQueue):
        return arrays_count_queue(queue, minimum, store_time)
    return plain_count_queue(queue, minimum, store_time)


def plain_count_queue(queue: AnyConsumeQueue, minimum: int, store_time: StoreTime) -> QueueNumbers:
    """The plain twin of arrays_count_queue."""
    numbers = QueueNumbers()
    latest: deque[QueueUnit] = deque(maxlen=_LATEST_UNITS)
    for unit in queue.units(minimum):
        if unit.is_written:
            numbers.messages += unit.batch_size
            numbers.bytes += unit.size
            latest.append(unit)
            if numbers.first_store_timestamp is None:
                numbers.first_store_timestamp = store_time(unit)
    numbers.last_store_timestamp = _last_time(queue, minimum, latest, store_time)
    return numbers


def arrays_count_queue(queue: ConsumeQueue, minimum: int, store_time: StoreTime) -> QueueNumbers:
    """The same on arrays."""
    import numpy as np

    kind = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
    assert kind.itemsize == CONSUMEQUEUE_UNIT.size
    numbers = QueueNumbers()
    latest: deque[QueueUnit] = deque(maxlen=_LATEST_UNITS)
    for slot, data in queue.unit_bytes(minimum, chunk_units=_CHUNK_UNITS):
        units = np.frombuffer(data, kind)
        sizes = units["size"].astype(np.int64)
        written = np.flatnonzero((units["physical_offset"] >= 0) & (sizes > 0) & (sizes < PLACEHOLDER_SIZE))
        numbers.messages += len(written)
        numbers.bytes += int(sizes[written].sum())
        for place in written[-_LATEST_UNITS:].tolist():
            latest.append(QueueUnit(slot + place, *units[place].tolist()))
        if numbers.first_store_timestamp is None:
            found = (store_time(QueueUnit(slot + place, *units[place].tolist())) for place in written.tolist())
            numbers.first_store_timestamp = next((time for time in found if time is not None), None)
    numbers.last_store_timestamp = _last_time(queue, minimum, latest, store_time)
    return numbers


def _last_time(queue: AnyConsumeQueue, minimum: int, latest: Iterable[QueueUnit], store_time: StoreTime) -> int | None:
    """Store time of the last message that can be read: nearly always one of the `latest` units'."""
    for unit in reversed([*latest]):
        time = store_time(unit)
        if time is not None:
            return time
    last = None
    for unit in queue.units(minimum):
        time = store_time(unit) if unit.is_written else None
        last = time if time is not None else last
    return last
