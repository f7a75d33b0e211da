"""Maps the pages of a file that is about to be written to, in a thread of its own and ahead of the writer."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# madvise(2), Linux 5.14: page tables for a whole range at once, at a fifth of the cost of a fault for each page
_POPULATE_WRITE = 23
# a piece is what `close` may have to wait for: about a millisecond
_PIECE = 4 * 1024 * 1024


class Populator:
    """Populates ranges of one map one after the other. Where the kernel cannot, each write faults for itself.

    The call of the module mmap would keep every other thread waiting meanwhile; through ctypes they go on.
    """

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped = mapped
        self._pool: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._is_over = False

    def ahead(self, begin: int, end: int) -> None:
        """Populate the bytes [begin, end), soon."""
        if self._pool is None:
            # imported here, because lookups import this module and never come so far
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "rmqctl-populate")
        with suppress(RuntimeError):  # Python is ending
            self._last = self._pool.submit(self._populate, begin - begin % mmap.PAGESIZE, end)

    def _populate(self, begin: int, end: int) -> None:
        import ctypes

        first = ctypes.c_char.from_buffer(self._mapped)
        try:
            madvise = _madvise()
            for position in range(begin, end, _PIECE):
                length = min(_PIECE, end - position)
                if self._is_over or madvise(ctypes.addressof(first) + position, length, _POPULATE_WRITE):
                    return
        finally:
            del first  # while it lives the map cannot be closed

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
