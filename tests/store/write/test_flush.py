"""When the log reaches the disk, who waits for it, and what a failed fsync does (GroupCommitService)."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.formats.layouts import BLANK_FRAME
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files import mapped_file as writable_map
from rmqctl.store.files.mapped_file_queue import Allocator, MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log.append import DirectSink, FlushService, LogAppender, LogFlusher, Sink
from rmqctl.store.log.transient_pool import PooledSink, TransientStorePool
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from tests.store.write.writing import (
    FILE_SIZE,
    NEVER,
    files_below,
    log_file,
    message,
    small,
    stored_messages,
    wait_until,
)

PAGE = 4096


class Disk:
    """Observes fsyncs of the commitlog's files; can be made slow, or to fail."""

    def __init__(self) -> None:
        self.flushed: list[tuple[int, int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_broken = False

    def __call__(self, operation: str, path: str, offset: int, length: int) -> None:
        if operation != "fsync" or "commitlog/" not in path:
            return
        self.gate.wait(120)
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        self.flushed.append((offset, length))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(io, "observer", found)
    return found


class Log:
    """A log of small files with an appender and a flusher, without any thread."""

    def __init__(self, folder: Path, sink: Sink | None = None, file_size: int = FILE_SIZE) -> None:
        self.sink = sink or DirectSink()
        self.files = MappedFileQueue([folder / "commitlog"], file_size, Descriptors())
        self.flusher = LogFlusher(self.files, 0)
        self.appender = LogAppender(self.files, self.sink, Allocator(self.files, False, self.flusher.flush_names))

    def append(self, size: int, store_timestamp: int = 1) -> None:
        self.appender.append(self.appender.reserve(size), b"x" * size, store_timestamp)


def test_least_pages(tmp_path: Path, disk: Disk) -> None:
    log = Log(tmp_path)
    log.append(4 * PAGE - 1)
    log.flusher.flush(4)
    assert (log.flusher.flushed_offset, disk.flushed) == (0, [])
    log.append(1)
    log.flusher.flush(4)
    assert log.flusher.flushed_offset == 4 * PAGE
    log.append(1)
    log.flusher.flush(4)
    assert log.flusher.flushed_offset == 4 * PAGE
    log.flusher.flush(0)
    assert log.flusher.flushed_offset == 4 * PAGE + 1
    assert disk.flushed == [(0, 4 * PAGE), (4 * PAGE, 1)]


def test_a_full_file_is_flushed_whatever_it_holds_and_the_next_follows(tmp_path: Path, disk: Disk) -> None:
    log = Log(tmp_path)
    log.append(FILE_SIZE - 100, 11)
    log.flusher.flush(0)
    log.append(200, 12)
    log.flusher.flush(4)
    # the blank is less than a page, the next file's 200 bytes wait
    assert log.flusher.flushed_offset == FILE_SIZE
    assert log.flusher.flushed_timestamp == 11
    log.flusher.flush(0)
    assert (log.flusher.flushed_offset, log.flusher.flushed_timestamp) == (FILE_SIZE + 200, 12)


def test_what_is_appended_during_a_flush_is_not_called_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint with its time would let a recovery begin behind it."""
    log = Log(tmp_path)
    log.append(100, 11)

    def appending(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync" and not Path(path).is_dir() and log.appender.end_offset == 100:
            log.append(50, 12)

    monkeypatch.setattr(io, "observer", appending)
    log.flusher.flush()
    assert log.appender.end_offset == 150
    assert (log.flusher.flushed_offset, log.flusher.flushed_timestamp) in ((100, 11), (150, 12))


def test_a_failed_fsync_is_final(tmp_path: Path, disk: Disk) -> None:
    log = Log(tmp_path)
    log.append(100)
    disk.is_broken = True
    with pytest.raises(WriteFailedError, match="Input/output"):
        log.flusher.flush()
    disk.is_broken = False
    with pytest.raises(WriteFailedError, match="Input/output"):
        log.flusher.flush()
    assert log.flusher.flushed_offset == 0


def test_the_interval_flushes_least_pages(tmp_path: Path, disk: Disk) -> None:
    log = Log(tmp_path)
    never = StoreConfig(flush_interval_commit_log=5, flush_commit_log_thorough_interval=3_600_000)
    log.append(100)
    service = FlushService(log.flusher, log.sink, never, lambda _: None)
    service.start()
    time.sleep(0.1)
    assert log.flusher.flushed_offset == 0
    log.append(4 * PAGE)
    wait_until(lambda: log.flusher.flushed_offset == 4 * PAGE + 100)
    service.stop()


def test_the_interval_flushes_thoroughly_after_a_while(tmp_path: Path, disk: Disk) -> None:
    log = Log(tmp_path)
    config = StoreConfig(flush_interval_commit_log=5, flush_commit_log_thorough_interval=1000)
    begin = time.monotonic()
    service = FlushService(log.flusher, log.sink, config, lambda _: None)
    service.start()
    log.append(1)
    wait_until(lambda: log.flusher.flushed_offset == 1)
    assert time.monotonic() - begin > 0.9
    service.stop()


def test_a_file_is_closed_only_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blank that is written into a hole of a full disk would be a SIGBUS."""
    chunk = writable_map.RESERVE_AHEAD
    log = Log(tmp_path, file_size=2 * chunk)
    log.append(chunk - 4)

    def full(operation: str, path: str, offset: int, _length: int) -> None:
        if operation == "reserve" and path.endswith("0" * 20) and offset >= chunk:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(io, "observer", full)
    with pytest.raises(WriteFailedError, match="No space left"):
        log.appender.reserve(chunk)
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == ["0" * 20]
    assert log.appender.end_offset == chunk - 4


def test_pooled_bytes_are_readable_after_the_commit(tmp_path: Path) -> None:
    log = Log(tmp_path, PooledSink(TransientStorePool(5, FILE_SIZE)))
    log.append(FILE_SIZE - 100, 5)
    log.append(300, 6)
    assert log.appender.end_offset == FILE_SIZE + 300
    assert log.files.read(0, 10) == b""
    assert not any(data.strip(b"\0") for data in files_below(tmp_path).values())
    log.sink.commit()
    assert log.files.read(0, 10) == b"x" * 10
    assert log.files.read(FILE_SIZE - 100, 8) == (100).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert log.files.max_offset == FILE_SIZE + 300
    log.flusher.flush()
    assert (log.flusher.flushed_offset, log.flusher.flushed_timestamp) == (FILE_SIZE + 300, 6)


def test_only_what_was_committed_is_flushed_and_a_flush_commits_first(tmp_path: Path, disk: Disk) -> None:
    log = Log(tmp_path, PooledSink(TransientStorePool(5, FILE_SIZE)))
    log.append(100, 5)
    log.sink.commit()
    log.append(200, 6)
    log.flusher.flush()
    assert (log.flusher.flushed_offset, log.flusher.flushed_timestamp) == (100, 5)
    told: list[str] = []
    service = FlushService(log.flusher, log.sink, StoreConfig(), lambda _: None)
    service.tell_when_flushed(300, lambda: told.append("both"))
    service.tell_when_flushed(100, lambda: told.append("the first"))
    assert told == ["the first"]
    service.flush_now()
    assert (log.flusher.flushed_offset, log.files.read(0, 400)) == (300, b"x" * 300)
    assert told == ["the first", "both"]


def test_what_a_pool_could_not_write_is_written_by_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(operation: str, _path: str, _offset: int, _length: int) -> None:
        if operation == "write":
            raise OSError(errno.EIO, "Input/output error")

    log = Log(tmp_path, PooledSink(TransientStorePool(5, FILE_SIZE)))
    log.append(100)
    log.append(200)
    with monkeypatch.context() as patch:
        patch.setattr(io, "observer", broken)
        with pytest.raises(WriteFailedError, match="Input/output"):
            log.sink.commit()
    assert log.files.max_offset == 0
    log.append(50)
    log.sink.commit()
    assert log.files.max_offset == 350
    assert log.files.read(0, 400) == b"x" * 350


def test_a_commit_of_few_pages_waits_unless_the_file_is_full(tmp_path: Path) -> None:
    log = Log(tmp_path, PooledSink(TransientStorePool(5, FILE_SIZE)))
    log.append(4 * PAGE - 1)
    assert (log.sink.commit(4), log.files.max_offset) == (False, 0)
    log.append(1)
    log.append(10)
    # all of the file, once it is worth it
    assert (log.sink.commit(4), log.files.max_offset) == (True, 4 * PAGE + 10)
    log.append(FILE_SIZE - 4 * PAGE - 10 - BLANK_FRAME.size)
    log.append(200)
    assert (log.sink.commit(FILE_SIZE // PAGE), log.files.max_offset) == (True, FILE_SIZE)
    assert (log.sink.commit(4), log.sink.commit(0), log.sink.commit(0)) == (False, True, False)
    assert log.files.max_offset == FILE_SIZE + 200


def test_fewer_pages_are_committed_after_the_thorough_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("rmqctl.store.log.append.time.monotonic", lambda: clock[0])
    log = Log(tmp_path, PooledSink(TransientStorePool(5, FILE_SIZE)))
    config = StoreConfig(commit_commit_log_thorough_interval=200, transient_store_pool_enable=True)
    service = FlushService(log.flusher, log.sink, config, lambda _: None)
    log.append(100)
    for clock[0] in (1000.1, 1000.1875):
        service._commit_at_interval()
        assert log.files.max_offset == 0
    clock[0] = 1000.25
    service._commit_at_interval()
    assert log.files.max_offset == 100


def test_each_tenth_thorough_flush_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr("rmqctl.store.log.append.time.monotonic", lambda: now)
    caplog.set_level("INFO", "rmqctl.store")
    log = Log(tmp_path)
    service = FlushService(log.flusher, log.sink, StoreConfig(), lambda _: None)
    for number in range(1, 12):
        log.append(number)
        service._flush_at_interval()
        now = 1000.0 + 10 * number
        service._flush_at_interval()
    assert caplog.messages == [
        "the disk is 1 bytes behind the commitlog in memory (flushed to 0)",
        "the disk is 11 bytes behind the commitlog in memory (flushed to 55)",
    ]


# ---- through the store

SYNC = small(flush_disk_type="SYNC_FLUSH", sync_flush_timeout=500)


def test_async_puts_do_not_wait(tmp_path: Path, disk: Disk) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        disk.gate.clear()
        for _ in range(10):
            assert store.put(message()).status is PutStatus.PUT_OK
        disk.gate.set()


@pytest.mark.parametrize(("is_timed", "wakes"), [(True, True), (False, True), (False, False)])
def test_an_untimed_flush_follows_the_puts(tmp_path: Path, disk: Disk, is_timed: bool, wakes: bool) -> None:
    """With wakeFlushWhenPutMessage alone (CommitLog#handleDiskFlush)."""
    config = small(
        flush_commit_log_timed=is_timed,
        wake_flush_when_put_message=wakes,
        flush_interval_commit_log=NEVER,
        flush_interval_consume_queue=NEVER,
    )
    follows = wakes and not is_timed
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        store.put(message(5 * PAGE))
        store.wait_for_dispatch()
        if follows:
            wait_until(lambda: disk.flushed != [])
        before = len(disk.flushed)
        assert (before > 0) is follows
        # less than flushCommitLogLeastPages
        store.put(message())
        store.wait_for_dispatch()
        assert len(disk.flushed) == before


def test_sync_puts_are_on_disk_when_they_return(tmp_path: Path, disk: Disk) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SYNC, create=True) as store:
        for number in range(3):
            result = store.put(message())
            assert result.status is PutStatus.PUT_OK
            assert result.physical_offset is not None
            # the first fsync is that of the directory
            assert sum(length for _, length in disk.flushed) >= (number + 1) * (91 + 6 + 100)


def test_a_slow_disk_times_out_and_the_message_is_stored(tmp_path: Path, disk: Disk) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SYNC, create=True) as store:
        store.put(message())
        disk.gate.clear()
        begin = time.monotonic()
        result = store.put(message())
        assert 0.45 < time.monotonic() - begin < 100
        assert (result.status, result.queue_offset) == (PutStatus.FLUSH_DISK_TIMEOUT, 1)
        assert result.status.is_stored
        # nobody holds the put lock meanwhile, and who does not wait is not held up
        assert store.put(message(properties={"WAIT": "false"})).status is PutStatus.PUT_OK
        many = store.put_many([message(), message(topic="T" * 128)])
        assert [found.status for found in many] == [PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.MESSAGE_ILLEGAL]
        disk.gate.set()
        assert store.put(message()).status is PutStatus.PUT_OK
    assert len(stored_messages(tmp_path / "s")) == 5


def test_one_fsync_serves_all_who_wait(tmp_path: Path, disk: Disk) -> None:
    config = small(flush_disk_type="SYNC_FLUSH")
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        store.put(message())
        disk.gate.clear()
        before = len(disk.flushed)
        threads = [threading.Thread(target=store.put, args=(message(),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        wait_until(lambda: store.files.log.max_offset == 9 * (91 + 6 + 100))
        disk.gate.set()
        for thread in threads:
            thread.join()
        # what was under way when the gate closed, and one for the rest
        assert len(disk.flushed) - before <= 2


def test_a_failed_fsync_reaches_everybody_who_waits(tmp_path: Path, disk: Disk) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", small(flush_disk_type="SYNC_FLUSH"), create=True)
    store.put(message())
    store.wait_for_dispatch()
    disk.is_broken = True
    disk.gate.clear()
    errors: list[Exception] = []

    def put() -> None:
        try:
            store.put(message())
        except WriteFailedError as error:
            errors.append(error)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: store.files.log.max_offset == 5 * (91 + 6 + 100))
    disk.gate.set()
    for thread in threads:
        thread.join()
    assert len(errors) == 4
    disk.is_broken = False
    refused = store.put(message())
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "Input/output error" in refused.detail
    with pytest.raises(WriteFailedError):
        store.flush()
    with pytest.raises(WriteFailedError, match="Input/output"):
        store.close()
    assert (tmp_path / "s" / "abort").exists()


def test_a_failed_fsync_in_the_background_is_loud_too(tmp_path: Path, disk: Disk) -> None:
    config = small(flush_interval_commit_log=10, flush_commit_log_least_pages=0)
    store = MessageStore.open(tmp_path / "s", "rw", config, create=True)
    disk.is_broken = True
    store.put(message())
    wait_until(lambda: store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE)
    with pytest.raises(WriteFailedError, match="Input/output"):
        store.close()
    assert (tmp_path / "s" / "abort").exists()


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_the_transient_pool_behind_a_store(tmp_path: Path, flush_disk_type: str) -> None:
    config = small(
        transient_store_pool_enable=True,
        commit_interval_commit_log=300,
        wake_commit_when_put_message=False,
        flush_disk_type=flush_disk_type,
    )
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        began = time.monotonic()
        offsets = [store.put(message(1000)).physical_offset for _ in range(100)]
        if flush_disk_type == "ASYNC_FLUSH":
            is_written = bool(log_file(tmp_path / "s", 0).read_bytes().strip(b"\0"))
            assert not is_written or time.monotonic() - began > 0.3  # a commit came already
        store.wait_for_dispatch()
        assert len(store.get("TopicA", 0, 95).messages) == 5
    assert [found.physical_offset for found in stored_messages(tmp_path / "s")] == offsets


def test_flush_makes_everything_durable_and_readable(tmp_path: Path, disk: Disk) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        store.put(message(properties={"KEYS": "k"}))
        assert disk.flushed == []
        store.flush()
        assert disk.flushed
        assert len(store.query("TopicA", "k").messages) == 1
        checkpoint = store.files.checkpoint()
        (stored,) = store.get("TopicA", 0, 0).messages
        assert checkpoint is not None
        assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == stored.store_timestamp
