"""The walk over the commitlog that yields runs of messages as columns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypedDict, Unpack

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import StoredMessage, decode_message
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import file_elsewhere, first_nonzero, removed_error
from rmqctl.store.log import columns as plain
from rmqctl.store.log.columns import Bytes, ColumnRecord, Int64s, MessageColumns, TopicIds
from rmqctl.store.log.search import FrameSearch
from rmqctl.store.log.walk import Empty, Progress, Record, walk_file, walk_files
from rmqctl.store.native.tables import FULL, INTS, KEYS_OF_A_ROW, LONGS, NEW_TOPIC, STOPPED, Columns
from rmqctl.store.native.walk import WindowWalk

# Drives the walk over a file: windows in, batches out. What is no good message the plain walk decides.

# Behind damage there may be more of it: windows begin small again.
_FIRST_WINDOW = 16 * 1024
# A message that does not fit into a window gets a larger one up to this size; beyond it the plain walk takes it.
_LARGEST_WINDOW = 16 * 1024 * 1024
_PLAIN_WINDOW = 4096
_LONGEST_HEAD = FRAME_HEADS[3].size
# so few bytes between two spans cost less than another call
_READ_OVER = 8192
# frames are at least this long, so no window has more rows than this
_NO_COLUMNS_ROWS = 65536

WINDOW = 1 << 20
ROWS = 16384

ByteSpan = tuple[int, int]
"""[begin, end) in bytes."""


class Request(NamedTuple):
    """What a walk over several files has in common. `limit`: records from this physical offset on are left out.

    `stopped` is asked before each window, and raises to end the walk.
    """

    log: MappedFileQueue
    topics: TopicIds
    columns: Columns = Columns.DISPATCH
    crc_from: int = 0
    limit: int | None = None
    progress: Progress | None = None
    window: int = WINDOW
    rows: int = ROWS
    stopped: Callable[[], None] | None = None

    def search(self, file: MappedFile, end: int) -> FrameSearch:
        """The search for the next good record of a file, which can be stopped like everything else."""
        return FrameSearch(file, end) if self.stopped is None else _StoppableSearch(file, end, self.stopped)


class _StoppableSearch(FrameSearch):
    def __init__(self, file: MappedFile, end: int, stopped: Callable[[], None]) -> None:
        super().__init__(file, end)
        self._stopped = stopped

    def read(self, position: int, length: int) -> bytes:
        self._stopped()
        return super().read(position, length)


class _Windows:
    """Reads a file into a buffer that can be walked."""

    def __init__(self, file: MappedFile, search: FrameSearch, keep: bool) -> None:
        self._file = file
        self._search = search
        self._keep = keep
        self.buffer: Bytes = np.empty(0, np.uint8)
        self._descriptor = -1
        if file_elsewhere(file.path) is None:
            with contextlib.suppress(UnreadableError):
                self._descriptor = file.descriptors.duplicate(file.path)

    def read(self, position: int, length: int) -> Bytes:
        """Exactly the bytes asked for. The buffer is a new one each time if batches keep it.

        UnreadableError as the plain walk raises it, by reading what is missing as the plain walk does.
        """
        if self._file.reference.is_cleanup_over:
            raise removed_error(self._file.path)
        if self._keep or len(self.buffer) < length:
            self.buffer = np.empty(length, np.uint8)
        buffer = self.buffer[:length]
        self.read_into(buffer, position)
        return buffer

    def read_into(self, buffer: Bytes, position: int) -> None:
        """Fill a part of a buffer. UnreadableError likewise."""
        length = len(buffer)
        try:
            found = os.preadv(self._descriptor, [buffer.data], position)
        except OSError:
            found = 0
        if found < length:
            buffer[found:] = np.frombuffer(self._search.read(position + found, length - found), np.uint8)

    def read_spans(self, buffer: Bytes, first: int, spans: Int64s) -> None:
        """Fill spans of a buffer that begins at `first` in the file, with what is between them where that is readable.
        UnreadableError likewise."""
        begin, end = int(spans[0, 0]) - first, int(spans[-1, 1]) - first
        with contextlib.suppress(OSError):
            if os.preadv(self._descriptor, [buffer[begin:end].data], first + begin) == end - begin:
                return
        for one, stop in spans.tolist():
            self.read_into(buffer[one - first : stop - first], one)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class FileWalk:
    """The walk over one file. `records` is to be used once."""

    def __init__(self, request: Request, file: MappedFile) -> None:
        self._request = request
        self._file = file
        self._walk = WindowWalk(int(request.columns), min(request.crc_from, (1 << 63) - 1), request.topics.seed)
        self._walk.in_entries = file.holds_entries
        self._new_arrays()

    def _new_arrays(self) -> None:
        asked = self._request.columns
        rows = self._request.rows if asked else max(self._request.rows, _NO_COLUMNS_ROWS)
        usual = 3 if asked & Columns.TAG_KEYS else 2
        entries = usual * rows + KEYS_OF_A_ROW if asked & Columns.KEYS else KEYS_OF_A_ROW
        # the first column of each table is always asked for
        self._longs = np.empty((len(LONGS) if asked else 1, rows), np.int64)
        self._ints = np.empty((len(INTS) if asked else 1, rows), np.int32)
        self._key_hash, self._key_row = np.empty(entries, np.int32), np.empty(entries, np.int32)
        self._walk.write_into(self._longs, self._ints, self._key_hash, self._key_row)

    def records(self, begin: int, end: int, first_window: int | None = None) -> Iterator[ColumnRecord]:
        """Records of the bytes [begin, end) of the file. `first_window`: bytes to read at first, where little is
        likely to be there."""
        request, file = self._request, self._file
        search = request.search(file, end)
        stop = end if request.limit is None else min(end, request.limit - file.start_offset)
        keep = bool(request.columns & Columns.BYTES)
        windows = _Windows(file, search, keep)
        position = reported = passed = begin
        length = first_window or request.window
        try:
            while position < stop:
                if request.stopped is not None:
                    request.stopped()
                size = min(length, end - position)
                buffer = windows.read(position, size)
                reached = passed = yield from self._window(buffer, position, stop)
                if keep:
                    yield from self._flush(buffer)
                is_last = self._status == STOPPED or position + size == end
                if reached < stop and not is_last and reached == position and (needed := _needed(buffer)):
                    length = needed
                    continue
                length = min(max(length * 4, _FIRST_WINDOW), request.window)
                if reached < stop and (is_last or reached == position):
                    yield from self._flush(None)
                    record = self._plain_record(search, reached, end)
                    if record is None:  # the head of an entry without a message ends the file
                        break
                    if isinstance(record, StoredMessage):
                        yield plain.batch_of([record], request.log, request.topics, request.columns)
                    else:
                        yield record
                        length = min(_FIRST_WINDOW, request.window)
                    reached = record.end - file.start_offset
                    passed = record.physical_offset - file.start_offset if isinstance(record, Empty) else reached
                position = reached
                if request.progress is not None:
                    request.progress(passed - reported)
                    reported = passed
            yield from self._flush(None)
        finally:
            windows.close()

    def spans(self, spans: Sequence[tuple[int, int]]) -> Generator[MessageColumns, None, int]:
        """Messages of [begin, end) each, which lie within one window, are in order and begin with a frame.

        Only the spans count. Returns the position that was reached: the end of the last span, or the first place
        where no good message starts that ends in its span.
        """
        walk = self._walk
        places = np.array(spans, np.int64)
        first = spans[0][0]
        buffer = np.empty(spans[-1][1] - first, np.uint8)
        with contextlib.closing(_Windows(self._file, self._request.search(self._file, spans[-1][1]), True)) as windows:
            for run in np.split(places, np.flatnonzero(places[1:, 0] - places[:-1, 1] > _READ_OVER) + 1):
                windows.read_spans(buffer, first, run)
        begins, ends = np.ascontiguousarray((places - first).T)
        walk.position, walk.span = 0, 0
        yield from self._run(
            buffer, partial(walk.walk_spans, buffer.data, self._file.start_offset + first, begins, ends)
        )
        yield from self._flush(buffer)
        return first + walk.position

    def _window(self, buffer: Bytes, position: int, stop: int, first: int = 0) -> Generator[MessageColumns, None, int]:
        """Walks one window from its byte `first` on; returns the position in the file that was reached."""
        walk = self._walk
        walk.position = first
        length, physical_offset = min(stop - position, len(buffer)), self._file.start_offset + position
        yield from self._run(buffer, partial(walk.walk, buffer.data, length, physical_offset))
        return position + walk.position

    def _run(self, buffer: Bytes, step: Callable[..., int]) -> Iterator[MessageColumns]:
        """Call `step` with the table of topics until it neither meets a new topic nor has its rows full."""
        walk, topics = self._walk, self._request.topics
        walk.topic_hint = -1
        while True:
            # another thread may replace these arrays by larger ones: each call works with those it was given
            self._status = step(topics.slots, topics.entries, topics.text.data)
            walk.topic_hint = -1
            if self._status == NEW_TOPIC:
                walk.topic_hint = self._topic_at(buffer, walk.position)
            elif self._status == FULL:
                yield from self._flush(buffer)
            else:
                return

    def _topic_at(self, buffer: Bytes, position: int) -> int:
        """The id of the topic of the good message at `position` of the buffer."""
        size = int.from_bytes(buffer[position : position + 4].tobytes(), "big")
        frame = buffer[position : position + size].tobytes()
        message = decode_message(frame, 0, size, None, check_crc=False)
        return self._request.topics.id_of(message.topic.encode("utf-8"))

    def _plain_record(self, search: FrameSearch, position: int, end: int) -> Record | None:
        crc_from = self._request.crc_from - self._file.start_offset
        return next(walk_file(self._file, search, position, end, crc_from, None, _PLAIN_WINDOW), None)

    def _flush(self, window: Bytes | None) -> Iterator[MessageColumns]:
        """The rows so far as a batch, if there are any."""
        walk, request = self._walk, self._request
        rows, keys, left_over = walk.row, walk.keys, walk.plain_rows
        if not rows:
            return
        arrays = self._longs[:, :rows], self._ints[:, :rows], self._key_hash[:keys], self._key_row[:keys]
        if 2 * rows < self._longs.shape[1]:
            # few rows must not keep large arrays alive
            arrays = arrays[0].copy(), arrays[1].copy(), arrays[2].copy(), arrays[3].copy()
            walk.row = walk.keys = walk.plain_rows = 0
        else:
            self._new_arrays()
        keep = request.columns & Columns.BYTES
        batch = MessageColumns(request.log, request.topics, request.columns, *arrays, window if keep else None)
        yield plain.complete(batch) if left_over else batch


def _needed(buffer: Bytes) -> int:
    """How large a window has to be for the message at its start; 0 if that would be too large, or does not help."""
    needed = max(_LONGEST_HEAD, int.from_bytes(buffer[:4].tobytes(), "big"))
    return needed if len(buffer) < needed <= _LARGEST_WINDOW else 0


class WalkOptions(TypedDict, total=False):
    """What a walk on columns reads, and how. `columns`: Columns.DISPATCH if not given. `topics` numbers the topics; one
    table may serve several walks. `window`: bytes that are read at once; `rows`: messages of a batch at most."""

    crc_from: int
    columns: Columns
    topics: TopicIds
    progress: Progress | None
    window: int
    rows: int


def walk_columns(
    log: MappedFileQueue, begin: int = 0, end: int | None = None, **options: Unpack[WalkOptions]
) -> Iterator[ColumnRecord]:
    """What `walk` yields, in the same order, with runs of messages as `MessageColumns`.

    Records that start at or behind physical offset `end` are left out. Everything else, errors too, is as in `walk`.
    """
    return walk_request(request_of(log, end, options), begin)


def request_of(log: MappedFileQueue, end: int | None, options: WalkOptions) -> Request:
    """Return the walk with these options, up to physical offset `end`."""
    chosen = WalkOptions(topics=TopicIds())
    chosen.update(options)
    return Request(log, limit=end, **chosen)


def walk_request(request: Request, begin: int) -> Iterator[ColumnRecord]:
    """The walk over all files."""

    def one_file(file: MappedFile, start: int, stop: int) -> Iterator[ColumnRecord]:
        return FileWalk(request, file).records(start, stop)

    for record in walk_files(request.log, begin, one_file):
        if request.limit is not None and not isinstance(record, MessageColumns):
            begins = record.physical_offset
            if begins >= request.limit:
                return
        yield record


MessageAt = tuple[int, int]
"""The physical offset and the queue offset of a message."""


def ends_of_queues(log: MappedFileQueue, spans: Iterable[ByteSpan]) -> Iterator[tuple[tuple[str, int], MessageAt]]:
    """Yield messages of each (topic, queue) in [begin, end) of the log each, in order: at least the first and the last
    one, and where queue offsets go back. No other byte is read: a frame that a span cuts is left out.
    UnreadableError."""
    request = Request(log, TopicIds(), Columns.HEAD | Columns.TOPIC)
    for begin, end in spans:
        for file in log.files:
            first, stop = max(begin, file.start_offset), min(end, file.end_offset)
            if first >= stop:
                continue
            with file.hold() as held:
                for batch in _messages_in(request, file, first, stop) if held else ():
                    yield from _ends_in(batch)


def _messages_in(request: Request, file: MappedFile, begin: int, end: int) -> Iterator[MessageColumns]:
    """Yield the good messages of a file in [begin, end) of the log, what is damaged left out."""
    position, stop = begin - file.start_offset, end - file.start_offset
    search = FrameSearch(file, stop)
    found = search.next_good(position)
    while found is not None and found < stop:
        reached = yield from FileWalk(request, file).spans([(found, min(found + _LARGEST_WINDOW, stop))])
        found = reached if reached > found else search.next_good(found + 1)


def _ends_in(batch: MessageColumns) -> Iterator[tuple[tuple[str, int], MessageAt]]:
    keys = batch.topic_id.astype(np.int64) << 32 | batch.queue_id.view(np.uint32)
    rows = np.flatnonzero(batch.has_queue_slot)
    rows = rows[np.argsort(keys[rows], kind="stable")]
    slots = batch.queue_offset[rows]
    differs = (keys[rows[1:]] != keys[rows[:-1]]) | (slots[1:] <= slots[:-1])
    edges = np.ones(len(rows), np.bool_)
    edges[1:-1] = differs[1:] | differs[:-1]
    rows = rows[edges]
    queues = zip((batch.topics.names[one] for one in batch.topic_id[rows]), batch.queue_id[rows].tolist(), strict=True)
    places = zip(batch.physical_offset[rows].tolist(), batch.queue_offset[rows].tolist(), strict=True)
    yield from zip(queues, places, strict=True)


# The walk over parts of a file, each of which begins with a frame for certain, and over nothing between them.

# what follows the last message of a file is a few bytes, or empty, as a rule
_SPANS_FIRST_WINDOW = 4096


def span_records(request: Request, file: MappedFile, spans: Sequence[ByteSpan], end: int) -> Iterator[ColumnRecord]:
    """Records of a file that start in spans, positions in the file: in order, apart, each one beginning where a record
    of the walk over bytes [0, `end`) of the file begins.

    If a span ends without good messages, its effect on later ones is unknown: from there on everything is walked. The
    rows of a batch need not follow one another without a gap. Only that walk uses `progress` and `stopped` of the
    request. Empty space at the end of the file is passed over.
    """
    if spans and spans[-1][1] == end and _is_empty(file, spans[-1][0], end):
        spans = spans[:-1]
    walk = FileWalk(request, file)
    for group in _groups(spans, request.window, end):
        begin, stop = group[0][0], group[-1][1]
        if stop - begin <= request.window and stop < end:
            reached = yield from walk.spans(group)
            is_whole = reached == stop
        else:
            reached, is_whole = begin, True
            limited = request._replace(limit=_sooner(file.start_offset + stop, request.limit))
            for record in FileWalk(limited, file).records(begin, end, _SPANS_FIRST_WINDOW if stop == end else None):
                yield record
                reached = record.end - file.start_offset
                is_whole = is_whole and isinstance(record, MessageColumns) and reached <= stop
        if not is_whole:
            yield from FileWalk(request, file).records(reached, end, _SPANS_FIRST_WINDOW)
            return


def _is_empty(file: MappedFile, begin: int, end: int) -> bool:
    """Whether there are only zeros. The walk would search for the last non-zero byte before."""
    if any(file.read(begin, min(_SPANS_FIRST_WINDOW, end - begin))):
        return False
    return first_nonzero(file.descriptors, file.path, begin, end) is None


def _sooner(stop: int, limit: int | None) -> int:
    return stop if limit is None else min(stop, limit)


def _groups(spans: Sequence[ByteSpan], window: int, end: int) -> Iterator[Sequence[ByteSpan]]:
    """Yield neighbours that fit into one window; one that is larger, or reaches the end of the file, is alone."""
    first = 0
    for number, span in enumerate(spans):
        if number > first and (span[1] - spans[first][0] > window or span[1] == end):
            yield spans[first:number]
            first = number
    if first < len(spans):
        yield spans[first:]


# Messages at known places, as a walk gives them, without those between.


def columns_at(
    log: MappedFileQueue, offsets: Int64s, sizes: Int64s, topics: TopicIds, asked: Columns
) -> Iterator[tuple[slice, MessageColumns | None]]:
    """Yield the messages at physical `offsets` (ascending), each `sizes` bytes long, some at a time, with the numbers
    of their places.

    None for places that hold anything else than good messages of these sizes, and for some beside such: a look at each
    says what is there.
    """
    request = Request(log, topics, asked)
    ends = offsets + sizes
    walk: FileWalk | None = None
    file = None
    number = 0
    while number < len(offsets):
        begin = int(offsets[number])
        if walk is None or file is None or not file.start_offset <= begin < file.start_offset + file.size:
            file = log.find(begin)
            walk = None if file is None else FileWalk(request, file)
        if walk is None or file is None or not 0 < sizes[number] <= WINDOW:
            yield slice(number, number + 1), None
            number += 1
            continue
        last = min(number + ROWS, int(np.searchsorted(offsets, begin + WINDOW)))
        is_within = ends[number:last] <= min(begin + WINDOW, file.start_offset + file.size)
        is_within[1:] &= (offsets[number + 1 : last] >= ends[number : last - 1]) & (sizes[number + 1 : last] > 0)
        last = last if is_within.all() else number + max(1, int(np.argmin(is_within)))
        spans = _spans(offsets[number:last] - file.start_offset, ends[number:last] - file.start_offset)
        try:
            for batch in walk.spans(spans):
                part = slice(number, number + len(batch))
                if not np.array_equal(batch.physical_offset, offsets[part]):
                    break
                if not np.array_equal(batch.size, sizes[part]):
                    break
                yield part, batch
                number = part.stop
        except UnreadableError:  # told by a look at each
            pass
        if number < last:
            yield slice(number, last), None
            number, walk = last, None


def _spans(begins: Int64s, ends: Int64s) -> list[ByteSpan]:
    """Return what the places cover, those that touch as one."""
    is_first = np.ones(len(begins), np.bool_)
    is_first[1:] = begins[1:] != ends[:-1]
    return list(zip(begins[is_first].tolist(), ends[np.append(is_first[1:], True)].tolist(), strict=True))
