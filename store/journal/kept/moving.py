"""Moves files and directories, across file systems too, so that a kill leaves all of it in one of the two places."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.files import io
from rmqctl.store.files.presence import is_there
from rmqctl.store.files.sparse_copy import Sharing, copy_sparsely
from rmqctl.store.files.trees import flush_tree, remove_any

_MOVING, _GONE = ".rmqctl-moving", ".rmqctl-gone"


def move(source: Path, target: Path) -> None:
    """Move a file or directory, across file systems too; the target must not exist. Folders that are made for it are
    on disk before it leaves its place."""
    io.make_directories(target.parent, flushed=True)
    if io.rename_within(source, target):
        return
    temporary = coming(target)
    # with its holes: most of the last commitlog file is one, and neither disk has room for it
    io.copy_file(source, temporary, lambda one, other: copy_sparsely(one, other, one.stat().st_size, Sharing.AUTO))
    flush_tree(temporary)
    io.rename(temporary, target)
    io.flush_directory(target.parent)
    discard(source)
    io.flush_directory(source.parent)


def coming(path: Path) -> Path:
    """Where the copy of a file or directory is made that is on its way to `path` from another file system."""
    return _beside(path, _MOVING)


def discard(path: Path) -> None:
    """Remove a file or directory, under another name first, which is on disk before anything in it goes: half of a
    directory must not look like all of it."""
    gone = _beside(path, _GONE)
    io.rename(path, gone)
    io.flush_directory(path.parent)
    remove_any(gone)


def is_leftover(path: Path) -> bool:
    """Whether a move that was killed left it: see `clear_interrupted`."""
    return path.name.startswith(".") and path.name.endswith((_MOVING, _GONE))


def clear_interrupted(path: Path) -> None:
    """Remove what a move to or from `path` left beside it when the process was killed."""
    for name in (coming(path), _beside(path, _GONE)):
        if is_there(name):
            remove_any(name)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}{suffix}")
