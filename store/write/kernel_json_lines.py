"""The kernel that reads lines of JSON, one message each, into columns. Which fields there are is up to the caller.

It takes what is written plainly and leaves every other line to who asked: what is no JSON, what a field cannot hold, a
field that comes twice, a line of unknown fields. Importing this module imports numba. What is read and what is written to
has `SPARE` bytes behind its end.
"""

from __future__ import annotations

from typing import Any

from store.columns.compiling import inner, kernel
from store.columns.kernel_memory import byte_at, copy_bytes, set_byte, store_word, word_at, zeros_below
from store.columns.kernel_text import find_byte, is_utf8, same_bytes

SPARE = 8
IGNORED, NUMBER, TEXT, BASE64, NULL, KEYS, MAP = range(7)
"""Kinds of fields. What is IGNORED may be any text, number, true, false or null."""

NEEDED, NOT_EMPTY = 1, 2
"""What is asked of a text."""

ROWS, LINES, ODD = range(3)
"""What the kernel answers: rows in the columns, lines seen, and lines that are left."""

# numbers, not names: numba's cache would not notice that an imported constant changed
_NUMBER, _TEXT, _BASE64, _NULL, _KEYS, _MAP = 1, 2, 3, 4, 5, 6
_NEEDED, _NOT_EMPTY = 1, 2
assert (_NUMBER, _TEXT, _BASE64, _NULL, _KEYS, _MAP) == (NUMBER, TEXT, BASE64, NULL, KEYS, MAP)
assert (_NEEDED, _NOT_EMPTY) == (NEEDED, NOT_EMPTY)
_HIGH_BITS = 0x8080808080808080 - (1 << 64)
_ONES = 0x0101010101010101
_SPACES, _QUOTES, _BACKSLASHES, _NEWLINES = 0x20 * _ONES, 0x22 * _ONES, 0x5C * _ONES, 0x0A * _ONES
_SPACE, _TAB, _RETURN, _QUOTE, _BACKSLASH, _COLON, _COMMA, _MINUS, _PLUS, _POINT, _EQUALS = map(ord, ' \t\r"\\:,-+.=')
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST, _ZERO, _NINE, _SMALL_E, _LARGE_E, _SMALL_U = map(ord, "{}[]09eEu")
_FOUR_BYTES = (1 << 32) - 1
_NULL_WORD, _TRUE_WORD, _FALSE_WORD = (int.from_bytes(word, "little") for word in (b"null", b"true", b"alse"))
_MOST_DIGITS = 18
# separators of the property string, which no part of it may hold
_LAST_SEPARATOR = 2


@inner
def skip_spaces(at: int, end: int) -> int:
    """Address of what follows blanks, tabs and carriage returns."""
    while at < end:
        byte = byte_at(at)
        if byte not in (_SPACE, _TAB, _RETURN):
            break
        at += 1
    return at


@inner
def hex_unit(at: int) -> int:
    """The number of four hex digits, -1 where there are others."""
    unit = 0
    for place in range(4):
        byte = byte_at(at + place)
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= byte <= 102:
            digit = byte - 87
        elif 65 <= byte <= 70:
            digit = byte - 55
        else:
            return -1
        unit = unit << 4 | digit
    return unit


@inner
def text_end(at: int, end: int) -> tuple[int, bool]:
    """Where the quote stands that ends the text from `at` on, -1 for no text of JSON; whether escapes are in it."""
    escaped = False
    while at < end:
        word = word_at(at)
        quote, backslash = word ^ _QUOTES, word ^ _BACKSLASHES
        found = (
            (word - _SPACES) & ~word | (quote - _ONES) & ~quote | (backslash - _ONES) & ~backslash
        ) & _HIGH_BITS
        if not found:
            at += 8
            continue
        at += zeros_below(found) >> 3
        if at >= end:
            return -1, escaped
        byte = byte_at(at)
        if byte == _QUOTE:
            return at, escaped
        if byte != _BACKSLASH or at + 1 >= end:
            return -1, escaped
        escaped = True
        letter = byte_at(at + 1)
        if letter == _SMALL_U:
            if end - at < 6 or hex_unit(at + 2) < 0:
                return -1, escaped
            at += 6
        elif plain_of(letter) >= 0:
            at += 2
        else:
            return -1, escaped
    return -1, escaped


@inner
def plain_of(letter: int) -> int:
    """The byte that a letter behind a backslash stands for, -1 for none."""
    if letter in (34, 92, 47):
        return letter
    if letter == 110:
        return 10
    if letter == 116:
        return 9
    if letter == 114:
        return 13
    if letter == 98:
        return 8
    return 12 if letter == 102 else -1


@inner
def unescaped(at: int, end: int, target: int) -> int:
    """Write what a text that text_end has passed means, as UTF-8; its bytes, -1 for half a surrogate pair."""
    used = 0
    while at < end:
        # most runs are short: the bytes behind them are copied along, and written over
        word = word_at(at)
        store_word(target + used, word)
        backslash = word ^ _BACKSLASHES
        found = (backslash - _ONES) & ~backslash & _HIGH_BITS
        stop = min(at + (zeros_below(found) >> 3 if found else 8), end)
        used += stop - at
        if not found or stop == end:
            at = stop
            continue
        letter = byte_at(stop + 1)
        if letter != _SMALL_U:
            set_byte(target + used, plain_of(letter))
            used += 1
            at = stop + 2
            continue
        point = hex_unit(stop + 2)
        at = stop + 6
        if 0xD800 <= point < 0xE000:
            low = hex_unit(at + 2) if end - at >= 6 and byte_at(at) == _BACKSLASH and byte_at(at + 1) == _SMALL_U else 0
            if point >= 0xDC00 or not 0xDC00 <= low < 0xE000:
                return -1
            point = 0x10000 + ((point & 0x3FF) << 10 | low & 0x3FF)
            at += 6
        used += set_utf8(target + used, point)
    return used


@inner
def set_utf8(target: int, point: int) -> int:
    """Write a code point; its bytes."""
    if point < 0x80:
        set_byte(target, point)
        return 1
    if point < 0x800:
        set_byte(target, 0xC0 | point >> 6)
        set_byte(target + 1, 0x80 | point & 0x3F)
        return 2
    if point < 0x10000:
        set_byte(target, 0xE0 | point >> 12)
        set_byte(target + 1, 0x80 | point >> 6 & 0x3F)
        set_byte(target + 2, 0x80 | point & 0x3F)
        return 3
    set_byte(target, 0xF0 | point >> 18)
    set_byte(target + 1, 0x80 | point >> 12 & 0x3F)
    set_byte(target + 2, 0x80 | point >> 6 & 0x3F)
    set_byte(target + 3, 0x80 | point & 0x3F)
    return 4


@inner
def text_into(at: int, end: int, target: int) -> tuple[int, int]:
    """The text whose first quote is at `at`, written to `target`: what follows its last quote, -1 where it is none or
    means nothing; and its bytes."""
    if at >= end or byte_at(at) != _QUOTE:
        return -1, 0
    stop, escaped = text_end(at + 1, end)
    if stop < 0:
        return -1, 0
    if not escaped:
        copy_bytes(target, at + 1, stop - at - 1)
        return stop + 1, stop - at - 1
    length = unescaped(at + 1, stop, target)
    return (stop + 1, length) if length >= 0 else (-1, 0)


@inner
def has_separator(at: int, length: int) -> bool:
    """Whether a text holds a separator of the property string, which only an escape can have brought, or NUL."""
    for place in range(length):
        if byte_at(at + place) <= _LAST_SEPARATOR:
            return True
    return False


@inner
def base64_into(at: int, end: int, digits: Any, target: int) -> tuple[int, int]:
    """The bytes that a text of base64 stands for, as text_into."""
    if at >= end or byte_at(at) != _QUOTE:
        return -1, 0
    at += 1
    stop = find_byte(at, end, _QUOTES)
    length = stop - at
    if stop == end or length & 3:
        return -1, 0
    padding = 0
    while padding < 2 and padding < length and byte_at(stop - 1 - padding) == _EQUALS:
        padding += 1
    used = 0
    for group in range(at, stop, 4):
        word = wrong = 0
        for place in range(4):
            digit = digits[byte_at(group + place)]
            if digit < 0 and group + place >= stop - padding:
                digit = 0
            wrong |= digit
            word = word << 6 | digit
        if wrong < 0:
            return -1, 0
        left = 3 - (padding if group + 4 == stop else 0)
        for place in range(left):
            set_byte(target + used + place, word >> (16 - 8 * place) & 0xFF)
        if left < 3 and word & ((1 << (8 * (3 - left))) - 1):
            return -1, 0
        used += left
    return stop + 1, used


@inner
def digits_end(at: int, end: int) -> int:
    """Where digits from `at` on end."""
    while at < end and _ZERO <= byte_at(at) <= _NINE:
        at += 1
    return at


@inner
def whole_number(at: int, end: int) -> tuple[int, int]:
    """What follows the number at `at`, -1 where it is none, no whole one or a long one; and the number."""
    begin = at + 1 if at < end and byte_at(at) == _MINUS else at
    stop = digits_end(begin, end)
    if stop == begin or stop - begin > _MOST_DIGITS or (stop - begin > 1 and byte_at(begin) == _ZERO):
        return -1, 0
    if stop < end and byte_at(stop) in (_POINT, _SMALL_E, _LARGE_E):
        return -1, 0
    number = 0
    for place in range(begin, stop):
        number = number * 10 + byte_at(place) - _ZERO
    return stop, number if begin == at else -number


@inner
def value_end(at: int, end: int) -> int:
    """What follows a text, a number, true, false or null; -1 for anything else."""
    if at >= end:
        return -1
    first = byte_at(at)
    if first == _QUOTE:
        stop, _ = text_end(at + 1, end)
        return stop + 1 if stop >= 0 else -1
    word = word_at(at) & _FOUR_BYTES
    if word in (_NULL_WORD, _TRUE_WORD):
        return at + 4 if at + 4 <= end else -1
    if first == 102:
        return at + 5 if word_at(at + 1) & _FOUR_BYTES == _FALSE_WORD and at + 5 <= end else -1
    begin = at + 1 if first == _MINUS else at
    stop = digits_end(begin, end)
    if stop == begin or (stop - begin > 1 and byte_at(begin) == _ZERO):
        return -1
    if stop < end and byte_at(stop) == _POINT:
        begin = stop + 1
        stop = digits_end(begin, end)
        if stop == begin:
            return -1
    if stop < end and byte_at(stop) in (_SMALL_E, _LARGE_E):
        begin = stop + 1
        if begin < end and byte_at(begin) in (_PLUS, _MINUS):
            begin += 1
        stop = digits_end(begin, end)
        if stop == begin:
            return -1
    return stop


@inner
def is_null(at: int, end: int) -> bool:
    """Whether null stands there."""
    return at + 4 <= end and word_at(at) & _FOUR_BYTES == _NULL_WORD


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
            if not (is_null(at, end) and limits[2, slot]):
                at, number = whole_number(at, end)
                if at < 0 or number < limits[0, slot] or number > limits[1, slot]:
                    return -1
                numbers[slot, row], has_number[slot, row] = number, True
            else:
                at += 4
        elif kind not in (_TEXT, _BASE64, _NULL, _KEYS, _MAP):
            at = value_end(at, end)
        elif is_null(at, end):
            at += 4
        elif kind == _KEYS:
            at = keys_into(at, end, used, list_offsets, list_data)
        elif kind == _MAP:
            at = map_into(at, end, used, list_offsets, list_data)
            has_map[row] = True
        elif kind == _NULL or has_text[slot, row]:
            return -1
        else:
            target = data[slot] + offsets[slot, row]
            if kind == _TEXT:
                at, length = text_into(at, end, target)
            else:
                at, length = base64_into(at, end, digits, target)
            if at < 0 or (not length and rules[slot] & _NOT_EMPTY):
                return -1
            if slot == tags and has_separator(target, length):
                return -1
            offsets[slot, row + 1] += length
            has_text[slot, row] = True
        if at < 0:
            return -1
        at = skip_spaces(at, end)
        if at >= end or byte_at(at) not in (_COMMA, _CLOSE):
            return -1
        if byte_at(at) == _CLOSE:
            return at + 1


def make_read_lines(stamp: int) -> Any:
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
        -1; `rules`: by text whether it is NEEDED or may be NOT_EMPTY; `tags`: the text that counts, as keys do, only
        where there is no map; `needed_numbers`: what no row may lack. By number and text `numbers`, `offsets` into `data`,
        and whether they are there; by keys and map `list_rows`, and offsets of keys, names and values into
        `list_data`. `line_of`: by row its line; `odd`: line, begin and end of lines that are left. All from 0.
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
                    begin, stop, row, names, edges, fields, limits, digits, rules, tags, numbers, has_number, offsets, data,
                    has_text, used, has_map, list_offsets, list_data,
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

    return read_lines
