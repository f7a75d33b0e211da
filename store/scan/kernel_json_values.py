"""What kernels take values of JSON apart with: texts, base64, numbers. What is read and written to has `SPARE` bytes
behind its end.

Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

from rmqctl.store.compiled.compiling import inner
from rmqctl.store.compiled.kernel_memory import byte_at, copy_bytes, set_byte, store_word, word_at, zeros_below
from rmqctl.store.compiled.kernel_text import find_byte

SPARE = 8

_HIGH_BITS = 0x8080808080808080 - (1 << 64)
_ONES = 0x0101010101010101
_SPACES, _QUOTES, _BACKSLASHES = 0x20 * _ONES, 0x22 * _ONES, 0x5C * _ONES
_SPACE, _TAB, _RETURN, _QUOTE, _BACKSLASH, _MINUS, _PLUS, _POINT, _EQUALS = map(ord, ' \t\r"\\-+.=')
_ZERO, _NINE, _SMALL_E, _LARGE_E, _SMALL_U, _SMALL_F = map(ord, "09eEuf")
_FOUR_BYTES = (1 << 32) - 1
_NULL_WORD, _TRUE_WORD, _FALSE_WORD = (int.from_bytes(word, "little") for word in (b"null", b"true", b"alse"))
_MOST_DIGITS = 18


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
        found = ((word - _SPACES) & ~word | (quote - _ONES) & ~quote | (backslash - _ONES) & ~backslash) & _HIGH_BITS
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
    if first == _SMALL_F:
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
