"""Bringing consume queues to disk: which of their files were written to, and when they are flushed."""

from __future__ import annotations

import threading
from pathlib import Path

from formats.errors import WriteFailedError
from store.files import io

# FlushConsumeQueueService: files with fewer than two dirty pages wait for the thorough round ...
_LEAST_UNITS = 2 * io.PAGE_SIZE // 20
# ... unless there are so few of them that flushing costs nothing
_FEW_FILES = 64


class QueueFlusher:
    """Remembers the files that units were written to, and fsyncs them by name: the follower is never held up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dirty: dict[Path, int] = {}
        self._known_directories: set[Path] = set()

    def wrote(self, path: Path, units: int = 1) -> None:
        """Units were written to `path`."""
        with self._lock:
            self._dirty[path] = self._dirty.get(path, 0) + units

    def flush(self, is_thorough: bool) -> bool:
        """fsync the dirty files; without `is_thorough` only those worth it. Whether nothing of what was written before
        the call is left unflushed."""
        with self._lock:
            taken = self._dirty
            if not is_thorough and len(taken) > _FEW_FILES:
                taken = {path: units for path, units in taken.items() if units >= _LEAST_UNITS}
            self._dirty = {path: units for path, units in self._dirty.items() if path not in taken}
            is_all = not self._dirty
        for path in taken:
            try:
                self._flush_directories(path.parent)
                io.flush_file(path)
            except WriteFailedError:
                if path.exists():  # else the cleaner was faster
                    raise
        return is_all

    def _flush_directories(self, directory: Path) -> None:
        """A new queue is on disk only when the directories that lead to it are."""
        if directory not in self._known_directories:
            self._known_directories.add(directory)
            for path in (directory, directory.parent, directory.parent.parent):
                io.flush_directory(path)
