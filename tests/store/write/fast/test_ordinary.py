"""The fast path of ordinary messages leaves what the slow path leaves, and is left where it must be."""

from __future__ import annotations

import errno
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import WriteFailedError
from rmqctl.formats.message import Message
from rmqctl.formats.properties import encode_properties
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write.prepare import property_template, property_writer
from tests.quick import examples
from tests.store.same_files import MESSAGES, NOW, by_plain_put, by_put, fast_of, files_after, one_by_one, plain_of
from tests.store.write.writing import SMALL, message, records, small, stored_messages, wait_until

Taken = Callable[[MessageStore, Message], bool]


@pytest.fixture(params=["plain", "compiled"])
def taken(request: pytest.FixtureRequest) -> Taken:
    """Whether the next put of a message takes the fast path. Puts it if so."""

    def put(store: MessageStore, one: Message) -> bool:
        plain = plain_of(store)
        if request.param == "plain":
            return plain.put_if_ordinary(one) is not None
        # what is not known yet, or is observed, goes on to the plain one
        return fast_of(store, lambda message, _: plain.put_if_ordinary(message)).put(one, False) is not None

    return put


@settings(
    max_examples=examples(40),
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(MESSAGES)
def test_all_paths_leave_the_same_files(messages: list[Message]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        slow = files_after(Path(folder, "slow"), messages, one_by_one, SMALL)
        assert files_after(Path(folder, "plain"), messages, by_plain_put, SMALL) == slow
        assert files_after(Path(folder, "compiled"), messages, by_put, SMALL) == slow


def test_ordinary_messages_take_the_fast_path(taken: Taken, tmp_path: Path) -> None:
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
        assert store._writer is not None
        assert store._writer._fast is None
        store.put(message())
        assert plain_of(store).put_if_ordinary(message()) is None


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


def test_a_closed_or_failed_store_has_none(taken: Taken, tmp_path: Path) -> None:
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


def test_a_clock_that_goes_back_takes_the_slow_path(taken: Taken, tmp_path: Path) -> None:
    now = NOW
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, clock=lambda: now) as store:
        store.put(message())
        assert taken(store, message())
        now -= 1
        assert not taken(store, message())
        store.put(message())
        assert taken(store, message())
    assert [one.store_timestamp - NOW for one in stored_messages(tmp_path / "s")] == [0, 0, -1, -1]


def test_a_fast_put_that_fails_is_not_counted(taken: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "write" and "commitlog" in path:
            raise OSError(errno.EIO, "Input/output error")

    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
        with monkeypatch.context() as patch:
            patch.setattr(io, "observer", broken)
            with pytest.raises(WriteFailedError, match="Input/output"):
                taken(store, message())
        assert store.put(message()).queue_offset == 1


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


def test_the_follower_is_woken_by_the_fast_path(taken: Taken, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
        store.wait_for_dispatch()
        queue = store.files.queues.find("TopicA", 0)
        assert queue is not None
        for expected in range(2, 6):
            assert taken(store, message())
            wait_until(lambda expected=expected: queue.max_offset == expected)  # type: ignore[misc]  # bound now


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
