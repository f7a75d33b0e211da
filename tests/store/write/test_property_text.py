"""Properties of ordinary messages as text: what is written at once equals what is written one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.properties import encode_properties
from rmqctl.store.write.prepare import (
    UNUSUAL_PROPERTIES,
    joined_alike,
    property_template,
    property_writer,
    usual_stored,
)


@pytest.mark.parametrize("names", [("A",), ("A", "%s"), ("ä", "B", "C"), ("A", "B", "C", "D", "E")], ids=str)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_messages_with_the_same_names_are_joined(names: tuple[str, ...], count: int) -> None:
    values = [f"{'ö' * number}{number}" for number in range(count * len(names))]
    each = [
        dict(zip(names, values[begin : begin + len(names)], strict=True)) for begin in range(0, len(values), len(names))
    ]
    assert joined_alike(names, values).encode() == b"".join(map(encode_properties, each))
    wrong: list[Any] = [*values[:-1], 5]
    with pytest.raises(TypeError):
        joined_alike(names, wrong)


@pytest.mark.parametrize("count", range(7))
def test_a_separator_in_any_value_is_found(count: int) -> None:
    names = tuple(f"N{number}" for number in range(count))
    write = property_writer(names)
    assert write is not None
    good = {name: f"v\x01{name}" for name in names}
    assert write(good) == encode_properties(good).decode()
    for name in names:
        assert write(good | {name: "v\x02"}) is None


@pytest.mark.parametrize("name", sorted(UNUSUAL_PROPERTIES))
def test_what_needs_more_is_found_in_stored_properties_wherever_it_stands(name: str) -> None:
    own = f"{name}\x01x\x02".encode()
    for stored in (own, b"A\x01b\x02" + own, own + b"A\x01b\x02"):
        assert usual_stored(stored) is None
    # as a value, or as a part of a name, it is nothing special
    for stored in (b"A\x01" + name.encode() + b"\x02", b"A\x01b\x02x" + own, f"{name}X\x01x\x02".encode()):
        assert usual_stored(stored) == stored
    for names in ((name,), ("A", name), (name, "A")):
        assert property_template(names) is None
        assert property_writer(names) is None


def test_stored_properties_are_bytes_of_utf_8() -> None:
    for stored in (b"", b"A\x01b", "ä\x01ö\x02".encode()):
        assert usual_stored(stored) == stored
    others: list[object] = [b"A\x01\xff\x02", bytearray(b"A\x01b\x02"), memoryview(b""), "A\x01b\x02", None]
    assert [usual_stored(other) for other in others] == [None] * len(others)


@settings(deadline=None)
@given(st.dictionaries(st.text("AB%sä", max_size=4), st.text("xyö%s\x01\x02", max_size=3), max_size=7))
def test_properties_are_written_as_ever(properties: dict[str, str]) -> None:
    template, write = property_template(tuple(properties)), property_writer(tuple(properties))
    assert template is not None
    assert write is not None
    wanted = encode_properties(properties)
    assert (template % tuple(properties.values())).encode() == wanted
    has_separator = any("\x02" in value for value in properties.values())
    assert write(properties) == (None if has_separator else wanted.decode())


@pytest.mark.parametrize("count", range(1, 6))
def test_a_value_that_is_no_text_is_told(count: int) -> None:
    properties: dict[str, Any] = {f"name{number}": "text" for number in range(count)}
    write = property_writer(tuple(properties))
    assert write is not None
    properties[f"name{count - 1}"] = 5
    with pytest.raises(TypeError):
        write(properties)


@pytest.mark.parametrize("name", ["DELAY", "INNER_NUM", "__CRC32#", "__RMQ.TRANSIENT.a", "a\x01", "\x02", 5])
def test_names_that_need_more(name: str) -> None:
    assert property_template(("KEYS", name)) is None
    assert property_writer(("KEYS", name)) is None
