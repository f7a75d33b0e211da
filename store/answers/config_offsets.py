"""Offsets as the broker keeps them in config/: whose they are, which of them count, and what is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from rmqctl.formats.checksums import whole_number
from rmqctl.formats.errors import CorruptError, UncertainError, UnreadableError, UnreadPartError
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_database import GROUPS, TOPICS
from rmqctl.store.config.config_files import (
    ConfigFile,
    backup_of,
    deleted_in,
    in_database,
    is_brokers_own,
    load_config,
    offsets_home,
    parse_config_file,
    read_config,
    why_unknown,
)
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.log.sampled import END, ends_seen
from rmqctl.store.log.walk import message_if_any
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.queues.queue_table import AnyConsumeQueue, beginning, has_units
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.store_files import StoreFiles

CONSUMER_FILE = "consumerOffset.json"
LMQ_TABLE = "lmqOffsetTable"
"""In lmqConsumerOffset.json: `topic@group` and the offset in queue 0, of groups that begin with %LMQ%."""
DELAY_FILE = "delayOffset.json"
OFFSET_TABLE = "offsetTable"
GROUP_TABLE = "subscriptionGroupTable"
"""In subscriptionGroup.json: the groups that a broker knows."""
# what a broker and its tools consume with (SubscriptionGroupManager#init, MixAll#isPredefinedGroup); users name their
# groups CID_… too
OWN_GROUP_PREFIX = "CID_RMQ_SYS_"
OWN_GROUPS = frozenset(
    "TOOLS_CONSUMER FILTERSRV_CONSUMER SELF_TEST_C_GROUP SCHEDULE_CONSUMER __MONITOR_CONSUMER CID_ONS-HTTP-PROXY "
    "CID_ONSAPI_PULL CID_ONSAPI_PERMISSION CID_ONSAPI_OWNER CID_DefaultHeartBeatSyncerTopic".split()
)
_SEPARATOR = "@"
_NO_UNIT = 1 << 63
# in the dataVersion of 5.x
_STATE_VERSION = "stateVersion"
_BROADCAST_PARTS = 3


class OffsetKey(NamedTuple):
    """Whose offsets an entry of consumerOffset.json holds. Those of a broadcasting group are the smallest of its
    clients', kept apart from what the group commits (BroadcastOffsetManager)."""

    topic: str
    group: str
    is_broadcast: bool


def offset_key(key: object) -> OffsetKey | None:
    """`topic@group`, or `topic@group@…` for a broadcasting group; None for anything else (ConsumerOffsetManager)."""
    parts = str(key).split(_SEPARATOR)
    if len(parts) not in (2, _BROADCAST_PARTS) or not all(parts[:2]):
        return None
    return OffsetKey(parts[0], parts[1], len(parts) == _BROADCAST_PARTS)


def offsets_of(table: Mapping[Any, Any]) -> dict[int, int]:
    """Return offsets by queue id or delay level, without values that are not numbers. Negative ones are none, and are
    kept."""
    return {
        int(number): offset
        for number, offset in table.items()
        if is_queue_id(str(number)) and isinstance(offset, int) and not isinstance(offset, bool)
    }


def is_queue_id(text: str) -> bool:
    """Whether `text` is the number of a queue or of a level: 0 or a positive int, as Integer.parseInt reads it."""
    return whole_number(text) is not None


def is_own_group(name: str) -> bool:
    """Return whether a group is one of the broker's own, or of its tools."""
    return name in OWN_GROUPS or name.startswith(OWN_GROUP_PREFIX)


def in_one(*details: str | None) -> str:
    """What is to be said of one row, as one sentence."""
    return "; ".join(filter(None, details))


def no_unit(queue: AnyConsumeQueue, queue_offset: int) -> CorruptError:
    """What to say of a unit that should be there."""
    place = f"unit {queue_offset} of {queue.topic!r} queue {queue.queue_id}"
    return CorruptError(f"{place} is in no file of the queue", file=queue.directory)


def table_in(path: Path, name: str, events: Events) -> dict[Any, Any] | None:
    """Return the table `name` of a config file, or of its backup with a note; None without one.

    A file that is damaged or cannot be read is reported. Without either file nothing is reported.
    """
    try:
        loaded = _load(path, events)
    except CorruptError as error:
        events.damaged(error)
        return None
    if loaded is None:
        return None
    if loaded.source == backup_of(path):
        events.noted(f"{path} cannot be used: what follows is from its backup, as a broker would read it")
    table = loaded.content.get(name) if isinstance(loaded.content, dict) else None
    if not isinstance(table, dict):
        events.damaged(CorruptError(f"holds no table {name}", file=loaded.source))
        return None
    return table


def _load(path: Path, events: Events) -> ConfigFile | None:
    """Load a config file; its backup where the file cannot be read, which is reported. CorruptError."""
    try:
        return load_config(path)
    except UnreadableError as error:
        events.damaged(unread_part(error))
    try:
        return parse_config_file(backup_of(path))
    except UnreadableError as error:
        events.damaged(unread_part(error))
        return None


def unread_part(error: UnreadableError) -> UnreadPartError:
    """Return what to report of a small file that cannot be read."""
    return UnreadPartError(error.message, file=error.file, hint=error.hint)


class ConsumerTable(NamedTuple):
    """Offsets of consumer groups by `topic@group` and queue; `table` is None if they are unknown, and `missing` is the
    reason. `path`: the file that a broker keeps them in. `stale`: whose offsets a file has that the broker no longer
    uses, where the RocksDB that has them cannot be read: these groups may well exist, where they are is not known."""

    path: Path
    table: dict[Any, Any] | None
    missing: str = ""
    stale: tuple[OffsetKey, ...] = ()


def consumer_table(config: Path, settings: StoreConfig, events: Events) -> ConsumerTable:
    """Return the offsets in the folder `config`, from the file that a broker with these `settings` reads; a note
    says which one that is, unless it is the usual one."""
    home = offsets_home(config, settings)
    if home.note:
        events.noted(home.note)
    elsewhere = in_database(home.path)
    table = table_in(home.path, OFFSET_TABLE, events)
    if table is None and elsewhere is not None:
        return ConsumerTable(home.path, None, elsewhere, _owners_in(home.path))
    if table is None:
        return ConsumerTable(home.path, None, why_unknown(home.path))
    if home.is_lmq:
        table = {**table, **_light_offsets_in(home.path)}
    return ConsumerTable(home.path, table)


def _light_offsets_in(path: Path) -> dict[Any, Any]:
    try:
        return light_offsets(read_config(path))
    except UnreadableError:  # reported with the first table
        return {}


def _owners_in(path: Path) -> tuple[OffsetKey, ...]:
    """Return whose offsets a file holds that is out of use; none where it does not parse."""
    try:
        loaded = parse_config_file(path)
    except (CorruptError, UnreadableError):
        return ()
    table = loaded.content.get(OFFSET_TABLE) if loaded is not None and isinstance(loaded.content, dict) else None
    owners = map(offset_key, table if isinstance(table, dict) else ())
    return tuple(owner for owner in owners if owner is not None)


def light_offsets(content: object) -> dict[Any, Any]:
    """Return the second table of lmqConsumerOffset.json as the first one has it: by queue, which is always 0."""
    table = content.get(LMQ_TABLE) if isinstance(content, Mapping) else None
    return {key: {0: offset} for key, offset in table.items()} if isinstance(table, dict) else {}


# The groups and topics that a broker's configuration names, and offsets of others: orphans.

UNKNOWN_GROUP = "subscriptionGroup.json does not name the group"
UNKNOWN_TOPIC = "topics.json does not name the topic, and it has no queue"


def known_groups(layout: StoreLayout) -> set[str]:
    """Return the groups that subscriptionGroup.json, or the RocksDB in its place, names; none where neither is there.

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
    called unknown. `deleted`: topics that topics.json records as deleted, with the log's end at that time; they are
    known to be absent without the others."""

    files: StoreFiles
    groups: set[str] | None
    topics: dict[str, int] | None
    deleted: Mapping[str, int] = field(default_factory=dict)
    data_version: Mapping[Any, Any] = field(default_factory=dict)
    """That of topics.json."""

    @classmethod
    def of(cls, files: StoreFiles) -> KnownNames:
        """Return those of a store."""
        groups = _read(lambda: known_groups(files.layout))
        try:
            content = read_config(files.layout.config / TOPICS)
        except (CorruptError, UnreadableError):
            content = None
        return cls(files, groups, _read_queues(content) or None, deleted_in(content), _version_in(content))

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
        except CorruptError:
            return False

    def is_removed(self, topic: str) -> bool:
        """Return whether a topic is gone as a broker deletes it: not configured and without a queue, while the log may
        still hold its messages. The broker's own topics never are. UnreadableError."""
        return not is_brokers_own(topic) and self.lacks_topic(topic)

    def earlier_life(self, lives: QueueLives | None = None) -> Callable[[str, int], bool]:
        """Return a judge of queues without files: whether the message of a topic at a physical offset may be from
        before the topic was deleted, and perhaps created again. See `_EarlierLife`.

        `lives`: what the log holds of each queue; by default as far as a short look shows.
        """
        return _EarlierLife(self, lives).holds

    def may_be_lost(self, topic: str) -> bool:
        """Return whether queues without files of a topic that `earlier_life` takes for deleted may be lost instead."""
        return topic in (self.topics or {}) and topic not in self.deleted

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


QueueLives: TypeAlias = Mapping[tuple[str, int], tuple[int, int]]
"""Physical offsets of the first and the last message of the last life of queues, by topic and queue."""


class _EarlierLife:
    """Messages of queues without files that need no unit: the topic was deleted, and perhaps created again.

    A broker that deletes a topic removes all of its queues; a new topic makes a queue with the queue's first message.
    So these were not deleted after a message: a topic that has a unit of an earlier message, one whose topics.json was
    last changed before, and one with an offset of a group in a queue without files, which 5.x deletes with the topic.
    Nor was a topic deleted between two messages of a queue whose offsets go on. UnreadableError.
    """

    def __init__(self, names: KnownNames, lives: QueueLives | None) -> None:
        self._names = names
        self._lives = lives
        self._begins = functools.cache(self._find_begin)

    def holds(self, topic: str, physical_offset: int) -> bool:
        """Return whether the message of the topic may belong to an earlier life."""
        return physical_offset < self._begins(topic) and self._is_old(topic, physical_offset)

    def _is_old(self, topic: str, physical_offset: int) -> bool:
        """Return whether the configuration has the topic deleted or changed after the message."""
        names = self._names
        if topic in names.deleted:
            return physical_offset < names.deleted[topic]
        if topic not in (names.topics or {}):
            return True
        changed, stored = names.data_version.get("timestamp"), store_time_at(names.files.log, physical_offset)
        return isinstance(changed, int) and stored is not None and stored <= changed

    def _find_begin(self, topic: str) -> int:
        """Return the physical offset from which on messages of the topic certainly belong to its last life."""
        begin = self._first_unit(topic)
        if not begin or topic not in (self._names.topics or {}):
            return begin
        queues = self._names.files.queues.of_topics(topic.__eq__)
        there = {queue.queue_id for queue in queues if queue.files.files}
        lives = [life for (name, number), life in self._all_lives.items() if name == topic and number not in there]
        while begins := [
            first for first, last in lives if first < begin and (last >= begin or not self._is_old(topic, last))
        ]:
            begin = min(begins)
        return begin

    @functools.cached_property
    def _all_lives(self) -> QueueLives:
        if self._lives is not None:
            return self._lives
        ends = ends_seen(self._names.files.log, END)
        return {key: (first[0], last[0]) for key, (first, last) in ends.items()}

    def _first_unit(self, topic: str) -> int:
        """Return before which physical offset no unit of the topic leads to a message."""
        names = self._names
        if names.is_removed(topic):
            return _NO_UNIT
        if is_brokers_own(topic) or topic.startswith(LMQ_PREFIX):
            return 0
        queues = names.files.queues.of_topics(topic.__eq__)
        if topic not in names.deleted and (topic not in (names.topics or {}) or self._must_be_there(topic, queues)):
            return 0
        log, found = names.files.log, _NO_UNIT
        for queue in queues:
            first = beginning(queue, functools.partial(message_if_any, log))
            if first is None and (queue.files.files or queue.files.problems):
                return 0
            found = min(found, first.physical_offset if first is not None else found)
        return found

    def _must_be_there(self, topic: str, queues: list[AnyConsumeQueue]) -> bool:
        """Return whether queues of the topic were lost for certain: no queue of the store has a unit, as one of another
        topic would, or a group has consumed from one."""
        if not self._has_units:
            return True
        if _STATE_VERSION not in self._names.data_version:
            return False  # 4.x deletes no offsets
        there = {queue.queue_id for queue in queues}
        return any(
            offset > 0 and queue_id not in there
            for key, offsets in self._consumed.items()
            if (owner := offset_key(key)) is not None and owner.topic == topic and isinstance(offsets, Mapping)
            for queue_id, offset in offsets_of(offsets).items()
        )

    @functools.cached_property
    def _has_units(self) -> bool:
        return any(has_units(queue) for queue in self._names.files.queues.all())

    @functools.cached_property
    def _consumed(self) -> Mapping[Any, Any]:
        files = self._names.files
        return consumer_table(files.layout.config, files.config, UNHEARD).table or {}


def _version_in(content: Any) -> Mapping[Any, Any]:
    version = content.get("dataVersion") if isinstance(content, Mapping) else None
    return version if isinstance(version, Mapping) else {}


def _read(read: Callable[[], set[str]]) -> set[str] | None:
    try:
        return read() or None
    except (CorruptError, UnreadableError):
        return None
