"""The tasks of a query over messages: which parts of the log, and how each is read.

A part is walked from end to end, or only what the consume queues leave over of it (`splits.named`), or only a few
frames that are known to be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rmqctl.pipeline.source.options import SourceOptions
from rmqctl.pipeline.source.prune import kept_splits
from rmqctl.pipeline.source.wanted import Wanted
from rmqctl.pipeline.splits.named import saves_reading, spans_to_read, sure_places
from rmqctl.pipeline.splits.splits import SPLIT_SIZE, WHOLE_FILES, Split, files_between, plan_splits
from rmqctl.store.columns.spans import ByteSpan
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.store_files import StoreFiles

# more places than these are walked to: each takes a few reads while the query is planned
_MOST_PLACES = 1000


class LogTask(NamedTuple):
    """A split, and how it is read: `spans` of it only, physical offsets; what queues leave over; else all of it."""

    split: Split
    spans: tuple[ByteSpan, ...] | None = None
    by_queues: bool = False


def plan_tasks(
    files: StoreFiles, options: SourceOptions, wanted: Wanted, begin: int | None = None, end: int | None = None
) -> list[LogTask]:
    """Tasks that together have every wanted message of [begin, end) of the log, None for its ends, in its order."""
    found = _at_places(files, wanted, begin, end) if options.split_size != WHOLE_FILES else None
    if found is None:
        found = _by_queues(files, options, wanted, begin, end)
    if found is None:
        splits = plan_splits(files, split_size(options, files.log, begin, end), begin, end)
        clips = options.split_size != WHOLE_FILES
        kept = kept_splits(files.log, splits, wanted, options.clock_tolerance, clips=clips)
        found = [LogTask(split) for split in kept]
    return found


def spans_of(files: StoreFiles, task: LogTask, wanted: Wanted) -> Sequence[ByteSpan] | None:
    """What to read of the task's split, see `splits.named`; None for all of it. `files`: its store, opened."""
    if not task.by_queues:
        return task.spans
    first = files.log.find(task.split.begin)
    begin = task.split.begin if first is None else first.start_offset
    return spans_to_read(files, begin, task.split.end, wanted.slots)


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
    root = str(files.root.resolve())
    tasks = []
    for _, group in groupby(sure, lambda span: getattr(files.log.find(span[0]), "start_offset", None)):
        spans = tuple(group)
        first, stop = spans[0][0], spans[-1][1]
        split = Split(root, files.config, first, stop, files_between(files.log, first, stop), files.log.file_size)
        tasks.append(LogTask(split, spans))
    return tasks


def _by_queues(
    files: StoreFiles, options: SourceOptions, wanted: Wanted, begin: int | None, end: int | None
) -> list[LogTask] | None:
    """Tasks of whole files; None where walking them is not much dearer."""
    if not wanted.is_about_queues or not wanted.physical_offsets.is_all:
        return None
    splits = plan_splits(files, WHOLE_FILES, begin, end)
    kept = kept_splits(files.log, splits, wanted, options.clock_tolerance, clips=False)
    size = split_size(options, files.log, begin, end) if options.split_size != WHOLE_FILES else SPLIT_SIZE
    joined = list(_joined(files.log, kept, size))
    if not joined or not saves_reading(files, wanted.slots, joined[0].begin, joined[-1].end, len(joined)):
        return None
    return [LogTask(split, by_queues=True) for split in joined]


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
