"""Find deleted files of a store that processes still hold open or mapped, so that their space is not free."""

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


def held_files(layout: StoreLayout) -> list[HeldFile]:
    """Return the deleted files of the store's folders that processes hold, as far as this user may look into /proc."""
    folders = (layout.root, *layout.commitlog, layout.consumequeue, layout.index)
    roots = tuple({os.path.realpath(folder) + os.sep for folder in folders})
    return sorted(one for process in processes() for one in _held_by(process, roots))


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
