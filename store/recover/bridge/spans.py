"""The damaged spans of a log that have good records behind them, and where each queue stands around them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC
from rmqctl.store.commitlog.walk import Damage, Progress
from rmqctl.store.files.layout import file_name
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.queues.unit import QueueKey
from rmqctl.store.recover.mend.slot_order import LARGEST_BATCH
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_runs import Digest, Run
from rmqctl.store.survey.log_survey import new_survey
from rmqctl.store.survey.run_survey import survey_runs


@dataclass(slots=True)
class Span:
    """Damaged bytes [begin, end) of one commitlog file. Offsets are physical.

    `file_start`: of the file, which exists with `existing` bytes (0: it is missing or empty). `run`: number of the run
    of good messages before it, -1 for none. `has_blank`: a blank frame follows, up to the file's end.
    """

    begin: int
    end: int
    reason: str
    path: Path
    file_start: int
    file_size: int
    existing: int
    run: int = -1
    has_blank: bool = False

    @property
    def file_end(self) -> int:
        """Where its file ends."""
        return self.file_start + self.file_size

    @property
    def is_to_file_end(self) -> bool:
        """Whether nothing of the file follows."""
        return self.end == self.file_end

    @property
    def reach(self) -> int:
        """Up to where lost messages can have stood: a blank frame behind damage bears no position of its own, so that
        only the queues tell whether it is this file's, or came with what took their place."""
        return self.file_end if self.has_blank else self.end


@dataclass(slots=True)
class LogMap:
    """Runs of good messages in order: begin, end and last message of each; and for each queue the runs that have
    messages of it, with the first and the last slot in each. `batch_queues`: those that have inner batches."""

    runs: list[tuple[int, int, int]] = field(default_factory=list)
    queues: dict[QueueKey, list[tuple[int, int, int]]] = field(default_factory=dict)
    batch_queues: set[QueueKey] = field(default_factory=set)

    def slots_around(self, key: QueueKey, run: int) -> tuple[int, int | None]:
        """The slots [first, end) of a queue that messages between run number `run` and the next can have; `end` is None
        where no message follows."""
        known = self.queues.get(key, [])
        place = bisect_right(known, run, key=lambda item: item[0])
        first = known[place - 1][2] + 1 if place else 0
        return first, known[place][1] if place < len(known) else None

    def run_before(self, physical_offset: int) -> int:
        """Number of the last run that begins before an offset, -1 if there is none."""
        return bisect_left(self.runs, physical_offset, key=lambda run: run[0]) - 1


def survey_damage(files: StoreFiles, progress: Progress | None = None) -> tuple[list[Span], LogMap]:
    """Read the whole log: every damaged span that is not its torn tail, and the map of what is good.

    RefusedError where the names of the files do not fit the size of a missing one.
    """
    levels = files.config.delay_levels_to_write()
    found = LogMap()

    def on_run(run: Run) -> None:
        number = len(found.runs)
        found.runs.append((run.physical_offset, run.end, run.last_message_offset))
        slots = {
            (queue.topic, queue.queue_id): [int(queue.slots.min()), int(queue.slots.max())] for queue in run.queues
        }
        for _, message in run.special:
            for slot in queue_slots(message, levels):
                key, unit = (slot.topic, slot.queue_id), slot.unit
                if slot.is_batch:
                    if not 0 < unit.batch_size <= LARGEST_BATCH or unit.queue_offset < 0:
                        continue  # no unit is made of it
                    found.batch_queues.add(key)
                slots.setdefault(key, []).extend((unit.queue_offset, unit.next_queue_offset - 1))
        for key, numbers in slots.items():
            found.queues.setdefault(key, []).append((number, min(numbers), max(numbers)))

    survey = new_survey(files.log, 0, tolerant=True)
    survey_runs(survey, files.log, Digest(levels, keys=False), on_run, progress)
    spans = _merged(piece for damage in survey.tolerated for piece in _by_file(files, damage))
    for span in spans:
        if not span.existing and span.end - span.begin != span.file_size:
            raise RefusedError(
                f"{span.end - span.begin} bytes of the log are missing there, which is no whole file of "
                f"{span.file_size}",
                file=span.path,
                hint="check the files' names, and mappedFileSizeCommitLog with -c broker.conf",
            )
        span.run = found.run_before(span.begin)
        span.has_blank = _is_blank(files.log.read(span.end, BLANK_FRAME.size), span.file_end - span.end)
    return spans, found


def _is_blank(head: bytes, size: int) -> bool:
    return len(head) == BLANK_FRAME.size and BLANK_FRAME.unpack_from(head, 0) == (size, BLANK_MAGIC)


def _by_file(files: StoreFiles, damage: Damage) -> Iterator[Span]:
    log, size, empty = files.log, files.log.file_size, files.log.empty_files()
    begin = damage.physical_offset
    while begin < damage.end:
        file = [file for file in log.files if file.start_offset <= begin][-1]
        # of the file that should hold it: bytes that stick out of the one before it are not what is lost
        start = begin - (begin - file.start_offset) % size
        end = min(damage.end, start + size)
        is_there = start == file.start_offset
        path = file.path if is_there else empty.get(start, log.path_of(start).parent / file_name(start))
        yield Span(begin, end, str(damage.reason), path, start, size, file.size if is_there else 0)
        begin = end


def _merged(pieces: Iterator[Span]) -> list[Span]:
    spans: list[Span] = []
    for piece in pieces:
        if spans and spans[-1].end == piece.begin and spans[-1].file_start == piece.file_start:
            spans[-1].end = piece.end
        else:
            spans.append(piece)
    return spans
