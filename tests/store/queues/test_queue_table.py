"""The table of queues: what it finds in folders, and the size of files that it goes by."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, UsageError
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.consumequeue import BatchConsumeQueue, ConsumeQueue, QueueUnit
from rmqctl.store.queues.queue_table import QueueTable, list_queues
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, tree_state, truth
from tests.opened import reader
from tests.quick import goldens_of


def _table(root: Path, **settings: int) -> QueueTable:
    return QueueTable(StoreLayout(root, (root / "commitlog",)), StoreConfig(**settings), Descriptors())  # type: ignore[arg-type]  # sizes only


def _file(root: Path, place: str, size: int) -> None:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\1" * size)


@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if not name.startswith("rocksdb")))
def test_queues_of_goldens_are_the_folders_that_were_there(name: str) -> None:
    places = {
        tuple(row["path"].split("/")[1:3])
        for row in truth(name).summary["filesBefore"]
        if row["path"].startswith(("consumequeue/", "batchconsumequeue/"))
    }
    table = reader(name).files.queues
    assert {(queue.topic, str(queue.queue_id)) for queue in table.all()} == places
    assert table.topics() == sorted({topic for topic, _ in places})
    assert len(table.all()) == len({(queue.topic, queue.queue_id) for queue in table.all()})


def test_file_sizes_of_goldens() -> None:
    assert reader("clean").files.queues.consumequeue_file_size() == 2000
    assert reader("innerbatch").files.queues.batch_file_size() == 460
    assert reader("cq-short").files.queues.consumequeue_file_size() == 2000


def test_queues_in_a_rocksdb(golden_store: GoldenStore) -> None:
    table = reader("rocksdb").files.queues
    assert table.topics() == sorted({queue.topic for queue in table.all()})
    queue = table.find("TopicTest", 0)
    assert queue is not None
    assert (queue.kind, queue.max_offset) == ("RocksDBCQ", 7)
    assert table.find("TopicTest", 99) is None
    store = golden_store("rocksdb")
    (store / "consumequeue/CURRENT").write_text("MANIFEST-000099\n")
    with StoreFiles(store) as files:
        damaged = files.queues
        for ask in (damaged.all, damaged.topics, lambda: damaged.find("TopicTest", 0)):
            with pytest.raises(CorruptError, match="this RocksDB cannot be read") as error:
                ask()
            assert error.value.hint
    # a golden with both kinds of queues keeps the ordinary ones on disk
    assert len(reader("rocksdb-double").files.queues.all()) == 32


@pytest.mark.parametrize(
    ("configured", "found", "expected"),
    [
        (None, None, 6_000_000),
        (None, 2000, 2000),
        (None, 1990, 2000),
        (2000, None, 2000),
        (1999, None, 2000),
        (2001, None, 2020),
        (1, None, 20),
        (4000, 2000, 4000),
    ],
)
def test_size_of_consumequeue_files(tmp_path: Path, configured: int | None, found: int | None, expected: int) -> None:
    """MessageStoreConfig#getMappedFileSizeConsumeQueue rounds up to whole units."""
    if found:
        _file(tmp_path, "consumequeue/T/0/" + "0" * 20, found)
    settings = {} if configured is None else {"mapped_file_size_consume_queue": configured}
    assert _table(tmp_path, **settings).consumequeue_file_size() == expected


def test_size_of_most_files_counts(tmp_path: Path) -> None:
    for number, size in enumerate((2000, 2000, 1234, 0, 0, 0)):
        _file(tmp_path, f"consumequeue/T/{number}/" + "0" * 20, size)
    _file(tmp_path, "consumequeue/T/9/notes", 77)
    assert _table(tmp_path).consumequeue_file_size() == 2000


def test_batch_files_are_never_rounded(tmp_path: Path) -> None:
    assert _table(tmp_path).batch_file_size() == 300_000 * 46
    assert _table(tmp_path, mapper_file_size_batch_consume_queue=460).batch_file_size() == 460


def test_names_that_are_no_queues(tmp_path: Path) -> None:
    for place in ("T/0", "T/10", "T/2", "T/x", "T/-1", "T/1.5", "T/٣", "T/²", "A/5"):
        (tmp_path / "consumequeue" / place).mkdir(parents=True)
    _file(tmp_path, "consumequeue/file", 5)
    _file(tmp_path, "consumequeue/T/7", 5)
    os.mkfifo(tmp_path / "consumequeue" / "fifo")
    found = list_queues(tmp_path / "consumequeue")
    assert [(topic, queue_id) for topic, queue_id, _ in found] == [("A", 5), ("T", 0), ("T", 2), ("T", 10)]
    assert list_queues(tmp_path / "nowhere") == []


def test_finding_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "T" / "0").mkdir(parents=True)
    before = tree_state(tmp_path)
    table = _table(tmp_path)
    assert table.find("T", 0) is table.find("T", 0)
    assert table.find("T", 1) is None
    assert table.find("U", 0) is None
    assert table.absent("U", 0).max_offset == 0
    assert [queue.topic for queue in table.all()] == ["T"]
    assert tree_state(tmp_path) == before


@pytest.mark.parametrize("topic", ["..", "../T", "/etc", "a/b", "", "x" * 256])
def test_a_topic_that_leads_elsewhere_is_refused(tmp_path: Path, topic: str) -> None:
    table = _table(tmp_path)
    for ask in (table.find, table.find_or_create, table.absent):
        with pytest.raises(UsageError):
            ask(topic, 0)
    assert list(tmp_path.iterdir()) == []


def test_new_queues(tmp_path: Path) -> None:
    table = _table(tmp_path, mapped_file_size_consume_queue=200, mapper_file_size_batch_consume_queue=460)
    simple, batch = table.find_or_create("T", 3), table.find_or_create("B", 1, is_batch=True)
    assert isinstance(simple, ConsumeQueue)
    assert isinstance(batch, BatchConsumeQueue)
    assert table.find_or_create("T", 3) is simple
    simple.append(QueueUnit(0, 0, 100, 0))
    batch.append(QueueUnit(0, 100, 100, 0, 5, 2))
    table.close()
    assert (tmp_path / "consumequeue/T/3" / ("0" * 20)).stat().st_size == 200
    assert (tmp_path / "batchconsumequeue/B/1" / ("0" * 20)).stat().st_size == 460
    again = _table(tmp_path)
    assert [(queue.topic, queue.queue_id, queue.kind, queue.max_offset) for queue in again.all()] == [
        ("B", 1, "BatchCQ", 2),
        ("T", 3, "SimpleCQ", 1),
    ]


@pytest.mark.parametrize("name", ["007", "+7", "2147483648", "9999999999", "\u0667", "-1", "7 "])
def test_a_folder_that_no_broker_opens_is_no_queue(golden_store: GoldenStore, name: str) -> None:
    """A broker opens the folder that the id gives: of `007` that is `7`, and our queue 7 must be the same."""
    store = golden_store("broker-real")
    below = store / "consumequeue" / "Events"
    shutil.copytree(below / "0", below / name)
    with StoreFiles(store) as files:
        queues = [queue for queue in files.queues.all() if queue.topic == "Events"]
        assert [(queue.queue_id, queue.directory.name) for queue in queues] == [(n, str(n)) for n in range(8)]
        assert not recover(files, change=ChangeOptions(dry_run=True)).operations


def test_the_largest_queue_id(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    below = store / "consumequeue" / "Events"
    shutil.copytree(below / "0", below / str((1 << 31) - 1))
    assert [queue_id for topic, queue_id, _ in list_queues(below.parent) if topic == "Events"][-1] == (1 << 31) - 1
