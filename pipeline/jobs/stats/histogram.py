"""Histograms in powers of two: exact counts, added up in any order, for sizes and for spans that may be negative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_POWERS = np.left_shift(np.int64(1), np.arange(63, dtype=np.int64))
LOWEST, HIGHEST = -64, 64
"""All buckets lie between these."""

Histogram = dict[int, int]
"""Messages by bucket, see `bounds`."""


class Bar(NamedTuple):
    """How many messages have a value in [at_least, at_most]."""

    at_least: int
    at_most: int
    messages: int


def buckets(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket of each value: 0 of zero, else the number of its binary digits, negative for a negative value."""
    # the smallest number has no positive twin
    sizes = np.abs(np.maximum(values, -(1 << 63) + 1))
    digits = np.searchsorted(_POWERS, sizes, side="right")
    return np.where(values < 0, -digits, digits)


def bounds(bucket: int) -> tuple[int, int]:
    """The smallest and the largest value of a bucket."""
    if bucket == 0:
        return 0, 0
    low, high = 1 << abs(bucket) - 1, (1 << abs(bucket)) - 1
    return (low, high) if bucket > 0 else (-high, -low)


def add(into: Histogram, more: Mapping[int, int]) -> None:
    """Count what `more` counted, too."""
    for bucket, messages in more.items():
        into[bucket] = into.get(bucket, 0) + messages


def bars(histogram: Mapping[int, int]) -> list[Bar]:
    """The buckets that hold messages, lowest values first."""
    return [Bar(*bounds(bucket), messages) for bucket, messages in sorted(histogram.items())]


def at_most(histogram: Mapping[int, int], share: float) -> int | None:
    """A value that at least `share` of the messages do not exceed: the upper end of its bucket. None without any."""
    left = share * sum(histogram.values())
    for bar in bars(histogram):
        left -= bar.messages
        if left <= 0:
            return bar.at_most
    return None
