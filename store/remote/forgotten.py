"""Folders that stand for stores on servers and whose processes were killed: nobody else removes them."""

from __future__ import annotations

import os
from pathlib import Path

from rmqctl.store.files import io, reading
from rmqctl.store.files.presence import is_directory
from rmqctl.store.outputs.staging import is_at_work

PREFIX = reading.STAND_IN[1:]
"""Of their names, below the system's folder for temporary files; then comes the process whose they are."""


def remove_forgotten(beside: Path) -> None:
    """Remove those in this folder."""
    for path in beside.glob(PREFIX + "*"):
        process = path.name[len(PREFIX) :].partition("-")[0]
        if not process.isdigit() or int(process) == os.getpid() or not is_directory(path):
            continue
        status = path.stat()
        if status.st_uid == os.geteuid() and not is_at_work(int(process), status.st_mtime):
            io.remove_tree(path)
