"""The table of segments in tiered storage: config/tieredStoreMetadata.json (DefaultMetadataStore)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.store.config.config_files import read_config

TABLE = "tieredStoreMetadata.json"
LOG, UNITS = "COMMIT_LOG", "CONSUME_QUEUE"
_TOPICS = "topicMetadataTable"
_TABLES = {LOG: "commitLogFileSegmentTable", UNITS: "consumeQueueFileSegmentTable"}

SegmentTable = dict[tuple[str, str, int], dict[int, int]]
"""Sizes of segments by their bases, by kind, topic and queue id."""


def read_segment_table(config: Path) -> SegmentTable | None:
    """Return what the table in the folder `config` says; None without one. Entries that cannot be one are left out, and
    topics are as they stand there, safe or not. CorruptError, UnreadableError."""
    content = read_config(config / TABLE)
    if content is None:
        return None
    found: SegmentTable = {}
    for kind, name in _TABLES.items():
        table = content.get(name) if isinstance(content, dict) else None
        for place, segments in (table if isinstance(table, dict) else {}).items():
            _, topic, queue_id = ["", "", *str(place).rsplit("/", 2)][-3:]
            if not (queue_id.isascii() and queue_id.isdigit() and isinstance(segments, dict)):
                continue
            sizes = found.setdefault((kind, topic, int(queue_id)), {})
            for base, entry in segments.items():
                size = entry.get("size") if isinstance(entry, dict) else None
                if str(base).isdigit() and isinstance(size, int) and size >= 0:
                    sizes[int(base)] = size
    return found


class TieredTopics(NamedTuple):
    """The topics by the numbers that items of the key index have. `last`: the last number that was given out; those
    before it that are not here are of deleted topics."""

    topics: dict[int, str]
    last: int

    def problem(self, number: int) -> str:
        """Return what is wrong with a number that no topic has; "" where the topic may have been deleted."""
        return "" if 0 <= number <= self.last else f"no topic has the number {number}"


def topic_numbers(config: Path) -> TieredTopics | None:
    """Return the numbers of topics; None without the table, or where it is damaged. UnreadableError."""
    try:
        content = read_config(config / TABLE)
    except CorruptError:
        return None
    table, last = (content.get(name) if isinstance(content, dict) else None for name in (_TOPICS, "topicSerialNumber"))
    entries = table.values() if isinstance(table, dict) else ()
    known = [one for one in entries if isinstance(one, dict) and isinstance(one.get("topicId"), int)]
    topics = {one["topicId"]: str(one.get("topic")) for one in known}
    return TieredTopics(topics, last if isinstance(last, int) else max(topics, default=-1)) if topics else None


def queue_offsets(config: Path) -> dict[tuple[str, int], tuple[int, int]] | None:
    """Return minOffset and maxOffset by topic and queue id, of the topics that the table names; None without the table.

    Brokers of 5.2 and earlier save both when they stop. Later ones set -1 for a new queue and never change them
    (FlatMessageFile#flushMetadata has no caller). No broker reads them. CorruptError, UnreadableError.
    """
    content = read_config(config / TABLE)
    if not isinstance(content, dict):
        return None
    topics, table = (content.get(name) for name in (_TOPICS, "queueMetadataTable"))
    found = {}
    for topic, queues in (table if isinstance(table, dict) else {}).items():
        is_known = isinstance(topics, dict) and topic in topics
        for queue_id, entry in (queues if is_known and isinstance(queues, dict) else {}).items():
            low, high = (
                entry.get(name, -1) if isinstance(entry, dict) else None for name in ("minOffset", "maxOffset")
            )
            if str(queue_id).isdecimal() and isinstance(low, int) and isinstance(high, int):
                found[str(topic), int(queue_id)] = low, high
    return found
