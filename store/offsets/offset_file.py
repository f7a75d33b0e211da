"""The file of the groups' offsets: what it says, and what it is to hold after a change, as a broker would write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError
from rmqctl.store.answers.config_offsets import (
    LMQ_TABLE,
    OFFSET_TABLE,
    OffsetKey,
    is_queue_id,
    light_offsets,
    offset_key,
    offsets_of,
)
from rmqctl.store.config.config_files import load_config, next_version
from rmqctl.store.config.homes import LMQ_OFFSETS, offsets_home, refuse_database
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.store_files import StoreFiles

_VERSION = "dataVersion"
# what 5.x derives from the table and writes beside it
_TOPICS_BY_GROUP = "groupTopicMap"

QueueOffsets = dict[int, int]
"""Offsets by queue id."""
ChangedOffsets = Mapping[int, int | None]
"""New offsets by queue id; None for one that is removed."""


class OffsetFile(NamedTuple):
    """`content`: all of the file `path`, or of its backup where `source` says so; both empty where there is neither.
    `note`: which file it is, where that is not the usual one."""

    path: Path
    source: Path | None
    content: Mapping[Any, Any]
    note: str = ""

    @property
    def table(self) -> Mapping[Any, Any]:
        """The offsets by `topic@group`, as they stand there."""
        table = self.content.get(OFFSET_TABLE)
        table = table if isinstance(table, dict) else {}
        return {**table, **light_offsets(self.content)} if self.is_lmq else table

    @property
    def is_lmq(self) -> bool:
        """Return whether it is the file of a broker with enableLmq, which has a second table."""
        return self.path.name == LMQ_OFFSETS

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
    has them in a RocksDB beside it; UnreadableError.
    """
    refuse_database(path)
    loaded = load_config(path)
    if loaded is None:
        return OffsetFile(path, None, {})
    content = loaded.content
    if not isinstance(content, dict) or not isinstance(content.get(OFFSET_TABLE), dict):
        raise CorruptError(
            f"holds no table {OFFSET_TABLE}", file=loaded.source, hint="`rmqctl offsets lint` says what it holds"
        )
    return OffsetFile(path, loaded.source, content)


def offset_file_of(files: StoreFiles) -> OffsetFile:
    """Return the offsets of a store, from the file that its broker reads. Errors as of `read_offset_file`."""
    home = offsets_home(files.layout.config, files.config)
    return read_offset_file(home.path)._replace(note=home.note)


def content_with(file: OffsetFile, changed: Mapping[tuple[str, str], ChangedOffsets], now: int) -> bytes:
    """Return what the file is to hold with the `changed` offsets, by (group, topic), at `now` (ms).

    As ConsumerOffsetManager#encode and LmqConsumerOffsetManager#encode write it. The version of the data goes on where
    there is one (4.x has none): a master that comes back takes over the offsets of a slave that acted for it unless its
    own are newer (BrokerPreOnlineService).
    """
    light = file.content.get(LMQ_TABLE) if file.is_lmq else None
    light = dict(light) if isinstance(light, dict) else {}
    table = {key: _with_whole_keys(queues) for key, queues in file.table.items() if key not in light}
    for (group, topic), offsets in changed.items():
        key = f"{topic}@{group}"
        if file.is_lmq and group.startswith(LMQ_PREFIX):
            _change(light, key, offsets.get(0))
            continue
        before = table.get(key)
        after = {**(before if isinstance(before, dict) else {}), **offsets}
        _change(table, key, {queue_id: offset for queue_id, offset in after.items() if offset is not None} or None)
    content = {**file.content, OFFSET_TABLE: table}
    if file.is_lmq:
        content[LMQ_TABLE] = light
    if isinstance(content.get(_VERSION), dict):
        content[_VERSION] = next_version(content[_VERSION], now)
    if isinstance(content.get(_TOPICS_BY_GROUP), dict):
        content[_TOPICS_BY_GROUP] = _topics_by_group(content[_TOPICS_BY_GROUP], table, changed)
    return format_config_json(content).encode("utf-8")


def _change(table: dict[Any, Any], key: str, value: Any) -> None:
    """Set a row of `table`; None removes it."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _with_whole_keys(queues: Any) -> Any:
    """Offsets with queue ids as numbers, which a broker writes without quotes and reads with them, too."""
    if not isinstance(queues, dict):
        return queues
    return {int(key) if is_queue_id(str(key)) else key: offset for key, offset in queues.items()}


def _topics_by_group(
    before: Mapping[Any, Any], table: Mapping[Any, Any], changed: Mapping[tuple[str, str], ChangedOffsets]
) -> dict[Any, Any]:
    """Return the map as it was, with the topics and groups that came to the table and without those that `changed` took
    from it (ConsumerOffsetManager#getGroupTopicMap)."""
    found = {group: [*topics] if isinstance(topics, list) else [] for group, topics in before.items()}
    for key in table:
        owner = offset_key(key)
        if owner is not None and not owner.is_broadcast and owner.topic not in found.setdefault(owner.group, []):
            found[owner.group].append(owner.topic)
    for group, topic in changed:
        if f"{topic}@{group}" not in table and topic in found.get(group, ()):
            found[group].remove(topic)
            if not found[group]:
                del found[group]
    return found
