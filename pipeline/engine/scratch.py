"""Folders for what a job has not finished: workers put their attempts there, the driver takes what counts.

A worker that was given up may write a moment longer. It never makes a folder's parents, so once the folder is gone
nothing of it can come back.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

from rmqctl.store.files import io
from rmqctl.store.outputs.temporary import remove_for_good


def attempt(folder: Path, name: str) -> Path:
    """A path below `folder` that no other attempt at the same work has, on this machine or another."""
    return folder / f"{name}.{uuid.uuid4().hex}"


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """`folder`, made anew for the time being."""
    remove_for_good(folder)
    io.make_directories(folder)
    try:
        yield folder
    finally:
        remove_for_good(folder)
