"""Find the files of a store that processes hold open or mapped. The space of one that is deleted is not free."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import mapped_files, opened_files, processes

_DELETED = " (deleted)"


class HeldFile(NamedTuple):
    """A deleted file that a process holds. `bytes`: what it takes on the disk, or its mapped size where it is only
    mapped."""

    process: int
    file: str
    bytes: int


class FileInUse(NamedTuple):
    """A file of the store that a process has open or `mapped`. `command`: the name of the process; `bytes`: on disk."""

    process: int
    command: str
    file: str
    bytes: int
    mapped: bool


def held_files(layout: StoreLayout) -> list[HeldFile]:
    """Return the deleted files of the store's folders that processes hold, as far as this user may look into /proc."""
    roots = _roots(layout)
    return sorted(one for process in processes() for one in _held_by(process, roots))


def files_in_use(layout: StoreLayout) -> list[FileInUse]:
    """Return the files of the store's folders that other processes hold, as far as this user may look into /proc."""
    roots, own = _roots(layout), str(os.getpid())
    return sorted(one for process in processes() if process != own for one in _used_by(process, roots))


def _roots(layout: StoreLayout) -> tuple[str, ...]:
    folders = (layout.root, *layout.commitlog, layout.consumequeue, layout.index)
    return tuple({os.path.realpath(folder) + os.sep for folder in folders})


def _held_by(process: str, roots: tuple[str, ...]) -> list[HeldFile]:
    held: dict[str, int] = {}
    # the process may be gone or another user's, or close a file meanwhile; what was found of it counts
    with contextlib.suppress(OSError):
        for line, target in mapped_files(process, roots):
            if target.endswith(_DELETED):
                begin, _, end = line.split(" ", 1)[0].partition("-")
                held[target] = held.get(target, 0) + int(end, 16) - int(begin, 16)
        for opened, target in opened_files(process, roots):
            if target.endswith(_DELETED):
                held[target] = os.stat(opened).st_blocks * 512
    return [HeldFile(int(process), target.removesuffix(_DELETED), size) for target, size in held.items()]


def _used_by(process: str, roots: tuple[str, ...]) -> list[FileInUse]:
    used: dict[str, bool] = {}
    # as above
    with contextlib.suppress(OSError):
        used |= {target: True for _, target in mapped_files(process, roots)}
        for _, target in opened_files(process, roots):
            used.setdefault(target, False)
    found: list[FileInUse] = []
    for target, is_mapped in used.items():
        with contextlib.suppress(OSError):  # deleted, or removed meanwhile
            found.append(FileInUse(int(process), _command(process), target, os.stat(target).st_blocks * 512, is_mapped))
    return found


def _command(process: str) -> str:
    """Return the name of a process; "" where it is gone."""
    try:
        with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as name:
            return name.read().rstrip("\n")
    except OSError:
        return ""
