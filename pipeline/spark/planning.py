"""The tasks of a query over messages: which parts of the log, and how each is read.

A part is walked from end to end, or only what the consume queues leave over of it (`splits.named`), or only a few
frames that are known to be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.formats.checksums import key_hash, tag_key
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY
from rmqctl.pipeline.pruning import (
    Indexed,
    KeyLookup,
    by_keys,
    by_time,
    entries_between,
    is_in_order,
    kept_splits,
    look_up,
    share_in_time,
)
from rmqctl.pipeline.queue_pruning import saves_reading, spans_to_read, sure_places
from rmqctl.pipeline.spark.options import OFF, TRUSTED, SourceOptions
from rmqctl.pipeline.splits import SPLIT_SIZE, WHOLE_FILES, Split, files_between, log_parts, plan_splits
from rmqctl.pipeline.wanted import Comparison, Wanted, may_pass
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.index.index_file import IndexFile
from rmqctl.store.log.column_walk import ByteSpan
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, BatchConsumeQueue, ConsumeQueue
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.query import unindexed_spans
from rmqctl.store.rocksdb.message_storage import OF_TAG, OF_UNIQUE_KEY, IndexRow
from rmqctl.store.scan.batches import number_array
from rmqctl.store.store_files import StoreFiles

# more places than these are walked to: each takes a few reads while the query is planned
_MOST_PLACES = 1000


class LogTask(NamedTuple):
    """A split, and how it is read: `spans` of it only, physical offsets; what queues leave over; else all of it.

    `lookup`: what the index has for the keys that are wanted; `by_time`: whether it says when messages were stored.
    """

    split: Split
    spans: tuple[ByteSpan, ...] | None = None
    by_queues: bool = False
    lookup: KeyLookup | None = None
    by_time: bool = False


def asked_stores(options: SourceOptions, asked: Iterable[Comparison]) -> list[SourceOptions]:
    """The options for each store whose rows may pass comparisons."""
    comparisons = list(asked)
    return [one for one in options.stores() if may_pass(one.labels, comparisons)]


def plan_tasks(
    files: StoreFiles, options: SourceOptions, wanted: Wanted, begin: int | None = None, end: int | None = None
) -> list[LogTask]:
    """Tasks that together have every wanted message of [begin, end) of the log, None for its ends, in its order."""
    clips = options.split_size != WHOLE_FILES
    found = _at_places(files, wanted, begin, end) if clips else None
    lookup = _lookup(files, options, wanted) if found is None else None
    if lookup is not None and options.key_index == TRUSTED and clips and begin is None and end is None:
        found = _by_index(files, lookup)
    if found is None:
        found = _by_queues(files, options, wanted, lookup, begin, end)
    if found is None:
        splits = plan_splits(files, split_size(options, files.log, begin, end), begin, end)
        kept = kept_splits(files.log, splits, wanted, options.clock_tolerance, clips=clips)
        found = [LogTask(split) for split in kept]
    return found


def spans_of(files: StoreFiles, task: LogTask, wanted: Wanted) -> Sequence[ByteSpan] | None:
    """What to read of the task's split, see `splits.named`; None for all of it. `files`: its store, opened."""
    if not task.by_queues:
        return task.spans
    first = files.log.find(task.split.begin)
    begin = task.split.begin if first is None else first.start_offset
    indexed: list[Indexed] = []
    if task.lookup is not None:
        indexed.append(by_keys(files, task.lookup, begin, task.split.end))
    if task.by_time:
        indexed.append(by_time(files, wanted.store_times, begin, task.split.end))
    return spans_to_read(files, begin, task.split.end, wanted.slots, indexed)


def split_size(options: SourceOptions, log: MappedFileQueue, begin: int | None, end: int | None) -> int:
    """Bytes of a split of [begin, end) of the log, None for its ends: few enough for as many tasks as are wanted."""
    if options.min_partitions is None or options.split_size == WHOLE_FILES:
        return options.split_size
    first = max(log.min_offset, 0) if begin is None else begin
    length = max((log.max_offset if end is None else end) - first, 1)
    return max(min(options.split_size, -(-length // options.min_partitions)), 1)


def _at_places(files: StoreFiles, wanted: Wanted, begin: int | None, end: int | None) -> list[LogTask] | None:
    """A task for each file with wanted places; None where one is in doubt, or there are too many."""
    low, high = wanted.physical_offsets
    places = frozenset((low,)) if low == high else wanted.places
    if places is None or len(places) > _MOST_PLACES:
        return None
    asked = sorted(
        place
        for place in places
        if max(low, 0 if begin is None else begin) <= place <= high and (end is None or place < end)
    )
    sure, doubtful = sure_places(files, asked)
    if doubtful:
        return None
    return _span_tasks(files, sure)


def _span_tasks(files: StoreFiles, found: Sequence[ByteSpan]) -> list[LogTask]:
    """A task for each file with spans, which are in order."""
    root = files.place
    tasks = []
    for _, group in groupby(found, lambda span: getattr(files.log.find(span[0]), "start_offset", None)):
        spans = tuple(group)
        first, stop = spans[0][0], spans[-1][1]
        needed = files_between(files.log, first, stop)
        split = Split(root, files.config, first, stop, needed, files.log.file_size, files.listing)
        tasks.append(LogTask(split, spans))
    return tasks


def _lookup(files: StoreFiles, options: SourceOptions, wanted: Wanted) -> KeyLookup | None:
    """What the index has for wanted keys; None where none are wanted, or it is not to be asked."""
    keys = wanted.fewest_keys
    if keys is None or options.key_index == OFF or not wanted.physical_offsets.is_all:
        return None
    return look_up(files, keys, wanted.topics, wanted.has_topic)


def _by_index(files: StoreFiles, lookup: KeyLookup) -> list[LogTask] | None:
    """Tasks that read the messages that the index names, and all of the log that it does not say it covers; None where
    it is not in order, or a place is in doubt."""
    if not is_in_order(files, lookup):
        return None
    parts = [part for part in log_parts(files) if part.file is not None]
    beyond = [
        (max(first, part.begin), min(stop, part.end))
        for first, stop in unindexed_spans(files.log, files.index)
        for part in parts
        if first < part.end and stop > part.begin
    ]
    # each begins with a file, or with the last message of an index file, which is read apart from what follows
    edges = {first for first, _ in beyond} - {part.begin for part in parts}
    within = [place for place in lookup.places if not any(first <= place < stop for first, stop in beyond)]
    sure, doubtful = sure_places(files, sorted({*within, *edges}))
    ends = dict(sure)
    if doubtful or not edges <= ends.keys():
        return None
    behind = [(ends.get(first, first), stop) for first, stop in beyond]
    return _span_tasks(files, sorted([*sure, *(span for span in behind if span[0] < span[1])]))


def _by_queues(
    files: StoreFiles,
    options: SourceOptions,
    wanted: Wanted,
    lookup: KeyLookup | None,
    begin: int | None,
    end: int | None,
) -> list[LogTask] | None:
    """Tasks of whole files; None where walking them is not much dearer."""
    is_by_time = lookup is None and not wanted.is_about_queues and _may_go_by_time(options, wanted)
    if not wanted.physical_offsets.is_all or not (lookup is not None or wanted.is_about_queues or is_by_time):
        return None
    splits = plan_splits(files, WHOLE_FILES, begin, end)
    kept = kept_splits(files.log, splits, wanted, options.clock_tolerance, clips=False)
    size = split_size(options, files.log, begin, end) if options.split_size != WHOLE_FILES else SPLIT_SIZE
    joined = list(_joined(files.log, kept, size))
    if not joined:
        return None
    first, stop = joined[0].begin, joined[-1].end
    entries, share = 0, 1.0
    if lookup is not None:
        entries, share = lookup.entries, 0.0
    elif is_by_time:
        entries = entries_between(files, first, stop)
        if not entries:
            return None
        share = share_in_time(files.log, joined, wanted.store_times)
    if not saves_reading(files, wanted.slots, first, stop, len(joined), entries, share):
        return None
    return [LogTask(split, by_queues=True, lookup=lookup, by_time=is_by_time) for split in joined]


def _may_go_by_time(options: SourceOptions, wanted: Wanted) -> bool:
    """Whether the index may say when messages were stored: not for who believes no clock, or no index."""
    return not wanted.store_times.is_all and options.clock_tolerance is not None and options.key_index != OFF


def _joined(log: MappedFileQueue, splits: Sequence[Split], size: int) -> Iterator[Split]:
    """Neighbours as one, up to about `size` bytes."""
    open_one: Split | None = None
    for split in splits:
        if open_one is not None and open_one.end == split.begin and split.end - open_one.begin <= size:
            open_one = open_one._replace(end=split.end)
            continue
        if open_one is not None:
            yield open_one._replace(files=files_between(log, open_one.begin, open_one.end))
        open_one = split
    if open_one is not None:
        yield open_one._replace(files=files_between(log, open_one.begin, open_one.end))


# Units of consume queues and entries of the key index as columns, and how these are divided among tasks.

UNITS = 4_000_000
"""Slots that one task reads, at most."""

_CHUNK_UNITS = 1 << 16
_UNIT = CONSUMEQUEUE_UNIT.dtype()
_CHUNK_ENTRIES = 1 << 16
_ENTRY = INDEX_ENTRY.dtype()
_SECOND = 1000


class QueueRange(NamedTuple):
    """The slots [begin, end) of a queue; all units of a batch queue, with any values."""

    topic: str
    queue_id: int
    begin: int
    end: int


def queue_parts(files: StoreFiles, most: int = UNITS) -> list[list[QueueRange]]:
    """All queues in parts of about `most` slots, by topic and queue. UnsupportedError for RocksDB queues.

    Goes by the lengths of files, so that no queue is read.
    """
    parts: list[list[QueueRange]] = []
    room = 0
    for queue in (*files.queues.all(), *files.queues.light()):
        for one in _ranges(queue, most):
            slots = one.end - one.begin
            if slots > room:
                parts.append([])
                room = most
            parts[-1].append(one)
            room -= slots
    return parts


def _ranges(queue: AnyConsumeQueue, most: int) -> Iterator[QueueRange]:
    if isinstance(queue, BatchConsumeQueue):
        yield QueueRange(queue.topic, queue.queue_id, 0, min(most, sum(file.size for file in queue.files.files)))
        return
    if not queue.files.files:
        return
    last = queue.files.files[-1]
    end = (last.start_offset + last.size) // CONSUMEQUEUE_UNIT.size
    for begin in range(queue.first_slot, end, most):
        yield QueueRange(queue.topic, queue.queue_id, begin, min(end, begin + most))


def unit_columns(files: StoreFiles, part: list[QueueRange]) -> Iterator[Mapping[str, pa.Array]]:
    """The written units of a part; the columns of the view `consumequeue`."""
    minimum = max(files.log.min_offset, 0)
    for one in part:
        queue = files.queues.find_any(one.topic, one.queue_id)
        if isinstance(queue, ConsumeQueue):
            yield from _plain_units(queue, one, minimum)
        elif queue is not None:
            yield _batch_units(queue, minimum)


def _plain_units(queue: ConsumeQueue, one: QueueRange, minimum: int) -> Iterator[Mapping[str, pa.Array]]:
    for slot, data in queue.unit_bytes(one.begin, one.end, _CHUNK_UNITS):
        units = np.frombuffer(data, _UNIT)
        offsets, sizes = units["physical_offset"], units["size"]
        written = np.flatnonzero((offsets >= 0) & (sizes > 0) & (sizes < PLACEHOLDER_SIZE))
        if not len(written):
            continue
        offsets = offsets[written].astype(np.int64)
        yield {
            **_names(queue, len(written)),
            "queue_offset": number_array(slot + written, pa.int64()),
            "physical_offset": number_array(offsets, pa.int64()),
            "size": number_array(sizes[written].astype(np.int32), pa.int32()),
            "tags_code": number_array(units["tags_code"][written].astype(np.int64), pa.int64()),
            "batch_size": number_array(np.ones(len(written), np.int32), pa.int32()),
            "store_timestamp": pa.nulls(len(written), pa.timestamp("ms", "UTC")),
            "is_expired": pa.array(offsets < minimum),
        }


def _batch_units(queue: BatchConsumeQueue, minimum: int) -> Mapping[str, pa.Array]:
    units = list(queue.units(0))
    return {
        **_names(queue, len(units)),
        "queue_offset": pa.array([unit.queue_offset for unit in units], pa.int64()),
        "physical_offset": pa.array([unit.physical_offset for unit in units], pa.int64()),
        "size": pa.array([unit.size for unit in units], pa.int32()),
        "tags_code": pa.array([unit.tags_code for unit in units], pa.int64()),
        "batch_size": pa.array([unit.batch_size for unit in units], pa.int32()),
        "store_timestamp": pa.array([unit.store_timestamp for unit in units], pa.timestamp("ms", "UTC")),
        "is_expired": pa.array([unit.physical_offset < minimum for unit in units], pa.bool_()),
    }


def _names(queue: AnyConsumeQueue, rows: int) -> dict[str, pa.Array]:
    return {
        "topic": pa.repeat(queue.topic, rows),
        "queue_id": pa.repeat(pa.scalar(queue.queue_id, pa.int32()), rows),
        "kind": pa.repeat(queue.kind, rows),
    }


class QueueSums(NamedTuple):
    """`messages` that units lead to and the `bytes` of these, as the units say."""

    messages: int
    bytes: int


def queue_sums(queue: AnyConsumeQueue, minimum: int) -> QueueSums:
    """Counted from the first unit whose message is still in the log, which begins at physical offset `minimum`."""
    first = queue.min_offset(minimum)
    if isinstance(queue, BatchConsumeQueue):
        units = list(queue.units(first))
        return QueueSums(sum(unit.batch_size for unit in units), sum(unit.size for unit in units))
    messages = size = 0
    for columns in _plain_units(queue, QueueRange(queue.topic, queue.queue_id, first, queue.max_offset), minimum):
        messages += len(columns["size"])
        size += int(columns["size"].to_numpy().sum(dtype=np.int64))
    return QueueSums(messages, size)


def index_parts(files: StoreFiles) -> list[str]:
    """Names of index files, and of the folder of a RocksDB with entries; what cannot be an index file is left out."""
    storage = files.message_storage
    in_rocksdb = [storage.folder.name] if storage is not None and storage.has_index() else []
    return [file.path.name for file in files.index.files] + in_rocksdb


def entry_columns(files: StoreFiles, name: str) -> Iterator[Mapping[str, pa.Array]]:
    """The entries of one file, as many as it has; the columns of the view `index_entries`."""
    for file in files.index.files:
        if file.path.name == name:
            yield from _entries(file)
    storage = files.message_storage
    if storage is not None and storage.folder.name == name:
        yield from _entries_in_rocksdb(name, storage.index_rows())


def _entries(file: IndexFile) -> Iterator[Mapping[str, pa.Array]]:
    number = 1
    while number < file.header.index_count:
        data = file.read_entries(number, min(_CHUNK_ENTRIES, file.header.index_count - number))
        entries = np.frombuffer(data[: len(data) - len(data) % INDEX_ENTRY.size], _ENTRY)
        rows = len(entries)
        if not rows:
            return  # the file is cut short
        hashes = entries["key_hash"].astype(np.int32)
        begin = np.int64(file.header.begin_timestamp)
        with np.errstate(over="ignore"):
            times = begin + entries["time_difference"].astype(np.int64) * _SECOND
        yield {
            "file": pa.repeat(file.path.name, rows),
            "entry": number_array(np.arange(number, number + rows, dtype=np.int32), pa.int32()),
            "key_hash": number_array(hashes, pa.int32()),
            "slot": number_array((hashes % file.geometry.slots).astype(np.int32), pa.int32()),
            "physical_offset": number_array(entries["physical_offset"].astype(np.int64), pa.int64()),
            "store_timestamp": number_array(times, pa.timestamp("ms", "UTC")),
            "previous_entry": number_array(entries["previous_entry"].astype(np.int32), pa.int32()),
            **dict.fromkeys(("topic", "key", "kind"), pa.nulls(rows, pa.string())),
        }
        number += rows


def _entries_in_rocksdb(name: str, rows: Iterator[IndexRow]) -> Iterator[Mapping[str, pa.Array]]:
    number = 1
    while chunk := list(islice(rows, _CHUNK_ENTRIES)):
        keys = [one.unique_key if one.kind == OF_UNIQUE_KEY else one.key for one in chunk]
        hashed = [
            key_hash(one.topic, tag_key(key) if one.kind == OF_TAG else key)
            for one, key in zip(chunk, keys, strict=True)
        ]
        none = pa.nulls(len(chunk), pa.int32())
        yield {
            "file": pa.repeat(name, len(chunk)),
            "entry": pa.array(range(number, number + len(chunk)), pa.int32()),
            "key_hash": pa.array(hashed, pa.int32()),
            "slot": none,
            "physical_offset": pa.array([one.physical_offset for one in chunk], pa.int64()),
            "store_timestamp": pa.array([one.store_timestamp for one in chunk], pa.timestamp("ms", "UTC")),
            "previous_entry": none,
            "topic": pa.array([one.topic for one in chunk], pa.string()),
            "key": pa.array(keys, pa.string()),
            "kind": pa.array([one.kind for one in chunk], pa.string()),
        }
        number += len(chunk)


# Makes record batches exactly what Spark expects of a source: its types, its field names, no dictionaries.

_MICROS = 1000
# Spark counts microseconds in 64 bits: times in ms beyond this have no timestamp
_LATEST_MS = ((1 << 63) - 1) // _MICROS

ARROW_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "binary": pa.binary(),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
"""Arrow's type of each type of a view, times in ms."""


def fitted(arrays: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of exactly this schema from arrays by column name.

    Timestamps come in ms. One that no microseconds can say (a damaged head may hold any number) becomes null.
    """
    return pa.RecordBatch.from_arrays([_fitted(arrays[field.name], field.type) for field in schema], schema=schema)


def labelled(arrays: Mapping[str, pa.Array], labels: Mapping[str, str | None], rows: int) -> dict[str, pa.Array]:
    """Return arrays of `count` rows, and beside them those of columns that hold the same text in every row."""
    return {**arrays, **{name: pa.repeat(pa.scalar(text, pa.string()), rows) for name, text in labels.items()}}


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if pa.types.is_timestamp(kind):
        times = array.view(pa.int64())
        possible = pc.and_(pc.greater_equal(times, -_LATEST_MS), pc.less_equal(times, _LATEST_MS))
        times = pc.if_else(possible, times, pa.scalar(None, pa.int64()))
        return pc.multiply(times, _MICROS).view(kind)
    return array.cast(kind)


def columns_of(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> dict[str, pa.Array]:
    """Arrays of rows; `kinds` has the type of each column as Spark's DDL writes it. Timestamps in ms."""
    return {name: pa.array([row.get(name) for row in rows], ARROW_TYPES[kind]) for name, kind in kinds.items()}
