"""The transient store pool: messages go to memory first, and to the file at a commit (TransientStorePool)."""

from __future__ import annotations

import logging
import mmap
import threading
from collections import deque
from dataclasses import dataclass

from rmqctl.formats.wording import counted
from rmqctl.store.commitlog.locked_memory import lock_memory, unlocked_sentence
from rmqctl.store.files import io
from rmqctl.store.files.background import naming_exhaustion
from rmqctl.store.files.mapped_file import MappedFile

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
    """A buffer that a file has borrowed. `data_end`: where the data of a full file ends, before the rest that its blank
    frame stands for; -1 until then."""

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
