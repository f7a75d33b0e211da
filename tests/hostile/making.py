"""What hostile stores are made with, and the register that they stand in."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY, INDEX_HEADER
from rmqctl.store.files.layout import file_name
from tests.store.logs import frame

LOG = 65536
QUEUE = 2000
SLOTS, ENTRIES = 100, 400
NASTY = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\u2066\u200b\x00\x7f\r\n\tx"
"""Escape sequences of 7 and 8 bits, a title, bidi, zero width, NUL, DEL and newlines."""
EVIL = ("../../evil", "/tmp/evil", "a/../../evil", "..", ".", "x\0y", "~", "$(reboot)", "-rf", "t" * 300, "é" * 60)

Maker = Callable[[Path], None]
REGISTER: dict[str, Maker] = {}
ONLY_LOOKED_AT = {"holes_of_terabytes"}
"""Whoever changes files keeps their SHA-256, and that of a hole takes as long as that of data."""


def hostile(maker: Maker) -> Maker:
    """Register a store under its function's name."""
    REGISTER[maker.__name__] = maker
    return maker


def log_file(root: Path, data: bytes, start: int = 0, size: int = LOG) -> Path:
    """A commitlog file with `data` and zeros behind it."""
    path = root / "commitlog" / file_name(start)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data[:size].ljust(size, b"\0"))
    return path


def queue_file(
    root: Path, topic: str, queue_id: str, units: list[tuple[int, int, int]], name: str = file_name(0)
) -> Path:
    """A queue file with these units."""
    data = b"".join(CONSUMEQUEUE_UNIT.struct.pack(*unit) for unit in units)
    path = root / "consumequeue" / topic / queue_id / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.ljust(QUEUE, b"\0"))
    return path


def frames_of(*made: Mapping[str, object]) -> bytes:
    """Frames one behind the other, with these fields."""
    log = b""
    for number, fields in enumerate(made):
        log += frame(len(log), **{"queue_offset": number, **fields})  # type: ignore[arg-type]  # fields of the helper
    return log


def some_messages(root: Path, messages: int = 5) -> bytes:
    """A few good messages with their queue, so that a store has something to answer."""
    log = frames_of(*({"body": b"body %d" % number, "properties": {"KEYS": "k"}} for number in range(messages)))
    size = len(log) // messages
    log_file(root, log)
    queue_file(root, "T", "0", [(number * size, size, 0) for number in range(messages)])
    return log


def index_file(root: Path, header: tuple[int, ...], slots: list[int], entries: Sequence[tuple[int, ...]]) -> Path:
    """An index file with this header, these slots and entries."""
    path = root / "index" / "20260101000000000"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = INDEX_HEADER.struct.pack(*header) + struct.pack(f">{SLOTS}i", *(slots + [0] * SLOTS)[:SLOTS])
    data += bytes(INDEX_ENTRY.size) + b"".join(INDEX_ENTRY.struct.pack(*entry) for entry in entries)
    path.write_bytes(data.ljust(INDEX_HEADER.size + 4 * SLOTS + 20 * ENTRIES, b"\0"))
    return path
