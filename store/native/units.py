"""Units of consume queues and entries of index files, many at once, from columns; units from blocks of RocksDB."""

from __future__ import annotations

from array import array

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY, ROCKSDB_QUEUE_UNIT
from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import (
        bytes_at,
        copy,
        get_int,
        get_little_long,
        get_long,
        little_long_at,
        long_at,
        out_of_range,
        put_int,
        put_long,
        same,
        set_int,
        set_long,
    )

if not cython.compiled:
    from rmqctl.store.native.memory import (
        bytes_at,
        copy,
        get_int,
        get_little_long,
        get_long,
        little_long_at,
        long_at,
        out_of_range,
        put_int,
        put_long,
        same,
        set_int,
        set_long,
    )
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


def mark_earlier(marked: WritableBytes, earlier: ReadLongs) -> None:
    """Mark each row that a marked one behind it leads to: `earlier` has its number, -1 for none."""
    row: cython.Py_ssize_t
    if not cython.compiled:
        marked, earlier = views(marked, earlier)
    with cython.nogil:
        for row in range(len(earlier) - 1, -1, -1):
            if marked[row] and earlier[row] >= 0:
                marked[earlier[row]] = 1


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
"""Bytes of a key that `UnitSlots` compares."""
MOST_ENTRIES, LARGEST_KEYS = 131072, 16777216
"""Of one block, the keys in bytes: more are in no block that RocksDB writes for RocketMQ, of 32 KiB."""
LARGEST_BLOCK = 64 << 20
_LARGEST_BLOCK = LARGEST_BLOCK
_VALUE = ROCKSDB_QUEUE_UNIT.size
_MOST_ENTRIES, _LARGEST_KEYS = MOST_ENTRIES, LARGEST_KEYS
_HEAD, _TRAILER, _SLOT, _PUT, _LONGEST = 3, 8, 8, 1, 5
_SEQUENCES = (1 << 56) - 1
_BATCH_HEAD, _DELETION_IN_FAMILY, _PUT_IN_FAMILY = 12, 4, 5


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
    shared: cython.longlong
    unshared: cython.longlong
    following: cython.longlong
    size: cython.longlong = 0
    count: cython.longlong = 0
    keys: cython.longlong = 0
    if not cython.compiled:
        block, sizes = views(block, sizes)
    with cython.nogil:
        while 0 <= position < end:
            # of nearly all entries each number has one byte
            if position + _HEAD <= end and (block[position] | block[position + 1] | block[position + 2]) < 0x80:
                shared, unshared = block[position], block[position + 1]
                following = position + _HEAD + unshared + block[position + 2]
                if shared > size or shared + unshared < _TRAILER or following > end:
                    following = -1
                size = shared + unshared
            else:
                following = read_head(block, position, end, size, sizes)
                size = sizes[0] + sizes[1]
                if following >= 0:
                    following += sizes[1] + sizes[2]
            count += 1
            keys += size
            position = -1 if count > _MOST_ENTRIES or keys > _LARGEST_KEYS else following
    return position == end


def entries_in(
    block: Bytes, end: cython.Py_ssize_t, key: WritableBytes, sizes: Longs
) -> list[tuple[bytes, int, int, bytes]] | None:
    """Return the entries of a block, which end at `end`: user key, sequence number, kind and value. None where one is
    malformed, and for keys longer than `key` or more entries than there may be.

    `key`: LARGEST_KEY bytes to work in; `sizes`: three longs.
    """
    position: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = 0
    keys: cython.longlong = 0
    trailer: cython.longlong
    found: list[tuple[bytes, int, int, bytes]] = []
    if not cython.compiled:
        block, key, sizes = views(block, key, sizes)
    while position < end:
        position = read_head(block, position, end, size, sizes)
        size = sizes[0] + sizes[1]
        keys += size
        if position < 0 or size > len(key) or keys > _LARGEST_KEYS or len(found) >= _MOST_ENTRIES:
            return None
        copy(key, sizes[0], block, position, sizes[1])
        position += sizes[1]
        trailer = little_long_at(key, size - _TRAILER)
        value = bytes_at(block, position, sizes[2])
        found.append((bytes_at(key, 0, size - _TRAILER), trailer >> 8 & _SEQUENCES, trailer & 0xFF, value))
        position += sizes[2]
    return found


def entries_of_batch(data: Bytes) -> list[tuple[int, bytes, int, int, bytes]] | None:
    """Return the entries of a batch in a write-ahead log: family, key, sequence number below 0, kind and value. None
    where one is malformed, or neither a value nor the deletion of a single key."""
    position: cython.Py_ssize_t = _BATCH_HEAD
    end: cython.Py_ssize_t = len(data)
    below: cython.longlong
    family: cython.longlong
    size: cython.longlong
    kind: cython.int
    found: list[tuple[int, bytes, int, int, bytes]] = []
    if not cython.compiled:
        (data,) = views(data)
    if end < position:
        return None
    below = -little_long_at(data, 0)
    if below > 0 or below < -_SEQUENCES:
        return None
    while position < end:
        kind = data[position]
        position += 1
        family = 0
        if kind in (_DELETION_IN_FAMILY, _PUT_IN_FAMILY):
            family = number_at(data, position, end)
            if family < 0:
                return None
            position += family & 7
            family, kind = family >> 3, kind - _DELETION_IN_FAMILY
        elif kind > _PUT:
            return None
        size = number_at(data, position, end)
        position += size & 7
        if size < 0 or (size >> 3) > end - position:
            return None
        key = bytes_at(data, position, size >> 3)
        position += size >> 3
        value = b""
        if kind == _PUT:
            size = number_at(data, position, end)
            position += size & 7
            if size < 0 or (size >> 3) > end - position:
                return None
            value = bytes_at(data, position, size >> 3)
            position += size >> 3
        found.append((family, key, below, kind, value))
        below -= 1
    return found


def find_blocks(index: Bytes, end: cython.Py_ssize_t, is_delta: cython.bint, places: Longs) -> int:
    """Fill `places` with the entries of an index, which end at `end`: where the key begins and ends in it, and offset
    and size of the block, as many as fit in; returns how many there are. -1 where a key shares bytes with
    the one before it, and where something is malformed or too large."""
    position: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    shared: cython.longlong
    length: cython.longlong
    value: cython.longlong
    offset: cython.longlong
    size: cython.longlong
    if not cython.compiled:
        index, places = views(index, places)
    with cython.nogil:
        while 0 <= position < end:
            shared = number_at(index, position, end)
            position += shared & 7
            length = number_at(index, position, end)
            position += length & 7
            value = 0 if is_delta else number_at(index, position, end)
            position += (value & 7) + (length >> 3)
            if count * 4 + 4 <= len(places):
                places[count * 4], places[count * 4 + 1] = position - (length >> 3), position
            offset = number_at(index, position, end)
            position += offset & 7
            size = number_at(index, position, end)
            position += size & 7
            if count * 4 + 4 <= len(places):
                places[count * 4 + 2], places[count * 4 + 3] = offset >> 3, size >> 3
            count += 1
            if shared >> 3 != 0 or (length | value | offset | size) < 0 or size >> 3 > _LARGEST_BLOCK:
                position = -1
    return count if position == end else -1


@cython.final
@cython.cclass
class UnitSlots:
    """Puts the units of a queue, whose keys begin with `prefix`, into `units`, that of slot `first` at the front.

    Newer entries take the place of older ones, and deletions leave zeros.
    """

    def __init__(self, prefix: Bytes, first: cython.longlong, units: WritableBytes) -> None:
        self.prefix, self.first, self.units = prefix, first, units
        self.width = len(self.prefix) + _SLOT + _TRAILER
        # the sequence number of what each slot holds, -1 for nothing
        self.sequences = array("q", (-1,)) * (len(units) // _UNIT)
        # the key of the last entry
        self.key, self.size = bytearray(LARGEST_KEY), 0
        self.is_of_queue = False
        self.sizes = array("q", (0, 0, 0))
        if not cython.compiled:
            self.prefix, self.units, self.sequences = views(prefix, units, self.sequences)

    def place(self, block: Bytes, end: cython.Py_ssize_t) -> bool:
        """Take in a block, whose entries end at `end`; False where one of the queue is not of a unit."""
        position: cython.Py_ssize_t = 0
        if not cython.compiled:
            (block,) = views(block)
        if end > len(block):
            out_of_range(end)
        self.size, self.is_of_queue = 0, False
        with cython.nogil:
            while 0 <= position < end:
                position = self.place_alike(block, position, end)
                if position < end:
                    position = self.place_one(block, position, end)
        return position == end

    def place_alike(self, block: Bytes, position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Place entries as nearly all are, and return where the next one is: their keys are there as a whole, or the
        key before is one of the queue, and all but a part of the slot's number is the same."""
        prefix: cython.Py_ssize_t = self.width - _TRAILER - _SLOT
        count: cython.Py_ssize_t = len(self.sequences)
        at: cython.Py_ssize_t = -1
        following: cython.Py_ssize_t
        left: cython.Py_ssize_t
        slot: cython.longlong
        trailer: cython.longlong
        sequence: cython.longlong
        mask: cython.longlong
        number: cython.longlong = long_at(self.key, prefix) if self.is_of_queue else 0
        while position + _HEAD <= end:
            if block[position] == 0:
                left, mask = self.width - _TRAILER, -1
            elif self.is_of_queue:
                left = prefix + _SLOT - block[position]
                if left < 0 or left >= _SLOT:
                    break
                mask = (cython.cast(cython.longlong, 1) << 8 * left) - 1
            else:
                break
            following = position + _HEAD + left + _TRAILER + _VALUE
            if block[position + 1] != left + _TRAILER or block[position + 2] != _VALUE or following > end:
                break
            if mask == -1 and not same(block, position + _HEAD, self.prefix, 0, prefix):
                break
            # the fields end before `following`, and so within the block
            trailer = get_little_long(block, position + _HEAD + left)
            if trailer & 0xFF != _PUT:
                break
            at = position + _HEAD + left
            number = number & ~mask | get_long(block, at - _SLOT) & mask
            self.is_of_queue = True
            position = following
            slot, sequence = number - self.first, trailer >> 8 & _SEQUENCES
            if 0 <= slot < count and sequence > self.sequences[slot]:
                # the same fields in the same order, with the store time after them. `units` have a place for each slot
                self.sequences[slot] = sequence
                slot *= _UNIT
                put_long(self.units, slot, get_long(block, at + _TRAILER))
                put_long(self.units, slot + 8, get_long(block, at + _TRAILER + 8))
                put_int(self.units, slot + 16, get_int(block, at + _TRAILER + 16))
        if at >= 0:
            copy(self.key, 0, self.prefix, 0, prefix)
            set_long(self.key, prefix, number)
            copy(self.key, prefix + _SLOT, block, at, _TRAILER)
            self.size = self.width
        return position

    def place_one(self, block: Bytes, position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Place any entry, and return where the next one is; -1 where it is malformed, or of the queue and not of a
        unit."""
        prefix: cython.Py_ssize_t = self.width - _TRAILER - _SLOT
        trailer: cython.longlong
        slot: cython.longlong
        position = read_head(block, position, end, self.size, self.sizes)
        if position < 0 or self.sizes[0] + self.sizes[1] > len(self.key):
            return -1
        self.size = self.sizes[0] + self.sizes[1]
        copy(self.key, self.sizes[0], block, position, self.sizes[1])
        position += self.sizes[1] + self.sizes[2]
        if self.sizes[0] < prefix or not self.is_of_queue:
            self.is_of_queue = self.size - _TRAILER >= prefix and same(self.key, 0, self.prefix, 0, prefix)
        if not self.is_of_queue:
            return position
        if self.size != self.width:
            return -1
        trailer = little_long_at(self.key, prefix + _SLOT)
        slot = long_at(self.key, prefix) - self.first
        if slot < 0 or slot >= len(self.sequences) or trailer >> 8 & _SEQUENCES <= self.sequences[slot]:
            return position
        self.sequences[slot] = trailer >> 8 & _SEQUENCES
        slot *= _UNIT
        if trailer & 0xFF != _PUT:
            set_long(self.units, slot, 0)
            set_long(self.units, slot + 8, 0)
            set_int(self.units, slot + 16, 0)
        elif self.sizes[2] == _VALUE:
            copy(self.units, slot, block, position - _VALUE, _UNIT)
        else:
            return -1
        return position
