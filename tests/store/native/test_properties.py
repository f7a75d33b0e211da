"""Property strings taken apart and joined, compiled and plain, held against formats/properties."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.properties import encode_properties, parse_properties, split_keys
from rmqctl.store.native.uncompiled import views
from tests.quick import examples
from tests.store.native.forms import compiled_form, plain_form

ALL = 31


@pytest.fixture(params=["compiled", "plain"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    return form(request.param)


def form(name: str) -> ModuleType:
    return compiled_form("properties") if name == "compiled" else plain_form("properties")


def both() -> list[ModuleType]:
    return [compiled_form("properties"), plain_form("properties")]


def taken_apart(module: ModuleType, strings: list[bytes], wanted: int = ALL) -> list[list[Any]] | None:
    """By string its unique key, its tags, its keys, its properties and whether these give it back."""
    data = b"\x02KEYS\x01" + b"".join(strings)
    rows, total = len(strings), len(data)
    lengths = np.array([len(one) for one in strings], np.int32)
    positions = (6 + np.cumsum(lengths) - lengths).astype(np.int32)
    ends, items = np.zeros((5, rows + 1), np.int32), np.zeros((3, total + 1), np.int32)
    present = np.zeros(3 * rows, np.uint8)
    unique, tags, keys, names, values, stored = (np.zeros(total, np.uint8) for _ in range(6))
    found = np.zeros((module.FOUND_ROWS, module.MOST_PROPERTIES), np.int64)
    done = module.split_properties(
        data, *views(positions, lengths), wanted,
        *views(found, ends, present, items, unique, tags, keys, names, values, stored),
    )  # fmt: skip
    if not done:
        return None

    def text(texts: Any, column: Any, place: int) -> bytes:
        return bytes(texts[column[place] : column[place + 1]])

    there = present.reshape(3, rows).astype(bool)
    return [
        [
            text(unique, ends[0], row) if there[0, row] else None,
            text(tags, ends[1], row) if there[1, row] else None,
            [text(keys, items[0], item) for item in range(ends[2, row], ends[2, row + 1])],
            [
                (text(names, items[1], item), text(values, items[2], item))
                for item in range(ends[3, row], ends[3, row + 1])
            ],
            text(stored, ends[4], row) if there[2, row] else None,
        ]
        for row in range(rows)
    ]


def expected(string: bytes, wanted: int = ALL) -> list[Any]:
    found = parse_properties(string)

    def encoded(name: str, flag: int) -> bytes | None:
        return found[name].encode() if name in found and wanted & flag else None

    return [
        encoded("UNIQ_KEY", 1),
        encoded("TAGS", 2),
        [key.encode() for key in split_keys(found.get("KEYS"))] if wanted & 4 else [],
        [(name.encode(), value.encode()) for name, value in found.items()] if wanted & 8 else [],
        string if encode_properties(found) != string and wanted & 16 else None,
    ]


SHORT = [b"\x01", b"\x02", b"KEYS", b"TAGS", b"UNIQ_KEY", b"UNIQ_KEY1", b"TAG", b"a", b" ", b"  ", b"key", b"\x00"]
LONG = ["ä标".encode(), b"__RMQ.TRANSIENT.", b"__RMQ.TRANSIENT.x\x01y\x02", b"KEYS\x01k1 k2\x02", b"TAGS\x01t\x02"]
STRINGS = st.lists(st.lists(st.sampled_from([*SHORT, *LONG]), max_size=12).map(b"".join), min_size=1, max_size=8)


@settings(max_examples=examples(400), deadline=None)
@given(STRINGS, st.integers(0, 31))
def test_strings_of_every_kind(strings: list[bytes], wanted: int) -> None:
    for module in both():
        assert taken_apart(module, strings, wanted) == [expected(one, wanted) for one in strings]


VALUES = st.sampled_from([b"v", b"", b"\x01", b"KEYS\x01", b"longer than a word", b"k1 k2"])
BEHIND = [b"", b"", b"KEYS\x01again\x02", b"more\x01m\x02", b"cut", b"\x02", b"__RMQ.TRANSIENT.\x01t\x02"]
NAMES = st.lists(st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"longer than eight", b"x"]), max_size=4)


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    names = draw(NAMES)
    rows = []
    for _ in range(draw(st.integers(2, 8))):
        string = b"".join(b"%s\x01%s\x02" % (name, draw(VALUES)) for name in names) + draw(st.sampled_from(BEHIND))
        rows.append(string[: draw(st.integers(0, 40) | st.just(1 << 10))])
    return rows


@settings(max_examples=examples(400), deadline=None)
@given(alike())
def test_strings_with_the_names_of_the_one_before(strings: list[bytes]) -> None:
    for module in both():
        assert taken_apart(module, strings) == list(map(expected, strings))


@settings(max_examples=examples(400), deadline=None)
@given(STRINGS | alike())
def test_values_of_some_properties_are_those_of_all(strings: list[bytes]) -> None:
    wanted = ["KEYS", "x", "UNIQ_KEY", "longer than eight"]
    data = b"UNIQ_KEY\x01" + b"".join(strings)
    lengths = np.array([len(one) for one in strings], np.int32)
    positions = (9 + np.cumsum(lengths) - lengths).astype(np.int32)
    name_ends = np.cumsum([0, *map(len, wanted)], dtype=np.int32)
    for fields in (compiled_form("json_fields"), plain_form("json_fields")):
        reader = fields.FieldReader("".join(wanted).encode(), *views(name_ends, np.zeros(4, np.int32)))
        starts, ends = np.zeros((2, 4, len(strings)), np.int32)
        numbers = np.zeros((4, len(strings)), np.int64)
        reader.properties(data, *views(positions, lengths, starts, ends, numbers))
        for row, string in enumerate(strings):
            found = parse_properties(string)
            for at, name in enumerate(wanted):
                value = data[starts[at, row] : ends[at, row]].decode() if starts[at, row] >= 0 else None
                assert value == found.get(name)
        assert (numbers == -1).all()


@pytest.mark.parametrize("form_name", ["compiled", "plain"])
def test_whole_numbers_of_properties(form_name: str) -> None:
    texts = ["0", "7", "-5", "9" * 18, "9" * 19, "01", "1.5", "x", "", "1 "]
    strings = [f"x\x01{text}\x02".encode() for text in texts]
    lengths = np.array([len(one) for one in strings], np.int32)
    positions = (np.cumsum(lengths) - lengths).astype(np.int32)
    fields = (compiled_form if form_name == "compiled" else plain_form)("json_fields")
    starts, ends = np.zeros((2, 1, len(texts)), np.int32)
    numbers = np.zeros((1, len(texts)), np.int64)
    reader = fields.FieldReader(b"x", *views(np.array([0, 1], np.int32), np.zeros(1, np.int32)))
    reader.properties(b"".join(strings), *views(positions, lengths, starts, ends, numbers))
    assert numbers[0].tolist() == [0, 7, -5, 10**18 - 1, -1, -1, -1, -1, -1, -1]


def test_many_properties_are_left(module: ModuleType) -> None:
    many = b"".join(b"n%d\x01v\x02" % number for number in range(module.MOST_PROPERTIES))
    assert taken_apart(module, [many]) == [expected(many)]
    assert taken_apart(module, [many + b"one more\x01v\x02"]) is None


def test_a_place_outside_of_the_window_is_an_error(module: ModuleType) -> None:
    ints = views(*(np.array(one, np.int32) for one in ([0], [9])))
    room = [memoryview(bytearray(20)) for _ in range(7)]
    found, ends, items = views(
        np.zeros((module.FOUND_ROWS, module.MOST_PROPERTIES), np.int64),
        np.zeros((5, 2), np.int32),
        np.zeros((3, 9), np.int32),
    )
    with pytest.raises(IndexError):
        module.split_properties(b"TAGS\x01t\x02", *ints, 31, found, ends, room[0], items, *room[1:])


def joined(module: ModuleType, rows: list[list[tuple[bytes, bytes]]], each: int) -> list[bytes] | None:
    sides = [[one[side] for row in rows for one in row] for side in (0, 1)]
    ends = views(*(np.cumsum([0, *map(len, side)], dtype=np.int32) for side in sides))
    names, values = (b"".join(side) for side in sides)
    target = np.zeros(len(names) + len(values) + 2 * len(sides[0]), np.uint8)
    places = np.zeros(len(rows) + 1, np.int64)
    used = module.join_properties(names, ends[0], values, ends[1], each, *views(target, places))
    if used < 0:
        return None
    assert used == places[-1] == len(target)
    return [bytes(target[begin:end]) for begin, end in pairwise(places)]


PIECES = st.lists(st.sampled_from([b"a", b"KEYS", "é€😀".encode(), b"\x01", b"\x02", b" "]), max_size=4).map(b"".join)


@st.composite
def tables(draw: st.DrawFn) -> list[list[tuple[bytes, bytes]]]:
    """Rows that mostly have the same names."""
    names = draw(st.lists(PIECES, min_size=1, max_size=4))
    other = draw(st.one_of(st.none(), PIECES))
    rows = [[(name, draw(PIECES)) for name in names] for _ in range(draw(st.integers(1, 5)))]
    if other is not None:
        rows[draw(st.integers(0, len(rows) - 1))][0] = other, b"v"
    return rows


@settings(max_examples=examples(300), deadline=None)
@given(tables())
def test_joined(rows: list[list[tuple[bytes, bytes]]]) -> None:
    names = [[name for name, _ in row] for row in rows]
    good = names.count(names[0]) == len(rows) and not any(b"\x02" in value for row in rows for _, value in row)
    strings = [b"".join(b"%s\x01%s\x02" % one for one in row) for row in rows]
    for module in both():
        assert joined(module, rows, len(rows[0])) == (strings if good else None)


def test_no_room_is_an_error(module: ModuleType) -> None:
    ends, places = views(np.array([0, 4], np.int32), np.zeros(2, np.int64))
    with pytest.raises(IndexError):
        module.join_properties(b"TAGS", ends, b"abcd", ends, 1, bytearray(9), places)
