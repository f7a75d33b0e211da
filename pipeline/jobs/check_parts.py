"""A check's workers: a split is walked and compared with the queues and the index; what it says is small.

What compares and what judges is the store's own code (`store/check`), so that the findings are those of the check in
one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.pipeline.splits.splits import Split, split_columns
from rmqctl.store.check.index.compare import IndexTally
from rmqctl.store.check.index.index import IndexCheck
from rmqctl.store.check.index.index_files import FileSurvey, IndexSurvey, survey_file
from rmqctl.store.check.log.batch_look import Look
from rmqctl.store.check.log.log_walk import walked
from rmqctl.store.check.queues.queues import QueueCheck
from rmqctl.store.check.queues.tally import QueuesTally
from rmqctl.store.columns.batch import Flags, Int64s
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry, IndexFile
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_runs import Digest, QueueRun, Run, RunRecord


class CheckOrder(NamedTuple):
    """What all tasks of a check know. Picklable. `survey`: the index files by themselves, None without an index."""

    is_full: bool
    with_queues: bool
    survey: IndexSurvey | None


class Checked(NamedTuple):
    """What a task found: the records of its split, runs as `TalliedRun`, what was noted of its messages, and the names
    of the topics that the note counts."""

    records: list[RunRecord]
    look: Look
    topics: list[str]


@dataclass(slots=True)
class TalliedRun(Run):
    """A run that was compared already. Of its queues only the rows are kept that judge what follows (see `kept`).

    Where a file of the queues or of the index could not be read, the error stands beside a tally that means nothing.
    """

    queues_tally: QueuesTally = field(default_factory=QueuesTally)
    index_tally: IndexTally = field(default_factory=IndexTally)
    queues_error: UnreadableError | None = None
    index_error: UnreadableError | None = None

    def join(self, later: TalliedRun) -> None:
        """Add the run that begins where this one ends; it is used up."""
        self.end = later.end
        self.messages += later.messages
        self.last_message_offset = later.last_message_offset
        self.last_store_timestamp = later.last_store_timestamp
        self.unplaceable += later.unplaceable
        self.queues_tally.merge(later.queues_tally)
        self.index_tally.merge(later.index_tally)
        self.queues_error = self.queues_error or later.queues_error
        self.index_error = self.index_error or later.index_error
        known = {(queue.topic, queue.queue_id): place for place, queue in enumerate(self.queues)}
        for queue in later.queues:
            place = known.get((queue.topic, queue.queue_id))
            if place is None:
                self.queues.append(queue)
                continue
            before = self.queues[place]
            slots, units = np.concatenate([before.slots, queue.slots]), np.concatenate([before.units, queue.units])
            self.queues[place] = before._replace(slots=slots, units=units)


class IndexFileItem(NamedTuple):
    """One index file to look through."""

    path: str
    geometry: Geometry
    is_live: bool


def survey_one(item: IndexFileItem) -> FileSurvey:
    """The survey of one index file."""
    descriptors = Descriptors()
    try:
        file = IndexFile(Path(item.path), item.geometry, descriptors)
        return survey_file(file, descriptors, is_live=item.is_live)
    finally:
        descriptors.close()


def check_split(order: CheckOrder, files: StoreFiles, split: Split) -> Checked:
    """Walk a split of a store with every checksum, and compare its messages."""
    digest = Digest(split.config.delay_levels(), queues=order.with_queues, keys=order.survey is not None)
    columns = digest.columns | Look(order.is_full).columns
    found = walked(digest, order.is_full, split_columns(files, split, columns=columns, topics=digest.topics))
    records: list[RunRecord] = []
    for record in found.records:
        if isinstance(record, Run):
            queues = QueueCheck(files) if order.with_queues else None
            index = IndexCheck(files, order.survey) if order.survey is not None else None
            records.append(_tallied(record, queues, index, found.look.jumps.first))
        else:
            records.append(record)
    return Checked(records, found.look, list(digest.topics.names))


def _tallied(run: Run, queues: QueueCheck | None, index: IndexCheck | None, jumps: list[int]) -> TalliedRun:
    made = TalliedRun(
        run.physical_offset,
        run.end,
        run.messages,
        run.last_message_offset,
        run.last_store_timestamp,
        run.unplaceable,
        [kept(queue, jumps) for queue in run.queues],
    )
    if queues is not None:
        try:
            queues.add(run)
            made.queues_tally = queues.tally
        except UnreadableError as error:
            made.queues_error = error
    if index is not None:
        try:
            index.add(run)
            made.index_tally = index.tally
        except UnreadableError as error:
            made.index_error = error
    return made


def kept(queue: QueueRun, jumps: list[int]) -> QueueRun:
    """The rows of a queue that have its lowest and highest slot, and the highest before each of the places `jumps`
    (physical offsets) where the store time falls: they tell whether messages came back from before a truncation."""
    slots, offsets = queue.slots, queue.units["physical_offset"].astype(np.int64)
    chosen: Flags = np.zeros(len(slots), np.bool_)
    chosen[[int(np.argmin(slots)), int(np.argmax(slots))]] = True
    for before in np.searchsorted(offsets, np.array(jumps, np.int64)).tolist():
        if before:
            chosen[int(np.argmax(slots[:before]))] = True
    rows: Int64s = np.flatnonzero(chosen)
    return queue._replace(slots=slots[rows].copy(), units=queue.units[rows].copy(), rows=None)


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
