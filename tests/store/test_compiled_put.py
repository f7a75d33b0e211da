"""The compiled put of one message: what it leaves to others, and that it loses and keeps no reference."""

from __future__ import annotations

import gc
import mmap
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats.hosts import LOCAL_HOST, Host
from formats.message import Message
from store.columns import native
from store.columns.engine import engine
from store.files import io
from store.message_store import MessageStore
from store.write import compiled_put
from store.write.ordinary import OrdinaryPuts
from store.write.result import PutResult
from tests.store.writing import SMALL, message, stored_messages, wait_until

HOST = Host(b"\x0a\0\0\x01", 77)
LIKE = message(properties={"KEYS": "a b", "TAGS": "ä"}, born_host=HOST)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store that has put LIKE the whole way and the plain one, and puts compiled from then on."""
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as opened:
        opened.put(LIKE)
        opened.put(LIKE)
        ordinary_of(opened).use_compiled()
        yield opened


def ordinary_of(store: MessageStore) -> OrdinaryPuts:
    assert store._ordinary is not None
    return store._ordinary


def put(store: MessageStore, one: Message = LIKE) -> PutResult | None:
    return ordinary_of(store).put_compiled(one)


def test_it_puts(store: MessageStore, tmp_path: Path) -> None:
    answers = [put(store, LIKE._replace(body=bytes(size), flag=size)) for size in (0, 1, 300)]
    assert [(one.queue_offset, one.detail) for one in answers if one is not None] == [(2, ""), (3, ""), (4, "")]
    store.wait_for_dispatch()
    found = stored_messages(tmp_path / "s")[2:]
    assert [one.physical_offset for one in answers if one is not None] == [one.physical_offset for one in found]
    assert [(len(one.body), one.flag, one.queue_offset) for one in found] == [(0, 0, 2), (1, 1, 3), (300, 300, 4)]
    assert {one.property_bytes for one in found} == {"KEYS\x01a b\x02TAGS\x01ä\x02".encode()}
    assert {one.born_host for one in found} == {HOST}
    assert all(abs(one.store_timestamp - found[0].store_timestamp) < 60_000 for one in stored_messages(tmp_path / "s"))


class Text(str):
    """A text whose methods are asked."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise AssertionError("code of Python's runs in a put")


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "Other"},
        {"topic": None},
        {"queue_id": 1},
        {"queue_id": True},
        {"queue_id": "0"},
        {"flag": 1 << 31},
        {"flag": 1 << 70},
        {"flag": 1.0},
        {"sys_flag": 4},
        {"sys_flag": None},
        {"reconsume_times": -(1 << 31) - 1},
        {"born_timestamp": 1 << 63},
        {"prepared_transaction_offset": b""},
        {"body": "text"},
        {"body": bytes(65_500)},
        {"born_host": LOCAL_HOST},
        {"born_host": None},
        {"properties": {"OTHER": ""}},
        {"properties": {"KEYS": "\x02"}},
        {"properties": {"KEYS": "\ud800"}},
        {"properties": {"KEYS": None}},
        {"properties": {"KEYS": "x" * 40_000}},
        {"properties": {5: "x"}},
        {"properties": ()},
        {"properties": None},
        {"property_bytes": b""},
        {"store_timestamp": 0},
        {"store_host": LOCAL_HOST},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_what_is_not_ordinary_or_not_known_is_left(store: MessageStore, changes: dict[str, object]) -> None:
    one = LIKE._replace(**changes)  # type: ignore[arg-type]  # what no type checker lets pass
    assert put(store, one) is None
    again = put(store)
    assert again is not None
    assert again.queue_offset == 2


def test_what_only_looks_like_a_message_is_left(store: MessageStore) -> None:
    class Derived(Message):
        pass

    others: list[Any] = [tuple.__new__(Message, ("TopicA", b"")), (*LIKE,), LIKE[:3], Derived(*LIKE), None, "text", []]
    for one in others:
        assert put(store, one) is None


def test_no_code_of_a_message_runs(store: MessageStore) -> None:
    class Properties(dict[str, str]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("code of Python's runs in a put")

    assert put(store, LIKE._replace(topic=Text("TopicA"))) is None
    assert put(store, LIKE._replace(properties=Properties(KEYS="a"))) is None
    answer = put(store, LIKE._replace(properties={"KEYS": Text("value")}))
    assert answer is not None  # only the name is looked up


def test_no_properties(store: MessageStore, tmp_path: Path) -> None:
    assert put(store, LIKE._replace(properties={})) is not None
    assert put(store, Message(LIKE.topic, b"x", born_host=HOST)) is not None
    store.wait_for_dispatch()
    assert [one.property_bytes for one in stored_messages(tmp_path / "s")][2:] == [b"", b""]


def test_whoever_holds_the_lock_excludes_it(store: MessageStore) -> None:
    with ordinary_of(store).lock:
        assert put(store) is None
    assert put(store) is not None


def test_observed_writes_go_the_way_that_tells_of_them(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(io, "observer", lambda operation, *_: seen.append(operation))
    assert put(store) is None
    assert store.put(LIKE).queue_offset == 2
    assert "write" in seen


def test_a_file_that_is_closed_is_not_written_to(store: MessageStore) -> None:
    ordinary = ordinary_of(store)
    window = ordinary.window
    assert window is not None
    with open(window.file.path, "r+b") as file:
        closed = mmap.mmap(file.fileno(), 4096)
    closed.close()
    ordinary.window = window._replace(mapped=closed)
    assert put(store) is None
    ordinary.window = window._replace(mapped=b"read only" * 99)
    assert put(store) is None
    ordinary.window = window
    assert put(store) is not None


def test_a_closed_store_has_no_window(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    store.put(LIKE)
    ordinary_of(store).use_compiled()
    store.close()
    assert put(store) is None


def test_it_wakes_the_follower_and_hands_on_what_that_raises(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ordinary = ordinary_of(store)
    store.wait_for_dispatch()
    wait_until(lambda: ordinary._follower.is_idle)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ordinary._follower, "wake", interrupted)
    ordinary.use_compiled()
    with pytest.raises(KeyboardInterrupt):
        put(store)
    monkeypatch.undo()
    store.wait_for_dispatch()
    assert [one.queue_offset for one in stored_messages(tmp_path / "s")] == [0, 1, 2]


def test_no_reference_is_lost_or_kept(store: MessageStore) -> None:
    key, value, body = "".join(("KE", "YS")), "value" * 9, b"body" * 9
    one = Message(LIKE.topic, body, 0, 70_000, {key: value}, born_timestamp=10**12, born_host=HOST)
    refused = [one._replace(**changes) for changes in ({"flag": 1 << 40}, {"sys_flag": 4}, {"body": bytes(65_500)})]
    refused.append(one._replace(properties={key: value, "OTHER": value}))
    ordinary = ordinary_of(store)
    function: Any = ordinary.put_compiled
    watched = [
        *(one, key, value, body, HOST, one.properties, one.flag, one.born_timestamp, None, True, "", PutResult),
        *(ordinary, ordinary.window, ordinary.known_topics, ordinary._store_host, function.__self__),
    ]
    assert put(store, one) is not None
    gc.collect()
    before = list(map(sys.getrefcount, watched))
    answers = [put(store, one) for _ in range(200)]
    assert all(answers)
    last = answers[-1]
    assert last is not None
    references = sys.getrefcount(last.physical_offset)
    assert references == 2  # the tuple's, and that of the call
    del answers, last
    for _ in range(200):
        assert not any(put(store, bad) for bad in refused)
    gc.collect()
    # other threads use the ones that everybody uses
    changes = [abs(after - count) for count, after in zip(before, map(sys.getrefcount, watched), strict=True)]
    assert max(changes) < 100, changes


def test_threads_do_not_come_between_each_other(store: MessageStore, tmp_path: Path) -> None:
    def work(number: int) -> None:
        for count in range(400):
            result = (put(store) if number % 2 else None) or store.put(LIKE._replace(body=bytes(count)))
            assert result.status.is_stored

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert [one.queue_offset for one in stored_messages(tmp_path / "s")] == list(range(1602))


def test_a_file_that_is_full_is_rolled(store: MessageStore, tmp_path: Path) -> None:
    for _ in range(2000):
        assert store.put(LIKE).status.is_stored
    assert [one.queue_offset for one in stored_messages(tmp_path / "s")] == list(range(2002))
    assert len(list((tmp_path / "s" / "commitlog").iterdir())) > 3


def test_where_python_is_another_one_there_is_none(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_put._load.cache_clear()
    try:
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        assert not native.is_possible()
        ordinary_of(store).use_compiled()
        assert put(store) is None
        assert store.put(LIKE).queue_offset == 2
    finally:
        monkeypatch.undo()
        compiled_put._load.cache_clear()
    ordinary_of(store).use_compiled()
    assert put(store) is not None


def test_a_wrong_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    crc_function = engine().crc_function
    assert compiled_put._load.__wrapped__(crc_function) is not None
    monkeypatch.setattr(compiled_put, "_is_right", lambda *_: False)
    assert compiled_put._load.__wrapped__(crc_function) is None


def test_many_puts_turn_it_on(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", create=True) as store:
        one = message(1000)
        store.put_many([one] * 1900)
        store.wait_for_dispatch()
        assert put(store, one) is None

        def is_on() -> bool:
            for _ in range(100):
                store.put(one)
            store.wait_for_dispatch()
            return put(store, one) is not None

        wait_until(is_on, 60)
