"""What a store knows of ordinary messages, and what it never takes for one."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from rmqctl.formats.message import LOCAL_HOST, NO_PROPERTIES, Host
from rmqctl.formats.properties import encode_properties
from rmqctl.store.write import put as known
from rmqctl.store.write.put import Known, OffsetTable, packed_host
from tests.store.write.writing import SMALL, small

V6 = Host(bytes(15) + b"\1", 9)


class Text(str):
    """One whose methods are somebody's."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("host", "packed"),
    [
        (Host(b"\1\2\3\4", 5), b"\1\2\3\4\0\0\0\5"),
        (Host(b"\1\2\3\4", -1), b"\1\2\3\4\xff\xff\xff\xff"),
        # IPv4 in the dress of IPv6
        (Host(bytes(10) + b"\xff\xff\1\2\3\4", 5), b"\1\2\3\4\0\0\0\5"),
        (V6, None),
        (Host(b"\1\2\3\4", 1 << 31), None),
        (None, None),
        ("1.2.3.4:5", None),
        ((b"\1\2\3\4", 5), None),
    ],
)
def test_a_host_of_ipv4_has_eight_bytes(host: Any, packed: bytes | None) -> None:
    assert packed_host(host) == packed


@pytest.mark.parametrize(
    ("changes", "is_possible"),
    [
        ({}, True),
        ({"transient_store_pool_enable": True}, False),
        ({"enabled_append_prop_crc": True}, False),
        ({"broker_role": "SLAVE"}, False),
        ({"broker_role": "SLAVE", "duplication_enable": True}, True),
        ({"duplication_enable": True}, True),
    ],
    ids=str,
)
def test_stores_with_a_fast_path(changes: dict[str, object], is_possible: bool) -> None:
    assert Known(small(**changes), LOCAL_HOST).is_possible == is_possible
    assert not Known(small(**changes), V6).is_possible
    assert Known(SMALL, Host(b"\1\2\3\4", 5)).packed_store_host == b"\1\2\3\4\0\0\0\5"


def test_topics_are_known_by_their_field_and_queues_by_their_next_offsets() -> None:
    knowing, table = Known(SMALL, LOCAL_HOST), OffsetTable()
    for topic, queue_id in (("T", 0), ("ä" * 63, 0), ("T", 5), ("T" * 127, 1)):
        knowing.learn(topic, queue_id, table.entry((topic, queue_id)))
    assert {topic: found.field for topic, found in knowing.topics.items()} == {
        "T": b"\x01T",
        "ä" * 63: b"\x7e" + "ä".encode() * 63,
        "T" * 127: b"\x7f" + b"T" * 127,
    }
    assert knowing.topics["T"].queues == {0: table.entry(("T", 0)), 5: table.entry(("T", 5))}
    unknown: list[tuple[Any, Any]] = [(Text("U"), 0), ("U", True), ("U", "0"), (b"U", 0), ("ä" * 64, 0)]
    for topic, queue_id in unknown:
        knowing.learn(topic, queue_id, table.entry(("U", 0)))
    assert len(knowing.topics) == 3
    assert set(knowing.topics["T"].queues) == {0, 5}


@pytest.mark.parametrize(
    "properties", [{}, NO_PROPERTIES, {"A": "b"}, {"KEYS": "ä", "100%": "%s"}, {str(number): "" for number in range(9)}]
)
def test_ordinary_properties_are_written_down(properties: dict[str, str]) -> None:
    knowing = Known(SMALL, LOCAL_HOST)
    for _ in range(2):  # the second time they have a writer
        assert knowing.properties_of(properties) == encode_properties(properties)
    knowing.learn_names(properties)
    assert knowing.names == {name: name.encode() + b"\x01" for name in properties}


@pytest.mark.parametrize(
    "properties",
    [
        MappingProxyType({"A": "b"}),
        type("Sub", (dict,), {})(A="b"),
        None,
        [],
        {"A": "x\x02y"},
        {"A": "\ud800"},
        {"\ud800": "x"},
        {"A": 5},
        {5: "A"},
        {"A": None},
        {Text("A"): "b"},
        {"DELAY": "1"},
        {"A\x01": "b"},
        {"A\x02": "b"},
    ],
    ids=ascii,
)
def test_others_are_left_to_who_can_tell_what_is_wrong(properties: Any) -> None:
    knowing = Known(SMALL, LOCAL_HOST)
    for _ in range(2):
        assert knowing.properties_of(properties) is None


def test_only_so_many_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes up new ones for every message does not fill the memory; they are written down all the same."""
    monkeypatch.setattr(known, "_REMEMBERED", 2)
    knowing = Known(SMALL, LOCAL_HOST)
    for number in range(4):
        assert knowing.properties_of({f"N{number}": "x"}) == f"N{number}\x01x\x02".encode()
        knowing.learn_names({f"N{number}": "x"})
    assert list(knowing.names) == ["N0", "N1"]


@pytest.mark.parametrize(
    "name", ["DELAY", "INNER_NUM", "__RMQ.TRANSIENT.A", "A\x01", "A\x02", "\ud800", 5, Text("A")], ids=ascii
)
def test_other_names_are_never_known(name: Any) -> None:
    knowing = Known(SMALL, LOCAL_HOST)
    knowing.learn_names({"KEYS": "a", name: "b"})
    assert knowing.names == {}
