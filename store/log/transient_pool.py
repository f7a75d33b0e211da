"""The transient store pool: messages go to memory first, and to the file at a commit (TransientStorePool)."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import resource
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rmqctl.formats.errors import counted
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.background import naming_exhaustion
from rmqctl.store.files.mapped_file import MappedFile

# Keeping a map in memory: none of its pages is swapped out (mlock2).

# mlock2(2), Linux 4.4: pages are locked as they come into memory, so that a large map takes no more than is used
_ON_FAULT = 1


def lock_memory(mapped: mmap.mmap) -> str | None:
    """Lock the pages of a map in memory, those to come as they come, until it is unmapped. Return None, or why that
    cannot be."""
    try:
        mlock2 = ctypes.CDLL(None, use_errno=True).mlock2
    except AttributeError:
        return "this C library has no mlock2"
    mlock2.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
    first = ctypes.c_char.from_buffer(mapped)
    try:
        failed = mlock2(ctypes.addressof(first), len(mapped), _ON_FAULT)
    finally:
        del first  # while it lives the map cannot be closed
    return os.strerror(ctypes.get_errno()) if failed else None


def unlocked_sentence(what: str, size: int, reason: str) -> str:
    """Return what to say of memory of `size` bytes that `lock_memory` could not lock."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    allowed = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit} bytes"
    return (
        f"{what} ({size} bytes) is not locked in memory and may be swapped out: {reason}; RLIMIT_MEMLOCK is {allowed} "
        "(`ulimit -l unlimited` before the start raises it)"
    )


# RocketMQ warns where less than this part of the buffers is left
_FEW = 0.4
_LOGGER = logging.getLogger("rmqctl.store")


class TransientStorePool:
    """`size` buffers of `buffer_size` bytes, the size of a commitlog file, that files borrow while they are written.

    A buffer is made when it is first borrowed, and locked in memory, so that nothing of it is swapped out. Where that
    cannot be, a warning says so once. `fails_fast`: no new file is begun while all buffers are lent
    (fastFailIfNoBufferInStorePool); else it is written without one.
    """

    def __init__(self, size: int, buffer_size: int, *, fails_fast: bool = False) -> None:
        self._size = size
        self._buffer_size = buffer_size
        self._fails_fast = fails_fast
        self._unmade = size
        self._free: deque[mmap.mmap] = deque()
        self._lock = threading.Lock()
        self._is_told = False

    @property
    def available(self) -> int:
        """How many buffers can be borrowed now."""
        return self._unmade + len(self._free)

    @property
    def refuses(self) -> bool:
        """Whether a new file is refused for want of a buffer."""
        return self._fails_fast and not self.available

    def borrow(self) -> mmap.mmap | None:
        """Return a buffer, whose bytes may be those of another file; None where all are lent. ExhaustedError without
        memory."""
        with self._lock:
            buffer = self._free.popleft() if self._free else None
            if buffer is None and self._unmade:
                with naming_exhaustion():
                    buffer = io.anonymous_map(self._buffer_size)
                self._unmade -= 1
                self._lock_in_memory(buffer)
            left = self.available
        if left < self._size * _FEW:
            _LOGGER.warning("the transient store pool has %s left", counted(left, "buffer"))
        return buffer

    def give_back(self, buffer: mmap.mmap) -> None:
        """Take a buffer back: the file that borrowed it is written, or not begun after all."""
        with self._lock:
            self._free.appendleft(buffer)

    def _lock_in_memory(self, buffer: mmap.mmap) -> None:
        reason = lock_memory(buffer)
        if reason is not None and not self._is_told:
            self._is_told = True
            _LOGGER.warning(unlocked_sentence("a buffer of the transient store pool", self._buffer_size, reason))


@dataclass(slots=True)
class _Lent:
    """A buffer that a file has borrowed. `data_end`: end of the data of a full file, before the rest that its blank
    frame covers; -1 until then."""

    file: MappedFile
    buffer: mmap.mmap
    store_timestamp: int = 0
    data_end: int = -1


class PooledSink:
    """Appended bytes stay in the buffer of their file until `commit` writes them, file by file. A file without a buffer
    is written at once: all were lent, or it was begun before the store was opened."""

    def __init__(self, pool: TransientStorePool) -> None:
        self._pool = pool
        self._lent: dict[int, _Lent] = {}
        """By the start offset of the file, in order."""
        self._lock = threading.Lock()
        """What a commit sees of a file belongs together."""
        self._commit_lock = threading.Lock()

    @property
    def refuses_files(self) -> bool:
        """See Sink."""
        return self._pool.refuses

    def begin(self, file: MappedFile) -> None:
        """See Sink."""
        buffer = self._pool.borrow()
        if buffer is not None:
            with self._lock:
                self._lent[file.start_offset] = _Lent(file, buffer)

    def cancel(self, file: MappedFile) -> None:
        """See Sink."""
        with self._lock:
            lent = self._lent.pop(file.start_offset, None)
        if lent is not None:
            self._pool.give_back(lent.buffer)

    def append(self, file: MappedFile, data: bytes, length: int, store_timestamp: int) -> None:
        """See Sink."""
        lent = self._lent.get(file.start_offset)
        if lent is None:
            self.commit()  # what is before it has to be readable first
            file.commit(data, length, store_timestamp)
            file.defer(length)
            return
        with self._lock:
            position = file.wrote_position
            data_end = position + len(data)
            lent.buffer[position:data_end] = data
            if len(data) < length:
                lent.data_end = data_end
            lent.store_timestamp = store_timestamp or lent.store_timestamp
            file.defer(length)

    def commit(self, least_pages: int = 0) -> bool:
        """See Sink."""
        has_committed = False
        with self._commit_lock:
            while (lent := self._first()) is not None and lent.file.may_commit(least_pages):
                file, begin = lent.file, lent.file.committed_position
                with self._lock:
                    end, timestamp = file.wrote_position, lent.store_timestamp
                    data_end = end if lent.data_end < 0 else lent.data_end
                with memoryview(lent.buffer) as whole, whole[begin:data_end] as data:
                    file.commit(data, end - begin, timestamp)
                has_committed = True
                if end == file.size:
                    self.cancel(file)
        return has_committed

    def _first(self) -> _Lent | None:
        """The first file with a buffer: those before it are committed."""
        with self._lock:
            return next(iter(self._lent.values()), None)


# Warming new commitlog files, so that no put waits for a page of them (warmMapedFileEnable).


def warming(config: StoreConfig, is_sync: bool) -> Callable[[MappedFile], None] | None:
    """Return what prepares each new file, None where the settings want nothing. `is_sync`: SYNC_FLUSH, with which the
    disk is waited for after every flushLeastPagesWhenWarmMapedFile pages."""
    if not config.warm_maped_file_enable:
        return None
    flush_each = max(1, config.flush_least_pages_when_warm_maped_file) * io.PAGE_SIZE if is_sync else 0
    told: list[str] = []

    def warm(file: MappedFile) -> None:
        file.warm(flush_each)
        reason = lock_memory(file.writable_map.map)
        if reason is not None and not told:
            import logging  # here, because most stores are opened to be read

            told.append(unlocked_sentence("a commitlog file", file.size, reason))
            logging.getLogger("rmqctl.store").warning(told[0])

    return warm
