"""Finds out how many slots and entries an index file has: the file does not say (docs/formats.md)."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats.layouts import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS, Geometry

_WINDOW = 1 << 20
_CHECKED_ENTRIES = 64
LARGEST_FILE = 0x7FFFFFFF
"""RocketMQ computes the size of an index file as a signed 32-bit number."""


def infer_geometry(path: Path, size: int, descriptors: Descriptors) -> Geometry | None:
    """The geometry that fits both the length of the file and its entries; None if nothing fits.

    RocketMQ's default ratio of four entries a slot is tried first, then every place where the last entry's physical
    offset, known from the header, occurs in the file.
    """
    if size > LARGEST_FILE:
        return None
    usual = [Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES), _four_to_one(size)]
    for geometry in usual:
        if geometry is not None and geometry.file_size == size and fits(path, geometry, descriptors):
            return geometry
    return _search(path, size, descriptors)


def _four_to_one(size: int) -> Geometry | None:
    slots, rest = divmod(size - INDEX_HEADER.size, INDEX_SLOT.size + 4 * INDEX_ENTRY.size)
    return Geometry(slots, 4 * slots) if slots > 0 and rest == 0 else None


def fits(path: Path, geometry: Geometry, descriptors: Descriptors) -> bool:
    """Whether the first and last entries are what the header says, with offsets in order and sane chains."""
    head = descriptors.read(path, 0, INDEX_HEADER.size)
    if len(head) < INDEX_HEADER.size:
        return False
    _, _, begin_offset, end_offset, _, count = INDEX_HEADER.unpack_from(head, 0)
    if count > geometry.entries:
        return False
    if count <= 1:
        return True
    numbers = sorted({*range(1, min(count, _CHECKED_ENTRIES)), count - 1})
    previous_offset = begin_offset
    for number in numbers:
        data = descriptors.read(path, geometry.entry_position(number), INDEX_ENTRY.size)
        if len(data) < INDEX_ENTRY.size:
            return False
        key_hash, physical_offset, _, previous = INDEX_ENTRY.unpack_from(data, 0)
        if key_hash < 0 or not previous_offset <= physical_offset <= end_offset or not 0 <= previous < number:
            return False
        if number == 1 and physical_offset != begin_offset:
            return False
        previous_offset = physical_offset
    return bool(previous_offset == end_offset)


def _search(path: Path, size: int, descriptors: Descriptors) -> Geometry | None:
    head = descriptors.read(path, 0, INDEX_HEADER.size)
    if len(head) < INDEX_HEADER.size:
        return None
    _, _, _, end_offset, _, count = INDEX_HEADER.unpack_from(head, 0)
    if count <= 1 or end_offset <= 0:
        return None
    wanted = end_offset.to_bytes(8, "big")
    # the last entry stands at header + 4 * slots + 20 * (count - 1), its offset field 4 bytes further on
    lead = INDEX_HEADER.size + INDEX_ENTRY.size * (count - 1) + INDEX_ENTRY.offset("physical_offset")
    position = lead
    while position < size:
        window = descriptors.read(path, position, _WINDOW)
        found = window.find(wanted)
        while found >= 0:
            slots, rest = divmod(position + found - lead, INDEX_SLOT.size)
            entries, odd = divmod(size - INDEX_HEADER.size - INDEX_SLOT.size * slots, INDEX_ENTRY.size)
            geometry = Geometry(slots, entries)
            fitting = slots > 0 and rest == odd == 0 and fits(path, geometry, descriptors)
            if fitting and _leads_to(count - 1, path, geometry, descriptors):
                return geometry
            found = window.find(wanted, found + 1)
        if len(window) < _WINDOW:
            return None
        position += _WINDOW - len(wanted) + 1
    return None


def _leads_to(number: int, path: Path, geometry: Geometry, descriptors: Descriptors) -> bool:
    """Whether the slot of the last entry leads to it. A message has several keys, so its offset stands in several
    entries, and the one before the first is zeros, which a log that begins at 0 can have: that fits too."""
    entry = descriptors.read(path, geometry.entry_position(number), INDEX_ENTRY.size)
    (key_hash, *_) = INDEX_ENTRY.unpack_from(entry, 0)
    slot = descriptors.read(path, geometry.slot_position(key_hash), INDEX_SLOT.size)
    return bool(INDEX_SLOT.unpack_from(slot, 0)[0] == number)
