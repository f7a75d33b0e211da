"""Files and directories with everything in them: onto the disk, to another owner, away."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.files import io
from rmqctl.store.files.ownership import Ownership


def flush_tree(path: Path) -> None:
    """fsync a file, or a directory with everything in it."""
    if path.is_symlink():
        return
    if not path.is_dir():
        io.flush_file(path)
        return
    for child in path.iterdir():
        flush_tree(child)
    io.flush_directory(path)


def give_tree(path: Path, owner: Ownership) -> None:
    """Give a file, or a directory with everything in it, its permissions; owner and group too, if this user is root."""
    for one in (path, *path.rglob("*")):
        if not one.is_symlink():
            io.give_to(one, owner)


def remove_any(path: Path) -> None:
    """Remove a file, a link, or a directory with everything in it."""
    if path.is_dir() and not path.is_symlink():
        io.remove_tree(path)
    else:
        io.remove(path)
