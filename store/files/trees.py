"""Files and directories with everything in them: onto the disk, to another owner, away."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rmqctl.store.files import io
from rmqctl.store.files.ownership import Ownership
from rmqctl.store.files.presence import is_directory, is_link, is_real_directory, no_answer
from rmqctl.store.files.reading import file_elsewhere


def flush_tree(path: Path) -> None:
    """fsync a file, or a directory with everything in it."""
    if is_link(path):
        return
    if not is_directory(path):
        io.flush_file(path)
        return
    for child in path.iterdir():
        flush_tree(child)
    io.flush_directory(path)


def give_tree(path: Path, owner: Ownership) -> None:
    """Give a file, or a directory with everything in it, none of which is a link, its permissions; owner and group too,
    if this user is root."""
    for one in (path, *path.rglob("*")):
        io.give_to(one, owner)


def on_disk_bytes(status: os.stat_result, path: Path | None = None) -> int:
    """What a file takes on its disk, without its holes: all of its size where it lies on a server."""
    is_elsewhere = path is not None and file_elsewhere(path) is not None
    return status.st_size if is_elsewhere else status.st_blocks * 512


def tree_on_disk_bytes(path: Path) -> int:
    """The same of all files below a folder, or of a file. What folders take is left out: each file system differs.
    FileNotFoundError where something goes meanwhile; UnreadableError."""
    every = path.rglob("*") if is_real_directory(path) else [path]
    try:
        return sum(on_disk_bytes(found) for found in (one.lstat() for one in every) if not stat.S_ISDIR(found.st_mode))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise no_answer(error, error.filename or path) from error


def remove_any(path: Path) -> None:
    """Remove a file, a link, or a directory with everything in it."""
    if is_real_directory(path):
        io.remove_tree(path)
    else:
        io.remove(path)
