"""The file of the groups' offsets: what it says, and what it is to hold after a change, as a broker would write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.store.answers.config_offsets import (
    CONSUMER_FILE,
    GROUP_TABLE,
    OFFSET_TABLE,
    OffsetKey,
    is_queue_id,
    offset_key,
    offsets_of,
)
from rmqctl.store.answers.groups import GROUP_FILE
from rmqctl.store.config.config_files import load_config, next_version, read_config
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_directory

_VERSION = "dataVersion"
# what 5.x derives from the table and writes beside it
_TOPICS_BY_GROUP = "groupTopicMap"
_IN_ROCKSDB = ("consumerOffsets", "rocksdb")

QueueOffsets = dict[int, int]
"""Offsets by queue id."""


class OffsetFile(NamedTuple):
    """`content`: all of the file `path`, or of its backup where `source` says so; both empty where there is neither."""

    path: Path
    source: Path | None
    content: Mapping[Any, Any]

    @property
    def table(self) -> Mapping[Any, Any]:
        """The offsets by `topic@group`, as they stand there."""
        table = self.content.get(OFFSET_TABLE)
        return table if isinstance(table, dict) else {}

    def owners(self) -> Iterator[tuple[OffsetKey, QueueOffsets]]:
        """Whose offsets there are, and the offsets; what is malformed is left out."""
        for key, queues in self.table.items():
            owner = offset_key(key)
            if owner is not None and isinstance(queues, dict):
                yield owner, offsets_of(queues)

    def offsets(self, group: str, topic: str) -> QueueOffsets:
        """The offsets of a group in a topic by queue id. Negative ones are none."""
        queues = self.table.get(f"{topic}@{group}")
        found = offsets_of(queues) if isinstance(queues, dict) else {}
        return {queue_id: offset for queue_id, offset in found.items() if offset >= 0}

    def topics_of(self, group: str) -> list[str]:
        """Topics in which a group has offsets of its own, not those of a broadcasting one."""
        return sorted({owner.topic for owner, _ in self.owners() if owner.group == group and not owner.is_broadcast})


def read_offset_file(path: Path) -> OffsetFile:
    """The offsets in the file `path`, or in its backup, as a broker would load them.

    CorruptError where neither can be parsed or there is no table of offsets in it; UnsupportedError where the broker
    keeps them in a RocksDB; UnreadableError.
    """
    loaded = load_config(path)
    if loaded is None:
        for name in _IN_ROCKSDB:
            if is_directory(path.parent / name):
                raise UnsupportedError(
                    "the broker keeps its offsets in a RocksDB, which is not read",
                    file=path.parent / name,
                    hint="`mqadmin rocksDBConfigToJson` prints them",
                )
        return OffsetFile(path, None, {})
    content = loaded.content
    if not isinstance(content, dict) or not isinstance(content.get(OFFSET_TABLE), dict):
        raise CorruptError(
            f"holds no table {OFFSET_TABLE}", file=loaded.source, hint="`rmqctl offsets lint` says what it holds"
        )
    return OffsetFile(path, loaded.source, content)


def offset_file_of(layout: StoreLayout) -> OffsetFile:
    """The offsets of a store."""
    return read_offset_file(layout.config / CONSUMER_FILE)


def known_groups(layout: StoreLayout) -> set[str]:
    """The groups that subscriptionGroup.json names; none where it is not there. CorruptError, UnreadableError."""
    content = read_config(layout.config / GROUP_FILE)
    table = content.get(GROUP_TABLE) if isinstance(content, dict) else None
    return set(map(str, table)) if isinstance(table, dict) else set()


def content_with(file: OffsetFile, changed: Mapping[tuple[str, str], QueueOffsets], now: int) -> bytes:
    """What the file is to hold with the `changed` offsets, by (group, topic), at `now` (ms).

    As ConsumerOffsetManager#encode writes it. The version of the data goes on where there is one (4.x has none): a
    master that comes back takes over the offsets of a slave that acted for it unless its own are newer
    (BrokerPreOnlineService).
    """
    table = {key: _with_whole_keys(queues) for key, queues in file.table.items()}
    for (group, topic), offsets in changed.items():
        key = f"{topic}@{group}"
        before = table.get(key)
        table[key] = {**(before if isinstance(before, dict) else {}), **offsets}
    content = {**file.content, OFFSET_TABLE: table}
    if isinstance(content.get(_VERSION), dict):
        content[_VERSION] = next_version(content[_VERSION], now)
    if isinstance(content.get(_TOPICS_BY_GROUP), dict):
        content[_TOPICS_BY_GROUP] = _topics_by_group(content[_TOPICS_BY_GROUP], table)
    return format_config_json(content).encode("utf-8")


def _with_whole_keys(queues: Any) -> Any:
    """Offsets with queue ids as numbers, which a broker writes without quotes and reads with them, too."""
    if not isinstance(queues, dict):
        return queues
    return {int(key) if is_queue_id(str(key)) else key: offset for key, offset in queues.items()}


def _topics_by_group(before: Mapping[Any, Any], table: Mapping[Any, Any]) -> dict[Any, Any]:
    """The map as it was, with the topics and groups that came to the table (ConsumerOffsetManager#getGroupTopicMap)."""
    found = {group: [*topics] if isinstance(topics, list) else [] for group, topics in before.items()}
    for key in table:
        owner = offset_key(key)
        if owner is not None and not owner.is_broadcast and owner.topic not in found.setdefault(owner.group, []):
            found[owner.group].append(owner.topic)
    return found
