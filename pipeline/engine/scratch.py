"""Folders for what a job has not finished: workers put their attempts there, the driver takes what counts.

A worker that was given up may write a moment longer. It never makes a folder's parents, so once the folder is gone
nothing of it can come back.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.presence import is_directory

# how often, and after how many seconds each, a folder that somebody still writes to is removed
_TRIES, _BETWEEN = 50, 0.1


def attempt(folder: Path, name: str) -> Path:
    """A path below `folder` that no other attempt at the same work has, on this machine or another."""
    return folder / f"{name}.{uuid.uuid4().hex}"


def remove_for_good(folder: Path) -> None:
    """Remove a folder into which somebody who was given up may still be writing. Nothing if it is not there."""
    if not is_directory(folder):
        return
    going = folder.with_name(f".{folder.name}.rmqctl-{os.getpid()}-going")
    # under a new name first: what a path still says does not lead there any more
    io.rename(folder, going)
    for _ in range(_TRIES):
        try:
            io.remove_tree(going)
            return
        except WriteFailedError:
            time.sleep(_BETWEEN)
    io.remove_tree(going)


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """`folder`, made anew for the time being."""
    remove_for_good(folder)
    io.make_directories(folder)
    try:
        yield folder
    finally:
        remove_for_good(folder)
