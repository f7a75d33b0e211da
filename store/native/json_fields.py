"""Flat objects of JSON at places of a buffer, as columns of the fields that are asked for: records in bodies.

Plain objects are read here. Every other one is left to the caller: invalid JSON, escapes in a name, a value of another
kind than its field, objects inside.
"""

from __future__ import annotations

from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.json_values import JsonValues
    from cython.cimports.rmqctl.store.native.memory import find, is_utf8, same, topic_hash
    from cython.cimports.rmqctl.store.native.views import (
        Bytes,
        IntRows,
        Ints,
        LongRows,
        Longs,
        ReadInts,
        ReadLongs,
        ULongs,
        WritableBytes,
    )
if not cython.compiled:
    from rmqctl.store.native.json_values import JsonValues
    from rmqctl.store.native.memory import find, is_utf8, same, topic_hash
    from rmqctl.store.native.uncompiled import (
        Bytes,
        IntRows,
        Ints,
        LongRows,
        Longs,
        ReadInts,
        ReadLongs,
        ULongs,
        WritableBytes,
        views,
    )

IGNORED, NUMBER, NAME, LIST, FLAG, OWNER_NUMBER = range(6)
"""Kinds of fields: any text, number, true, false or null; a whole number; a text that is not empty, which says whose
the object is; a list of whole numbers; true or false; a number that says so, too."""
MOST_FIELDS = 32
LEFT = -1
"""In `seen`: the object is left to the caller."""

_NUMBER = cython.declare(cython.int, 1)
_NAME = cython.declare(cython.int, 2)
_LIST = cython.declare(cython.int, 3)
_FLAG = cython.declare(cython.int, 4)
_OWNER_NUMBER = cython.declare(cython.int, 5)
_QUOTE = cython.declare(cython.uchar, 34)
_NAME_SEPARATOR = cython.declare(cython.uchar, 1)
_PROPERTY_SEPARATOR = cython.declare(cython.uchar, 2)
_HASH_PRIME = cython.declare(cython.ulonglong, 16777619)
_LOW_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)
# names made to collide cost no more: the object is left
_MOST_PROBES = cython.declare(cython.int, 32)


def same_spans(
    left: Bytes, left_begins: ReadLongs, right: Bytes, right_begins: ReadLongs, lengths: ReadLongs, found: WritableBytes
) -> None:
    """Set `found` for each row to whether `lengths` bytes of both sides are the same. IndexError for bytes outside of a
    side."""
    row: cython.Py_ssize_t
    if not cython.compiled:
        left_begins, right_begins, lengths = views(left_begins, right_begins, lengths)
    with cython.nogil:
        for row in range(len(lengths)):
            found[row] = same(left, left_begins[row], right, right_begins[row], lengths[row])


def hash_spans(seed: cython.longlong, text: Bytes, begins: ReadInts, ends: ReadInts, found: ULongs) -> None:
    """Set `found` for each row to `topic_hash` of its bytes of `text`. IndexError for bytes outside."""
    row: cython.Py_ssize_t
    if not cython.compiled:
        begins, ends, found = views(begins, ends, found)
    with cython.nogil:
        for row in range(len(begins)):
            found[row] = topic_hash(cython.cast(cython.ulonglong, seed), text, begins[row], ends[row] - begins[row])


class FieldReader(JsonValues):
    """Reads objects. `names`: those of the fields, with `name_ends` from 0 on; `kinds` by field."""

    def __init__(self, names: Bytes, name_ends: ReadInts, kinds: ReadInts) -> None:
        super().__init__(names, name_ends)
        self._kinds = kinds

    def read(
        self, text: Bytes, begins: ReadInts, lengths: ReadInts, extra: ReadLongs, values: LongRows, ends: LongRows,
        items: Longs, seen: Longs, slots: Ints, firsts: Ints, owners: Ints,
    ) -> int:  # fmt: skip
        """Read the objects at `begins` of `text`; return how many owners there are.

        Of field f and row r: `values[f, r]` is a number, 0 or 1, or where a name begins in `text` or a list in
        `items`, which ends at `ends[f, r]`. `seen`: bits of the fields that the object has, or LEFT. Objects with the
        same names, owner numbers and `extra` have the same number in `owners`, and the first one of these is
        `firsts[number]`; one without a name or such a number is left. `slots`: -1 everywhere, more than twice as many
        as rows, a power of two.
        """
        row: cython.Py_ssize_t
        end: cython.Py_ssize_t
        count: cython.int = 0
        owner: cython.int
        self.text = text
        self._values = values
        self._ends = ends
        self._items = items
        self._used = 0
        with cython.nogil:
            for row in range(len(begins)):
                self._row = row
                self._seen = 0
                end = begins[row] + lengths[row]
                if not is_utf8(text, begins[row], lengths[row]) or self._read_object(begins[row], end) != end:
                    seen[row] = -1
                    continue
                owner = self._owner_of(slots, firsts, extra, count)
                seen[row] = self._seen if owner >= 0 else -1
                owners[row] = owner
                count += owner == count
        return count

    def properties(
        self, text: Bytes, begins: ReadInts, lengths: ReadInts, starts: IntRows, ends: IntRows, numbers: LongRows
    ) -> None:
        """Find the properties of these names in the strings at `begins`: where the value of each starts and ends, -1
        without one; and its whole number, -1 for anything but up to 18 digits. A later value wins."""
        row: cython.Py_ssize_t
        at: cython.Py_ssize_t
        end: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        name_end: cython.Py_ssize_t
        expected: cython.Py_ssize_t
        field: cython.Py_ssize_t
        count: cython.Py_ssize_t = len(self.name_ends) - 1
        self.text = text
        with cython.nogil:
            for row in range(len(begins)):
                for field in range(count):
                    starts[field, row] = ends[field, row] = -1
                    numbers[field, row] = -1
                at = begins[row]
                end = at + lengths[row]
                expected = 0
                while at < end:
                    stop = find(text, at, end, _PROPERTY_SEPARATOR)
                    name_end = find(text, at, stop, _NAME_SEPARATOR)
                    field = self.field_of(at, name_end, expected) if name_end + 1 < stop else -1
                    if field >= 0:
                        starts[field, row], ends[field, row] = name_end + 1, stop
                        expected = field + 1
                    at = stop + 1
                for field in range(count):
                    at = starts[field, row]
                    if at >= 0 and self.read_number(at, ends[field, row]) == ends[field, row]:
                        numbers[field, row] = self.number

    def _read_object(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """What follows the object at `at`, -1 where it is left."""
        field: cython.Py_ssize_t = -1
        found: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        if at >= end or self.text[at] != 123:
            return -1
        while True:
            at = self.skip_spaces(at + 1, end)
            if at >= end or self.text[at] != _QUOTE:
                return -1
            stop = self.text_end(at + 1, end)
            if stop < 0 or self.is_escaped:
                return -1
            found = self.field_of(at + 1, stop, field + 1)
            at = self.skip_spaces(stop + 1, end)
            if at >= end or self.text[at] != 58:
                return -1
            at = self.skip_spaces(at + 1, end)
            if found < 0:
                at = self.value_end(at, end)
            else:
                field = found
                at = self._read_value(at, end, field)
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
        """What follows the value of a field, -1 where it is left."""
        kind: cython.int = self._kinds[field]
        stop: cython.Py_ssize_t
        bit: cython.longlong = 1
        self._seen |= bit << field
        if kind in (_NUMBER, _OWNER_NUMBER):
            at = self.read_number(at, end)
            self._values[field, self._row] = self.number
            return at
        if kind == _NAME:
            if at >= end or self.text[at] != _QUOTE:
                return -1
            stop = self.text_end(at + 1, end)
            if stop <= at + 1 or self.is_escaped:
                return -1
            self._values[field, self._row] = at + 1
            self._ends[field, self._row] = stop
            return stop + 1
        if kind == _LIST:
            return self._read_list(at, end, field)
        if kind == _FLAG:
            if self.is_word(at, end, 4, 4):
                self._values[field, self._row] = 1
                return at + 4
            self._values[field, self._row] = 0
            return at + 5 if self.is_word(at, end, 8, 5) else -1
        return self.value_end(at, end)

    def _read_list(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, field: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A list of whole numbers; what follows it."""
        if at >= end or self.text[at] != 91:
            return -1
        self._values[field, self._row] = self._ends[field, self._row] = self._used
        at = self.skip_spaces(at + 1, end)
        if at < end and self.text[at] == 93:
            return at + 1
        while self._used < len(self._items):
            at = self.read_number(at, end)
            if at < 0:
                return -1
            self._items[self._used] = self.number
            self._used += 1
            self._ends[field, self._row] = self._used
            at = self.skip_spaces(at, end)
            if at >= end:
                return -1
            if self.text[at] == 93:
                return at + 1
            if self.text[at] != 44:
                return -1
            at = self.skip_spaces(at + 1, end)
        return -1

    def _owner_of(self, slots: Ints, firsts: Ints, extra: ReadLongs, count: cython.int) -> cython.int:
        """The number of the row's owner, `count` for a new one; -1 where it is not found soon."""
        field: cython.Py_ssize_t
        place: cython.Py_ssize_t
        number: cython.longlong
        known: cython.int
        _: cython.int
        state: cython.ulonglong = 2166136261
        slot: cython.Py_ssize_t
        mask: cython.Py_ssize_t = len(slots) - 1
        for field in range(len(self._kinds)):
            if self._kinds[field] not in (_NAME, _OWNER_NUMBER):
                continue
            if not self._seen >> field & 1:
                return -1
            if self._kinds[field] == _NAME:
                for place in range(self._values[field, self._row], self._ends[field, self._row]):
                    state = (state ^ self.text[place]) * _HASH_PRIME & _LOW_WORD
            else:
                number = self._values[field, self._row]
                state = (state ^ (number & 0xFFFF)) * _HASH_PRIME & _LOW_WORD
        number = extra[self._row]
        state = (state ^ (number & 0xFFFF)) * _HASH_PRIME & _LOW_WORD
        slot = (state ^ state >> 15) & mask
        for _ in range(_MOST_PROBES):
            known = slots[slot]
            if known < 0:
                slots[slot] = count
                firsts[count] = self._row
                return count
            if self._is_same(firsts[known], extra):
                return known
            slot = slot + 1 & mask
        return -1

    def _is_same(self, other: cython.Py_ssize_t, extra: ReadLongs) -> cython.int:
        """Whether the row has the owner of another one."""
        field: cython.Py_ssize_t
        row: cython.Py_ssize_t = self._row
        begin: cython.Py_ssize_t
        length: cython.Py_ssize_t
        if extra[row] != extra[other]:
            return False
        for field in range(len(self._kinds)):
            begin = self._values[field, row]
            if self._kinds[field] == _OWNER_NUMBER and begin != self._values[field, other]:
                return False
            if self._kinds[field] == _NAME:
                length = self._ends[field, row] - begin
                if self._ends[field, other] - self._values[field, other] != length:
                    return False
                if not same(self.text, begin, self.text, self._values[field, other], length):
                    return False
        return True
