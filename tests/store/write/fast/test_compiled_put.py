"""The compiled put of one message: what it leaves to others, and that it loses and keeps no reference."""

from __future__ import annotations

import gc
import mmap
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.hosts import LOCAL_HOST, Host
from rmqctl.formats.message import Message
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.fast.extension import FastPath
from rmqctl.store.write.put import PutResult, PutState
from tests.store.same_files import fast_of, plain_of
from tests.store.write.writing import SMALL, message, stored_messages, wait_until

HOST = Host(b"\x0a\0\0\x01", 77)
LIKE = message(properties={"KEYS": "a b", "TAGS": "ä"}, born_host=HOST)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store that has put LIKE on the slow path and on the plain fast one, and so knows all of it."""
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as opened:
        assert plain_of(opened).put(LIKE, False).queue_offset == 0
        assert plain_of(opened).put(LIKE, False).queue_offset == 1
        yield opened


def put(store: MessageStore, one: Message = LIKE) -> PutResult | None:
    """Put by the compiled fast path; None for what it leaves."""
    return fast_of(store).put(one, False)


def state_of(store: MessageStore) -> PutState:
    assert store._writer is not None
    return store._writer._puts


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
        {"born_host": None},
        {"born_host": Host(bytes(16), 77)},
        {"born_host": Host(bytearray(4), 77)},  # type: ignore[arg-type]  # what no type checker lets pass
        {"born_host": Host(bytes(4), 1 << 31)},
        {"born_host": (bytes(4), 77)},
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
    with state_of(store).lock:
        assert put(store) is None
    assert put(store) is not None


def test_observed_writes_go_the_way_that_tells_of_them(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(io, "observer", lambda operation, *_: seen.append(operation))
    assert put(store) is None
    assert store.put(LIKE).queue_offset == 2
    assert "write" in seen


def test_a_file_that_is_closed_is_not_written_to(store: MessageStore) -> None:
    state = state_of(store)
    window = state.window
    assert window is not None
    with open(window.file.path, "r+b") as file:
        closed = mmap.mmap(file.fileno(), 4096)
    closed.close()
    state.window = window._replace(mapped=closed)
    assert put(store) is None
    state.window = window._replace(mapped=b"read only" * 99)
    assert put(store) is None
    state.window = window
    assert put(store) is not None


def test_a_closed_store_has_no_window(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    store.put(LIKE)
    store.close()
    assert put(store) is None


def test_it_wakes_the_follower_and_hands_on_what_that_raises(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert store._writer is not None
    follower = store._writer._follower.thread
    store.wait_for_dispatch()
    wait_until(lambda: follower.is_idle)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(follower, "wake", interrupted)
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
    assert store._writer is not None
    known, fast = store._writer._known, fast_of(store)
    window = state_of(store).window
    assert window is not None
    watched = [
        *(one, key, value, body, HOST, one.properties, one.flag, one.born_timestamp, None, True, "", PutResult),
        *(state_of(store), window, window.file, known.topics, known.names, known.store_host, fast),
    ]
    assert fast.put(one, False) is not None
    gc.collect()
    before = list(map(sys.getrefcount, watched))
    answers = [fast.put(one, False) for _ in range(200)]
    assert all(answers)
    last = answers[-1]
    assert last is not None
    references = sys.getrefcount(last.physical_offset)
    assert references == 2  # the tuple's, and that of the call
    del answers, last
    for _ in range(200):
        assert not any(fast.put(bad, False) for bad in refused)
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


def test_a_path_that_is_let_go_lets_go_of_everything(store: MessageStore) -> None:
    class Watched:
        """Something that a fast path is part of, and that is part of it."""

        path: FastPath

        def put(self, message: Message, as_stored: bool) -> None:
            raise AssertionError("nobody puts")

    watched = Watched()
    watched.path = fast_of(store, watched.put)
    gone = weakref.ref(watched)
    del watched
    gc.collect()
    assert gone() is None


def test_what_is_left_is_handed_on(store: MessageStore) -> None:
    given: list[tuple[Message, bool]] = []
    fast = fast_of(store, lambda *arguments: given.append(arguments))
    other = LIKE._replace(topic="Other")
    assert fast.put(other, False) is None
    assert fast.put(LIKE, True) is None
    assert given == [(other, False), (LIKE, True)]

    def fails(*_: object) -> None:
        raise ValueError("from the slow path")

    with pytest.raises(ValueError, match="from the slow path"):
        fast_of(store, fails).put(other, False)
    wrong: list[tuple[Any, ...]] = [(), (LIKE,), (LIKE, False, 1)]
    for arguments in wrong:
        with pytest.raises(TypeError):
            fast.put(*arguments)


@pytest.mark.parametrize("change", ["columns", "starts", "ends", "usual", "begin", "end", "text", "messages"])
def test_tables_of_another_size_are_refused(store: MessageStore, change: str) -> None:
    given: dict[str, Any] = {
        "messages": (LIKE, LIKE), "begin": 0, "end": 2, "skipped": -1, "topics": {}, "hosts": {None: 0},
        "columns": bytearray(12 * 16), "starts": bytearray(32), "ends": bytearray(32), "usual": bytearray(2),
        "text": bytearray(100),
    }  # fmt: skip
    fast = fast_of(store)
    assert fast.fill_rows(*given.values()) == 2
    wrong = {"begin": -1, "end": 3, "text": bytes(100), "messages": [LIKE, LIKE]}
    given[change] = wrong.get(change, bytearray(len(given[change]) - 1) if change not in wrong else None)
    with pytest.raises((ValueError, TypeError, BufferError)):
        fast.fill_rows(*given.values())


def test_a_topic_whose_comparison_is_code_is_never_known(store: MessageStore) -> None:
    class Told(str):
        __slots__ = ()

    assert store.put(LIKE._replace(topic=Told("TopicB"))).queue_offset == 0
    assert put(store, LIKE._replace(topic="TopicB")) is None
    assert store._writer is not None
    assert {type(topic) for topic in store._writer._known.topics} == {str}
