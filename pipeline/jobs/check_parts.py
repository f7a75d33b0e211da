"""A check's workers: splits are walked and compared with the queues and the index; what it says is small.

What compares and what judges is the store's own code (`store/check`), so that the findings are those of the check in
one process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.pipeline.engine import without_collections
from rmqctl.pipeline.splits import Split, as_one, bundled, split_columns, take_split
from rmqctl.store.check.cross import TalliedRun
from rmqctl.store.check.index import IndexCheck
from rmqctl.store.check.log import Walked, walked
from rmqctl.store.check.log_findings import Look
from rmqctl.store.check.queue_findings import QueueCheck
from rmqctl.store.compare.index import FileSurvey, IndexSurvey, survey_file
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.files.remote import reachable_file
from rmqctl.store.index.index_file import Geometry, IndexFile
from rmqctl.store.log.columns import Flags, Int64s, TopicIds
from rmqctl.store.log.implied import Digest, QueueRun, Run, RunRecord
from rmqctl.store.log.walk import Blank
from rmqctl.store.queues.queue_table import ListedQueues
from rmqctl.store.store_files import StoreFiles

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

    Whole files in which nothing but messages stands are walked together, and compared and told as one: a queue is read
    once for all of them.
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
