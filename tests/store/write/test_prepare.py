"""Smaller parts of the write path: properties set in place, types of topics, files made ahead, state of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import UsageError, WriteFailedError
from rmqctl.formats.layouts import SYS_FLAG_INNER_BATCH
from rmqctl.formats.properties import TRANSACTION_PREPARED, encode_properties, parse_properties, replace_property
from rmqctl.store.config.config import config_from_properties
from rmqctl.store.files.background import Background
from rmqctl.store.files.mapped_file_queue import Allocator, MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.dispatch import RunningState
from rmqctl.store.write.prepare import TopicTypes, copy_of
from rmqctl.store.write.put import OffsetTable
from tests.goldens import GoldenStore
from tests.store.files.crashing import CrashError
from tests.store.write.writing import SMALL, message, small, stored_messages, wait_until


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"n\x01v\x02"),
        (b"a\x01b", b"a\x01b\x02n\x01v\x02"),
        (b"a\x01b\x02", b"a\x01b\x02n\x01v\x02"),
        (b"a\x01b\x02n\x01old\x02c\x01d\x02", b"a\x01b\x02n\x01v\x02c\x01d\x02"),
        (b"n\x01old", b"n\x01v"),
        (b"n\x01old\x02nn\x01x\x02n\x01older\x02", b"n\x01v\x02nn\x01x\x02n\x01v\x02"),
    ],
)
def test_a_property_is_set_in_its_place(before: bytes, after: bytes) -> None:
    found = replace_property(before, "n", "v")
    assert found == after
    assert parse_properties(found)["n"] == "v"


def test_every_key_of_a_broker_conf_is_found() -> None:
    config = config_from_properties({"enabledAppendPropCRC": "true", "enableLmq": "true", "mapedFileSize": "1"})
    assert config.enabled_append_prop_crc
    assert config.enable_lmq


def test_types_of_topics(golden_store: GoldenStore) -> None:
    with StoreFiles(golden_store("innerbatch")) as files:
        topics = TopicTypes(files)
    assert topics.is_batch("InnerBatchTopic")
    assert not topics.is_batch("TopicTest")
    assert not topics.settle("TopicTest", True)
    assert topics.settle("New", True)
    assert topics.is_batch("New")
    assert not topics.settle("New", False)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"topicConfigTable":[]}', '{"topicConfigTable":{"T":1}}', "null"])
def test_an_unreadable_topics_json_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "s" / "config").mkdir(parents=True)
    (tmp_path / "s" / "commitlog").mkdir()
    (tmp_path / "s" / "config" / "topics.json").write_text(text)
    with StoreFiles(tmp_path / "s") as files:
        assert not TopicTypes(files).is_batch("T")


def test_a_topic_keeps_its_type(golden_store: GoldenStore) -> None:
    """A broker does not start on a store whose queues have another type than their topic."""
    store_path = golden_store("innerbatch")
    with MessageStore.open(store_path, "rw") as store:
        batch = message(topic="TopicTest", sys_flag=SYS_FLAG_INNER_BATCH, properties={"INNER_NUM": "2"})
        assert store.put(batch).status is PutStatus.MESSAGE_ILLEGAL
        assert store.put(batch, as_stored=True).status is PutStatus.MESSAGE_ILLEGAL
        huge = message(topic="InnerBatchTopic", sys_flag=SYS_FLAG_INNER_BATCH, properties={"INNER_NUM": "32768"})
        assert store.put(huge).status is PutStatus.MESSAGE_ILLEGAL
        huge = huge._replace(properties={"INNER_NUM": "32767"})
        first, second = store.put(huge), store.put(message(topic="InnerBatchTopic"))
        assert first.queue_offset is not None
        assert second.queue_offset == first.queue_offset + 32767
    assert stored_messages(store_path)[-2].properties()["INNER_BASE"] == str(first.queue_offset)
    MessageStore.open(store_path, "rw").close()


@pytest.mark.parametrize("as_stored", [False, True])
def test_a_value_that_no_field_holds_is_a_usage_error(as_stored: bool, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for _ in range(2):  # the second time the queue is known
            for wrong in (message(flag=1 << 31), message(topic="half \ud800"), message(born_timestamp=1 << 63)):
                with pytest.raises(UsageError):
                    store.put(wrong, as_stored=as_stored)
            store.put(message())
    assert len(stored_messages(tmp_path / "s")) == 2


@pytest.mark.parametrize(
    ("given", "topic", "stored"),
    [
        # nothing is added to these and nothing taken away
        (b"A\x01b\x02A\x01c\x02", "TopicA", b"A\x01b\x02A\x01c\x02"),
        (b"A\x01b", "TopicA", b"A\x01b"),
        (b"", "TopicA", b""),
        (b"DELAY\x011\x02", "SCHEDULE_TOPIC_XXXX", b"DELAY\x011\x02REAL_TOPIC\x01TopicA\x02REAL_QID\x010\x02"),
        (b"A\x01b\x02__CRC32#\x017\x02", "TopicA", b"A\x01b\x02"),
        (b"INNER_MULTI_QUEUE_OFFSET\x017\x02A\x01b\x02", "TopicA", b"A\x01b\x02"),
    ],
)
def test_properties_in_stored_form_stay_so_unless_the_store_has_its_own(
    given: bytes, topic: str, stored: bytes, tmp_path: Path
) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message(property_bytes=given))
        store.put(message(property_bytes=given))
    assert [(one.topic, one.property_bytes) for one in stored_messages(tmp_path / "s")] == [(topic, stored)] * 2


@pytest.mark.parametrize(
    ("text", "is_batch"),
    [
        ('{"topicConfigTable":{"T":{"attributes":{"queue.type":"BatchCQ"}},"U":{}}}', True),
        ('{"topicConfigTable":{"T":{"attributes":{"queue.type":"SimpleCQ"}}}}', False),
    ],
)
def test_a_topic_without_queues_has_the_type_that_its_creation_gave_it(
    text: str, is_batch: bool, tmp_path: Path
) -> None:
    (tmp_path / "s" / "config").mkdir(parents=True)
    (tmp_path / "s" / "commitlog").mkdir()
    (tmp_path / "s" / "config" / "topics.json").write_text(text)
    with StoreFiles(tmp_path / "s") as files:
        topics = TopicTypes(files)
    assert topics.is_batch("T") == is_batch
    # of one that has none, the first message settles it
    assert topics.settle("U", not is_batch)
    assert topics.settle("T", is_batch)
    assert not topics.settle("T", not is_batch)


def test_properties_count_for_the_size_of_a_batch(tmp_path: Path) -> None:
    two = [message(properties={"a": "bbbbbbb"})] * 2  # of 22 bytes of lengths, 100 of body and 10 of properties each
    for limit, status in ((264, PutStatus.PUT_OK), (263, PutStatus.MESSAGE_ILLEGAL)):
        with MessageStore.open(tmp_path / str(limit), "rw", small(max_message_size=limit), create=True) as store:
            assert {one.status for one in store.put_many(two, batch=True)} == {status}


@pytest.mark.parametrize("is_allowed", [True, False])
def test_long_topics_are_for_stores_that_have_them_and_for_copies(is_allowed: bool, tmp_path: Path) -> None:
    config = small(auto_message_version_on_topic_len=is_allowed)
    long = message(topic="%RETRY%" + "G" * 130)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        assert store.put(long).status.is_stored == is_allowed
        assert store.put(long, as_stored=True).status.is_stored
    assert {one.topic for one in stored_messages(tmp_path / "s")} == {long.topic}


def test_a_property_crc_is_written_once_however_often_it_is_copied(tmp_path: Path) -> None:
    """As it was given, without one and without anything else."""
    for number, properties in enumerate(({"A": "b"}, {})):
        with MessageStore.open(
            tmp_path / f"first {number}", "rw", small(enabled_append_prop_crc=True), create=True
        ) as store:
            store.put(message(properties=properties))
        (first,) = stored_messages(tmp_path / f"first {number}")
        with MessageStore.open(tmp_path / f"copy {number}", "rw", SMALL, create=True) as store:
            store.put(copy_of(first), as_stored=True)
            store.put(copy_of(first)._replace(property_bytes=encode_properties(properties)), as_stored=True)
        copied, bare = stored_messages(tmp_path / f"copy {number}")
        assert copied.property_bytes == first.property_bytes
        assert copied.property_bytes.count(b"__CRC32#") == 1
        assert bare.property_bytes == encode_properties(properties)


def test_an_inner_batch_of_a_transaction_has_no_place_in_a_queue_yet(golden_store: GoldenStore) -> None:
    store_path = golden_store("innerbatch")
    both = SYS_FLAG_INNER_BATCH | TRANSACTION_PREPARED
    with MessageStore.open(store_path, "rw") as store:
        half = store.put(message(topic="InnerBatchTopic", sys_flag=both, properties={"INNER_NUM": "2"}))
        assert half.queue_offset == 0
    assert stored_messages(store_path)[-1].properties() == {"INNER_NUM": "2"}


def test_next_offsets(golden_store: GoldenStore) -> None:
    table = OffsetTable()
    with StoreFiles(golden_store("innerbatch")) as files:
        table.load(files.queues.all())
    assert table.next_offset(("InnerBatchTopic", 0)) == 57
    assert table.next_offset(("Nobody", 9)) == 0
    table.advance(("Nobody", 9), 3)
    assert table.next_offset(("Nobody", 9)) == 3


# ---- files made ahead


def test_a_file_is_made_ahead_once(tmp_path: Path) -> None:
    log = MappedFileQueue([tmp_path / "commitlog"], 4096, Descriptors())
    allocator = Allocator(log, True, lambda: None)
    allocator.ask(4096)
    allocator.ask(4096)
    wait_until((tmp_path / "commitlog" / f"{4096:020}").exists)
    file = allocator.take(4096)
    assert (file.start_offset, file.size, file.wrote_position) == (4096, 4096, 0)
    assert log.files == []
    allocator.ask(8192)
    allocator.close()
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{4096:020}"]


def test_another_file_than_the_one_made_ahead(tmp_path: Path) -> None:
    log = MappedFileQueue([tmp_path / "commitlog"], 4096, Descriptors())
    allocator = Allocator(log, True, lambda: None)
    allocator.ask(4096)
    wait_until((tmp_path / "commitlog" / f"{8192:020}").exists)
    assert allocator.take(0).start_offset == 0
    allocator.close()
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020}"]


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(b"mine")
    allocator = Allocator(MappedFileQueue([tmp_path / "commitlog"], 4096, Descriptors()), True, lambda: None)
    allocator.ask(0)
    with pytest.raises(WriteFailedError, match="File exists"):
        allocator.take(0)
    allocator.close()
    assert (tmp_path / "commitlog" / f"{0:020}").read_bytes() == b"mine"


# ---- threads and state


@pytest.mark.parametrize("kind", [ValueError, MemoryError, SystemExit, CrashError])
def test_a_background_step_that_fails_is_told_and_not_repeated(kind: type[BaseException]) -> None:
    """Whatever ends the thread: who waits for what it did would wait for ever."""
    told: list[BaseException] = []
    steps: list[int] = []

    def step() -> None:
        steps.append(1)
        raise kind("no")

    thread = Background("test", step, 1, told.append)
    thread.start()
    wait_until(lambda: bool(told))
    thread.stop()
    assert len(steps) == len(told) == 1
    assert isinstance(told[0], kind)


def test_a_wake_begins_the_next_step_at_once() -> None:
    steps: list[int] = []
    thread = Background("test", lambda: steps.append(1), 60_000, lambda _: None)
    thread.start()
    thread.wake()
    wait_until(lambda: len(steps) == 1)
    thread.wake()
    wait_until(lambda: len(steps) == 2)
    thread.stop()


def test_who_lingers_needs_no_wake() -> None:
    work, steps = [3], [0]

    def step() -> bool:
        steps[0] += 1
        found, work[0] = work[0] > 0, max(0, work[0] - 1)
        return found

    thread = Background("test", step, 60_000, lambda _: None, linger_ms=1)
    assert thread.is_idle
    thread.start()
    thread.wake()
    # three that find work, one that finds none, and another look after the mark
    wait_until(lambda: steps[0] == 5)
    wait_until(lambda: thread.is_idle)
    work[0] = 1
    thread.wake()
    wait_until(lambda: steps[0] == 8)
    thread.stop()


def test_the_first_failure_is_the_one_that_counts(tmp_path: Path) -> None:
    state, told = RunningState(), []
    state.on_failure(lambda: told.append(1))
    state.raise_failure()
    state.fail(ValueError("first"))
    state.fail(ValueError("second"))
    assert not state.is_writeable
    assert len(told) == 2
    with pytest.raises(ValueError, match="first"):
        state.raise_failure()
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True):
        pass
