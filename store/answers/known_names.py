"""The groups and topics that a broker's configuration names, and offsets of others: orphans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rmqctl.formats.errors import CorruptError, UncertainError, UnreadableError, UnsupportedError
from rmqctl.store.answers.config_offsets import GROUP_TABLE, OffsetKey, is_own_group
from rmqctl.store.config.config_files import deleted_in, read_config
from rmqctl.store.config.config_start import why_unknown
from rmqctl.store.config.homes import GROUPS, TOPICS
from rmqctl.store.config.topic_names import is_brokers_own
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.store_files import StoreFiles

UNKNOWN_GROUP = "subscriptionGroup.json does not name the group"
UNKNOWN_TOPIC = "topics.json does not name the topic, and it has no queue"


def known_groups(layout: StoreLayout) -> set[str]:
    """Return the groups that subscriptionGroup.json names; none where it is not there, or a RocksDB has them.

    CorruptError, UnreadableError.
    """
    try:
        content = read_config(layout.config / GROUPS)
    except UncertainError:
        return set()
    table = content.get(GROUP_TABLE) if isinstance(content, dict) else None
    return set(map(str, table)) if isinstance(table, dict) else set()


_PERM_READ = 4
"""In `perm` of a topic: consumers may read it (PermName)."""


def topic_entries(layout: StoreLayout) -> dict[str, Any]:
    """Return the topics of topics.json as it has them; none where it is not there or cannot be used."""
    try:
        content = read_config(layout.config / TOPICS)
    except (CorruptError, UnreadableError):
        return {}
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    return {str(name): entry for name, entry in table.items()} if isinstance(table, dict) else {}


def why_hidden(entry: object, queue_id: int) -> str | None:
    """Return why consumers do not see a queue of a topic that is configured as `entry`; None where they do."""
    if not isinstance(entry, dict):
        return None
    perm, count = entry.get("perm"), entry.get("readQueueNums")
    if isinstance(perm, int) and not perm & _PERM_READ:
        return f"no consumer may read the topic: perm is {perm}"
    if isinstance(count, int) and queue_id >= count:
        return f"no consumer sees queue {queue_id}: readQueueNums is {count}"
    return None


def known_topics(layout: StoreLayout) -> dict[str, int]:
    """Return the read queues of the topics that topics.json names. CorruptError, UnreadableError."""
    return _read_queues(read_config(layout.config / TOPICS))


def _read_queues(content: Any) -> dict[str, int]:
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    found: dict[str, int] = {}
    for name, entry in (table if isinstance(table, dict) else {}).items():
        count = entry.get("readQueueNums") if isinstance(entry, dict) else None
        found[str(name)] = count if isinstance(count, int) else 0
    return found


@dataclass(frozen=True)
class KnownNames:
    """Names that the configuration has; None where a file is missing, damaged or names nothing, so that no name can be
    called unknown. `deleted`: topics that topics.json records as deleted, which are known to be absent without the
    others."""

    files: StoreFiles
    groups: set[str] | None
    topics: dict[str, int] | None
    deleted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, files: StoreFiles) -> KnownNames:
        """Return those of a store."""
        groups = _read(lambda: known_groups(files.layout))
        try:
            content = read_config(files.layout.config / TOPICS)
        except (CorruptError, UnreadableError):
            content = None
        return cls(files, groups, _read_queues(content) or None, frozenset(deleted_in(content)))

    def why_unknown(self) -> str:
        """Return which of the two files names nothing, and why; only where one of them does."""
        config = self.files.layout.config
        unknown = [name for name, found in ((TOPICS, self.topics), (GROUPS, self.groups)) if found is None]
        return "; ".join(why_unknown(config / name) for name in unknown)

    def lacks_group(self, group: str) -> bool:
        """Return whether the group is certainly not configured. Groups of light queues never are."""
        if self.groups is None or group.startswith(LMQ_PREFIX):
            return False
        return group not in self.groups and not is_own_group(group)

    def lacks_topic(self, topic: str) -> bool:
        """Return whether the topic is certainly not configured and has no queue. UnreadableError."""
        is_known = topic in (self.topics or {}) or (self.topics is None and topic not in self.deleted)
        if is_known or topic.startswith(LMQ_PREFIX):
            return False
        try:
            return not self.files.queues.of_topics(topic.__eq__)
        except UnsupportedError:
            return False

    def is_removed(self, topic: str) -> bool:
        """Return whether a topic is gone as a broker deletes it: not configured and without a queue, while the log may
        still hold its messages. The broker's own topics never are. UnreadableError."""
        return not is_brokers_own(topic) and self.lacks_topic(topic)

    def is_unconfigured(self, topic: str) -> bool:
        """Return whether topics.json certainly does not name a topic that is not the broker's own or a light one."""
        if self.topics is None or topic in self.topics or is_brokers_own(topic):
            return False
        return not topic.startswith(LMQ_PREFIX)

    def orphaned(self, owner: OffsetKey) -> str | None:
        """Return why nothing uses the offsets of `owner`; None where something may."""
        if self.lacks_group(owner.group):
            return UNKNOWN_GROUP
        return UNKNOWN_TOPIC if self.lacks_topic(owner.topic) else None


def _read(read: Callable[[], set[str]]) -> set[str] | None:
    try:
        return read() or None
    except (CorruptError, UnreadableError):
        return None
