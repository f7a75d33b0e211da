"""The messages that two stores do not have in common, partition by partition: what became of each of them.

First by topic, queue and queue offset, the place at which a consumer would get a message. Then by unique key: a message
that the other store has at another place of the same topic was moved, not lost.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.pipeline.jobs.diff_compare import (
    Digests,
    Pair,
    Sums,
    content_digests,
    frame_digests,
    name_digests,
    text_digests,
)
from rmqctl.pipeline.splits import Split, open_split, split_columns
from rmqctl.store.log.columns import Int32s, Int64s, MessageColumns, TopicIds
from rmqctl.store.native.tables import Columns
from rmqctl.store.queues.consumequeue import QueueKey
from rmqctl.store.scan.property_engine import property_columns
from rmqctl.store.scan.schema import PropertyParts

# The second look of a diff: digests of the messages of a stretch, and those of them that stand in one log only.

ROW = np.dtype(
    [
        ("high", "<u8"),
        ("low", "<u8"),
        ("key_high", "<u8"),
        ("key_low", "<u8"),
        ("physical_offset", "<i8"),
        ("queue_offset", "<i8"),
        ("queue_id", "<i4"),
        ("topic", "<i4"),
        ("size", "<i4"),
        ("side", "<i4"),
    ]
)
"""A message: the digest of what is compared, that of its unique key (zeros without one), where it stands. `side`: 0 of
log a, 1 of b."""
Rows = np.ndarray[tuple[int], np.dtype[np.void]]

BY_PLACE, BY_KEY = 0, 1
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


class Likeness(NamedTuple):
    """How messages are compared: by `content` only, or with all that is stored of them. Digests are of messages that
    start in [common_begin, common_end). `partitions`: of places; there are as many of unique keys. `divergence`: the
    physical offset where the logs part, if they do."""

    content: bool
    common_begin: int
    common_end: int
    partitions: int
    divergence: int | None


class Digested(NamedTuple):
    """The sums of each log, by queue, and how many messages of each topic stand in both logs at one place; of these
    `again` behind the divergence."""

    a: dict[QueueKey, Sums]
    b: dict[QueueKey, Sums]
    in_place: dict[str, int]
    again: int


def digest(plan: Likeness, item: tuple[Pair, bool]) -> tuple[Digested, list[bytes]]:
    """The digests of a stretch, and its unmatched messages for each partition: of places first, then of keys.

    `item` says with a stretch whether all messages in it are known to be the same. Errors as of `split_columns`.
    """
    pair, is_same = item
    topics = TopicIds()
    if is_same:
        sums, count, again = _sums_only(plan, pair.a, topics)
        return Digested(sums, sums, count, again), [b""] * (2 * plan.partitions)
    sides = [_rows(plan, split, side, topics) for side, split in enumerate((pair.a, pair.b))]
    (rows_a, sums_a), (rows_b, sums_b) = sides
    left, paired = _without_pairs(rows_a, rows_b)
    in_place = _by_topic(paired["topic"], topics.names)
    again = _behind(plan, paired["physical_offset"])
    return Digested(sums_a, sums_b, in_place, again), _packed(left, topics.names, plan.partitions)


def _digests(plan: Likeness, batch: MessageColumns) -> Digests:
    return content_digests(batch) if plan.content else frame_digests(batch)


def _behind(plan: Likeness, places: Int64s) -> int:
    return 0 if plan.divergence is None else int(np.count_nonzero(places > plan.divergence))


def _by_topic(ids: Int32s, topics: list[str]) -> dict[str, int]:
    numbers, counts = np.unique(ids, return_counts=True)
    return {topics[number]: count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}


def _sums_only(
    plan: Likeness, split: Split | None, topics: TopicIds
) -> tuple[dict[QueueKey, Sums], dict[str, int], int]:
    sums: dict[QueueKey, Sums] = {}
    counts: Counter[str] = Counter()
    again = 0
    if split is None:
        return sums, counts, again
    with open_split(split) as files:
        wanted = Columns.HEAD | Columns.TOPIC | Columns.BYTES
        for batch in split_columns(files, split, columns=wanted, topics=topics):
            if not isinstance(batch, MessageColumns):
                continue
            _add_sums(plan, sums, batch, _digests(plan, batch))
            counts.update(_by_topic(batch.topic_id, topics.names))
            again += _behind(plan, batch.physical_offset)
    return sums, counts, again


def _rows(plan: Likeness, split: Split | None, side: int, topics: TopicIds) -> tuple[Rows, dict[QueueKey, Sums]]:
    sums: dict[QueueKey, Sums] = {}
    parts = [np.empty(0, ROW)]
    if split is None:
        return parts[0], sums
    with open_split(split) as files:
        wanted = Columns.HEAD | Columns.TOPIC | Columns.BYTES
        for batch in split_columns(files, split, columns=wanted, topics=topics):
            if not isinstance(batch, MessageColumns):
                continue
            digests = _digests(plan, batch)
            _add_sums(plan, sums, batch, digests)
            parts.append(_batch_rows(batch, digests, side))
    return np.concatenate(parts), sums


def _batch_rows(batch: MessageColumns, digests: Digests, side: int) -> Rows:
    rows = np.zeros(batch.rows, ROW)
    rows["high"], rows["low"] = digests[:, 0], digests[:, 1]
    for name in ("physical_offset", "queue_offset", "queue_id", "size"):
        rows[name] = getattr(batch, name)
    rows["topic"], rows["side"] = batch.topic_id, side
    keys = property_columns(batch, batch.property_position, batch.property_length, PropertyParts.UNIQUE_KEY).unique_key
    assert keys.present is not None
    have = np.flatnonzero(keys.present)
    of_keys = text_digests(keys, have)
    rows["key_high"][have], rows["key_low"][have] = of_keys[:, 0], of_keys[:, 1]
    return rows


def _add_sums(plan: Likeness, sums: dict[QueueKey, Sums], batch: MessageColumns, digests: Digests) -> None:
    """Add up the digests of a batch, queue by queue, each in the order of the log."""
    places = batch.physical_offset
    chosen = np.flatnonzero((places >= plan.common_begin) & (places < plan.common_end))
    if not len(chosen):
        return
    codes = (batch.topic_id[chosen].astype(np.int64) << 32) | (batch.queue_id[chosen].astype(np.int64) & 0xFFFFFFFF)
    order = np.argsort(codes, kind="stable")
    codes, digests = codes[order], digests[chosen[order]]
    edges = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
    for begin, end in itertools.pairwise(edges):
        row = int(chosen[order[begin]])
        queue = batch.topic(row), int(batch.queue_id[row])
        sums.setdefault(queue, Sums()).add(digests[begin:end])


def same_message(one: Rows, other: Rows) -> NDArray[np.bool_]:
    """Whether what is compared of messages is the same."""
    names = ("high", "low", "topic", "queue_id", "queue_offset")
    same: NDArray[np.bool_] = np.logical_and.reduce([one[name] == other[name] for name in names])
    return same


def _without_pairs(a: Rows, b: Rows) -> tuple[Rows, Rows]:
    """The rows that are not the same at the same place of both logs, and those that are, once."""
    places = a["physical_offset"], b["physical_offset"]
    _, rows_a, rows_b = np.intersect1d(*places, assume_unique=True, return_indices=True)
    same = same_message(a[rows_a], b[rows_b])
    left = np.concatenate([np.delete(a, rows_a[same]), np.delete(b, rows_b[same])])
    return left, a[rows_a[same]]


def _packed(rows: Rows, topics: list[str], partitions: int) -> list[bytes]:
    """The rows for each partition, by their place in the queues, and those with a unique key once more by that."""
    names = name_digests(rows["topic"], topics)[:, 0] if len(rows) else np.empty(0, np.uint64)
    place = rows["queue_offset"].astype(np.uint64) * _MIX ^ rows["queue_id"].astype(np.uint64) ^ names
    place = (place ^ place >> _SHIFT) * _MIX
    packed = _by_partition(BY_PLACE, rows, (place >> _SHIFT) % np.uint64(partitions), topics, partitions)
    keyed = rows[(rows["key_high"] != 0) | (rows["key_low"] != 0)]
    return packed + _by_partition(BY_KEY, keyed, keyed["key_high"] % np.uint64(partitions), topics, partitions)


def _by_partition(
    kind: int, rows: Rows, numbers: NDArray[np.uint64], topics: list[str], partitions: int
) -> list[bytes]:
    order = np.argsort(numbers, kind="stable")
    edges = np.searchsorted(numbers[order], np.arange(partitions + 1, dtype=np.uint64))
    packed = []
    for begin, end in itertools.pairwise(edges.tolist()):
        part = rows[order[begin:end]]
        used, part["topic"] = np.unique(part["topic"], return_inverse=True)
        names = [topics[number] for number in used.tolist()]
        packed.append(pickle.dumps((kind, names, part.tobytes())) if len(part) else b"")
    return packed


def unpacked(pieces: list[bytes]) -> tuple[int, Rows, list[str]]:
    """The rows of one partition, all of one kind, which has some; their topics are numbers of the names."""
    known: dict[str, int] = {}
    parts, kind = [], BY_PLACE
    for piece in pieces:
        kind, names, data = pickle.loads(piece)
        rows = np.frombuffer(data, ROW).copy()
        numbers: Int64s = np.array([known.setdefault(name, len(known)) for name in names], np.int64)
        rows["topic"] = numbers[rows["topic"]]
        parts.append(rows)
    return kind, np.concatenate(parts), list(known)


SAME, CHANGED, REPLACED, MOVED = "same", "changed", "replaced", "moved"
"""At the same place of the queue: the same; the same unique key (or none) with something else stored; another message.
Elsewhere: moved."""
CLEANED, BEHIND, DAMAGED, ABSENT = "cleaned", "behind", "damaged", "absent"
"""Why a message has none over there: its place lies before the other log's first message, or behind its last, or where
that log is damaged; else it should be there and is not."""
_RANKS = {CLEANED: 2, BEHIND: 1}
REASONS = (CLEANED, BEHIND, DAMAGED, ABSENT)
SIDES = ("a", "b")


class Facts(NamedTuple):
    """What is known of one log. `damage`: the beginnings and the ends of its damaged spans, ascending. `queues`: the
    smallest and the largest queue offset of each queue."""

    min_offset: int
    end: int
    damage: tuple[tuple[int, ...], tuple[int, ...]]
    queues: dict[QueueKey, tuple[int, int]]


class Knowledge(NamedTuple):
    """`is_shared`: both logs are copies of one, so that physical offsets mean the same in both. `is_parted`: they were,
    and then each went its own way. `limit`: differences that are kept with their places, all are counted."""

    a: Facts
    b: Facts
    is_shared: bool
    is_parted: bool
    limit: int


class Difference(NamedTuple):
    """One message, or two at one place of a queue: `offset_a` and `offset_b` are their physical offsets, -1 for none.

    `state`: CHANGED, REPLACED, MOVED or a reason of REASONS. `queue_id` and `queue_offset` are those in log a, else b.
    They are listed by `rank`, what is least expected first, and then by `offset`, the smaller physical offset.
    """

    rank: int
    offset: int
    offset_a: int
    offset_b: int
    topic: str
    queue_id: int
    queue_offset: int
    state: str


@dataclass(slots=True)
class Matched:
    """`counts` by topic, side ("" for both, else of SIDES, the one that has the message) and state. `first`: some of
    the differences, in their order."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    first: list[Difference] = field(default_factory=list)

    def add(self, other: Matched, limit: int) -> None:
        """What another partition has."""
        self.counts += other.counts
        self.first = heapq.nsmallest(limit, [*self.first, *other.first])


def match(knowledge: Knowledge, pieces: Iterable[bytes]) -> Matched:
    """What became of the messages of one partition, by place or by key; `pieces` as `diff_rows.digest` has them."""
    given = [piece for piece in pieces if piece]
    if not given:
        return Matched()
    kind, rows, topics = unpacked(given)
    matcher = _Matcher(knowledge, rows, topics)
    if kind == BY_KEY:
        matcher.by_key()
    else:
        matcher.by_place()
    return matcher.finish()


class _Matcher:
    """Matches the rows of one partition."""

    def __init__(self, knowledge: Knowledge, rows: Rows, topics: list[str]) -> None:
        self._knowledge = knowledge
        self._rows = rows
        self._topics = topics
        self._found = Matched()

    def finish(self) -> Matched:
        """All that was found."""
        self._found.first = heapq.nsmallest(self._knowledge.limit, self._found.first)
        return self._found

    def by_place(self) -> None:
        """Match the messages at each place of a queue."""
        names = ("topic", "queue_id", "queue_offset")
        for group in self._groups(names, ("physical_offset", "side")):
            sides = self._rows["side"][group]
            self._place(group[sides == 0].tolist(), group[sides == 1].tolist())

    def by_key(self) -> None:
        """Find messages that stand at different places under one unique key."""
        names = ("topic", "key_high", "key_low")
        for group in self._groups(names, ("physical_offset", "side")):
            sides = self._rows["side"][group]
            if sides[0] == sides[-1] and len(set(sides.tolist())) == 1:
                continue
            at = {row: self._place_of(row) for row in group.tolist()}
            own = [[row for row in at if self._rows["side"][row] == side] for side in (0, 1)]
            # those at one place have been matched there, one by one
            common = Counter(at[row] for row in own[0]) & Counter(at[row] for row in own[1])
            left = [_without(rows, at, Counter(common)) for rows in own]
            for one, other in zip(*left, strict=False):
                self._count("", MOVED, one, other)

    def _groups(
        self, names: tuple[str, ...], order: tuple[str, ...]
    ) -> Iterable[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """The row numbers of each group of rows with the same fields `names`, each sorted by `order`."""
        rows = self._rows
        places = np.lexsort([rows[name] for name in (*reversed(order), *reversed(names))])
        differs = np.logical_or.reduce([rows[name][places[1:]] != rows[name][places[:-1]] for name in names])
        edges = [0, *(np.flatnonzero(differs) + 1).tolist(), len(rows)]
        for begin, end in itertools.pairwise(edges):
            yield places[begin:end]

    def _place_of(self, row: int) -> tuple[int, int]:
        return int(self._rows["queue_id"][row]), int(self._rows["queue_offset"][row])

    def _digest(self, row: int) -> tuple[int, int]:
        return int(self._rows["high"][row]), int(self._rows["low"][row])

    def _place(self, a: list[int], b: list[int]) -> None:
        """Match the messages that both logs have at one place, in the order of the logs."""
        if a and b:
            at = {row: self._digest(row) for row in (*a, *b)}
            common = Counter(at[row] for row in a) & Counter(at[row] for row in b)
            if common:
                self._found.counts[self._topics[self._rows["topic"][a[0]]], "", SAME] += common.total()
                a, b = (_without(rows, at, Counter(common)) for rows in (a, b))
            for one, other in zip(a, b, strict=False):
                self._count("", self._relation(one, other), one, other)
            paired = min(len(a), len(b))
            a, b = a[paired:], b[paired:]
        for row in a:
            self._count("a", self._reason(row, self._knowledge.b), row, None)
        for row in b:
            self._count("b", self._reason(row, self._knowledge.a), None, row)

    def _relation(self, one: int, other: int) -> str:
        keys = [(int(self._rows["key_high"][row]), int(self._rows["key_low"][row])) for row in (one, other)]
        return CHANGED if keys[0] == keys[1] else REPLACED

    def _reason(self, row: int, other: Facts) -> str:
        """Why the other log has nothing at this message's place."""
        place, size = int(self._rows["physical_offset"][row]), int(self._rows["size"][row])
        begins, ends = other.damage
        if self._knowledge.is_shared:
            if place < other.min_offset:
                return CLEANED
            number = bisect_right(ends, place)
            if number < len(begins) and begins[number] < place + size:
                return DAMAGED
            return BEHIND if place >= other.end and not self._knowledge.is_parted else ABSENT
        queue_id, offset = self._place_of(row)
        bounds = other.queues.get((self._topics[self._rows["topic"][row]], queue_id))
        if bounds is not None and offset < bounds[0]:
            return CLEANED
        if bounds is not None and offset > bounds[1]:
            return BEHIND
        # where it would stand cannot be known: it may have been what is damaged now
        return DAMAGED if begins else ABSENT

    def _count(self, side: str, state: str, a: int | None, b: int | None) -> None:
        row = a if a is not None else b
        assert row is not None
        topic = self._topics[self._rows["topic"][row]]
        self._found.counts[topic, side, state] += 1
        offsets = [-1 if one is None else int(self._rows["physical_offset"][one]) for one in (a, b)]
        first = min(offset for offset in offsets if offset >= 0)
        rank = _RANKS.get(state, 0)
        self._found.first.append(Difference(rank, first, offsets[0], offsets[1], topic, *self._place_of(row), state))
        if len(self._found.first) > 2 * self._knowledge.limit + 1000:
            self._found.first = heapq.nsmallest(self._knowledge.limit, self._found.first)


def _without(rows: list[int], at: dict[int, tuple[int, int]], matched: Counter[tuple[int, int]]) -> list[int]:
    """The rows without the first ones at each place, as many as are matched there."""
    left = []
    for row in rows:
        if matched[at[row]] > 0:
            matched[at[row]] -= 1
        else:
            left.append(row)
    return left
