"""Find deleted files of a store that processes still hold open or mapped, so that their space is not free."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_directory

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
    found: list[HeldFile] = []
    for name in os.listdir("/proc") if is_directory("/proc") else ():
        if name.isdigit():
            found += _held_by(name, roots)
    return sorted(found)


def _held_by(process: str, roots: tuple[str, ...]) -> list[HeldFile]:
    held: dict[str, int] = {}
    try:
        for line in Path(f"/proc/{process}/maps").read_bytes().split(b"\n"):
            place = line.find(b"/")
            target = os.fsdecode(line[place:]) if place >= 0 and line.endswith(_DELETED.encode()) else ""
            if target.startswith(roots):
                begin, _, end = line.split(b" ", 1)[0].partition(b"-")
                held[target] = held.get(target, 0) + int(end, 16) - int(begin, 16)
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            path = f"/proc/{process}/fd/{descriptor}"
            target = os.readlink(path)
            if target.endswith(_DELETED) and target.startswith(roots):
                held[target] = os.stat(path).st_blocks * 512
    except OSError:  # the process is gone or another user's; what was found of it counts
        pass
    return [HeldFile(int(process), target.removesuffix(_DELETED), size) for target, size in held.items()]
