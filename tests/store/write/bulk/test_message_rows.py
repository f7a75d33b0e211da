"""Messages become the same rows by compiled code and by plain code, and the same judgement falls on them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings

from rmqctl.formats.layouts import BLANK_FRAME
from rmqctl.formats.message import Host, Message
from rmqctl.formats.properties import encode_properties
from rmqctl.store.files.mapped_file_queue import Allocator
from rmqctl.store.message_store import MessageStore
from rmqctl.store.native.put import OrdinaryPuts
from rmqctl.store.native.tables import Frame, FrameSpan
from rmqctl.store.status import PutStatus
from rmqctl.store.write import writer
from rmqctl.store.write.bulk import bulk as message_rows
from rmqctl.store.write.bulk.bulk import BulkRows, ColumnsResult, rows_of_messages, rows_of_new_messages
from rmqctl.store.write.put import Known, PutResult
from tests.store.same_files import MESSAGES, fast_of
from tests.store.write.writing import FILE_SIZE, SMALL, message

COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


class Open(NamedTuple):
    """A store that is open for writing: what it knows of ordinary messages, and its fast path."""

    known: Known
    fast: OrdinaryPuts


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    with MessageStore.open(tmp_path_factory.mktemp("rows") / "s", "rw", SMALL, create=True) as opened:
        assert opened._writer is not None
        yield Open(opened._writer._known, fast_of(opened))


def compiled(messages: list[Message], store: Open) -> BulkRows:
    return rows_of_new_messages(messages, store.fast)


def contents(rows: BulkRows, row: int) -> dict[str, Any]:
    """Everything a row says."""
    numbers = {name.name: int(rows.columns[name, row]) for name in Frame}
    found: dict[str, Any] = {
        **numbers,
        "TOPIC": rows.topics[numbers["TOPIC"]],
        "BORN_HOST": rows.hosts[numbers["BORN_HOST"]],
    }
    for held, span in ((rows.bodies, FrameSpan.BODY), (rows.properties, FrameSpan.PROPERTIES)):
        found[span.name] = bytes(held[rows.starts[span, row] : rows.ends[span, row]])
    return found


@COMMON
@given(messages=MESSAGES.filter(bool))
def test_both_ways_make_the_same_rows(store: Open, messages: list[Message]) -> None:
    fast = compiled(messages, store)
    for row, one in enumerate(messages):
        plain = rows_of_messages([one], store.known)
        # None is for numbers that no column holds; what is stored already goes the plain way or the whole one
        is_usual = plain is not None and bool(plain.usual[0]) and one.property_bytes is None
        assert bool(fast.usual[row]) == is_usual, one
        if plain is not None and fast.usual[row]:
            assert contents(fast, row) == contents(plain, 0)
        assert fast.message(row) is one


def test_more_rows_than_are_taken_at_once(store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_rows, "_ROWS_AT_ONCE", 7)
    messages = [
        message(number % 3, topic=f"T{number % 4}", properties={f"N{number % 9}": "v" * number})
        for number in range(300)
    ]
    rows = compiled(messages, store)
    assert rows.usual.all()
    assert not rows.is_copy
    for row in range(0, 300, 41):
        plain = rows_of_messages([messages[row]], store.known)
        assert plain is not None
        assert contents(rows, row) == contents(plain, 0)


def test_more_names_than_are_remembered(store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.store.write.put._REMEMBERED", 0)
    rows = compiled([message(properties={"never seen": ""}), message()], store)
    assert rows.usual.tolist() == [False, True]


def test_rows_keep_alive_what_they_tell_the_places_of(store: Open) -> None:
    messages = [message(5000 + number, properties={"KEYS": f"{number}"}) for number in range(100)]
    rows = compiled(messages, store)
    bodies = [bytes(one.body) for one in messages]
    messages.clear()
    gc.collect()
    others = [bytes([7]) * (5000 + number) for number in range(100)]
    assert [contents(rows, row)["BODY"] for row in range(100)] == bodies
    assert len(others) == 100


def test_no_reference_is_lost_or_kept(store: Open) -> None:
    host, value, body = Host(b"\x0a\0\0\x09", 7), "value" * 3, b"body" * 5
    messages = [Message("T", body, 70_000, 0, {"KEYS": value}, born_host=host) for _ in range(300)]
    messages.append(Message("T", body, None, born_host=host))  # type: ignore[arg-type]
    compiled(messages, store)
    gc.collect()
    watched = [host, value, body, messages[0], messages[0].properties, messages[0].queue_id, None, store.known.names]
    before = list(map(sys.getrefcount, watched))
    for _ in range(20):
        compiled(messages, store)
    gc.collect()
    changes = [abs(after - count) for count, after in zip(before, map(sys.getrefcount, watched), strict=True)]
    assert max(changes) < 100, changes


def test_what_only_looks_like_a_message(store: Open) -> None:
    others: list[Any] = [message(), tuple.__new__(Message, ("TopicA", b"")), (*message(),), None, "text"]
    assert compiled(others, store).usual.tolist() == [True, False, False, False, False]


def test_nothing_but_unusual_messages(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put_many([message()] * 12_000)
        results = store.put_many([message(properties={"DELAY": "1"}, sys_flag=4)] * 100)
        assert {one.status.is_stored for one in results} == {True}


def test_rows_with_other_names_of_as_many_properties_keep_their_own(store: Open) -> None:
    """Plainly: rows of the same names are joined at once by the names of the first."""
    first, second, third = {"A": "1", "B": "2"}, {"A": "3", "B": "4"}, {"A": "5", "C": "6"}
    for given_ in ([first, second], [first, third], [first, {"A": "5"}, {"B": "6", "C": "7", "A": "8"}]):
        rows = rows_of_messages([message(properties=one) for one in given_], store.known)
        assert rows is not None
        for row, wanted in enumerate(given_):
            assert contents(rows, row)["PROPERTIES"] == encode_properties(wanted)


def test_rows_keep_their_own_numbers(store: Open) -> None:
    """Plainly: a number that all rows have is written down once, and no other."""
    changes: list[dict[str, Any]] = [
        {}, {"queue_id": 3}, {"flag": 4}, {"sys_flag": 1}, {"reconsume_times": 5}, {"prepared_transaction_offset": 6},
        {"topic": "Other"}, {"born_timestamp": 7}, {"born_host": Host(b"\x0a\0\0\x09", 8)},
    ]  # fmt: skip
    for change in changes:
        given_ = [message(), message(**change), message()]
        together = rows_of_messages(given_, store.known)
        assert together is not None
        for row, one in enumerate(given_):
            alone = rows_of_messages([one], store.known)
            assert alone is not None
            assert contents(together, row) == contents(alone, 0), change


def test_a_row_is_unusual_that_leaves_no_room_for_the_end_of_its_file(store: Open) -> None:
    """Plainly; refusals are told by it before anything is put."""
    rows = rows_of_messages([message(100)], store.known)
    assert rows is not None
    rows.judge(4096, 1 << 20)
    needed = int(rows.columns[Frame.SIZE, 0]) + BLANK_FRAME.size
    for file_size, is_usual in ((needed, True), (needed - 1, False)):
        rows.judge(4096, file_size)
        assert rows.usual.tolist() == [is_usual]


def test_the_first_place_is_that_of_the_first_row_that_is_stored() -> None:
    result = ColumnsResult.of(3)
    assert result.first_physical_offset is None
    for row, place in ((2, 70), (1, 0)):
        result.note(row, PutResult(PutStatus.PUT_OK, 0, place))
        assert result.first_physical_offset == place


def test_the_next_file_is_asked_for_once_half_of_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(writer, "_BULK_FROM", 1)
    monkeypatch.setattr(writer, "_BULK_AFTER", 0)
    monkeypatch.setattr(Allocator, "ask", lambda _, start_offset: asked.append(start_offset))
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put_many([message(FILE_SIZE // 3)])
        assert asked == []
        store.put_many([message(FILE_SIZE // 3)])
        assert asked == [FILE_SIZE]
