"""The statistics of a store, in one pass over its splits: groups, duplicate keys, queue offsets, clock and damage."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import FrameDamage
from rmqctl.pipeline.engine.engine import Engine
from rmqctl.pipeline.engine.exchange import exchange
from rmqctl.pipeline.jobs.stats.clock import Clock, clock_of, joined_clocks, jump_between
from rmqctl.pipeline.jobs.stats.duplicates import Duplicates, KeyCollector, find_duplicates
from rmqctl.pipeline.jobs.stats.groups import DIMENSIONS, GroupCounter, GroupKey, GroupNumbers, add_groups
from rmqctl.pipeline.jobs.stats.offsets import OffsetCollector, OffsetSet, merged
from rmqctl.pipeline.splits.over_splits import (
    bundled,
    of_bundle,
    on_done_telling,
    run_by_bundles,
    whole_files_at_need,
)
from rmqctl.pipeline.splits.splits import SPLIT_SIZE, Split, plan_splits, split_columns, take_split
from rmqctl.store.columns.batch import Columns, Int64s, MessageColumns, NeedsPlain
from rmqctl.store.columns.topics import TopicIds
from rmqctl.store.commitlog.walk import Damage, Progress
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.queues.unit import QueueKey
from rmqctl.store.read.choose_rows import RowChooser
from rmqctl.store.read.message_filter import Criteria
from rmqctl.store.read.selection import changed_error
from rmqctl.store.scan.property_columns import PropertyColumns, PropertyParts
from rmqctl.store.scan.property_engine import property_columns
from rmqctl.store.scan.schema import require_pyarrow
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
