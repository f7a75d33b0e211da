"""The tasks of a query over messages: which parts of the log, and how each is read.

A part is walked from end to end, or only what the consume queues leave over of it (`splits.named`), or only a few
frames that are known to be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rmqctl.pipeline.source.options import OFF, TRUSTED, SourceOptions
from rmqctl.pipeline.source.prune import kept_splits, share_in_time
from rmqctl.pipeline.source.wanted import Comparison, Wanted, may_pass
from rmqctl.pipeline.splits.indexed import Indexed, KeyLookup, by_keys, by_time, entries_between, is_in_order, look_up
from rmqctl.pipeline.splits.named import saves_reading, spans_to_read, sure_places
from rmqctl.pipeline.splits.splits import SPLIT_SIZE, WHOLE_FILES, Split, files_between, log_parts, plan_splits
from rmqctl.store.columns.spans import ByteSpan
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.read.key_query import unindexed_spans
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
