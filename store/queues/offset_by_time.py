"""The queue offset for a point in time, by binary search over the store times of a queue's messages.

Rules of 5.3.3 (ConsumeQueue#getOffsetInQueueByTime). Store times never go back along a queue unless the broker's clock
did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rmqctl.store.queues.consumequeue import BatchConsumeQueue, ConsumeQueue, QueueUnit

Boundary = Literal["lower", "upper"]
StoreTime = Callable[[QueueUnit], int | None]
# a store time that the next message's falls short of by more than this, ms, is taken for a flipped bit
_LEAP = 86_400_000


def offset_by_time(
    queue: ConsumeQueue | BatchConsumeQueue,
    timestamp: int,
    boundary: Boundary,
    min_offset: int,
    store_time: StoreTime,
) -> int:
    """Queue offset for `timestamp` (ms) in [min_offset, max_offset].

    `lower`: the first message stored at or after it, else the end of the queue. `upper`: the last message stored at or
    before it, else the first one of the queue. In a queue of batches the answer is the base of a batch, found by
    RocketMQ's own rule: a time at or after the last batch of a file gives that batch, for both boundaries.

    `store_time` answers None for a unit whose message cannot be read; such units are passed over, where RocketMQ gives
    up and answers 0. So are times below 0, which no broker writes, and a time more than a day later than that of the
    next message: a flipped bit must not lead past good messages.
    """
    if isinstance(queue, BatchConsumeQueue):
        return _in_batches(queue, timestamp, boundary, min_offset)
    return _in_slots(queue, timestamp, boundary, min_offset, store_time)


def _in_slots(queue: ConsumeQueue, timestamp: int, boundary: Boundary, min_offset: int, store_time: StoreTime) -> int:
    low, high = min_offset, queue.max_offset
    # slots before `low` go to the left of the boundary, slots from `high` on to its right
    while low < high:
        middle = (low + high) // 2
        known, time = _next_known(queue, middle, high, store_time)
        if time is None:
            high = middle
            continue
        if time > timestamp + _LEAP and known + 1 < high:
            following, later = _next_known(queue, known + 1, high, store_time)
            if later is not None and later < time - _LEAP:
                known, time = following, later
        if time < timestamp or (boundary == "upper" and time == timestamp):
            low = known + 1
        else:
            high = middle
    # what stands just before `low` is a message: `low` only ever moves behind one
    return low if boundary == "lower" else max(low - 1, min_offset)


def _next_known(queue: ConsumeQueue, begin: int, end: int, store_time: StoreTime) -> tuple[int, int | None]:
    """Return the first slot in [begin, end) whose message has a readable time; (end, None) without one."""
    unit = queue.unit(begin)
    time = store_time(unit) if unit is not None else None
    if time is not None and time >= 0:
        return begin, time
    for later in queue.units(begin + 1, end):
        time = store_time(later)
        if time is not None and time >= 0:
            return later.queue_offset, time
    return end, None


def _in_batches(queue: BatchConsumeQueue, timestamp: int, boundary: Boundary, min_offset: int) -> int:
    """RocketMQ looks into one file only: the newest that begins at or before the time, else the first.

    (BatchConsumeQueue#getOffsetInQueueByTime) The units carry their store times, so no message is read for it.
    """
    files = [timed for units in queue.units_by_file() if (timed := _timed(units, min_offset))]
    if not files:
        return max(min_offset, 0)
    chosen = next((timed for timed in reversed(files) if timed[0][0] <= timestamp), files[0])
    if timestamp >= chosen[-1][0]:
        return chosen[-1][1]
    if boundary == "lower":
        return next(offset for time, offset in chosen if time >= timestamp)
    return max((offset for time, offset in chosen if time <= timestamp), default=chosen[0][1])


def _timed(units: list[QueueUnit], min_offset: int) -> list[tuple[int, int]]:
    """(store time, base offset) of batches that are still in the commitlog."""
    found = [
        (unit.store_timestamp, unit.queue_offset)
        for unit in units
        if unit.queue_offset >= min_offset and unit.store_timestamp >= 0
    ]
    return [
        one for number, one in enumerate(found) if number + 1 == len(found) or found[number + 1][0] >= one[0] - _LEAP
    ]
