"""`check` with the walk and the comparisons done by tasks; everything else, and every judgement, is `store/check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Unpack

from rmqctl.formats.errors import UnreadableError, told
from rmqctl.pipeline.engine import Engine, without_collections
from rmqctl.pipeline.jobs.check_parts import (
    Checked,
    CheckOrder,
    IndexFileItem,
    check_splits,
    renumbered,
    survey_here,
    survey_one,
    whole_files,
)
from rmqctl.pipeline.splits import SPLIT_SIZE, Split, plan_splits, run_by_bundles, whole_files_at_need
from rmqctl.store.check.check import CheckOptions, CheckRun, WalkOrder, cross_checks
from rmqctl.store.check.check import check as check_in_process
from rmqctl.store.check.cross import CrossCheck, Level, TalliedRun
from rmqctl.store.check.log import Walked
from rmqctl.store.check.rocksdb import are_queues_readable
from rmqctl.store.compare.index import IndexSurvey, readable_files
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.remote import is_address
from rmqctl.store.log.implied import RunRecord
from rmqctl.store.log.walk import Damage
from rmqctl.store.options import Events
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
        if files.dledger is None and files.config.writes_index_files and level is not Level.QUICK:
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
