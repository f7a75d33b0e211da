"""The structures of an index file for a dump: header, slots in use, entries."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from rmqctl.formats.schemas import index
from rmqctl.store.dump.items import DumpItem, Opened, explained
from rmqctl.store.files.zeros import data_extents
from rmqctl.store.index.geometry import infer_geometry

_CHUNK = 1 << 16


def index_items(opened: Opened, at: int) -> Iterator[DumpItem]:
    """Structures that end behind byte `at`. Slots and entries only if the file's geometry can be told.

    CorruptError where it cannot: where the slots end and the entries begin is not written in the file.
    """
    head = opened.read(0, INDEX_HEADER.size)
    header = explained("index header", index.index_header, head, 0)
    if at < INDEX_HEADER.size:
        yield header
    if header.damage is not None:
        return
    geometry = infer_geometry(opened.path, opened.size, opened.descriptors)
    count = INDEX_HEADER.unpack_from(head, 0)[5]
    if geometry is None:
        if count <= 1:
            return
        raise CorruptError(
            "the file's length and its entries fit no number of slots",
            file=opened.path,
            hint="--hex shows its bytes; `rmqctl rebuild --index` makes the index anew from the commitlog",
        )
    entries_at = geometry.entry_position(0)
    yield from _slots(opened, max(at, INDEX_HEADER.size), entries_at, count)
    first = max(1, (at - entries_at) // INDEX_ENTRY.size if at > entries_at else 1)
    for number in range(first, count):
        offset = geometry.entry_position(number)
        data = opened.read(offset, INDEX_ENTRY.size)
        item = explained("index entry", index.index_entry, data, offset)
        item.position = number
        if item.damage is None and not 0 <= item.fields[3].value < number:
            item.damage = "the chain leads on to an entry that is not older"
        yield item


def _slots(opened: Opened, begin: int, end: int, count: int) -> Iterator[DumpItem]:
    """Slots in [begin, end) that are not zero. There are five million of them by default, most in holes of the file."""
    for start, stop in data_extents(opened.path, begin, end):
        aligned = start - (start - INDEX_HEADER.size) % INDEX_SLOT.size
        for offset in range(aligned, stop, _CHUNK):
            data = opened.read(offset, min(_CHUNK, stop - offset))
            for place in range(0, len(data) - INDEX_SLOT.size + 1, INDEX_SLOT.size):
                raw = data[place : place + INDEX_SLOT.size]
                if not any(raw):
                    continue
                item = explained("index slot", index.index_slot, raw, offset + place)
                item.position = (offset + place - INDEX_HEADER.size) // INDEX_SLOT.size
                if not 0 < item.fields[0].value <= count:
                    item.damage = "the slot holds no entry's number"
                yield item
