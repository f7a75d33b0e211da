"""Splits: byte ranges of a commitlog that can be read apart from one another, wherever a machine sees the store.

A split has exactly the records that start in its range. Put together, splits of any size have the records of the
serial walk: messages, blank frames and damaged spans (runs of messages may be cut in other places).
"""

from __future__ import annotations

import socket
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from rmqctl.formats.errors import NotAStoreError, RefusedError, told
from rmqctl.pipeline.engine import Engine
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import elsewhere_of
from rmqctl.store.files.remote import is_address
from rmqctl.store.log.column_walk import ROWS, WINDOW, FileWalk, Request
from rmqctl.store.log.columns import ColumnRecord, MessageColumns, TopicIds
from rmqctl.store.log.implied import Digest, RunRecord
from rmqctl.store.log.resync import LOOK_BACK, sure_start
from rmqctl.store.log.search import FrameSearch
from rmqctl.store.log.walk import Blank, Damage, Empty, walk_files
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import Events
from rmqctl.store.store_files import StoreFiles

SPLIT_SIZE = 128 * 1024 * 1024
# how many zeros make it likely that nothing else follows
_PROBE = 4096
WHOLE_FILES = 0
"""As a split size: one split a file, which needs no resynchronisation."""


class PlannedFile(NamedTuple):
    """A file of the log as it was listed: its path or address, and its size; on a server what `Listed` has of it."""

    path: str
    size: int
    modified_ns: int | None = None
    version: str = ""


class Split(NamedTuple):
    """The records of a store that start in [begin, end), physical offsets; `begin` need not be a record's start.

    `store` is an absolute path, the same on every machine, or an address. `files` are those that a reader of the split
    needs: the one that it begins in or after, and those up to the one after it; without any, the store is listed again.
    `file_size`: what the log's files have as a rule. `listing`: in which listing of a server they were seen. Picklable.
    """

    store: str
    config: StoreConfig
    begin: int
    end: int
    files: tuple[PlannedFile, ...] = ()
    file_size: int = 0
    listing: str = ""


class SplitEdgeError(RefusedError):
    """A record of more than LOOK_BACK bytes holds what looks like messages, at the edges of splits: use WHOLE_FILES."""


class LogPart(NamedTuple):
    """The bytes [begin, end), physical offsets, of a file, or damage between files."""

    begin: int
    end: int
    file: MappedFile | None


def plan_splits(
    files: StoreFiles, split_size: int = SPLIT_SIZE, begin: int | None = None, end: int | None = None
) -> list[Split]:
    """Splits of at most about `split_size` bytes (WHOLE_FILES: of one file each) that cover the log, in its order.

    No split spans two files; damage between files goes with the file before it. The empty end of a log is not split.
    With `begin` and `end` (physical offsets) the log from `begin` up to `end` only. Reads a few pages at the end of the
    log, so it costs the same for any store.
    """
    edges: list[int] = []
    last = 0
    for part in log_parts(files):
        last = max(last, part.end)
        if part.file is None:
            if not edges:
                edges.append(part.begin)
            continue
        edges.append(part.begin)
        if split_size > 0:
            # the last split of a file may be half as long again, so that no small one is left over
            edges += range(part.begin + split_size, part.end - split_size // 2, split_size)
    edges = _without_empty(files, edges, {file.start_offset for file in files.log.files})
    store = files.place
    found = []
    for number, edge in enumerate(edges):
        first = edge if begin is None else max(edge, begin)
        stop = edges[number + 1] if number + 1 < len(edges) else last
        stop = stop if end is None else min(stop, end)
        if first < stop:
            needed = files_between(files.log, first, stop)
            found.append(Split(store, files.config, first, stop, needed, files.log.file_size, files.listing))
    return found


def files_between(log: MappedFileQueue, begin: int, end: int) -> tuple[PlannedFile, ...]:
    """The files that a walk over [begin, end) takes notice of: with the last one that begins before,
    behind which there may be a gap, and the first one behind, where the file before it ends at the latest."""
    first = bisect_right(log.files, begin, key=lambda file: file.start_offset)
    last = bisect_left(log.files, end, key=lambda file: file.start_offset)
    needed = [(file.path, file.size) for file in log.files[max(first - 1, 0) : last + 1]]
    needed += [(path, 0) for path in log.empty_between(begin, end)]
    return tuple(_planned(path, size) for path, size in needed)


def _planned(path: Path, size: int) -> PlannedFile:
    remote = elsewhere_of(path)
    if remote is None:
        return PlannedFile(str(path), size)
    return PlannedFile(told(str(path)), remote.size, remote.modified_ns, remote.version)


def _without_empty(files: StoreFiles, edges: list[int], starts: set[int]) -> list[int]:
    """The edges without those in the empty space at the end of the log, the beginnings of files apart.

    The task at the beginning of that space reads all of it to know that it is empty: others would only repeat that. An
    edge too few makes one split larger and nothing wrong.
    """
    kept: list[int] = []
    for number, edge in reversed(list(enumerate(edges))):
        if not number or any(files.log.read(edge, _PROBE)):
            return edges[: number + 1] + kept[::-1]
        if edge in starts:
            kept.append(edge)
    return []


def log_parts(files: StoreFiles) -> Iterator[LogPart]:
    """What the log consists of, in its order."""

    def one_file(file: MappedFile, start: int, end: int) -> Iterator[LogPart]:
        yield LogPart(file.start_offset + start, file.start_offset + end, file)

    for item in walk_files(files.log, 0, one_file):
        yield LogPart(item.physical_offset, item.end, None) if isinstance(item, Damage) else item


def open_split(split: Split) -> StoreFiles:
    """The store of a split, opened for reading; close it. NotAStoreError as `open_in_task`."""
    files = open_in_task(split.store, split.config, split.listing, split.files)
    take_split(files, split)
    return files


def open_in_task(store: str, config: StoreConfig, listing: str = "", planned: Sequence[PlannedFile] = ()) -> StoreFiles:
    """Open a store for reading that another process has opened before; NotAStoreError that names this machine if it
    does not see the store.

    Of one on a server these files were seen in `listing`: what else is in the store is listed when it is asked for,
    once in a process. An empty `listing` is that of this process.
    """
    try:
        if not (listing and is_address(store)):
            return StoreFiles(Path(store), config)
        from rmqctl.store.files.remote_files import as_far_as_known

        _take_plan(store, listing, planned)
        with as_far_as_known() if planned else nullcontext():
            return StoreFiles(Path(store), config)
    except NotAStoreError as error:
        raise NotAStoreError(
            f"{error.message} on the machine {socket.gethostname()}, which has a task that reads it",
            file=error.file,
            hint="every executor has to see the store under the same path as the driver: mount it there",
        ) from error


def _take_plan(store: str, listing: str, planned: Sequence[PlannedFile]) -> None:
    from rmqctl.store.files.remote_file_system import Listed
    from rmqctl.store.files.remote_files import take_plan

    below = [(file.path.removeprefix(store + "/"), file) for file in planned if file.path.startswith(store + "/")]
    take_plan(store, listing, [Listed(name, file.size, file.modified_ns, file.version) for name, file in below])


def take_split(files: StoreFiles, split: Split) -> None:
    """Have of the log of an opened store what the split names, instead of what was had or would be listed."""
    if split.files:
        if split.listing:
            _take_plan(split.store, split.listing, split.files)
        files.take_log([(files.path_of(file.path), file.size) for file in split.files], split.file_size)


def first_record(files: StoreFiles, offset: int) -> int:
    """Physical offset of the first record of the serial walk that starts at or behind `offset`."""
    part = next((part for part in log_parts(files) if part.begin <= offset < part.end), None)
    if part is None or part.begin == offset:
        return offset
    if part.file is None:
        return part.end
    start = part.file.start_offset
    request = Request(files.log, TopicIds(), Columns.NONE, limit=offset)
    with part.file.hold() as held:
        if not held:
            return part.end
        search = FrameSearch(part.file, part.end - start)
        behind = offset - start
        if not any(search.read(behind, min(_PROBE, part.end - offset))):
            # nothing is certain in the empty space behind the last record, so it need not be looked through
            behind = min(behind, search.nonzero_end)
        position = sure_start(search, start, behind, part.end - start)
        reached = start + position
        for record in FileWalk(request, part.file).records(position, part.end - start):
            reached = record.end
    return reached


def split_columns(
    files: StoreFiles,
    split: Split,
    *,
    columns: Columns = Columns.DISPATCH,
    topics: TopicIds | None = None,
    window: int = WINDOW,
    rows: int = ROWS,
) -> Iterator[ColumnRecord]:
    """The records that start in the split: runs of messages as `MessageColumns`, blanks, empty and damaged spans.

    `files`: the split's store, opened. The rest is as in `walk_columns`; every checksum is checked. SplitEdgeError at
    the end, if a later split might begin inside the last record although it cannot know.
    """
    topics = topics if topics is not None else TopicIds()
    request = Request(files.log, topics, columns, 0, split.end, None, window, rows)

    def one_file(file: MappedFile, start: int, end: int) -> Iterator[ColumnRecord]:
        if file.start_offset + start >= split.end:
            return iter(())
        return FileWalk(request, file).records(start, end)

    last: ColumnRecord | None = None
    for record in walk_files(files.log, first_record(files, split.begin), one_file):
        if not isinstance(record, MessageColumns) and record.physical_offset >= split.end:
            break
        last = record
        yield record
    if last is not None and last.end > split.end and not isinstance(last, Empty):
        _check_edge(files, split, last)


def _check_edge(files: StoreFiles, split: Split, last: MessageColumns | Blank | Damage) -> None:
    """SplitEdgeError if a split could begin inside the last record of this one."""
    start = int(last.physical_offset[-1]) if isinstance(last, MessageColumns) else last.physical_offset
    if last.end - start <= LOOK_BACK:
        return
    part = next((part for part in log_parts(files) if part.begin <= split.end < part.end), None)
    if part is None or part.file is None or part.begin > start:
        return
    file_start = part.file.start_offset
    search = FrameSearch(part.file, part.end - file_start)
    found = file_start + sure_start(search, file_start, last.end - 1 - file_start, part.end - file_start)
    if start < found:
        raise SplitEdgeError(
            f"a record of {last.end - start} bytes holds what looks like messages, where splits might begin",
            file=part.file.path,
            physical_offset=start,
            hint="read the store in whole files: give a split size of 0",
        )


def split_runs(files: StoreFiles, split: Split, digest: Digest) -> list[RunRecord]:
    """What the messages of a split imply, and its other records, in the log's order; see `log_runs.Digest`."""
    return digest.runs(split_columns(files, split, columns=digest.columns, topics=digest.topics))


# Work over all splits of a store, whatever stands at their edges.

Result = TypeVar("Result")


def run_over_splits(
    engine: Engine,
    name: str,
    task: Callable[[StoreFiles, Split], Result],
    files: StoreFiles,
    *,
    split_size: int = SPLIT_SIZE,
    begin: int | None = None,
    end: int | None = None,
    events: Events = Events(),
) -> list[Result]:
    """`task` of each split of the log, or of [begin, end) of it, with its store opened; the results in the log's order.

    See `run_bundles`, plan_splits and `whole_files_at_need`. Reported are bytes of the log, as well as they are
    known.
    """

    def work(size: int, told: Events) -> list[Result]:
        return run_bundles(engine, name, task, plan_splits(files, size, begin, end), size, told)

    return whole_files_at_need(split_size, work, events)


def run_bundles(
    engine: Engine,
    name: str,
    task: Callable[[StoreFiles, Split], Result],
    splits: Sequence[Split],
    size: int,
    events: Events = Events(),
) -> list[Result]:
    """`task` of each split; the results in the order of the splits, which is the log's.

    See `run_by_bundles`.
    """
    return list(chain.from_iterable(run_by_bundles(engine, name, partial(_each, task), splits, size, events)))


def run_by_bundles(
    engine: Engine,
    name: str,
    task: Callable[[StoreFiles, Sequence[Split]], Result],
    splits: Sequence[Split],
    size: int,
    events: Events = Events(),
) -> list[Result]:
    """`task` of each bundle of splits; the results in the log's order.

    Small files have small splits: neighbours of `size` bytes together are one item of the engine, for which the store
    is opened once. See `of_bundle` and Engine.run.
    """
    bundles = list(bundled(splits, size))
    total = sum(split.end - split.begin for split in splits)
    told = on_done_telling(events, total, len(bundles))
    return engine.run(name, partial(of_bundle, task), bundles, told)


def bundled(splits: Sequence[Split], size: int) -> Iterator[tuple[Split, ...]]:
    """Neighbours together, of at most `size` bytes unless one alone has more."""
    bundle: list[Split] = []
    held = 0
    for split in splits:
        length = split.end - split.begin
        if bundle and held + length > size:
            yield tuple(bundle)
            bundle, held = [], 0
        bundle.append(split)
        held += length
    if bundle:
        yield tuple(bundle)


def of_bundle(task: Callable[[StoreFiles, Sequence[Split]], Result], bundle: Sequence[Split]) -> Result:
    """Task: `task` of some splits of one store, which are in the log's order, with the store opened: queues and index
    once. Of the log it takes what each split needs, see `take_split`."""
    with open_split(bundle[0]) as files:
        return task(files, bundle)


def as_one(splits: Sequence[Split]) -> Split:
    """Neighbouring splits, at least one, as one."""
    files = {file.path: file for split in splits for file in split.files}
    return splits[0]._replace(end=splits[-1].end, files=tuple(files.values()))


def _each(task: Callable[[StoreFiles, Split], Result], files: StoreFiles, splits: Sequence[Split]) -> list[Result]:
    results = []
    for split in splits:
        take_split(files, split)
        results.append(task(files, split))
    return results


def whole_files_at_need(split_size: int, work: Callable[[int, Events], Result], events: Events = Events()) -> Result:
    """Return `work` of the split size; if a huge message hides decoys at an edge (SplitEdgeError), again of
    WHOLE_FILES.

    `work` gets `events`, too. Before work is done again its former progress is subtracted.
    """
    done = 0

    def telling(size: int) -> None:
        nonlocal done
        done += size
        events.passed(size)

    try:
        return work(split_size, events if events.progress is None else events._replace(progress=telling))
    except SplitEdgeError:
        if split_size == WHOLE_FILES:
            raise
    if done:
        telling(-done)
    return work(WHOLE_FILES, events)


def on_done_telling(events: Events, total: int, items: int) -> Callable[[int], None] | None:
    """An Engine's `on_done` that reports `total` bytes while `items` are done."""
    if events.progress is None or not items:
        return None
    done = 0

    def on_done(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        events.passed(total * done // items - total * before // items)

    return on_done
