"""One file of a queue of files of equal size, with the positions RocketMQ keeps for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from rmqctl.formats.errors import RemovedError
from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors, removed_error
from rmqctl.store.files.reference import ReferenceCount
from rmqctl.store.files.writable_map import WritableMap


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

    Positions are bytes from the start of the file: what lies before `wrote_position` is written, before
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
        (ReferenceResource#hold); whatever another process removes can be read until the hold ends.
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
        """The map of a file that room was reserved in. Who writes there calls `publish` then."""
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
        """Write `data` for the next `length` deferred bytes, which are readable from now on. What `data` leaves of
        them stays as it is. A timestamp of 0 is none."""
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
