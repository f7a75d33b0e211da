"""The slow path of a put: who waits for the disk, what is refused under the lock, and what an interruption leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UsageError, WriteFailedError
from rmqctl.formats.message import Message
from rmqctl.formats.properties import TRANSACTION_PREPARED
from rmqctl.store.files import io
from rmqctl.store.log import append as flush
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write import dispatch as reput
from rmqctl.store.write import put, writer
from rmqctl.store.write.checks import Headroom
from rmqctl.store.write.prepare import wants_durability
from rmqctl.store.write.put import Putter
from tests.store.write.writing import (
    FILE_SIZE,
    NEVER,
    SMALL,
    body_that_leaves,
    files_below,
    message,
    small,
    stored_messages,
    wait_until,
)

NOW = 1_700_000_000_000
CARELESS = {"WAIT": "false"}


class Disk:
    """Its log is on disk when the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync" and "commitlog/" in path:
            assert self.gate.wait(120)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk for stores that flush when somebody asks for it, and not by themselves."""
    monkeypatch.setattr(flush, "_GROUP_COMMIT_MS", NEVER)
    found = Disk()
    monkeypatch.setattr(io, "observer", found)
    yield found
    found.gate.set()


def waiting_store(root: Path, **changes: object) -> MessageStore:
    """One that answers when a message is on disk, or after 100 ms."""
    config = small(flush_disk_type="SYNC_FLUSH", sync_flush_timeout=100, **changes)
    return MessageStore.open(root, "rw", config, create=True)


def test_what_is_stored_and_not_on_disk_in_time_is_told_as_that(tmp_path: Path, disk: Disk) -> None:
    unfit = message(topic="T" * 128)
    with waiting_store(tmp_path / "s") as store:
        disk.gate.clear()
        late = store.put(message())
        assert (late.status, late.detail) == (
            PutStatus.FLUSH_DISK_TIMEOUT,
            "stored, but not on disk after 100 ms",
        )
        assert (late.physical_offset, late.queue_offset) == (0, 0)
        for messages, is_batch in (([message(), unfit, message()], False), ([message()] * 2, True)):
            statuses = [one.status for one in store.put_many(messages, batch=is_batch)]
            assert statuses == [
                PutStatus.MESSAGE_ILLEGAL if one is unfit else PutStatus.FLUSH_DISK_TIMEOUT for one in messages
            ]
        # who stores nothing waits for nothing
        assert store.put(unfit).status is PutStatus.MESSAGE_ILLEGAL
        assert store.put_many([unfit] * 2)[1].status is PutStatus.MESSAGE_ILLEGAL
        disk.gate.set()
        assert store.put(message()).status is PutStatus.PUT_OK
    assert len(stored_messages(tmp_path / "s")) == 6


@pytest.mark.parametrize("way", ["put", "put_many", "batch", "put_at_once", "batch at once"])
def test_who_does_not_wait_is_answered_before_the_flush_that_follows(tmp_path: Path, disk: Disk, way: str) -> None:
    given = [message(properties=CARELESS)] * (1 if way in ("put", "put_at_once") else 2)
    with waiting_store(tmp_path / "s") as store:
        disk.gate.clear()
        if way == "put":
            results = [store.put(given[0])]
        elif way in ("put_many", "batch"):
            results = list(store.put_many(given, batch=way == "batch"))
        else:
            pending = store.put_at_once(given, batch=way == "batch at once")
            results = list(pending.results)
            assert pending.durable_at == 0
        assert [one.status for one in results] == [PutStatus.PUT_OK] * len(given)
        flusher = store._writing._log_flusher
        assert flusher.flushed_offset == 0
        disk.gate.set()
        wait_until(lambda: flusher.flushed_offset == store._writing._appender.end_offset)


@pytest.mark.parametrize("places", [(0,), (2,), (0, 2)])
def test_one_that_waits_makes_all_wait(tmp_path: Path, disk: Disk, places: tuple[int, ...]) -> None:
    given = [message(properties={} if place in places else CARELESS) for place in range(3)]
    with waiting_store(tmp_path / "s") as store:
        for is_batch in (False, True):
            disk.gate.clear()
            statuses = {one.status for one in store.put_many(given, batch=is_batch)}
            assert statuses == {PutStatus.FLUSH_DISK_TIMEOUT}
            disk.gate.set()
            assert {one.status for one in store.put_many(given, batch=is_batch)} == {PutStatus.PUT_OK}
            assert store._writing._log_flusher.flushed_offset == store._writing._appender.end_offset


def test_a_message_waits_unless_it_says_no() -> None:
    for text, waits in (("true", True), ("TRUE", True), ("false", False), ("", False), ("yes", False)):
        assert wants_durability({"WAIT": text}) == waits
    assert wants_durability({})


def test_a_message_is_checked_as_one_that_stands_for_itself(tmp_path: Path) -> None:
    """And nothing is stored by it."""
    fine = [
        message(),
        message(properties={"DELAY": "1"}),
        message(sys_flag=TRANSACTION_PREPARED),
        message(topic="Other", queue_id=7),
    ]
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for one in fine:
            assert store.check_message(one) is None
        assert store.check_many(fine) == {}
        refused = store.check_message(message(topic="T" * 128))
        assert refused is not None
        assert (refused.status, refused.detail) == (
            PutStatus.MESSAGE_ILLEGAL,
            "topic has 128 bytes, at most 127 are allowed",
        )
        assert (refused.physical_offset, refused.queue_offset, refused.message_id) == (None, None, None)
        assert store.check_message(message(topic="T" * 128), as_stored=True) is None
        assert store.files.log.max_offset == 0
        assert [one.queue_offset for one in store.put_many(fine)] == [0, 0, 0, 0]


def test_no_message_is_a_usage_error(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        with pytest.raises(UsageError, match="no message to put"):
            store.put_many([], batch=True)
        with pytest.raises(UsageError, match="no message to put"):
            store.put_at_once([], batch=True)


@pytest.mark.parametrize(("since", "is_busy"), [(1001, True), (1000, False)])
def test_a_lock_that_is_held_for_long_is_told_to_who_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int, is_busy: bool
) -> None:
    for module in (put, writer):
        monkeypatch.setattr(module, "monotonic_ms", lambda: 5000)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, clock=lambda: NOW) as store:
        store.put(message())
        store._writing._puts.begin_in_lock = 5000 - since
        result = store.put(message(queue_id=1))  # no queue that is known
        checked = store.check_message(message())
        store._writing._puts.begin_in_lock = None
        busy = (PutStatus.OS_PAGE_CACHE_BUSY, f"another put has held the lock for {since} ms")
        if is_busy:
            assert checked is not None
            assert (result.status, result.detail) == (checked.status, checked.detail) == busy
        else:
            assert (result.status, checked) == (PutStatus.PUT_OK, None)


def test_messages_can_be_read_without_anybody_waiting_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reput, "_INTERVAL_MS", NEVER)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for queue_id in range(3):  # each for a queue that is not known
            store.put(message(queue_id=queue_id))
            wait_until(lambda queue_id=queue_id: bool(store.get("TopicA", queue_id, 0).messages))  # type: ignore[misc]


@pytest.mark.parametrize(("change", "said"), [("closed", "the store is closed"), ("failed", "not writeable any more")])
def test_a_store_that_ends_while_a_put_waits_for_its_turn_stores_nothing(
    change: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    state, end = store._writing._state, store._writing._appender.end_offset

    def ends(*_: object) -> None:
        if change == "closed":
            state.is_closed = True
        else:
            state.fail(WriteFailedError("the disk is gone"))

    monkeypatch.setattr(Headroom, "settle", ends)
    result = store.put(message())
    assert (result.status, said in result.detail) == (PutStatus.SERVICE_NOT_AVAILABLE, True)
    assert result.detail.endswith(": the disk is gone") == (change == "failed")
    assert store._writing._appender.end_offset == end
    state.is_closed = False
    if change == "failed":
        with pytest.raises(WriteFailedError, match="the disk is gone"):
            store.close()
    else:
        store.close()


@pytest.mark.parametrize("is_failed", [True, False])
def test_a_store_that_ends_meanwhile_opens_no_fast_path(
    is_failed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    putter, services = store._writing._putter, store._writing._services
    append = putter._append

    def ends(*given: Any) -> Any:
        found = append(*given)
        if is_failed:
            services.state.fail(WriteFailedError("the disk is gone"))
        else:
            services.headroom.is_over_ratio = True
        return found

    monkeypatch.setattr(putter, "_append", ends)
    assert store.put(message()).status is PutStatus.PUT_OK
    assert not store._writing._puts.is_open
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    if is_failed:
        with pytest.raises(WriteFailedError):
            store.close()
    else:
        store.close()
    assert len(stored_messages(tmp_path / "s")) == 1


def test_a_frame_that_its_offsets_make_too_long_for_a_file_is_refused(tmp_path: Path) -> None:
    """Those of further queues are known under the lock only. Nothing is burnt."""
    config = small(enable_lmq=True, enable_multi_dispatch=True, max_message_size=1 << 20)
    queues = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    written = len("INNER_MULTI_DISPATCH") + 1 + len("%LMQ%a") + 1
    offsets = len("INNER_MULTI_QUEUE_OFFSET") + 1 + 1 + 1
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        fits = body_that_leaves(8, written + offsets)
        for size in (fits + 1, fits + offsets):
            refused = store.put(message(size, properties=queues))
            assert (refused.status, refused.physical_offset) == (PutStatus.MESSAGE_ILLEGAL, None)
            assert "do not fit into a file" in refused.detail
        assert store.put(message(fits, properties=queues)).physical_offset == 0
        assert store.put(message(properties=queues)).physical_offset == FILE_SIZE
    assert [one.properties()["INNER_MULTI_QUEUE_OFFSET"] for one in stored_messages(tmp_path / "s", config)] == [
        "0",
        "1",
    ]


def test_an_interrupted_put_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the file that it had made."""

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, allocate_ahead=False) as store:
        store.put(message(body_that_leaves(1000, 0)))
        store.wait_for_dispatch()
        before = files_below(tmp_path / "s")
        with monkeypatch.context() as patch:
            patch.setattr(Putter, "_frames", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.put(message(2000))
        assert files_below(tmp_path / "s") == before
        assert store._writing._puts.begin_in_lock is None
        after = store.put(message(2000))
        assert (after.queue_offset, after.physical_offset) == (1, FILE_SIZE)


def test_new_and_copied_messages_have_the_times_that_belong_to_them(tmp_path: Path) -> None:
    clock = NOW
    given = Message("TopicA", b"x", store_timestamp=NOW - 7)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, clock=lambda: clock) as store:
        store.put(given)
        store.put(given, as_stored=True)
        store.put(given._replace(store_timestamp=None), as_stored=True)
        store.put(given._replace(born_timestamp=5), as_stored=True)
        store.put_many([given, given._replace(born_timestamp=6)], batch=True)
    times = [(one.store_timestamp - NOW, one.born_timestamp) for one in stored_messages(tmp_path / "s")]
    assert times == [(0, NOW), (-7, NOW), (0, NOW), (-7, 5), (0, NOW), (0, 6)]
