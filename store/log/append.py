"""Appending frames to the commitlog: space is reserved first, then the data becomes visible at once
(DefaultAppendMessageCallback)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from rmqctl.formats.errors import ExhaustedError, WriteFailedError
from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.background import Background, Failure
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import Allocator, MappedFileQueue


class Sink(Protocol):
    """Where appended bytes go: into the file at once, or into a buffer first (transient_pool.py)."""

    @property
    def refuses_files(self) -> bool:
        """Whether no new file may be begun now."""

    def begin(self, file: MappedFile) -> None:
        """Take a new empty file, before anything is appended to it."""

    def cancel(self, file: MappedFile) -> None:
        """Give up a file that was begun and is not needed after all."""

    def append(self, file: MappedFile, data: bytes, length: int, store_timestamp: int) -> None:
        """Append `data`, which represents the next `length` bytes of `file`."""

    def commit(self, least_pages: int = 0) -> bool:
        """Make what was appended readable, and return whether there was anything. A file with fewer than `least_pages`
        pages to commit waits, unless it is full; 0 commits any byte."""


class DirectSink:
    """Bytes go into the mapped file and are readable at once."""

    refuses_files = False

    def begin(self, file: MappedFile) -> None:
        """See Sink."""

    def cancel(self, file: MappedFile) -> None:
        """See Sink."""

    def append(self, file: MappedFile, data: bytes, length: int, store_timestamp: int) -> None:
        """See Sink."""
        # in this order, so that a write that fails has moved nothing
        file.commit(data, length, store_timestamp)
        file.defer(length)

    def commit(self, least_pages: int = 0) -> bool:
        """Nothing is kept back."""
        return False


class FileNotCreatedError(WriteFailedError):
    """The next file of the commitlog could not be created."""

    code = "RMQ-E-014"


class Room(NamedTuple):
    """Reserved space in `file`. `full_file` is the file before it, still to be closed with a blank frame."""

    file: MappedFile
    full_file: MappedFile | None
    is_new_file: bool

    @property
    def physical_offset(self) -> int:
        """Where the first byte will stand."""
        return self.file.start_offset + self.file.wrote_position


class LogAppender:
    """The end of the commitlog. Used under the put lock only.

    `reserve` does everything that can fail and changes nothing that can be seen; `append` then cannot fail for want of
    space. Disk blocks are allocated in `reserve`, so a full disk is a WriteFailedError there.
    """

    def __init__(self, log: MappedFileQueue, sink: Sink, allocator: Allocator) -> None:
        self._log = log
        self._sink = sink
        self._allocator = allocator

    @property
    def end_offset(self) -> int:
        """Physical offset behind what was appended, committed or not."""
        files = self._log.files
        return files[-1].start_offset + files[-1].wrote_position if files else 0

    @property
    def last_file(self) -> MappedFile | None:
        """The file that is being appended to; None without one, or if it is full."""
        files = self._log.files
        return files[-1] if files and not files[-1].is_full else None

    def reserve(self, length: int) -> Room:
        """Return space for `length` bytes in one file: the current one, or a new one if they and the 8 bytes of a blank
        frame do not fit. `length` + 8 must not exceed a file."""
        last = self._log.files[-1] if self._log.files else None
        if last is not None and length + BLANK_FRAME.size <= last.size - last.wrote_position:
            last.reserve(length)
            return Room(last, None, False)
        full_file = last if last is not None and not last.is_full else None
        if full_file is not None:
            full_file.reserve(BLANK_FRAME.size)
        if self._sink.refuses_files:
            raise FileNotCreatedError(
                "the transient store pool has no buffer for a new commitlog file",
                hint="fastFailIfNoBufferInStorePool refuses it: put again later, or raise transientStorePoolSize",
            )
        try:
            file = self._allocator.take(last.end_offset if last is not None else 0)
        except WriteFailedError as error:
            if isinstance(error, ExhaustedError):
                raise
            raise FileNotCreatedError(error.message, file=error.file, hint=error.hint) from error
        try:
            file.reserve(length)
            self._sink.begin(file)
        except BaseException:
            self._allocator.give_back(file)
            raise
        return Room(file, full_file, True)

    def cancel(self, room: Room) -> None:
        """Release reserved space that was not used."""
        if room.is_new_file:
            self._sink.cancel(room.file)
            self._allocator.give_back(room.file)

    def append(self, room: Room, data: bytes, store_timestamp: int) -> None:
        """Append `data` in the space that `reserve` returned, after the blank frame of the file before it."""
        self.enter(room)
        self._sink.append(room.file, data, len(data), store_timestamp)
        self.leave(room)

    def enter(self, room: Room) -> None:
        """Close the file before the space, and make the file of the space the last one: the first step of `append`. A
        caller of this writes into the space, publishes what it wrote (MappedFile.publish) and calls `leave`."""
        if room.full_file is not None:
            left = room.full_file.size - room.full_file.wrote_position
            try:
                self._sink.append(room.full_file, BLANK_FRAME.struct.pack(left, BLANK_MAGIC), left, 0)
            except BaseException:
                self.cancel(room)
                raise
        if room.is_new_file:
            self._log.files.append(room.file)

    def leave(self, room: Room) -> None:
        """Note that the space is used: preallocate the next file if it is time to."""
        # a warm file has all its pages: compiled puts do not come here again before it is full
        if room.file.wrote_position * 2 > room.file.size or self._allocator.is_warming:
            self._allocator.ask(room.file.end_offset)


# Bringing the commitlog to disk: at an interval, or for every put that waits for it (GroupCommitService).

SYNC_FLUSH = "SYNC_FLUSH"
# GroupCommitService looks for work at least this often
_GROUP_COMMIT_MS = 10
# FlushRealTimeService logs its progress at the first thorough flush and at each tenth after it
_LOGGED_EACH = 10


class LogFlusher:
    """fsyncs the log from the front. `flushed_timestamp`: store time (ms) of the last message known to be on disk, 0 if
    nothing was flushed yet.

    A failed fsync is final: the kernel may have dropped the pages, so a later success would mean nothing.
    """

    def __init__(self, log: MappedFileQueue, flushed_offset: int) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._error: WriteFailedError | None = None
        self.flushed_offset = flushed_offset
        self.flushed_timestamp = 0

    @property
    def behind(self) -> int:
        """Bytes of the log that are committed and not known to be on disk (MappedFileQueue#howMuchFallBehind)."""
        return self._log.max_offset - self.flushed_offset

    def flush(self, least_pages: int = 0) -> None:
        """Flush what is committed if it is at least `least_pages` pages of 4096 bytes; 0 flushes any dirty byte.

        Files that are full and flushed are unmapped.
        """
        with self._lock, self._failing_for_good():
            self._flush(least_pages)

    def flush_names(self) -> None:
        """Flush the name of the last file, unless that was done; those before it were flushed before it was made."""
        # not under the lock: a flush of much data would keep the next file from being made
        with self._failing_for_good():
            for last in self._log.files[-1:]:
                _flush_name(last)

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        """What failed once fails from then on, with the same error."""
        if self._error is not None:
            raise self._error
        try:
            yield
        except ExhaustedError:
            # nothing was written or flushed: the next flush covers the same pages
            raise
        except WriteFailedError as error:
            self._error = error
            raise

    def _flush(self, least_pages: int) -> None:
        while (file := self._log.find(self.flushed_offset)) is not None:
            if not file.may_flush(least_pages):
                return
            # read before flushing: what is appended meanwhile is not covered
            timestamp = file.store_timestamp
            _flush_name(file)
            position = file.flush()
            self.flushed_timestamp = timestamp or self.flushed_timestamp
            self.flushed_offset = file.start_offset + position
            if position < file.size:
                return
            file.close()


def _flush_name(file: MappedFile) -> None:
    """It is on disk from the first flush of the file on."""
    if file.flushed_position == 0:
        io.flush_directory(file.path.parent)


class FlushService:
    """The thread that flushes, and the place where puts wait for it.

    ASYNC_FLUSH (FlushRealTimeService): every flushIntervalCommitLog ms, if flushCommitLogLeastPages are dirty, and
    any dirty byte after flushCommitLogThoroughInterval; without flushCommitLogTimed also at each `wake`. SYNC_FLUSH
    (GroupCommitService): as soon as a put waits, all that is there with one fsync for all that wait. `thread` flushes,
    and is woken for that.
    """

    def __init__(self, flusher: LogFlusher, sink: Sink, config: StoreConfig, on_failure: Failure) -> None:
        self.is_sync = config.flush_disk_type == SYNC_FLUSH
        self._flusher = flusher
        self._sink = sink
        self._config = config
        self._on_failure = on_failure
        # told after every commit and flush that there may be more to dispatch
        self.listener: Callable[[], None] = lambda: None
        self._condition = threading.Condition()
        self._told: list[tuple[int, Callable[[], None]]] = []
        self._error: BaseException | None = None
        self._last_thorough = self._last_commit = time.monotonic()
        self._thorough_flushes = 0
        if self.is_sync:
            self.thread = Background("group-commit", self._group_commit, _GROUP_COMMIT_MS, self._fail)
        else:
            self.thread = Background(
                "flush",
                self._flush_at_interval,
                config.flush_interval_commit_log,
                self._fail,
                is_timed=config.flush_commit_log_timed,
            )
        self._committer = (
            Background("commit", self._commit_at_interval, config.commit_interval_commit_log, self._fail)
            if config.uses_transient_store_pool
            else None
        )

    def start(self) -> None:
        """Start the threads."""
        self.thread.start()
        if self._committer is not None:
            self._committer.start()

    def stop(self) -> None:
        """Stop the threads; does not flush."""
        if self._committer is not None:
            self._committer.stop()
        self.thread.stop()

    def wake(self) -> None:
        """Let the thread flush now what was appended; with flushCommitLogTimed it keeps to its interval."""
        self.thread.wake()

    @property
    def commits_later(self) -> bool:
        """Whether what is appended can be read only after a commit of the transient store pool."""
        return self._committer is not None

    def wake_commit(self) -> None:
        """Let the commit look now at what a put appended (CommitLog#handleDiskFlush).

        With SYNC_FLUSH the flush commits. Without wakeCommitWhenPutMessage the commit keeps to its interval.
        """
        if self._committer is not None and self._config.wake_commit_when_put_message and not self.is_sync:
            self._committer.wake()

    def flush_now(self) -> None:
        """Commit and flush everything appended so far, in the caller's thread. Raises the error of a failed flush."""
        try:
            self._sink.commit()
            self._flusher.flush()
        except ExhaustedError:
            raise
        except WriteFailedError as error:
            self._fail(error)
            raise
        with self._condition:
            self._condition.notify_all()
        self._tell()
        self.listener()

    def tell_when_flushed(self, offset: int, told: Callable[[], None]) -> None:
        """Call `told`, in the thread that flushes, when everything before `offset` is on disk. After a failed flush it
        is never called."""
        with self._condition:
            self._told.append((offset, told))
        if self._flusher.flushed_offset >= offset:
            self._tell()
        else:
            self.thread.wake()

    def _tell(self) -> None:
        """Notify the callbacks of what is on disk now."""
        reached = self._flusher.flushed_offset
        with self._condition:
            due = [told for offset, told in self._told if offset <= reached]
            if not due:
                return
            self._told = [one for one in self._told if one[0] > reached]
        for told in due:
            told()

    def wait_for(self, offset: int) -> bool:
        """Wait until everything before `offset` is on disk; False after syncFlushTimeout. Raises if a flush failed."""
        self.thread.wake()

        def is_over() -> bool:
            return self._flusher.flushed_offset >= offset or self._error is not None

        with self._condition:
            in_time = self._condition.wait_for(is_over, self._config.sync_flush_timeout / 1000)
        if self._flusher.flushed_offset < offset and self._error is not None:
            raise WriteFailedError(
                "the flush that the message waited for failed: it may be lost at a power failure",
                hint="check the disk (dmesg), then run `rmqctl recover`",
            ) from self._error
        return in_time

    def _group_commit(self) -> None:
        self.flush_now()

    def _flush_at_interval(self) -> None:
        now = time.monotonic()
        least_pages = self._config.flush_commit_log_least_pages
        if (now - self._last_thorough) * 1000 >= self._config.flush_commit_log_thorough_interval:
            self._last_thorough = now
            least_pages = 0
            if self._thorough_flushes % _LOGGED_EACH == 0:
                self._log_progress()
            self._thorough_flushes += 1
        self._flusher.flush(least_pages)

    def _log_progress(self) -> None:
        import logging  # here, because lookups import this module and never log

        logging.getLogger("rmqctl.store").info(
            "the disk is %d bytes behind the commitlog in memory (flushed to %d)",
            self._flusher.behind,
            self._flusher.flushed_offset,
        )

    def _commit_at_interval(self) -> None:
        now = time.monotonic()
        least_pages = self._config.commit_commit_log_least_pages
        if (now - self._last_commit) * 1000 >= self._config.commit_commit_log_thorough_interval:
            self._last_commit = now
            least_pages = 0
        if self._sink.commit(least_pages):
            self._last_commit = time.monotonic()
            self.thread.wake()
            self.listener()

    def _fail(self, error: BaseException) -> None:
        with self._condition:
            self._error = self._error or error
            self._condition.notify_all()
        self._on_failure(error)
