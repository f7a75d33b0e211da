"""The store as a library: put and read back, many threads, full disks, and a writer that is killed."""

from __future__ import annotations

import errno
import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError, UsageError, WriteFailedError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files import io
from rmqctl.store.log.walk import Damage, walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.recover import recover
from rmqctl.store.status import GetStatus, PutStatus
from rmqctl.store.store_files import StoreFiles, read_checkpoint
from tests.store.write.writing import (
    FILE_SIZE,
    SMALL,
    lines_of,
    message,
    run_python,
    small,
    stored_messages,
    wait_until,
)


def test_put_and_read_back(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        results = [
            store.put(message(number, properties={"KEYS": f"key{number % 3}", "TAGS": f"Tag{number % 2}"}))
            for number in range(9)
        ]
        store.wait_for_dispatch()
        for opened in (store, MessageStore.open(tmp_path / "s")):
            found = opened.get("TopicA", 0, 4, limit=3)
            assert found.status is GetStatus.FOUND
            assert [len(got.body) for got in found.messages] == [4, 5, 6]
            assert [len(got.body) for got in opened.get("TopicA", 0, 0, tags="Tag1").messages] == [1, 3, 5, 7]
            assert [len(got.body) for got in opened.query("TopicA", "key2").messages] == [8, 5, 2]
            last = results[-1]
            assert last.message_id is not None
            assert opened.lookup(last.message_id).queue_offset == last.queue_offset == 8
            times = [got.store_timestamp for got in stored_messages(tmp_path / "s")]
            assert opened.offset_at("TopicA", 0, times[-1] + 1) == 9
            assert opened.offset_at("TopicA", 0, times[0]) == 0


def test_a_delayed_message_waits_in_the_schedule_topic(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message(queue_id=5, properties={"DELAY": "3", "TAGS": "T"}))
        store.wait_for_dispatch()
        (stored,) = store.get("SCHEDULE_TOPIC_XXXX", 2, 0).messages
        queue = store.files.queues.find("SCHEDULE_TOPIC_XXXX", 2)
        assert queue is not None
        unit = queue.unit(0)
    assert unit is not None
    assert unit.tags_code == stored.store_timestamp + 10_000
    assert stored.properties() == {"DELAY": "3", "TAGS": "T", "REAL_TOPIC": "TopicA", "REAL_QID": "5"}


def test_refusals_come_with_a_reason_and_store_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(max_message_size=1000), create=True) as store:
        for put, status in (
            (message(1001), PutStatus.MESSAGE_ILLEGAL),
            (message(properties={"p": "x" * 32766}), PutStatus.PROPERTIES_SIZE_EXCEEDED),
            (message(properties={"TIMER_DELAY_SEC": "5"}), PutStatus.WHEEL_TIMER_NOT_ENABLE),
            (message(topic="T" * 128), PutStatus.MESSAGE_ILLEGAL),
        ):
            result = store.put(put)
            assert result.status is status
            assert result.detail
            assert result.message_id is None
        # p, two separators and 32764 bytes make 32767
        assert store.put(message(properties={"p": "x" * 32764})).status is PutStatus.PUT_OK
        assert store.put(message(properties={"p": "x" * 32765})).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
        assert store.put(message(1000)).queue_offset == 1
    assert len(stored_messages(tmp_path / "s")) == 2


def test_the_property_crc_takes_room_of_the_properties(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(enabled_append_prop_crc=True), create=True) as store:
        assert store.put(message(properties={"p": "x" * 32744})).status is PutStatus.PUT_OK
        assert store.put(message(properties={"p": "x" * 32745})).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    (found,) = stored_messages(tmp_path / "s")
    assert len(found.property_bytes) == 32767


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    store.close()
    assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close()


def test_no_thread_of_a_closed_store_goes_on(tmp_path: Path) -> None:
    """It would write to a checkpoint that is somebody else's by then."""
    before = set(threading.enumerate())

    def begun() -> set[str]:
        return {one.name for one in set(threading.enumerate()) - before if one.name.startswith("rmqctl-")}

    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
        assert begun() >= {"rmqctl-flush", "rmqctl-flush-queues", "rmqctl-reput"}
    assert begun() == set()


def test_wrong_calls(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        with pytest.raises(UsageError):
            store.put(message(flag=1 << 40))
        with pytest.raises(UsageError):
            store.put_many([], batch=True)
        assert store.put_many([]) == []
    with pytest.raises(UsageError, match="neither"):
        MessageStore.open(tmp_path / "s", "w")  # type: ignore[arg-type]  # the point of the test


def test_a_slave_s_store_is_not_written(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(broker_role="SLAVE"), create=True) as store:
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_many_threads(tmp_path: Path) -> None:
    count, threads = 250, 6

    def put(store: MessageStore, topic: str) -> None:
        for number in range(count):
            result = store.put(message(number, topic=topic, queue_id=number % 2))
            while result.status is PutStatus.OS_PAGE_CACHE_BUSY:  # of a busy machine
                result = store.put(message(number, topic=topic, queue_id=number % 2))
            assert result.queue_offset is not None, result
            own[topic].append(result.queue_offset)

    topics = [f"Topic{number % 3}" for number in range(threads)]
    own: dict[str, list[int]] = {topic: [] for topic in topics}
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        workers = [threading.Thread(target=put, args=(store, topic)) for topic in topics]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            store.get("Topic0", 0, 0)  # readers must not disturb the follower
            store.files.queues.all()
        store.wait_for_dispatch()
    for offsets in own.values():
        assert sorted(offsets) == sorted([*range(count), *range(count)])
    assert len(stored_messages(tmp_path / "s")) == count * threads
    MessageStore.open(tmp_path / "s", "rw", SMALL).close()


def test_a_put_that_takes_long_turns_others_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, inside = threading.Event(), threading.Event()

    def slow(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "reserve" and "commitlog" in path:
            inside.set()
            gate.wait(120)

    config = small(os_page_cache_busy_time_out_mills=50)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        monkeypatch.setattr(io, "observer", slow)
        worker = threading.Thread(target=store.put, args=(message(),))
        worker.start()
        inside.wait(120)
        time.sleep(0.1)
        assert store.put(message()).status is PutStatus.OS_PAGE_CACHE_BUSY
        gate.set()
        worker.join()
        assert store.put(message()).status is PutStatus.PUT_OK


# ---- sudden death

KILLED = """
    import sys
    from rmqctl.formats.message import Message
    from rmqctl.store.config.config import StoreConfig
    from rmqctl.store.message_store import MessageStore
    config = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=100,
                         max_index_num=400, flush_disk_type=sys.argv[2])
    store = MessageStore.open(sys.argv[1], "rw", config, create=True)
    number = 0
    while True:
        result = store.put(Message(topic="TopicA", body=b"x" * (number % 500), properties={"KEYS": f"k{number}"}))
        assert result.status.is_stored
        number += 1
        if number % 100 == 0:
            print(result.physical_offset, flush=True)
    """


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_killed_writer_leaves_abort_and_a_log_that_reads(tmp_path: Path, flush_disk_type: str) -> None:
    root = tmp_path / "s"
    program = run_python(KILLED, root, flush_disk_type)
    last = 0
    for line in lines_of(program):
        last = int(line)
        if last > 5 * FILE_SIZE:
            program.send_signal(signal.SIGKILL)
            break
    program.communicate()
    assert program.returncode == -signal.SIGKILL
    assert (root / "abort").read_text() == str(program.pid)
    with StoreFiles(root) as files:
        records = list(walk(files.log))
    messages = [record for record in records if isinstance(record, StoredMessage)]
    # a kill loses nothing that was in the page cache
    assert messages[-1].physical_offset >= last
    assert [found.queue_offset for found in messages] == list(range(len(messages)))
    # but for the message that was half written, whose head comes last
    assert not [one for one in records if isinstance(one, Damage) and one.physical_offset < messages[-1].end]
    with pytest.raises(RefusedError, match="not closed cleanly"):
        MessageStore.open(root, "rw", SMALL)
    with StoreFiles(root, SMALL) as files:  # on a busy machine no queue file may be there to tell its size
        recover(files)
    with MessageStore.open(root, "rw", SMALL, full_check=True) as store:
        assert store.put(message()).queue_offset == len(messages)
        store.wait_for_dispatch()
        assert len(store.query("TopicA", f"k{len(messages) - 1}").messages) == 1


def test_a_program_that_ends_without_closing_leaves_abort(tmp_path: Path) -> None:
    program = run_python(
        """
        import sys
        from rmqctl.formats.message import Message
        from rmqctl.store.message_store import MessageStore
        store = MessageStore.open(sys.argv[1], "rw", create=True)
        print(store.put(Message("TopicA", b"x")).status)
        """,
        tmp_path / "s",
    )
    output, _ = program.communicate()
    assert (output, program.returncode) == ("PUT_OK\n", 0)
    assert (tmp_path / "s" / "abort").exists()


def test_an_exception_of_the_caller_closes_cleanly(tmp_path: Path) -> None:
    def use() -> None:
        with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
            store.put(message())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert not (tmp_path / "s" / "abort").exists()
    with MessageStore.open(tmp_path / "s") as store:
        assert len(store.get("TopicA", 0, 0).messages) == 1


def test_an_error_while_closing_keeps_abort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync" and "/consumequeue/" in path:
            raise OSError(errno.EIO, "Input/output error")

    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    store.put(message())
    with monkeypatch.context() as patch:
        patch.setattr(io, "observer", broken)
        with pytest.raises(WriteFailedError, match="Input/output"):
            store.close()
    assert (tmp_path / "s" / "abort").exists()
    checkpoint = read_checkpoint(tmp_path / "s" / "checkpoint")
    assert checkpoint is None or checkpoint.logics_msg_timestamp == 0


def test_the_threads_of_a_store_end_with_it(tmp_path: Path) -> None:
    gc.collect()  # what other tests left open is not counted
    before = threading.active_count()
    descriptors = len(os.listdir("/proc/self/fd"))
    with MessageStore.open(tmp_path / "s", "rw", small(transient_store_pool_enable=True), create=True) as store:
        for _ in range(5):
            store.put(message(40000, properties={"KEYS": "k"}))
        assert threading.active_count() > before
    wait_until(lambda: threading.active_count() == before)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_the_library_is_imported_from_store() -> None:
    from rmqctl import store

    assert store.MessageStore is MessageStore
    with pytest.raises(AttributeError):
        _ = store.Nothing  # type: ignore[attr-defined]
