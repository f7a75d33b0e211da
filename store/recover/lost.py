"""Which messages stood in a damaged span, as far as frames that only fail a CRC, queue units and missing slots tell."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import (
    BATCH_ITEM_HEAD,
    BATCH_ITEM_PROPERTIES_LENGTH,
    BLANK_FRAME,
    BLANK_MAGIC,
    SYS_FLAG_INNER_BATCH,
)
from rmqctl.formats.message import MINIMUM_FRAME_SIZE, StoredMessage
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.compare.queues import has_batch_slot
from rmqctl.store.files.layout import file_name
from rmqctl.store.log.implied import UNIT, Digest, Run
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE
from rmqctl.store.log.survey import new_survey, survey_runs
from rmqctl.store.log.walk import Damage, message_if_any
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import LARGEST_BATCH, BatchConsumeQueue, ConsumeQueue, QueueKey
from rmqctl.store.queues.dispatch import LMQ_PREFIX, MULTI_DISPATCH_SEPARATOR, queue_slots
from rmqctl.store.store_files import StoreFiles

# The damaged spans of a log that have good records behind them, and where each queue stands around them.


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
        """Return the slots [first, end) of a queue that messages between run number `run` and the next can have; `end`
        is None without a later message."""
        known = self.queues.get(key, [])
        place = bisect_right(known, run, key=lambda item: item[0])
        first = known[place - 1][2] + 1 if place else 0
        return first, known[place][1] if place < len(known) else None

    def run_before(self, physical_offset: int) -> int:
        """Return the number of the last run that begins before an offset, -1 without one."""
        return bisect_left(self.runs, physical_offset, key=lambda run: run[0]) - 1


def survey_damage(files: StoreFiles, events: Events = Events()) -> tuple[list[Span], LogMap]:
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
                    if not has_batch_slot(unit, 0):
                        continue  # no unit is made of it
                    found.batch_queues.add(key)
                slots.setdefault(key, []).extend((unit.queue_offset, unit.next_queue_offset - 1))
        for key, numbers in slots.items():
            found.queues.setdefault(key, []).append((number, min(numbers), max(numbers)))

    survey = new_survey(files.log, 0, tolerant=True)
    survey_runs(survey, files.log, Digest(levels, keys=False), on_run, events.progress)
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


# bytes of a frame that each message of an inner batch takes at least
_SMALLEST_ITEM = BATCH_ITEM_HEAD.size + BATCH_ITEM_PROPERTIES_LENGTH.size


class Slot(NamedTuple):
    """A place in a queue. `batch_size`: messages of the inner batch that begins there; 0 where a queue has 20-byte
    units."""

    key: QueueKey
    queue_offset: int
    batch_size: int = 0

    @property
    def end(self) -> int:
        """Queue offset behind it."""
        return self.queue_offset + max(1, self.batch_size)


@dataclass(slots=True)
class Lost:
    """One lost message: `slots` of the queues that had it, the first being its own. `physical_offset` is -1 and `size`
    0 where only the missing slot tells that there was one."""

    slots: list[Slot]
    physical_offset: int = -1
    size: int = 0

    @property
    def own(self) -> Slot:
        """Its place in its own topic and queue."""
        return self.slots[0]

    @property
    def sys_flag(self) -> int:
        """Of the frame that takes its place. Without NEED_UNWRAP: consumers see one message, not those of a batch."""
        return SYS_FLAG_INNER_BATCH if self.own.batch_size else 0

    @property
    def properties(self) -> dict[str, str]:
        """Those by which a broker makes the units: of an inner batch (CommitLog#setBatchSizeIfNeeded wants both of
        them) and in further queues (multi-dispatch)."""
        found: dict[str, str] = {}
        if self.own.batch_size:
            found[names.INNER_NUM] = str(self.own.batch_size)
            found[names.INNER_BASE] = str(self.own.queue_offset)
        more = self.slots[1:]
        if more:
            found[names.INNER_MULTI_DISPATCH] = MULTI_DISPATCH_SEPARATOR.join(slot.key[0] for slot in more)
            offsets = (str(slot.queue_offset) for slot in more)
            found[names.INNER_MULTI_QUEUE_OFFSET] = MULTI_DISPATCH_SEPARATOR.join(offsets)
        return found


@dataclass(slots=True)
class _Found:
    """What the units say about one place: size, and slots by queue."""

    size: int
    slots: list[Slot] = field(default_factory=list)


def find_lost(files: StoreFiles, spans: list[Span], log_map: LogMap) -> list[list[Lost]]:
    """The lost messages of each span, in the order in which they stood. A span with lost messages in the blank frame
    behind it becomes longer: that frame is part of the damage."""
    if not spans:
        return []
    units = _units_into(files, spans)
    _take_blanks(spans, units)
    # the next slot that each queue can have: what was found in earlier spans counts
    reached: dict[QueueKey, int] = {}
    found = [_in_span(files, span, units, log_map, reached) for span in spans]
    batch_queues = {(queue.topic, queue.queue_id) for queue in _batch_queues(files)} | log_map.batch_queues
    _add_missing(spans, found, log_map, batch_queues)
    return found


def _batch_queues(files: StoreFiles) -> list[BatchConsumeQueue]:
    return [queue for queue in files.queues.all() if isinstance(queue, BatchConsumeQueue)]


def _units_into(files: StoreFiles, spans: list[Span]) -> dict[int, _Found]:
    """Queue units that point into the spans, by physical offset."""
    found: dict[int, _Found] = {}
    begins = np.array([span.begin for span in spans], np.int64)
    ends = np.array([span.reach for span in spans], np.int64)
    for queue in files.queues.all():
        if not isinstance(queue, ConsumeQueue):
            continue
        for first, data in queue.unit_bytes(queue.first_slot):
            units = np.frombuffer(data, UNIT)
            offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
            place = np.searchsorted(begins, offsets, side="right") - 1
            fits = (sizes >= MINIMUM_FRAME_SIZE) & (sizes <= MAXIMUM_FRAME_SIZE)
            inside = (place >= 0) & fits & (offsets + sizes <= ends[place])
            for number in np.flatnonzero(inside).tolist():
                there = found.setdefault(int(offsets[number]), _Found(int(sizes[number])))
                if there.size == sizes[number]:
                    there.slots.append(Slot((queue.topic, queue.queue_id), first + number))
    for batch_queue in _batch_queues(files):
        for unit in batch_queue.units(0):
            at = bisect_right(spans, unit.physical_offset, key=lambda span: span.begin) - 1
            if at >= 0 and MINIMUM_FRAME_SIZE <= unit.size <= MAXIMUM_FRAME_SIZE and unit.end <= spans[at].reach:
                there = found.setdefault(unit.physical_offset, _Found(unit.size))
                if there.size == unit.size:
                    key = batch_queue.topic, batch_queue.queue_id
                    there.slots.append(Slot(key, unit.queue_offset, unit.batch_size))
    return found


def _take_blanks(spans: list[Span], units: dict[int, _Found]) -> None:
    starts = sorted(units)
    for span in spans:
        last = bisect_left(starts, span.reach) - 1
        if last >= 0 and starts[last] + units[starts[last]].size > span.end:
            span.end = span.reach


def _in_span(
    files: StoreFiles, span: Span, units: dict[int, _Found], log_map: LogMap, reached: dict[QueueKey, int]
) -> list[Lost]:
    """Frames one behind the other, and where one cannot be read the next place that a unit points at."""
    places = sorted(offset for offset in units if span.begin <= offset < span.end)
    lost: list[Lost] = []
    position = span.begin
    while position < span.end:
        # all but its CRC may be right
        room = min(span.end, span.file_start + span.existing) - position
        message = message_if_any(files.log, position, room)
        told = units.get(position)
        size = message.total_size if message is not None else told.size if told is not None else 0
        slots = told.slots if told is not None else _slots_of(files, message)
        slots = _in_order(slot for slot in slots if _is_possible(slot, span, log_map, reached))
        if size and slots and not (message is not None and not has_queue_slot(message.sys_flag)):
            for slot in slots:
                reached[slot.key] = slot.end
            lost.append(Lost(slots, position, size))
        if size:
            position += size
        else:
            following = bisect_right(places, position)
            position = places[following] if following < len(places) else span.end
    return lost


def _in_order(slots: Iterable[Slot]) -> list[Slot]:
    """The message's own queue first: a batch queue, of which there is one, else a topic without the LMQ prefix."""
    found = list(slots)
    batches = [slot for slot in found if slot.batch_size]
    others = [slot for slot in found if not slot.batch_size]
    return batches[:1] + sorted(others, key=lambda slot: slot.key[0].startswith(LMQ_PREFIX))


def _slots_of(files: StoreFiles, message: StoredMessage | None) -> list[Slot]:
    if message is None:
        return []
    queue = files.queues.find(message.topic, message.queue_id)
    slots = queue_slots(message, files.config.delay_levels(), isinstance(queue, BatchConsumeQueue))
    return [
        Slot((slot.topic, slot.queue_id), slot.unit.queue_offset, slot.unit.batch_size if slot.is_batch else 0)
        for slot in slots
    ]


def _is_possible(slot: Slot, span: Span, log_map: LogMap, reached: dict[QueueKey, int]) -> bool:
    """Return whether the slot is free: no good message has it, and it is between those before and after the span."""
    first, end = log_map.slots_around(slot.key, span.run)
    is_free = max(first, reached.get(slot.key, 0)) <= slot.queue_offset and (end is None or slot.end <= end)
    return is_free and slot.batch_size <= LARGEST_BATCH


def _add_missing(spans: list[Span], found: list[list[Lost]], log_map: LogMap, batch_queues: set[QueueKey]) -> None:
    """A message for every slot that is missing between good messages on both sides of a span."""
    known: dict[QueueKey, list[tuple[Slot, int]]] = defaultdict(list)
    for number, lost in enumerate(found):
        for message in lost:
            for slot in message.slots:
                known[slot.key].append((slot, number))
    span_runs = [span.run for span in spans]
    starts_at_zero = bool(log_map.runs) and min([log_map.runs[0][0], *(span.begin for span in spans)]) == 0
    for key, runs in log_map.queues.items():
        is_batch = key in batch_queues
        # what a batch queue began with is not known: its units stand at no fixed place
        before = [(-1, -1)] if starts_at_zero and not is_batch else []
        for run, first, last in runs:
            if before:
                run_before, last_before = before[-1]
                begin, end = bisect_right(span_runs, run_before - 1), bisect_right(span_runs, run - 1)
                missing = _missing_batches if is_batch else _missing
                for slot in missing(key, last_before + 1, first, [slot for slot, _ in known[key]], spans[begin:end]):
                    _place(slot, found, known[key], end - 1)
            before.append((run, last))


def _missing(key: QueueKey, begin: int, end: int, known: list[Slot], spans: list[Span]) -> list[Slot]:
    """Return slots [begin, end) that are not known; none if the spans are too small for that number: then a number is
    damaged."""
    room = sum(span.end - span.begin for span in spans) // MINIMUM_FRAME_SIZE
    if not spans or not 0 < end - begin <= room:
        return []
    taken = {slot.queue_offset for slot in known}
    return [Slot(key, offset) for offset in range(begin, end) if offset not in taken]


def _missing_batches(key: QueueKey, begin: int, end: int, known: list[Slot], spans: list[Span]) -> list[Slot]:
    """One batch for each gap in [begin, end) beside the known ones, however many there were.

    None if good messages separate the spans, because the distribution among them is unknown; nor if it is more than a
    unit can hold, or than fitted.
    """
    if not spans or spans[0].run != spans[-1].run:
        return []
    room = min(sum(span.end - span.begin for span in spans) // _SMALLEST_ITEM, LARGEST_BATCH)
    between = known[bisect_left(known, begin, key=lambda slot: slot.queue_offset) :]
    between = between[: bisect_left(between, end, key=lambda slot: slot.queue_offset)]
    starts, ends = [begin, *(slot.end for slot in between)], [*(slot.queue_offset for slot in between), end]
    gaps = zip(starts, ends, strict=True)
    return [Slot(key, start, stop - start) for start, stop in gaps if 0 < stop - start <= room]


def _place(slot: Slot, found: list[list[Lost]], known: list[tuple[Slot, int]], last: int) -> None:
    """Put a message for `slot` before the next known one of its queue, else at the end of the last span.

    Spans behind the `last` one do not count: between them and it is a good message with a later slot.
    """
    later = (item for item in known if item[0].queue_offset > slot.queue_offset and item[1] <= last)
    following = min(later, default=None)
    lost = found[last if following is None else following[1]]
    place = len(lost)
    if following is not None:
        place = next(number for number, message in enumerate(lost) if following[0] in message.slots)
    lost.insert(place, Lost([slot]))
