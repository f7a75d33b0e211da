"""The broker's binary search for the first unit of a queue whose message the log still has."""

from __future__ import annotations

from rmqctl.store.columns.batch import Int64s


def narrowed(offsets: Int64s, wanted: int) -> tuple[int, int]:
    """The binary search of ConsumeQueue#correctMinOffset: the last two candidates, which need not hold the answer."""
    low, high = 0, len(offsets) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if offsets[middle] > wanted:
            high = middle
        elif offsets[middle] == wanted:
            return middle, middle
        else:
            low = middle
    return low, high
