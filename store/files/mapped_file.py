"""One file of a queue of files of equal size, with the positions RocketMQ keeps for it."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import RemovedError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors, removed_error

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# Reference counting of a file that readers hold while the cleaner wants it gone (RocketMQ ReferenceResource).

_FORCED = -1000


def monotonic_ms() -> int:
    """The clock of first-shutdown times, in ms: a step of the wall clock must not force a file out early."""
    return time.monotonic_ns() // 1_000_000


class ReferenceCount:
    """Starts available with one reference, the owner's. Times in ms of the monotonic clock.

    (ReferenceResource#shutdown)
    """

    def __init__(self, cleanup: Callable[[], None] | None = None) -> None:
        """`cleanup` is called once, when the last reference is gone after a shutdown; it must not come back here."""
        self._lock = threading.Lock()
        self._count = 1
        self._cleanup = cleanup
        self.available = True
        self.first_shutdown_time: int | None = None
        self.is_cleanup_over = False

    @property
    def count(self) -> int:
        """Current references, the owner's own included; negative once forced."""
        return self._count

    def hold(self) -> bool:
        """Take a reference; False once the file is on its way out (ReferenceResource#hold)."""
        with self._lock:
            if not self.available or self._count <= 0:
                return False
            self._count += 1
            return True

    def release(self) -> None:
        """Give a reference back; the last one cleans up if the file was shut down (ReferenceResource#release)."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        self._count -= 1
        # a file that is still available is in use by its owner, however often somebody released it
        if self._count > 0 or self.available or self.is_cleanup_over:
            return
        if self._cleanup is not None:
            self._cleanup()
        self.is_cleanup_over = True

    def shutdown(self, interval: int, now: int | None = None) -> bool:
        """Ask for the end: no new readers from here on. Return True when no reader holds the file.

        While readers hold it the answer is False, until `interval` ms after the first call, when it is forced.
        (ReferenceResource#shutdown)
        """
        now = monotonic_ms() if now is None else now
        with self._lock:
            if self.available:
                self.available = False
                self.first_shutdown_time = now
                self._release()
            elif self._count > 0 and self._is_overdue(interval, now):
                self._count = _FORCED - self._count
                self._release()
            return self.is_cleanup_over

    def would_end(self, interval: int, now: int | None = None) -> bool:
        """Whether `shutdown` with the same arguments would end it. Changes nothing."""
        now = monotonic_ms() if now is None else now
        with self._lock:
            if self.available:
                return self._count <= 1
            return self._count <= 0 or self._is_overdue(interval, now)

    def _is_overdue(self, interval: int, now: int) -> bool:
        return self.first_shutdown_time is not None and now - self.first_shutdown_time >= interval


# A file mapped for writing: blocks are reserved and pages populated ahead of what is written.

# A sparse file is given real blocks this far ahead of its write position, so that a full disk is an error of the
# reservation and never a SIGBUS in the middle of a mapped write.
RESERVE_AHEAD = 4 * 1024 * 1024
# the same for a file that keeps growing
_RESERVE_MORE = 16 * 1024 * 1024
# madvise(2), Linux 5.14: page tables for a whole range at once, at a fifth of the cost of a fault for each page
_POPULATE_WRITE = 23
# a piece is what `close` may have to wait for: about a millisecond
_PIECE = 4 * 1024 * 1024


class WritableMap:
    """A file mapped for writing. Positions are bytes from its start. `map` is for compiled code (see `view`)."""

    def __init__(self, path: Path, size: int, reserved: int) -> None:
        """Map `size` bytes of an existing file; the first `reserved` of them have blocks already."""
        self.path = path
        self.size = size
        self.reserved = self._allocated = self._populated = reserved
        self._is_growing = False
        self._descriptor = io.open_for_writing(path)
        try:
            self.map = io.map_for_writing(self._descriptor, path, size)
            self._populator = _Populator(self.map)
        except BaseException:
            os.close(self._descriptor)
            raise

    def reserve(self, end: int) -> None:
        """Make sure that the disk has blocks up to byte `end`; WriteFailedError if it is full, nothing written."""
        if end <= self.reserved:
            return
        chunk = _RESERVE_MORE if self._is_growing else RESERVE_AHEAD
        wanted = min(self.size, -(-end // chunk) * chunk)
        try:
            self._allocate(wanted)
        except WriteFailedError:
            # no room for the whole chunk: what is needed now may still fit
            if wanted == end:
                raise
            wanted = min(self.size, -(-end // io.PAGE_SIZE) * io.PAGE_SIZE)
            self._allocate(wanted)
        self.reserved = wanted
        # whoever writes little never comes here again, and pages written for nothing would be flushed for nothing
        if self._is_growing:
            self._look_ahead()
        self._is_growing = True

    def _allocate(self, end: int) -> None:
        if end > self._allocated:
            io.reserve(self._descriptor, self.path, self._allocated, end - self._allocated)
            self._allocated = end

    def _look_ahead(self) -> None:
        """Have the pages mapped that are reserved, and a chunk more: it will be reserved next."""
        with contextlib.suppress(WriteFailedError):  # whoever needs the room learns of it
            self._allocate(min(self.size, self.reserved + _RESERVE_MORE))
        if self._allocated > self._populated:
            self._populator.ahead(self._populated, self._allocated)
            self._populated = self._allocated

    def warm(self, flush_each: int) -> None:
        """See MappedFile.warm; all must be reserved."""
        step = flush_each or self.size
        for begin in range(0, self.size, step):
            end = min(self.size, begin + step)
            self._populator.at_once(begin, end)
            if flush_each:
                self.flush(begin, end)
        self._populated = self.size

    def view(self, begin: int, end: int) -> memoryview:
        """The bytes [begin, end) for code that writes many places at once, to be released before `close`. Only what is
        reserved may be written, and only what was announced by `will_write`."""
        return memoryview(self.map)[begin:end]

    def will_write(self, position: int, length: int) -> None:
        """Notify the observer before native code writes; it may raise."""
        io.announce(self.path, position, length)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Copy `data` to `position`; the range must be reserved. The first eight bytes are copied last, so that a
        reader of the live file sees either no frame or a whole one."""
        self.will_write(position, len(data))
        end = position + len(data)
        head_end = min(position + 8, end)
        self.map[head_end:end] = data[8:]
        self.map[position:head_end] = data[:8]

    def flush(self, begin: int, end: int) -> None:
        """Flush the pages of [begin, end), and all other dirty data of the file."""
        io.flush_data(self._descriptor, self.path, begin, end - begin)

    def close(self) -> None:
        """Unmap; does not flush."""
        self._populator.close()
        try:
            self.map.close()
        except BufferError as error:
            # what is on its way up, such as Ctrl-C, has the frames that were writing: the map goes when they go
            if error.__context__ is None:
                raise
        os.close(self._descriptor)


class _Populator:
    """Populates ranges of one map one after the other. Where the kernel cannot, each write faults for itself.

    The call of the module mmap would keep every other thread waiting meanwhile; through ctypes they go on.
    """

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped = mapped
        self._pool: ThreadPoolExecutor | None = None
        self._last: Future[int] | None = None
        self._is_over = False

    def ahead(self, begin: int, end: int) -> None:
        """Populate the bytes [begin, end), soon."""
        if self._pool is None:
            # imported here, because lookups import this module and never come so far
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "rmqctl-populate")
        with suppress(RuntimeError):  # Python is ending, or no thread can be started
            self._last = self._pool.submit(self._populate, begin - begin % mmap.PAGESIZE, end)

    def at_once(self, begin: int, end: int) -> None:
        """Populate the bytes [begin, end) of zeros now, page by page where the kernel cannot."""
        reached = self._populate(begin - begin % mmap.PAGESIZE, end)
        for position in range(reached, end, mmap.PAGESIZE):
            self._mapped[position] = 0

    def _populate(self, begin: int, end: int) -> int:
        """Populate the bytes [begin, end), and return up to where that was done."""
        import ctypes

        first = ctypes.c_char.from_buffer(self._mapped)
        try:
            madvise = _madvise()
            for position in range(begin, end, _PIECE):
                length = min(_PIECE, end - position)
                if self._is_over or madvise(ctypes.addressof(first) + position, length, _POPULATE_WRITE):
                    return position
        finally:
            del first  # while it lives the map cannot be closed
        return end

    def close(self) -> None:
        """Stop; the map may be closed then."""
        self._is_over = True
        if self._pool is not None:
            self._pool.shutdown()
        if self._last is not None:
            self._last.result()


def _madvise() -> Any:
    import ctypes

    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


class _Hold:
    """One `with file.hold()`; a generator would cost several times as much, and there is one for every message read."""

    __slots__ = ("_file", "_held")

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self._held = False

    def __enter__(self) -> bool:
        self._held = self._file._pinned()
        return self._held

    def __exit__(self, *_: object) -> None:
        if self._held:
            self._file._unpin()


class MappedFile:
    """A file holding bytes [start_offset, start_offset + size) of its queue.

    Positions are bytes from the start of the file: bytes before `wrote_position` are written, before
    `committed_position` readable, before `flushed_position` on disk. Reading is by `pread`; the file is mapped only
    while it is appended to.
    """

    def __init__(
        self,
        path: Path,
        start_offset: int,
        size: int,
        descriptors: Descriptors,
        on_missing: Callable[[], None] | None = None,
    ) -> None:
        """`on_missing` is called when the file turns out not to be there any more."""
        self.path = path
        self.start_offset = start_offset
        self.size = size
        self.wrote_position = size
        self.committed_position = size
        self.flushed_position = size
        self.store_timestamp = 0
        self.holds_entries = False
        """Whether each frame is the body of a DLedger entry."""
        self.reference = ReferenceCount(self.close)
        self._descriptors = descriptors
        self._on_missing = on_missing
        self._map: WritableMap | None = None

    @property
    def end_offset(self) -> int:
        """Offset behind the file."""
        return self.start_offset + self.size

    @property
    def descriptors(self) -> Descriptors:
        """What the file is read through."""
        return self._descriptors

    @property
    def is_full(self) -> bool:
        """Whether nothing can be appended any more."""
        return self.wrote_position >= self.size

    def hold(self) -> contextlib.AbstractContextManager[bool]:
        """Keep the file from being removed while it is read: `with file.hold() as held: ...`.

        `held` is False for a file that is on its way out or gone already; MappedFileQueue.was_removed says whether that
        is a cleaner's work. A hold delays a removal by a cleaner of this process by its interval at most
        (ReferenceResource#hold); a file removed by another process can be read until the hold ends.
        """
        return _Hold(self)

    def _pinned(self) -> bool:
        """Take what a hold keeps, if it can be had."""
        held = self.reference.hold()
        if held and not self._descriptors.pin(self.path):
            self.reference.release()
            held = False
            self._tell_missing()
        return held

    def _unpin(self) -> None:
        self._descriptors.unpin(self.path)
        self.reference.release()

    def _tell_missing(self) -> None:
        if self._on_missing is not None:
            self._on_missing()

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` readable bytes from `position`. RemovedError once the file is gone, which a `hold` prevents
        unless a cleaner of this process has waited for the whole of its interval."""
        if self.reference.is_cleanup_over:
            raise removed_error(self.path)
        length = min(length, self.committed_position - position)
        if length <= 0:
            return b""
        try:
            return self._descriptors.read(self.path, position, length)
        except RemovedError:
            self._tell_missing()
            raise

    def read_once(self, position: int, length: int) -> bytes:
        """The same with a hold for this one read, which takes less than `hold`; RemovedError also for a file that is on
        its way out."""
        if not self.reference.hold():
            raise removed_error(self.path)
        try:
            return self.read(position, length)
        finally:
            self.reference.release()

    def set_positions(self, position: int) -> None:
        """Set all positions, as recovery does."""
        self.wrote_position = self.committed_position = self.flushed_position = position

    def reserve(self, length: int) -> None:
        """Make sure that `length` bytes can be appended; WriteFailedError if the disk is full."""
        if self._map is None:
            # what was written before us may lie in holes (zeros), so nothing ahead of a page counts as reserved
            reserved = self.wrote_position - self.wrote_position % io.PAGE_SIZE
            self._map = WritableMap(self.path, self.size, reserved)
        self._map.reserve(self.wrote_position + length)

    def warm(self, flush_each: int) -> None:
        """Map all of an empty file with its pages in memory, so that no put waits for a page
        (DefaultMappedFile#warmMappedFile). `flush_each`: bytes after which the disk is waited for; 0 for never.

        WriteFailedError if the disk is full.
        """
        self.reserve(self.size)
        self.writable_map.warm(flush_each)

    @property
    def writable_map(self) -> WritableMap:
        """Return the map of a file with reserved blocks. Who writes there calls `publish` then."""
        assert self._map is not None, "the file is not being appended to"
        return self._map

    def publish(self, end: int, store_timestamp: int) -> None:
        """What was written up to position `end` is readable from now on."""
        self.wrote_position = self.committed_position = end
        self.store_timestamp = store_timestamp

    def append(self, data: bytes | bytearray | memoryview, store_timestamp: int) -> None:
        """Append `data`, which must fit and be reserved."""
        assert self._map is not None, "append before reserve"
        self._map.write(self.wrote_position, data)
        self.publish(self.wrote_position + len(data), store_timestamp)

    def defer(self, length: int) -> None:
        """Count `length` reserved bytes as written although they are still on their way: not readable yet."""
        self.wrote_position += length

    def commit(self, data: bytes | bytearray | memoryview, length: int, store_timestamp: int = 0) -> None:
        """Write `data` for the next `length` deferred bytes, which are readable from now on. What `data` leaves of them
        stays as it is. A timestamp of 0 is ignored."""
        assert self._map is not None, "commit before reserve"
        self._map.write(self.committed_position, data)
        self.committed_position += length
        self.store_timestamp = store_timestamp or self.store_timestamp

    def may_commit(self, least_pages: int) -> bool:
        """Return whether a commit asked for with `least_pages` does something (DefaultMappedFile#isAbleToCommit)."""
        if self.is_full or least_pages <= 0:
            return self.wrote_position > self.committed_position
        return self.wrote_position // io.PAGE_SIZE - self.committed_position // io.PAGE_SIZE >= least_pages

    def dirty_pages(self) -> int:
        """Whole pages between the flushed and the committed position."""
        return self.committed_position // io.PAGE_SIZE - self.flushed_position // io.PAGE_SIZE

    def may_flush(self, least_pages: int) -> bool:
        """Whether a flush asked for with `least_pages` does something (DefaultMappedFile#isAbleToFlush)."""
        if self.committed_position <= self.flushed_position:
            return False
        if self.committed_position >= self.size or least_pages <= 0:
            return True
        return self.dirty_pages() >= least_pages

    def flush(self) -> int:
        """Bring what is committed to disk, if `may_flush`; returns the flushed position."""
        position = self.committed_position
        self.writable_map.flush(self.flushed_position, position)
        self.flushed_position = position
        return position

    def close(self) -> None:
        """Unmap and forget the descriptor."""
        if self._map is not None:
            self._map.close()
            self._map = None
        self._descriptors.forget(self.path)

    def destroy(self, interval: int, now: int | None = None) -> bool:
        """Remove the file unless a reader holds it; True when it is gone (MappedFile#destroy).

        Held, it only becomes unavailable; a later call removes it, once released or `interval` ms after the first.
        `now`: ms of the monotonic clock. WriteFailedError where the removal itself fails (RocketMQ ignores that).
        """
        if not self.reference.shutdown(interval, now):
            return False
        self._descriptors.forget(self.path)
        io.remove(self.path)
        return True
