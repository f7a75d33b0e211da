"""What tests of the cross checks share: units and index entries of a copy of a golden, read and broken."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY, INDEX_HEADER
from rmqctl.formats.message import StoredMessage
from rmqctl.store.check.catalogue import Finding
from tests.store.check.breaking import checked, messages, patch

UNITS_PER_FILE = 100
INDEX_SLOTS, INDEX_ENTRIES = 500, 2000
EMPTY = bytes(20)
FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


class Unit(NamedTuple):
    """20 bytes of a queue."""

    physical_offset: int
    size: int
    tags_code: int

    def packed(self) -> bytes:
        return CONSUMEQUEUE_UNIT.struct.pack(*self)


def queue_file(store: Path, topic: str, queue_id: int, slot: int) -> Path:
    """The file that holds a slot."""
    return store / "consumequeue" / topic / str(queue_id) / f"{slot // UNITS_PER_FILE * 2000:020d}"


def unit(store: Path, topic: str, queue_id: int, slot: int) -> Unit:
    """The unit in a slot."""
    data = queue_file(store, topic, queue_id, slot).read_bytes()
    return Unit(*CONSUMEQUEUE_UNIT.unpack_from(data, slot % UNITS_PER_FILE * 20))


def put_unit(store: Path, topic: str, queue_id: int, slot: int, data: bytes | Unit) -> None:
    """Overwrite the unit in a slot."""
    packed = data.packed() if isinstance(data, Unit) else data
    patch(queue_file(store, topic, queue_id, slot), slot % UNITS_PER_FILE * 20, packed)


def put_message_unit(store: Path, message: StoredMessage, data: bytes | Unit) -> None:
    """Overwrite the unit of a message."""
    put_unit(store, message.topic, message.queue_id, message.queue_offset, data)


def undispatched(store: Path, from_offset: int) -> list[StoredMessage]:
    """Take the units of all messages from a physical offset on out of their queues; returns the messages."""
    taken = [message for message in messages(store) if message.physical_offset >= from_offset]
    for message in taken:
        put_message_unit(store, message, EMPTY)
    return taken


def index_files(store: Path) -> list[Path]:
    """Index files, oldest first."""
    return sorted((store / "index").iterdir())


def entry_position(number: int) -> int:
    """Byte position of an index entry."""
    return INDEX_HEADER.size + 4 * INDEX_SLOTS + 20 * number


def entry(path: Path, number: int) -> tuple[int, int, int, int]:
    """Hash, physical offset, time difference, previous entry."""
    hashed, offset, difference, previous = INDEX_ENTRY.unpack_from(path.read_bytes(), entry_position(number))
    return hashed, offset, difference, previous


def put_entry(path: Path, number: int, hashed: int, offset: int, difference: int, previous: int) -> None:
    """Overwrite an index entry."""
    patch(path, entry_position(number), INDEX_ENTRY.struct.pack(hashed, offset, difference, previous))


def header(path: Path) -> list[int]:
    """Begin and end timestamp, begin and end offset, slot count, index count."""
    return list(INDEX_HEADER.unpack_from(path.read_bytes(), 0))


def put_header(path: Path, fields: Iterable[int]) -> None:
    """Overwrite the header of an index file."""
    patch(path, 0, INDEX_HEADER.struct.pack(*fields))


def cross(store: Path) -> list[Finding]:
    """Findings about queues and index only."""
    findings, _ = checked(store)
    return [finding for finding in findings if finding.code.split("-")[1] in ("CQ", "IDX")]


def of_code(findings: Iterable[Finding], code: str) -> Finding:
    """The only finding with this code."""
    (found,) = [finding for finding in findings if finding.code == code]
    return found
