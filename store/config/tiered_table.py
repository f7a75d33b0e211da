"""The table of segments in tiered storage: config/tieredStoreMetadata.json (DefaultMetadataStore)."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.config.config_files import read_config

TABLE = "tieredStoreMetadata.json"
LOG, UNITS = "COMMIT_LOG", "CONSUME_QUEUE"
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


def topic_numbers(config: Path) -> dict[int, str]:
    """Return the topics by the numbers that items of the key index have; none without the table. CorruptError,
    UnreadableError."""
    content = read_config(config / TABLE)
    table = content.get("topicMetadataTable") if isinstance(content, dict) else None
    entries = table.values() if isinstance(table, dict) else ()
    known = [one for one in entries if isinstance(one, dict) and isinstance(one.get("topicId"), int)]
    return {one["topicId"]: str(one.get("topic")) for one in known}
