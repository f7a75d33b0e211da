"""Units of consume queues and entries of index files, many at once, from columns."""

from __future__ import annotations

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY
from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import set_int, set_long

if not cython.compiled:
    from rmqctl.store.native.memory import set_int, set_long
    from rmqctl.store.native.uncompiled import Bytes, Ints, Longs, ReadInts, ReadLongs, WritableBytes, views

LARGEST_DIFFERENCE = 0x7FFFFFFF
"""What the time of an entry holds at most, in seconds behind that of the file's first one."""
_LARGEST, _SECOND = LARGEST_DIFFERENCE, 1000

_UNIT, _ENTRY = CONSUMEQUEUE_UNIT.size, INDEX_ENTRY.size
_OFFSET, _SIZE, _TAGS = (CONSUMEQUEUE_UNIT.offset(name) for name in ("physical_offset", "size", "tags_code"))
_HASH, _PLACE, _TIME, _PREVIOUS = (INDEX_ENTRY.offset(name) for name, *_ in INDEX_ENTRY.fields)


def count_units(
    topic_ids: ReadInts, queue_ids: ReadInts, taken: Bytes, queues: cython.Py_ssize_t, counts: Longs
) -> None:
    """Add to `counts` how many rows are taken for each pair of a topic and one of `queues` queue ids."""
    row: cython.Py_ssize_t
    code: cython.Py_ssize_t
    if not cython.compiled:
        topic_ids, queue_ids, taken, counts = views(topic_ids, queue_ids, taken, counts)
    with cython.nogil:
        for row in range(len(taken)):
            if taken[row]:
                code = cython.cast(cython.Py_ssize_t, topic_ids[row]) * queues + queue_ids[row]
                counts[code] += 1


def place_units(
    topic_ids: ReadInts,
    queue_ids: ReadInts,
    slots: ReadLongs,
    physical_offsets: ReadLongs,
    sizes: ReadInts,
    tags_codes: ReadLongs,
    taken: Bytes,
    queues: cython.Py_ssize_t,
    places: Longs,
    placed_slots: Longs,
    units: WritableBytes,
) -> None:
    """Write the units that are taken, each at the next place of its queue: `placed_slots`, and their bytes."""
    row: cython.Py_ssize_t
    code: cython.Py_ssize_t
    at: cython.Py_ssize_t
    if not cython.compiled:
        topic_ids, queue_ids, slots, physical_offsets = views(topic_ids, queue_ids, slots, physical_offsets)
        sizes, tags_codes, taken, places = views(sizes, tags_codes, taken, places)
        placed_slots, units = views(placed_slots, units)
    with cython.nogil:
        for row in range(len(taken)):
            if taken[row]:
                code = cython.cast(cython.Py_ssize_t, topic_ids[row]) * queues + queue_ids[row]
                at = places[code]
                places[code] = at + 1
                placed_slots[at] = slots[row]
                at *= _UNIT
                set_long(units, at + _OFFSET, physical_offsets[row])
                set_int(units, at + _SIZE, sizes[row])
                set_long(units, at + _TAGS, tags_codes[row])


def link_entries(hashes: ReadInts, slots: cython.int, table: Ints, number: cython.int, previous: Ints) -> int:
    """Put entries `number`, `number` + 1, … with these hashes; returns how many slots they are the first of.

    `table` has the newest entry of each of the `slots`, 0 for none, and is brought up to date. `previous` is filled
    with the entry that was the newest of the slot before each one. (IndexFile#putKey)
    """
    used: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    slot: cython.int
    if not cython.compiled:
        hashes, table, previous = views(hashes, table, previous)
    with cython.nogil:
        for at in range(len(hashes)):
            slot = hashes[at] % slots
            previous[at] = table[slot]
            if previous[at] == 0:
                used += 1
            table[slot] = number + cython.cast(cython.int, at)
    return used


def pack_entries(
    hashes: ReadInts,
    offsets: ReadLongs,
    timestamps: ReadLongs,
    first: cython.longlong,
    previous: ReadInts,
    entries: WritableBytes,
) -> None:
    """Fill `entries` with the bytes of entries. `first`: the time of the file's first one, in ms like all.

    A damaged time may be anything: an entry holds the whole seconds between, as far as the field can say.
    """
    at: cython.Py_ssize_t
    place: cython.Py_ssize_t
    seconds: cython.longlong
    if not cython.compiled:
        hashes, offsets, timestamps = views(hashes, offsets, timestamps)
        previous, entries = views(previous, entries)
    with cython.nogil:
        for at in range(len(hashes)):
            seconds = 0
            if first > 0 and timestamps[at] > first:
                # two positive numbers: no overflow
                seconds = (timestamps[at] - first) // _SECOND
                seconds = min(seconds, _LARGEST)
            place = at * _ENTRY
            set_int(entries, place + _HASH, hashes[at])
            set_long(entries, place + _PLACE, offsets[at])
            set_int(entries, place + _TIME, seconds)
            set_int(entries, place + _PREVIOUS, previous[at])
