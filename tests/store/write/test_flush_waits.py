"""Who is told of a flush that failed, and of bytes that can be read."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.formats.layouts import BLANK_FRAME
from rmqctl.store.files import io
from rmqctl.store.log import append as flush
from rmqctl.store.log.append import FlushService
from rmqctl.store.log.transient_pool import PooledSink, TransientStorePool
from rmqctl.store.message_store import MessageStore
from tests.store.write.test_flush import PAGE, Disk, Log
from tests.store.write.writing import FILE_SIZE, NEVER, message, small, wait_until


def test_a_failed_flush_is_told_to_those_alone_whose_bytes_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    monkeypatch.setattr(io, "observer", disk)
    log = Log(tmp_path)
    failures: list[BaseException] = []
    service = FlushService(log.flusher, log.sink, small(), failures.append)
    log.append(10)
    service.flush_now()
    log.append(5)
    disk.is_broken = True
    with pytest.raises(WriteFailedError):
        service.flush_now()
    assert len(failures) == 1
    assert service.wait_for(10)
    with pytest.raises(WriteFailedError, match="may be lost"):
        service.wait_for(11)


def test_who_reads_is_told_of_each_commit(tmp_path: Path) -> None:
    log = Log(tmp_path, PooledSink(TransientStorePool(5, FILE_SIZE)))
    told: list[int] = []
    config = small(transient_store_pool_enable=True, flush_interval_commit_log=10**7)
    service = FlushService(log.flusher, log.sink, config, told.append)  # type: ignore[arg-type]  # is not called
    service.listener = lambda: told.append(log.files.files[-1].committed_position)
    log.append(10)
    service.start()
    wait_until(lambda: bool(told))
    service.stop()
    assert told[0] == 10


@pytest.mark.parametrize("is_woken", [True, False])
def test_a_put_into_the_pool_wakes_the_commit(tmp_path: Path, is_woken: bool) -> None:
    """CommitLog#handleDiskFlush: what reaches commitCommitLogLeastPages is readable at once."""
    config = small(
        transient_store_pool_enable=True,
        wake_commit_when_put_message=is_woken,
        commit_interval_commit_log=NEVER,
        commit_commit_log_thorough_interval=NEVER,
    )
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        log = store.files.log
        store.put(message(100))
        time.sleep(0.1)
        assert log.max_offset == 0
        store.put(message(4 * PAGE))
        if is_woken:
            wait_until(lambda: [row["max_offset"] for row in store.queues()] == [2])
        time.sleep(0.1)
        assert (log.max_offset > 0) is is_woken


def a_service(log: Log, **config: object) -> tuple[FlushService, list[BaseException]]:
    """A service with no thread that flushes by itself soon, and what fails in it."""
    failures: list[BaseException] = []
    settings = {"flush_interval_commit_log": NEVER, "commit_interval_commit_log": NEVER, **config}
    return FlushService(log.flusher, log.sink, small(**settings), failures.append), failures


@pytest.mark.parametrize("is_broken", [False, True])
def test_who_waits_is_woken_by_a_flush_and_by_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    disk = Disk()
    monkeypatch.setattr(io, "observer", disk)
    log = Log(tmp_path)
    service, failures = a_service(log, sync_flush_timeout=NEVER)
    log.append(10)
    answers: list[bool | str] = []

    def wait() -> None:
        try:
            answers.append(service.wait_for(10))
        except WriteFailedError as error:
            answers.append(error.message)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    wait_until(lambda: bool(service._condition._waiters))  # type: ignore[attr-defined]  # of the standard library
    disk.is_broken = is_broken
    with contextlib.suppress(WriteFailedError):
        service.flush_now()
    waiting.join(60)
    assert answers == (
        ["the flush that the message waited for failed: it may be lost at a power failure"] if is_broken else [True]
    )
    assert len(failures) == is_broken


def test_who_wants_something_on_disk_does_not_wait_for_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "_GROUP_COMMIT_MS", NEVER)
    log = Log(tmp_path)
    service, failures = a_service(log, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=30_000)
    told: list[int] = []
    service.listener = lambda: told.append(log.flusher.flushed_offset)
    asking: list[Callable[[int], object]] = [
        lambda _: service.wake(),
        lambda end: service.tell_when_flushed(end, lambda: told.append(-end)),
        service.wait_for,
    ]
    service.start()
    for number, ask in enumerate(asking, start=1):
        log.append(10)
        ask(10 * number)
        wait_until(lambda end=10 * number: log.flusher.flushed_offset == end and end in told)  # type: ignore[misc]
    service.stop()
    assert told == [10, -20, 20, 30]
    assert failures == []


def test_each_is_told_once_and_when_its_bytes_are_on_disk(tmp_path: Path) -> None:
    log = Log(tmp_path)
    service, _ = a_service(log)
    told: list[int] = []
    for end in (10, 20, 21):
        service.tell_when_flushed(end, lambda end=end: told.append(end))  # type: ignore[misc]
    log.append(20)
    for _ in range(2):
        service.flush_now()
        assert told == [10, 20]
    log.append(20)
    service.flush_now()
    assert told == [10, 20, 21]
    service.tell_when_flushed(40, lambda: told.append(40))
    assert told == [10, 20, 21, 40]


def test_a_timed_flush_is_not_hurried(tmp_path: Path) -> None:
    log = Log(tmp_path)
    service, _ = a_service(log)
    service.wake()
    assert not service.thread._signal.is_set()


@pytest.mark.parametrize("pooled", [False, True])
def test_no_thread_is_left_when_it_is_stopped(tmp_path: Path, pooled: bool) -> None:
    before = set(threading.enumerate())
    service, _ = a_service(Log(tmp_path), transient_store_pool_enable=pooled)
    service.start()
    begun = {thread.name for thread in set(threading.enumerate()) - before}
    assert begun == ({"rmqctl-flush", "rmqctl-commit"} if pooled else {"rmqctl-flush"})
    service.stop()
    assert set(threading.enumerate()) <= before


def test_what_the_flusher_knows_of_time_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a new file is flushed once, a blank has no time, and a full file that is on disk is unmapped."""
    folders: list[str] = []

    def look(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync" and Path(path).is_dir():
            folders.append(path)

    log = Log(tmp_path)
    assert (log.flusher.flushed_offset, log.flusher.flushed_timestamp) == (0, 0)
    log.append(FILE_SIZE - 100, 11)
    log.append(99 - BLANK_FRAME.size, 12)
    monkeypatch.setattr(io, "observer", look)
    log.flusher.flush()
    assert folders == [str(tmp_path / "commitlog")]
    first = log.files.files[0]
    assert first.writable_map is not None
    # only the blank frame of the first file is on disk after this
    log.appender.enter(log.appender.reserve(50))
    log.flusher.flush()
    assert (log.flusher.flushed_offset, log.flusher.flushed_timestamp) == (FILE_SIZE, 12)
    with pytest.raises(AssertionError, match="not being appended to"):
        _ = first.writable_map
    log.append(50, 13)
    folders.clear()
    for size in (10, 20):
        log.append(size, 14)
        log.flusher.flush()
    assert folders == [str(tmp_path / "commitlog")]
    assert (log.flusher.flushed_offset, log.flusher.flushed_timestamp) == (FILE_SIZE + 80, 14)
