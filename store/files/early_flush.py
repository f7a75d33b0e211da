"""Brings a long new file to disk while it is still being written, so that its last flush finds little to do."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rmqctl.store.files import io

_STEP = 32 * 1024 * 1024


class EarlyFlush:
    """Flushes a file in a thread each time that much was written to it. WriteFailedError of a flush is raised by
    whichever call comes next: it is fatal for the file."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self._unflushed = 0

    def wrote(self, length: int) -> None:
        """So many bytes were written."""
        self._unflushed += length
        if self._unflushed < _STEP or (self._running is not None and not self._running.done()):
            return
        if self._running is not None:
            self._running.result()
        self._pool = self._pool or ThreadPoolExecutor(1, "flush")
        self._running = self._pool.submit(io.flush_descriptor, self._descriptor, self._path)
        self._unflushed = 0

    def close(self) -> None:
        """Wait for the running flush; the descriptor may be closed then."""
        if self._pool is not None:
            self._pool.shutdown()

    def finish(self) -> None:
        """The same, and raise its error if it failed."""
        self.close()
        if self._running is not None:
            self._running.result()
