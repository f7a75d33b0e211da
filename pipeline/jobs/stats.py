"""The statistics of a store, in one pass over its splits: groups, duplicate keys, queue offsets, clock and damage."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.errors import RmqctlError, UsageError
from rmqctl.formats.message import FrameDamage
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.pipeline.engine import Engine
from rmqctl.pipeline.exchange import exchange
from rmqctl.pipeline.jobs.stats_groups import (
    DIMENSIONS,
    GroupCounter,
    GroupKey,
    GroupNumbers,
    Histogram,
    OffsetCollector,
    OffsetNumbers,
    OffsetSet,
    add_groups,
    at_most,
    bars,
    merged,
    offset_numbers,
)
from rmqctl.pipeline.jobs.stats_parts import (
    Clock,
    Duplicate,
    Duplicates,
    KeyCollector,
    clock_of,
    find_duplicates,
    joined_clocks,
    jump_between,
    repeats_by_design,
)
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
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import Int64s, MessageColumns, TopicIds
from rmqctl.store.log.walk import Damage, Progress
from rmqctl.store.native.tables import Columns, NeedsPlain
from rmqctl.store.queues.consumequeue import QueueKey
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.frames import message_at
from rmqctl.store.read.row_filter import RowChooser
from rmqctl.store.read.select import changed_error
from rmqctl.store.scan.property_engine import property_columns
from rmqctl.store.scan.schema import PropertyColumns, PropertyParts, require_pyarrow
from rmqctl.store.store_files import StoreFiles

# a partition of keys is what comes of this many bytes of the log: 24 bytes of hundreds, for each message
PARTITION_BYTES = 1 << 30
LISTED_DAMAGE = 20
_COLUMNS = Columns.HEAD | Columns.TOPIC | Columns.TAGS | Columns.BYTES
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


class DamageNumbers(NamedTuple):
    """Damaged spans, the first few of them with their places."""

    spans: int
    bytes: int
    first: tuple[Damage, ...]


_WHOLE = DamageNumbers(0, 0, ())


@dataclass(slots=True)
class Stats:
    """The statistics of a stretch of the log. `first_group`: that of its first message, if it was counted.

    Those of stretches that follow one another are added with `add`. `duplicates` are those of the whole log, None
    where they were not asked for.
    """

    groups: dict[GroupKey, GroupNumbers] = field(default_factory=dict)
    queues: dict[QueueKey, OffsetSet] = field(default_factory=dict)
    clock: Clock | None = None
    first_group: GroupKey | None = None
    damage: DamageNumbers = _WHOLE
    duplicates: Duplicates | None = None

    def add(self, later: Stats) -> None:
        """Count a stretch behind this one, too; whatever is cut where, all together come to the same."""
        add_groups(self.groups, later.groups.items())
        for queue, offsets in later.queues.items():
            known = self.queues.get(queue)
            self.queues[queue] = offsets if known is None else merged([known, offsets])
        if self.clock is None:
            self.first_group = later.first_group
        elif jump_between(self.clock, later.clock) is not None and later.first_group is not None:
            self.groups[later.first_group].clock_jumps += 1
        self.clock = joined_clocks(self.clock, later.clock)
        mine, theirs = self.damage, later.damage
        first = (*mine.first, *theirs.first)[:LISTED_DAMAGE]
        self.damage = DamageNumbers(mine.spans + theirs.spans, mine.bytes + theirs.bytes, first)


def stats(
    engine: Engine,
    files: StoreFiles,
    request: StatsRequest,
    *,
    split_size: int = SPLIT_SIZE,
    progress: Progress | None = None,
) -> Stats:
    """The statistics of a store; the same for any engine and any split size.

    `progress` is told bytes of the log. UsageError for a dimension there is none of, UnsupportedError without pyarrow,
    and errors of reading as `split_columns` has them. Damage is counted, never raised.
    """
    require_pyarrow()
    for name in request.dimensions:
        if name not in DIMENSIONS:
            raise UsageError(f"nothing is counted by {name!r}", hint=f"choose from {', '.join(DIMENSIONS)}")

    def work(size: int, told: Progress | None) -> Stats:
        return _over(engine, plan_splits(files, size), size, request, told)

    return whole_files_at_need(split_size, work, progress)


def _over(
    engine: Engine, splits: Sequence[Split], split_size: int, request: StatsRequest, progress: Progress | None
) -> Stats:
    """The statistics of all splits, which are in the order of the log."""
    total = Stats()
    size = sum(split.end - split.begin for split in splits)
    if request.duplicates:
        partitions = max(1, -(-size // PARTITION_BYTES))
        task = functools.partial(of_bundle, functools.partial(bundle_stats, request, partitions))
        bundles = list(bundled(splits, split_size))
        on_done = on_done_telling(progress, size, len(bundles))
        parts, found = exchange(engine, "stats", task, bundles, partitions, find_duplicates, on_done)
        total.duplicates = Duplicates()
        for one in found:
            total.duplicates.add(one)
    else:
        without_keys = functools.partial(_stats_of, request)
        parts = run_by_bundles(engine, "stats", without_keys, splits, split_size, progress)
    for part in parts:
        total.add(part)
    return total


def bundle_stats(
    request: StatsRequest, partitions: int, files: StoreFiles, splits: Sequence[Split]
) -> tuple[Stats, list[bytes]]:
    """The statistics of neighbouring splits, at least one, and their unique keys for each partition; without keys for
    no partitions."""
    counter = _Counter(request, files.config, bool(partitions))
    for split in splits:
        take_split(files, split)
        for record in split_columns(files, split, columns=_COLUMNS, topics=counter.topics):
            if isinstance(record, MessageColumns):
                counter.add(record)
            elif isinstance(record, Damage):
                counter.damaged.append(record)
    return counter.finish(partitions)


def _stats_of(request: StatsRequest, files: StoreFiles, splits: Sequence[Split]) -> Stats:
    return bundle_stats(request, 0, files, splits)[0]


class _Counter:
    """Counts a stretch of the log."""

    def __init__(self, request: StatsRequest, config: StoreConfig, with_keys: bool) -> None:
        self.topics = TopicIds()
        self.damaged: list[Damage] = []
        self._groups = GroupCounter(request.dimensions, request.now)
        self._offsets = OffsetCollector()
        self._keys = KeyCollector() if with_keys else None
        self._chooser = RowChooser(Criteria(request.topic, None, None, None, request.begin, request.end))
        self._of_topic = RowChooser(Criteria(request.topic))
        self._delay_levels = config.delay_levels()
        self._clock: Clock | None = None
        self._first_group: GroupKey | None = None

    def add(self, batch: MessageColumns) -> None:
        """Count a run of messages."""
        clock, jumped = clock_of(batch.store_timestamp, batch.physical_offset)
        if jump_between(self._clock, clock) is not None:
            jumped = np.concatenate([np.zeros(1, jumped.dtype), jumped])
        is_first = self._clock is None
        self._clock = joined_clocks(self._clock, clock)
        self._add_offsets(batch)
        rows = self._chooser.rows(batch)
        rows = np.arange(batch.rows) if rows is None else rows
        if not len(rows):
            return
        properties = self._properties(batch, rows)
        tags = properties.tags if properties is not None else None
        groups = self._groups.add(batch, rows, tags, jumped)
        if is_first and rows[0] == 0:
            self._first_group = self._groups.keys(self.topics.names)[int(groups[0])]
        if self._keys is not None and properties is not None:
            places = batch.physical_offset[rows]
            self._keys.add(properties.unique_key, batch.topic_id[rows], self.topics.names, places, groups)

    def _properties(self, batch: MessageColumns, rows: Int64s) -> PropertyColumns | None:
        wanted = PropertyParts.TAGS if self._groups.needs_tags else PropertyParts(0)
        wanted |= PropertyParts.UNIQUE_KEY if self._keys is not None else PropertyParts(0)
        if not wanted:
            return None
        return property_columns(batch, batch.property_position[rows], batch.property_length[rows], wanted)

    def _add_offsets(self, batch: MessageColumns) -> None:
        """The queue offsets that messages take: all of the topic, whenever they were stored."""
        chosen = self._of_topic.rows(batch)
        taken = batch.has_queue_slot
        if chosen is not None:
            of_topic = np.zeros(batch.rows, np.bool_)
            of_topic[chosen] = True
            taken &= of_topic
        several = (batch.needs_plain & _SEVERAL_SLOTS) != 0
        plain = taken & ~several & (batch.queue_id >= 0)
        self._offsets.add(_queue_codes(batch, plain), batch.queue_offset[plain])
        for row in np.flatnonzero(taken & several).tolist():
            try:
                message = batch.message(row)
            except FrameDamage as damage:
                raise changed_error(batch, row, damage) from damage
            for slot in queue_slots(message, self._delay_levels):
                count = (slot.unit.batch_size or 1) if slot.is_batch else 1
                self._offsets.add_one((slot.topic, slot.queue_id), slot.unit.queue_offset, count)

    def finish(self, partitions: int) -> tuple[Stats, list[bytes]]:
        """What was counted, and the keys."""
        names = self.topics.names
        queues = self._offsets.finish(lambda code: (names[code >> 32], code & 0xFFFFFFFF))
        size = sum(span.end - span.physical_offset for span in self.damaged)
        damage = DamageNumbers(len(self.damaged), size, tuple(self.damaged[:LISTED_DAMAGE]))
        found = Stats(dict(self._groups.finish(names)), queues, self._clock, self._first_group, damage)
        return found, self._keys.finish(partitions, self._groups.keys(names)) if self._keys is not None else []


def _queue_codes(batch: MessageColumns, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Int64s:
    """A number for the queue of each row: topic id and queue id."""
    return (batch.topic_id[rows].astype(np.int64) << 32) | batch.queue_id[rows]


# The statistics as plain rows and records, in one order whatever engine made them: what `rmqctl stats` prints.

_Row = dict[str, Any]
LISTED_SPANS = 10
LISTED_QUEUES = 20
_NAMES = {
    "topic": "topic",
    "queue": "queue_id",
    "tag": "tag",
    "host": "producer_host",
    "hour": "hour_timestamp",
    "day": "day_timestamp",
}
# groups of these follow one another; all others come largest first
_IN_ORDER = ("queue", "hour", "day")


def dimensions_of(names: Iterable[str]) -> tuple[str, ...]:
    """Dimensions in their own order; a queue is nothing without its topic."""
    chosen = set(names) | ({"topic"} if "queue" in names else set())
    return tuple(name for name in DIMENSIONS if name in chosen)


def key_names(dimensions: Sequence[str]) -> list[str]:
    """The names that the rows of groups give to these dimensions."""
    return [_NAMES[name] for name in dimensions]


def group_rows(found: Stats, dimensions: Sequence[str]) -> list[_Row]:
    """A row a group, of statistics that were made with these dimensions, as `dimensions_of` gives them.

    By queue, hour or day in that order, else the group with the most bytes first. Sizes in bytes, delays in ms.
    `missing_offsets` and `repeated_offsets` are there by topic and by queue only: no other group has its own offsets.
    """
    with_topic = "topic" in dimensions
    sums: dict[GroupKey, GroupNumbers] = {}
    repeats: dict[GroupKey, int] = {}
    for key, numbers in found.groups.items():
        add_groups(sums, [(key if with_topic else key[1:], numbers)])
    for key, count in (found.duplicates.repeats if found.duplicates else {}).items():
        short = key if with_topic else key[1:]
        repeats[short] = repeats.get(short, 0) + count
    offsets = _offsets_by(found, dimensions)
    rows = []
    for key, numbers in sums.items():
        row: _Row = dict(zip(key_names(dimensions), key, strict=True))
        row |= _numbers_row(numbers)
        row["duplicates"] = repeats.get(key, 0) if found.duplicates is not None else None
        if offsets is not None:
            row["missing_offsets"], row["repeated_offsets"] = offsets.get(key, (0, 0))
        row["sizes"], row["delays"] = _bars(numbers.sizes), _bars(numbers.delays)
        rows.append(row)
    names = key_names(dimensions)
    is_in_order = not set(_IN_ORDER).isdisjoint(dimensions)

    def place(row: _Row) -> tuple[Any, ...]:
        by_name = [(row[name] is not None, row[name]) for name in names]
        return (*by_name,) if is_in_order else (-row["bytes"], *by_name)

    if is_in_order and "queue" not in dimensions:
        names.reverse()  # by time first, whatever else
    return sorted(rows, key=place)


def _offsets_by(found: Stats, dimensions: Sequence[str]) -> dict[GroupKey, tuple[int, int]] | None:
    if tuple(dimensions) not in (("topic",), ("topic", "queue")):
        return None
    made: dict[GroupKey, tuple[int, int]] = {}
    for (topic, queue_id), offsets in found.queues.items():
        key: GroupKey = (topic, queue_id) if "queue" in dimensions else (topic,)
        numbers = offset_numbers(offsets, 0)
        missing, repeated = made.get(key, (0, 0))
        made[key] = missing + numbers.missing, repeated + numbers.repeated
    return made


def _numbers_row(numbers: GroupNumbers) -> _Row:
    return {
        "messages": numbers.messages,
        "bytes": numbers.bytes,
        "average_size": round(numbers.bytes / numbers.messages),
        "smallest": numbers.smallest,
        "largest": numbers.largest,
        "first_store_timestamp": numbers.first_store_timestamp,
        "last_store_timestamp": numbers.last_store_timestamp,
        "shortest_delay": numbers.shortest_delay,
        "median_delay": _delay(numbers, 0.5),
        "p99_delay": _delay(numbers, 0.99),
        "longest_delay": numbers.longest_delay,
        "clock_jumps": numbers.clock_jumps,
        "in_future": numbers.in_future,
    }


def _delay(numbers: GroupNumbers, share: float) -> int | None:
    """A delay that this share of the messages does not exceed: as exact as the bars of the histogram."""
    found = at_most(numbers.delays, share)
    return None if found is None else min(found, numbers.longest_delay)


def _bars(histogram: Histogram) -> list[_Row]:
    return [bar._asdict() for bar in bars(histogram)]


def stats_summary(found: Stats, log: MappedFileQueue) -> _Row:
    """Everything about statistics that were made without dimensions; `log` is read for the keys of duplicates."""
    sums: dict[GroupKey, GroupNumbers] = {}
    for numbers in found.groups.values():
        add_groups(sums, [((), numbers)])
    total = sums.get(())
    row: _Row = {"messages": 0, "bytes": 0} if total is None else _numbers_row(total)
    for name in ("clock_jumps", "in_future"):
        row.pop(name, None)
    row["duplicates"] = _duplicates(found, log)
    row["queue_offsets"] = _queue_offsets(found)
    row["clock"] = _clock(found, total.in_future if total is not None else 0)
    row["damage"] = _damage(found)
    row["sizes"] = _bars(total.sizes) if total is not None else []
    row["delays"] = _bars(total.delays) if total is not None else []
    row["topics"] = group_rows(found, ("topic",))
    return row


def _duplicates(found: Stats, log: MappedFileQueue) -> _Row | None:
    duplicates = found.duplicates
    if duplicates is None:
        return None
    by_design = {True: 0, False: 0}
    for key, count in duplicates.repeats.items():
        by_design[repeats_by_design(str(key[0]))] += count
    keys = sum(count for topic, count in duplicates.keys.items() if not repeats_by_design(topic))
    return {
        "messages": by_design[False],
        "keys": keys,
        "stored_again_by_design": by_design[True],
        "first": [_duplicate(one, log) for one in duplicates.first],
    }


def _duplicate(one: Duplicate, log: MappedFileQueue) -> _Row:
    unique_key = None
    for place in one.places:
        try:
            unique_key = message_at(log, place).properties().get(UNIQUE_KEY)
            break
        except RmqctlError:  # a file that was removed since it was read
            continue
    return {
        "topic": one.topic,
        "unique_key": unique_key,
        "messages": one.messages,
        "physical_offsets": list(one.places),
    }


def _queue_offsets(found: Stats) -> _Row:
    numbered = sorted((queue, offset_numbers(offsets, LISTED_SPANS)) for queue, offsets in found.queues.items())
    odd = [(queue, numbers) for queue, numbers in numbered if numbers.missing or numbers.repeated]
    return {
        "queues": len(numbered),
        "missing": sum(numbers.missing for _, numbers in odd),
        "repeated": sum(numbers.repeated for _, numbers in odd),
        "uneven_queues": len(odd),
        "first": [_queue(queue, numbers) for queue, numbers in odd[:LISTED_QUEUES]],
    }


def _queue(queue: QueueKey, numbers: OffsetNumbers) -> _Row:
    return {
        "topic": queue[0],
        "queue_id": queue[1],
        "min_offset": numbers.min_offset,
        "max_offset": numbers.max_offset + 1,
        "missing": numbers.missing,
        "missing_spans": [list(span) for span in numbers.missing_spans],
        "repeated": numbers.repeated,
        "repeated_spans": [list(span) for span in numbers.repeated_spans],
    }


def _clock(found: Stats, in_future: int) -> _Row:
    clock = found.clock
    return {
        "jumps": clock.jumps if clock is not None else 0,
        "in_future": in_future,
        "largest": [jump._asdict() for jump in (clock.largest if clock is not None else ())],
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
