"""What shows that somebody used a store: sizes, times and last bytes of the files that every writer touches."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from rmqctl.formats.errors import RmqctlError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_directory, is_file, is_same_time, status_of
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.files.zeros import end_of_nonzero

_TAIL = 1 << 16
# where a mark has the file's time
_TIME = 1

Marks = dict[str, list[int]]
"""Path (as in journal.json) to [size, mtime in ns, position behind the last byte that is not zero, CRC-32 of the 64 KiB
before it]. The bytes are there because a map that is written to need not change a file's time (tmpfs)."""


def marks_of(layout: StoreLayout) -> Marks:
    """The files that change whenever messages are added or a broker runs: the commitlog's, checkpoint and abort."""
    with Descriptors() as descriptors:
        found = ((path, _mark(path, descriptors)) for path in _marked(layout))
        return {name_of(path, layout): mark for path, mark in found if mark is not None}


def marks_with_lock(layout: StoreLayout) -> Marks:
    """The same with `lock`, into which a broker writes whenever it starts (DefaultMessageStore#start). A writer of ours
    only makes it where there is none, so under the lock it stays as it is until a broker runs."""
    with Descriptors() as descriptors:
        mark = _mark(layout.lock, descriptors)
    return marks_of(layout) | ({} if mark is None else {name_of(layout.lock, layout): mark})


def flush_marked(layout: StoreLayout) -> None:
    """Bring what the marks say to disk: after a power cut a file that nobody touched must not look like another."""
    directories = [directory for directory in (layout.root, *layout.commitlog) if is_directory(directory)]
    for path in (*_marked(layout), layout.lock):
        if is_file(path):
            io.flush_file(path)
    for directory in directories:
        io.flush_directory(directory)


def name_of(path: Path, layout: StoreLayout) -> str:
    """A marked file's name: relative to the store if it is in there."""
    return path.relative_to(layout.root).as_posix() if path.is_relative_to(layout.root) else os.path.abspath(path)


def agree(now: list[int], before: list[int]) -> bool:
    """Return whether two marks of one file agree in everything that both of them have."""
    if not is_same_time(now[_TIME], before[_TIME]):
        return False
    return all(one == other for at, (one, other) in enumerate(zip(now, before, strict=False)) if at != _TIME)


def _marked(layout: StoreLayout) -> list[Path]:
    directories = [directory for directory in layout.commitlog if is_directory(directory)]
    paths = [path for directory in directories for path in directory.iterdir()]
    return sorted([*paths, layout.checkpoint, layout.abort])


def _mark(path: Path, descriptors: Descriptors) -> list[int] | None:
    status = status_of(path)
    if status is None:
        return None
    mark = [status.st_size, status.st_mtime_ns]
    if not stat.S_ISREG(status.st_mode):
        return mark
    try:
        end = end_of_nonzero(descriptors, path, 0, status.st_size)
        begin = max(0, end - _TAIL)
        return [*mark, end, zlib.crc32(descriptors.read(path, begin, end - begin))]
    except RmqctlError:  # it cannot be read: size and time are all there is
        return mark
