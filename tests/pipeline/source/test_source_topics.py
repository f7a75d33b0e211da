"""The view `topics` without a walk: the same rows as with one, where nothing of the log is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.pipeline import queue_pruning as named
from rmqctl.pipeline.spark import readers
from rmqctl.pipeline.spark.readers import topic_view_rows
from rmqctl.pipeline.views import TABLES
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.pipeline.source.reading import REPRESENTATIVE, BytesRead, options_of
from tests.quick import sample

ALL = list(TABLES["topics"].columns)
NAMES = ("topic", "is_configured", "queues", "queue_messages", "queue_bytes", "perm")
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is left alone however small it is, and however little that saves."""
    monkeypatch.setattr(named, "_WORTH", 1e9)
    monkeypatch.setattr(readers, "is_large", lambda _: True)


def _both(path: Path, config: StoreConfig) -> tuple[Rows, Rows]:
    """Rows without and with a walk."""
    with StoreFiles(path, config) as files:
        without, walked = (list(topic_view_rows(files, columns)) for columns in (NAMES, ALL))
    return [{name: row.get(name) for name in NAMES} for row in without], [
        {name: row.get(name) for name in NAMES} for row in walked
    ]


@pytest.mark.parametrize("name", sample(REPRESENTATIVE, ["crc-flip-third"]))
def test_the_same_rows(name: str) -> None:
    options = options_of(name)
    without, walked = _both(Path(options.path), options.store_config())
    assert without == walked


def test_topics_that_only_the_log_has(golden_store: GoldenStore) -> None:
    """Its queues are gone, and it is not configured."""
    store = golden_store("clean")
    shutil.rmtree(store / "consumequeue" / "OrderTopic")
    without, walked = _both(store, StoreConfig())
    assert without == walked
    assert {"topic": "OrderTopic", "queues": 0, "queue_messages": 0} in [
        {name: row[name] for name in ("topic", "queues", "queue_messages")} for row in without
    ]


def test_how_much_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1_130_000)
    with MessageStore.open(tmp_path / "store", "rw", config, create=True) as store:
        assert store.put_many([Message(f"Topic{number % 10}", b"x" * 2000) for number in range(2000)])
    monkeypatch.undo()
    monkeypatch.setattr(readers, "is_large", lambda _: True)
    read = BytesRead(monkeypatch)
    with StoreFiles(tmp_path / "store") as files:
        length = files.log.max_offset
        rows = list(topic_view_rows(files, NAMES))
    assert [row["queue_messages"] for row in rows] == [200] * 10
    assert read.bytes < 0.08 * length
