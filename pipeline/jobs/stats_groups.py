"""Messages counted by groups: by topic, and further by queue, tag, producer host and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.hosts import Host
from rmqctl.formats.layouts import SYS_FLAG_BORN_HOST_V6
from rmqctl.store.log.columns import Int64s, MessageColumns, differences
from rmqctl.store.scan.arrays import Texts, host_bytes, texts

# Histograms in powers of two: exact counts, added up in any order, for sizes and for spans that may be negative.

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


HOUR = 3_600_000
DAY = 24 * HOUR
DIMENSIONS = ("topic", "queue", "tag", "host", "hour", "day")
"""What messages can be grouped by; the last two are of the store time, UTC."""

GroupKey = tuple[str | int | None, ...]
"""A group: its topic first, whether asked for or not, then queue id, tag (None: without), host (without its port) and
the beginning of the hour or day in ms, as asked for, in the order of DIMENSIONS."""

_WIDTH = HIGHEST - LOWEST + 1
# the columns of the table that is counted in
_MESSAGES, _BYTES, _FIRST, _LAST, _SMALLEST, _LARGEST, _SHORTEST, _LONGEST, _FUTURE, _JUMPS = range(10)
_LEAST = (_FIRST, _SMALLEST, _SHORTEST)
_MOST = (_LAST, _LARGEST, _LONGEST)


@dataclass(slots=True)
class GroupNumbers:
    """The messages of one group. Times in ms, sizes in bytes as stored; delays in ms from born to stored.

    `first_store_timestamp` and `last_…` are the smallest and the largest. `in_future`: stored after the time that was
    said to be now. `clock_jumps`: messages in front of which the broker's clock went back.
    """

    messages: int
    bytes: int
    first_store_timestamp: int
    last_store_timestamp: int
    smallest: int
    largest: int
    shortest_delay: int
    longest_delay: int
    in_future: int
    clock_jumps: int
    sizes: Histogram = field(default_factory=dict)
    delays: Histogram = field(default_factory=dict)

    def add(self, other: GroupNumbers) -> None:
        """Count the messages of `other`, too."""
        self.messages += other.messages
        self.bytes += other.bytes
        self.in_future += other.in_future
        self.clock_jumps += other.clock_jumps
        self.first_store_timestamp = min(self.first_store_timestamp, other.first_store_timestamp)
        self.last_store_timestamp = max(self.last_store_timestamp, other.last_store_timestamp)
        self.smallest = min(self.smallest, other.smallest)
        self.largest = max(self.largest, other.largest)
        self.shortest_delay = min(self.shortest_delay, other.shortest_delay)
        self.longest_delay = max(self.longest_delay, other.longest_delay)
        add(self.sizes, other.sizes)
        add(self.delays, other.delays)


def add_groups(into: dict[GroupKey, GroupNumbers], more: Iterable[tuple[GroupKey, GroupNumbers]]) -> None:
    """Count what `more` counted, too."""
    for key, numbers in more:
        known = into.get(key)
        if known is None:
            into[key] = replace(numbers, sizes=dict(numbers.sizes), delays=dict(numbers.delays))
        else:
            known.add(numbers)


class _Names:
    """Numbers for values, in the order they are met."""

    def __init__(self) -> None:
        self.values: list[str | None] = []
        self._numbers: dict[str | None, int] = {}

    def number(self, value: str | None) -> int:
        found = self._numbers.setdefault(value, len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found

    def numbers(self, values: Iterable[str | None]) -> Int64s:
        return np.array([self.number(value) for value in values], np.int64)


class GroupCounter:
    """Counts the messages of one split. `now` in ms, or None where no time is in the future."""

    def __init__(self, dimensions: Iterable[str], now: int | None) -> None:
        chosen = set(dimensions)
        self.dimensions = tuple(name for name in DIMENSIONS[1:] if name in chosen)
        self._now = now
        self._tags, self._hosts = _Names(), _Names()
        self._ids: dict[tuple[int, ...], int] = {}
        self._table = _fresh(16)
        self._bars: dict[str, list[tuple[Int64s, Int64s]]] = {"sizes": [], "delays": []}

    @property
    def needs_tags(self) -> bool:
        """Whether `add` has to be given tags."""
        return "tag" in self.dimensions

    def add(self, batch: MessageColumns, rows: Int64s, tags: Texts | None, jumped: Int64s) -> Int64s:
        """Count rows of a batch, at least one, with all columns but keys; `tags` are theirs.

        `jumped`: rows of the batch in front of which the clock went back. The number of each row's group is returned.
        """
        groups = self._groups(batch, rows, tags)
        table = self._room()
        sizes = batch.size[rows].astype(np.int64)
        stored = batch.store_timestamp[rows]
        delays = differences(stored, batch.born_timestamp[rows])
        table[: len(self._ids), _MESSAGES] += np.bincount(groups, minlength=len(self._ids))
        np.add.at(table[:, _BYTES], groups, sizes)
        for column, values in zip(_LEAST, (stored, sizes, delays), strict=True):
            np.minimum.at(table[:, column], groups, values)
        for column, values in zip(_MOST, (stored, sizes, delays), strict=True):
            np.maximum.at(table[:, column], groups, values)
        if self._now is not None:
            np.add.at(table[:, _FUTURE], groups[stored > self._now], 1)
        if len(jumped):
            np.add.at(table[:, _JUMPS], groups[np.isin(rows, jumped)], 1)
        for name, values in (("sizes", sizes), ("delays", delays)):
            self._bars[name].append(_counted(groups * _WIDTH + buckets(values) - LOWEST))
        return groups

    def _room(self) -> Int64s:
        if len(self._ids) > len(self._table):
            self._table = np.concatenate([self._table, _fresh(2 * len(self._ids) - len(self._table))])
        return self._table

    def _groups(self, batch: MessageColumns, rows: Int64s, tags: Texts | None) -> Int64s:
        """The number of each row's group."""
        columns = [batch.topic_id[rows].astype(np.int64)]
        for name in self.dimensions:
            if name == "queue":
                columns.append(batch.queue_id[rows].astype(np.int64))
            elif name == "tag":
                assert tags is not None
                columns.append(self._tag_numbers(tags))
            elif name == "host":
                columns.append(self._host_numbers(batch, rows))
            else:
                columns.append(batch.store_timestamp[rows] // (HOUR if name == "hour" else DAY))
        codes = np.zeros(len(rows), np.int64)
        for column in columns:
            distinct, inverse = np.unique(column, return_inverse=True)
            codes = np.unique(codes * len(distinct) + inverse, return_inverse=True)[1]
        first = np.unique(codes, return_index=True)[1]
        met = zip(*(column[first].tolist() for column in columns), strict=True)
        ids = [self._ids.setdefault(key, len(self._ids)) for key in met]
        found: Int64s = np.array(ids, np.int64)[codes]
        return found

    def _tag_numbers(self, tags: Texts) -> Int64s:
        encoded = texts(tags).dictionary_encode("encode")
        numbers = self._tags.numbers(encoded.dictionary.to_pylist())
        found: Int64s = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def _host_numbers(self, batch: MessageColumns, rows: Int64s) -> Int64s:
        is_v6 = (batch.sys_flag[rows] & SYS_FLAG_BORN_HOST_V6) != 0
        found = np.empty(len(rows), np.int64)
        for of, size in ((~is_v6, 4), (is_v6, 16)):
            if not of.any():
                continue
            addresses = np.ascontiguousarray(host_bytes(batch.take(rows[of]), "born", size)[:, :size])
            plain = addresses.view(np.dtype((np.void, size))).reshape(-1) if size > 4 else addresses.view(np.uint32)
            distinct, inverse = np.unique(plain.reshape(-1), return_inverse=True)
            found[of] = self._hosts.numbers(map(_address, distinct))[inverse]
        return found

    def keys(self, topics: list[str]) -> list[GroupKey]:
        """The groups, by their numbers; `topics` are the names behind the batches' topic ids."""
        return [self._key(numbers, topics) for numbers in self._ids]

    def _key(self, numbers: tuple[int, ...], topics: list[str]) -> GroupKey:
        key: list[str | int | None] = [topics[numbers[0]]]
        for name, number in zip(self.dimensions, numbers[1:], strict=True):
            if name in ("tag", "host"):
                key.append((self._tags if name == "tag" else self._hosts).values[number])
            else:
                key.append(number * {"queue": 1, "hour": HOUR, "day": DAY}[name])
        return tuple(key)

    def finish(self, topics: list[str]) -> list[tuple[GroupKey, GroupNumbers]]:
        """All groups."""
        keys = self.keys(topics)
        found = [GroupNumbers(*row) for row in self._table[: len(keys)].tolist()]
        for name, parts in self._bars.items():
            if not parts:
                continue
            codes, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
            distinct, inverse = np.unique(codes, return_inverse=True)
            sums = np.zeros(len(distinct), np.int64)
            np.add.at(sums, inverse, counts)
            for code, count in zip(distinct.tolist(), sums.tolist(), strict=True):
                getattr(found[code // _WIDTH], name)[code % _WIDTH + LOWEST] = count
        return list(zip(keys, found, strict=True))


def _fresh(rows: int) -> Int64s:
    """A table that has counted nothing."""
    table = np.zeros((rows, 10), np.int64)
    table[:, _LEAST] = np.iinfo(np.int64).max
    table[:, _MOST] = np.iinfo(np.int64).min
    return table


def _counted(codes: NDArray[np.int64]) -> tuple[Int64s, Int64s]:
    distinct, counts = np.unique(codes, return_counts=True)
    return distinct, counts.astype(np.int64)


def _address(stored: np.generic) -> str:
    """The text of an address without the port."""
    return str(Host(stored.tobytes(), 0)).removesuffix(":0")


# Which queue offsets a queue's messages have, and how often each: summaries that can be merged in any order.
#
# What is kept are stretches of offsets that occur equally often, sorted and as long as they can be: one stretch for a
# queue in order, however many messages it has and wherever the log was cut into splits.

_Numbers = NDArray[np.int64]

OffsetSpan = tuple[int, int]
"""The first and the last offset of a stretch."""

# no checksum covers a queue offset: what damage made of one must not run over the edge of 64 bits
_OFFSETS_LARGEST = 1 << 60


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
        queues, offsets = queues[order], np.clip(offsets[order], -_OFFSETS_LARGEST, _OFFSETS_LARGEST)
        breaks = (queues[1:] != queues[:-1]) | (offsets[1:] - offsets[:-1] != 1)
        first = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(breaks) + 1])
        last = np.concatenate([first[1:] - 1, np.array([len(queues) - 1])])
        self._parts.append((queues[first], offsets[first], offsets[last] + 1))

    def add_one(self, queue: tuple[str, int], offset: int, count: int) -> None:
        """A message that takes `count` offsets of a queue."""
        start = max(-_OFFSETS_LARGEST, min(offset, _OFFSETS_LARGEST))
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
