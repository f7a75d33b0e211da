"""Which queue offsets a queue's messages have, and how often each: summaries that can be merged in any order.

What is kept are stretches of offsets that occur equally often, sorted and as long as they can be: one stretch for a
queue in order, however many messages it has and wherever the log was cut into splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.int64]

OffsetSpan = tuple[int, int]
"""The first and the last offset of a stretch."""

# no checksum covers a queue offset: what damage made of one must not run over the edge of 64 bits
_LARGEST = 1 << 60


class OffsetSet(NamedTuple):
    """Stretches [starts, ends) of queue offsets, ascending and apart, and how often each offset of one occurs."""

    starts: _Numbers
    ends: _Numbers
    times: _Numbers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSet) and all(
            np.array_equal(mine, theirs) for mine, theirs in zip(self, other, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(part.tobytes() for part in self))


def offset_set(starts: _Numbers, ends: _Numbers, times: _Numbers | None = None) -> OffsetSet:
    """The set of stretches [starts, ends) in any order, which may overlap; each counts once, or `times` times."""
    counts = np.ones(len(starts), np.int64) if times is None else times
    filled = ends > starts
    starts, ends, counts = starts[filled], ends[filled], counts[filled]
    places, inverse = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    changes = np.zeros(len(places), np.int64)
    np.add.at(changes, inverse, np.concatenate([counts, -counts]))
    # where one stretch ends and another begins, nothing changes: they are one
    places, changes = places[changes != 0], changes[changes != 0]
    levels = np.cumsum(changes)
    held = np.flatnonzero(levels)
    return OffsetSet(places[held], places[held + 1], levels[held])


def merged(sets: Iterable[OffsetSet]) -> OffsetSet:
    """All offsets of several sets."""
    parts = list(sets)
    if not parts:
        return offset_set(np.empty(0, np.int64), np.empty(0, np.int64))
    if len(parts) == 1:
        return parts[0]
    return offset_set(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class OffsetNumbers(NamedTuple):
    """What a set says of a queue. `messages`: offsets that occur, repeats counted; `missing`: offsets between the
    smallest and the largest that do not; `repeated`: occurrences beyond the first of each. The spans are the first
    few of each."""

    min_offset: int
    max_offset: int
    messages: int
    missing: int
    missing_spans: list[OffsetSpan]
    repeated: int
    repeated_spans: list[OffsetSpan]


def offset_numbers(offsets: OffsetSet, listed: int) -> OffsetNumbers:
    """The numbers of a set that is not empty, with `listed` spans of each kind. Offsets are inclusive."""
    starts, ends, times = offsets
    lengths = ends - starts
    gaps = starts[1:] - ends[:-1]
    holes = np.flatnonzero(gaps > 0)
    often = np.flatnonzero(times > 1)
    return OffsetNumbers(
        int(starts[0]),
        int(ends[-1]) - 1,
        int((lengths * times).sum()),
        int(gaps.sum()),
        [(int(ends[hole]), int(starts[hole + 1]) - 1) for hole in holes[:listed].tolist()],
        int((lengths * (times - 1)).sum()),
        [(int(starts[place]), int(ends[place]) - 1) for place in often[:listed].tolist()],
    )


class OffsetCollector:
    """Collects the queue offsets of one split, queue by queue."""

    def __init__(self) -> None:
        self._parts: list[tuple[_Numbers, _Numbers, _Numbers]] = []
        self._single: dict[tuple[str, int], list[OffsetSpan]] = {}

    def add(self, queues: _Numbers, offsets: _Numbers) -> None:
        """Messages in the order of the log; `queues` is a code of the queue of each."""
        if not len(queues):
            return
        order = np.argsort(queues, kind="stable")
        queues, offsets = queues[order], np.clip(offsets[order], -_LARGEST, _LARGEST)
        breaks = (queues[1:] != queues[:-1]) | (offsets[1:] - offsets[:-1] != 1)
        first = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(breaks) + 1])
        last = np.concatenate([first[1:] - 1, np.array([len(queues) - 1])])
        self._parts.append((queues[first], offsets[first], offsets[last] + 1))

    def add_one(self, queue: tuple[str, int], offset: int, count: int) -> None:
        """A message that takes `count` offsets of a queue."""
        start = max(-_LARGEST, min(offset, _LARGEST))
        self._single.setdefault(queue, []).append((start, start + count))

    def finish(self, name_of: Callable[[int], tuple[str, int]]) -> dict[tuple[str, int], OffsetSet]:
        """The sets; `name_of` gives the queue of a code."""
        made: dict[tuple[str, int], list[OffsetSet]] = {}
        if self._parts:
            queues, starts, ends = (np.concatenate(part) for part in zip(*self._parts, strict=True))
            order = np.argsort(queues, kind="stable")
            queues, starts, ends = queues[order], starts[order], ends[order]
            codes, first = np.unique(queues, return_index=True)
            pairs = zip(np.split(starts, first[1:]), np.split(ends, first[1:]), strict=True)
            for code, (begin, end) in zip(codes.tolist(), pairs, strict=True):
                made.setdefault(name_of(code), []).append(offset_set(begin, end))
        for queue, spans in self._single.items():
            both = np.array(spans, np.int64)
            made.setdefault(queue, []).append(offset_set(both[:, 0], both[:, 1]))
        return {queue: merged(parts) for queue, parts in made.items()}
