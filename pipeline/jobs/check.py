"""`check` with the walk and the comparisons done by tasks; everything else, and every judgement, is `store/check`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple, Unpack

import numpy as np

from rmqctl.formats.errors import UnreadableError, told
from rmqctl.pipeline.engine import Engine, without_collections
from rmqctl.pipeline.splits import (
    SPLIT_SIZE,
    Split,
    as_one,
    bundled,
    plan_splits,
    run_by_bundles,
    split_columns,
    take_split,
    whole_files_at_need,
)
from rmqctl.store.check.check import CheckOptions, CheckRun, WalkOrder, cross_checks
from rmqctl.store.check.check import check as check_in_process
from rmqctl.store.check.cross import CrossCheck, Level, TalliedRun
from rmqctl.store.check.index import IndexCheck
from rmqctl.store.check.log import Walked, walked
from rmqctl.store.check.log_findings import Look
from rmqctl.store.check.queue_findings import QueueCheck
from rmqctl.store.check.rocksdb import are_queues_readable
from rmqctl.store.compare.index import FileSurvey, IndexSurvey, readable_files, survey_file
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.files.remote import is_address, reachable_file
from rmqctl.store.index.index_file import Geometry, IndexFile
from rmqctl.store.log.columns import Flags, Int64s, TopicIds
from rmqctl.store.log.implied import Digest, QueueRun, Run, RunRecord
from rmqctl.store.log.walk import Blank, Damage
from rmqctl.store.options import Events
from rmqctl.store.queues.queue_table import ListedQueues
from rmqctl.store.store_files import StoreFiles

# splits whose results are held at a time: a result has some hundred bytes for each queue with messages in the split
_WAVE = 512
# tasks of a stretch of the log: what the driver does for each queue of each task adds up, however small it is
_MOST_TASKS = 4096


def check_with(
    engine: Engine,
    files: StoreFiles,
    level: Level | str = Level.DEFAULT,
    *,
    split_size: int = SPLIT_SIZE,
    events: Events = Events(),
    **options: Unpack[CheckOptions],
) -> CheckRun:
    """`MessageStore.check` with the work done by tasks: the same arguments, findings and summary.

    Tasks read the store only; what they answer is small, and the same for any split size and engine.
    """
    return check_in_process(files, level, events=events, walker=_ByTasks(engine, split_size), **options)


class _ByTasks:
    """See rmqctl.store.check.check.Walker."""

    def __init__(self, engine: Engine, split_size: int) -> None:
        self._engine = engine
        self._split_size = split_size
        self._survey: IndexSurvey | None = None

    def cross_checks(self, files: StoreFiles, level: Level, is_live: bool) -> list[CrossCheck]:
        """The checks, for runs that tasks have compared already."""
        self._survey = error = None
        if files.config.writes_index_files and level is not Level.QUICK:
            try:
                self._survey = survey_here(self._survey_index(files, is_live), files)
            except UnreadableError as caught:
                error = _named(caught, files)
        return cross_checks(files, self._survey, is_live=is_live, error=error)

    def _survey_index(self, files: StoreFiles, is_live: bool) -> IndexSurvey:
        found, strangers = readable_files(files.index, files.descriptors)
        items = [IndexFileItem(files.place, told(str(file.path.resolve())), file.geometry, is_live) for file in found]
        return IndexSurvey(self._engine.run("check: index files", survey_one, items), strangers)

    def walk(self, files: StoreFiles, begin: int, end: int, order: WalkOrder) -> Iterator[Walked]:
        """The log file by file, in order. UnreadableError where a file begins that cannot be read."""
        # the driver has listed them before; files on a server are listed once by each process, names and sizes alike
        with_queues = are_queues_readable(files)
        queues = files.queues.listed() if with_queues and not is_address(files.place) else None
        ordered = CheckOrder(order.is_full, with_queues, queues, self._survey, order.doubtful_from)
        task = partial(check_splits, ordered)
        split_size = self._split_size and max(self._split_size, (end - begin) // _MOST_TASKS)
        for first, stop in _waves(files.log, begin, end, max(split_size, 1) * _WAVE):
            try:
                results = self._checked(files, task, (first, stop), split_size, Events(order.progress))
            except UnreadableError as caught:
                error = _named(caught, files)
                bad = next((file for file in files.log.files if str(file.path) == error.file), None)
                if bad is not None and bad.start_offset > first:
                    # an error ends all tasks, but what lies before that file can be read, and counts
                    yield from self.walk(files, first, bad.start_offset, order)
                raise error from caught
            for found in whole_files(_with_files(files.log, results)):
                numbers = [order.digest.topics.id_of(name.encode("utf-8")) for name in found.topics]
                found.look.topics = renumbered(found.look.topics, numbers)
                yield Walked([_as_named(record, files) for record in found.records], found.look)

    @without_collections()
    def _checked(
        self,
        files: StoreFiles,
        task: Callable[[StoreFiles, Sequence[Split]], list[Checked]],
        stretch: tuple[int, int],
        split_size: int,
        events: Events,
    ) -> list[Checked]:
        def work(size: int, told: Events) -> list[Checked]:
            splits = plan_splits(files, size, *stretch)
            found = run_by_bundles(self._engine, "check: reading the log", task, splits, size, told)
            return list(chain.from_iterable(found))

        return whole_files_at_need(split_size, work, events)


def _as_named(record: RunRecord, files: StoreFiles) -> RunRecord:
    """What a task found, with the paths of files as the caller knows the store."""
    if isinstance(record, Damage):
        return record._replace(file=_path_of(record.file, files))
    if isinstance(record, TalliedRun):
        record.queues_error = record.queues_error and _named(record.queues_error, files)
        record.index_error = record.index_error and _named(record.index_error, files)
    return record


def _named(error: UnreadableError, files: StoreFiles) -> UnreadableError:
    """The same error, likewise."""
    path = None if error.file is None else _path_of(error.file, files)
    return UnreadableError(error.message, file=path, physical_offset=error.physical_offset, hint=error.hint)


def _path_of(path: str, files: StoreFiles) -> str:
    return str(files.path_of(path))


def _waves(log: MappedFileQueue, begin: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """[begin, end) in parts of whole files and at least `size` bytes, so that not all results are held at once."""
    edges = [file.start_offset for file in log.files if begin < file.start_offset < end]
    first = begin
    for edge in edges:
        if edge - first >= size:
            yield first, edge
            first = edge
    yield first, end


def _with_files(log: MappedFileQueue, results: list[Checked]) -> Iterator[tuple[int, Checked]]:
    """Each result with the start of the file in which its first record begins."""
    at = -1
    for found in results:
        if found.records:
            file = log.find(found.records[0].physical_offset)
            at = file.start_offset if file is not None else found.records[0].physical_offset
        yield at, found


# A check's workers: splits are walked and compared with the queues and the index; what it says is small.

# A check's index files, each looked through by itself by a task.


class IndexFileItem(NamedTuple):
    """One index file to look through."""

    store: str
    path: str
    geometry: Geometry
    is_live: bool


def survey_one(item: IndexFileItem) -> FileSurvey:
    """The survey of one index file."""
    with Descriptors() as descriptors:
        file = IndexFile(reachable_file(item.path, item.store), item.geometry, descriptors)
        return survey_file(file, descriptors, is_live=item.is_live)


def survey_here(survey: IndexSurvey, files: StoreFiles) -> IndexSurvey:
    """A survey that another process made, with the paths that index files have here."""
    return replace(survey, files=[replace(one, path=files.layout.index / one.path.name) for one in survey.files])


# bytes of small files that are walked together: of more there is more to hold, and to walk again where one is not sound
_TOGETHER = 16 << 20


class CheckOrder(NamedTuple):
    """What all tasks of a check know. Picklable. `survey`: the index files by themselves, None without an index.
    `doubtful_from`: see `store/check/check.py`. `queues`: as the driver listed them, None for tasks to look for them;
    `with_queues`: whether they are compared."""

    is_full: bool
    with_queues: bool
    queues: ListedQueues | None
    survey: IndexSurvey | None
    doubtful_from: int


class Checked(NamedTuple):
    """What was found in a split, or in several small files: the records, runs as `TalliedRun`, what was noted of the
    messages, and the names of the topics that the note counts."""

    records: list[RunRecord]
    look: Look
    topics: list[str]


@without_collections()
def check_splits(order: CheckOrder, files: StoreFiles, splits: Sequence[Split]) -> list[Checked]:
    """Walk splits of a store, neighbours, with every checksum, and compare their messages.

    Whole files with nothing but messages are walked together, and compared and reported as one: a queue is read once
    for all of them.
    """
    survey = None if order.survey is None else survey_here(order.survey, files)
    order = order._replace(survey=survey)
    if order.queues is not None:
        files.queues.take(order.queues)
    digest = Digest(files.config.delay_levels(), queues=order.with_queues, keys=survey is not None, tags=True)
    made: list[Checked] = []
    held: _SoundFiles | None = None
    for split, found in _walks(order, digest, files, splits):
        is_sound = _is_sound(order, files, split, found)
        if held is not None and not (is_sound and held.is_followed_by(found)):
            made.append(held.finish())
            held = None
        if is_sound:
            held = held or _SoundFiles(order, files, digest.topics)
            held.add(found)
        else:
            made.append(_compared(order, files, digest.topics, found))
    return made if held is None else [*made, held.finish()]


def _walks(
    order: CheckOrder, digest: Digest, files: StoreFiles, splits: Sequence[Split]
) -> Iterator[tuple[Split, Walked]]:
    """What the walk finds in each split; in several as one where all of these are sound."""
    columns = digest.columns | Look(order.is_full).columns

    def walk(split: Split) -> Walked:
        take_split(files, split)
        return walked(digest, order.is_full, split_columns(files, split, columns=columns, topics=digest.topics))

    for neighbours in bundled(splits, _TOGETHER):
        if len(neighbours) > 1:
            split = as_one(neighbours)
            found = walk(split)
            if _is_sound(order, files, split, found):
                yield split, found
                continue
        for split in neighbours:
            yield split, walk(split)


def _is_sound(order: CheckOrder, files: StoreFiles, split: Split, found: Walked) -> bool:
    """Whether whole files were walked, and each has messages one behind the other, up to its end or a blank frame, none
    older than the one before it, and certainly of this log."""
    first, last = files.log.find(split.begin), files.log.find(split.end - 1)
    if first is None or last is None or (first.start_offset, last.end_offset) != (split.begin, split.end):
        return False
    if found.look.jumps.count or not found.records or not isinstance(found.records[0], Run):
        return False
    runs = [record for record in found.records if isinstance(record, Run)]
    is_alone = all(isinstance(record, Run | Blank) for record in found.records)
    follows = all(one.end == other.physical_offset for one, other in itertools.pairwise(found.records))
    return is_alone and follows and runs[-1].physical_offset < order.doubtful_from


class _SoundFiles:
    """Files of which each follows the one before it, compared as one. Of their queues the highest slots are kept: no
    message came back among them."""

    def __init__(self, order: CheckOrder, files: StoreFiles, topics: TopicIds) -> None:
        self._comparison = _Comparison(order, files)
        self._topics = topics
        self._look = Look(order.is_full)
        self._run: Run | None = None
        self._behind: list[RunRecord] = []
        self._highest: dict[tuple[str, int], tuple[int, int, QueueRun]] = {}

    def is_followed_by(self, found: Walked) -> bool:
        """Whether a sound file goes on where the last one ended, and in time."""
        last = self._behind[-1] if self._behind else self._run
        is_next = last is not None and last.end == found.records[0].physical_offset
        return is_next and self._look.last_store_timestamp <= found.look.first_store_timestamp

    def add(self, found: Walked) -> None:
        """The next files."""
        for record in found.records:
            if isinstance(record, Run):
                self._add(record)
            else:
                self._behind.append(record)
        self._look.join(found.look)

    def _add(self, run: Run) -> None:
        self._comparison.add(run)
        for queue in run.queues:
            self._keep_highest(queue)
        before = self._run or Run(run.physical_offset, run.physical_offset, 0, 0, 0)
        # without the columns, which were compared
        self._run = Run(
            before.physical_offset,
            run.end,
            before.messages + run.messages,
            run.last_message_offset,
            run.last_store_timestamp,
            before.unplaceable + run.unplaceable,
        )
        self._behind = []

    def _keep_highest(self, queue: QueueRun) -> None:
        key, slots = (queue.topic, queue.queue_id), queue.slots
        # small files have a few messages of a queue each: what is cheap for many is dear for one
        at = 0 if len(slots) == 1 else int(slots.argmax())
        highest = int(slots[at])
        known = self._highest.get(key)
        if known is None or highest > known[0]:
            self._highest[key] = highest, at, queue

    def finish(self) -> Checked:
        """All of them."""
        assert self._run is not None
        queues = [_rows(queue, [at]) for _, at, queue in self._highest.values()]
        return _told(self._topics, [self._comparison.of(self._run, queues), *self._behind], self._look)


class _Comparison:
    """Runs, one behind the other, held against queues and index."""

    def __init__(self, order: CheckOrder, files: StoreFiles) -> None:
        self._queues = QueueCheck(files) if order.with_queues else None
        self._index = IndexCheck(files, order.survey) if order.survey is not None else None
        self._queues_error: UnreadableError | None = None
        self._index_error: UnreadableError | None = None

    def add(self, run: Run) -> None:
        """The next run."""
        if self._queues is not None and self._queues_error is None:
            self._queues_error = _error_of(partial(self._queues.add, run))
        if self._index is not None and self._index_error is None:
            self._index_error = _error_of(partial(self._index.add, run))

    def of(self, run: Run, queues: list[QueueRun]) -> TalliedRun:
        """What was found, as that of one run with these rows of its queues."""
        if self._queues is not None and self._queues_error is None:
            self._queues_error = _error_of(self._queues.compare)
        made = TalliedRun(
            run.physical_offset,
            run.end,
            run.messages,
            run.last_message_offset,
            run.last_store_timestamp,
            run.unplaceable,
            queues,
            queues_error=self._queues_error,
            index_error=self._index_error,
        )
        if self._queues is not None and self._queues_error is None:
            made.queues_tally = self._queues.tally
        if self._index is not None and self._index_error is None:
            made.index_tally = self._index.tally
        return made


def _error_of(compare: Callable[[], None]) -> UnreadableError | None:
    try:
        compare()
    except UnreadableError as error:
        return error
    return None


def _compared(order: CheckOrder, files: StoreFiles, topics: TopicIds, found: Walked) -> Checked:
    """What was walked, each run compared by itself."""
    records: list[RunRecord] = []
    for record in found.records:
        if isinstance(record, Run):
            comparison = _Comparison(order, files)
            comparison.add(record)
            queues = [kept(queue, found.look.jumps.first) for queue in record.queues]
            record = comparison.of(record, queues)  # noqa: PLW2901
        records.append(record)
    return _told(topics, records, found.look)


def _told(topics: TopicIds, records: list[RunRecord], look: Look) -> Checked:
    """As it leaves the task: with the names of its own topics only."""
    used = np.flatnonzero(look.topics)
    look.topics = look.topics[used]
    return Checked(records, look, [topics.names[number] for number in used.tolist()])


def kept(queue: QueueRun, jumps: list[int]) -> QueueRun:
    """The rows of a queue that have its lowest and highest slot, and the highest before each of the places `jumps`
    (physical offsets) where the store time falls: they tell whether messages came back from before a truncation."""
    slots = queue.slots
    lowest, highest = int(slots.argmin()), int(slots.argmax())
    if not jumps:
        return _rows(queue, sorted({lowest, highest}))
    offsets = queue.units["physical_offset"].astype(np.int64)
    chosen: Flags = np.zeros(len(slots), np.bool_)
    chosen[[lowest, highest]] = True
    for before in np.searchsorted(offsets, np.array(jumps, np.int64)).tolist():
        if before:
            chosen[int(np.argmax(slots[:before]))] = True
    return _rows(queue, np.flatnonzero(chosen))


def _rows(queue: QueueRun, rows: Int64s | list[int]) -> QueueRun:
    return queue._replace(slots=queue.slots[rows].copy(), units=queue.units[rows].copy(), rows=None)


def whole_files(results: Iterator[tuple[int, Checked]]) -> Iterator[Checked]:
    """What was found, put together by the file that the splits are of: so it does not depend on their size.

    `results`: the start offset of the file, and what was found in a split of it, in the log's order.
    """
    held: Checked | None = None
    at = -1
    for start, found in results:
        if held is not None and start == at:
            held = _joined(held, found)
            continue
        if held is not None:
            yield held
        held, at = found, start
    if held is not None:
        yield held


def _joined(held: Checked, later: Checked) -> Checked:
    names = list(held.topics)
    numbers = {name: number for number, name in enumerate(names)}
    for name in later.topics:
        if name not in numbers:
            numbers[name] = len(names)
            names.append(name)
    later.look.topics = renumbered(later.look.topics, [numbers[name] for name in later.topics])
    held.look.join(later.look)
    records = held.records
    for record in later.records:
        last = records[-1] if records else None
        if isinstance(record, TalliedRun) and isinstance(last, TalliedRun) and last.end == record.physical_offset:
            last.join(record)
        else:
            records.append(record)
    return Checked(records, held.look, names)


def renumbered(counts: Int64s, numbers: list[int]) -> Int64s:
    """Counts of topics by other numbers of them."""
    made = np.zeros(max(numbers, default=-1) + 1, np.int64)
    made[np.array(numbers[: len(counts)], np.int64)] = counts
    return made
