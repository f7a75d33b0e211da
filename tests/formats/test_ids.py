"""Message ids, by the examples and the truths of the real broker."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Host, format_offset_message_id, is_message_id, parse_offset_message_id
from tests.goldens import truth
from tests.unique_id import parse_unique_id

LOCAL = Host(b"\x7f\0\0\1", 10911)


def test_the_example() -> None:
    assert format_offset_message_id(LOCAL, 0) == "7F00000100002A9F0000000000000000"
    assert parse_offset_message_id("7F00000100002A9F0000000000000000") == (LOCAL, 0)


def test_ipv6_ids_have_56_digits() -> None:
    host = Host(ipaddress.ip_address("fd00::1").packed, 10911)
    text = format_offset_message_id(host, 0x1234)
    assert text == "FD000000000000000000000000000001" + "00002A9F" + "0000000000001234"
    assert parse_offset_message_id(text.lower()) == (host, 0x1234)


@pytest.mark.parametrize("name", ["clean", "features", "v4-clean"])
def test_ids_that_rocketmq_made(name: str) -> None:
    for row in truth(name).messages:
        host, offset = parse_offset_message_id(row["msgId"])
        assert offset == row["phyOffset"]
        assert format_offset_message_id(host, offset) == row["msgId"]
        assert row["storeHost"].endswith(f":{host.port}")


@given(
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_round_trip(ip: bytes, port: int, offset: int) -> None:
    text = format_offset_message_id(Host(ip, port), offset)
    assert is_message_id(text)
    assert len(text) == (32 if len(ip) == 4 else 56)
    assert parse_offset_message_id(text) == (Host(ip, port), offset)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F00000100002A9F000000000000000",
        "7F00000100002A9F00000000000000000",
        "7F00000100002A9F000000000000000G",
        " 7F0000010002A9F0000000000000000",
        "0x000001000002A9F000000000000000",
        "７F00000100002A9F000000000000000",
        "7F00000100002A9F000000000000000\n",
        "F" * 55,
        "F" * 57,
    ],
)
def test_malformed_ids(text: str) -> None:
    assert not is_message_id(text)
    with pytest.raises(UsageError) as caught:
        parse_offset_message_id(text)
    assert caught.value.hint


def test_fields_of_a_unique_id() -> None:
    text = "0A010203" + "FFFE" + "2B2766E3" + "5A180220" + "8001"
    unique = parse_unique_id(text)
    assert unique == ("10.1.2.3", 0xFFFE, 0x2B2766E3, 0x5A180220, 0x8001)
    assert parse_unique_id("0A010203" + "0000" + "FFFFFFFF" + "FFFFFFFF" + "0000")[2:4] == (-1, -1)


def test_unique_ids_of_a_real_client() -> None:
    keys = [row["properties"]["UNIQ_KEY"] for row in truth("clean").messages if "UNIQ_KEY" in row["properties"]]
    assert len(keys) > 1000
    decoded = [parse_unique_id(key) for key in keys]
    assert len({(unique.ip, unique.process_id, unique.class_loader_hash) for unique in decoded}) == 1
    assert len({(unique.time_difference, unique.counter) for unique in decoded}) == len(keys)
    for unique in decoded:
        assert 0 <= unique.time_difference < 31 * 86_400_000
