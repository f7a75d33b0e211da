"""What hostile stores are made with, and the register that they stand in."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import lz4.block

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY, INDEX_HEADER
from rmqctl.store.files.layout import file_name
from rmqctl.store.rocksdb.records import BLOCK_SIZE, masked_crc32c
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


def database(folder: Path, families: tuple[bytes, ...], rows: list[tuple[int, bytes, bytes]]) -> None:
    """A RocksDB with these rows, as (number of the family, key, value), in its write-ahead log."""
    edits = [
        b"\xc8\x01" + bytes([number]) + b"\xc9\x01" + _prefixed(name) for number, name in enumerate(families) if number
    ]
    batches = [
        struct.pack("<QI", number, 1) + b"\x05" + bytes([family]) + _prefixed(key) + _prefixed(value)
        for number, (family, key, value) in enumerate(rows, 1)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    (folder / "MANIFEST-000001").write_bytes(framed(b"\x02\x00", *edits))
    (folder / "000002.log").write_bytes(framed(*batches))


def varint(value: int) -> bytes:
    """An integer as RocksDB writes it."""
    data = b""
    while value > 127:
        data, value = data + bytes((value & 127 | 128,)), value >> 7
    return data + bytes((value,))


def block(*entries: tuple[int, bytes, bytes], times: int = 1) -> bytes:
    """A block of a table, plain: of each entry what its key shares, the rest of the key and the value, all again and
    again."""
    one = b"".join(
        varint(shared) + varint(len(key)) + varint(len(value)) + key + value for shared, key, value in entries
    )
    return one * times + struct.pack("<II", 0, 1)


def lz4_block(plain: bytes, said: int | None = None) -> tuple[bytes, int]:
    """A block as it is stored, and its type of compression; `said`: the size that it claims."""
    return varint(len(plain) if said is None else said) + lz4.block.compress(plain, store_size=False), 4


def sorted_table(
    data: Sequence[tuple[bytes, int]], ranges: tuple[bytes, int] | None = None, again: int = 1, beyond: int = 0
) -> bytes:
    """A table of these stored blocks, sound by every checksum. `ranges`: its deleted ranges; `again`: how often the
    index names each block; `beyond`: where footer and index lead, in bytes after the place that is right."""
    made = b""

    def add(stored: tuple[bytes, int]) -> bytes:
        nonlocal made
        content, compression = stored
        handle = varint(len(made) + beyond) + varint(len(content))
        kind = bytes((compression,))
        made += content + kind + struct.pack("<I", masked_crc32c(content + kind))
        return handle

    handles = [add(stored) for stored in data]
    trailer = bytes((1, 1)) + bytes(6)
    places = [(0, b"\xff" * 9 + trailer, handle) for handle in handles]
    meta = [(0, b"rocksdb.range_del", add(ranges))] if ranges is not None else []
    metaindex = add((block(*meta), 0))
    index = add(lz4_block(block(*places, times=again)))
    footer = (b"\1" + metaindex + index).ljust(41, b"\0") + struct.pack("<I", 5)
    return made + footer + struct.pack("<Q", 0x88E241B785F4CFF7)


def database_of_tables(folder: Path, tables: Sequence[bytes], said: int = 0) -> None:
    """A RocksDB of these tables, all of the default family with all keys; `said` bytes are added to their sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    edits = [b"\x02\x00"]
    for number, data in enumerate(tables, 10):
        (folder / f"{number:06d}.sst").write_bytes(data)
        ends = varint(8) + bytes(8) + varint(108) + b"\xff" * 108
        edits.append(b"\x67\x00" + varint(number) + varint(len(data) + said) + ends + b"\0\0\1")
    (folder / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    (folder / "MANIFEST-000001").write_bytes(framed(*edits))


def _prefixed(data: bytes) -> bytes:
    assert len(data) < 1 << 14
    return (bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])) + data


def framed(*payloads: bytes) -> bytes:
    """Records as RocksDB writes them: split at blocks of 32 KiB."""
    data = b""
    for payload in payloads:
        is_first, rest = True, payload
        while True:
            left = BLOCK_SIZE - len(data) % BLOCK_SIZE
            if left < 7:
                data += bytes(left)
                left = BLOCK_SIZE
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if is_first else 4) if not rest else (2 if is_first else 3)
            data += struct.pack("<IHB", masked_crc32c(bytes((kind,)) + part), len(part), kind) + part
            is_first = False
            if not rest:
                break
    return data
