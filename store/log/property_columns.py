"""Columns that stand in the property strings of messages."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.properties import encode_properties, parse_properties, split_keys
from rmqctl.store.log.columns import Bytes, Flags, Int32s, Int64s, MessageColumns
from rmqctl.store.native.json_fields import FieldReader, hash_spans
from rmqctl.store.native.properties import FOUND_ROWS, MOST_PROPERTIES, split_properties
from rmqctl.store.native.uncompiled import views


class Texts(NamedTuple):
    """Texts one behind the other in `data`, UTF-8; text n is data[offsets[n]:offsets[n + 1]]. None: null where not
    `present`; `present` None: none is null."""

    offsets: Int32s
    data: Bytes
    present: Flags | None = None


class PropertyParts(enum.IntFlag):
    """What is asked of the properties; what is not costs nothing and comes out empty."""

    UNIQUE_KEY = 1
    TAGS = 2
    KEYS = 4
    MAP = 8
    STORED = 16


class PropertyColumns(NamedTuple):
    """Lists are given as Arrow has them: the items of row n are [offsets[n], offsets[n + 1]).

    `stored` holds the property string where `properties` does not give it back.
    """

    unique_key: Texts
    tags: Texts
    key_offsets: Int32s
    keys: Texts
    map_offsets: Int32s
    map_names: Texts
    map_values: Texts
    stored: Texts


class FoundProperties(NamedTuple):
    """Where in `window` the values of some properties start and end, a row for each of the `names` and a column for
    each message, -1 without one; and their whole `numbers`, -1 for anything but up to 18 digits."""

    window: Bytes
    names: tuple[str, ...]
    starts: Int32s
    ends: Int32s
    numbers: Int64s

    def places(self, name: str) -> tuple[Int64s, Int32s, Int32s]:
        """Return which messages have a property, and where its values start and end."""
        at = self.names.index(name)
        rows = np.flatnonzero(self.starts[at] >= 0)
        return rows, self.starts[at][rows], self.ends[at][rows]

    def has_text(self, name: str, text: bytes) -> Flags:
        """Return which messages have this value of a property."""
        rows, starts, ends = self.places(name)
        found = np.zeros(self.starts.shape[1], np.bool_)
        rows, starts = rows[ends - starts == len(text)], starts[ends - starts == len(text)]
        here = self.window[starts[:, None] + np.arange(len(text))] == np.frombuffer(text, np.uint8)
        found[rows[here.all(axis=1)]] = True
        return found

    def texts(self, name: str, chosen: Flags | None = None) -> tuple[Int64s, list[bytes]]:
        """Return which messages have a property, of those `chosen` if not of all, and its values."""
        rows, starts, ends = self.places(name)
        if chosen is not None:
            rows, starts, ends = rows[chosen[rows]], starts[chosen[rows]], ends[chosen[rows]]
        data = self.window.tobytes() if len(rows) else b""
        return rows, [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def hashes(self, name: str, seed: int) -> tuple[Int64s, Int64s]:
        """Return which messages have a property, and `topic_hash` of its values, signed."""
        rows, starts, ends = self.places(name)
        found = np.empty(len(rows), np.int64)
        hash_spans(seed, *views(self.window, starts, ends, found.view(np.uint64)))
        return rows, found

    def whole_numbers(self, name: str, parsed: Callable[[str], int | None]) -> Int64s:
        """Return the property of each message as a number, -1 without one. `parsed` reads what are not plain digits."""
        at = self.names.index(name)
        numbers: Int64s = self.numbers[at].copy()
        for row, text in zip(*self.texts(name, numbers < 0), strict=True):
            number = parsed(text.decode())
            numbers[row] = -1 if number is None else number
        return numbers


def found_properties(batch: MessageColumns, *wanted: str) -> FoundProperties:
    """Return where these properties of the messages are; a later value wins."""
    assert batch.window is not None
    window, (count, rows) = np.ascontiguousarray(batch.window), (len(wanted), len(batch))
    name_ends = np.cumsum([0, *map(len, wanted)], dtype=np.int32)
    reader = FieldReader("".join(wanted).encode(), *views(name_ends, np.zeros(count, np.int32)))
    places = map(np.ascontiguousarray, (batch.property_position, batch.property_length))
    found = np.empty((2, count, rows), np.int32), np.empty((count, rows), np.int64)
    reader.properties(*views(window, *places, found[0][0], found[0][1], found[1]))
    return FoundProperties(window, wanted, found[0][0], found[0][1], found[1])


class _Writer:
    """Collects texts."""

    def __init__(self) -> None:
        self._ends = [0]
        self._parts: list[bytes] = []
        self._present: list[bool] = []

    def add(self, text: bytes | None) -> None:
        self._parts.append(text or b"")
        self._ends.append(self._ends[-1] + len(text or b""))
        self._present.append(text is not None)

    def count(self) -> int:
        return len(self._parts)

    def made(self, nullable: bool) -> Texts:
        data = np.frombuffer(b"".join(self._parts), np.uint8)
        present = np.array(self._present, np.bool_) if nullable else None
        return Texts(np.array(self._ends, np.int32), data, present)


def plain_columns(strings: Iterable[bytes], wanted: PropertyParts) -> PropertyColumns:
    """The columns of property strings, which must be UTF-8."""
    unique_key, tags, keys, map_names, map_values, stored = (_Writer() for _ in range(6))
    key_offsets, map_offsets = [0], [0]
    for string in strings:
        found = parse_properties(string)
        if wanted & PropertyParts.UNIQUE_KEY:
            unique_key.add(_encoded(found.get(names.UNIQUE_KEY)))
        if wanted & PropertyParts.TAGS:
            tags.add(_encoded(found.get(names.TAGS)))
        if wanted & PropertyParts.KEYS:
            for key in split_keys(found.get(names.KEYS)):
                keys.add(key.encode("utf-8"))
            key_offsets.append(keys.count())
        if wanted & PropertyParts.MAP:
            for name, value in found.items():
                map_names.add(name.encode("utf-8"))
                map_values.add(value.encode("utf-8"))
            map_offsets.append(map_names.count())
        if wanted & PropertyParts.STORED:
            stored.add(string if encode_properties(found) != string else None)
    return PropertyColumns(
        unique_key.made(True),
        tags.made(True),
        np.array(key_offsets, np.int32),
        keys.made(False),
        np.array(map_offsets, np.int32),
        map_names.made(False),
        map_values.made(False),
        stored.made(True),
    )


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8")


def strings_at(window: Bytes, positions: Int32s, lengths: Int32s) -> list[bytes]:
    """The bytes at each position."""
    held = np.ascontiguousarray(window).data
    ends = (positions + lengths).tolist()
    return [bytes(held[begin:end]) for begin, end in zip(positions.tolist(), ends, strict=True)]


def property_columns(
    batch: MessageColumns, positions: Int32s, lengths: Int32s, wanted: PropertyParts
) -> PropertyColumns:
    """The columns of the property strings at `positions` of the batch's window."""
    assert batch.window is not None
    made = split_columns(batch.window, positions, lengths, wanted)
    return plain_columns(strings_at(batch.window, positions, lengths), wanted) if made is None else made


def split_columns(window: Bytes, positions: Int32s, lengths: Int32s, wanted: PropertyParts) -> PropertyColumns | None:
    """The same, but None where a string has more than MOST_PROPERTIES."""
    rows, total = len(positions), int(lengths.sum())

    def data(flag: PropertyParts) -> Bytes:
        return np.empty(total if wanted & flag else 0, np.uint8)

    ends, present = np.zeros((5, rows + 1), np.int32), np.zeros((3, rows), np.uint8)
    # every key takes a byte and a space, every property a name, a value and two separators, the last ones but these
    most = (total + rows) // 2 if wanted & (PropertyParts.KEYS | PropertyParts.MAP) else 0
    items = np.zeros((3, most + 1), np.int32)
    parts = PropertyParts
    unique, tags, keys = data(parts.UNIQUE_KEY), data(parts.TAGS), data(parts.KEYS)
    map_names, values, stored = data(parts.MAP), data(parts.MAP), data(parts.STORED)
    window, positions, lengths = map(np.ascontiguousarray, (window, positions, lengths))
    found = np.zeros((FOUND_ROWS, MOST_PROPERTIES), np.int64)
    given: list[Any] = [
        *views(window, positions, lengths), int(wanted), *views(found, ends, present.reshape(-1), items),
        *views(unique, tags, keys, map_names, values, stored),
    ]  # fmt: skip
    if not split_properties(*given):
        return None
    there = present.view(np.bool_)
    key_count, map_count = (int(ends[place, rows]) for place in (2, 3))
    return PropertyColumns(
        _texts(ends[0], unique, there[0]) if wanted & parts.UNIQUE_KEY else _NONE,
        _texts(ends[1], tags, there[1]) if wanted & parts.TAGS else _NONE,
        ends[2] if wanted & parts.KEYS else _NOWHERE,
        _texts(items[0, : key_count + 1], keys),
        ends[3] if wanted & parts.MAP else _NOWHERE,
        _texts(items[1, : map_count + 1], map_names),
        _texts(items[2, : map_count + 1], values),
        _texts(ends[4], stored, there[2]) if wanted & parts.STORED else _NONE,
    )


_NOWHERE = np.zeros(1, np.int32)
_NONE = Texts(_NOWHERE, np.zeros(0, np.uint8), np.zeros(0, np.bool_))


def _texts(offsets: Int32s, data: Bytes, present: Flags | None = None) -> Texts:
    """Texts without memory for what was not used."""
    used = int(offsets[-1])
    return Texts(offsets.copy(), data[:used] if 2 * used > len(data) else data[:used].copy(), present)
