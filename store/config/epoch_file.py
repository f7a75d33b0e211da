"""The epochs of a store under a controller: which master wrote which part of the log (EpochFileCache)."""

from __future__ import annotations

import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import is_there, read_small_file

EPOCH_FILE = "epochFileCheckpoint"
IDENTITY_FILE = "brokerIdentity"
_CRC_MASK = 0x7FFFFFFF
_LARGEST_FILE = 16 << 20
_LARGEST_IDENTITY = 64 << 10
_LARGEST = (1 << 63) - 1


class Epoch(NamedTuple):
    """A master's term, and the offset in the commitlog where it begins."""

    number: int
    start: int


def is_under_controller(layout: StoreLayout) -> bool:
    """Return whether a broker under a controller has written to the store: its confirm offset is an end, then."""
    return is_there(layout.root / EPOCH_FILE) or is_there(layout.root / IDENTITY_FILE)


def read_epochs(path: Path) -> list[Epoch] | None:
    """Return the entries of one file (CheckpointFile); None without one.

    CorruptError where the number of entries, the CRC or an entry is wrong: a broker takes the backup then.
    UnreadableError.
    """
    try:
        data = read_small_file(path, _LARGEST_FILE)
    except FileNotFoundError:
        return None
    lines = data.decode("utf-8", "replace").splitlines()
    try:
        count, crc = (_number(line) for line in lines[:2])
        epochs = [Epoch(*(_number(part) for part in line.split("-"))) for line in lines[2:]]
    except (ValueError, TypeError) as error:
        raise CorruptError("a line is not the number of entries, a CRC or epoch-offset", file=path) from error
    if count != len(epochs):
        raise CorruptError(f"{len(epochs)} entries instead of {count}", file=path)
    expected = _crc(data.split(b"\n", 2)[2])
    if crc not in (0, expected):
        raise CorruptError(f"the CRC is {crc}, but that of the entries is {expected}", file=path)
    return epochs


def broker_epochs(layout: StoreLayout) -> list[Epoch]:
    """Return the entries that a broker loads, up to the first that does not ascend: of the file, else of its backup."""
    path = layout.root / EPOCH_FILE
    for candidate in (path, backup_of(path)):
        try:
            epochs = read_epochs(candidate)
        except (CorruptError, UnreadableError):
            continue
        if epochs is not None:
            return ascending(epochs)
    return []


def broker_identity(layout: StoreLayout) -> str | None:
    """Return what the store says of the broker that it belongs to, `cluster#name#id`; None without it."""
    try:
        return read_small_file(layout.root / IDENTITY_FILE, _LARGEST_IDENTITY).decode("utf-8", "replace").strip()
    except (FileNotFoundError, UnreadableError):
        return None


def controller_row(layout: StoreLayout, confirm_offset: int | None) -> dict[str, Any] | None:
    """Return who the broker of a store under a controller is, up to where in-sync replicas have its log, and which
    epoch wrote what; the last epoch has no end. None for other stores."""
    if not is_under_controller(layout):
        return None
    epochs = broker_epochs(layout)
    ends = [*(epoch.start for epoch in epochs[1:]), None]
    return {
        "identity": broker_identity(layout),
        "confirm_offset": confirm_offset,
        "epochs": [
            {"epoch": one.number, "begin": one.start, "end": end} for one, end in zip(epochs, ends, strict=False)
        ],
    }


def readable_epochs(path: Path) -> list[Epoch]:
    """Return the entries of a damaged file that can be read. UnreadableError."""
    found: list[Epoch] = []
    for line in read_small_file(path, _LARGEST_FILE).decode("utf-8", "replace").splitlines()[2:]:
        parts = line.split("-")
        if len(parts) == 2 and all(part.isascii() and part.isdigit() and int(part) <= _LARGEST for part in parts):
            found.append(Epoch(int(parts[0]), int(parts[1])))
    return found


def ascending(epochs: list[Epoch]) -> list[Epoch]:
    """Return the entries up to the first that is not larger than the one before it, or does not begin after it."""
    for number, (before, after) in enumerate(pairwise(epochs), 1):
        if after.number <= before.number or after.start <= before.start:
            return epochs[:number]
    return epochs


def epoch_bytes(epochs: list[Epoch]) -> bytes:
    """Return the file that holds these entries."""
    entries = "".join(f"{epoch.number}-{epoch.start}\n" for epoch in epochs).encode()
    return f"{len(epochs)}\n{_crc(entries)}\n".encode() + entries


def _crc(entries: bytes) -> int:
    return zlib.crc32(entries) & _CRC_MASK


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > _LARGEST:
        raise ValueError(text)
    return int(text)
