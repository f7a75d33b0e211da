"""Which messages stood in a damaged span, as far as frames that only fail a CRC, queue units and missing slots tell."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from formats import properties as names
from formats.message import MINIMUM_FRAME_SIZE, FrameDamage, StoredMessage, decode_message
from formats.sys_flag import has_queue_slot
from store.commitlog.frame_search import MAXIMUM_FRAME_SIZE
from store.dispatch import LMQ_PREFIX, MULTI_DISPATCH_SEPARATOR, queue_slots
from store.queues.consumequeue import ConsumeQueue
from store.repair.spans import LogMap, QueueKey, Span
from store.run_units import UNIT
from store.store_files import StoreFiles


@dataclass(slots=True)
class Lost:
    """One lost message: `slots` of the queues that had it, the first being its own. `physical_offset` is -1 and `size`
    0 where only the missing slot tells that there was one."""

    slots: list[tuple[QueueKey, int]]
    physical_offset: int = -1
    size: int = 0

    @property
    def key(self) -> QueueKey:
        """Its own topic and queue."""
        return self.slots[0][0]

    @property
    def queue_offset(self) -> int:
        """Its slot there."""
        return self.slots[0][1]

    @property
    def further(self) -> dict[str, str]:
        """The properties by which a broker puts a message into further queues (multi-dispatch)."""
        more = self.slots[1:]
        if not more:
            return {}
        return {
            names.INNER_MULTI_DISPATCH: MULTI_DISPATCH_SEPARATOR.join(key[0] for key, _ in more),
            names.INNER_MULTI_QUEUE_OFFSET: MULTI_DISPATCH_SEPARATOR.join(str(slot) for _, slot in more),
        }


@dataclass(slots=True)
class _Found:
    """What the units say about one place: size, and slots by queue."""

    size: int
    slots: list[tuple[QueueKey, int]] = field(default_factory=list)


def find_lost(files: StoreFiles, spans: list[Span], log_map: LogMap) -> list[list[Lost]]:
    """The lost messages of each span, in the order in which they stood."""
    units = _units_into(files, spans)
    # the next slot that each queue can have: what was found in earlier spans counts
    reached: dict[QueueKey, int] = {}
    found = [_in_span(files, span, units, log_map, reached) for span in spans]
    _add_missing(spans, found, log_map)
    return found


def _units_into(files: StoreFiles, spans: list[Span]) -> dict[int, _Found]:
    """Queue units that point into the spans, by physical offset."""
    found: dict[int, _Found] = {}
    if not spans:
        return found
    begins = np.array([span.begin for span in spans], np.int64)
    ends = np.array([span.end for span in spans], np.int64)
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
                    there.slots.append(((queue.topic, queue.queue_id), first + number))
    return found


def _in_span(
    files: StoreFiles, span: Span, units: dict[int, _Found], log_map: LogMap, reached: dict[QueueKey, int]
) -> list[Lost]:
    """Frames one behind the other, and where one cannot be read the next place that a unit points at."""
    places = sorted(offset for offset in units if span.begin <= offset < span.end)
    lost: list[Lost] = []
    position = span.begin
    while position < span.end:
        message = _framed(files, span, position)
        told = units.get(position)
        size = message.total_size if message is not None else told.size if told is not None else 0
        slots = told.slots if told is not None else _slots_of(files, message)
        slots = [item for item in slots if _is_possible(item, span, log_map, reached)]
        if size and slots and not (message is not None and not has_queue_slot(message.sys_flag)):
            for key, slot in slots:
                reached[key] = slot + 1
            # the message's own queue first; names with the LMQ prefix are further ones
            slots.sort(key=lambda item: item[0][0].startswith(LMQ_PREFIX))
            lost.append(Lost(slots, position, size))
        if size:
            position += size
        else:
            following = bisect_right(places, position)
            position = places[following] if following < len(places) else span.end
    return lost


def _framed(files: StoreFiles, span: Span, position: int) -> StoredMessage | None:
    """The message at `position` if all but its CRC is right."""
    available = min(span.end, span.file_start + span.existing) - position
    size = int.from_bytes(files.log.read(position, 4), "big", signed=True) if available >= MINIMUM_FRAME_SIZE else 0
    if not MINIMUM_FRAME_SIZE <= size <= min(available, MAXIMUM_FRAME_SIZE):
        return None
    data = files.log.read(position, size)
    try:
        return decode_message(data, 0, len(data), position, check_crc=False)
    except FrameDamage:
        return None


def _slots_of(files: StoreFiles, message: StoredMessage | None) -> list[tuple[QueueKey, int]]:
    if message is None:
        return []
    slots = queue_slots(message, files.config.delay_levels())
    # a batch takes many slots at once, which no single filler can hold
    return [((slot.topic, slot.queue_id), slot.unit.queue_offset) for slot in slots if not slot.is_batch]


def _is_possible(item: tuple[QueueKey, int], span: Span, log_map: LogMap, reached: dict[QueueKey, int]) -> bool:
    """Whether the slot is free: no good message has it, and it lies between those before and behind the span."""
    key, slot = item
    first, end = log_map.slots_around(key, span.run)
    return max(first, reached.get(key, 0)) <= slot and (end is None or slot < end)


def _add_missing(spans: list[Span], found: list[list[Lost]], log_map: LogMap) -> None:
    """A message for every slot that is missing between good messages on both sides of a span."""
    known: dict[QueueKey, list[tuple[int, int]]] = defaultdict(list)
    for number, lost in enumerate(found):
        for message in lost:
            for key, slot in message.slots:
                known[key].append((slot, number))
    span_runs = [span.run for span in spans]
    starts_at_zero = bool(log_map.runs) and min([log_map.runs[0][0], *(span.begin for span in spans)]) == 0
    for key, runs in log_map.queues.items():
        before = [(-1, -1)] if starts_at_zero else []
        for run, first, last in runs:
            if before:
                run_before, last_before = before[-1]
                begin, end = bisect_right(span_runs, run_before - 1), bisect_right(span_runs, run - 1)
                missing = _missing(last_before + 1, first, {slot for slot, _ in known[key]}, spans[begin:end])
                for slot in missing:
                    _place(key, slot, found, known[key], end - 1)
            before.append((run, last))


def _missing(begin: int, end: int, known: set[int], spans: list[Span]) -> list[int]:
    """Slots [begin, end) that are not known; none if the spans have no room for so many: then a number is damaged."""
    room = sum(span.end - span.begin for span in spans) // MINIMUM_FRAME_SIZE
    if not spans or not 0 < end - begin <= room:
        return []
    return [slot for slot in range(begin, end) if slot not in known]


def _place(key: QueueKey, slot: int, found: list[list[Lost]], known: list[tuple[int, int]], last: int) -> None:
    """Put a message for `slot` before the next known one of its queue, else at the end of the last span."""
    following = min((item for item in known if item[0] > slot), default=None)
    lost = found[last if following is None else following[1]]
    place = len(lost)
    if following is not None:
        place = next(number for number, message in enumerate(lost) if (key, following[0]) in message.slots)
    lost.insert(place, Lost([(key, slot)]))
