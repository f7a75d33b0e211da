"""Rows of messages, made plainly: whose numbers, hosts, bodies and properties they hold, and why some are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import LOCAL_HOST, Host, Message
from rmqctl.formats.properties import encode_properties
from rmqctl.store.message_store import MessageStore
from rmqctl.store.native.tables import HOST_TABLE, Frame, FrameSpan
from rmqctl.store.write import writer
from rmqctl.store.write.bulk.bulk import NO_TIME, BulkRows, rows_of_messages
from rmqctl.store.write.put import Known, packed_host
from tests.store.write.writing import SMALL, message

ONE, TWO, V6 = Host(b"\1\2\3\4", 5), Host(b"\6\7\x08\x09", -1), Host(bytes(15) + b"\1", 9)


def rows_of(messages: Sequence[Message], is_copy: bool = False) -> BulkRows:
    """Rows of messages that have some."""
    found = rows_of_messages(messages, Known(SMALL, LOCAL_HOST), is_copy)
    assert found is not None
    assert len(found) == len(messages)
    return found


def bytes_of(rows: BulkRows, span: FrameSpan) -> list[bytes]:
    """Bodies or properties of all rows."""
    held = rows.bodies if span is FrameSpan.BODY else rows.properties
    return [bytes(held[begin:end]) for begin, end in zip(rows.starts[span], rows.ends[span], strict=True)]


@pytest.mark.parametrize(
    "hosts",
    [[ONE], [V6], [ONE, ONE], [ONE, TWO, ONE], [V6, ONE, V6, TWO], [ONE, V6, Host(b"\1\2\3\4", 5)]],
    ids=str,
)
def test_born_hosts_are_those_of_each(hosts: list[Host]) -> None:
    rows = rows_of([message(born_host=host) for host in hosts])
    assert rows.usual.tolist() == [host is not V6 for host in hosts]
    for row, host in enumerate(hosts):
        if host is not V6:
            assert rows.hosts[rows.columns[Frame.BORN_HOST, row]] == packed_host(host)


@pytest.mark.parametrize("born", [[ONE], [TWO, ONE], [V6, TWO]], ids=str)
def test_store_hosts_and_times_are_those_of_each_copy(born: list[Host]) -> None:
    stored = [TWO, None, V6, ONE, TWO, Host(b"\6\7\x08\x09", -1)]
    times = [1, None, 3, 4, 0, 1 << 40]
    copies = [
        message(born_host=born[row % len(born)], store_host=host, store_timestamp=times[row])
        for row, host in enumerate(stored)
    ]
    rows = rows_of(copies, is_copy=True)
    assert rows.is_copy
    assert rows.columns[Frame.STORE_TIMESTAMP].tolist() == [NO_TIME if time is None else time for time in times]
    for row, one in enumerate(copies):
        assert bool(rows.usual[row]) == (one.born_host is not V6 and one.store_host is not V6)
        number = int(rows.columns[Frame.STORE_HOST, row])
        if one.store_host is None:
            assert number == HOST_TABLE
        elif one.store_host is not V6:
            assert number > HOST_TABLE
            assert rows.hosts[number] == packed_host(one.store_host)
        if one.born_host is not V6:
            assert rows.hosts[rows.columns[Frame.BORN_HOST, row]] == packed_host(one.born_host)


@pytest.mark.parametrize("stored", [[None, None], [ONE, ONE], [V6, V6]], ids=str)
def test_store_hosts_may_all_be_the_same(stored: list[Host | None]) -> None:
    rows = rows_of([message(store_host=host, store_timestamp=5) for host in stored], is_copy=True)
    assert rows.usual.tolist() == [host is not V6 for host in stored]
    wanted = {None: None, ONE: packed_host(ONE)}
    for row, host in enumerate(stored):
        number = int(rows.columns[Frame.STORE_HOST, row])
        if host is not V6:
            assert (None if number == HOST_TABLE else rows.hosts[number]) == wanted[host]


def test_what_new_messages_bring_of_a_store_makes_them_unusual() -> None:
    given = [message(), message(store_host=ONE), message(store_timestamp=5), message()]
    assert rows_of(given).usual.tolist() == [True, False, False, True]
    assert rows_of(given, is_copy=True).usual.all()
    for one in given[1:3]:
        assert rows_of([one, one]).usual.tolist() == [False, False]
    assert set(rows_of(given).columns[Frame.STORE_TIMESTAMP].tolist()) == {NO_TIME}


def test_bodies_are_those_of_each_and_bytes_alone() -> None:
    other: Any = bytearray(b"four")
    bodies = [b"one", b"", other, b"three"]
    rows = rows_of([message()._replace(body=body) for body in bodies])
    assert rows.usual.tolist() == [True, True, False, True]
    found = bytes_of(rows, FrameSpan.BODY)
    assert [found[row] for row in (0, 1, 3)] == [b"one", b"", b"three"]
    assert [rows.message(row).body for row in range(4)] == bodies


_ALIKE: list[dict[str, str]] = [{"A": "1", "B": ""}, {"A": "ä", "B": "22"}, {"A": "", "B": "x\x01y"}]


@pytest.mark.parametrize(
    ("properties", "usual"),
    [
        (_ALIKE, [True, True, True]),
        (_ALIKE[:1], [True]),
        ([{}, {}], [True, True]),
        ([{}, {"A": "1"}], [True, True]),
        ([{"A": "1"}, {"A": "x\x02y"}, {"A": "3"}], [True, False, True]),
        ([{"A": "1"}, {"A": "\ud800"}, {"A": "3"}], [True, False, True]),
        ([{"A": "1"}, {"A": 5}], [True, False]),
        ([{"DELAY": "1"}, {"DELAY": "2"}], [False, False]),
        ([{"A": "1", "B": "2"}, {"B": "3", "A": "4"}], [True, True]),
    ],
    ids=str,
)
def test_properties_are_those_of_each(properties: list[dict[str, Any]], usual: list[bool]) -> None:
    rows = rows_of([message(properties=one) for one in properties])
    assert rows.usual.tolist() == usual
    found = bytes_of(rows, FrameSpan.PROPERTIES)
    for row, one in enumerate(properties):
        if usual[row]:
            assert found[row] == encode_properties(one)


def test_properties_in_stored_form_replace_the_others() -> None:
    given = [None, b"A\x01b\x02", b"A\x01b", b"DELAY\x011\x02", b"\xff", b""]
    rows = rows_of([message(properties={"C": "d"}, property_bytes=one) for one in given])
    assert rows.usual.tolist() == [True, True, True, False, False, True]
    found = bytes_of(rows, FrameSpan.PROPERTIES)
    assert [found[row] for row in (0, 1, 2, 5)] == [b"C\x01d\x02", b"A\x01b\x02", b"A\x01b", b""]


def test_topics_have_the_numbers_of_their_places() -> None:
    rows = rows_of([message(topic=topic) for topic in "ABACB"])
    assert rows.topics == ["A", "B", "C"]
    assert rows.columns[Frame.TOPIC].tolist() == [0, 1, 0, 2, 1]
    assert rows_of([message(topic="A")] * 2).columns[Frame.TOPIC].tolist() == [0, 0]
    other: Any = None
    assert rows_of_messages([message(), message()._replace(topic=other)], Known(SMALL, LOCAL_HOST)) is None


def test_born_times_that_are_missing_are_filled_in_later() -> None:
    rows = rows_of([message(born_timestamp=time) for time in (None, 5, None, 0)])
    assert rows.columns[Frame.BORN_TIMESTAMP].tolist() == [NO_TIME, 5, NO_TIME, 0]
    assert rows_of([message()] * 2).columns[Frame.BORN_TIMESTAMP].tolist() == [NO_TIME] * 2


def test_each_row_that_would_be_refused_is_told_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One usual row speaks for all of its topic; the others for themselves. In their order."""
    monkeypatch.setattr(writer, "_BULK_FROM", 1)
    messages = [
        message(topic="a/b"),
        message(),
        message(properties={"INNER_NUM": "1"}),
        message(topic="a/b", queue_id=1),
        message(flag=1 << 31),
        message(topic="a/b", properties={"DELAY": "1"}),
        message(properties={"DELAY": "1"}),
    ]
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        refused = store.check_many(messages)
    no_folder = "MESSAGE_ILLEGAL: topic 'a/b' cannot be a directory name"
    assert list(refused.items()) == [
        (0, no_folder),
        (2, "MESSAGE_ILLEGAL: has INNER_NUM but is no inner batch"),
        (3, no_folder),
        (4, f"flag {1 << 31} does not fit into 32 bits"),
        (5, no_folder),
    ]
