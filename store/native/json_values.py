"""Values of JSON in a text: where they end, and texts, bytes in base64 and numbers as what they mean.

Places are those of the text; -1 means that the value is of another kind.
"""

from __future__ import annotations

from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import copy, find, same
    from cython.cimports.rmqctl.store.native.views import Bytes, ReadInts, WritableBytes
if not cython.compiled:
    from rmqctl.store.native.memory import copy, find, same
    from rmqctl.store.native.uncompiled import Bytes, ReadInts, WritableBytes

_MOST_DIGITS = cython.declare(cython.Py_ssize_t, 18)
_QUOTE = cython.declare(cython.uchar, 34)
_BACKSLASH = cython.declare(cython.uchar, 92)
_SMALL_U = cython.declare(cython.uchar, 117)
_NO_DIGIT = cython.declare(cython.uchar, 255)
_WORDS = cython.declare(Bytes, b"nulltruefalse")


def _digits_of_base64() -> bytes:
    table = bytearray([255] * 256)
    for value, digit in enumerate(bytearray(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")):
        table[digit] = value
    return bytes(table)


# by byte what it stands for in base64
_DIGITS = cython.declare(Bytes, _digits_of_base64())


class JsonValues:
    """The text, what was written of the value that was read last, and names of fields, with `name_ends` from 0 on."""

    def __init__(self, names: Bytes, name_ends: ReadInts) -> None:
        self.text = names  # until one is read
        self.names = names
        self.name_ends = name_ends
        self.written = 0
        self.is_escaped = False
        self.number = 0

    def skip_spaces(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """What follows blanks, tabs and carriage returns."""
        while at < end and self.text[at] in (32, 9, 13):
            at += 1
        return at

    def is_word(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, word: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.bint:
        """Whether `length` bytes of _WORDS, from `word` on, stand there."""
        return end - at >= length and same(self.text, at, _WORDS, word, length)

    @cython.boundscheck(False)
    def plain_end(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Place of the first byte of [at, end) that is a control character, a quote or a backslash."""
        place: cython.Py_ssize_t
        byte: cython.uchar
        found: cython.uchar
        if at < 0 or at > end or end > len(self.text):
            raise IndexError
        # every place that is looked at is in [at, end), which lies inside
        while end - at >= 16:
            found = 0
            for place in range(16):
                byte = self.text[at + place]
                found |= (byte < 0x20) | (byte == 34) | (byte == 92)
            if found:
                break
            at += 16
        while at < end and self.text[at] >= 0x20 and self.text[at] not in (34, 92):
            at += 1
        return at

    def text_end(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Place of the quote that ends the text from `at` on; `is_escaped` says whether escapes are in it."""
        byte: cython.uchar
        self.is_escaped = False
        while True:
            at = self.plain_end(at, end)
            if at == end:
                return -1
            byte = self.text[at]
            if byte == _QUOTE:
                return at
            if byte != _BACKSLASH or end - at < 2:
                return -1
            self.is_escaped = True
            byte = self.text[at + 1]
            if byte == _SMALL_U:
                if end - at < 6 or self.hex_unit(at + 2) < 0:
                    return -1
                at += 6
            elif self.meaning(byte) == 0:
                return -1
            else:
                at += 2

    def hex_unit(self, at: cython.Py_ssize_t) -> cython.int:
        """The number of four hex digits, -1 where there are others."""
        unit: cython.int = 0
        place: cython.int
        byte: cython.int
        for place in range(4):
            byte = self.text[at + place]
            if 48 <= byte <= 57:
                byte -= 48
            elif 97 <= byte <= 102:
                byte -= 87
            elif 65 <= byte <= 70:
                byte -= 55
            else:
                return -1
            unit = unit << 4 | byte
        return unit

    def meaning(self, letter: cython.uchar) -> cython.uchar:
        """Return the byte that a letter after a backslash represents, 0 if invalid."""
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
        return 12 if letter == 102 else 0

    def text_into(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, target: WritableBytes, to: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """What follows the text at `at`; what it means is `written` to `target` from `to` on."""
        stop: cython.Py_ssize_t
        if at >= end or self.text[at] != _QUOTE:
            return -1
        at += 1
        stop = self.text_end(at, end)
        if stop < 0:
            return -1
        if not self.is_escaped:
            copy(target, to, self.text, at, stop - at)
            self.written = stop - at
            return stop + 1
        self.written = 0
        return stop + 1 if self.unescape(at, stop, target, to) else -1

    def unescape(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, target: WritableBytes, to: cython.Py_ssize_t
    ) -> cython.int:
        """Write what a text that text_end has passed means, as UTF-8; false for half a surrogate pair."""
        begin: cython.Py_ssize_t = to
        stop: cython.Py_ssize_t
        point: cython.int
        low: cython.int
        while True:
            stop = find(self.text, at, end, _BACKSLASH)
            copy(target, to, self.text, at, stop - at)
            to += stop - at
            if stop == end:
                break
            if self.text[stop + 1] != _SMALL_U:
                target[to] = self.meaning(self.text[stop + 1])
                to += 1
                at = stop + 2
                continue
            point = self.hex_unit(stop + 2)
            at = stop + 6
            if 0xD800 <= point < 0xE000:
                if point >= 0xDC00 or end - at < 6 or self.text[at] != _BACKSLASH or self.text[at + 1] != _SMALL_U:
                    return False
                low = self.hex_unit(at + 2)
                if low < 0xDC00 or low >= 0xE000:
                    return False
                point = 0x10000 + ((point & 0x3FF) << 10 | low & 0x3FF)
                at += 6
            to = self.character_into(point, target, to)
        self.written = to - begin
        return True

    def character_into(self, point: cython.int, target: WritableBytes, to: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Write a character as UTF-8; what follows it."""
        if point < 0x80:
            target[to] = point
            return to + 1
        if point < 0x800:
            target[to] = 0xC0 | point >> 6
        elif point < 0x10000:
            target[to] = 0xE0 | point >> 12
            target[to + 1] = 0x80 | point >> 6 & 0x3F
            to += 1
        else:
            target[to] = 0xF0 | point >> 18
            target[to + 1] = 0x80 | point >> 12 & 0x3F
            target[to + 2] = 0x80 | point >> 6 & 0x3F
            to += 2
        target[to + 1] = 0x80 | point & 0x3F
        return to + 2

    def base64_into(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, target: WritableBytes, to: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """What follows the text of base64 at `at`; what it means is `written` to `target` from `to` on."""
        stop: cython.Py_ssize_t
        begin: cython.Py_ssize_t = to
        padding: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t
        word: cython.int
        digit: cython.uchar
        if at >= end or self.text[at] != _QUOTE:
            return -1
        at += 1
        stop = find(self.text, at, end, _QUOTE)
        if stop == end or (stop - at) & 3:
            return -1
        while padding < 2 and padding < stop - at and self.text[stop - 1 - padding] == 61:
            padding += 1
        while at < stop:
            word = 0
            for place in range(at, at + 4):
                digit = _DIGITS[self.text[place]] if place < stop - padding else 0
                if digit == _NO_DIGIT:
                    return -1
                word = word << 6 | digit
            at += 4
            target[to] = word >> 16
            if at < stop or padding == 0:
                target[to + 1] = word >> 8 & 0xFF
                target[to + 2] = word & 0xFF
                to += 3
            elif padding == 1:
                # what the padding covers says nothing
                if word & 0xFF:
                    return -1
                target[to + 1] = word >> 8 & 0xFF
                to += 2
            else:
                if word & 0xFFFF:
                    return -1
                to += 1
        self.written = to - begin
        return stop + 1

    def digits_end(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Where digits from `at` on end."""
        while at < end and 48 <= self.text[at] <= 57:
            at += 1
        return at

    def read_number(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """What follows the whole number at `at`, of no more than 18 digits; it is in `number`."""
        stop: cython.Py_ssize_t
        is_negative: cython.bint = at < end and self.text[at] == 45
        if is_negative:
            at += 1
        stop = self.digits_end(at, end)
        if stop == at or stop - at > _MOST_DIGITS or (stop - at > 1 and self.text[at] == 48):
            return -1
        if stop < end and self.text[stop] in (46, 69, 101):
            return -1
        self.number = 0
        while at < stop:
            self.number = self.number * 10 + self.text[at] - 48
            at += 1
        if is_negative:
            self.number = -self.number
        return stop

    def value_end(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """What follows a text, a number, true, false or null; -1 for anything else."""
        first: cython.uchar
        stop: cython.Py_ssize_t
        if at >= end:
            return -1
        first = self.text[at]
        if first == _QUOTE:
            stop = self.text_end(at + 1, end)
            return stop + 1 if stop >= 0 else -1
        if first in (110, 116):
            return at + 4 if self.is_word(at, end, 0, 4) or self.is_word(at, end, 4, 4) else -1
        if first == 102:
            return at + 5 if self.is_word(at, end, 8, 5) else -1
        if first == 45:
            at += 1
        stop = self.digits_end(at, end)
        if stop == at or (stop - at > 1 and self.text[at] == 48):
            return -1
        if stop < end and self.text[stop] == 46:
            at = stop + 1
            stop = self.digits_end(at, end)
            if stop == at:
                return -1
        if stop < end and self.text[stop] in (69, 101):
            at = stop + 1
            if at < end and self.text[at] in (43, 45):
                at += 1
            stop = self.digits_end(at, end)
            if stop == at:
                return -1
        return stop

    def field_of(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, expected: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The number of the field of this name, -1 for none; it is the expected one most of the time."""
        _: cython.Py_ssize_t
        begin: cython.Py_ssize_t
        count: cython.Py_ssize_t = len(self.name_ends) - 1
        for _ in range(count):
            if expected >= count:
                expected = 0
            begin = self.name_ends[expected]
            if self.name_ends[expected + 1] - begin == end - at and same(self.text, at, self.names, begin, end - at):
                return expected
            expected += 1
        return -1
