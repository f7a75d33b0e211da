"""The messages that rmqctl itself stored: lines of `stored.jsonl`, for `rmqctl log`. None of it can be undone."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any, NamedTuple

from rmqctl.formats.errors import RmqctlError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_file

STORED = "stored"
"""State of such a line in `rmqctl log`."""
_FILE = "stored.jsonl"
_LARGEST = 1 << 20
"""Bytes from which on the older half of the lines is dropped."""


class Stored(NamedTuple):
    """Messages stored by one command: `time` in ms, [begin, end) physical offsets."""

    verb: str
    arguments: list[str]
    time: int
    begin: int
    end: int


def note_stored(layout: StoreLayout, verb: str, arguments: list[str], begin: int, end: int) -> None:
    """Add a line, unless nothing was stored. Raises: WriteFailedError."""
    if end <= begin:
        return
    path = layout.kept / _FILE
    io.make_directories(path.parent)
    row = Stored(verb, arguments, time.time_ns() // 1_000_000, begin, end)
    lines = [*_lines(layout), json.dumps(row._asdict())]
    if sum(map(len, lines)) > _LARGEST:
        lines = lines[len(lines) // 2 :]
    io.write_whole(path, ("\n".join(lines) + "\n").encode("ascii"))


def stored(layout: StoreLayout) -> list[Stored]:
    """Return what was stored, the oldest first; lines that do not parse are left out."""
    found = []
    for line in _lines(layout):
        with suppress(ValueError, TypeError, KeyError):
            row: dict[str, Any] = json.loads(line)
            arguments = [str(one) for one in row["arguments"]]
            numbers = int(row["time"]), int(row["begin"]), int(row["end"])
            found.append(Stored(str(row["verb"]), arguments, *numbers))
    return found


def _lines(layout: StoreLayout) -> list[str]:
    path = layout.kept / _FILE
    try:
        if not is_file(path) or os.stat(path).st_size > 2 * _LARGEST:
            return []
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except (OSError, RmqctlError):
        return []
