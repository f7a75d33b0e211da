"""Drives the kernel over a file: windows in, batches out. What is no good message the plain walk decides."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import StoredMessage, decode_message
from rmqctl.store.columns import plain
from rmqctl.store.columns.batch import INTS, LONGS, Bytes, ColumnRecord, Columns, MessageColumns
from rmqctl.store.columns.engine import WalkEngine
from rmqctl.store.columns.state import (
    FULL,
    KEYS_OF_A_ROW,
    NEW_TOPIC,
    PADDING,
    SCRATCH_SHAPE,
    STATE_SIZE,
    STOPPED,
    WalkState,
)
from rmqctl.store.columns.topics import TopicIds
from rmqctl.store.commitlog.frame_search import FrameSearch
from rmqctl.store.commitlog.walk import Progress, Record, walk_file
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import file_elsewhere, removed_error

# Behind damage there may be more of it: windows begin small again.
_FIRST_WINDOW = 16 * 1024
# A message that does not fit into a window gets a larger one up to this size; beyond it the plain walk takes it.
_LARGEST_WINDOW = 16 * 1024 * 1024
_PLAIN_WINDOW = 4096
_LONGEST_HEAD = FRAME_HEADS[3].size
# frames are at least this long, so no window has more rows than this
_NO_COLUMNS_ROWS = 65536


class Request(NamedTuple):
    """What a walk over several files has in common. `limit`: records from this physical offset on are left out.

    `stopped` is asked before each window, and raises to end the walk.
    """

    log: MappedFileQueue
    topics: TopicIds
    asked: Columns
    crc_from: int
    limit: int | None
    progress: Progress | None
    window: int
    rows: int
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
    """Reads a file into a buffer that kernels can walk."""

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
        if self._keep or len(self.buffer) < length + PADDING:
            self.buffer = np.empty(length + PADDING, np.uint8)
            self.buffer[length:] = 0
        self.read_into(self.buffer[:length], position)
        return self.buffer

    def read_into(self, buffer: Bytes, position: int) -> None:
        """Fill a part of a buffer. UnreadableError likewise."""
        length = len(buffer)
        try:
            found = os.preadv(self._descriptor, [buffer.data], position)
        except OSError:
            found = 0
        if found < length:
            buffer[found:] = np.frombuffer(self._search.read(position + found, length - found), np.uint8)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class FileWalk:
    """The walk over one file. `records` is to be used once."""

    def __init__(self, engine: WalkEngine, request: Request, file: MappedFile) -> None:
        assert engine.walk_window is not None
        self._walk_window = engine.walk_window
        self._request = request
        self._file = file
        self._state = np.zeros(STATE_SIZE, np.int64)
        self._state[WalkState.CRC_FROM] = min(request.crc_from, (1 << 63) - 1)
        self._state[WalkState.CRC_FUNCTION] = engine.crc_function
        self._state[WalkState.ASKED] = int(request.asked)
        self._state[WalkState.SEED] = request.topics.seed
        self._scratch = np.zeros(SCRATCH_SHAPE, np.int64)
        self._new_arrays()

    def _new_arrays(self) -> None:
        asked = self._request.asked
        rows = self._request.rows if asked else max(self._request.rows, _NO_COLUMNS_ROWS)
        # the first column of each table is always asked for
        self._longs = np.empty((len(LONGS) if asked else 1, rows), np.int64)
        self._ints = np.empty((len(INTS) if asked else 1, rows), np.int32)
        usual = 3 if asked & Columns.TAG_KEYS else 2
        entries = usual * rows + KEYS_OF_A_ROW if asked & Columns.KEYS else KEYS_OF_A_ROW
        self._key_hash = np.empty(entries, np.int32)
        self._key_row = np.empty(entries, np.int32)
        self._state[WalkState.ROW] = self._state[WalkState.KEYS] = self._state[WalkState.PLAIN_ROWS] = 0

    def records(self, begin: int, end: int, first_window: int | None = None) -> Iterator[ColumnRecord]:
        """Records of the bytes [begin, end) of the file. `first_window`: bytes to read at first, where little is
        likely to be there."""
        request, file = self._request, self._file
        search = request.search(file, end)
        stop = end if request.limit is None else min(end, request.limit - file.start_offset)
        keep = bool(request.asked & Columns.BYTES)
        windows = _Windows(file, search, keep)
        position = reported = begin
        length = first_window or request.window
        try:
            while position < stop:
                if request.stopped is not None:
                    request.stopped()
                size = min(length, end - position)
                buffer = windows.read(position, size)
                reached = yield from self._window(buffer, position, size, stop)
                if keep:
                    yield from self._flush(buffer)
                is_last = self._status == STOPPED or position + size == end
                if reached < stop and not is_last and reached == position and (needed := _needed(buffer, size)):
                    length = needed
                    continue
                length = min(max(length * 4, _FIRST_WINDOW), request.window)
                if reached < stop and (is_last or reached == position):
                    yield from self._flush(None)
                    record = self._plain_record(search, reached, end)
                    if isinstance(record, StoredMessage):
                        yield plain.batch_of([record], request.log, request.topics, request.asked)
                    else:
                        yield record
                        length = min(_FIRST_WINDOW, request.window)
                    reached = record.end - file.start_offset
                position = reached
                if request.progress is not None:
                    request.progress(position - reported)
                    reported = position
            yield from self._flush(None)
        finally:
            windows.close()

    def spans(self, spans: Sequence[tuple[int, int]]) -> Generator[ColumnRecord, None, int]:
        """Messages of [begin, end) each, which lie within one window, are in order and begin with a frame.

        Only the spans are read. Returns the position that was reached: the end of the last span, or the first place
        where no good message starts that ends in its span.
        """
        first, size = spans[0][0], spans[-1][1] - spans[0][0]
        buffer = np.empty(size + PADDING, np.uint8)
        buffer[size:] = 0
        reached = first
        with contextlib.closing(_Windows(self._file, self._request.search(self._file, spans[-1][1]), True)) as windows:
            for begin, end in spans:
                windows.read_into(buffer[begin - first : end - first], begin)
                reached = yield from self._window(buffer, first, end - first, end, begin - first)
                if reached < end:
                    break
        yield from self._flush(buffer)
        return reached

    def _window(
        self, buffer: Bytes, position: int, size: int, stop: int, first: int = 0
    ) -> Generator[MessageColumns, None, int]:
        """Walks one window from its byte `first` on; returns the position in the file that was reached."""
        state, topics, file = self._state, self._request.topics, self._file
        state[WalkState.WINDOW], state[WalkState.LENGTH] = buffer.ctypes.data, size
        state[WalkState.STOP] = min(stop - position, size)
        state[WalkState.PHYSICAL_OFFSET] = file.start_offset + position
        state[WalkState.POSITION] = first
        state[WalkState.TOPIC_HINT] = -1
        while True:
            # another thread may replace these arrays by larger ones: each call works with those it was given
            slots, entries, text = topics.slots, topics.entries, topics.text
            state[WalkState.TEXT] = text.ctypes.data
            self._status = self._walk_window(
                state, self._longs, self._ints, self._key_hash, self._key_row, slots, entries, self._scratch
            )
            state[WalkState.TOPIC_HINT] = -1
            if self._status == NEW_TOPIC:
                state[WalkState.TOPIC_HINT] = self._topic_at(buffer, int(state[WalkState.POSITION]))
            elif self._status == FULL:
                yield from self._flush(buffer)
            else:
                return position + int(state[WalkState.POSITION])

    def _topic_at(self, buffer: Bytes, position: int) -> int:
        """The id of the topic of the good message at `position` of the buffer."""
        size = int.from_bytes(buffer[position : position + 4].tobytes(), "big")
        frame = buffer[position : position + size].tobytes()
        message = decode_message(frame, 0, size, None, check_crc=False)
        return self._request.topics.id_of(message.topic.encode("utf-8"))

    def _plain_record(self, search: FrameSearch, position: int, end: int) -> Record:
        crc_from = self._request.crc_from - self._file.start_offset
        return next(walk_file(self._file, search, position, end, crc_from, None, _PLAIN_WINDOW))

    def _flush(self, window: Bytes | None) -> Iterator[MessageColumns]:
        """The rows so far as a batch, if there are any."""
        state, request = self._state, self._request
        rows, keys, left_over = int(state[WalkState.ROW]), int(state[WalkState.KEYS]), int(state[WalkState.PLAIN_ROWS])
        if not rows:
            return
        arrays = self._longs[:, :rows], self._ints[:, :rows], self._key_hash[:keys], self._key_row[:keys]
        if 2 * rows < self._longs.shape[1]:
            # few rows must not keep large arrays alive
            arrays = arrays[0].copy(), arrays[1].copy(), arrays[2].copy(), arrays[3].copy()
            state[WalkState.ROW] = state[WalkState.KEYS] = state[WalkState.PLAIN_ROWS] = 0
        else:
            self._new_arrays()
        keep = request.asked & Columns.BYTES
        batch = MessageColumns(request.log, request.topics, request.asked, *arrays, window if keep else None)
        yield plain.complete(batch) if left_over else batch


def _needed(buffer: Bytes, size: int) -> int:
    """How large a window has to be for the message at its start; 0 if that would be too large, or does not help."""
    needed = max(_LONGEST_HEAD, int.from_bytes(buffer[:4].tobytes(), "big"))
    return needed if size < needed <= _LARGEST_WINDOW else 0
