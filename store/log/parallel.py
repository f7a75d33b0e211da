"""The walk on several cores: pieces of the log in threads, their results in the log's order."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar, Unpack

from rmqctl.formats.layouts import FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import data_extents, removed_error
from rmqctl.store.log.column_walk import FileWalk, Request, WalkOptions, request_of
from rmqctl.store.log.columns import ColumnRecord, MessageColumns
from rmqctl.store.log.search import ENTRY_HEAD_SIZE, FrameSearch
from rmqctl.store.log.walk import Blank, Damage, Empty, Progress, missing_file, walk_files
from rmqctl.store.native.tables import Columns

# The log cut into pieces that can be walked at the same time, and whether the walks of neighbours fit together.

PIECE = 64 * 1024 * 1024
# where no frame begins within this many bytes of a wanted edge, there is no edge; most begin much sooner
_SEARCHED_FIRST = 16 * 1024
_SEARCHED = 1024 * 1024
_MAXIMUM_CANDIDATES = 1000
_MAGIC_AT = FRAME_HEADS[0].offset("magic_code")
_POSITION_AT = FRAME_HEADS[0].offset("physical_offset")


class _FilePart(NamedTuple):
    """The bytes [begin, end) of a file."""

    file: MappedFile
    begin: int
    end: int


@dataclass(slots=True)
class WalkPiece:
    """The records of a file that start in [begin, limit), positions in the file; `end` is that of the file.

    `begin` is a guess: it holds if the walk of the piece before ends exactly there. `before` and `after`: damage
    between files. `reached`: where the walk of this piece ended; `empty`: the bytes of zeros that it met at the end.
    """

    file: MappedFile
    begin: int
    limit: int
    end: int
    before: list[Damage] = field(default_factory=list)
    after: list[Damage] = field(default_factory=list)
    reached: int = -1
    empty: int = 0

    def records(self, request: Request) -> Iterator[ColumnRecord]:
        """The records of the piece and the damage around it."""
        yield from self.before
        start = self.file.start_offset
        self.reached = self.begin
        limit = start + self.limit if request.limit is None else min(start + self.limit, request.limit)
        with self.file.hold() as held:
            if not held:
                begin, self.reached = start + self.begin, self.limit
                yield from missing_file(request.log, self.file, begin, start + self.limit)
            else:
                for record in FileWalk(request._replace(limit=limit), self.file).records(self.begin, self.end):
                    self.reached = record.end - start
                    if isinstance(record, Empty):
                        self.empty = record.end - record.physical_offset
                    yield record
        yield from self.after

    def is_followed_by(self, other: WalkPiece) -> bool:
        """Whether the walk of `other` may begin where it does. Different files never depend on one another."""
        return self.file is not other.file or self.reached == other.begin


def pieces(request: Request, begin: int, size: int) -> list[WalkPiece]:
    """The log from physical offset `begin` on in pieces of about `size` bytes, in order."""
    found: list[WalkPiece] = []
    damages: list[Damage] = []

    def one_file(file: MappedFile, start: int, end: int) -> Iterator[_FilePart]:
        yield _FilePart(file, start, end)

    for item in walk_files(request.log, begin, one_file):
        start = item.physical_offset if isinstance(item, Damage) else item.file.start_offset + item.begin
        if request.limit is not None and start >= request.limit:
            break
        if isinstance(item, Damage):
            damages.append(item)
            continue
        made = _pieces_of(item, size)
        made[0].before = damages
        damages = []
        found += made
    if damages and not found:
        # the only files there were are gone, and not by a cleaner
        raise removed_error(Path(damages[0].file))
    if damages:
        found[-1].after = damages
    return found


def _pieces_of(part: _FilePart, size: int) -> list[WalkPiece]:
    made = [WalkPiece(part.file, part.begin, part.end, part.end)]
    for wanted in range(part.begin + size, part.end - size // 2, size):
        if _is_hole(part.file, wanted, min(wanted + _SEARCHED, part.end)):
            continue  # a sparse file may be larger than anybody can read
        edge = _frame_start(part.file, wanted, part.end)
        if edge is not None and edge > made[-1].begin:
            made[-1].limit = edge
            made.append(WalkPiece(part.file, edge, part.end, part.end))
    return made


def _is_hole(file: MappedFile, begin: int, end: int) -> bool:
    return next(data_extents(file.path, begin, end, file.descriptors), None) is None


def _frame_start(file: MappedFile, position: int, end: int) -> int | None:
    """The first place from `position` on that looks like the start of a message: a guess, and checked as one."""
    for length in (_SEARCHED_FIRST, _SEARCHED):
        window = file.read(position, min(length, end - position))
        start = _first_frame_of(window, file.start_offset + position)
        if start is not None:
            return position + start - FrameSearch(file, end).entry_head(position + start - ENTRY_HEAD_SIZE)
    return None


def _first_frame_of(window: bytes, physical_offset: int) -> int | None:
    magics = [magic.to_bytes(4, "big") for magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)]
    at = _MAGIC_AT
    for _ in range(_MAXIMUM_CANDIDATES):
        place = len(window)
        for magic in magics:
            found = window.find(magic, at, place + len(magic) - 1)
            place = found if found >= 0 else place
        if place == len(window):
            return None
        start = place - _MAGIC_AT
        stored = window[start + _POSITION_AT : start + _POSITION_AT + 8]
        if int.from_bytes(stored, "big") == physical_offset + start:
            return start
        at = place + 1
    return None


_Result = TypeVar("_Result")
# how long the main thread waits at a time, in seconds: a signal is answered in between
_PATIENCE = 0.1


@dataclass(slots=True)
class LogCount:
    """Result of a check of the log: counts of good messages, and every other record, in order."""

    messages: int = 0
    message_bytes: int = 0
    others: list[Blank | Empty | Damage] = field(default_factory=list)


class _Told:
    """Report the progress of one piece: all of its bytes but zeros in the end, however far its walk went."""

    def __init__(self, progress: Progress | None, telling: threading.Lock, length: int) -> None:
        self._progress, self._telling, self._left = progress, telling, max(0, length)

    def tell(self, passed: int) -> None:
        passed = min(passed, self._left)
        self._left -= passed
        if self._progress is not None:
            with self._telling:
                self._progress(passed)

    def leave_out(self, size: int) -> None:
        """Leave that number of bytes out of the count: the total of a progress bar excludes zeros at the end of the
        log."""
        self._left = max(0, self._left - size)

    def __enter__(self) -> _Told:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.tell(self._left)


class _Stopped(Exception):  # noqa: N818 - ends a thread whose result nobody waits for
    """The walk was given up."""


def walk_parallel(
    log: MappedFileQueue,
    work: Callable[[Iterator[ColumnRecord]], _Result],
    begin: int = 0,
    end: int | None = None,
    *,
    threads: int = 2,
    piece: int = PIECE,
    **options: Unpack[WalkOptions],
) -> Iterator[_Result]:
    """`work` over the records of each piece of the log, some pieces at a time; the results in the log's order.

    Put together the pieces hold what `walk_columns` yields, records for records (runs of messages may be cut in other
    places). `work` runs in threads, at times twice for the same records: it may change nothing but what it returns.
    It gets pieces of about `piece` bytes, of one file each. Topics are numbered by one table for all. No more
    results are made ahead than there are threads. When the caller stops, an exception included, so do the threads.
    """
    stop = threading.Event()

    def stopped() -> None:
        if stop.is_set():
            raise _Stopped

    request = request_of(log, end, options)._replace(stopped=stopped)
    telling = threading.Lock()

    def walked(one: WalkPiece, progress: Progress | None) -> _Result:
        with _Told(progress, telling, one.limit - one.begin) as told:
            records = one.records(request._replace(progress=told.tell))
            result = work(records)
            deque(records, maxlen=0)  # what `work` left: the end of the walk must be known
            told.leave_out(one.empty)
        return result

    waiting = deque(pieces(request, begin, piece))
    running: deque[tuple[WalkPiece, Future[_Result]]] = deque()
    before: WalkPiece | None = None
    with ThreadPoolExecutor(max(1, threads), "walk") as pool:
        try:
            while waiting or running:
                while waiting and len(running) <= threads:
                    following = waiting.popleft()
                    running.append((following, pool.submit(walked, following, request.progress)))
                one, future = running.popleft()
                result = _result(future)
                if before is not None and not before.is_followed_by(one):
                    # the guess was wrong, or damage reaches into this piece: the walk before it knows better
                    one.begin = before.reached
                    one.limit = max(one.limit, one.begin)
                    result = _result(pool.submit(walked, one, None))
                before = one
                yield result
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future[_Result]) -> _Result:
    while not future.done():
        wait([future], _PATIENCE)
    return future.result()


def check_log(log: MappedFileQueue, threads: int = 2, progress: Progress | None = None) -> LogCount:
    """Every check of law 3 for the whole log."""
    check = LogCount()
    for part in walk_parallel(log, _count, threads=threads, columns=Columns.NONE, progress=progress):
        check.messages += part.messages
        check.message_bytes += part.message_bytes
        check.others += part.others
    return check


def _count(records: Iterator[ColumnRecord]) -> LogCount:
    check = LogCount()
    for record in records:
        if isinstance(record, MessageColumns):
            check.messages += record.rows
            check.message_bytes += record.end - record.begin
        else:
            check.others.append(record)
    return check


def give_back_memory() -> None:
    """Have the allocator give free memory back to the system, where it can: much of it is of threads that are over."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
