"""The messages that two stores do not have in common, partition by partition: what became of each of them, by SQL.

First by topic, queue and queue offset, the place at which a consumer would get a message. Then by unique key: a message
that the other store has at another place of the same topic was moved, not lost.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.pipeline.jobs.diff_compare import (
    Digests,
    Pair,
    Sums,
    content_digests,
    frame_digests,
    name_digests,
    queue_codes,
    queue_of,
    sums_by_code,
    text_digests,
)
from rmqctl.pipeline.splits import Split, open_split, split_columns
from rmqctl.pipeline.views import open_tables, pack, unpack
from rmqctl.store.log.columns import Int32s, Int64s, MessageColumns, TopicIds
from rmqctl.store.log.property_columns import PropertyParts, property_columns
from rmqctl.store.native.tables import Columns
from rmqctl.store.queues.consumequeue import QueueKey

if TYPE_CHECKING:
    import pyarrow as pa

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
"""A message: the digest of what is compared, that of its unique key (zeros without one), its place. `side`: 0 of log a,
1 of b."""
Rows = np.ndarray[tuple[int], np.dtype[np.void]]

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_SPILLS_FROM = 1 << 26
_KNOWN = {
    "logs": ("side", "min_offset", "end_offset", "damaged_spans"),
    "damage": ("side", "begins", "ends"),
    "queues": ("side", "topic", "queue_id", "first", "last"),
}
_OF_PLACE_ONLY = ("high", "low", "size")
_ROWS_AT_ONCE = 1 << 18


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
    summing, counts, again = _Summing(plan, topics), Counter[str](), 0
    if split is None:
        return {}, counts, again
    with open_split(split) as files:
        wanted = Columns.HEAD | Columns.TOPIC | Columns.BYTES
        for batch in split_columns(files, split, columns=wanted, topics=topics):
            if not isinstance(batch, MessageColumns):
                continue
            summing.add(batch, _digests(plan, batch))
            counts.update(_by_topic(batch.topic_id, topics.names))
            again += _behind(plan, batch.physical_offset)
    return summing.sums(), counts, again


def _rows(plan: Likeness, split: Split | None, side: int, topics: TopicIds) -> tuple[Rows, dict[QueueKey, Sums]]:
    summing, parts = _Summing(plan, topics), [np.empty(0, ROW)]
    if split is None:
        return parts[0], {}
    with open_split(split) as files:
        wanted = Columns.HEAD | Columns.TOPIC | Columns.BYTES
        for batch in split_columns(files, split, columns=wanted, topics=topics):
            if not isinstance(batch, MessageColumns):
                continue
            digests = _digests(plan, batch)
            summing.add(batch, digests)
            parts.append(_batch_rows(batch, digests, side))
    return np.concatenate(parts), summing.sums()


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


class _Summing:
    """Adds up the digests of the messages that both logs cover, queue by queue, each in the order of the log.

    Those of several batches wait, because of many queues each batch has few messages."""

    def __init__(self, plan: Likeness, topics: TopicIds) -> None:
        self._plan = plan
        self._topics = topics
        self._sums: dict[QueueKey, Sums] = {}
        self._waiting: list[tuple[Int64s, Digests]] = []
        self._rows = 0

    def add(self, batch: MessageColumns, digests: Digests) -> None:
        """The messages that follow."""
        places = batch.physical_offset
        chosen = np.flatnonzero((places >= self._plan.common_begin) & (places < self._plan.common_end))
        if len(chosen):
            self._waiting.append((queue_codes(batch)[chosen], digests[chosen]))
            self._rows += len(chosen)
        if self._rows >= _ROWS_AT_ONCE:
            self._settle()

    def sums(self) -> dict[QueueKey, Sums]:
        """Those of all messages so far."""
        self._settle()
        return self._sums

    def _settle(self) -> None:
        if self._waiting:
            codes, digests = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
            for code, more in sums_by_code(codes, digests):
                topic_id, queue_id = queue_of(code)
                self._sums.setdefault((self._topics.names[topic_id], queue_id), Sums()).join(more)
        self._waiting, self._rows = [], 0


def _without_pairs(a: Rows, b: Rows) -> tuple[Rows, Rows]:
    """The rows that are not the same at the same place of both logs, and those that are, once."""
    places = a["physical_offset"], b["physical_offset"]
    _, rows_a, rows_b = np.intersect1d(*places, assume_unique=True, return_indices=True)
    names = ("high", "low", "topic", "queue_id", "queue_offset")
    same = np.logical_and.reduce([a[rows_a][name] == b[rows_b][name] for name in names])
    left = np.concatenate([np.delete(a, rows_a[same]), np.delete(b, rows_b[same])])
    return left, a[rows_a[same]]


def _packed(rows: Rows, topics: list[str], partitions: int) -> list[bytes]:
    """The rows for each partition, by their place in the queues, and those with a unique key once more by that."""
    if not len(rows):
        return [b""] * (2 * partitions)
    names = name_digests(rows["topic"], topics)[:, 0]
    place = rows["queue_offset"].astype(np.uint64) * _MIX ^ rows["queue_id"].astype(np.uint64) ^ names
    place = (place ^ place >> _SHIFT) * _MIX >> _SHIFT
    keyed = rows[(rows["key_high"] != 0) | (rows["key_low"] != 0)]
    return [
        pack([_table(some[numbers % np.uint64(partitions) == partition], topics, by_key)])
        for by_key, some, numbers in ((False, rows, place), (True, keyed, keyed["key_high"]))
        for partition in range(partitions)
    ]


def _table(rows: Rows, topics: list[str], by_key: bool) -> pa.Table:
    """The rows as a table, which lacks what is not needed where they are matched by their keys."""
    import pyarrow as pa

    names = [name for name in ROW.names or () if name != "topic" and not (by_key and name in _OF_PLACE_ONLY)]
    columns = {name: pa.array(np.ascontiguousarray(rows[name])) for name in names}
    return pa.table(columns | {"topic": pa.DictionaryArray.from_arrays(rows["topic"].copy(), pa.array(topics))})


SAME, CHANGED, REPLACED, MOVED = "same", "changed", "replaced", "moved"
"""At the same place of the queue: the same; the same unique key (or none) with something else stored; another message.
Elsewhere: moved."""
CLEANED, BEHIND, DAMAGED, ABSENT = "cleaned", "behind", "damaged", "absent"
"""Why a message is missing in the other log: its place is before that log's first message, or after its last, or in
damage; else it should be there."""
REASONS = (CLEANED, BEHIND, DAMAGED, ABSENT)
SIDES = ("a", "b")


_PLACE, _KEY = "topic, queue_id, queue_offset", "topic, key_high, key_low"


def _pairs(group: str, same: str) -> tuple[str, ...]:
    """Make `alike`, the messages of a group that have the same `same` in both logs, one by one in the order of the
    logs; and of all others `left_a` and `left_b`, numbered in their groups."""
    alike = f"""
create or replace temp table alike as
with numbered as (
    select *, row_number() over (partition by side, {group}, {same} order by physical_offset) as nth from unmatched
)
select topic, one.physical_offset as offset_a, other.physical_offset as offset_b
from (from numbered where side = 0) as one join (from numbered where side = 1) as other using ({group}, {same}, nth)"""
    left = [
        f"""
create or replace temp table left_{name} as
select *, row_number() over (partition by {group} order by physical_offset) as nth
from (from unmatched where side = {side}) anti join alike on physical_offset = offset_{name}"""
        for side, name in enumerate(SIDES)
    ]
    return alike, *left


_BY_PLACE = (
    *_pairs(_PLACE, "high, low"),
    f"""
create or replace temp table unlike as
select {_PLACE}, left_a.physical_offset as offset_a, left_b.physical_offset as offset_b,
    case when offset_a is null then 0 when offset_b is null then 1 end as lacks,
    coalesce(offset_a, offset_b) as physical_offset, coalesce(left_a.size, left_b.size) as size,
    case when lacks is not null then null
        when (left_a.key_high, left_a.key_low) is not distinct from (left_b.key_high, left_b.key_low) then '{CHANGED}'
        else '{REPLACED}' end as state
from left_a full join left_b using ({_PLACE}, nth)""",
)
# why the log that `lacks` a message has nothing at its place; where logs are no copies of one, it cannot be known where
# it would stand: it may have been what is damaged now
_REASON = f"""
case when $is_shared then
    case when physical_offset < min_offset then '{CLEANED}'
        when begins < physical_offset + size then '{DAMAGED}'
        when physical_offset >= end_offset and not $is_parted then '{BEHIND}' else '{ABSENT}' end
else
    case when queue_offset < first then '{CLEANED}' when queue_offset > last then '{BEHIND}'
        when damaged_spans > 0 then '{DAMAGED}' else '{ABSENT}' end
end"""
_JUDGED = f"""
create or replace temp table differences as
select unlike.topic, unlike.queue_id, queue_offset, offset_a, offset_b, coalesce(state, {_REASON}) as state,
    case lacks when 0 then 'b' when 1 then 'a' else '' end as side
from unlike left join logs on logs.side = lacks
left join queues on queues.side = lacks and queues.topic = unlike.topic and queues.queue_id = unlike.queue_id
asof left join damage on damage.side = lacks and unlike.physical_offset < damage.ends"""
_BY_KEY = (
    *_pairs(_KEY, "queue_id, queue_offset"),
    f"""
create or replace temp table differences as
select topic, left_a.queue_id, left_a.queue_offset, left_a.physical_offset as offset_a,
    left_b.physical_offset as offset_b, '{MOVED}' as state, '' as side
from left_a join left_b using ({_KEY}, nth)""",
)
_COUNTS_MOVED = "select topic, side, state, count(*) from differences group by all"
_COUNTS = f"{_COUNTS_MOVED} union all select topic, '', '{SAME}', count(*) from alike group by all"
_FIRST = f"""
select case state when '{CLEANED}' then 2 when '{BEHIND}' then 1 else 0 end as rank,
    least(offset_a, offset_b) as "offset", coalesce(offset_a, -1) as offset_a, coalesce(offset_b, -1) as offset_b,
    topic, queue_id, queue_offset, state
from differences order by all limit {{limit}}"""


class Facts(NamedTuple):
    """What is known of one log. `damage`: beginning and end of each damaged span. `queues`: the smallest and the
    largest queue offset of each queue."""

    min_offset: int
    end: int
    damage: list[tuple[int, int]]
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
    """What became of the messages of one partition, by place or by key; `pieces` as `digest` has them."""
    unmatched, found = unpack(pieces), Matched()
    if unmatched is None:
        return found
    by_place = "size" in unmatched.column_names
    with open_tables(spills=unmatched.nbytes > _SPILLS_FROM) as tables:
        tables.put(unmatched=unmatched, **_tables(knowledge))
        for statement in _BY_PLACE if by_place else _BY_KEY:
            tables.make(statement)
        if by_place:
            tables.make(_JUDGED, {"is_shared": knowledge.is_shared, "is_parted": knowledge.is_parted})
        for topic, side, state, count in tables.tuples(_COUNTS if by_place else _COUNTS_MOVED):
            found.counts[topic, side, state] += count
        found.first = [Difference(*row) for row in tables.tuples(_FIRST.format(limit=knowledge.limit))]
    return found


def _tables(knowledge: Knowledge) -> dict[str, pa.Table]:
    """What is known of the logs, as tables."""
    import pyarrow as pa

    rows: dict[str, list[tuple[int | str, ...]]] = {name: [] for name in _KNOWN}
    for side, facts in enumerate((knowledge.a, knowledge.b)):
        rows["logs"].append((side, facts.min_offset, facts.end, len(facts.damage)))
        rows["damage"] += [(side, *span) for span in facts.damage]
        rows["queues"] += [(side, *queue, *bounds) for queue, bounds in facts.queues.items()]
    return {
        table: pa.table(
            {
                name: pa.array([row[number] for row in rows[table]], pa.string() if name == "topic" else pa.int64())
                for number, name in enumerate(names)
            }
        )
        for table, names in _KNOWN.items()
    }
