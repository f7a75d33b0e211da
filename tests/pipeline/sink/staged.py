"""Rows as tasks put them aside, for tests of the sink that need no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from rmqctl.formats.message import StoredMessage
from rmqctl.pipeline.spark.sink_record import MicroBatch, StagedRows, staging_folder, write_attempt
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_files import read_config
from rmqctl.store.message_store import MessageStore
from tests.store.write.writing import stored_messages

LAYOUT = StoreConfig().layout
FIRST = MicroBatch("query", 3)
"""The micro-batch that the fixture `store` has."""


def task(target: Path, partition: int, bodies: Sequence[bytes], **columns: object) -> StagedRows:
    """What a task would put aside for the store at `target`: messages of TopicA, in three queues in turn, unless
    `columns` say otherwise."""
    rows = {"topic": ["TopicA"] * len(bodies), "body": list(bodies), "queue_id": [n % 3 for n in range(len(bodies))]}
    batch = pa.record_batch(rows | columns)
    # in two pieces: they come as batches, not as one
    half = len(bodies) // 2
    return write_attempt(staging_folder(target, "test"), partition, [batch.slice(0, half), batch.slice(half)])


def named(partition: int, count: int) -> list[bytes]:
    """Bodies that say where they come from."""
    return [b"task %d row %d" % (partition, row) for row in range(count)]


def whole(root: Path, *allowed: str) -> list[StoredMessage]:
    """The messages of a store in which nothing is wrong, but for findings of these codes."""
    with MessageStore.open(root) as store:
        assert [finding.code for finding in store.check() if finding.code not in allowed] == []
    return stored_messages(root)


def bodies(root: Path) -> list[bytes]:
    """Of all messages of a store."""
    return [one.body for one in stored_messages(root)]


def table(root: Path) -> dict[str, dict[str, int]]:
    """The topics in topics.json."""
    content = read_config(root / "config" / "topics.json")
    assert isinstance(content, dict)
    return dict(content["topicConfigTable"])
