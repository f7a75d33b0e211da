"""Lines of JSON, one message each, as rows for a bulk append: what `message_from_line` makes of each.

Plain lines are read here. Every other line is left to the caller: invalid JSON, a value that its field cannot hold, a
duplicate or unknown field, a property that the store handles specially.
"""

from __future__ import annotations

from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.store.native import uncompiled as cython
from rmqctl.store.native.tables import Frame

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.json_values import JsonValues
    from cython.cimports.rmqctl.store.native.memory import copy, find, is_utf8, same
    from cython.cimports.rmqctl.store.native.views import (
        Bytes,
        IntRows,
        LongRows,
        Longs,
        ReadInts,
        WritableBytes,
    )
if not cython.compiled:
    from rmqctl.store.native.json_values import JsonValues
    from rmqctl.store.native.memory import copy, find, is_utf8, same
    from rmqctl.store.native.uncompiled import Bytes, IntRows, LongRows, Longs, ReadInts, WritableBytes

IGNORED, NUMBER, TEXT, BASE64, NULL, KEYS, MAP, NAMED_BY = range(8)
"""Kinds of fields. What is IGNORED may be any text, number, true, false or null; of NAMED_BY is a text of which only
counts whether it is empty."""
TOPIC, BODY, BORN_HOST, STORE_HOST, TAGS, STORED_PROPERTIES, STORED_BODY = range(7)
"""Texts of a line."""
LINE, BEGIN, END, ID_AT = range(4)
"""Notes of a row: the number of its line from 0 on, its begin and end, the place of its unique id in the properties or
-1."""
TOPICS, HOSTS = range(2)
"""Texts whose distinct values are numbered."""
ID_LENGTH = 32
MOST_PROPERTIES = 64
"""A line with more properties is left."""

_IGNORED = cython.declare(cython.int, 0)
_NUMBER = cython.declare(cython.int, 1)
_BASE64 = cython.declare(cython.int, 3)
_NULL = cython.declare(cython.int, 4)
_KEYS = cython.declare(cython.int, 5)
_MAP = cython.declare(cython.int, 6)
_NAMED_BY = cython.declare(cython.int, 7)
_TOPIC = cython.declare(cython.int, 0)
_BODY = cython.declare(cython.int, 1)
_BORN_HOST = cython.declare(cython.int, 2)
_STORE_HOST = cython.declare(cython.int, 3)
_TAGS = cython.declare(cython.int, 4)
_STORED_PROPERTIES = cython.declare(cython.int, 5)
_STORED_BODY = cython.declare(cython.int, 6)
_MOST = cython.declare(cython.Py_ssize_t, 64)
_FRAME_TOPIC = cython.declare(cython.Py_ssize_t, int(Frame.TOPIC))
_FRAME_SYS_FLAG = cython.declare(cython.Py_ssize_t, int(Frame.SYS_FLAG))
_FRAME_BORN_TIME = cython.declare(cython.Py_ssize_t, int(Frame.BORN_TIMESTAMP))
_FRAME_BORN_HOST = cython.declare(cython.Py_ssize_t, int(Frame.BORN_HOST))
_FRAME_STORE_TIME = cython.declare(cython.Py_ssize_t, int(Frame.STORE_TIMESTAMP))
_FRAME_STORE_HOST = cython.declare(cython.Py_ssize_t, int(Frame.STORE_HOST))
_FRAMES = cython.declare(cython.Py_ssize_t, len(Frame))
_COMPRESSED = cython.declare(cython.int, SYS_FLAG_COMPRESSED)
_NO_HOST_BITS = cython.declare(cython.longlong, ~0x30)
_NO_TIME = cython.declare(cython.longlong, int("-9223372036854775808"))
_LAST_SEPARATOR = cython.declare(cython.uchar, 2)
_NAME_SEPARATOR = cython.declare(cython.uchar, 1)
_PROPERTY_SEPARATOR = cython.declare(cython.uchar, 2)
_NEWLINE = cython.declare(cython.uchar, 10)
_QUOTE = cython.declare(cython.uchar, 34)
_KEYS_AND_TAGS = cython.declare(Bytes, b"KEYS\x01TAGS\x01")
_UNIQUE_KEY = cython.declare(Bytes, b"UNIQ_KEY\x01")
_TRANSIENT = cython.declare(Bytes, b"__RMQ.TRANSIENT.")
_HASH_PRIME = cython.declare(cython.ulonglong, 16777619)
_LOW_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


class LineReader(JsonValues):
    """Reads all lines of a text into tables that have a row for each.

    `names`: those of the fields, with `name_ends` from 0 on; `fields`: by field its kind and its column (`Frame`) or
    text; `limits`: by field the least and the most of a number, and whether it may be null. `specials`: names of
    properties that the store handles specially. With `is_copy` store time and host are needed, with `needs_ids` a new
    message gets space for a unique id.
    """

    def __init__(
        self, names: Bytes, name_ends: ReadInts, fields: IntRows, limits: LongRows, specials: Bytes,
        special_ends: ReadInts, is_copy: bool, needs_ids: bool,
    ) -> None:  # fmt: skip
        super().__init__(names, name_ends)
        self._fields = fields
        self._limits = limits
        self._specials = specials
        self._special_ends = special_ends
        self._is_copy = is_copy
        self._needs_ids = needs_ids

    def read(
        self, text: Bytes, columns: LongRows, starts: LongRows, ends: LongRows, notes: LongRows, good: WritableBytes,
        bodies: WritableBytes, properties: WritableBytes, scratch: WritableBytes, spans: LongRows,
        told_apart: LongRows, slots: IntRows, counts: Longs, texts: WritableBytes,
    ) -> tuple[int, int]:  # fmt: skip
        """Fill the tables: how many rows and lines there are; blank lines are no rows.

        `columns`, `starts` and `ends` are those of BulkRows; `notes`: see LINE. `good`: by row whether it is taken;
        else nothing of it counts but its notes. `told_apart`: where each distinct topic, and below that each host,
        begins and ends in `texts`; `counts` has how many there are, `slots` -1 everywhere, more than twice as many as
        there can be, a power of two. `scratch` and `spans` (2 rows, MOST_PROPERTIES + 7) are working space.
        """
        self.text = text
        self._columns = columns
        self._starts = starts
        self._ends = ends
        self._notes = notes
        self._good = good
        self._bodies = bodies
        self._properties = properties
        self._scratch = scratch
        self._spans = spans
        self._told_apart = told_apart
        self._slots = slots
        self._counts = counts
        self._texts = texts
        self._bodies_used = self._properties_used = self._texts_used = 0
        self._row = 0
        with cython.nogil:
            lines: cython.Py_ssize_t = self._read_lines()
        return self._row, lines

    def write_ids(self, ids: Bytes) -> None:
        """Write unique ids of ID_LENGTH bytes each, in the order of the rows that have space for one."""
        row: cython.Py_ssize_t
        used: cython.Py_ssize_t = 0
        with cython.nogil:
            for row in range(self._row):
                if self._good[row] and self._notes[3, row] >= 0:
                    copy(self._properties, self._notes[3, row], ids, used, 32)
                    used += 32

    def _read_lines(self) -> cython.Py_ssize_t:
        line: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        begin: cython.Py_ssize_t
        end: cython.Py_ssize_t = len(self.text)
        while at < end:
            stop = find(self.text, at, end, _NEWLINE)
            begin = self.skip_spaces(at, stop)
            if begin < stop:
                self._notes[0, self._row] = line
                self._notes[1, self._row] = at
                self._notes[2, self._row] = stop
                self._good[self._row] = is_utf8(self.text, at, stop - at) and self._read_line(begin, stop)
                self._row += 1
            line += 1
            at = stop + 1
        return line

    def _read_line(self, begin: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.int:
        """The object at `begin` as a row; whether it is taken."""
        row: cython.Py_ssize_t = self._row
        column: cython.Py_ssize_t
        properties_used: cython.Py_ssize_t = self._properties_used
        for column in range(_FRAMES):
            self._columns[column, row] = 0
        self._columns[_FRAME_BORN_TIME, row] = _NO_TIME
        self._columns[_FRAME_STORE_TIME, row] = _NO_TIME
        for column in range(7):
            self._spans[0, column] = -1
        self._notes[3, row] = -1
        self._scratch_used = self._property_count = 0
        self._has_map = self._has_id = self._is_named = False
        self._keys_at = self._keys_end = -1
        begin = self._read_object(begin, stop)
        if begin >= 0 and self.skip_spaces(begin, stop) == stop and self._end_row(properties_used):
            return True
        self._properties_used = properties_used
        return False

    def _read_object(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """What follows the object at `at`, -1 where it is not taken."""
        seen: cython.ulonglong = 0
        bit: cython.ulonglong
        field: cython.Py_ssize_t = -1
        stop: cython.Py_ssize_t
        if self.text[at] != 123:
            return -1
        while True:
            at = self.skip_spaces(at + 1, end)
            if at >= end or self.text[at] != _QUOTE:
                return -1
            stop = find(self.text, at + 1, end, _QUOTE)
            if stop == end:
                return -1
            field = self.field_of(at + 1, stop, field + 1)
            if field < 0:
                return -1
            bit = seen >> field & 1
            if bit:
                return -1
            bit = 1
            seen |= bit << field
            at = self.skip_spaces(stop + 1, end)
            if at >= end or self.text[at] != 58:
                return -1
            at = self._read_value(self.skip_spaces(at + 1, end), end, field)
            if at < 0:
                return -1
            at = self.skip_spaces(at, end)
            if at >= end:
                return -1
            if self.text[at] == 125:
                return at + 1
            if self.text[at] != 44:
                return -1

    def _read_value(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, field: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """What follows the value of a field, -1 where it is not taken."""
        kind: cython.int = self._fields[0, field]
        is_null: cython.bint = self.is_word(at, end, 0, 4)
        if kind == _IGNORED:
            return self.value_end(at, end)
        if kind == _NUMBER:
            if is_null:
                return at + 4 if self._limits[2, field] else -1
            return self._number_into(at, end, field)
        if is_null:
            return at + 4
        if kind == _NAMED_BY:
            if at >= end or self.text[at] != _QUOTE:
                return -1
            field = self.text_end(at + 1, end)
            if field < 0:
                return -1
            if field > at + 1:
                self._is_named = True
            return field + 1
        if kind == _KEYS:
            return self._read_keys(at, end)
        if kind == _MAP:
            self._has_map = True
            return self._read_map(at, end)
        if kind == _NULL:
            return -1
        return self._read_text(at, end, self._fields[1, field], kind == _BASE64)

    def _number_into(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, field: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """A number within its limits."""
        at = self.read_number(at, end)
        if at < 0 or self.number < self._limits[0, field] or self.number > self._limits[1, field]:
            return -1
        self._columns[self._fields[1, field], self._row] = self.number
        return at

    def _read_text(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, text: cython.int, is_base64: cython.bint
    ) -> cython.Py_ssize_t:
        """One of the texts, which has not come before."""
        if self._spans[0, text] >= 0:
            return -1
        self._spans[0, text] = self._scratch_used
        if is_base64:
            at = self.base64_into(at, end, self._scratch, self._scratch_used)
        else:
            at = self.text_into(at, end, self._scratch, self._scratch_used)
        if at < 0 or (self.written == 0 and text not in (_BODY, _STORED_BODY, _STORED_PROPERTIES)):
            return -1
        self._scratch_used += self.written
        self._spans[1, text] = self._scratch_used
        return at

    def _read_keys(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A list of texts without spaces, written with spaces between them; what follows it, -1 if it is not one."""
        place: cython.Py_ssize_t
        if at >= end or self.text[at] != 91 or self._keys_at >= 0:
            return -1
        self._keys_at = self._keys_end = self._scratch_used
        at = self.skip_spaces(at + 1, end)
        if at < end and self.text[at] == 93:
            return at + 1
        while True:
            if self._scratch_used > self._keys_at:
                self._scratch[self._scratch_used] = 32
                self._scratch_used += 1
            at = self.text_into(at, end, self._scratch, self._scratch_used)
            if at < 0 or self.written == 0:
                return -1
            for place in range(self._scratch_used, self._scratch_used + self.written):
                if self._scratch[place] == 32 or self._scratch[place] <= _LAST_SEPARATOR:
                    return -1
            self._scratch_used += self.written
            self._keys_end = self._scratch_used
            at = self.skip_spaces(at, end)
            if at >= end:
                return -1
            if self.text[at] == 93:
                return at + 1
            if self.text[at] != 44:
                return -1
            at = self.skip_spaces(at + 1, end)

    def _read_map(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """An object of texts as a property string; what follows it, -1 if it is not one."""
        name: cython.Py_ssize_t
        if at >= end or self.text[at] != 123 or self._property_count:
            return -1
        at = self.skip_spaces(at + 1, end)
        if at < end and self.text[at] == 125:
            return at + 1
        while True:
            name = self._properties_used
            at = self._read_part(at, end, _NAME_SEPARATOR)
            if at < 0 or at >= end or self.text[at] != 58 or not self._note_name(name, self._properties_used - 1):
                return -1
            at = self._read_part(self.skip_spaces(at + 1, end), end, _PROPERTY_SEPARATOR)
            if at < 0 or at >= end:
                return -1
            if self.text[at] == 125:
                return at + 1
            if self.text[at] != 44:
                return -1
            at = self.skip_spaces(at + 1, end)

    def _read_part(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, separator: cython.uchar) -> cython.Py_ssize_t:
        """A name or a value of a property with the separator behind it; what follows it and blanks."""
        at = self.text_into(at, end, self._properties, self._properties_used)
        if at < 0 or self.written == 0:
            return -1
        # only an escape can have brought one
        if self.is_escaped and self._has_separator(self._properties_used, self._properties_used + self.written):
            return -1
        self._properties_used += self.written
        self._properties[self._properties_used] = separator
        self._properties_used += 1
        return self.skip_spaces(at, end)

    def _has_separator(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Whether a separator of the property string, or NUL, is among the properties [at, end)."""
        while at < end and self._properties[at] > _LAST_SEPARATOR:
            at += 1
        return at < end

    def _note_name(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Note the name of a property; false for one that has been there, that is special, or one too many."""
        entry: cython.Py_ssize_t
        begin: cython.Py_ssize_t
        for entry in range(self._property_count):
            begin = self._spans[0, 7 + entry]
            if self._spans[1, 7 + entry] - begin == end - at and same(
                self._properties, begin, self._properties, at, end - at
            ):
                return False
        if self._property_count == _MOST or self._is_special(at, end):
            return False
        self._spans[0, 7 + self._property_count] = at
        self._spans[1, 7 + self._property_count] = end
        self._property_count += 1
        if end - at == 8 and same(self._properties, at, _UNIQUE_KEY, 0, 8):
            self._has_id = True
        return True

    def _is_special(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Whether the name [at, end) among the properties is one that the store treats in a way of its own."""
        number: cython.Py_ssize_t
        begin: cython.Py_ssize_t
        for number in range(len(self._special_ends) - 1):
            begin = self._special_ends[number]
            if self._special_ends[number + 1] - begin == end - at and same(
                self._properties, at, self._specials, begin, end - at
            ):
                return True
        return end - at >= 16 and same(self._properties, at, _TRANSIENT, 0, 16)

    def _end_row(self, begin: cython.Py_ssize_t) -> cython.int:
        """What a row has when its line is read, with properties from `begin` on; whether it is taken."""
        row: cython.Py_ssize_t = self._row
        flags: cython.longlong = self._columns[_FRAME_SYS_FLAG, row]
        body: cython.Py_ssize_t = _BODY if self._spans[0, _STORED_BODY] < 0 else _STORED_BODY
        if self._spans[0, _TOPIC] < 0 or self._spans[0, _BODY] < 0:
            return False
        if flags & _COMPRESSED and body == _BODY:
            return False
        self._columns[_FRAME_SYS_FLAG, row] = flags & _NO_HOST_BITS
        if not self._is_copy:
            self._columns[_FRAME_STORE_TIME, row] = _NO_TIME
        elif self._columns[_FRAME_STORE_TIME, row] == _NO_TIME or self._spans[0, _STORE_HOST] < 0:
            return False
        if not self._end_properties(begin):
            return False
        length: cython.Py_ssize_t = self._spans[1, body] - self._spans[0, body]
        copy(self._bodies, self._bodies_used, self._scratch, self._spans[0, body], length)
        self._starts[0, row] = self._bodies_used
        self._bodies_used += length
        self._ends[0, row] = self._bodies_used
        self._starts[1, row] = begin
        self._ends[1, row] = self._properties_used
        self._columns[_FRAME_TOPIC, row] = self._number_of(0, _TOPIC)
        self._columns[_FRAME_BORN_HOST, row] = self._number_of(1, _BORN_HOST)
        self._columns[_FRAME_STORE_HOST, row] = self._number_of(1, _STORE_HOST) if self._is_copy else -1
        return True

    def _end_properties(self, begin: cython.Py_ssize_t) -> cython.int:
        """The property string of a row: as it is given, else of the map, else of keys and tags; false where it is
        unusual."""
        at: cython.Py_ssize_t = self._spans[0, _STORED_PROPERTIES]
        end: cython.Py_ssize_t = self._spans[1, _STORED_PROPERTIES]
        if at >= 0:
            self._properties_used = begin
            self._put(self._scratch, at, end)
            return is_utf8(self._scratch, at, end - at) and self._is_usual(begin)
        if not self._has_map:
            if self._keys_end > self._keys_at >= 0:
                self._put(_KEYS_AND_TAGS, 0, 5)
                self._put(self._scratch, self._keys_at, self._keys_end)
                self._put_byte(_PROPERTY_SEPARATOR)
            at, end = self._spans[0, _TAGS], self._spans[1, _TAGS]
            if at >= 0:
                self._put(_KEYS_AND_TAGS, 5, 10)
                begin = self._properties_used
                self._put(self._scratch, at, end)
                if self._has_separator(begin, self._properties_used):
                    return False
                self._put_byte(_PROPERTY_SEPARATOR)
        if self._needs_ids and not self._has_id and not self._is_named:
            self._put(_UNIQUE_KEY, 0, 9)
            self._notes[3, self._row] = self._properties_used
            self._properties_used += 32
            self._put_byte(_PROPERTY_SEPARATOR)
        return True

    def _is_usual(self, at: cython.Py_ssize_t) -> cython.int:
        """Whether no name among the properties from `at` on is special."""
        stop: cython.Py_ssize_t
        name: cython.Py_ssize_t
        while at < self._properties_used:
            stop = find(self._properties, at, self._properties_used, _PROPERTY_SEPARATOR)
            name = find(self._properties, at, stop, _NAME_SEPARATOR)
            if name < stop and self._is_special(at, name):
                return False
            at = stop + 1
        return True

    def _put(self, view: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        copy(self._properties, self._properties_used, view, at, end - at)
        self._properties_used += end - at
        return 0

    def _put_byte(self, byte: cython.uchar) -> cython.int:
        self._properties[self._properties_used] = byte
        self._properties_used += 1
        return 0

    def _number_of(self, table: cython.int, text: cython.int) -> cython.Py_ssize_t:
        """The number of a text among those of its table, a new one if it is not there; -1 where a line has none."""
        at: cython.Py_ssize_t = self._spans[0, text]
        length: cython.Py_ssize_t
        place: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        mask: cython.Py_ssize_t = self._slots.shape[1] - 1
        number: cython.Py_ssize_t
        state: cython.ulonglong = 2166136261
        if at < 0:
            return -1
        length = self._spans[1, text] - at
        for place in range(at, at + length):
            state = (state ^ self._scratch[place]) * _HASH_PRIME & _LOW_WORD
        slot = (state ^ state >> 15) & mask
        while True:
            number = self._slots[table, slot]
            if number < 0:
                break
            place = self._told_apart[2 * table, number]
            if self._told_apart[2 * table + 1, number] - place == length and same(
                self._texts, place, self._scratch, at, length
            ):
                return number
            slot = slot + 1 & mask
        number = self._counts[table]
        self._counts[table] = number + 1
        self._slots[table, slot] = number
        copy(self._texts, self._texts_used, self._scratch, at, length)
        self._told_apart[2 * table, number] = self._texts_used
        self._texts_used += length
        self._told_apart[2 * table + 1, number] = self._texts_used
        return number
