"""The second look of a diff: digests of the messages of a stretch, and those of them that stand in one log only."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.pipeline.jobs.diff.compare import Pair
from rmqctl.pipeline.jobs.digests import Digests, Sums, content_digests, frame_digests, name_digests, text_digests
from rmqctl.pipeline.splits.splits import Split, open_split, split_columns
from rmqctl.store.columns.batch import Columns, Int32s, Int64s, MessageColumns
from rmqctl.store.columns.topics import TopicIds
from rmqctl.store.queues.unit import QueueKey
from rmqctl.store.scan.property_columns import PropertyParts
from rmqctl.store.scan.property_engine import property_columns

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
