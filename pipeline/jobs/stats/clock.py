"""Where the broker's clock went back: from one message of the log to the next, across the edges of splits too."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LISTED = 20
"""Jumps that are kept with their places, the largest ones; all are counted."""


class Stamp(NamedTuple):
    """A message's store time in ms, and where it stands."""

    timestamp: int
    physical_offset: int


class Jump(NamedTuple):
    """The message at `physical_offset` was stored `milliseconds` before the one in front of it, as they say."""

    milliseconds: int
    physical_offset: int
    from_timestamp: int
    to_timestamp: int


class Clock(NamedTuple):
    """What a stretch of the log says of the clock; None of a stretch without messages. `largest` jumps first."""

    first: Stamp
    last: Stamp
    jumps: int
    largest: tuple[Jump, ...]


def clock_of(times: NDArray[np.int64], places: NDArray[np.int64]) -> tuple[Clock, NDArray[np.int64]]:
    """The clock of messages in the order of the log, at least one, and the rows behind jumps."""
    rows = np.flatnonzero(times[1:] < times[:-1]) + 1
    backwards = np.argsort(times[rows] - times[rows - 1], kind="stable")
    jumps = [_jump(times[row - 1], times[row], places[row]) for row in rows[backwards][:LISTED].tolist()]
    first, last = (Stamp(int(times[row]), int(places[row])) for row in (0, -1))
    return Clock(first, last, len(rows), tuple(jumps)), rows


def _jump(before: int, after: int, place: int) -> Jump:
    return Jump(int(before) - int(after), int(place), int(before), int(after))


def jump_between(earlier: Clock | None, later: Clock | None) -> Jump | None:
    """The jump at the edge of two stretches, one behind the other."""
    if earlier is None or later is None or later.first.timestamp >= earlier.last.timestamp:
        return None
    return _jump(earlier.last.timestamp, later.first.timestamp, later.first.physical_offset)


def joined_clocks(earlier: Clock | None, later: Clock | None) -> Clock | None:
    """The clock of two stretches, one behind the other."""
    if earlier is None or later is None:
        return earlier or later
    edge = jump_between(earlier, later)
    jumps = [*earlier.largest, *later.largest, *([edge] if edge else [])]
    largest = heapq.nsmallest(LISTED, jumps, key=lambda jump: (-jump.milliseconds, jump.physical_offset))
    count = earlier.jumps + later.jumps + (edge is not None)
    return Clock(earlier.first, later.last, count, tuple(largest))
