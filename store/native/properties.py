"""Property strings: taken apart into columns, and written for many messages that have the same names.

What the plain calls of formats/properties say of one string (parse_properties, split_keys, encode_properties) is said
here of many.
"""

from __future__ import annotations

from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import copy, find, same
    from cython.cimports.rmqctl.store.native.views import Bytes, IntRows, LongRows, Longs, ReadInts, WritableBytes
if not cython.compiled:
    from rmqctl.store.native.memory import copy, find, same
    from rmqctl.store.native.uncompiled import Bytes, IntRows, LongRows, Longs, ReadInts, WritableBytes

MOST_PROPERTIES = 64
"""A string of more properties is left to parse_properties: names are compared one by one."""
FOUND_ROWS = 5
"""Rows of the table that `split` fills, of MOST_PROPERTIES places each."""

UNIQUE_KEY, TAGS, KEYS, MAP, STORED = 1, 2, 4, 8, 16
"""What split_properties is asked for."""
UNIQUE_ENDS, TAG_ENDS, KEY_COUNTS, MAP_COUNTS, STORED_ENDS = range(5)
"""Rows of its table of ends."""
KEY_ENDS, NAME_ENDS, VALUE_ENDS = range(3)
"""Rows of its table of the ends of single keys, names and values."""

_MOST = cython.declare(cython.Py_ssize_t, 64)
_NAME_AT = cython.declare(cython.Py_ssize_t, 0)
_NAME_END = cython.declare(cython.Py_ssize_t, 1)
_VALUE_AT = cython.declare(cython.Py_ssize_t, 2)
_VALUE_END = cython.declare(cython.Py_ssize_t, 3)
_EXACT = cython.declare(cython.Py_ssize_t, 4)
_NAME_SEPARATOR = cython.declare(cython.uchar, 1)
_PROPERTY_SEPARATOR = cython.declare(cython.uchar, 2)
_WANT_UNIQUE = cython.declare(cython.int, 1)
_WANT_TAGS = cython.declare(cython.int, 2)
_WANT_KEYS = cython.declare(cython.int, 4)
_WANT_MAP = cython.declare(cython.int, 8)
_WANT_STORED = cython.declare(cython.int, 16)
_SPACE = cython.declare(cython.uchar, 32)

_UNIQUE_NAME = cython.declare(Bytes, b"UNIQ_KEY")
_TAGS_NAME = cython.declare(Bytes, b"TAGS")
_KEYS_NAME = cython.declare(Bytes, b"KEYS")
_TRANSIENT = cython.declare(Bytes, b"__RMQ.TRANSIENT.")


def is_named(view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, name: Bytes) -> cython.bint:
    """Whether the bytes [at, end) are this name."""
    return end - at == len(name) and same(view, at, name, 0, len(name))


def place_of(
    view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, found: LongRows, count: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Index of the name [at, end) among the first `count` found; `count` if it is not among them."""
    entry: cython.Py_ssize_t = 0
    while entry < count:
        if found[_NAME_END, entry] - found[_NAME_AT, entry] == end - at and same(
            view, found[_NAME_AT, entry], view, at, end - at
        ):
            break
        entry += 1
    return entry


def follows_suit(
    view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, found: LongRows, entry: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return what follows the property at `at`, if it has the name and the separator that `found` has at `entry`, and a
    value; else 0."""
    length: cython.Py_ssize_t = found[_NAME_END, entry] - found[_NAME_AT, entry] + 1
    value: cython.Py_ssize_t = at + length
    stop: cython.Py_ssize_t
    if value >= end or not same(view, found[_NAME_AT, entry], view, at, length):
        return 0
    stop = find(view, value, end, _PROPERTY_SEPARATOR)
    if stop == value:
        return 0
    found[_NAME_AT, entry], found[_NAME_END, entry] = at, value - 1
    found[_VALUE_AT, entry], found[_VALUE_END, entry] = value, stop
    return stop + 1


def split(
    view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, found: LongRows, before: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """The properties of the string [at, end) into `found`; how many, MOST_PROPERTIES + 1 where there are more.

    found[4, 0] says whether they give the string back. `before`: of how many properties the first names are in `found`
    already, of a string of this view that they give back: most strings have the names of the one before them.
    """
    count: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    name_end: cython.Py_ssize_t
    entry: cython.Py_ssize_t
    exact: cython.bint = at >= end or view[end - 1] == _PROPERTY_SEPARATOR
    while at < end:
        if count < before:
            stop = follows_suit(view, at, end, found, count)
            if stop:
                count += 1
                at = stop
                continue
        before = 0
        stop = find(view, at, end, _PROPERTY_SEPARATOR)
        name_end = find(view, at, stop, _NAME_SEPARATOR)
        if name_end == at or name_end + 1 >= stop:
            exact = False  # without a name or without a value
            at = stop + 1
            continue
        if name_end - at >= len(_TRANSIENT) and same(view, at, _TRANSIENT, 0, len(_TRANSIENT)):
            exact = False  # never written
        entry = place_of(view, at, name_end, found, count)
        if entry < count:
            exact = False  # a later one wins, in the place of the first
        elif count == _MOST:
            return _MOST + 1
        else:
            count += 1
            found[_NAME_AT, entry], found[_NAME_END, entry] = at, name_end
        found[_VALUE_AT, entry], found[_VALUE_END, entry] = name_end + 1, stop
        at = stop + 1
    found[_EXACT, 0] = exact
    return count


def put(
    target: WritableBytes, used: cython.Py_ssize_t, view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write the bytes [at, end) behind those that `target` has; how many it has then."""
    copy(target, used, view, at, end - at)
    return used + end - at


def put_keys(
    window: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, keys: WritableBytes, items: IntRows,
    count: cython.Py_ssize_t,
) -> cython.Py_ssize_t:  # fmt: skip
    """Write the keys of a KEYS value [at, end) behind the `count` that there are; how many there are then."""
    stop: cython.Py_ssize_t
    while at < end:
        stop = find(window, at, end, _SPACE)
        if stop > at:
            items[0, count + 1] = put(keys, items[0, count], window, at, stop)
            count += 1
        at = stop + 1
    return count


def put_row(
    window: Bytes, found: LongRows, count: cython.Py_ssize_t, row: cython.Py_ssize_t, rows: cython.Py_ssize_t,
    wanted: cython.int, ends: IntRows, present: WritableBytes, items: IntRows, unique: WritableBytes,
    tags: WritableBytes, keys: WritableBytes, names: WritableBytes, values: WritableBytes,
) -> cython.int:  # fmt: skip
    """Write what is wanted of the `count` properties found; see split_properties."""
    entry: cython.Py_ssize_t
    name: cython.Py_ssize_t
    name_end: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    number: cython.Py_ssize_t
    for entry in range(count):
        name, name_end = found[_NAME_AT, entry], found[_NAME_END, entry]
        at, end = found[_VALUE_AT, entry], found[_VALUE_END, entry]
        if wanted & _WANT_MAP:
            number = ends[3, row + 1]
            items[1, number + 1] = put(names, items[1, number], window, name, name_end)
            items[2, number + 1] = put(values, items[2, number], window, at, end)
            ends[3, row + 1] = number + 1
        if wanted & _WANT_UNIQUE and is_named(window, name, name_end, _UNIQUE_NAME):
            ends[0, row + 1] = put(unique, ends[0, row + 1], window, at, end)
            present[row] = True
        elif wanted & _WANT_TAGS and is_named(window, name, name_end, _TAGS_NAME):
            ends[1, row + 1] = put(tags, ends[1, row + 1], window, at, end)
            present[rows + row] = True
        elif wanted & _WANT_KEYS and is_named(window, name, name_end, _KEYS_NAME):
            ends[2, row + 1] = put_keys(window, at, end, keys, items, ends[2, row + 1])
    return 0


def put_rows(
    window: Bytes, positions: ReadInts, lengths: ReadInts, wanted: cython.int, found: LongRows,
    ends: IntRows, present: WritableBytes, items: IntRows, unique: WritableBytes, tags: WritableBytes,
    keys: WritableBytes, names: WritableBytes, values: WritableBytes, stored: WritableBytes,
) -> cython.bint:  # fmt: skip
    """See split_properties."""
    rows: cython.Py_ssize_t = len(positions)
    row: cython.Py_ssize_t
    column: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    found[_EXACT, 0] = 0
    for row in range(rows):
        at = positions[row]
        end = at + lengths[row]
        count = split(window, at, end, found, count if found[_EXACT, 0] else 0)
        if count > _MOST:
            return False
        for column in range(5):
            ends[column, row + 1] = ends[column, row]
        put_row(
            window, found, count, row, rows, wanted, ends, present, items, unique, tags, keys, names, values
        )  # fmt: skip
        if wanted & _WANT_STORED and not found[_EXACT, 0]:
            ends[4, row + 1] = put(stored, ends[4, row], window, at, end)
            present[2 * rows + row] = True
    return True


def split_properties(
    window: Bytes, positions: ReadInts, lengths: ReadInts, wanted: cython.int, found: LongRows,
    ends: IntRows, present: WritableBytes, items: IntRows, unique: WritableBytes, tags: WritableBytes,
    keys: WritableBytes, names: WritableBytes, values: WritableBytes, stored: WritableBytes,
) -> bool:  # fmt: skip
    """Fill the columns that `wanted` asks for from the strings of a window; false where one has too many properties.

    `ends`: by row where unique key, tags and stored string end, and how many keys and properties there are up to it;
    `items`: where each of these ends; all from place 1 on, with 0 at place 0. `present`: of all rows whether there is a
    unique key, then tags, then a stored string, which is there where the properties do not give it back.
    """
    with cython.nogil:
        done: cython.bint = put_rows(
            window, positions, lengths, wanted, found, ends, present, items,
            unique, tags, keys, names, values, stored,
        )  # fmt: skip
    return done


def join_rows(
    names: Bytes, name_ends: ReadInts, values: Bytes, value_ends: ReadInts, each: cython.Py_ssize_t,
    target: WritableBytes, places: Longs,
) -> cython.Py_ssize_t:  # fmt: skip
    """See join_properties."""
    used: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    place: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    for row in range(len(places) - 1):
        places[row] = used
        for place in range(each):
            at, end = name_ends[number], name_ends[number + 1]
            if end - at != name_ends[place + 1] - name_ends[place]:
                return -1
            if not same(names, at, names, name_ends[place], end - at):
                return -1
            used = put(target, used, names, at, end)
            target[used] = _NAME_SEPARATOR
            at, end = value_ends[number], value_ends[number + 1]
            if find(values, at, end, _PROPERTY_SEPARATOR) < end:
                return -1
            used = put(target, used + 1, values, at, end)
            target[used] = _PROPERTY_SEPARATOR
            used += 1
            number += 1
    places[len(places) - 1] = used
    return used


def join_properties(
    names: Bytes, name_ends: ReadInts, values: Bytes, value_ends: ReadInts, each: cython.Py_ssize_t,
    target: WritableBytes, places: Longs,
) -> int:  # fmt: skip
    """Write the `each` properties of every row; `places` gets where rows begin and where the last one ends.

    `name_ends` and `value_ends`: where the first one begins and each one ends, of all rows. Return the number of bytes;
    -1 if the rows do not all have the names of the first one, or if a value contains a separator.
    """
    with cython.nogil:
        used: cython.Py_ssize_t = join_rows(names, name_ends, values, value_ends, each, target, places)
    return used
