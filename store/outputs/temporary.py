"""Temporary folders with the process in their names: those of killed processes go when the next one makes its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.presence import is_real_directory
from rmqctl.store.outputs.staging import in_work, is_at_work, is_locked


def make_temporary(prefix: str) -> Path:
    """A new directory where the system keeps temporary files, for this user only. Who makes it removes it; what killed
    processes left under the same prefix is removed now."""
    made = io.make_temporary_directory(f"{prefix}{os.getpid()}-")
    remove_forgotten(prefix, made.parent)
    return made


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """The same, held while the block runs: to a process of another container its number says nothing."""
    made = make_temporary(prefix)
    with in_work(made):
        yield made


def remove_forgotten(prefix: str, beside: Path) -> None:
    """Remove what killed processes of this user left in a folder; what cannot be removed stays."""
    for path in beside.glob(f"{prefix}*"):
        process = path.name[len(prefix) :].partition("-")[0]
        if not process.isdigit() or int(process) == os.getpid() or not is_real_directory(path):
            continue
        status = path.lstat()
        is_forgotten = not is_at_work(int(process), status.st_mtime) and not is_locked(path)
        if status.st_uid == os.geteuid() and is_forgotten:
            with suppress(WriteFailedError):
                io.remove_tree(path)
