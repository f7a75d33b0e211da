"""The kernel that takes property strings apart: `property_columns.plain_columns` for a whole batch at once.

Importing this module imports numba. Texts are read and written in whole words, so all memory that it is given has
`SPARE` bytes behind its end.
"""

from __future__ import annotations

from typing import Any

from rmqctl.formats import properties as names
from rmqctl.store.compiled.compiling import inner, kernel
from rmqctl.store.compiled.kernel_memory import byte_at, store_word, word_at
from rmqctl.store.compiled.kernel_text import find_byte, same_bytes
from rmqctl.store.scan.schema import PropertyParts

MOST_PROPERTIES = 64
"""A string of more properties is left to the plain twin: names are compared one by one."""
SCRATCH_SHAPE = (4, MOST_PROPERTIES)
SPARE = 8
DONE, TOO_MANY = 0, 1

_NAME_AT, _NAME_LENGTH, _VALUE_AT, _VALUE_LENGTH = range(4)
# numbers, not names: numba's cache would not notice that an imported constant changed
_WANT_UNIQUE, _WANT_TAGS, _WANT_KEYS, _WANT_MAP, _WANT_STORED = 1, 2, 4, 8, 16
assert tuple(map(int, PropertyParts)) == (_WANT_UNIQUE, _WANT_TAGS, _WANT_KEYS, _WANT_MAP, _WANT_STORED)
_NAME_ENDS, _PROPERTY_ENDS, _SPACES = 0x0101010101010101, 0x0202020202020202, 0x2020202020202020
_PROPERTY_END = 2


def _word(text: str) -> int:
    """The first eight bytes of a text, as `word_at` reads them."""
    return int.from_bytes(text.encode("ascii")[:8].ljust(8, b"\0"), "little")


_UNIQUE_KEY, _TAGS, _KEYS = _word(names.UNIQUE_KEY), _word(names.TAGS), _word(names.KEYS)
_UNIQUE_KEY_LENGTH, _SHORT_LENGTH, _FOUR_BYTES = len(names.UNIQUE_KEY), len(names.TAGS), (1 << 32) - 1
_TRANSIENT, _TRANSIENT_REST = _word(names.TRANSIENT_PREFIX), _word(names.TRANSIENT_PREFIX[8:])
_TRANSIENT_LENGTH = len(names.TRANSIENT_PREFIX)
assert (len(names.KEYS), _UNIQUE_KEY_LENGTH, _TRANSIENT_LENGTH) == (_SHORT_LENGTH, 8, 16)


@inner
def copied(at: int, length: int, data: int, used: int) -> int:
    """Append bytes to what is at `data`; how much of it is used then."""
    target = data + used
    moved = 0
    while moved < length:
        store_word(target + moved, word_at(at + moved))
        moved += 8
    return used + length


@inner
def split_string(at: int, length: int, found: Any, before: int) -> tuple[int, bool]:
    """Properties of one string into `found`; their number, -1 for too many, and whether they give the string back.

    (parse_properties, encode_properties) `before`: of how many properties the first names are in `found` already, of a
    string that they give back. Most strings have the names of the one before them: then none is searched.
    """
    count = 0
    end = at + length
    exact = length == 0 or byte_at(end - 1) == _PROPERTY_END
    while at < end:
        if count < before and at + found[_NAME_LENGTH, count] + 1 < end:
            name_length = found[_NAME_LENGTH, count]
            if same_bytes(found[_NAME_AT, count], at, name_length + 1):
                value_at = at + name_length + 1
                stop = find_byte(value_at, end, _PROPERTY_ENDS)
                if stop > value_at:
                    found[_NAME_AT, count] = at
                    found[_VALUE_AT, count] = value_at
                    found[_VALUE_LENGTH, count] = stop - value_at
                    count += 1
                    at = stop + 1
                    continue
        before = 0
        stop = find_byte(at, end, _PROPERTY_ENDS)
        name_end = find_byte(at, stop, _NAME_ENDS)
        if name_end == at or name_end + 1 >= stop:
            exact = False  # without a name or without a value
            at = stop + 1
            continue
        name_length = name_end - at
        if name_length >= _TRANSIENT_LENGTH and word_at(at) == _TRANSIENT and word_at(at + 8) == _TRANSIENT_REST:
            exact = False
        entry = 0
        while entry < count:
            if found[_NAME_LENGTH, entry] == name_length and same_bytes(found[_NAME_AT, entry], at, name_length):
                break
            entry += 1
        if entry < count:
            exact = False  # a later one wins, in the place of the first
        elif count == MOST_PROPERTIES:
            return -1, False
        else:
            count += 1
            found[_NAME_AT, entry] = at
            found[_NAME_LENGTH, entry] = name_length
        found[_VALUE_AT, entry] = name_end + 1
        found[_VALUE_LENGTH, entry] = stop - name_end - 1
        at = stop + 1
    return count, exact


@inner
def split_keys(at: int, length: int, data: int, offsets: Any, keys: int) -> int:
    """Append the keys of a KEYS value; their number then. (rmqctl.formats.properties.split_keys)"""
    end = at + length
    while at < end:
        stop = find_byte(at, end, _SPACES)
        if stop > at:
            offsets[keys + 1] = copied(at, stop - at, data, offsets[keys])
            keys += 1
        at = stop + 1
    return keys


def make_kernels(stamp: int) -> tuple[Any]:
    """`split_properties`; see `compiling.load_kernels`."""

    @kernel
    def split_properties(
        window: int, positions: Any, lengths: Any, wanted: int, found: Any,
        unique_offsets: Any, unique_data: int, unique_present: Any,
        tag_offsets: Any, tag_data: int, tag_present: Any,
        key_rows: Any, key_offsets: Any, key_data: int,
        map_rows: Any, name_offsets: Any, name_data: int, value_offsets: Any, value_data: int,
        stored_offsets: Any, stored_data: int, stored_present: Any,
    ) -> int:  # fmt: skip
        """Fills the columns that `wanted` asks for; the arrays of others may be empty. Data is given by address."""
        found[0, 0] = stamp
        unique = tag = name = value = stored = keys = entries = before = 0
        for row in range(len(positions)):
            at, length = window + positions[row], lengths[row]
            count, exact = split_string(at, length, found, before)
            if count < 0:
                return TOO_MANY
            before = count if exact else 0
            for entry in range(count):
                name_at, name_length = found[_NAME_AT, entry], found[_NAME_LENGTH, entry]
                value_at, value_length = found[_VALUE_AT, entry], found[_VALUE_LENGTH, entry]
                if wanted & _WANT_MAP:
                    name = copied(name_at, name_length, name_data, name)
                    value = copied(value_at, value_length, value_data, value)
                    entries += 1
                    name_offsets[entries] = name
                    value_offsets[entries] = value
                word = word_at(name_at)
                if name_length == _UNIQUE_KEY_LENGTH and word == _UNIQUE_KEY:
                    if wanted & _WANT_UNIQUE:
                        unique = copied(value_at, value_length, unique_data, unique)
                        unique_present[row] = True
                elif name_length == _SHORT_LENGTH and word & _FOUR_BYTES == _TAGS:
                    if wanted & _WANT_TAGS:
                        tag = copied(value_at, value_length, tag_data, tag)
                        tag_present[row] = True
                elif name_length == _SHORT_LENGTH and word & _FOUR_BYTES == _KEYS and wanted & _WANT_KEYS:
                    keys = split_keys(value_at, value_length, key_data, key_offsets, keys)
            if wanted & _WANT_UNIQUE:
                unique_offsets[row + 1] = unique
            if wanted & _WANT_TAGS:
                tag_offsets[row + 1] = tag
            if wanted & _WANT_KEYS:
                key_rows[row + 1] = keys
            if wanted & _WANT_MAP:
                map_rows[row + 1] = entries
            if wanted & _WANT_STORED:
                if not exact:
                    stored = copied(at, length, stored_data, stored)
                    stored_present[row] = True
                stored_offsets[row + 1] = stored
        return DONE

    return (split_properties,)
