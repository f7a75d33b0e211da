"""The kernel that reads lines of JSON, one message each, into columns. Which fields there are is up to the caller.

It takes what is written plainly and leaves every other line to who asked: what is no JSON, what a field cannot hold, a
field that comes twice, a line of unknown fields. Importing this module imports numba. What is read and what is written
to has `SPARE` bytes behind its end.
"""

from __future__ import annotations

from typing import Any

from rmqctl.store.compiled.compiling import inner, kernel
from rmqctl.store.compiled.kernel_memory import byte_at
from rmqctl.store.compiled.kernel_text import find_byte, is_utf8, same_bytes
from rmqctl.store.scan.kernel_json_values import (
    SPARE,
    base64_into,
    is_null,
    skip_spaces,
    text_into,
    value_end,
    whole_number,
)

__all__ = ["SPARE"]

IGNORED, NUMBER, TEXT, BASE64, NULL, KEYS, MAP, LENGTH = range(8)
"""Kinds of fields. What is IGNORED may be any text, number, true, false or null; of LENGTH is a text of which only the
length counts, as a number of bytes as they are written."""

NEEDED, NOT_EMPTY = 1, 2
"""What is asked of a text."""

ROWS, LINES, ODD = range(3)
"""What the kernel answers: rows in the columns, lines seen, and lines that are left."""

# numbers, not names: numba's cache would not notice that an imported constant changed
_IGNORED, _NUMBER, _TEXT, _BASE64, _NULL, _KEYS, _MAP, _LENGTH = range(8)
_NEEDED, _NOT_EMPTY = 1, 2
_NEWLINES, _QUOTES = 0x0A * 0x0101010101010101, 0x22 * 0x0101010101010101
_SPACE, _QUOTE, _COLON, _COMMA, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = map(ord, ' ":,{}[]')
# separators of the property string, which no part of it may hold
_LAST_SEPARATOR = 2


@inner
def has_separator(at: int, length: int) -> bool:
    """Whether a text holds a separator of the property string, which only an escape can have brought, or NUL."""
    end = at + length
    while at < end and byte_at(at) > _LAST_SEPARATOR:
        at += 1
    return at < end


@inner
def keys_into(at: int, end: int, used: Any, offsets: Any, data: Any) -> int:
    """A list of texts without spaces; what follows it, -1 where it is none. used[0]: keys, used[1]: their bytes."""
    if at >= end or byte_at(at) != _OPEN_LIST:
        return -1
    at = skip_spaces(at + 1, end)
    if at < end and byte_at(at) == _CLOSE_LIST:
        return at + 1
    while True:
        target = data[0] + used[1]
        at, length = text_into(at, end, target)
        if at < 0 or not length or has_separator(target, length):
            return -1
        for place in range(length):
            if byte_at(target + place) == _SPACE:
                return -1
        used[0] += 1
        used[1] += length
        offsets[0, used[0]] = used[1]
        at = skip_spaces(at, end)
        if at >= end or byte_at(at) not in (_COMMA, _CLOSE_LIST):
            return -1
        if byte_at(at) == _CLOSE_LIST:
            return at + 1
        at = skip_spaces(at + 1, end)


@inner
def map_into(at: int, end: int, used: Any, offsets: Any, data: Any) -> int:
    """An object of texts; what follows it, -1 where it is none. used[2]: entries, used[3] and [4]: bytes of names and
    values."""
    if at >= end or byte_at(at) != _OPEN:
        return -1
    at = skip_spaces(at + 1, end)
    if at < end and byte_at(at) == _CLOSE:
        return at + 1
    while True:
        for side in (1, 2):
            target = data[side] + used[2 + side]
            at, length = text_into(at, end, target)
            if at < 0 or not length or has_separator(target, length):
                return -1
            used[2 + side] += length
            at = skip_spaces(at, end)
            if side == 1:
                if at >= end or byte_at(at) != _COLON:
                    return -1
                at = skip_spaces(at + 1, end)
        used[2] += 1
        offsets[1, used[2]] = used[3]
        offsets[2, used[2]] = used[4]
        if at >= end or byte_at(at) not in (_COMMA, _CLOSE):
            return -1
        if byte_at(at) == _CLOSE:
            return at + 1
        at = skip_spaces(at + 1, end)


@inner
def field_of(at: int, length: int, expected: int, names: int, edges: Any) -> int:
    """The number of the field of this name, -1 for none; it is the `expected` one most of the time."""
    count = len(edges) - 1
    for step in range(count):
        field = (expected + step) % count
        if edges[field + 1] - edges[field] == length and same_bytes(at, names + edges[field], length):
            return field
    return -1


@inner
def number_into(at: int, end: int, row: int, slot: int, limits: Any, numbers: Any, has_number: Any) -> int:
    """A number within its limits; what follows it, -1 where it is none."""
    if limits[2, slot] and is_null(at, end):
        return at + 4
    at, number = whole_number(at, end)
    if at < 0 or number < limits[0, slot] or number > limits[1, slot]:
        return -1
    numbers[slot, row], has_number[slot, row] = number, True
    return at


@inner
def length_into(at: int, end: int, row: int, slot: int, numbers: Any, has_number: Any) -> int:
    """The length of a text, or null; what follows it, -1 where it is neither."""
    if is_null(at, end):
        return at + 4
    if at >= end or byte_at(at) != _QUOTE:
        return -1
    stop = value_end(at, end)
    if stop >= 0:
        numbers[slot, row], has_number[slot, row] = stop - at - 2, True
    return stop


@inner
def value_into(
    at: int, end: int, row: int, kind: int, slot: int, digits: Any, rules: Any, tags: int,
    offsets: Any, data: Any, has_text: Any, used: Any, has_map: Any, list_offsets: Any, list_data: Any,
) -> int:  # fmt: skip
    """A value of another kind than a number, null included; what follows it, -1 where it is not taken."""
    if is_null(at, end):
        return at + 4
    if kind == _KEYS:
        return keys_into(at, end, used, list_offsets, list_data)
    if kind == _MAP:
        has_map[row] = True
        return map_into(at, end, used, list_offsets, list_data)
    if kind == _NULL or has_text[slot, row]:
        return -1
    target = data[slot] + offsets[slot, row]
    if kind == _TEXT:
        at, length = text_into(at, end, target)
    else:
        at, length = base64_into(at, end, digits, target)
    if at < 0 or (not length and rules[slot] & _NOT_EMPTY) or (slot == tags and has_separator(target, length)):
        return -1
    offsets[slot, row + 1] += length
    has_text[slot, row] = True
    return at


@inner
def object_into(
    at: int, end: int, row: int, names: int, edges: Any, fields: Any, limits: Any, digits: Any, rules: Any, tags: int,
    numbers: Any, has_number: Any, offsets: Any, data: Any, has_text: Any,
    used: Any, has_map: Any, list_offsets: Any, list_data: Any,
) -> int:  # fmt: skip
    """The object at `at` as a row; what follows it, -1 where it is not taken. See read_lines."""
    if at >= end or byte_at(at) != _OPEN:
        return -1
    seen = expected = 0
    while True:
        at = skip_spaces(at + 1, end)
        if at >= end or byte_at(at) != _QUOTE:
            return -1
        stop = find_byte(at + 1, end, _QUOTES)
        field = field_of(at + 1, stop - at - 1, expected, names, edges)
        if field < 0 or stop == end or seen >> field & 1:
            return -1
        seen |= 1 << field
        expected = field + 1
        at = skip_spaces(stop + 1, end)
        if at >= end or byte_at(at) != _COLON:
            return -1
        at = skip_spaces(at + 1, end)
        kind, slot = fields[0, field], fields[1, field]
        if kind == _NUMBER:
            at = number_into(at, end, row, slot, limits, numbers, has_number)
        elif kind == _IGNORED:
            at = value_end(at, end)
        elif kind == _LENGTH:
            at = length_into(at, end, row, slot, numbers, has_number)
        else:
            at = value_into(
                at, end, row, kind, slot, digits, rules, tags, offsets, data, has_text,
                used, has_map, list_offsets, list_data,
            )  # fmt: skip
        if at < 0:
            return -1
        at = skip_spaces(at, end)
        if at >= end or byte_at(at) not in (_COMMA, _CLOSE):
            return -1
        if byte_at(at) == _CLOSE:
            return at + 1


def make_kernels(stamp: int) -> tuple[Any]:
    """The kernel; `stamp` is `compiling.source_stamp()`, so that code of an older source is never taken."""

    @kernel
    def read_lines(
        text: int, length: int, names: int, edges: Any, fields: Any, limits: Any, digits: Any, rules: Any, tags: int,
        needed_numbers: Any,
        numbers: Any, has_number: Any, offsets: Any, data: Any, has_text: Any,
        list_rows: Any, used: Any, has_map: Any, list_offsets: Any, list_data: Any,
        line_of: Any, odd: Any, answer: Any,
    ) -> int:  # fmt: skip
        """Fills the columns from all lines of a text.

        `edges`: of the fields' `names`; `fields`: by field its kind and its place in the columns of that kind;
        `limits`: by number the least, the most and whether it may be null; `digits`: by byte its value in base64, or
        -1; `rules`: by text whether it is NEEDED or NOT_EMPTY; `tags`: the text that counts, as keys do, only where
        there is no map; `needed_numbers`: what no row may lack. By number and text `numbers`, `offsets` into `data`,
        and whether they are there; by keys and map `list_rows`, and offsets of keys, names and values into `list_data`.
        `line_of`: by row its line; `odd`: line, begin and end of lines that are left. All from 0.
        """
        row = line = left = 0
        at, end = text, text + length
        while at < end:
            stop = find_byte(at, end, _NEWLINES)
            begin = skip_spaces(at, stop)
            if begin == stop:
                line += 1
                at = stop + 1
                continue
            for slot in range(len(numbers)):
                numbers[slot, row], has_number[slot, row] = 0, False
            for slot in range(len(offsets)):
                offsets[slot, row + 1], has_text[slot, row] = offsets[slot, row], False
            used[0], used[2], has_map[row] = list_rows[0, row], list_rows[1, row], False
            used[1], used[3], used[4] = list_offsets[0, used[0]], list_offsets[1, used[2]], list_offsets[2, used[2]]
            good = is_utf8(at, stop - at)
            if good:
                behind = object_into(
                    begin, stop, row, names, edges, fields, limits, digits, rules, tags, numbers, has_number,
                    offsets, data, has_text, used, has_map, list_offsets, list_data,
                )  # fmt: skip
                good = behind >= 0 and skip_spaces(behind, stop) == stop
            for slot in range(len(numbers)):
                good = good and (has_number[slot, row] or not needed_numbers[slot])
            for slot in range(len(offsets)):
                good = good and (has_text[slot, row] or not rules[slot] & _NEEDED)
            if good:
                if has_map[row]:
                    used[0] = list_rows[0, row]
                    offsets[tags, row + 1], has_text[tags, row] = offsets[tags, row], False
                list_rows[0, row + 1], list_rows[1, row + 1] = used[0], used[2]
                line_of[row] = line
                row += 1
            else:
                odd[0, left], odd[1, left], odd[2, left] = line, at - text, stop - text
                left += 1
            line += 1
            at = stop + 1
        answer[0], answer[1], answer[2] = row, line, left
        return stamp

    return (read_lines,)
