"""Finds good messages in any bytes: runs of frames that agree on their place in a log, and the bytes between them.

The place in a blob says nothing about the physical offset. The first frame of a run gives the run's base (its physical
offset less its position); each further frame must stand right behind the one before, and agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rmqctl.formats.layouts import BLANK_FRAME, FRAME_HEADS
from rmqctl.formats.message import FrameDamage, Reason, decode_message
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.files.layout import LARGEST_OFFSET
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import data_extents, is_file
from rmqctl.store.log.column_walk import ROWS, WINDOW, FileWalk, Request
from rmqctl.store.log.columns import MessageColumns, TopicIds
from rmqctl.store.log.search import (
    ENTRY_HEAD_SIZE,
    MAXIMUM_FRAME_SIZE,
    MESSAGE_MAGICS,
    FrameSearch,
    blank_size,
    frames_by_magic,
)
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import Events

_MAGIC_AT = FRAME_HEADS[0].offset("magic_code")
_PLACE_AT = FRAME_HEADS[0].offset("physical_offset")
_SEARCHED = 4 * 1024 * 1024
# how far a walk looks at first, and at most, before it may be found that a run is over
_FIRST_STRETCH = 256 * 1024
_STRETCH = 64 * 1024 * 1024
_FRAMED = (Reason.BODY_CRC, Reason.PROPERTY_CRC, Reason.TOPIC, Reason.PROPERTIES, Reason.LENGTHS, Reason.OVERFLOW)


@dataclass(slots=True)
class QueueSpan:
    """Queue offsets of messages of one queue. `falls`: they do not only rise, or copies are among the messages."""

    low: int
    high: int
    messages: int
    falls: bool = False

    def add(self, other: QueueSpan) -> None:
        """Both together, `other` behind this one."""
        self.falls = self.falls or other.falls or other.low <= self.high
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.messages += other.messages


@dataclass(slots=True)
class FrameRun:
    """Good frames at the bytes [position, end) of a source, of which the first stood at `physical_offset`."""

    position: int
    end: int
    physical_offset: int
    messages: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0
    queues: dict[tuple[str, int], QueueSpan] = field(default_factory=dict)

    @property
    def base(self) -> int:
        """Physical offset of the source's first byte, by this run."""
        return self.physical_offset - self.position


@dataclass(frozen=True, slots=True)
class Strange:
    """Bytes [begin, end) of a source in which no good message begins, zeros at both ends aside."""

    begin: int
    end: int
    reason: str
    detail: str


class Carver:
    """Carves one source. `topics` may serve several."""

    def __init__(self, file: MappedFile, expected_base: int | None, topics: TopicIds, events: Events) -> None:
        self._file = file
        self._base = expected_base
        self._topics = topics
        self._events = events
        self._search = FrameSearch(file, file.size)
        self._told = 0
        self._overflow = -1  # where the last frame with an overflowed length was seen
        self._is_regular = is_file(file.path)

    def carve(self) -> Iterator[FrameRun | Strange]:
        """Yield runs and the bytes between them, in order. Zeros and blank frames are passed over: they are
        understood."""
        position, size = 0, self._file.size
        while position < size:
            begin, reason, detail = self._next_frame(position)
            if begin > position:
                yield from self._strange(position, begin, reason, detail)
            if begin >= size:
                break
            run = self._run_of_overflow(begin) if begin == self._overflow else self._run(begin)
            yield run
            position = run.end
        self._tell(position)

    def _tell(self, position: int) -> None:
        if position > self._told:
            self._events.passed(position - self._told)
            self._told = position

    # ---- between runs

    def _next_frame(self, position: int) -> tuple[int, str, str]:
        """Where the next good frame begins, the size of the source if nowhere; and what is wrong at `position`."""
        reason, detail = "no_message", "no message begins here"
        at = position
        if position == 0 or self._base is not None:
            damage = self._damage(position)
            if damage is None:
                return position, "", ""
            reason, detail = str(damage.reason), damage.detail
            # what stands inside a damaged frame, of which the end is known, is a part of its body
            framed = self._end_of_framed(position, damage)
            while framed is not None and framed < self._file.size:
                at = framed
                damage = self._damage(at)
                if damage is None:
                    return at, reason, detail
                framed = self._end_of_framed(at, damage)
        return self._search_from(at), reason, detail

    def _damage(self, position: int) -> FrameDamage | None:
        """Return why no good frame begins here; None if one does, at any base."""
        head = self._file.read(position, FRAME_HEADS[3].size)
        claimed = int.from_bytes(head[_PLACE_AT : _PLACE_AT + 8], "big", signed=True)
        try:
            if claimed < 0 or claimed > LARGEST_OFFSET - self._file.size:
                decode_message(head, 0, len(head), None)
                return FrameDamage(Reason.POSITION, f"the frame names physical offset {claimed}")
            self._file.start_offset = claimed - position
            self._search.check(position)
        except FrameDamage as damage:
            return None if damage.reason is Reason.OVERFLOW and self._is_overflow(position) else damage
        return None

    def _is_overflow(self, position: int) -> bool:
        """Whether the lengths and CRCs of the frame here hold if the lengths are read without their signs."""
        try:
            self._search.check(position, unsigned=True)
        except FrameDamage:
            return False
        self._overflow = position
        return True

    def _end_of_framed(self, position: int, damage: FrameDamage) -> int | None:
        """Where a damaged frame ends, if what follows it says that its size is right."""
        head = self._file.read(position, _PLACE_AT + 8)
        claimed = int.from_bytes(head[:4], "big", signed=True)
        known = self._base is not None and int.from_bytes(head[_PLACE_AT:], "big") == self._base + position
        if damage.reason not in _FRAMED or not known or not 0 < claimed <= self._file.size - position:
            return None
        assert self._base is not None
        self._file.start_offset = self._base
        return position + claimed if self._search.is_framed(position + claimed) else None

    def _search_from(self, position: int) -> int:
        """The next place where a frame passes law 3 with the physical offset that it claims itself."""
        size = self._file.size
        for begin, end in self._extents(position, size):
            step = _SEARCHED - _MAGIC_AT - 4
            for start in range(begin, max(begin, end - _MAGIC_AT), step):
                window = self._file.read(start, min(_SEARCHED, end - start))
                for at in frames_by_magic(window, MESSAGE_MAGICS):
                    if self._damage(start + at) is None:
                        return start + at
                self._tell(start)
        return size

    def _extents(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [begin, end) that are no holes. No frame begins in a hole: its size is not all zeros."""
        return data_extents(self._file.path, begin, end) if self._is_regular else iter([(begin, end)])

    def _strange(self, begin: int, end: int, reason: str, detail: str) -> Iterator[Strange]:
        """What is left of [begin, end) without a blank frame at its begin and zeros at its ends."""
        head = self._file.read(begin, ENTRY_HEAD_SIZE)
        if self._file.holds_entries:
            begin += self._search.own_entry_head(begin)
        blank = blank_size(head, 0, self._file.holds_entries)
        if blank is not None and blank >= BLANK_FRAME.size:
            begin += BLANK_FRAME.size
            reason, detail = "no_message", "no message begins behind the blank frame"
        first = self._first_nonzero(begin, end)
        if first is not None:
            yield Strange(first, self._last_nonzero(first, end), reason, detail)

    def _first_nonzero(self, begin: int, end: int) -> int | None:
        for start, stop in self._extents(begin, end):
            for position in range(start, stop, _SEARCHED):
                window = self._file.read(position, min(_SEARCHED, stop - position))
                rest = window.lstrip(b"\0")
                if rest:
                    return position + len(window) - len(rest)
        return None

    def _last_nonzero(self, begin: int, end: int) -> int:
        for start, stop in reversed(list(self._extents(begin, end))):
            for position in reversed(range(start, stop, _SEARCHED)):
                rest = self._file.read(position, min(_SEARCHED, stop - position)).rstrip(b"\0")
                if rest:
                    return position + len(rest)
        return begin

    # ---- runs

    def _run(self, position: int) -> FrameRun:
        """The frames from a good one on, up to where no further one of the same base follows."""
        head = self._file.read(position, _PLACE_AT + 8)
        run = FrameRun(position, position, int.from_bytes(head[_PLACE_AT:], "big"))
        self._base = self._file.start_offset = run.base
        stretch = _FIRST_STRETCH
        while run.end < self._file.size:
            stop = min(self._file.size, run.end + stretch)
            if self._walk(run, stop):
                stretch = min(2 * stretch, _STRETCH)
                continue
            # a frame may only have been cut by the stretch, so that its size looked wrong
            if stop == self._file.size or not self._take_one(run):
                break
        return run

    def _walk(self, run: FrameRun, stop: int) -> bool:
        """Add the frames that lie before `stop`; whether they reach up to it."""
        log = MappedFileQueue((), self._file.size, self._file.descriptors)
        log.files = [self._file]
        columns = Columns.HEAD | Columns.TOPIC
        request = Request(log, self._topics, columns, run.base, None, None, WINDOW, ROWS)
        for record in FileWalk(request, self._file).records(run.end, stop):
            if not isinstance(record, MessageColumns):
                break
            self._add(run, record)
        self._tell(run.end)
        return run.end >= stop

    def _add(self, run: FrameRun, batch: MessageColumns) -> None:
        if not run.messages:
            run.first_timestamp = int(batch.store_timestamp[0])
        run.last_timestamp = int(batch.store_timestamp[-1])
        run.messages += batch.rows
        run.end = batch.end - run.base
        rows = np.flatnonzero(batch.has_queue_slot)
        if not len(rows):
            return
        codes = batch.topic_id[rows].astype(np.int64) << 32 | batch.queue_id[rows].astype(np.int64) & 0xFFFFFFFF
        known, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
        low: np.ndarray[tuple[int], np.dtype[np.int64]] = np.full(len(known), LARGEST_OFFSET, np.int64)
        high: np.ndarray[tuple[int], np.dtype[np.int64]] = np.full(len(known), -1, np.int64)
        np.minimum.at(low, place, batch.queue_offset[rows])
        np.maximum.at(high, place, batch.queue_offset[rows])
        order = np.argsort(place, kind="stable")
        queues, offsets = place[order], batch.queue_offset[rows][order]
        falling = queues[1:][(queues[1:] == queues[:-1]) & (offsets[1:] <= offsets[:-1])]
        falls = np.bincount(falling, minlength=len(known)).astype(np.bool_)
        names = batch.topics.names
        table = zip(known.tolist(), low.tolist(), high.tolist(), counts.tolist(), falls.tolist(), strict=True)
        for code, first, last, count, is_falling in table:
            _add_span(run, (names[code >> 32], code & 0xFFFFFFFF), QueueSpan(first, last, count, is_falling))

    def _run_of_overflow(self, position: int) -> FrameRun:
        """Return a run of one message, whose length of topic or properties overflows."""
        size = int.from_bytes(self._file.read(position, 4), "big")
        message = decode_message(self._file.read(position, size), 0, size, None, check_crc=False, unsigned=True)
        times = message.store_timestamp, message.store_timestamp
        run = FrameRun(position, position + size, message.physical_offset, 1, *times)
        self._base = run.base
        if has_queue_slot(message.sys_flag):
            span = QueueSpan(message.queue_offset, message.queue_offset, 1)
            _add_span(run, (message.topic, message.queue_id & 0xFFFFFFFF), span)
        return run

    def _take_one(self, run: FrameRun) -> bool:
        """Add one frame by the plain way, if there is a good one of the run's base."""
        self._file.start_offset = run.base
        begin = run.end + self._search.entry_head(run.end)
        try:
            self._search.check(begin)
        except FrameDamage:
            return False
        size = int.from_bytes(self._file.read(begin, 4), "big")
        message = decode_message(self._file.read(begin, min(size, MAXIMUM_FRAME_SIZE)), 0, size, None, check_crc=False)
        run.first_timestamp = run.first_timestamp if run.messages else message.store_timestamp
        run.last_timestamp = message.store_timestamp
        run.messages += 1
        run.end = begin + size
        span = QueueSpan(message.queue_offset, message.queue_offset, 1)
        _add_span(run, (message.topic, message.queue_id & 0xFFFFFFFF), span)
        return True


def _add_span(run: FrameRun, key: tuple[str, int], span: QueueSpan) -> None:
    known = run.queues.setdefault(key, span)
    if known is not span:
        known.add(span)
