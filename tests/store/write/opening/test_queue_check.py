"""The ends of queues, held against a log: of both kinds, with files and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import SYS_FLAG_INNER_BATCH
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.opening import Cursor, QueueEndCheck
from tests.store.write.writing import SMALL, message, small

BATCHES = '{"topicConfigTable":{"TopicA":{"attributes":{"queue.type":"BatchCQ"}}}}'


def batch_store(folder: Path, count: int) -> Path:
    """A store with so many messages, two in each unit of a batch queue."""
    (folder / "s" / "config").mkdir(parents=True)
    (folder / "s" / "config" / "topics.json").write_text(BATCHES)
    config = small(mapper_file_size_batch_consume_queue=460)
    with MessageStore.open(folder / "s", "rw", config, create=True) as store:
        for _ in range(count):
            store.put(message(sys_flag=SYS_FLAG_INNER_BATCH, properties={"INNER_NUM": "2"})).raise_failure()
    return folder / "s"


@pytest.mark.parametrize("count", [1, 10, 11, 25])
def test_batch_queues_of_several_files_fit(count: int, tmp_path: Path) -> None:
    config = small(mapper_file_size_batch_consume_queue=460)
    store = batch_store(tmp_path, count)
    for full_check in (False, True):
        with MessageStore.open(store, "rw", config, full_check=full_check) as opened:
            queue = opened.files.queues.find("TopicA", 0)
            assert queue is not None
            assert queue.max_offset == 2 * count
            assert len(queue.files.files) == -(-count // 10)


def test_a_queue_without_files_is_empty(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
    (tmp_path / "s" / "consumequeue" / "Empty" / "0").mkdir(parents=True)
    with MessageStore.open(tmp_path / "s", "rw", SMALL) as store:
        assert store.put(message(topic="Empty")).queue_offset == 0


def test_units_are_found_in_any_order_and_none_where_there_is_none(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        places = [store.put(message(number)).physical_offset for number in range(120)]
    with StoreFiles(tmp_path / "s", SMALL) as files:
        queue = files.queues.find("TopicA", 0)
        assert queue is not None
        cursor = Cursor(queue)
        for number in (0, 1, 2, 119, 50, 51, 51, 99, 100):
            unit = cursor.next(number)
            assert unit is not None
            assert unit.physical_offset == places[number]
        assert cursor.next(120) is None
        assert cursor.next(5) is not None
        assert cursor.end == 0


def test_a_queue_of_the_other_kind_is_none_of_the_message_s(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
    with StoreFiles(tmp_path / "s", SMALL) as files:
        check = QueueEndCheck(files, 0)
        assert check.cursor("TopicA", 0, True) is None
        assert check.cursor("TopicA", 1, False) is None
        assert check.cursor("Other", 0, False) is None
        found = check.cursor("TopicA", 0, False)
        assert found is not None
        assert check.cursor("TopicA", 0, False) is found
        # its messages have not been seen: its end is beyond theirs
        with pytest.raises(RefusedError, match="queue TopicA/0 ends at 1, its messages at 0"):
            check.check_ends(197)
