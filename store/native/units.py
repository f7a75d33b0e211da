"""Units of consume queues and entries of index files, many at once, from columns; units from blocks of RocksDB."""

from __future__ import annotations

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY, ROCKSDB_QUEUE_UNIT
from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import copy, little_long_at, long_at, same, set_int, set_long

if not cython.compiled:
    from rmqctl.store.native.memory import copy, little_long_at, long_at, same, set_int, set_long
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


# Data blocks of RocksDB tables. Where these find something unusual they say so, and store/rocksdb/table.py, which takes
# blocks apart one entry at a time, decides what it is.

LARGEST_KEY = 4096
"""Bytes of a key that `place_slots` compares."""
MOST_ENTRIES, LARGEST_KEYS = 131072, 16777216
"""Of one block, the keys in bytes: more are in no block that RocksDB writes for RocketMQ, of 32 KiB."""
_VALUE = ROCKSDB_QUEUE_UNIT.size
_MOST_ENTRIES, _LARGEST_KEYS = MOST_ENTRIES, LARGEST_KEYS
_TRAILER, _SLOT, _PUT, _LONGEST = 8, 8, 1, 5
_SEQUENCES = (1 << 56) - 1


def number_at(block: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """The varint at a place times 8, plus how many bytes it has; -1 where it has no end, or more than five."""
    value: cython.longlong = 0
    length: cython.int = 0
    byte: cython.longlong
    while length < _LONGEST and at + length < end:
        byte = block[at + length]
        value |= (byte & 0x7F) << 7 * length
        length += 1
        if byte < 0x80:
            return value << 3 | length
    return -1


def read_head(
    block: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, before: cython.longlong, sizes: Longs
) -> cython.Py_ssize_t:
    """Where the key of the entry at a place goes on, and `sizes`: bytes that it shares with the key before it, which
    has `before`, bytes that follow, and of the value. -1 for a malformed one."""
    index: cython.int
    found: cython.longlong
    # of nearly all entries each number has one byte
    if at + 3 <= end and (block[at] | block[at + 1] | block[at + 2]) < 0x80:
        for index in range(3):
            sizes[index] = block[at + index]
        at += 3
    else:
        for index in range(3):
            found = number_at(block, at, end)
            if found < 0:
                return -1
            sizes[index] = found >> 3
            at += found & 7
    if sizes[0] > before or sizes[0] + sizes[1] < _TRAILER or at + sizes[1] + sizes[2] > end:
        return -1
    return at


def is_well_formed(block: Bytes, end: cython.Py_ssize_t, sizes: Longs) -> bool:
    """Return whether all entries of a block, which end at `end`, are within it and have keys with a trailer, and are
    no more than there may be.

    `sizes`: three longs to work in.
    """
    position: cython.Py_ssize_t = 0
    size: cython.longlong = 0
    count: cython.longlong = 0
    keys: cython.longlong = 0
    if not cython.compiled:
        block, sizes = views(block, sizes)
    with cython.nogil:
        while position >= 0 and position < end:
            position = read_head(block, position, end, size, sizes)
            size = sizes[0] + sizes[1]
            count += 1
            keys += size
            if count > _MOST_ENTRIES or keys > _LARGEST_KEYS:
                position = -1
            if position >= 0:
                position += sizes[1] + sizes[2]
    return position == end


def place_unit(
    block: Bytes,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    trailer: cython.longlong,
    slot: cython.longlong,
    units: WritableBytes,
    sequences: Longs,
) -> cython.bint:
    """Put the value of an entry, `size` bytes from `at` on, into its slot, unless that is of none asked for or has a
    newer one. False where it is not of a unit. `trailer`: the sequence number, and the kind in the lowest byte."""
    sequence: cython.longlong = trailer >> 8 & _SEQUENCES
    if slot < 0 or slot >= len(sequences) or sequence <= sequences[slot]:
        return True
    sequences[slot] = sequence
    slot *= _UNIT
    if trailer & 0xFF != _PUT:
        set_long(units, slot, 0)
        set_long(units, slot + 8, 0)
        set_int(units, slot + 16, 0)
    elif size == _VALUE:
        # the same fields in the same order, with the store time after them
        copy(units, slot, block, at, _UNIT)
    else:
        return False
    return True


def place_slots(
    block: Bytes,
    end: cython.Py_ssize_t,
    prefix: Bytes,
    first: cython.longlong,
    units: WritableBytes,
    sequences: Longs,
    key: WritableBytes,
    sizes: Longs,
) -> bool:
    """Put the units of a queue, whose keys begin with `prefix`, into `units`, that of slot `first` at the front.

    `sequences` has the sequence number of what each slot holds, -1 for nothing: newer entries take its place, and
    deletions leave zeros. `key`: LARGEST_KEY bytes to work in, `sizes`: three longs. False where an entry is not one of
    a unit.
    """
    position: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = 0
    shared: cython.Py_ssize_t
    unshared: cython.Py_ssize_t
    value: cython.Py_ssize_t
    width: cython.Py_ssize_t = len(prefix) + _SLOT + _TRAILER
    trailer_at: cython.Py_ssize_t = 0
    number: cython.longlong = 0
    trailer: cython.longlong
    mask: cython.longlong
    is_of_queue: cython.bint = False
    is_in_key: cython.bint = True
    is_good: cython.bint = True
    if not cython.compiled:
        block, prefix, units, sequences, key, sizes = views(block, prefix, units, sequences, key, sizes)
    with cython.nogil:
        while is_good and position < end:
            shared = -1
            if is_of_queue and position + 3 + _SLOT + _TRAILER + _VALUE <= end and block[position] < 0x80:
                shared, value = block[position] - len(prefix), _VALUE
                unshared = _SLOT + _TRAILER - shared
            if 0 < shared <= _SLOT and block[position + 1] == unshared and block[position + 2] == _VALUE:
                # nearly all entries: the key before it is of the queue, and all but a part of the slot's number is the
                # same. It is not put together in `key`
                position += 3
                mask = (cython.cast(cython.longlong, 1) << 8 * (_SLOT - shared)) - 1
                number = number & ~mask | long_at(block, position - shared) & mask
                trailer_at = position + _SLOT - shared
                trailer = little_long_at(block, trailer_at)
                is_in_key = False
            else:
                if not is_in_key:
                    set_long(key, len(prefix), number)
                    copy(key, width - _TRAILER, block, trailer_at, _TRAILER)
                    is_in_key = True
                position = read_head(block, position, end, size, sizes)
                unshared, value = sizes[1], sizes[2]
                size = sizes[0] + unshared
                if position < 0 or size > len(key):
                    is_good = False
                    break
                copy(key, sizes[0], block, position, unshared)
                if sizes[0] < len(prefix) or not is_of_queue:
                    is_of_queue = size - _TRAILER >= len(prefix) and same(key, 0, prefix, 0, len(prefix))
                if is_of_queue:
                    if size != width:
                        is_good = False
                        break
                    number = long_at(key, len(prefix))
                    trailer = little_long_at(key, width - _TRAILER)
            if is_of_queue:
                is_good = place_unit(block, position + unshared, value, trailer, number - first, units, sequences)
            position += unshared + value
    return is_good
