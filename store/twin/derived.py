"""Rewrite what is derived from the log: hashes of tags, keys and topics in queues, ext units, index and timer log.

A hash that is the one of the message becomes the one of its twin. One that is not becomes another number, so that it
stays wrong, or unknown where the message is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_hash, key_hash, tags_code
from rmqctl.formats.layout import Layout
from rmqctl.formats.layouts import (
    CONSUMEQUEUE_EXT_UNIT_HEAD,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
)
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.index.index_file import Geometry, IndexHeader
from rmqctl.store.queues.consumequeue import ext_offset
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.twin.frames import rewrite_frame
from rmqctl.store.twin.words import Words

_INT = 1 << 31
_REMEMBERED = 4096


class Hashes:
    """Replaces hashes by what the messages of a log are and become."""

    def __init__(self, words: Words, log: MappedFileQueue) -> None:
        self._words = words
        self._log = log
        self._pair = lru_cache(maxsize=_REMEMBERED)(self._pair_at)

    def _pair_at(self, offset: int) -> tuple[StoredMessage, StoredMessage] | None:
        """Return the message at a physical offset and its twin; None where nothing can be read."""
        size = int.from_bytes(self._log.read(offset, 4), "big", signed=True) if offset >= 0 else 0
        frame = self._log.read(offset, size) if size > 0 else b""
        try:
            message = decode_message(frame, 0, len(frame), None, check_crc=False, unsigned=True)
            twin = rewrite_frame(self._words, frame[: message.total_size])
            return message, decode_message(twin, 0, len(twin), None, check_crc=False, unsigned=True)
        except FrameDamage:
            return None

    def tags_code(self, offset: int, code: int) -> int:
        """Return what replaces the tags code of a unit that points to a physical offset; times and addresses stay."""
        if code == 0 or not -_INT <= code < _INT:
            return code
        pair = self._pair(offset)
        if pair is not None:
            old, new = (tags_code(message.properties().get(names.TAGS)) for message in pair)
            if old == code:
                return new
        return self._unknown(code)

    def topic_hash(self, offset: int, code: int) -> int:
        """Return what replaces the hash of the real topic of a timed message."""
        pair = self._pair(offset)
        if pair is not None:
            old, new = (java_hash(message.properties().get(names.REAL_TOPIC, "")) for message in pair)
            if old == code:
                return new
        return self._unknown(code) if code else code

    def key_hash(self, offset: int, code: int) -> int:
        """Return what replaces the hash of an index entry for the message at a physical offset."""
        pair = self._pair(offset)
        if pair is not None:
            keys = (index_keys(message, with_tags=True) for message in pair)
            for old, new in zip(*keys, strict=True):
                if key_hash(pair[0].topic, old) == code:
                    return key_hash(pair[1].topic, new)
        return abs(self._unknown(code)) & _INT - 1 if code > 0 else code

    def _unknown(self, code: int) -> int:
        other = self._words.number(code & 0xFFFFFFFF, 32)
        return other - 2 * _INT if other >= _INT else other


def rewrite_units(hashes: Hashes, layout: Layout, field: str, data: bytes, extents: dict[int, int]) -> bytes:
    """Return the twin of queue units or of units of the timer log; `extents` gets the physical offset of each ext unit.

    What is left after the last whole unit is no unit, and stays.
    """
    out = bytearray(data)
    fields = [name for name, _, _, _ in layout.fields]
    physical, replaced = fields.index("physical_offset"), fields.index(field)
    at_field, width = layout.offset(field), next(size for name, _, _, size in layout.fields if name == field)
    for at in range(0, len(data) - layout.size + 1, layout.size):
        if not any(data[at : at + layout.size]):
            continue
        unit = layout.unpack_from(data, at)
        offset, value = unit[physical], unit[replaced]
        if field == "topic_hash":
            value = hashes.topic_hash(offset, value)
        else:
            ext = ext_offset(value)
            if ext is not None:
                extents[ext] = offset
            value = hashes.tags_code(offset, value)
        out[at + at_field : at + at_field + width] = value.to_bytes(width, "big", signed=True)
    return bytes(out)


def rewrite_ext(words: Words, hashes: Hashes, data: bytes, start: int, extents: dict[int, int]) -> bytes:
    """Return the twin of a file of ext units that begins at byte `start` of its queue. Filter bits become others."""
    out = bytearray(data)
    at, head = 0, CONSUMEQUEUE_EXT_UNIT_HEAD
    while at + head.size <= len(data):
        size, code, _, bits = head.unpack_from(data, at)
        if size < head.size or at + size > len(data) or bits < 0 or head.size + bits > size:
            break
        code = hashes.tags_code(extents.get(start + at, -1), code)
        out[at + 2 : at + 10] = code.to_bytes(8, "big", signed=True)
        out[at + head.size : at + size] = words.noise(data[at + head.size : at + size])
        at += size
    kept = at + 2  # a size that says that the file ends here
    out[kept:] = words.noise(data[kept:])
    return bytes(out)


def rewrite_index(words: Words, hashes: Hashes, data: bytes, geometry: Geometry | None) -> bytes:
    """Return the twin of an index file: its chains lead as they did, through other slots.

    A link or a slot that was wrong stays as it is. Where the geometry is not known, the header stays.
    """
    if geometry is None:
        return data[: INDEX_HEADER.size] + words.noise(data[INDEX_HEADER.size :])
    out = bytearray(data)
    header = IndexHeader(*INDEX_HEADER.unpack_from(data, 0))
    slots_at, slots_end = INDEX_HEADER.size, geometry.entry_position(0)
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    used = 0
    for number, at in _entries(geometry, header.index_count, len(data)):
        code, offset, seconds, previous = INDEX_ENTRY.unpack_from(data, at)
        if not any(data[at : at + INDEX_ENTRY.size]):
            continue
        new = hashes.key_hash(offset, code)
        old_slot, new_slot = abs(code) % geometry.slots, abs(new) % geometry.slots
        used += new_slot not in after
        link = after.get(new_slot, 0) if previous == before.get(old_slot, 0) else previous
        INDEX_ENTRY.struct.pack_into(out, at, new, offset, seconds, link)
        before[old_slot], after[new_slot] = number, number
    stored = data[slots_at:slots_end]
    out[slots_at:slots_end] = bytes(slots_end - slots_at)
    for slot, number in after.items():
        INDEX_SLOT.struct.pack_into(out, slots_at + slot * INDEX_SLOT.size, number)
    _spoil_slots(memoryview(out)[slots_at:slots_end], stored, before, after)
    slots = header.hash_slot_count - len(before) + used
    INDEX_HEADER.struct.pack_into(out, 0, *header._replace(hash_slot_count=max(slots, 0)))
    rest = geometry.entry_position(max(header.index_count, 1))
    out[rest:] = words.noise(bytes(out[rest:])) if rest < len(out) else b""
    return bytes(out)


def _spoil_slots(slots: memoryview, stored: bytes, before: dict[int, int], after: dict[int, int]) -> None:
    """Make as many slots wrong as are in the `stored` ones, by the numbers that these have."""
    found = [number for (number,) in INDEX_SLOT.struct.iter_unpack(stored)]
    wrong = [slot for slot, number in enumerate(found) if number != before.get(slot, 0)]
    if not wrong:
        return
    empty = iter([slot for slot in range(len(found)) if slot not in after])
    used = iter(list(after))
    for slot in sorted(wrong, key=lambda one: one not in before):
        place = next(used if slot in before else empty, None)
        place = next(empty, None) if place is None else place
        place = next(used, None) if place is None else place
        if place is not None:
            number = found[slot] if found[slot] != after.get(place, 0) else found[slot] + 1
            INDEX_SLOT.struct.pack_into(slots, place * INDEX_SLOT.size, number)


def _entries(geometry: Geometry, count: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield number and position of the entries that the header counts, as far as the file has them."""
    for number in range(1, count):
        at = geometry.entry_position(number)
        if at + INDEX_ENTRY.size > size:
            return
        yield number, at
