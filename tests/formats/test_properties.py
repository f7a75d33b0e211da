"""The property string: what RocketMQ keeps, drops and overwrites."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.properties import encode_properties, parse_properties, replace_property, split_keys
from rmqctl.formats.schemas import property_string
from tests.goldens import truth

# what can stand in a property: any text that UTF-8 can hold, without the separators
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), min_size=1, max_size=12)


def reference(text: str) -> dict[str, str]:
    """MessageDecoder#string2messageProperties as it is written down: by indexes, not by splitting."""
    found: dict[str, str] = {}
    start = 0
    while start < len(text):
        end = text.find("\x02", start)
        if end < 0:
            end = len(text)
        separator = text.find("\x01", start)
        if end - start >= 3 and start < separator < end - 1:
            found[text[start:separator]] = text[separator + 1 : end]
        start = end + 1
    return found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02", {"KEYS": "k1 k2", "TAGS": "TagA"}),
        # empty names and values are dropped
        (b"\x01b\x02a\x01\x02c\x01d", {"c": "d"}),
        # no separator at all, and separators alone
        (b"abc\x02\x02\x02x\x01y", {"x": "y"}),
        (b"\x01\x02\x01", {}),
        # a later duplicate wins, and takes the first one's place
        (b"a\x011\x02b\x012\x02a\x013", {"a": "3", "b": "2"}),
        # only the first 0x01 separates
        (b"a\x01b\x01c", {"a": "b\x01c"}),
        ("名\x01值\x02".encode(), {"名": "值"}),
    ],
)
def test_parsing(data: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(data) == expected
    assert list(parse_properties(data)) == list(expected)


@given(st.text(st.sampled_from("ab\x01\x02"), max_size=14))
def test_parsing_is_rocketmq_s(text: str) -> None:
    assert parse_properties(text.encode()) == reference(text)


def test_bytes_that_are_not_utf_8() -> None:
    with pytest.raises(UnicodeDecodeError):
        parse_properties(b"a\x01\xff\xfe\x02")


@given(st.dictionaries(NAMES, VALUES, max_size=6), st.booleans())
def test_round_trip(properties: dict[str, str], trailing: bool) -> None:
    stored = {name: value for name, value in properties.items() if not name.startswith("__RMQ.TRANSIENT.")}
    data = encode_properties(properties, trailing)
    assert parse_properties(data) == stored
    assert list(parse_properties(data)) == list(stored), "in their order"
    assert data.endswith(b"\x02") is (trailing and bool(stored))


def test_encoding() -> None:
    assert encode_properties({"KEYS": "k", "TAGS": "t"}) == b"KEYS\x01k\x02TAGS\x01t\x02"
    assert encode_properties({"KEYS": "k", "TAGS": "t"}, trailing_separator=False) == b"KEYS\x01k\x02TAGS\x01t"
    assert encode_properties({}) == b""


def test_transient_properties_are_never_stored() -> None:
    assert encode_properties({"__RMQ.TRANSIENT.x": "1", "a": "2"}) == b"a\x012\x02"


def test_an_empty_value_is_stored_but_not_read_back() -> None:
    assert encode_properties({"a": "", "b": "1"}) == b"a\x01\x02b\x011\x02"
    assert parse_properties(b"a\x01\x02b\x011\x02") == {"b": "1"}


def test_replacing_one_property_leaves_the_others_alone() -> None:
    assert replace_property(b"a\x011\x02b\x012\x02", "a", "x") == b"a\x01x\x02b\x012\x02"
    assert replace_property(b"a\x011\x02b\x012", "c", "3") == b"a\x011\x02b\x012\x02c\x013\x02"
    assert replace_property(b"", "c", "3") == b"c\x013\x02"
    assert replace_property(b"ab\x011\x02", "a", "2") == b"ab\x011\x02a\x012\x02"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (None, []),
        ("", []),
        (" ", []),
        ("a", ["a"]),
        ("a b", ["a", "b"]),
        ("  a   b ", ["a", "b"]),
        ("hot hot", ["hot", "hot"]),
        ("a\tb", ["a\tb"]),
    ],
)
def test_keys_are_separated_by_single_spaces(keys: str | None, expected: list[str]) -> None:
    assert split_keys(keys) == expected


def test_properties_that_rocketmq_reads(golden_messages: list[tuple[bytes, dict[str, str]]]) -> None:
    assert len(golden_messages) > 400
    for stored, properties in golden_messages:
        assert parse_properties(stored) == properties


@pytest.fixture(scope="module")
def golden_messages(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, dict[str, str]]]:
    """Property bytes of `features`, cut out by the layout's arithmetic, with what RocketMQ read of them."""
    from tests.goldens import golden

    store = golden("features", tmp_path_factory.mktemp("properties"))
    found = []
    for row in truth("features").messages:
        start = row["phyOffset"]
        file = store / "commitlog" / f"{start // 262144 * 262144:020d}"
        frame = file.read_bytes()[start % 262144 : start % 262144 + row["storeSize"]]
        hosts = 12 * (row["sysFlag"] >> 4 & 1) + 12 * (row["sysFlag"] >> 5 & 1)
        topic_at = 88 + hosts + row["bodyLength"]
        properties_at = topic_at + 1 + frame[topic_at] + 2
        found.append((frame[properties_at:], row["properties"]))
    return found


@given(st.dictionaries(NAMES, VALUES), st.booleans())
def test_the_parser_agrees_with_the_schema(properties: dict[str, str], trailing: bool) -> None:
    """On every well-formed string; what RocketMQ drops (empty names and values) is tested above."""
    stored = encode_properties(properties, trailing)
    parsed = property_string.parse(stored)
    assert {entry.name.decode(): entry.value.decode() for entry in parsed} == parse_properties(stored)
