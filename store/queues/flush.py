"""Bringing consume queues to disk: which of their files were written to, and when they are flushed."""

from __future__ import annotations

import threading
from pathlib import Path

from rmqctl.formats.errors import ExhaustedError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.presence import exists

# FlushConsumeQueueService: files with fewer than two dirty pages wait for the thorough round ...
_LEAST_UNITS = 2 * io.PAGE_SIZE // 20
# ... unless there are so few of them that flushing costs nothing
_FEW_FILES = 64


class QueueFlusher:
    """Remembers the files that units were written to, and fsyncs them by name: the follower is never held up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dirty: dict[Path, int] = {}
        # files, queues, topics and their root, of which the entry in the directory above is on disk
        self._known: set[Path] = set()

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
        left = dict(taken)
        for path in taken:
            try:
                self._flush_entries(path)
                io.flush_file(path)
                del left[path]
            except ExhaustedError:
                # what could not be opened is dirty as before
                with self._lock:
                    for one, units in left.items():
                        self._dirty[one] = self._dirty.get(one, 0) + units
                raise
            except WriteFailedError:
                if exists(path):  # else the cleaner was faster
                    raise
        return is_all

    def _flush_entries(self, file: Path) -> None:
        """A new file is on disk only when the directories that lead to it are: once for each file."""
        for path in (file, *file.parents[:3]):
            if path in self._known:
                return
            io.flush_directory(path.parent)
            self._known.add(path)
