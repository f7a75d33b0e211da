"""Unique keys that more than one message of a topic has: found by their digests, partition by partition.

A producer's retry after a lost answer stores a message a second time under its unique key, in the same topic. Digests
of 128 bits stand for the keys; each partition of them is looked at by itself, so that memory does not grow with the
store. (MessageClientIDSetter#setUniqID sets the key once, DefaultMQProducerImpl#sendDefaultImpl keeps it for retries)
"""

from __future__ import annotations

import heapq
import itertools
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.pipeline.jobs.diff_compare import name_digests, text_digests
from rmqctl.pipeline.jobs.stats_groups import GroupKey
from rmqctl.store.log.columns import Int32s, Int64s
from rmqctl.store.scan.arrays import Texts

LISTED = 20
"""Keys that are kept with their places, the earliest ones; all are counted."""
LISTED_PLACES = 5

ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("physical_offset", "<i8"), ("group", "<i8")])
# these take a message again under its old key, by design (SendMessageProcessor#consumerSendMsgBack)
_REPEATING = ("%RETRY%", "%DLQ%", "SCHEDULE_TOPIC_", "RMQ_SYS_", "rmq_sys_")


class Duplicate(NamedTuple):
    """One key of a topic, the messages that have it, and where the first few of them stand."""

    physical_offset: int
    topic: str
    messages: int
    places: tuple[int, ...]


@dataclass(slots=True)
class Duplicates:
    """`repeats`: messages of each group that have a key which an earlier message of their topic has. `keys`: distinct
    such keys of each topic. `first`: those of topics that do not repeat keys by design, in the order of the log."""

    repeats: dict[GroupKey, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    first: list[Duplicate] = field(default_factory=list)

    def add(self, other: Duplicates) -> None:
        """Count what another partition found, too."""
        for key, count in other.repeats.items():
            self.repeats[key] = self.repeats.get(key, 0) + count
        for topic, count in other.keys.items():
            self.keys[topic] = self.keys.get(topic, 0) + count
        self.first = heapq.nsmallest(LISTED, [*self.first, *other.first])


def repeats_by_design(topic: str) -> bool:
    """Whether the broker itself stores messages of this topic again under their old keys."""
    return topic.startswith(_REPEATING)


class KeyCollector:
    """Collects the unique keys of one split."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray[tuple[int], np.dtype[np.void]]] = []

    def add(self, keys: Texts, topic_ids: Int32s, topics: list[str], places: Int64s, groups: Int64s) -> None:
        """Messages with their unique keys, physical offsets and the numbers of their groups."""
        assert keys.present is not None
        have = np.flatnonzero(keys.present)
        rows = np.empty(len(have), ROW)
        digests = text_digests(keys, have) ^ name_digests(topic_ids[have], topics)
        rows["high"], rows["low"] = digests[:, 0], digests[:, 1]
        rows["physical_offset"], rows["group"] = places[have], groups[have]
        self._parts.append(rows)

    def finish(self, partitions: int, groups: Sequence[GroupKey]) -> list[bytes]:
        """The rows for each partition, packed; empty bytes for none."""
        rows = np.concatenate(self._parts) if self._parts else np.empty(0, ROW)
        self._parts = []
        number = rows["high"] % np.uint64(partitions)
        order = np.argsort(number, kind="stable")
        edges = np.searchsorted(number[order], np.arange(partitions + 1, dtype=np.uint64))
        chosen = [rows[order[begin:end]] for begin, end in itertools.pairwise(edges)]
        return [_packed(part, groups) if len(part) else b"" for part in chosen]


def _packed(rows: np.ndarray[tuple[int], np.dtype[np.void]], groups: Sequence[GroupKey]) -> bytes:
    """Rows whose groups are numbered anew, with those groups."""
    used, rows["group"] = np.unique(rows["group"], return_inverse=True)
    return pickle.dumps(([groups[number] for number in used.tolist()], rows.tobytes()))


def find_duplicates(packed: Iterable[bytes]) -> Duplicates:
    """The keys of one partition that occur more than once; `packed` by KeyCollector of every split."""
    groups: dict[GroupKey, int] = {}
    parts = []
    for one in packed:
        if not one:
            continue
        names, data = pickle.loads(one)
        rows = np.frombuffer(data, ROW).copy()
        numbers = np.array([groups.setdefault(name, len(groups)) for name in names], np.int64)
        rows["group"] = numbers[rows["group"]]
        parts.append(rows)
    found = Duplicates()
    if not parts:
        return found
    rows = _suspicious(np.concatenate(parts))
    rows = rows[np.lexsort((rows["physical_offset"], rows["low"], rows["high"]))]
    same = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
    again = np.flatnonzero(same) + 1
    keys = list(groups)
    numbers, counts = np.unique(rows["group"][again], return_counts=True)
    found.repeats = {keys[number]: count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}
    firsts = again[~same[again - 2] | (again == 1)] - 1
    topics = [str(key[0]) for key in keys]
    of_first = rows["group"][firsts].tolist()
    for number in of_first:
        found.keys[topics[number]] = found.keys.get(topics[number], 0) + 1
    wanted = firsts[[not repeats_by_design(topics[number]) for number in of_first]] if len(firsts) else firsts
    earliest = wanted[np.argsort(rows["physical_offset"][wanted], kind="stable")][:LISTED]
    found.first = [_duplicate(rows, first, same, topics) for first in earliest.tolist()]
    return found


def _suspicious(rows: np.ndarray[tuple[int], np.dtype[np.void]]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The rows whose first number is not theirs alone: nearly always few, and the rest need not be sorted whole."""
    order = np.argsort(rows["high"])
    high = rows["high"][order]
    same = high[1:] == high[:-1]
    is_shared = np.zeros(len(rows), np.bool_)
    is_shared[1:] |= same
    is_shared[:-1] |= same
    return rows[order[is_shared]]


def _duplicate(
    rows: np.ndarray[tuple[int], np.dtype[np.void]], first: int, same: np.ndarray[tuple[int], np.dtype[np.bool_]],
    topics: list[str],
) -> Duplicate:  # fmt: skip
    end = first + 1
    while end < len(rows) and same[end - 1]:
        end += 1
    places = rows["physical_offset"][first:end].tolist()
    return Duplicate(places[0], topics[int(rows["group"][first])], len(places), tuple(places[:LISTED_PLACES]))


# Where the broker's clock went back: from one message of the log to the next, across the edges of splits too.


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
