"""The history of a store's changes that keep nothing, or nothing any more: lines of `history.jsonl`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import CorruptError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_file, no_answer

HISTORY = "history.jsonl"
PERMANENT, FORGOTTEN = "permanent", "forgotten"
_LARGEST_HISTORY = 1 << 26
_KEPT_FIELDS = ("id", "verb", "state", "started", "paths", "bytes", "arguments", "version")


def history(layout: StoreLayout) -> list[dict[str, Any]]:
    """The lines, the oldest first, those that are none left out; of several with one id the last. CorruptError."""
    path = layout.kept / HISTORY
    if not is_file(path):
        return []
    if path.stat().st_size > _LARGEST_HISTORY:
        raise CorruptError("is larger than any history", file=path, hint="look what it is, then move it away")
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            found[str(row["id"])] = {**row, "verb": str(row["verb"]), "state": str(row["state"])}
        except (ValueError, TypeError, KeyError, RecursionError):  # the last line of a process that was killed
            continue
    return list(found.values())


def note(layout: StoreLayout, row: dict[str, Any]) -> None:
    """Add a line; durable when this returns."""
    path = layout.kept / HISTORY
    io.make_directories(path.parent)
    # first a newline: the line before may be half of one
    line = "\n" + json.dumps({name: row.get(name) for name in _KEPT_FIELDS}) + "\n"
    descriptor = io.open_for_writing(path, create=True)
    try:
        io.write_at(descriptor, path, _size_of(descriptor, path), line.encode("ascii"))
        io.flush_descriptor(descriptor, path)
    finally:
        os.close(descriptor)
    for directory in (path.parent, path.parent.parent):
        io.flush_directory(directory)


def _size_of(descriptor: int, path: Path) -> int:
    try:
        return os.fstat(descriptor).st_size
    except OSError as error:
        raise no_answer(error, path) from error


def note_permanent(layout: StoreLayout, head: dict[str, Any]) -> None:
    """Add a change of which nothing is kept."""
    note(layout, {**head, "state": PERMANENT})
