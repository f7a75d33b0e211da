"""Messages as lines of JSON, from the columns of a walk and the window that it read: what `message_json` says of each.

A row that needs more than is here is left to who asks: an IPv6 host, a body that does not unpack, very many properties.
"""

from __future__ import annotations

from rmqctl.store.native import uncompiled as cython
from rmqctl.store.native.tables import INTS, LONGS

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import copy, find, is_utf8, same
    from cython.cimports.rmqctl.store.native.properties import split
    from cython.cimports.rmqctl.store.native.views import Bytes, IntRows, LongRows, ReadInts, WritableBytes
if not cython.compiled:
    from rmqctl.store.native.memory import copy, find, is_utf8, same
    from rmqctl.store.native.properties import split
    from rmqctl.store.native.uncompiled import Bytes, IntRows, LongRows, ReadInts, WritableBytes

NUMBERS = {
    name: (is_long, list(table).index(name)) for is_long, table in ((True, LONGS), (False, INTS)) for name in table
}
(
    MSG_ID, UNIQUE_KEY, TOPIC, NUMBER, BODY_SIZE, STORE_TIME, BORN_TIME, STORE_HOST, BORN_HOST, TRANSACTION,
    COMPRESSION, CRC_OK, TAGS, KEYS, PROPERTIES, STORED_PROPERTIES, BODY, BINARY_BODY, STORED_BODY,
) = range(19)  # fmt: skip
"""What a field is. That of a NUMBER is one of the walk's columns."""
IN_WINDOW, UNPACKED, LEFT = range(3)
"""Where a body is; LEFT: not known here."""
DONE, FULL, ODD = range(3)
"""Why `write` ended: no row is left; the rest of the target may be too small; the row is left to the caller."""

_PHYSICAL_OFFSET = cython.declare(cython.Py_ssize_t, NUMBERS["physical_offset"][1])
_BORN_TIMESTAMP = cython.declare(cython.Py_ssize_t, NUMBERS["born_timestamp"][1])
_STORE_TIMESTAMP = cython.declare(cython.Py_ssize_t, NUMBERS["store_timestamp"][1])
_SYS_FLAG = cython.declare(cython.Py_ssize_t, NUMBERS["sys_flag"][1])
_TOPIC_ID = cython.declare(cython.Py_ssize_t, NUMBERS["topic_id"][1])
_BODY_POSITION = cython.declare(cython.Py_ssize_t, NUMBERS["body_position"][1])
_BODY_LENGTH = cython.declare(cython.Py_ssize_t, NUMBERS["body_length"][1])
_PROPERTY_POSITION = cython.declare(cython.Py_ssize_t, NUMBERS["property_position"][1])
_PROPERTY_LENGTH = cython.declare(cython.Py_ssize_t, NUMBERS["property_length"][1])
_BORN_HOST = cython.declare(cython.Py_ssize_t, NUMBERS["born_host_start"][1])
_BORN_PORT = cython.declare(cython.Py_ssize_t, NUMBERS["born_host_port"][1])
_STORE_HOST = cython.declare(cython.Py_ssize_t, NUMBERS["store_host_start"][1])
_STORE_PORT = cython.declare(cython.Py_ssize_t, NUMBERS["store_host_port"][1])

_COMPRESSED = cython.declare(cython.int, 1)
_HOSTS_V6 = cython.declare(cython.int, 0x30)
_MOST_PROPERTIES = cython.declare(cython.Py_ssize_t, 64)
_QUOTE = cython.declare(cython.uchar, 34)
_COMMA = cython.declare(cython.uchar, 44)
_SPACE = cython.declare(cython.uchar, 32)
_COLON = cython.declare(cython.uchar, 58)
_NULL = cython.declare(Bytes, b"null")
_TRUE = cython.declare(Bytes, b"true")
_TRANSACTIONS = cython.declare(Bytes, b'"none""prepared""commit""rollback"')
_TRANSACTION_ENDS = cython.declare(Bytes, bytes((0, 6, 16, 24, 34)))
_COMPRESSIONS = cython.declare(Bytes, b'"zlib""lz4""zstd""zlib""invalid (4)""invalid (5)""invalid (6)""invalid (7)"')
_COMPRESSION_ENDS = cython.declare(Bytes, bytes((0, 6, 11, 17, 23, 36, 49, 62, 75)))
_NAMES = cython.declare(Bytes, b"UNIQ_KEYTAGSKEYS")
# what a line has at most beside names and texts: numbers, hosts, times, an id
_NUMBERS_ROOM = cython.declare(cython.Py_ssize_t, 1200)
_TEXT_GROWS = cython.declare(cython.Py_ssize_t, 6)
# unique key, tags, keys, properties, and these as they are stored
_TEXTS_OF_PROPERTIES = cython.declare(cython.Py_ssize_t, 5)

# Values of JSON and what is written between them: texts, bytes in base64, numbers, times, hosts.
#
# Texts are good UTF-8 when they come here, and the caller has made sure that the target has space for them.

_BACKSLASH = cython.declare(cython.uchar, 92)
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


class JsonLineWriter(JsonText):
    """Writes the rows of one batch as lines with certain fields.

    `fields`: what each field is, and the column of a number: -1 - n for long n, else that int. `names`: each with a
    comma and a space before it, quotes and a colon; `name_ends` from 0 on. `unsafe`: by code point whether a terminal
    would obey or hide it. `found`: working space of `split`. `topics`: as JSON writes them, quotes included.
    `bodies`: by row where the body begins, its length and where it is, in the window or in `unpacked`.
    """

    def __init__(
        self, fields: IntRows, names: Bytes, name_ends: ReadInts, unsafe: Bytes, found: LongRows, window: Bytes,
        longs: LongRows, ints: IntRows, topics: Bytes, topic_ends: ReadInts, bodies: LongRows, unpacked: Bytes,
    ) -> None:  # fmt: skip
        super().__init__(bytearray(), unsafe)
        self._fields = fields
        self._names = names
        self._name_ends = name_ends
        self._found = found
        self._window = window
        self._longs = longs
        self._ints = ints
        self._topics = topics
        self._topic_ends = topic_ends
        self._bodies = bodies
        self._unpacked = unpacked
        self._count = 0
        self.used = 0

    def write(self, target: WritableBytes, row: cython.Py_ssize_t, used: cython.Py_ssize_t) -> tuple[int, int, int]:
        """Write rows from `row` on behind the first `used` bytes of `target`: why that ended, the next row, and how
        much of the target is used."""
        status: cython.int = 0
        rows: cython.Py_ssize_t = self._longs.shape[1]
        self.target = target
        self.used = used
        with cython.nogil:
            while row < rows:
                status = self._write_row(row)
                if status != 0:
                    break
                row += 1
        return status, row, self.used

    def _write_row(self, row: cython.Py_ssize_t) -> cython.int:
        """One row as a line, or why not."""
        field: cython.Py_ssize_t
        topic: cython.Py_ssize_t
        fields: cython.Py_ssize_t = self._fields.shape[1]
        size: cython.Py_ssize_t = _NUMBERS_ROOM + len(self._names)
        if self._ints[_SYS_FLAG, row] & _HOSTS_V6 or self._bodies[2, row] == 2:
            return 2
        size += _TEXT_GROWS * (_TEXTS_OF_PROPERTIES * self._ints[_PROPERTY_LENGTH, row] + self._bodies[1, row])
        size += 2 * self._ints[_BODY_LENGTH, row]
        if len(self._topic_ends) > 1:
            topic = self._ints[_TOPIC_ID, row]
            size += self._topic_ends[topic + 1] - self._topic_ends[topic]
        if size > len(self.target) - self.used:
            return 1
        if not self._find_properties(row):
            return 2
        self.put(123)
        self._begin = self.used
        for field in range(fields):
            self._write_field(row, field)
        self.put(125)
        self.put(10)
        return 0

    def _find_properties(self, row: cython.Py_ssize_t) -> cython.bint:
        """Take the properties of a row apart; false where these are too many."""
        entry: cython.Py_ssize_t
        at: cython.Py_ssize_t = self._ints[_PROPERTY_POSITION, row]
        end: cython.Py_ssize_t = at + self._ints[_PROPERTY_LENGTH, row]
        length: cython.Py_ssize_t
        before: cython.Py_ssize_t = self._count
        self._count = 0
        before = split(self._window, at, end, self._found, before)
        if before > _MOST_PROPERTIES:
            return False
        self._unique_key = self._tags = self._keys = -1
        for entry in range(before):
            at = self._found[0, entry]
            length = self._found[1, entry] - at
            if length == 8 and same(self._window, at, _NAMES, 0, 8):
                self._unique_key = entry
            elif length == 4 and same(self._window, at, _NAMES, 8, 4):
                self._tags = entry
            elif length == 4 and same(self._window, at, _NAMES, 12, 4):
                self._keys = entry
        self._count = before
        return True

    def _write_field(self, row: cython.Py_ssize_t, field: cython.Py_ssize_t) -> cython.int:
        """The field with its name, unless the message has none."""
        kind: cython.int = self._fields[0, field]
        topic: cython.Py_ssize_t
        begin: cython.Py_ssize_t = self.used
        is_there: cython.bint = True
        name: cython.Py_ssize_t = self._name_ends[field]
        if begin == self._begin:
            name += 2  # a comma and a space
        copy(self.target, self.used, self._names, name, self._name_ends[field + 1] - name)
        self.used += self._name_ends[field + 1] - name
        if kind == 3:
            self._put_column(row, self._fields[1, field])
        elif kind == 4:
            self.put_number(self._bodies[1, row])
        elif kind == 2:
            topic = self._ints[_TOPIC_ID, row]
            self.put_bytes(self._topics, self._topic_ends[topic], self._topic_ends[topic + 1])
        elif kind == 1:
            self._put_property(self._unique_key)
        elif kind == 12:
            self._put_property(self._tags)
        elif kind == 13:
            self._put_keys()
        elif kind == 14:
            self._put_properties()
        elif kind >= 15:
            is_there = self._put_rare(row, kind)
        else:
            self._put_head(row, kind)
        if not is_there:
            self.used = begin
        return 0

    def _put_head(self, row: cython.Py_ssize_t, kind: cython.int) -> cython.int:
        """What the head of the frame says in other words."""
        flags: cython.int = self._ints[_SYS_FLAG, row]
        if kind == 5:
            self.put_time(self._longs[_STORE_TIMESTAMP, row])
        elif kind == 6:
            self.put_time(self._longs[_BORN_TIMESTAMP, row])
        elif kind == 7:
            self.put_host(self._ints[_STORE_HOST, row], self._ints[_STORE_PORT, row])
        elif kind == 8:
            self.put_host(self._ints[_BORN_HOST, row], self._ints[_BORN_PORT, row])
        elif kind == 0:
            self.put(_QUOTE)
            self.put_hex(self._ints[_STORE_HOST, row], 8)
            self.put_hex(self._ints[_STORE_PORT, row], 8)
            self.put_hex(self._longs[_PHYSICAL_OFFSET, row], 16)
            self.put(_QUOTE)
        elif kind == 9:
            flags = flags >> 2 & 3
            self.put_bytes(_TRANSACTIONS, _TRANSACTION_ENDS[flags], _TRANSACTION_ENDS[flags + 1])
        elif kind == 10 and flags & _COMPRESSED:
            flags = flags >> 8 & 7
            self.put_bytes(_COMPRESSIONS, _COMPRESSION_ENDS[flags], _COMPRESSION_ENDS[flags + 1])
        elif kind == 11:
            # the walk yields no message whose CRC does not hold
            self.put_bytes(_TRUE, 0, 4)
        else:
            self.put_bytes(_NULL, 0, 4)
        return 0

    def _put_rare(self, row: cython.Py_ssize_t, kind: cython.int) -> cython.bint:
        """What not every message has; whether this one has it."""
        at: cython.Py_ssize_t = self._bodies[0, row]
        end: cython.Py_ssize_t = at + self._bodies[1, row]
        is_unpacked: cython.bint = self._bodies[2, row] == 1
        is_text: cython.bint
        if kind == 15:
            if self._found[4, 0]:
                return False
            at = self._ints[_PROPERTY_POSITION, row]
            self.put_base64(self._window, at, at + self._ints[_PROPERTY_LENGTH, row])
        elif kind == 18:
            if not self._ints[_SYS_FLAG, row] & _COMPRESSED:
                return False
            at = self._ints[_BODY_POSITION, row]
            self.put_base64(self._window, at, at + self._ints[_BODY_LENGTH, row])
        else:
            is_text = is_utf8(self._unpacked if is_unpacked else self._window, at, end - at)
            if is_text != (kind == 16):
                return False
            if is_text and is_unpacked:
                self.put_text(self._unpacked, at, end)
            elif is_text:
                self.put_text(self._window, at, end)
            elif is_unpacked:
                self.put_base64(self._unpacked, at, end)
            else:
                self.put_base64(self._window, at, end)
        return True

    def _put_property(self, entry: cython.Py_ssize_t) -> cython.int:
        """The value of a property, or null."""
        if entry < 0:
            self.put_bytes(_NULL, 0, 4)
        else:
            self.put_text(self._window, self._found[2, entry], self._found[3, entry])
        return 0

    def _put_keys(self) -> cython.int:
        """The single keys of a message as a list. (split_keys)"""
        at: cython.Py_ssize_t
        end: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        is_first: cython.bint = True
        self.put(91)
        if self._keys >= 0:
            at = self._found[2, self._keys]
            end = self._found[3, self._keys]
            while at < end:
                stop = find(self._window, at, end, _SPACE)
                if stop > at:
                    if not is_first:
                        self.put(_COMMA)
                        self.put(_SPACE)
                    self.put_text(self._window, at, stop)
                    is_first = False
                at = stop + 1
        self.put(93)
        return 0

    def _put_properties(self) -> cython.int:
        """All properties as an object."""
        entry: cython.Py_ssize_t
        self.put(123)
        for entry in range(self._count):
            if entry:
                self.put(_COMMA)
                self.put(_SPACE)
            self.put_text(self._window, self._found[0, entry], self._found[1, entry])
            self.put(_COLON)
            self.put(_SPACE)
            self.put_text(self._window, self._found[2, entry], self._found[3, entry])
        self.put(125)
        return 0

    def _put_column(self, row: cython.Py_ssize_t, column: cython.Py_ssize_t) -> cython.int:
        if column < 0:
            self.put_number(self._longs[-1 - column, row])
        else:
            self.put_number(self._ints[column, row])
        return 0
