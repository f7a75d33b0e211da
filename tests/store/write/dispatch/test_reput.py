"""The follower: what it dispatches and when, what it notes in the checkpoint, and how its errors are told."""

from __future__ import annotations

import errno
import functools
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RmqctlError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.background import Background
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.queue_table import QueueFlusher
from rmqctl.store.status import PutStatus
from rmqctl.store.store_files import Checkpoint, StoreFiles, read_checkpoint, write_checkpoint
from rmqctl.store.write import dispatch as reput
from rmqctl.store.write.dispatch import CheckpointKeeper
from tests.goldens import GoldenStore
from tests.store.write.writing import (
    FILE_SIZE,
    NEVER,
    body_that_leaves,
    copy_store,
    golden_config,
    message,
    small,
    stored_messages,
    wait_until,
)


def index_entries(root: Path) -> list[tuple[int, int]]:
    with StoreFiles(root) as files:
        return sorted((entry.key_hash, entry.physical_offset) for file in files.index.files for entry in file.entries())


@pytest.mark.parametrize("name", ["clean", "features", "broker-real"])
def test_the_index_of_a_copy_holds_rocketmq_s_entries(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """But for repeated keys inside one message: RocketMQ enters `hot hot` twice, we once."""
    source = golden_store(name)
    copy_store(source, tmp_path / "copy", golden_config(name))
    ours, theirs = index_entries(tmp_path / "copy"), index_entries(source)
    assert len(theirs) > 400
    assert ours == sorted(set(theirs))


def test_every_append_wakes_the_dispatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first message on, and whenever the thread was idle before: its own interval is never over here."""
    monkeypatch.setattr(reput, "_INTERVAL_MS", NEVER)
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        assert store._writing is not None
        follower = store._writing._follower
        for _ in range(5):
            wait_until(lambda: follower.thread.is_idle)
            end = (store.put(message(100)).physical_offset or 0) + 1
            wait_until(functools.partial(lambda end: bool(follower.position >= end), end))


def test_messages_that_come_while_others_are_dispatched_wait_for_two_milliseconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long the thread asks to sleep is counted, not how long it sleeps: a consumer sees a message within 10 ms."""
    pauses: list[float] = []

    class Signal(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            pauses.append(timeout)
            return super().wait(timeout)

    def background(*args: Any, **kwargs: Any) -> Background:
        made = Background(*args, **kwargs)
        if args[0] == "reput":
            made._signal = Signal()
        return made

    monkeypatch.setattr(reput, "Background", background)
    monkeypatch.setattr(reput, "_INTERVAL_MS", NEVER)
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        store.put(message(100))
        wait_until(lambda: any(pause < NEVER / 1000 for pause in pauses))
    assert {pause for pause in pauses if pause < NEVER / 1000} == {0.002}


def test_nothing_behind_the_readable_end_is_dispatched(tmp_path: Path) -> None:
    """With SYNC_FLUSH that is what is on disk: a queue must not lead to what a power cut may take."""
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        assert store._writing is not None
        follower = store._writing._follower
        until, end = 0, follower._readable_end
        follower._readable_end = lambda: until
        places = [store.put(message(100)).physical_offset or 0 for _ in range(4)]
        for until in places:
            assert follower.wait_for(until, 60)
            assert follower.position == until
        follower._readable_end = end


def test_messages_are_dispatched_in_order_while_they_are_put(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        for number in range(600):
            store.put(message(number, queue_id=number % 3, properties={"KEYS": f"k{number}"}))
        store.wait_for_dispatch()
        for queue_id in range(3):
            queue = store.files.queues.find("TopicA", queue_id)
            assert queue is not None
            assert queue.max_offset == 200
        (found,) = store.query("TopicA", "k333").messages
        assert len(found.body) == 333


def test_messages_larger_than_what_is_read_at_once_are_dispatched_like_others(tmp_path: Path) -> None:
    sizes = [10, 300_000, 262_144 - 97, 20, 600_000, 30]
    with MessageStore.open(tmp_path / "s", "rw", small(mapped_file_size_commit_log=1 << 20), create=True) as store:
        follower = store._writing._follower
        follower.stop()
        for size in sizes:
            assert store.put(message(size)).status is PutStatus.PUT_OK
        assert follower.dispatch_all()
        assert not follower.dispatch_all()
        assert follower.position == store.files.log.max_offset
        assert (follower.last_offset, follower.last_timestamp) == (
            stored_messages(tmp_path / "s")[-1].physical_offset,
            stored_messages(tmp_path / "s")[-1].store_timestamp,
        )
        found = [store.get("TopicA", 0, number, 1).messages[0] for number in range(len(sizes))]
    assert [len(one.body) for one in found] == sizes


@pytest.mark.parametrize("left", [8, 9, 1000])
def test_the_dispatch_goes_on_behind_the_end_of_a_file(left: int, tmp_path: Path) -> None:
    """However little of it is left."""
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        follower = store._writing._follower
        follower.stop()
        store.put(message(body_that_leaves(left, 0)))
        assert follower.dispatch_all()
        assert follower.position == FILE_SIZE - left
        store.put(message(1000))
        assert follower.dispatch_all()
        assert follower.position == store.files.log.max_offset > FILE_SIZE
        assert len(store.get("TopicA", 0, 1).messages) == 1


def test_arrivals_are_told_once_they_can_be_read(tmp_path: Path) -> None:
    told: list[tuple[set[tuple[str, int]], int]] = []
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        follower = store._writing._follower
        follower.stop()
        store.tell_arrivals(lambda queues: told.append((set(queues), len(store.get("TopicA", 0, 0, 99).messages))))
        for queue_ids in ([0, 1, 0], [0]):
            store.put_many([message(queue_id=queue_id) for queue_id in queue_ids])
            follower.dispatch_all()
        follower.dispatch_all()
    assert told == [({("TopicA", 0), ("TopicA", 1)}, 2), ({("TopicA", 0)}, 3)]


def test_a_message_whose_queue_is_of_another_kind_stops_the_store(tmp_path: Path) -> None:
    """As it was made meanwhile by somebody else."""
    store = MessageStore.open(tmp_path / "s", "rw", small(), create=True)
    follower = store._writing._follower
    follower.stop()
    store.put(message())
    store.files.queues.find_or_create("TopicA", 0, True)
    with pytest.raises(WriteFailedError, match="a message for a simple queue, but the queue is BatchCQ") as caught:
        follower.dispatch_all()
    assert (caught.value.physical_offset, "TopicA/0" in (caught.value.file or "")) == (0, True)
    store._writing._state.fail(caught.value)
    with pytest.raises(WriteFailedError, match="the queue is BatchCQ"):
        store.close()


def test_without_an_index_there_is_none(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(message_index_enable=False), create=True) as store:
        store.put(message(properties={"KEYS": "k"}))
    assert not (tmp_path / "s" / "index").exists()


def test_more_queues_than_descriptors_are_kept_open(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        for _ in range(2):
            store.put_many([message(1, queue_id=queue_id) for queue_id in range(300)])
        store.wait_for_dispatch()
        queues = f"{tmp_path}/s/consumequeue/"
        open_files = sum(os.path.realpath(path).startswith(queues) for path in Path("/proc/self/fd").iterdir())
        assert open_files < 270  # 128 to write, and what readers keep
        for queue_id in (0, 150, 299):
            assert len(store.get("TopicA", queue_id, 0).messages) == 2
    MessageStore.open(tmp_path / "s", "rw", small()).close()


def test_with_sync_flush_only_what_is_on_disk_is_dispatched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    gate.set()

    def slow(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync" and "commitlog/" in path:
            gate.wait(120)

    monkeypatch.setattr(io, "observer", slow)
    with MessageStore.open(tmp_path / "s", "rw", small(flush_disk_type="SYNC_FLUSH"), create=True) as store:
        store.put(message())
        store.wait_for_dispatch()
        gate.clear()
        store.put(message(properties={"WAIT": "false"}))
        time.sleep(0.15)
        queue = store.files.queues.find("TopicA", 0)
        assert queue is not None
        assert queue.max_offset == 1
        gate.set()
        wait_until(lambda: queue.max_offset == 2)


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_an_error_of_the_follower_stops_the_store_loudly(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation in ("write", "create") and f"/{folder}/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")

    store = MessageStore.open(tmp_path / "s", "rw", small(), create=True)
    store.put(message(properties={"KEYS": "k"}))
    store.wait_for_dispatch()
    with monkeypatch.context() as patch:
        patch.setattr(io, "observer", broken)
        store.put(message(properties={"KEYS": "k"}))
        with pytest.raises(WriteFailedError, match="No space left"):
            store.wait_for_dispatch()
    result = store.put(message())
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "No space left" in result.detail
    with pytest.raises(WriteFailedError, match="No space left"):
        store.close()
    assert (tmp_path / "s" / "abort").exists()
    # the message that was accepted is in the log, and the lock is free again
    assert len(stored_messages(tmp_path / "s")) == 2
    with pytest.raises(RmqctlError, match="not closed cleanly"):
        MessageStore.open(tmp_path / "s", "rw", small())


def test_who_waits_is_told_when_the_store_fails(tmp_path: Path) -> None:
    """The one that would have woken him does nothing any more."""
    store = MessageStore.open(tmp_path / "s", "rw", small(), create=True)
    writer = store._writing
    writer._follower.stop()
    store.put(message())
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(writer._follower.wait_for(1)), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    writer._state.fail(WriteFailedError("the disk is gone"))
    waiting.join(60)
    assert answers == [False]
    with pytest.raises(WriteFailedError, match="the disk is gone"):
        store.close()


def test_the_wait_for_the_dispatch_ends_after_its_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        follower = store._writing._follower
        assert follower.wait_for(0)
        assert not follower.wait_for(1, timeout=0.01)
        end = store.put(message()).physical_offset
        assert end == 0
        assert follower.wait_for(1, timeout=60)


# ---- checkpoint


def test_a_store_that_was_only_opened_keeps_its_checkpoint(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        store.put_many([message(properties={"KEYS": f"a{number} b{number}"}) for number in range(250)])
    before = (tmp_path / "s" / "checkpoint").read_bytes()
    with MessageStore.open(tmp_path / "s", "rw", small()) as store:
        store.flush()
    assert (tmp_path / "s" / "checkpoint").read_bytes() == before


def test_the_checkpoint_after_a_clean_close(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        for number in range(250):
            last = store.put(message(properties={"KEYS": f"a{number} b{number}"}))
    checkpoint = read_checkpoint(tmp_path / "s" / "checkpoint")
    assert checkpoint is not None
    messages = stored_messages(tmp_path / "s")
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == messages[-1].store_timestamp
    assert checkpoint.confirm_physical_offset == last.physical_offset
    with StoreFiles(tmp_path / "s") as files:
        first_file = files.index.files[0]
        assert len(files.index.files) == 2
        assert first_file.is_full
        assert checkpoint.index_msg_timestamp == first_file.header.end_timestamp


def test_the_checkpoint_follows_while_the_store_is_open(tmp_path: Path) -> None:
    config = small(flush_interval_commit_log=10, flush_commit_log_least_pages=0, flush_interval_consume_queue=10)
    path = tmp_path / "s" / "checkpoint"
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        store.put(message())
        (stored,) = stored_messages(tmp_path / "s")

        def is_written() -> bool:
            found = read_checkpoint(path) or Checkpoint()
            return found.physic_msg_timestamp == found.logics_msg_timestamp == stored.store_timestamp

        wait_until(is_written)


def test_nothing_is_called_flushed_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues are fsynced before the checkpoint that says so is written."""
    seen: list[str] = []

    def note(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync" and "/consumequeue/" in path and path.endswith("0"):
            seen.append("queue")
        if operation == "rename" and "checkpoint" in path:
            seen.append("checkpoint")

    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        store.put(message())
        monkeypatch.setattr(io, "observer", note)
        store.flush()
        assert "queue" in seen[: seen.index("checkpoint")]
        monkeypatch.undo()


def test_units_that_wait_for_the_thorough_round_hold_the_time_back(tmp_path: Path) -> None:
    flusher = QueueFlusher()
    paths = [tmp_path / str(number) for number in range(65)]
    for path in paths:
        path.write_bytes(b"")
        flusher.wrote(path)
    for _ in range(409):
        flusher.wrote(paths[0])
    assert not flusher.flush(is_thorough=False)
    assert flusher.flush(is_thorough=True)
    flusher.wrote(paths[1])
    assert flusher.flush(is_thorough=False)


def test_a_message_from_the_past_lowers_the_checkpoint_first(tmp_path: Path) -> None:
    """Recovery trusts that store times grow: a file that begins with an old copy must not count as flushed."""
    path, now = tmp_path / "s" / "checkpoint", 1_700_000_000_000
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True, clock=lambda: now) as store:
        store.put(message())
        store.flush()
        assert read_checkpoint(path) == Checkpoint(now, now)
        store.put(message(store_timestamp=now - 60_000), as_stored=True)
        assert read_checkpoint(path) == Checkpoint(now - 60_000, now - 60_000)
        store.put(message())
    closed = read_checkpoint(path)
    assert closed is not None
    assert (closed.physic_msg_timestamp, closed.logics_msg_timestamp) == (now, now)


def test_only_a_time_that_goes_back_lowers_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written to disk then: messages of one millisecond must not cost that."""
    lowered: list[int] = []
    with MessageStore.open(tmp_path / "s", "rw", small(), create=True) as store:
        monkeypatch.setattr(CheckpointKeeper, "lower", lambda _, timestamp, __: lowered.append(timestamp))
        for timestamp in (1000, 1000, 1001, 1000, 1000):
            store.put(message(store_timestamp=timestamp), as_stored=True)
    assert lowered == [1000]


def test_the_checkpoint_keeper_keeps_times_down_until_they_are_covered(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_checkpoint(path, Checkpoint(1000, 1000, 0, 7, 8))
    keeper = CheckpointKeeper(path)
    keeper.lower(500, 100)
    assert read_checkpoint(path) == Checkpoint(500, 500, 0, 7, 8)
    keeper.lower(600, 150)
    # news from before the message must not raise the times again
    keeper.set(physic=1000, logics=900, covered_to=150)
    assert keeper.values == Checkpoint(500, 500, 0, 7, 8)
    keeper.set(physic=610, logics=605, covered_to=151)
    assert keeper.values == Checkpoint(610, 605, 0, 7, 8)
    keeper.set(index=3, confirm=9)
    keeper.write()
    assert read_checkpoint(path) == Checkpoint(610, 605, 3, 7, 9)
