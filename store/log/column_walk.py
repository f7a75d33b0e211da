"""The walk over the commitlog that yields runs of messages as columns."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.hosts import LOCAL_HOST
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import Message, StoredMessage, decode_message, frame_bytes, prepare_frame
from rmqctl.store.compiled.available import NO_ISAL, is_crc32, is_little, isal_crc, why_plain
from rmqctl.store.compiled.notices import notice
from rmqctl.store.compiled.tried import LOOK_AGAIN, NotKept, announcing
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import file_elsewhere, first_nonzero, removed_error
from rmqctl.store.log import plain_walk as plain
from rmqctl.store.log.columns import (
    FULL,
    INTS,
    KEYS_OF_A_ROW,
    LONGS,
    NEW_TOPIC,
    PADDING,
    SCRATCH_SHAPE,
    STATE_SIZE,
    STOPPED,
    Bytes,
    ColumnRecord,
    Columns,
    MessageColumns,
    TopicIds,
    WalkState,
)
from rmqctl.store.log.search import FrameSearch
from rmqctl.store.log.walk import Progress, Record, walk_file, walk_files

# Which rung of the ladder does the walk: compiled with isal's CRC, compiled with our own CRC, or plain Python.

_KERNELS = "rmqctl.store.columns.kernel_walk"
_loading = threading.Lock()


class WalkEngine(NamedTuple):
    """What walks a window. `walk_window` is None on the plain rung; `crc_function` is an address, owned by `owner`."""

    walk_window: Callable[..., int] | None
    crc_function: int
    notice: str | None
    owner: object = None


_loaded: dict[tuple[str | None, bool], WalkEngine] = {}


def speed_notice() -> str | None:
    """Why bulk work is slower here than it could be, as one sentence for people; None where it is not.

    Loads the engine if nothing has done so before: ask when bulk work begins, not at start.
    """
    return engine().notice


def engine(*, is_waited_for: bool = True) -> WalkEngine:
    """The highest rung that works here and that the environment allows; says why it is not higher (`notices`).

    Unless it `is_waited_for`, this waits while another process compiles the walk.
    """
    if is_little():
        return WalkEngine(None, 0, None)
    key = why_plain(), _is_isal_forbidden()
    while True:
        with _loading, contextlib.suppress(NotKept):
            loaded = _loaded[key] = _loaded.get(key) or _load(*key, announcing(_KERNELS, is_waited_for))
            break
        time.sleep(LOOK_AGAIN)
    if loaded.notice is not None:
        notice(loaded.notice)
    return loaded


def crc_function() -> int:
    """Address of the CRC that kernels call: isal's, for which no walk is loaded, or the engine's."""
    function, _ = _isal(_is_isal_forbidden())
    return engine().crc_function if function is None else _address(function)


def _is_isal_forbidden() -> bool:
    return os.environ.get(NO_ISAL) == "1"


def _isal(is_forbidden: bool) -> tuple[Any, str | None]:
    """isal's CRC, or why it is not used."""
    return (None, f"{NO_ISAL}=1 is set") if is_forbidden else isal_crc()


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _load(why: str | None, no_isal: bool, announce: Callable[[], None]) -> WalkEngine:
    if why is not None:
        return WalkEngine(None, 0, f"whole logs are read slowly because {why}")
    function, slower = _isal(no_isal)
    try:
        return load(function, slower, announce)
    except Exception as error:  # noqa: BLE001 - numba and LLVM raise anything; the plain rung does the same work
        detail = str(error).partition("\n")[0][:200]
        why = f"its kernels cannot be compiled here ({type(error).__name__}: {detail})"
        return WalkEngine(None, 0, f"whole logs are read slowly because {why}")


def load(isal: Any, isal_notice: str | None, announce: Callable[[], None]) -> WalkEngine:
    """The compiled walk with isal's CRC if there is one, else with tables; `announce` is called before compiling.

    Raises whatever numba raises, and AssertionError for code that gives wrong answers.
    """
    from rmqctl.store.compiled import compiling
    from rmqctl.store.compiled.kernel_crc import compile_crc_by_tables

    if isal is not None:
        function, owner, notice = _address(isal), isal, isal_notice
    else:
        with compiling.listening(announce):
            owner = compile_crc_by_tables(compiling.source_stamp("rmqctl.store.compiled.kernel_crc"))
        function, notice = owner.address, f"CRCs are computed slowly because {isal_notice}"
        if not is_crc32(lambda address, length: int(owner.ctypes(0, address, length))):
            raise AssertionError("the compiled CRC gives wrong results")
    (walk_window,) = compiling.load_kernels(_KERNELS, lambda kernels: is_right(kernels[0], function), announce)
    if notice is None and not compiling.is_kept(walk_window):
        notice = "compiled code cannot be kept for the next command: set NUMBA_CACHE_DIR to a writable directory"
    return WalkEngine(walk_window, function, notice, owner)


def is_right(walk_window: Callable[..., int], crc_function: int) -> bool:
    """Whether it walks as it should over two messages, the second one damaged."""
    topics = TopicIds()
    topics.id_of(b"Topic")
    message = Message("Topic", b"body" * 20, properties={"KEYS": "a b", "TAGS": "Tag", "UNIQ_KEY": "0A" * 16})
    parts = prepare_frame(message, LOCAL_HOST, 1, with_property_crc=True)
    first = frame_bytes(parts, 7, 0, 2)
    second = bytearray(frame_bytes(parts, 8, len(first), 2))
    second[100] ^= 1
    data = first + second
    window = np.frombuffer(data + bytes(PADDING), np.uint8).copy()
    state = np.zeros(STATE_SIZE, np.int64)
    state[WalkState.WINDOW], state[WalkState.LENGTH], state[WalkState.STOP] = window.ctypes.data, len(data), len(data)
    state[WalkState.CRC_FUNCTION], state[WalkState.ASKED] = crc_function, int(Columns.ALL | Columns.TAG_KEYS)
    state[WalkState.TEXT], state[WalkState.SEED], state[WalkState.TOPIC_HINT] = topics.text.ctypes.data, topics.seed, -1
    longs, ints = np.zeros((len(LONGS), 4), np.int64), np.zeros((len(INTS), 4), np.int32)
    key_hash, key_row = np.zeros(100, np.int32), np.zeros(100, np.int32)
    scratch = np.zeros(SCRATCH_SHAPE, np.int64)
    status = walk_window(state, longs, ints, key_hash, key_row, topics.slots, topics.entries, scratch)
    found = (
        status,
        int(state[WalkState.POSITION]),
        int(state[WalkState.ROW]),
        int(state[WalkState.KEYS]),
        int(longs[1, 0]),
    )
    return found == (STOPPED, len(first), 1, 4, 7)


# Drives the kernel over a file: windows in, batches out. What is no good message the plain walk decides.

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


WINDOW = 1 << 20
ROWS = 16384


def walk_columns(
    log: MappedFileQueue,
    begin: int = 0,
    end: int | None = None,
    *,
    crc_from: int = 0,
    columns: Columns = Columns.DISPATCH,
    topics: TopicIds | None = None,
    progress: Progress | None = None,
    window: int = WINDOW,
    rows: int = ROWS,
) -> Iterator[ColumnRecord]:
    """What `walk` yields, in the same order, with runs of messages as `MessageColumns` of up to `rows` messages.

    Records that start at or behind physical offset `end` are left out. `topics` numbers the topics; one table may
    serve several walks. `window`: bytes that are read at once. Everything else, errors too, is as in `walk`.
    """
    topics = topics if topics is not None else TopicIds()

    request = Request(log, topics, columns, crc_from, end, progress, window, rows)
    return walk_request(request, begin)


def walk_request(request: Request, begin: int) -> Iterator[ColumnRecord]:
    """The walk over all files, on the highest rung there is."""
    used = engine()

    def one_file(file: MappedFile, start: int, stop: int) -> Iterator[ColumnRecord]:
        return file_records(used, request, file, start, stop)

    for record in walk_files(request.log, begin, one_file):
        if request.limit is not None and not isinstance(record, MessageColumns):
            begins = record.physical_offset
            if begins >= request.limit:
                return
        yield record


def file_records(used: WalkEngine, request: Request, file: MappedFile, begin: int, end: int) -> Iterator[ColumnRecord]:
    """Records of the bytes [begin, end) of one file."""
    if used.walk_window is not None:
        return FileWalk(used, request, file).records(begin, end)
    crc_from = request.crc_from - file.start_offset
    found = walk_file(file, request.search(file, end), begin, end, crc_from, request.progress)
    return plain.batches(_before(found, request), request.log, request.topics, request.asked, request.rows)


def _before(records: Iterator[Record], request: Request) -> Iterator[Record]:
    for record in records:
        if request.limit is not None and record.physical_offset >= request.limit:
            return
        if request.stopped is not None:
            request.stopped()
        yield record


# The walk over parts of a file, each of which begins with a frame for certain, and over nothing between them.

ByteSpan = tuple[int, int]
"""[begin, end) in bytes."""

# what follows the last message of a file is a few bytes, or empty, as a rule
_SPANS_FIRST_WINDOW = 4096


def span_records(
    used: WalkEngine, request: Request, file: MappedFile, spans: Sequence[ByteSpan], end: int
) -> Iterator[ColumnRecord]:
    """Records of a file that start in spans, positions in the file: in order, apart, each one beginning where a record
    of the walk over bytes [0, `end`) of the file begins.

    Where a span holds anything but good messages up to its very end, nobody knows what that means for those behind it:
    from there on everything is walked. The rows of a batch need not follow one another without a gap. `progress` and
    `stopped` of the request are asked by nobody but that walk. Empty space at the end of the file is passed over.
    """
    if spans and spans[-1][1] == end and _is_empty(file, spans[-1][0], end):
        spans = spans[:-1]
    if used.walk_window is None:
        records = _plain_records(request, file, spans, end)
        yield from plain.batches(records, request.log, request.topics, request.asked, request.rows)
        return
    walk = FileWalk(used, request, file)
    for group in _groups(spans, request.window, end):
        begin, stop = group[0][0], group[-1][1]
        if stop - begin <= request.window and stop < end:
            reached = yield from walk.spans(group)
            is_whole = reached == stop
        else:
            reached, is_whole = begin, True
            limited = request._replace(limit=_sooner(file.start_offset + stop, request.limit))
            for record in FileWalk(used, limited, file).records(
                begin, end, _SPANS_FIRST_WINDOW if stop == end else None
            ):
                yield record
                reached = record.end - file.start_offset
                is_whole = is_whole and isinstance(record, MessageColumns) and reached <= stop
        if not is_whole:
            yield from FileWalk(used, request, file).records(reached, end, _SPANS_FIRST_WINDOW)
            return


def _is_empty(file: MappedFile, begin: int, end: int) -> bool:
    """Whether there are only zeros. The walk would look for the last byte that is none, somewhere before."""
    if any(file.read(begin, min(_SPANS_FIRST_WINDOW, end - begin))):
        return False
    return first_nonzero(file.descriptors, file.path, begin, end) is None


def _sooner(stop: int, limit: int | None) -> int:
    return stop if limit is None else min(stop, limit)


def _groups(spans: Sequence[ByteSpan], window: int, end: int) -> Iterator[Sequence[ByteSpan]]:
    """Neighbours that one window holds; one that is larger, or reaches the end of the file, stands alone."""
    first = 0
    for number, span in enumerate(spans):
        if number > first and (span[1] - spans[first][0] > window or span[1] == end):
            yield spans[first:number]
            first = number
    if first < len(spans):
        yield spans[first:]


def _plain_records(request: Request, file: MappedFile, spans: Sequence[ByteSpan], end: int) -> Iterator[Record]:
    """The same record by record."""
    start, search = file.start_offset, request.search(file, end)
    crc_from = request.crc_from - start
    reached = 0
    for begin, stop in spans:
        reached = begin
        size = _SPANS_FIRST_WINDOW if stop == end else stop - begin
        for record in walk_file(file, search, begin, end, crc_from, None, min(size, request.window)):
            yield record
            reached = record.end - start
            if not isinstance(record, StoredMessage) or reached >= stop:
                break
        if reached != stop or not isinstance(record, StoredMessage):
            break
    else:
        return
    for record in walk_file(file, search, reached, end, crc_from, None, request.window):
        if request.limit is not None and record.physical_offset >= request.limit:
            return
        yield record
