"""Values of JSON and what is written between them: texts, bytes in base64, numbers, times, hosts.

Texts are good UTF-8 when they come here, and the caller has made sure that the target has space for them.
"""

from __future__ import annotations

from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import copy
    from cython.cimports.rmqctl.store.native.views import Bytes, WritableBytes
if not cython.compiled:
    from rmqctl.store.native.memory import copy
    from rmqctl.store.native.uncompiled import Bytes, WritableBytes

_QUOTE = cython.declare(cython.uchar, 34)
_BACKSLASH = cython.declare(cython.uchar, 92)
_COLON = cython.declare(cython.uchar, 58)
_DIGITS = cython.declare(Bytes, b"0123456789abcdef")
_LARGE_DIGITS = cython.declare(Bytes, b"0123456789ABCDEF")
_BASE64 = cython.declare(Bytes, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
# by byte below 0x20: the letter behind a backslash that stands for it, or 0
_SHORT = cython.declare(Bytes, b"\0\0\0\0\0\0\0\0btn\0fr\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")
# from the year 1 to the end of 9999, in ms before and after 1970
_YEAR_1 = cython.declare(cython.longlong, -62_135_596_800_000)
_YEAR_10000 = cython.declare(cython.longlong, 253_402_300_800_000)
_DAY = cython.declare(cython.longlong, 86_400_000)
_LEAST = cython.declare(cython.longlong, int("-9223372036854775808"))
_LEAST_LONG = cython.declare(Bytes, b"-9223372036854775808")


@cython.cclass
class JsonText:
    """Writes behind the first `used` bytes of `target`. `unsafe`: by code point whether a terminal would obey or hide
    it, so that it is written as an escape."""

    def __init__(self, target: WritableBytes, unsafe: Bytes) -> None:
        self.target = target
        self.unsafe = unsafe
        self.used = 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def put(self, byte: cython.uchar) -> cython.int:
        self.target[self.used] = byte
        self.used += 1
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def put_bytes(self, view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        copy(self.target, self.used, view, at, end - at)
        self.used += end - at
        return 0

    def put_text(self, view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Good UTF-8 as a text of JSON, without what a terminal would obey or hide."""
        stop: cython.Py_ssize_t
        self.put(_QUOTE)
        while True:
            stop = self.clean_end(view, at, end)
            self.put_bytes(view, at, stop)
            if stop == end:
                break
            at = self.put_character(view, stop)
        self.put(_QUOTE)
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    @cython.boundscheck(False)
    def clean_end(self, view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Place of the first byte of [at, end) that is not printable ASCII, a quote or a backslash."""
        place: cython.Py_ssize_t
        byte: cython.uchar
        unclean: cython.uchar
        if at < 0 or at > end or end > len(view):
            raise IndexError
        # every place that is looked at is in [at, end), which lies inside
        while end - at >= 16:
            unclean = 0
            for place in range(16):
                byte = view[at + place]
                unclean |= (byte < 0x20) | (byte > 0x7E) | (byte == 34) | (byte == 92)
            if unclean:
                break
            at += 16
        while at < end:
            byte = view[at]
            if byte < 0x20 or byte > 0x7E or byte in (34, 92):
                break
            at += 1
        return at

    def put_character(self, view: Bytes, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The character at `at`, escaped if need be; what follows it."""
        byte: cython.uchar = view[at]
        size: cython.Py_ssize_t
        point: cython.int
        if byte >= 0x80:
            # every text was looked at: it is good UTF-8
            if byte < 0xE0:
                size = 2
                point = (byte & 0x1F) << 6 | view[at + 1] & 0x3F
            elif byte < 0xF0:
                size = 3
                point = (byte & 0xF) << 12 | (view[at + 1] & 0x3F) << 6 | view[at + 2] & 0x3F
            else:
                size = 4
                point = (byte & 7) << 18 | (view[at + 1] & 0x3F) << 12
                point |= (view[at + 2] & 0x3F) << 6 | view[at + 3] & 0x3F
            if not self.unsafe[point]:
                self.put_bytes(view, at, at + size)
            elif point < 0x10000:
                self.put_escape(point)
            else:
                self.put_escape(0xD800 + ((point - 0x10000) >> 10))
                self.put_escape(0xDC00 + (point & 0x3FF))
            return at + size
        if byte in (_QUOTE, _BACKSLASH):
            self.put(_BACKSLASH)
            self.put(byte)
        elif byte < 0x20 and _SHORT[byte]:
            self.put(_BACKSLASH)
            self.put(_SHORT[byte])
        else:
            self.put_escape(byte)
        return at + 1

    def put_escape(self, unit: cython.int) -> cython.int:
        r"""A UTF-16 unit as `\uXXXX`."""
        place: cython.int
        self.put(_BACKSLASH)
        self.put(117)
        for place in range(4):
            self.put(_DIGITS[unit >> (12 - 4 * place) & 0xF])
        return 0

    def put_base64(self, view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        word: cython.int
        self.put(_QUOTE)
        while end - at >= 3:
            word = view[at] << 16 | view[at + 1] << 8 | view[at + 2]
            self.put(_BASE64[word >> 18])
            self.put(_BASE64[word >> 12 & 0x3F])
            self.put(_BASE64[word >> 6 & 0x3F])
            self.put(_BASE64[word & 0x3F])
            at += 3
        if at < end:
            word = view[at] << 16
            if end - at == 2:
                word |= view[at + 1] << 8
            self.put(_BASE64[word >> 18])
            self.put(_BASE64[word >> 12 & 0x3F])
            self.put(_BASE64[word >> 6 & 0x3F] if end - at == 2 else 61)
            self.put(61)
        self.put(_QUOTE)
        return 0

    @cython.cdivision(True)
    def put_number(self, value: cython.longlong) -> cython.int:
        """A number in decimal digits."""
        place: cython.Py_ssize_t
        rest: cython.longlong
        if value < 0:
            if value == _LEAST:
                self.put_bytes(_LEAST_LONG, 0, 20)
                return 0
            self.put(45)
            value = -value
        place = self.used
        rest = value
        while rest > 9:
            rest //= 10
            place += 1
        self.used = place + 1
        while value > 9:
            self.target[place] = 48 + value % 10
            value //= 10
            place -= 1
        self.target[place] = 48 + value
        return 0

    def put_hex(self, value: cython.longlong, digits: cython.int) -> cython.int:
        """The low digits in upper-case hex."""
        place: cython.int
        for place in range(digits):
            self.put(_LARGE_DIGITS[value >> (4 * (digits - 1 - place)) & 0xF])
        return 0

    def put_host(self, address: cython.int, port: cython.int) -> cython.int:
        """An IPv4 address and a port. (Host.__str__)"""
        place: cython.int
        self.put(_QUOTE)
        for place in range(4):
            if place:
                self.put(46)
            self.put_number(address >> (24 - 8 * place) & 0xFF)
        self.put(_COLON)
        self.put_number(port)
        self.put(_QUOTE)
        return 0

    @cython.cdivision(True)
    def put_time(self, time: cython.longlong) -> cython.int:
        """A time in ms as ISO 8601 in UTC, or as a number where no calendar has it. (format_time)"""
        days: cython.longlong
        year: cython.longlong
        month: cython.longlong
        rest: cython.longlong
        self.put(_QUOTE)
        if time < _YEAR_1 or time >= _YEAR_10000:
            self.put_number(time)
            self.put(_QUOTE)
            return 0
        # years from March on, so that leap days come last, counted from the year 0
        days = (time - _YEAR_1) // _DAY + 306
        rest = (time - _YEAR_1) % _DAY
        year = days // 146097 * 400
        days %= 146097
        month = (days - days // 1460 + days // 36524 - days // 146096) // 365
        year += month
        days -= 365 * month + month // 4 - month // 100
        month = (5 * days + 2) // 153
        days -= (153 * month + 2) // 5
        if month >= 10:
            year += 1
        self.put_padded(year, 1000, 45)
        self.put_padded(month - 9 if month >= 10 else month + 3, 10, 45)
        self.put_padded(days + 1, 10, 84)
        self.put_padded(rest // 3_600_000, 10, _COLON)
        self.put_padded(rest // 60_000 % 60, 10, _COLON)
        self.put_padded(rest // 1000 % 60, 10, 46)
        self.put_padded(rest % 1000, 100, 90)
        self.put(_QUOTE)
        return 0

    @cython.cdivision(True)
    def put_padded(self, value: cython.longlong, unit: cython.longlong, behind: cython.uchar) -> cython.int:
        """A number in as many digits as its `unit` has, and a byte behind it."""
        while unit:
            self.put(48 + value // unit % 10)
            unit //= 10
        self.put(behind)
        return 0
