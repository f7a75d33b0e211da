"""The walk on several cores: pieces of the log in threads, their results in the log's order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TypeVar

from rmqctl.store.columns.batch import ColumnRecord, Columns, MessageColumns
from rmqctl.store.columns.compiled_walk import Request
from rmqctl.store.columns.engine import engine
from rmqctl.store.columns.pieces import PIECE, WalkPiece, pieces
from rmqctl.store.columns.topics import TopicIds
from rmqctl.store.columns.walk import ROWS, WINDOW
from rmqctl.store.commitlog.walk import Blank, Damage, Empty, Progress
from rmqctl.store.files.mapped_file_queue import MappedFileQueue

_Result = TypeVar("_Result")
# how long the main thread waits at a time, in seconds: a signal is answered in between
_PATIENCE = 0.1


@dataclass(slots=True)
class LogCount:
    """What a check of the log found: counts of good messages, and every record that is none, in order."""

    messages: int = 0
    message_bytes: int = 0
    others: list[Blank | Empty | Damage] = field(default_factory=list)


class _Told:
    """Tells the progress of one piece: all of its bytes in the end, however far its walk went."""

    def __init__(self, progress: Progress | None, telling: threading.Lock, length: int) -> None:
        self._progress, self._telling, self._left = progress, telling, max(0, length)

    def tell(self, passed: int) -> None:
        passed = min(passed, self._left)
        self._left -= passed
        if self._progress is not None:
            with self._telling:
                self._progress(passed)

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
    crc_from: int = 0,
    columns: Columns = Columns.DISPATCH,
    topics: TopicIds | None = None,
    progress: Progress | None = None,
    window: int = WINDOW,
    rows: int = ROWS,
    piece: int = PIECE,
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

    topics = topics if topics is not None else TopicIds()
    request = Request(log, topics, columns, crc_from, end, None, window, rows, stopped)
    used = engine()
    telling = threading.Lock()

    def walked(one: WalkPiece, progress: Progress | None) -> _Result:
        with _Told(progress, telling, one.limit - one.begin) as told:
            records = one.records(used, request._replace(progress=told.tell))
            result = work(records)
            deque(records, maxlen=0)  # what `work` left: the end of the walk must be known
        return result

    waiting = deque(pieces(request, begin, piece))
    running: deque[tuple[WalkPiece, Future[_Result]]] = deque()
    before: WalkPiece | None = None
    with ThreadPoolExecutor(max(1, threads), "walk") as pool:
        try:
            while waiting or running:
                while waiting and len(running) <= threads:
                    following = waiting.popleft()
                    running.append((following, pool.submit(walked, following, progress)))
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
