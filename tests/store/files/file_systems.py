"""File systems that are not here: one that keeps coarse times, and one where an open file cannot be removed (NFS)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def coarse_times(patch: pytest.MonkeyPatch, unit_ns: int) -> None:
    """Have this process see every file time as a multiple of `unit_ns`, rounded down."""

    def rounding(look: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def rounded(*arguments: Any, **options: Any) -> os.stat_result:
            status = look(*arguments, **options)
            parts: Any = status.__reduce__()[1]  # the values of a structseq, and those that only have names
            values, fields = parts[0], dict(parts[1])
            for name in ("atime", "mtime", "ctime"):
                time_ns = fields[f"st_{name}_ns"] // unit_ns * unit_ns
                fields |= {f"st_{name}_ns": time_ns, f"st_{name}": time_ns / 1e9}
            return os.stat_result(values, fields)

        return rounded

    for name in ("stat", "lstat", "fstat"):
        patch.setattr(os, name, rounding(getattr(os, name)))


def open_files_stay(patch: pytest.MonkeyPatch) -> None:
    """Have a file that this process removes while it is open get a name `.nfs…` instead, as an NFS client does, until
    it is closed: its folder cannot be removed before."""
    stay: list[str] = []
    numbers = itertools.count(1)
    unlink, rmdir = os.unlink, os.rmdir

    def is_open(path: str) -> bool:
        found = os.stat(path, follow_symlinks=False)
        for number in os.listdir("/proc/self/fd"):
            try:
                status = os.stat(f"/proc/self/fd/{number}")
            except OSError:
                continue
            if (status.st_dev, status.st_ino) == (found.st_dev, found.st_ino):
                return True
        return f" {path}\n" in Path("/proc/self/maps").read_text()

    def let_go() -> None:
        for path in [path for path in stay if os.path.exists(path) and not is_open(path)]:
            unlink(path)

    def whole(path: Any, dir_fd: int | None) -> str:
        folder = "" if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        return os.path.join(folder, os.fspath(path))

    def removing(path: Any, *, dir_fd: int | None = None) -> None:
        place = whole(path, dir_fd)
        if os.path.islink(place) or not os.path.exists(place) or not is_open(place):
            unlink(path, dir_fd=dir_fd)
            return
        hidden = os.path.join(os.path.dirname(place), f".nfs{next(numbers):016x}")
        os.rename(place, hidden)
        stay.append(hidden)

    def removing_directory(path: Any, *, dir_fd: int | None = None) -> None:
        let_go()
        rmdir(path, dir_fd=dir_fd)

    patch.setattr(os, "unlink", removing)
    patch.setattr(os, "remove", removing)
    patch.setattr(os, "rmdir", removing_directory)
