"""Property strings taken apart at once, held against the same one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.store.log.property_columns import PropertyColumns, PropertyParts, Texts, plain_columns, split_columns
from rmqctl.store.native.properties import MOST_PROPERTIES
from tests.quick import examples


def lists(columns: PropertyColumns) -> list[Any]:
    flat: list[Any] = []
    for column in columns:
        parts = column if isinstance(column, Texts) else (column,)
        flat += [None if part is None else part.tolist() for part in parts]
    return flat


def at_once(strings: list[bytes], wanted: PropertyParts, padding: int = 64) -> PropertyColumns | None:
    window = np.frombuffer(b"\x02KEYS\x01" + b"".join(strings) + bytes(padding), np.uint8)
    lengths = np.array([len(one) for one in strings], np.int32)
    positions = (6 + np.cumsum(lengths) - lengths).astype(np.int32)
    return split_columns(window, positions, lengths, wanted)


SHORT = [b"\x01", b"\x02", b"KEYS", b"TAGS", b"UNIQ_KEY", b"UNIQ_KEY1", b"TAG", b"a", b" ", b"  ", b"key", b"\x00"]
LONG = ["ä标".encode(), b"__RMQ.TRANSIENT.", b"__RMQ.TRANSIENT.x\x01y\x02", b"KEYS\x01k1 k2\x02", b"TAGS\x01t\x02"]
PIECES = st.sampled_from([*SHORT, *LONG])
STRINGS = st.lists(st.lists(PIECES, max_size=12).map(b"".join), min_size=1, max_size=8)


@settings(max_examples=examples(400), deadline=None)
@given(STRINGS, st.integers(0, 31), st.sampled_from([0, 3, 64]))
def test_both_give_the_same(strings: list[bytes], wanted: int, padding: int) -> None:
    found = at_once(strings, PropertyParts(wanted), padding)
    assert found is not None
    assert lists(found) == lists(plain_columns(strings, PropertyParts(wanted)))


VALUES = st.sampled_from([b"v", b"", b"\x01", b"KEYS\x01", b"longer than a word", b"k1 k2"])
ALIKE = st.lists(st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"longer than eight", b"x"]), max_size=4).flatmap(
    lambda names: st.lists(
        st.tuples(
            st.lists(VALUES, min_size=len(names), max_size=len(names)),
            st.sampled_from(
                [b"", b"", b"KEYS\x01again\x02", b"more\x01m\x02", b"cut", b"\x02", b"__RMQ.TRANSIENT.\x01t\x02"]
            ),
            st.integers(0, 40) | st.just(1 << 10),
        ).map(
            lambda row: (b"".join(b"%s\x01%s\x02" % one for one in zip(names, row[0], strict=True)) + row[1])[: row[2]]
        ),
        min_size=2,
        max_size=8,
    )
)


@settings(max_examples=examples(400), deadline=None)
@given(ALIKE)
def test_strings_with_the_names_of_the_one_before(strings: list[bytes]) -> None:
    found = at_once(strings, PropertyParts(31))
    assert found is not None
    assert lists(found) == lists(plain_columns(strings, PropertyParts(31)))


def test_many_properties_are_left_to_be_parsed_one_by_one() -> None:
    many = b"".join(b"n%d\x01v\x02" % number for number in range(MOST_PROPERTIES))
    found = at_once([many], PropertyParts(31))
    assert found is not None
    assert lists(found) == lists(plain_columns([many], PropertyParts(31)))
    assert at_once([many + b"one more\x01v\x02"], PropertyParts(31)) is None
