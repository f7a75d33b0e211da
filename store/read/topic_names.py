"""Names of the topics a store knows: those with queues and those its broker has configured."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats.errors import CorruptError, UnreadableError, UnsupportedError
from rmqctl.store.config.config_files import read_config
from rmqctl.store.read.topic_filter import TopicFilter
from rmqctl.store.store_files import StoreFiles


def configured_topics(config: Path) -> list[str]:
    """Topics of `config`/topics.json or its backup, sorted; none where both are missing or damaged."""
    try:
        content = read_config(config / "topics.json")
    except (CorruptError, UnreadableError):
        return []
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    return sorted(name for name in table if isinstance(name, str)) if isinstance(table, dict) else []


def known_topics(files: StoreFiles) -> list[str]:
    """Topics with a queue and topics that are configured.

    UnsupportedError where the queues are in a RocksDB and no configuration names a topic either.
    """
    topics = set(configured_topics(files.layout.config))
    try:
        topics.update(files.queues.topics())
    except UnsupportedError:
        if not topics:
            raise
    return sorted(topics)


def unmet_names(files: StoreFiles, topics: TopicFilter) -> list[str]:
    """The names and patterns that no known topic goes by; none where nothing says which topics there are."""
    if not topics.names:
        return []
    try:
        known = known_topics(files)
    except UnsupportedError:
        return []
    # a log whose queues and configuration are lost may have any
    return topics.unmet(known) if known or not files.log.files else []
