"""The services of an open store: which run and for how long, what waits for which, and what is left in the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqctl.formats.errors import RmqctlError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.store_files import Checkpoint, read_checkpoint
from rmqctl.store.write import opening as open_for_writing
from rmqctl.store.write import writer
from tests.store.write.dispatch.test_column_dispatch import as_columns
from tests.store.write.writing import (
    FILE_SIZE,
    NEVER,
    SMALL,
    files_below,
    message,
    small,
    stored_messages,
    wait_until,
)

STILL = small(
    flush_interval_commit_log=NEVER,
    flush_interval_consume_queue=NEVER,
    commit_interval_commit_log=NEVER,
    clean_resource_interval=NEVER,
)
"""Nothing is flushed by itself."""


def begun(before: set[threading.Thread]) -> set[str]:
    """Names of the threads that run since."""
    return {thread.name for thread in set(threading.enumerate()) - before}


def open_below(root: Path) -> list[str]:
    """Files of a store that this process has open or mapped."""
    descriptors = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    maps = [line.partition("/")[1:] for line in Path("/proc/self/maps").read_text().splitlines()]
    return [path for path in [*descriptors, *map("".join, maps)] if path.startswith(f"{root}/")]


@contextmanager
def held_up(patch: pytest.MonkeyPatch, operation: str, folder: str) -> Iterator[threading.Event]:
    """Let operations below a folder wait until the event is set."""
    gate = threading.Event()

    def look(done: str, path: str, _offset: int, _length: int) -> None:
        if done == operation and f"/{folder}/" in path:
            assert gate.wait(120)

    patch.setattr(io, "observer", look)
    try:
        yield gate
    finally:
        gate.set()


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    """`work`, begun elsewhere."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def in_full_use(root: Path) -> MessageStore:
    """A store all of whose services have something to do, and the next file is there."""
    store = MessageStore.open(root, "rw", STILL, create=True, clean_expired=True)
    store.put(message(FILE_SIZE * 3 // 4, properties={"KEYS": "k"}))
    store.wait_for_dispatch()
    wait_until(lambda: len(list((root / "commitlog").iterdir())) == 3)
    assert open_below(root)
    return store


def require_let_go(root: Path, before: set[threading.Thread]) -> None:
    """Nothing runs, nothing is open, and the file that was made ahead is gone."""
    assert not {name for name in begun(before) if name.startswith("rmqctl-")}
    assert open_below(root) == []
    assert [path.name for path in (root / "commitlog").iterdir()] == [f"{0:020}"]


def test_services_run_while_the_store_is_open_and_no_longer(tmp_path: Path) -> None:
    before, root = set(threading.enumerate()), tmp_path / "s"
    store = in_full_use(root)
    services = {"rmqctl-reput", "rmqctl-flush", "rmqctl-flush-queues", "rmqctl-clean"}
    running = begun(before)
    store.close()
    assert services <= running
    require_let_go(root, before)
    assert not (root / "abort").exists()
    store.close()  # again, which does nothing


def test_a_store_that_failed_lets_go_of_everything_too(tmp_path: Path) -> None:
    before, root = set(threading.enumerate()), tmp_path / "s"
    store = in_full_use(root)
    store._writing._state.fail(WriteFailedError("the disk is gone"))
    with pytest.raises(WriteFailedError, match="the disk is gone"):
        store.close()
    require_let_go(root, before)
    assert (root / "abort").exists()
    store.close()  # again, which does nothing


@pytest.mark.parametrize("is_columns", [False, True])
def test_abort_goes_when_nothing_runs_any_more_and_everything_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_columns: bool
) -> None:
    if is_columns:
        as_columns(monkeypatch)
    before, root = set(threading.enumerate()), tmp_path / "s"
    seen: list[tuple[set[str], list[str], int]] = []

    def noted(layout: StoreLayout) -> None:
        parts = [path for path in open_below(root) if "/consumequeue/" in path or "/index/" in path]
        seen.append((begun(before), parts, len(list((root / "commitlog").iterdir()))))
        open_for_writing.unmark(layout)

    monkeypatch.setattr(writer, "unmark", noted)
    with MessageStore.open(root, "rw", STILL, create=True) as store:
        store.put(message(FILE_SIZE * 3 // 4, properties={"KEYS": "k"}))
        wait_until(lambda: len(list((root / "commitlog").iterdir())) == 3)
    assert seen == [(set(), [], 1)]


def test_a_closed_store_says_where_its_last_message_is(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", STILL, create=True) as store:
        last = store.put_many([message()] * 3)[-1]
        store.flush()
        assert (read_checkpoint(tmp_path / "s" / "checkpoint") or Checkpoint()).confirm_physical_offset == 0
    assert (
        read_checkpoint(tmp_path / "s" / "checkpoint") or Checkpoint()
    ).confirm_physical_offset == last.physical_offset
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_failure_behind_our_back_leaves_the_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late it comes: what a service was about to do is not known to be done."""
    store = MessageStore.open(tmp_path / "s", "rw", STILL, create=True)
    store.put(message())
    stop = store._writing._stop_services

    def fails() -> None:
        store._writing._state.fail(WriteFailedError("too late"))
        stop()

    monkeypatch.setattr(store._writing, "_stop_services", fails)
    with pytest.raises(WriteFailedError, match="too late"):
        store.close()
    assert (tmp_path / "s" / "abort").exists()


def test_a_failed_store_says_so_whatever_is_waited_for(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", STILL, create=True)
    store.put(message())
    store.wait_for_dispatch()
    store._writing._state.fail(WriteFailedError("it failed"))
    for wait in (store.wait_for_dispatch, store.flush, store.clean, store.close):
        with pytest.raises(WriteFailedError, match="it failed"):
            wait()


def test_a_flush_brings_log_queues_and_index_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing that does so by itself; and then the checkpoint says so."""
    root = tmp_path / "s"
    synced: set[str] = set()

    def look(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync":
            synced.add(Path(path).relative_to(root).as_posix())

    with MessageStore.open(root, "rw", STILL, create=True) as store:
        monkeypatch.setattr(io, "observer", look)
        last = store.put_many([message(properties={"KEYS": f"a{number} b{number}"}) for number in range(250)])[-1]
        store.wait_for_dispatch()
        # a file that became full is on disk before the checkpoint may tell its time
        indexes = [f"index/{path.name}" for path in sorted((root / "index").iterdir())]
        assert [name in synced for name in indexes] == [True, False]
        store.flush()
        monkeypatch.undo()
        log, queue = f"commitlog/{0:020}", f"consumequeue/TopicA/0/{4000:020}"
        assert {log, queue, *indexes} <= synced
        assert (read_checkpoint(root / "checkpoint") or ())[:2] == (stored_messages(root)[-1].store_timestamp,) * 2
        assert store._writing._log_flusher.flushed_offset > (last.physical_offset or 0)


def test_a_cleaning_flushes_first(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", STILL, create=True) as store:
        store.put(message())
        assert store._writing._log_flusher.flushed_offset == 0
        assert not store.is_cleaning
        store.clean()
        assert store._writing._log_flusher.flushed_offset == store._writing._appender.end_offset > 0
        assert not store.is_cleaning  # by itself
    with MessageStore.open(tmp_path / "s", "rw", STILL, clean_expired=True) as store:
        assert store.is_cleaning


@pytest.mark.parametrize("config", [{"transient_store_pool_enable": True}, {"flush_disk_type": "SYNC_FLUSH"}], ids=str)
def test_who_waits_for_the_dispatch_does_not_wait_for_the_next_flush(tmp_path: Path, config: dict[str, object]) -> None:
    """Where only that lets messages be read."""
    with MessageStore.open(tmp_path / "s", "rw", STILL._replace(**config), create=True) as store:  # type: ignore[arg-type]
        store.put_at_once([message(properties={"WAIT": "false"})])
        waiting = in_a_thread(store.wait_for_dispatch)
        waiting.join(60)
        assert not waiting.is_alive()
        assert len(store.get("TopicA", 0, 0).messages) == 1


def test_on_a_scarce_disk_a_put_waits_for_the_queues_of_all_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io, "free_bytes", lambda _path: 100 << 20)
    with MessageStore.open(tmp_path / "s", "rw", STILL, create=True) as store:
        with held_up(monkeypatch, "write", "consumequeue") as gate:
            store.put(message())
            second = in_a_thread(lambda: store.put(message()))
            second.join(0.2)
            assert second.is_alive()
            gate.set()
            second.join(60)
        assert [one.queue_offset for one in stored_messages(tmp_path / "s")] == [0, 1]


# ---- puts that do not wait


def test_a_put_at_once_is_a_new_message_and_waits_for_no_disk(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", STILL, create=True, clock=lambda: 1_700_000_000_000) as store:
        for _ in range(2):  # the second time its queue is known
            pending = store.put_at_once([message(store_timestamp=5)])
            assert (pending.results[0].status, pending.durable_at) == (PutStatus.PUT_OK, 0)
        assert store.put_at_once([message(), message(queue_id=1)]).durable_at == 0
    assert {one.store_timestamp for one in stored_messages(tmp_path / "s")} == {1_700_000_000_000}


@pytest.mark.parametrize("kind", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_batch_at_once_is_stored_whole_or_not_at_all(tmp_path: Path, kind: str) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL._replace(flush_disk_type=kind), create=True) as store:
        store.put(message())
        for count in (1, 2, 3):
            pending = store.put_at_once([message()] * count, batch=True)
            assert [one.status for one in pending.results] == [PutStatus.PUT_OK] * count
            assert bool(pending.durable_at) == (kind == "SYNC_FLUSH")
        refused = store.put_at_once(
            [message(), message(topic="T" * 128)._replace(topic="TopicA", body=b"x" * 70_000)], batch=True
        )
        assert {one.status for one in refused.results} == {PutStatus.MESSAGE_ILLEGAL}
        assert refused.durable_at == 0
    assert [one.queue_offset for one in stored_messages(tmp_path / "s")] == list(range(7))


def test_several_messages_at_once_that_wait_are_all_stored(tmp_path: Path) -> None:
    config = small(flush_disk_type="SYNC_FLUSH")
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        for _ in range(2):
            pending = store.put_at_once([message(), message(1)])
            assert [one.status for one in pending.results] == [PutStatus.PUT_OK] * 2
            assert pending.durable_at > (pending.results[1].physical_offset or 0)
    assert len(stored_messages(tmp_path / "s")) == 4


# ---- many at a time


@pytest.mark.parametrize("changes", [{}, {"enabled_append_prop_crc": True}], ids=str)
def test_of_many_messages_each_that_would_be_refused_is_named(tmp_path: Path, changes: dict[str, object]) -> None:
    messages = [message()] * 100
    messages[7] = message(FILE_SIZE)
    messages[63] = message(topic="T" * 128)
    messages[99] = message(properties={"INNER_NUM": "1"})
    config = small(**changes)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        for _ in range(2):
            assert list(store.check_many(messages)) == [7, 63, 99]
            assert list(store.check_many(messages[:64])) == [7, 63]
            store.put(message())


def test_a_store_that_is_refused_to_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    MessageStore.open(tmp_path / "s", "rw", SMALL, create=True).close()
    (tmp_path / "s" / "abort").write_text("1")
    found = files_below(tmp_path / "s")
    with pytest.raises(RmqctlError, match="not closed cleanly"):
        MessageStore.open(tmp_path / "s", "rw", SMALL)
    assert files_below(tmp_path / "s") == found
    assert begun(before) == set()
