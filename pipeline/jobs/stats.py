"""The statistics of a store, in one pass over its splits: groups, duplicate keys, queue offsets, clock and damage.

The counting is SQL (stats_sql.py), run by run of the log in tasks of either engine, so memory grows with groups and
queues, not with messages.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.formats.errors import RmqctlError, UsageError
from rmqctl.formats.message import FrameDamage
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.pipeline.engine import Engine
from rmqctl.pipeline.exchange import exchange
from rmqctl.pipeline.jobs import stats_sql as sql
from rmqctl.pipeline.jobs.stats_sql import DIMENSIONS, LISTED, UNITS
from rmqctl.pipeline.splits import (
    SPLIT_SIZE,
    Split,
    bundled,
    of_bundle,
    on_done_telling,
    plan_splits,
    run_by_bundles,
    split_columns,
    take_split,
    whole_files_at_need,
)
from rmqctl.pipeline.views import Tables, open_tables, pack, require_duckdb, unpack
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import Flags, MessageColumns, TopicIds
from rmqctl.store.log.walk import Damage
from rmqctl.store.native.tables import Columns, NeedsPlain
from rmqctl.store.options import Events
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.read.frames import message_at
from rmqctl.store.read.select import changed_error
from rmqctl.store.scan.batches import BatchMaker, number_array
from rmqctl.store.scan.schema import needed
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    import pyarrow as pa

_Row = dict[str, Any]

# a partition of keys is what comes of this many bytes of the log: some 30 bytes of hundreds, for each message
PARTITION_BYTES = 1 << 30
RUN_ROWS = 1 << 18
"""Messages that are counted together: what a task holds in memory."""
_COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "size")
_TIMES = ("store_timestamp", "born_timestamp")
_SEVERAL_SLOTS = NeedsPlain.MULTI_DISPATCH | NeedsPlain.INNER_BATCH


class StatsRequest(NamedTuple):
    """What is asked for: groups by `dimensions` (of DIMENSIONS), messages of a topic, stored in [begin, end] (ms).

    Queue offsets and clock are looked at over the whole time: a window of time would make holes of its own. `now` in
    ms: what is stored after it is in the future.
    """

    dimensions: tuple[str, ...] = ()
    topic: str | None = None
    begin: int | None = None
    end: int | None = None
    now: int | None = None
    duplicates: bool = True

    @property
    def grouped_by(self) -> tuple[str, ...]:
        """The dimensions that are counted by: the topic in any case."""
        return tuple(name for name in DIMENSIONS if name == "topic" or name in self.dimensions)

    @property
    def values(self) -> dict[str, Any]:
        """The values that `sql.run_table` names."""
        named = {"topic": self.topic, "begin": self.begin, "end": self.end}
        return {name: value for name, value in named.items() if value is not None}


class DamageNumbers(NamedTuple):
    """Damaged spans, the first few of them with their places."""

    spans: int
    bytes: int
    first: tuple[Damage, ...]


_WHOLE = DamageNumbers(0, 0, ())


class _Part(NamedTuple):
    """What a task counted: answers to statements by table, of each run one, and the damaged spans."""

    tables: dict[str, list[pa.Table]]
    damage: DamageNumbers


@dataclass(slots=True)
class Stats:
    """The statistics of a log as rows of statements: see `sql`. `groups`: by the dimensions asked for, d0, d1, …

    `duplicates` is None if not requested.
    """

    dimensions: tuple[str, ...]
    groups: list[_Row] = field(default_factory=list)
    total: _Row | None = None
    topics: list[_Row] = field(default_factory=list)
    queues: list[_Row] = field(default_factory=list)
    jumps: int = 0
    largest_jumps: list[_Row] = field(default_factory=list)
    duplicates: dict[str, list[_Row]] | None = None
    damage: DamageNumbers = _WHOLE


def stats(
    engine: Engine, files: StoreFiles, request: StatsRequest, *, split_size: int = SPLIT_SIZE, events: Events = Events()
) -> Stats:
    """The statistics of a store; the same for any engine and any split size.

    `progress` gets bytes of the log. UsageError for an unknown dimension, UnsupportedError without duckdb, and errors
    of reading as `split_columns` has them. Damage is counted, never raised.
    """
    require_duckdb("counting")
    for name in request.dimensions:
        if name not in DIMENSIONS:
            raise UsageError(f"nothing is counted by {name!r}", hint=f"choose from {', '.join(DIMENSIONS)}")

    def work(size: int, told: Events) -> Stats:
        return _over(engine, plan_splits(files, size), size, request, told)

    return whole_files_at_need(split_size, work, events)


def _over(engine: Engine, splits: Sequence[Split], split_size: int, request: StatsRequest, events: Events) -> Stats:
    """The statistics of all splits, which are in the order of the log."""
    if not request.duplicates:
        counted = functools.partial(_without_keys, request)
        return _joined(request, run_by_bundles(engine, "stats", counted, splits, split_size, events), [])
    size = sum(split.end - split.begin for split in splits)
    partitions = max(1, -(-size // PARTITION_BYTES))
    task = functools.partial(of_bundle, functools.partial(bundle_stats, request, partitions))
    bundles = list(bundled(splits, split_size))
    on_done = on_done_telling(events, size, len(bundles))
    reduce = functools.partial(find_duplicates, len(request.grouped_by))
    return _joined(request, *exchange(engine, "stats", task, bundles, partitions, reduce, on_done))


def _without_keys(request: StatsRequest, files: StoreFiles, splits: Sequence[Split]) -> _Part:
    return bundle_stats(request, 0, files, splits)[0]


def bundle_stats(
    request: StatsRequest, partitions: int, files: StoreFiles, splits: Sequence[Split]
) -> tuple[_Part, list[bytes]]:
    """The statistics of neighbouring splits, at least one, and their unique keys for each partition; without keys for
    no partitions."""
    with open_tables() as tables:
        counter = _Counter(request, files, tables, partitions)
        for split in splits:
            take_split(files, split)
            for record in split_columns(files, split, columns=counter.columns, topics=counter.topics):
                if isinstance(record, MessageColumns):
                    counter.add(record)
                elif isinstance(record, Damage):
                    counter.damaged.append(record)
        return counter.finish()


class _Counter:
    """Counts a stretch of the log, run by run."""

    def __init__(self, request: StatsRequest, files: StoreFiles, tables: Tables, partitions: int) -> None:
        self.topics = TopicIds()
        self.damaged: list[Damage] = []
        by = request.grouped_by
        further = {"tag": "tags", "host": "born_host"}
        names = [*_COLUMNS, *(further[name] for name in by if name in further)]
        self._maker = BatchMaker([*names, "unique_key"] if partitions else names, views=False)
        # TAGS has what is unusual about a message
        self.columns = needed([*self._maker.names, *_TIMES]) | Columns.TAGS
        self._request = request
        self._delay_levels = files.config.delay_levels()
        self._tables = tables
        self._partitions = partitions
        self._run: list[pa.RecordBatch] = []
        self._rows = 0
        self._further: list[tuple[str, int, int, int, int, int]] = []
        self._found: dict[str, list[pa.Table]] = {}
        self._keys: list[list[pa.Table]] = [[] for _ in range(partitions)]
        self._statements = {
            "groups": (sql.groups(len(by)), {"now": request.now}),
            "edges": (sql.edges(len(by)), {}),
            "jumps": (sql.JUMPS, {}),
            "stretches": (sql.OFFSETS, {}),
        }

    def add(self, batch: MessageColumns) -> None:
        """Take in messages of the log."""
        import pyarrow as pa

        several = (batch.needs_plain & _SEVERAL_SLOTS) != 0
        self._add_further(batch, batch.has_queue_slot & several)
        takes_offset = batch.has_queue_slot & ~several & (batch.queue_id >= 0)
        # without bodies they are one batch
        for made in self._maker.batches(batch):
            arrays = dict(zip(self._maker.names, made.columns, strict=True))
            arrays |= {name: number_array(getattr(batch, name), pa.int64()) for name in _TIMES}
            arrays["takes_offset"] = pa.array(takes_offset)
            self._run.append(pa.RecordBatch.from_pydict(arrays))
            self._rows += made.num_rows
        if self._rows >= RUN_ROWS:
            self._count()

    def _add_further(self, batch: MessageColumns, rows: Flags) -> None:
        """Note the queue offsets of messages that take several: inner batches, and those with further queues."""
        for row in np.flatnonzero(rows).tolist():
            try:
                message = batch.message(row)
            except FrameDamage as damage:
                raise changed_error(batch, row, damage) from damage
            if self._request.topic not in (None, message.topic):
                continue
            for slot in queue_slots(message, self._delay_levels):
                begins = max(-sql.OFFSETS_LARGEST, min(slot.unit.queue_offset, sql.OFFSETS_LARGEST))
                count = (slot.unit.batch_size or 1) if slot.is_batch else 1
                queue = slot.topic, slot.queue_id
                self._further.append((*queue, begins, begins + count, 1, 0))
                if slot.listed > 1:
                    self._further.append((*queue, begins + 1, begins + slot.listed, 0, 1))

    def _count(self) -> None:
        """Count the run, and have it no more."""
        import pyarrow as pa

        request = self._request
        self._tables.put(messages=pa.Table.from_batches(self._run))
        self._run, self._rows = [], 0
        self._tables.make(sql.run_table(request.grouped_by, request.values, bool(self._partitions)), request.values)
        for name, (statement, values) in self._statements.items():
            self._found.setdefault(name, []).append(self._tables.table(statement, values))
        if self._partitions:
            keys = self._tables.table(sql.unique_keys(len(request.grouped_by)))
            number = keys["high"].to_numpy() % np.uint64(self._partitions)
            for partition, kept in enumerate(self._keys):
                kept.append(keys if self._partitions == 1 else keys.filter(pa.array(number == partition)))

    def finish(self) -> tuple[_Part, list[bytes]]:
        """What was counted, and the keys."""
        import pyarrow as pa

        if self._run:
            self._count()
        if self._further:
            topics, queue_ids, *numbers = zip(*self._further, strict=True)
            arrays = [pa.array(topics, pa.string()), pa.array(queue_ids, pa.int32())]
            arrays += [pa.array(values, pa.int64()) for values in numbers]
            further = pa.table(arrays, ["topic", "queue_id", "begins", "ends", "times", "passed_over"])
            self._found.setdefault("stretches", []).append(further)
        size = sum(span.end - span.physical_offset for span in self.damaged)
        damage = DamageNumbers(len(self.damaged), size, tuple(self.damaged[:LISTED]))
        return _Part(self._found, damage), [pack(kept) for kept in self._keys]


def find_duplicates(dimensions: int, packed: Iterable[bytes]) -> dict[str, list[pa.Table]]:
    """What the keys of one partition that occur more than once come to; `packed` by the task of every bundle."""
    keys = unpack(packed)
    if keys is None:
        return {}
    with open_tables(spills=True) as tables:
        tables.put(keys=keys)
        tables.make(sql.REPEATED_KEYS)
        return {
            "repeats": [tables.table(sql.repeats(dimensions))],
            "keys_of_topics": [tables.table(sql.KEYS_OF_TOPICS)],
            "duplicates": [tables.table(sql.DUPLICATES)],
        }


def _joined(request: StatsRequest, parts: Sequence[_Part], found: Sequence[dict[str, list[pa.Table]]]) -> Stats:
    """The statistics of the whole log, of those of its parts in their order."""
    import pyarrow as pa

    by = request.grouped_by
    made = Stats(request.dimensions, damage=_all_damage(part.damage for part in parts))
    by_name: dict[str, list[pa.Table]] = {}
    for one in (*(part.tables for part in parts), *found):
        for name, answers in one.items():
            by_name.setdefault(name, []).extend(answers)
    if request.duplicates:
        made.duplicates = {"keys_of_topics": [], "duplicates": [], "repeats": []}
    if "groups" not in by_name:
        return made
    with open_tables() as tables:
        tables.put(**{name: pa.concat_tables(several) for name, several in by_name.items()})
        if "repeats" not in by_name:
            tables.make(sql.no_repeats(len(by)))
        elif made.duplicates is not None:
            made.duplicates = {name: tables.rows(statement) for name, statement in sql.ALL_DUPLICATES.items()}
        tables.make(sql.BETWEEN_RUNS)
        made.groups = _groups(tables, len(by), [by.index(name) for name in request.dimensions])
        made.topics = made.groups if request.dimensions == ("topic",) else _groups(tables, len(by), [0])
        made.total = next(iter(_groups(tables, len(by), [])), None)
        tables.put(stretches=tables.table(sql.STRETCHES))
        made.queues = tables.rows(sql.QUEUES)
        made.jumps = tables.rows(sql.CLOCK)[0]["jumps"]
        made.largest_jumps = tables.rows(sql.LARGEST_JUMPS)
    return made


def _groups(tables: Tables, dimensions: int, chosen: Sequence[int]) -> list[_Row]:
    return [row for row in tables.rows(sql.all_groups(dimensions, chosen)) if row["messages"]]


def _all_damage(parts: Iterable[DamageNumbers]) -> DamageNumbers:
    found = _WHOLE
    for one in parts:
        first = (*found.first, *one.first)[:LISTED]
        found = DamageNumbers(found.spans + one.spans, found.bytes + one.bytes, first)
    return found


# The statistics as plain rows and records, in one order whatever engine made them: what `rmqctl stats` prints.

LISTED_QUEUES = 20
_NAMES = {
    "topic": "topic",
    "queue": "queue_id",
    "tag": "tag",
    "host": "producer_host",
    "minute": "minute_timestamp",
    "hour": "hour_timestamp",
    "day": "day_timestamp",
}
# groups of these follow one another; all others come largest first
_IN_ORDER = ("queue", "minute", "hour", "day")


def dimensions_of(names: Iterable[str]) -> tuple[str, ...]:
    """Dimensions in their own order; a queue is nothing without its topic."""
    chosen = set(names) | ({"topic"} if "queue" in names else set())
    return tuple(name for name in DIMENSIONS if name in chosen)


def key_names(dimensions: Sequence[str]) -> list[str]:
    """The names that the rows of groups give to these dimensions."""
    return [_NAMES[name] for name in dimensions]


def group_rows(found: Stats) -> list[_Row]:
    """A row a group.

    By queue, minute, hour or day in that order, else the group with the most bytes first. Sizes in bytes, delays in ms.
    `missing_offsets` and `repeated_offsets` are there by topic and by queue only: no other group has its own offsets.
    """
    return _rows(found, found.groups, found.dimensions)


def _rows(found: Stats, groups: Sequence[_Row], dimensions: Sequence[str]) -> list[_Row]:
    offsets = _offsets_by(found, dimensions)
    by = StatsRequest(tuple(dimensions)).grouped_by
    rows = []
    for group in groups:
        key = tuple(_value(name, group[f"d{by.index(name)}"]) for name in dimensions)
        row: _Row = dict(zip(key_names(dimensions), key, strict=True))
        sizes, delays = histogram(group["bars"], 0), histogram(group["bars"], 1)
        row |= _numbers_row(group, delays)
        row["duplicates"] = group["duplicates"] if found.duplicates is not None else None
        if offsets is not None:
            row["missing_offsets"], row["repeated_offsets"] = offsets.get(key, (0, 0))
        row["sizes"], row["delays"] = bars(sizes), bars(delays)
        rows.append(row)
    names = key_names(dimensions)
    is_in_order = not set(_IN_ORDER).isdisjoint(dimensions)

    def place(row: _Row) -> tuple[Any, ...]:
        by_name = [(row[name] is not None, row[name]) for name in names]
        return (*by_name,) if is_in_order else (-row["bytes"], *by_name)

    if is_in_order and "queue" not in dimensions:
        names.reverse()  # by time first, whatever else
    return sorted(rows, key=place)


def _value(name: str, value: Any) -> Any:
    return value * UNITS[name] if name in UNITS else value


def _offsets_by(found: Stats, dimensions: Sequence[str]) -> dict[tuple[Any, ...], tuple[int, int]] | None:
    if tuple(dimensions) not in (("topic",), ("topic", "queue")):
        return None
    made: dict[tuple[Any, ...], tuple[int, int]] = {}
    for queue in found.queues:
        key = (queue["topic"], queue["queue_id"]) if "queue" in dimensions else (queue["topic"],)
        missing, repeated = made.get(key, (0, 0))
        made[key] = missing + queue["missing"], repeated + queue["repeated"]
    return made


def _numbers_row(group: _Row, delays: dict[int, int]) -> _Row:
    def delay(share: float) -> int:
        """A delay that this share of the messages does not exceed: as exact as the bars of the histogram."""
        return min(at_most(delays, share), int(group["longest_delay"]))

    return {
        "messages": group["messages"],
        "bytes": group["bytes"],
        "average_size": round(group["bytes"] / group["messages"]),
        "smallest": group["smallest"],
        "largest": group["largest"],
        "first_store_timestamp": group["first_store_timestamp"],
        "last_store_timestamp": group["last_store_timestamp"],
        "shortest_delay": group["shortest_delay"],
        "median_delay": delay(0.5),
        "p99_delay": delay(0.99),
        "longest_delay": group["longest_delay"],
        "clock_jumps": group["clock_jumps"],
        "in_future": group["in_future"],
    }


def histogram(counted: Iterable[Sequence[int]], of: int) -> dict[int, int]:
    """Messages by bucket, of (bucket of the size, bucket of the delay, messages); `of`: 0 or 1 of these two."""
    found: dict[int, int] = {}
    for one in counted:
        found[one[of]] = found.get(one[of], 0) + one[2]
    return dict(sorted(found.items()))


def bounds(bucket: int) -> tuple[int, int]:
    """The smallest and the largest value of a bucket."""
    if bucket == 0:
        return 0, 0
    low, high = 1 << abs(bucket) - 1, (1 << abs(bucket)) - 1
    return (low, high) if bucket > 0 else (-high, -low)


def bars(histogram: dict[int, int]) -> list[_Row]:
    """The buckets that hold messages, lowest values first."""
    return [
        {"at_least": bounds(bucket)[0], "at_most": bounds(bucket)[1], "messages": messages}
        for bucket, messages in histogram.items()
    ]


def at_most(histogram: dict[int, int], share: float) -> int:
    """A value that at least `share` of the messages do not exceed: the upper end of its bucket."""
    left = share * sum(histogram.values())
    highest = 0
    for bucket, messages in histogram.items():
        highest = bounds(bucket)[1]
        left -= messages
        if left <= 0:
            break
    return highest


def stats_summary(found: Stats, log: MappedFileQueue) -> _Row:
    """Everything about statistics that were made without dimensions; `log` is read for the keys of duplicates."""
    total = found.total
    row: _Row = {"messages": 0, "bytes": 0}
    if total is not None:
        row = _numbers_row(total, histogram(total["bars"], 1))
    for name in ("clock_jumps", "in_future"):
        row.pop(name, None)
    row["duplicates"] = _duplicates(found, log)
    row["queue_offsets"] = _queue_offsets(found)
    row["clock"] = _clock(found)
    row["damage"] = _damage(found)
    row["sizes"], row["delays"] = (bars(histogram(total["bars"] if total else (), of)) for of in (0, 1))
    row["topics"] = _rows(found, found.topics, ("topic",))
    return row


def _duplicates(found: Stats, log: MappedFileQueue) -> _Row | None:
    rows = found.duplicates
    if rows is None:
        return None
    by_design = {
        flag: sum(row["repeats"] for row in rows["repeats"] if row["by_design"] is flag) for flag in (False, True)
    }
    return {
        "messages": by_design[False],
        "keys": sum(row["keys"] for row in rows["keys_of_topics"] if not row["by_design"]),
        "stored_again_by_design": by_design[True],
        "first": [_duplicate(one, log) for one in rows["duplicates"]],
    }


def _duplicate(one: _Row, log: MappedFileQueue) -> _Row:
    unique_key = None
    for place in one["physical_offsets"]:
        try:
            unique_key = message_at(log, place).properties().get(UNIQUE_KEY)
            break
        except RmqctlError:  # a file that was removed since it was read
            continue
    return {
        "topic": one["topic"],
        "unique_key": unique_key,
        "messages": one["messages"],
        "physical_offsets": one["physical_offsets"],
    }


def _queue_offsets(found: Stats) -> _Row:
    odd = [queue for queue in found.queues if queue["missing"] or queue["repeated"]]
    return {
        "queues": len(found.queues),
        "missing": sum(queue["missing"] for queue in odd),
        "repeated": sum(queue["repeated"] for queue in odd),
        "uneven_queues": len(odd),
        "first": odd[:LISTED_QUEUES],
    }


def _clock(found: Stats) -> _Row:
    largest = [
        {
            "milliseconds": jump["from_timestamp"] - jump["to_timestamp"],
            **{name: jump[name] for name in ("physical_offset", "from_timestamp", "to_timestamp")},
        }
        for jump in found.largest_jumps
    ]
    return {
        "jumps": found.jumps,
        "in_future": found.total["in_future"] if found.total is not None else 0,
        "largest": largest,
    }


def _damage(found: Stats) -> _Row:
    spans = [
        {
            "file": span.file,
            "physical_offset": span.physical_offset,
            "end_offset": span.end,
            "reason": span.reason.value,
            "detail": span.detail,
        }
        for span in found.damage.first
    ]
    return {"spans": found.damage.spans, "bytes": found.damage.bytes, "first": spans}
