"""Columns that stand in the property strings, plainly: the twin of `kernel_properties`."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.properties import encode_properties, parse_properties, split_keys
from rmqctl.store.columns.batch import Bytes, Int32s
from rmqctl.store.scan.arrays import Texts


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
