"""A file mapped for writing: blocks are reserved and pages populated ahead of what is written."""

from __future__ import annotations

import contextlib
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

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
        """Let the observer know, and fail, of a write that somebody else carries out."""
        io.announce(self.path, position, length)

    def write_frame(self, position: int, first: bytes, rest: bytes) -> None:
        """Write a frame of two pieces, of which the `first` has 8 bytes and is written last. See `write`."""
        if io.observer is not None:
            io.announce(self.path, position, 8 + len(rest))
        begin = position + 8
        self.map[begin : begin + len(rest)] = rest
        self.map[position:begin] = first

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Copy `data` to `position`; the range must be reserved. The first eight bytes are copied last, so that a
        reader of the live file sees either no frame or a whole one."""
        self.will_write(position, len(data))
        end = position + len(data)
        head_end = min(position + 8, end)
        self.map[head_end:end] = data[8:]
        self.map[position:head_end] = data[:8]

    def flush(self, begin: int, end: int) -> None:
        """Bring the pages of [begin, end) to disk, and whatever else of the file is dirty."""
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
