"""A disk that fails: one call of a chosen kind ends with EIO, and every other one does its work."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KINDS: dict[str, tuple[str, ...]] = {
    "look": ("stat", "lstat", "listdir", "scandir"),
    "open": ("open",),
    "read": ("pread", "preadv"),
    "write": ("pwrite", "truncate", "ftruncate"),
    "fsync": ("fsync", "fdatasync"),
    "rename": ("rename", "replace", "link"),
    "remove": ("unlink", "rmdir"),
}


class Failing:
    """Counts the calls of a kind that are about files below `top`; that of the number `at`, from 1, fails."""

    def __init__(self, top: Path, at: int) -> None:
        self._top = os.path.realpath(top)
        self._at = at
        self._lock = threading.Lock()
        self.count = 0

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What stands in the place of `function`."""
        if self._is_below(arguments[0], options.get("dir_fd")):
            with self._lock:
                self.count += 1
                fails = self.count == self._at
            if fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return function(*arguments, **options)

    def _is_below(self, what: Any, directory: int | None) -> bool:
        if directory is not None:
            what = directory
        path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.path.abspath(what)
        return path.startswith(self._top)


@contextmanager
def failing(top: Path, kind: str, at: int = 0) -> Iterator[Failing]:
    """Below `top` the call of `kind` with the number `at` fails; none does for 0."""
    disk = Failing(top, at)
    real = {name: getattr(os, name) for name in KINDS[kind]}

    def instead(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: disk.call(function, *arguments, **options)

    for name, function in real.items():
        setattr(os, name, instead(function))
    try:
        yield disk
    finally:
        for name, function in real.items():
            setattr(os, name, function)
