"""The messages that two stores do not have in common, partition by partition: what became of each of them.

First by topic, queue and queue offset, the place at which a consumer would get a message. Then by unique key: a message
that the other store has at another place of the same topic was moved, not lost.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqctl.pipeline.jobs.diff.rows import BY_KEY, Rows, unpacked
from rmqctl.store.queues.unit import QueueKey

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
