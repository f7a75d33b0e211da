"""A model of what a power cut may take: names in directories that no fsync has brought to disk, and bytes of files.

It follows every change that goes through store/files/io.py, and the fsyncs that returned. A file that is created,
renamed or removed is not safe before its directory was flushed afterwards; what is written not before the file was.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqctl.store.files import io

_MAKES = ("create", "rename to", "link", "clone", "copy")
_REMOVES = ("rename", "move", "remove", "rmdir", "rmtree")
_WRITES = ("write", "truncate")


class Disk:
    """What below `top` is not on disk. `on_change` is told of every change before it is made: (operation, path)."""

    def __init__(self, top: Path, on_change: Callable[[str, str], None] | None = None) -> None:
        self._top = os.path.realpath(top)
        self._on_change = on_change
        self._lock = threading.Lock()
        # path -> (whether it was there when last safe, whether it is to be there, number of the change)
        self._names: dict[str, tuple[bool, bool, int]] = {}
        self._written: dict[str, int] = {}
        self._moving: dict[int, str] = {}
        self._changes = 0
        self.directory_flushes = 0

    def observe(self, operation: str, path: str, _offset: int = 0, length: int = 0) -> None:
        """For io.observer: called before every change."""
        if self._on_change is not None:
            self._on_change(operation, path)
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if operation in _REMOVES:
            self._moving[threading.get_ident()] = path
        if not path.startswith(self._top + os.sep):
            return
        with self._lock:
            self._changes += 1
            if operation == "mkdir":
                above = path
                while not os.path.isdir(above):
                    self._note(above, True)
                    above = os.path.dirname(above)
            elif operation in _REMOVES:
                self._note(path, False)
                if operation == "rmtree":
                    self._forget_below(path)
            elif operation in _MAKES or (operation == "open" and not os.path.lexists(path)):
                self._note(path, True)
                if operation == "rename to":
                    self._rename(self._moving[threading.get_ident()], path)
            if operation in _WRITES or (operation == "create" and length):
                self._written[path] = self._changes

    def _note(self, path: str, is_there: bool) -> None:
        was_there = self._names[path][0] if path in self._names else os.path.lexists(path)
        self._names[path] = was_there, is_there, self._changes
        if not is_there:
            self._written.pop(path, None)

    def _forget_below(self, top: str) -> None:
        for path in _below(top, self._names):
            del self._names[path]
        for path in _below(top, self._written):
            del self._written[path]

    def _rename(self, source: str, target: str) -> None:
        for path in _below(source, self._names):
            self._names[target + path[len(source) :]] = self._names.pop(path)
        for path in _below(source, self._written):
            self._written[target + path[len(source) :]] = self._written.pop(path)

    def fsync(self, descriptor: int, how: Callable[[int], None]) -> None:
        """An fsync that may take long: it covers what was done before it began, and counts once it has returned."""
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        with self._lock:
            done = {name for name, (_, is_there, _) in self._names.items() if os.path.lexists(name) == is_there}
            begun = self._changes
        how(descriptor)
        with self._lock:
            if os.path.isdir(path):
                self.directory_flushes += 1
            for name in done:
                if os.path.dirname(name) == path and name in self._names and self._names[name][2] <= begun:
                    del self._names[name]
            if self._written.get(path, begun + 1) <= begun:
                del self._written[path]

    def name_of(self, path: Path) -> str:
        """How the lists below call `path`."""
        return os.path.relpath(os.path.join(os.path.realpath(path.parent), path.name), self._top)

    def unsafe_names(self) -> list[str]:
        """Names that a power cut may take or bring back, relative to the top."""
        with self._lock:
            return sorted(
                os.path.relpath(path, self._top)
                for path, (was_there, is_there, _) in self._names.items()
                # what failed changed nothing; nor did what came and went
                if os.path.lexists(path) == is_there and (was_there or is_there)
                if os.path.isdir(os.path.dirname(path))
            )

    def unsafe_bytes(self) -> list[str]:
        """Files with bytes that a power cut may take, relative to the top. Those of `lock` mean nothing."""
        with self._lock:
            files = [path for path in self._written if os.path.isfile(path) and os.path.basename(path) != "lock"]
        return sorted(os.path.relpath(path, self._top) for path in files)


def _below(top: str, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path.startswith(top + os.sep)]


@contextmanager
def hooked(observe: io.Observer, fsync: Callable[[int, Callable[[int], None]], None]) -> Iterator[None]:
    """While the block runs, tell `observe` of every change before it is made; `fsync` gets every descriptor that is to
    be flushed, and what does it."""
    really, of_data = os.fsync, os.fdatasync
    vars(os)["fsync"] = lambda descriptor: fsync(descriptor, really)
    vars(os)["fdatasync"] = lambda descriptor: fsync(descriptor, of_data)
    io.observer = observe
    try:
        yield
    finally:
        io.observer = None
        vars(os).update(fsync=really, fdatasync=of_data)


@contextmanager
def recorded_disk(top: Path, on_change: Callable[[str, str], None] | None = None) -> Iterator[Disk]:
    """The model of everything below `top` while the block runs."""
    disk = Disk(top, on_change)
    with hooked(disk.observe, disk.fsync):
        yield disk
