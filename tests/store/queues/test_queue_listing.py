"""Which queues a table knows of when others make and fill some, and which of them it looks for."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.queue_table import ListedQueues, QueueTable

SETTINGS = StoreConfig(mapped_file_size_consume_queue=200, mapper_file_size_batch_consume_queue=460)


def a_table(root: Path, config: StoreConfig = SETTINGS) -> QueueTable:
    return QueueTable(StoreLayout(root, (root / "commitlog",)), config, Descriptors())


def put(table: QueueTable, topic: str, queue_id: int, slot: int, is_batch: bool = False) -> None:
    queue = table.find_or_create(topic, queue_id, is_batch)
    queue.append(QueueUnit(slot, slot * 100, 100, 0))
    queue.close()


def ends(table: QueueTable) -> dict[str, int]:
    return {f"{queue.topic}/{queue.queue_id}": queue.max_offset for queue in table.all()}


def test_what_others_make_is_seen_when_it_is_looked_for_again(tmp_path: Path) -> None:
    others, table = a_table(tmp_path), a_table(tmp_path)
    put(others, "B", 1, 0)
    assert ends(table) == {"B/1": 1}
    put(others, "B", 1, 1)
    put(others, "A", 0, 0)
    put(others, "C", 2, 0, is_batch=True)
    # one listing is enough for a table, but a queue that is asked for is looked for
    assert ends(table) == {"B/1": 1}
    found = table.find("A", 0)
    assert found is not None
    assert ends(table) == {"A/0": 1, "B/1": 1}
    table.look_again()
    assert ends(table) == {"A/0": 1, "B/1": 2, "C/2": 1}
    assert table.find("A", 0) is found
    assert {queue.kind for queue in table.all() if queue.topic == "C"} == {"BatchCQ"}


def test_once_settled_what_is_not_there_is_absent(tmp_path: Path) -> None:
    others, table = a_table(tmp_path), a_table(tmp_path)
    put(others, "A", 0, 0)
    table.settle()
    put(others, "A", 1, 0)
    assert table.find("A", 1) is None
    assert table.find("A", 0) is not None
    with pytest.raises(UsageError):
        table.find("..", 0)
    table.look_again()
    assert table.find("A", 1) is not None
    # what this table makes itself it knows
    table.settle()
    put(table, "A", 2, 0)
    assert ends(table) == {"A/0": 1, "A/1": 1, "A/2": 1}


def test_queues_of_wanted_topics_alone(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    for topic, queue_id in (("B", 10), ("A", 2), ("B", 9), ("C", 0)):
        put(table, topic, queue_id, 0, is_batch=topic == "C")
    again = a_table(tmp_path)
    assert again.find("A", 2) is not None
    wanted = again.of_topics(lambda topic: topic in ("B", "C"))
    assert [(queue.topic, queue.queue_id, queue.kind) for queue in wanted] == [
        ("B", 9, "SimpleCQ"),
        ("B", 10, "SimpleCQ"),
        ("C", 0, "BatchCQ"),
    ]
    assert again.of_topics(lambda topic: False) == []
    assert [queue.topic for queue in again.all()] == ["A", "B", "B", "C"]
    assert again.topics() == ["A", "B", "C"]


def test_queues_that_were_listed_elsewhere_are_not_looked_for(tmp_path: Path) -> None:
    """A table of another process has them as they were: what is not plain, and what came since, it looks for."""
    table = a_table(tmp_path)
    for slot in range(25):
        put(table, "A", 3, slot)
    put(table, "B", 0, 0, is_batch=True)
    put(table, "C", 0, 0)
    (tmp_path / "consumequeue" / "C" / "0" / "stray").touch()
    (tmp_path / "consumequeue" / "D" / "0").mkdir(parents=True)
    listed: ListedQueues = pickle.loads(pickle.dumps(a_table(tmp_path).listed()))
    assert listed.by_key() == {("A", 3): (0, 3)}
    other = a_table(tmp_path, StoreConfig())
    other.take(listed)
    (tmp_path / "consumequeue").rename(tmp_path / "aside")
    found = other.find("A", 3)
    assert found is not None
    assert found.directory == tmp_path / "consumequeue" / "A" / "3"
    assert [(file.path.parent, file.start_offset, file.size) for file in found.files.files] == [
        (found.directory, start, 200) for start in (0, 200, 400)
    ]
    assert other.find("C", 0) is None
    (tmp_path / "aside").rename(tmp_path / "consumequeue")
    put(table, "D", 0, 0)
    assert [other.find(*key) is not None for key in (("B", 0), ("C", 0), ("D", 0))] == [True] * 3
    assert ends(other) == {"A/3": 25, "B/0": 1, "C/0": 1, "D/0": 1}


def test_what_was_listed_elsewhere_is_forgotten_by_a_new_look(tmp_path: Path) -> None:
    put(a_table(tmp_path), "A", 0, 0)
    other = a_table(tmp_path)
    other.take(a_table(tmp_path).listed())
    (tmp_path / "consumequeue" / "A").rename(tmp_path / "A")
    other.look_again()
    assert other.find("A", 0) is None


def test_a_folder_that_can_be_no_topic_is_named(tmp_path: Path) -> None:
    """By whoever lists: nothing is left out in silence."""
    # bytes that are no text count as three each
    (tmp_path / "consumequeue" / os.fsdecode(b"\xff" * 86) / "0").mkdir(parents=True)
    table = a_table(tmp_path)
    for ask in (table.all, table.topics, table.settle):
        with pytest.raises(UsageError):
            ask()
    assert table.of_topics(lambda topic: topic == "A") == []


def test_sizes_of_new_files(tmp_path: Path) -> None:
    """Configured, else those of the files that are there, each kind for itself; else it is said to be assumed."""
    assert (a_table(tmp_path).consumequeue_file_size(), a_table(tmp_path).batch_file_size()) == (200, 460)
    assert not a_table(tmp_path).is_size_assumed
    bare = a_table(tmp_path, StoreConfig())
    assert bare.is_size_assumed
    put(a_table(tmp_path), "B", 0, 0, is_batch=True)
    assert a_table(tmp_path, StoreConfig()).is_size_assumed
    put(a_table(tmp_path), "A", 0, 0)
    found = a_table(tmp_path, StoreConfig())
    assert (found.is_size_assumed, found.consumequeue_file_size(), found.batch_file_size()) == (False, 200, 460)
    absent = found.absent("N", 3, is_batch=True)
    assert (absent.kind, absent.files.file_size, absent.max_offset) == ("BatchCQ", 460, 0)
    assert found.absent("N", 3).files.file_size == 200
    assert not list(tmp_path.rglob("N"))
