"""A disk that fails: a call of a chosen kind ends with an error, once or for good, every other one does its work."""

from __future__ import annotations

import errno
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KINDS: dict[str, tuple[str, ...]] = {
    "look": ("os.stat", "os.lstat", "os.listdir", "os.scandir"),
    "open": ("os.open",),
    "read": ("os.pread", "os.preadv"),
    "write": ("os.pwrite", "os.truncate", "os.ftruncate"),
    "fsync": ("os.fsync", "os.fdatasync"),
    "rename": ("os.rename", "os.replace", "os.link"),
    "remove": ("os.unlink", "os.rmdir"),
}

SINGLE_KINDS: dict[str, tuple[str, ...]] = {
    "look": (*KINDS["look"], "os.fstat"),
    "open": ("os.open", "io.open", "builtins.open"),
    "read": (*KINDS["read"], "os.read"),
    "write": ("os.pwrite", "os.write"),
    "truncate": ("os.truncate", "os.ftruncate"),
    "fsync": KINDS["fsync"],
    "rename": KINDS["rename"],
    "remove": ("os.unlink", "os.remove", "os.rmdir"),
    "make": ("os.mkdir",),
    "map": ("mmap.mmap",),
    "reserve": ("os.posix_fallocate",),
}
"""Every kind of call by itself, with what Python calls for it below pathlib and shutil."""

SHORT = 0
"""In the place of an error's number: a write writes half of what it was given, and says so."""


class Failing:
    """Counts the calls of a kind that are about files below `top`; that of the number `at`, from 1, fails, and with
    `lasting` all after it."""

    def __init__(self, top: Path, at: int, error: int = errno.EIO, *, lasting: bool = False) -> None:
        self._top = os.path.realpath(top)
        self._at = at
        self._error = error
        self._lasting = lasting
        self._lock = threading.Lock()
        self.count = 0

    @property
    def is_reached(self) -> bool:
        """Whether any call failed."""
        return 0 < self._at <= self.count

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What stands in the place of `function`."""
        if self._is_below(arguments[0], options.get("dir_fd")):
            with self._lock:
                self.count += 1
                fails = 0 < self._at <= self.count if self._lasting else self.count == self._at
            if fails and self._error == SHORT:
                descriptor, data, *rest = arguments
                return function(descriptor, memoryview(data)[: max(1, len(data) // 2)], *rest)
            if fails:
                # as the system's own: with the file where it was called by name
                named = [] if isinstance(arguments[0], int) else [os.fspath(arguments[0])]
                raise OSError(self._error, os.strerror(self._error), *named)
        return function(*arguments, **options)

    def _is_below(self, what: Any, directory: int | None) -> bool:
        if directory is not None:
            what = directory
        if isinstance(what, int):
            path = os.readlink(f"/proc/self/fd/{what}") if what >= 0 else ""
        else:
            path = os.path.abspath(os.fsdecode(what))
        return path.startswith(self._top)


@contextmanager
def failing(
    top: Path, kind: str, at: int = 0, *, error: int = errno.EIO, lasting: bool = False, single: bool = False
) -> Iterator[Failing]:
    """Below `top` the call of `kind` with the number `at` fails, with `lasting` every later one too; none does for 0.
    `kind`: one of KINDS, with `single` of SINGLE_KINDS. `error`: what errno says then, or SHORT."""
    disk = Failing(top, at, error, lasting=lasting)
    places = [name.rpartition(".") for name in (SINGLE_KINDS if single else KINDS)[kind]]
    real = [(importlib.import_module(module), name) for module, _, name in places]
    functions = [getattr(module, name) for module, name in real]

    def instead(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: disk.call(function, *arguments, **options)

    for (module, name), function in zip(real, functions, strict=True):
        setattr(module, name, instead(function))
    try:
        yield disk
    finally:
        for (module, name), function in zip(real, functions, strict=True):
            setattr(module, name, function)
