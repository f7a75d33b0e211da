"""The fast path of ordinary messages leaves what the slow path leaves, and is left where it must be."""

from __future__ import annotations

import contextlib
import errno
import gc
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rmqctl.formats.errors import WriteFailedError
from rmqctl.formats.message import Message
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write import put as known
from tests.quick import examples
from tests.store.native.forms import compiled_form
from tests.store.same_files import MESSAGES, NOW, by_put, fast_of, files_after, one_by_one, plain_puts
from tests.store.write.writing import SMALL, message, records, small, stored_messages, wait_until

ONE = message(properties={"KEYS": "a b", "TAGS": "ä"})


@pytest.fixture(params=["plain", "compiled"], autouse=True)
def form(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stores put in one form, and in the other."""
    if request.param == "compiled":
        compiled_form("put")
    with plain_puts() if request.param == "plain" else contextlib.nullcontext():
        yield


def taken(store: MessageStore, one: Message) -> bool:
    """Whether the next put of a message takes the fast path. Puts it if so."""
    return fast_of(store).put_if_ordinary(one) is not None


@settings(
    max_examples=examples(40),
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(MESSAGES)
def test_both_paths_leave_the_same_files(messages: list[Message]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        slow = files_after(Path(folder, "slow"), messages, one_by_one, SMALL)
        assert files_after(Path(folder, "fast"), messages, by_put, SMALL) == slow


def test_ordinary_messages_take_the_fast_path(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        ordinary = message(properties={"KEYS": "a b", "TAGS": "t"})
        assert not taken(store, ordinary)
        first = store.put(ordinary)
        assert taken(store, ordinary)
        assert taken(store, message(7, properties={"OTHER": "%"}))
        assert taken(store, Message(ordinary.topic, b"none"))
        assert not taken(store, message(queue_id=1))
        assert not taken(store, message(topic="TopicB"))
        assert not taken(store, message(properties={"DELAY": "1"}))
        assert not taken(store, message(1 << 16))
        second = store.put(ordinary)
        assert (first.queue_offset, second.queue_offset) == (0, 4)
        assert store.lookup(str(second.message_id)).physical_offset == second.physical_offset
    assert [one.queue_offset for one in stored_messages(tmp_path / "s")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "changes",
    [
        {"transient_store_pool_enable": True},
        {"enabled_append_prop_crc": True},
    ],
)
def test_stores_that_have_no_fast_path(tmp_path: Path, changes: dict[str, object]) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(**changes), create=True) as store:
        store.put(message())
        assert not taken(store, message())


def test_where_puts_wait_for_the_disk_those_that_do_so_themselves_are_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the others still wait."""
    with MessageStore.open(tmp_path / "s", "rw", small(flush_disk_type="SYNC_FLUSH"), create=True) as store:
        assert store.put(message()).status is PutStatus.PUT_OK
        writer = store._writing
        slow: list[object] = []
        put_all = writer._putter._put_all

        def noted(*given: Any, **named: Any) -> Any:
            slow.append(given)
            return put_all(*given, **named)

        monkeypatch.setattr(writer._putter, "_put_all", noted)
        pending = [store.put_at_once([message(properties={"WAIT": wait})]) for wait in ("true", "false")]
        assert not slow
        assert [put.results[0].queue_offset for put in pending] == [1, 2]
        # behind the frame, so that what is told then is on disk; and nothing for who does not wait
        assert [put.durable_at for put in pending] == [pending[1].results[0].physical_offset, 0]
        on_disk = threading.Event()
        store.tell_when_on_disk(pending[0].durable_at, on_disk.set)
        assert on_disk.wait(60)
        assert writer._log_flusher.flushed_offset >= pending[0].durable_at
        assert store.put(message()).queue_offset == 3
        assert slow
        assert writer._log_flusher.flushed_offset == writer._appender.end_offset
        assert store.put_at_once([message(1 << 18)]).results[0].status is PutStatus.MESSAGE_ILLEGAL
    assert len(stored_messages(tmp_path / "s")) == 4


def test_a_closed_or_failed_store_has_none(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    store.put(message())
    store.close()
    assert not taken(store, message())
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store = MessageStore.open(tmp_path / "s", "rw", SMALL)
    store.put(message())
    assert store._writer is not None
    store._writer._state.fail(WriteFailedError("no"))
    assert not taken(store, message())
    with pytest.raises(WriteFailedError, match="no"):
        store.close()


def test_a_clock_that_goes_back_takes_the_slow_path(tmp_path: Path) -> None:
    now = NOW
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, clock=lambda: now) as store:
        store.put(message())
        assert taken(store, message())
        now -= 1
        assert not taken(store, message())
        store.put(message())
        assert taken(store, message())
    assert [one.store_timestamp - NOW for one in stored_messages(tmp_path / "s")] == [0, 0, -1, -1]


def test_a_put_that_fails_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "write" and "commitlog" in path:
            raise OSError(errno.EIO, "Input/output error")

    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
        with monkeypatch.context() as patch:
            patch.setattr(io, "observer", broken)
            # whoever watches, and may fail, has the slow path write
            assert not taken(store, message())
            with pytest.raises(WriteFailedError, match="Input/output"):
                store.put(message())
        assert taken(store, message())
        assert store.put(message()).queue_offset == 2


def test_several_threads_share_the_paths(tmp_path: Path) -> None:
    def put(number: int) -> None:
        for _ in range(300):
            assert store.put(message(number + 1, queue_id=number % 2)).status.is_stored

    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = stored_messages(tmp_path / "s")
    for queue_id in (0, 1):
        offsets = [one.queue_offset for one in found if one.queue_id == queue_id]
        assert offsets == list(range(600))
    assert {kind for kind, _ in records(tmp_path / "s")} == {"StoredMessage", "Blank", "Empty"}


def test_the_follower_is_woken_by_the_fast_path(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
        store.wait_for_dispatch()
        queue = store.files.queues.find("TopicA", 0)
        assert queue is not None
        for expected in range(2, 6):
            assert taken(store, message())
            wait_until(lambda expected=expected: queue.max_offset == expected)  # type: ignore[misc]  # bound now


def test_threads_do_not_come_between_each_other(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for count in range(400):
            one = ONE._replace(body=bytes(count))
            result = (fast_of(store).put_if_ordinary(one) if number % 2 else None) or store.put(one)
            assert result.status.is_stored

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert [one.queue_offset for one in stored_messages(tmp_path / "s")] == list(range(1600))


@pytest.mark.parametrize("as_batch", [False, True])
def test_a_file_that_is_full_is_closed_and_the_next_one_begun(tmp_path: Path, as_batch: bool) -> None:
    """Also by messages that open no window: a window on a file that is full would keep it from being closed."""
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for number in range(2000):
            assert store.put(ONE).status.is_stored
            if as_batch and number % 10 == 0:
                assert store.put_many([ONE, ONE], batch=True)[0].status.is_stored
            if number % 500 == 0:
                store.flush()
        files = store.files.log.files
        assert len(files) > 3
        store.flush()
        assert [file._map is None for file in files] == [True] * (len(files) - 1) + [False]
    count = 2400 if as_batch else 2000
    assert [one.queue_offset for one in stored_messages(tmp_path / "s")] == list(range(count))


def test_a_closed_store_lets_its_messages_and_files_go(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    for _ in range(3):
        store.put(ONE)
    gone = weakref.ref(store._writing)
    store.close()
    assert fast_of(store).put_if_ordinary(ONE) is None
    assert store.put(ONE).status is PutStatus.SERVICE_NOT_AVAILABLE
    del store
    gc.collect()
    assert gone() is None


def test_a_topic_whose_comparison_is_code_is_never_known(tmp_path: Path) -> None:
    class Told(str):
        __slots__ = ()

    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(ONE)
        assert store.put(ONE._replace(topic=Told("TopicB"))).queue_offset == 0
        assert not taken(store, ONE._replace(topic="TopicB"))
        assert store._writer is not None
        assert {type(topic) for topic in store._writer._known.topics} == {str}


def test_more_names_than_are_remembered_take_the_slow_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_REMEMBERED", 1)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(ONE)
        assert taken(store, ONE._replace(properties={"A": "a"}))
        assert not taken(store, ONE._replace(properties={"B": "b"}))
        assert taken(store, ONE._replace(properties={"A": "b"}))
