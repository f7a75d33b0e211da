"""Host addresses as text and as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import LOCAL_HOST, Host, parse_host


@pytest.mark.parametrize(
    ("text", "ip", "port"),
    [
        ("127.0.0.1:10911", b"\x7f\0\0\1", 10911),
        ("255.255.255.255:0", b"\xff" * 4, 0),
        ("[::1]:80", bytes(15) + b"\1", 80),
        ("[fd00::2]:10911", b"\xfd" + bytes(14) + b"\2", 10911),
        ("1.2.3.4:-1", b"\1\2\3\4", -1),
    ],
)
def test_both_ways(text: str, ip: bytes, port: int) -> None:
    assert parse_host(text) == Host(ip, port)
    assert str(Host(ip, port)) == text


def test_ipv4_inside_ipv6_stays_ipv6() -> None:
    host = parse_host("[::ffff:1.2.3.4]:5")
    assert host.is_v6
    assert len(host.ip) == 16


@given(
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    st.integers(-(1 << 31), (1 << 31) - 1),
)
def test_whatever_is_stored_can_be_shown_and_read_back(ip: bytes, port: int) -> None:
    assert parse_host(str(Host(ip, port))) == Host(ip, port)


def test_the_host_of_messages_of_our_own() -> None:
    assert str(LOCAL_HOST) == "127.0.0.1:10911"
    assert not LOCAL_HOST.is_v6


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "localhost:1",
        "1.2.3.4",
        "1.2.3.4:",
        "1.2.3.4:x",
        "1.2.3.4:+5",
        "1.2.3.4: 5",
        "1.2.3.4:1_0",
        "1.2.3.4:１",
        "1.2.3.4:2147483648",
        "1.2.3.4:" + "9" * 5000,
        "1.2.3:5",
        "1.2.3.256:5",
        "1.2.3.4\0:5",
        "::1:5",
        "[::1:5",
        "[::1]5",
        "[1.2.3.4]:5",
        "[fe80::1%eth0]:5",
    ],
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_host(text)
    assert caught.value.hint


@pytest.mark.parametrize("port", [-(1 << 31), -(1 << 31) + 1, -1, 0, 65535, (1 << 31) - 2, (1 << 31) - 1])
def test_ports_are_all_that_the_field_can_say(port: int) -> None:
    assert parse_host(f"1.2.3.4:{port}").port == parse_host(f"[::1]:{port}").port == port
    for beyond in (-(1 << 31) - 1, 1 << 31):
        with pytest.raises(UsageError):
            parse_host(f"[::1]:{beyond}")


def test_as_a_broker_writes_it() -> None:
    """An IPv4 address in the dress of IPv6 takes four bytes, and no other does."""
    for ip, written in (
        (bytes(10) + b"\xff\xff\1\2\3\4", b"\1\2\3\4"),
        (bytes(9) + b"\1\xff\xff\1\2\3\4", None),
        (bytes(12) + b"\1\2\3\4", None),
        (b"\1\2\3\4", None),
    ):
        assert Host(ip, 5).as_written == Host(ip if written is None else written, 5)
