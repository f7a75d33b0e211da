"""The topics of a store: those that its broker configured, and those that only its consume queues know."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, RmqctlError, UnreadableError
from rmqctl.network.remoting.codec import MessageQueue, ResponseCode, bean
from rmqctl.network.remoting.requests import FAQ, RequestError, Tell
from rmqctl.network.topic_config import DEFAULT_TOPIC, PERM_READ, PERM_WRITE, TopicConfig, retry_topic, topic_from_bean
from rmqctl.store.answers.config_offsets import LMQ_TABLE, OFFSET_TABLE, light_offsets, offset_key, offsets_of
from rmqctl.store.config.config_database import LMQ_OFFSETS
from rmqctl.store.config.config_files import (
    DELETED_TOPICS,
    brokers_group_problem,
    deleted_in,
    is_brokers_own,
    next_version,
    offsets_home,
    read_config,
    refuse_database,
    write_config,
)
from rmqctl.store.config.releases import DEFAULT_RELEASE, Release
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.queues.queue_table import is_of_deleted
from rmqctl.store.store_files import StoreFiles

# One of the broker's configured tables: what a file of config/ says by name, and the version of its data.

NO_VERSION = {"counter": 0, "stateVersion": 0, "timestamp": 0}
"""DataVersion of a table that no file holds."""


class ConfigTable(NamedTuple):
    """`rows`: the table, empty where no file holds one; `content`: all that the file holds."""

    rows: dict[Any, Any]
    version: dict[Any, Any]
    content: Mapping[Any, Any] = {}


def config_table(
    files: StoreFiles, file: str, table: str, tell: Tell, without: str, *, is_written: bool = False
) -> ConfigTable:
    """The field `table` of config/`file`. A damaged file holds none, which is reported with the consequence, `without`;
    but if it is going to be written, that raises CorruptError or UnreadableError, and UnsupportedError if the broker
    has the table in a RocksDB."""
    if is_written:
        refuse_database(files.layout.config / file)
    try:
        content = read_config(files.layout.config / file)
    except (CorruptError, UnreadableError) as error:
        if is_written:
            error.hint = "fix the file or move it away: otherwise it would be overwritten"
            raise
        tell(f"{without}: {error}")
        content = None
    if not isinstance(content, dict):
        return ConfigTable({}, NO_VERSION)
    rows, version = content.get(table), content.get("dataVersion")
    rows = rows if isinstance(rows, dict) else {}
    return ConfigTable(rows, version if isinstance(version, dict) else NO_VERSION, content)


# what clients may make us remember
_MOST_TOPICS = 100_000
_BOTH = PERM_READ | PERM_WRITE


class TopicTable:
    """Topics by name. A queue that has files counts as readable although the configuration has fewer: no message may be
    out of reach. Where topics are written, it is the configuration that counts."""

    FILE = "topics.json"

    def __init__(self, files: StoreFiles, tell: Tell, *, is_written: bool = False) -> None:
        """UnsupportedError where the queues cannot be read. A damaged topics.json is reported, and its topics are then
        those of the queues. `is_written`: topics are created here; a damaged file is a CorruptError then."""
        found = config_table(
            files,
            self.FILE,
            "topicConfigTable",
            tell,
            "topics are those of the consume queues alone",
            is_written=is_written,
        )
        table, self.data_version, self._content = found
        self._is_written = is_written
        self._deleted = deleted_in(self._content) if is_written else {}
        self._topics: dict[str, TopicConfig] = {
            name: topic_from_bean(name, one)
            for name, one in table.items()
            if isinstance(name, str) and isinstance(one, dict)
        }
        self._routes: tuple[int, dict[str, TopicConfig]] | None = None
        # whether they have messages is looked at when a route is asked for: to read every queue takes long
        self._default_queues = files.queues.of_topics(DEFAULT_TOPIC.__eq__)
        self._widen(files)

    def _widen(self, files: StoreFiles) -> None:
        queues: dict[str, int] = defaultdict(int)
        for queue in files.queues.all():
            if is_of_deleted(self._deleted, queue) and queue.topic not in self._topics:
                continue
            queues[queue.topic] = max(queues[queue.topic], queue.queue_id + 1)
        for name, count in queues.items():
            topic = self._topics.get(name) or TopicConfig(name, count, count)
            if not self._is_written or name not in self._topics:
                self._topics[name] = topic._replace(read_queue_nums=max(topic.read_queue_nums, count))

    def find(self, name: str) -> TopicConfig | None:
        """Return the topic; None if none has that name."""
        return self._topics.get(name)

    def add_retry_topics(self, groups: Iterable[str]) -> None:
        """See to it that each group has its retry topic: clients ask for that before all else."""
        for group in groups:
            name = retry_topic(group)
            if name not in self._topics:
                self._topics[name] = TopicConfig(name, 1, 1)
                self._routes = None

    def all(self) -> list[TopicConfig]:
        """All topics, by name."""
        return [topic for _, topic in sorted(self._topics.items())]

    def routes(self, permission: int = _BOTH) -> Mapping[str, TopicConfig]:
        """Topics as a route shows them: with what the whole broker permits, and where nothing can be written for
        reading only. Kept until a topic changes: each route is looked up here."""
        if self._routes is None or self._routes[0] != permission:
            self._routes = permission, self._as_routes(permission)
        return self._routes[1]

    def _as_routes(self, permission: int) -> dict[str, TopicConfig]:
        if self._is_written and permission & _BOTH == _BOTH:
            return dict(self._topics)
        if self._is_written:
            return {name: topic._replace(perm=topic.perm & permission) for name, topic in self._topics.items()}
        return {
            name: topic._replace(perm=topic.perm & ~PERM_WRITE)
            for name, topic in self._topics.items()
            if name != DEFAULT_TOPIC or any(queue.max_offset > 0 for queue in self._default_queues)
        }

    # ---- where topics are created

    def put(self, topic: TopicConfig) -> TopicConfig:
        """Have a topic, in the place of the one of this name. RequestError where there are too many."""
        if topic.name not in self._topics and len(self._topics) >= _MOST_TOPICS:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_TOPICS} topics are remembered")
        self._topics[topic.name] = topic
        self._routes = None
        self._deleted.pop(topic.name, None)
        return topic

    def is_deleted(self, name: str) -> bool:
        """Return whether the topic was deleted, not only unknown."""
        return name in self._deleted

    def remove(self, name: str, log_end: int) -> None:
        """Forget a topic, although there may be queues of it. `log_end`: what the log holds after it was sent since."""
        self._routes = None
        if self._topics.pop(name, None) is not None and len(self._deleted) < _MOST_TOPICS:
            self._deleted[name] = log_end

    def content(self, now: int) -> dict[str, Any]:
        """What topics.json is to hold, as a new version of `now` (ms)."""
        self.data_version = next_version(self.data_version, now)
        table = {topic.name: topic.as_bean() for topic in self.all()}
        content = {name: value for name, value in self._content.items() if name != DELETED_TOPICS}
        content |= {"dataVersion": self.data_version, "topicConfigTable": table}
        return {**content, DELETED_TOPICS: dict(sorted(self._deleted.items()))} if self._deleted else content


def is_system_topic(name: str, cluster: str, broker_name: str) -> bool:
    """Whether the broker has it for itself (TopicValidator#isSystemTopic)."""
    own = (cluster, broker_name, f"{cluster}_REPLY_TOPIC")
    return is_brokers_own(name) or name in own


__all__ = ["DEFAULT_TOPIC", "PERM_READ", "TopicTable", "is_system_topic"]


# The consumer groups of a store: those configured, and any other as a broker would create it.

_MOST_GROUPS = 100_000


def is_system_group(name: str) -> bool:
    """Return whether a broker has the group for itself (MixAll#isSysConsumerGroup)."""
    return name.startswith("CID_RMQ_SYS_")


def default_group(name: str) -> dict[str, Any]:
    """Return the default settings of a group (SubscriptionGroupConfig)."""
    return bean(
        attributes={},
        brokerId=0,
        consumeBroadcastEnable=True,
        consumeEnable=True,
        consumeFromMinEnable=True,
        consumeMessageOrderly=False,
        consumeTimeoutMinute=15,
        groupName=name,
        groupRetryPolicy={"type": "CUSTOMIZED"},
        groupSysFlag=0,
        notifyConsumerIdsChangedEnable=True,
        retryMaxTimes=16,
        retryQueueNums=1,
        whichBrokerWhenConsumeSlowly=1,
    )


class GroupTable:
    """Settings of groups by name, as objects of subscriptionGroup.json."""

    FILE = "subscriptionGroup.json"

    def __init__(
        self,
        files: StoreFiles,
        tell: Tell,
        *,
        is_written: bool = False,
        may_create: bool = True,
        release: Release = DEFAULT_RELEASE,
    ) -> None:
        """A damaged subscriptionGroup.json is reported, and its groups then have default settings; but if it
        `is_written` it is a CorruptError. `may_create`: groups that clients name for the first time are created."""
        found = config_table(
            files,
            self.FILE,
            "subscriptionGroupTable",
            tell,
            "no settings of consumer groups are known",
            is_written=is_written,
        )
        table, self.data_version, self._content = found
        forbidden = self._content.get("forbiddenTable")
        self._forbidden: dict[str, dict[str, int]] = {
            str(group): {str(topic): bits for topic, bits in topics.items() if isinstance(bits, int)}
            for group, topics in (forbidden.items() if isinstance(forbidden, dict) else ())
            if isinstance(topics, dict)
        }
        self.may_create = may_create
        self._release = release
        self._groups: dict[str, dict[str, Any]] = {
            name: {**default_group(name), **one}
            for name, one in table.items()
            if isinstance(name, str) and isinstance(one, dict)
        }

    def find(self, name: str) -> dict[str, Any] | None:
        """Return settings of a group; None if it is unknown."""
        return self._groups.get(name)

    def find_or_default(self, name: str) -> dict[str, Any]:
        """Settings of a group that a client comes with: known from then on, as if the broker had created it
        (SubscriptionGroupManager#findSubscriptionGroupConfig). RequestError for a name that none can have."""
        found = self._groups.get(name)
        if found is None:
            is_legal = self._release.is_of_4 or brokers_group_problem(name, self._release) is None
            may_create = self.may_create or is_system_group(name)
            if not may_create or not is_legal or len(self._groups) >= _MOST_GROUPS:
                remark = f"subscription group [{name}] does not exist, \n{FAQ}"
                raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            found = self._groups[name] = default_group(name)
        return found

    def names(self) -> list[str]:
        """All groups, by name."""
        return sorted(self._groups)

    def put(self, name: str, settings: dict[str, Any]) -> None:
        """Have a group with these settings; what they leave out is as it is by default."""
        self._groups[name] = {**default_group(name), **settings}

    def is_forbidden(self, group: str, topic: str, bit: int) -> bool:
        """Whether an operator has taken a permission in a topic from a group."""
        return bool(self._forbidden.get(group, {}).get(topic, 0) & bit)

    def forbid(self, group: str, topic: str, bit: int, is_forbidden: bool) -> None:
        """Take a permission in a topic from a group, or give it back."""
        topics = self._forbidden.setdefault(group, {})
        topics[topic] = topics.get(topic, 0) & ~bit | (bit if is_forbidden else 0)
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._forbidden[group]

    def forbidden(self) -> dict[str, dict[str, int]]:
        """What is forbidden, by group and topic."""
        return {group: dict(topics) for group, topics in sorted(self._forbidden.items())}

    def remove(self, name: str) -> None:
        """Forget a group."""
        self._groups.pop(name, None)

    def content(self, now: int) -> dict[str, Any]:
        """What subscriptionGroup.json is to hold, as a new version of `now` (ms)."""
        self.data_version = next_version(self.data_version, now)
        content = {**self._content, "forbiddenTable": self.forbidden()}
        return {**content, "dataVersion": self.data_version, "subscriptionGroupTable": self.all()}

    def all(self) -> dict[str, dict[str, Any]]:
        """Settings of all groups."""
        return dict(sorted(self._groups.items()))


# How far the consumer groups have come (ConsumerOffsetManager).

_SEPARATOR = "@"
# what clients may make us remember
_MOST_OFFSETS = 1_000_000


class ConsumerOffsets:
    """Offsets by topic, group and queue: of the next message to be consumed. Negative ones are none."""

    def __init__(self, files: StoreFiles, tell: Tell, *, is_written: bool = False) -> None:
        """Starts with consumerOffset.json, or lmqConsumerOffset.json if the broker uses that one. A damaged one is
        reported, and no group has an offset; a CorruptError if it `is_written`."""
        home = offsets_home(files.layout.config, files.config)
        if home.note:
            tell(home.note)
        self.FILE = home.path.name
        found = config_table(
            files, self.FILE, OFFSET_TABLE, tell, "no offset of a consumer group is known", is_written=is_written
        )
        table, self.data_version, self._content = found
        if home.is_lmq:
            table = {**table, **light_offsets(self._content)}
        self.has_changed = False
        self._others: dict[str, Any] = {}
        self._resets: dict[tuple[str, str, int], int] = {}
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[tuple[str, str, int], int] = {}
        self._committed = 0
        for key, queues in table.items():
            # offsets of a broadcasting group belong to its clients
            owner = offset_key(key)
            if owner is not None and not owner.is_broadcast and isinstance(queues, dict):
                self._offsets[owner.topic, owner.group] = offsets_of(queues)
            else:
                self._others[str(key)] = queues

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that `group` committed; None if it did not."""
        offset = self._offsets.get((topic, group), {}).get(queue_id, -1)
        return offset if offset >= 0 else None

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep an offset, a smaller one than before too. RequestError where too many are kept already."""
        queues = self._offsets.setdefault((topic, group), {})
        if queue_id not in queues:
            if self._committed >= _MOST_OFFSETS:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_OFFSETS} offsets are kept in memory"
                )
            self._committed += 1
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.has_changed = True

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep how far a group has pulled, which is further than what it has consumed."""
        if len(self._pulled) < _MOST_OFFSETS:
            self._pulled[group, topic, queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group has pulled or, if that is further, consumed; 0 if neither."""
        return max(self._pulled.get((group, topic, queue_id), 0), self.find(group, topic, queue_id) or 0)

    def pulled_table(self) -> dict[str, dict[int, int]]:
        """How far groups have pulled, by topic and group, as `as_table` has offsets."""
        found: dict[str, dict[int, int]] = {}
        for (group, topic, queue_id), offset in list(self._pulled.items()):
            found.setdefault(f"{topic}{_SEPARATOR}{group}", {})[queue_id] = offset
        return found

    def topics_of(self, group: str) -> list[str]:
        """Topics that a group has offsets of."""
        return sorted(topic for topic, other in list(self._offsets) if other == group)

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Offsets of a group in a topic, by queue."""
        return dict(self._offsets.get((topic, group), {}))

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets of a topic."""
        return sorted(group for other, group in list(self._offsets) if other == topic)

    def groups(self) -> list[str]:
        """Groups that have any offset."""
        return sorted({group for _, group in list(self._offsets)})

    def as_table(self) -> dict[str, dict[int, int]]:
        """All offsets as consumerOffset.json has them."""
        return {f"{topic}{_SEPARATOR}{group}": dict(queues) for (topic, group), queues in list(self._offsets.items())}

    # ---- where offsets are kept for good

    def clamp(self, end: Callable[[str, int], int]) -> list[str]:
        """Set offsets beyond the `end` of their queue back to it; a line for each. A log that lost its end gives those
        offsets to other messages."""
        told: list[str] = []
        for (topic, group), queues in self._offsets.items():
            for queue_id, offset in queues.items():
                last = end(topic, queue_id)
                if offset > last:
                    told.append(f"{group} was at {offset} of {topic} queue {queue_id}, which ends at {last}: set back")
                    queues[queue_id] = last
                    self.has_changed = True
        return told

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set a group to an offset, and have its next pull begin there."""
        self.commit(group, topic, queue_id, offset)
        self._resets[group, topic, queue_id] = offset

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the next pull of a group begins where it was set to: until then members commit what is past."""
        return (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where the next pull of a group has to begin, once; None without a reset."""
        return self._resets.pop((group, topic, queue_id), None)

    def remove(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget the offsets of a topic, or of a group."""
        for key in [key for key in self._offsets if topic == key[0] or group == key[1]]:
            del self._offsets[key]
            self.has_changed = True

    def content(self, now: int, end: Callable[[str, int], int]) -> dict[str, Any]:
        """What consumerOffset.json is to hold, as a new version of `now` (ms). No offset exceeds the `end` of its
        queue, even if clients commit one."""
        self.data_version = next_version(self.data_version, now)
        self.has_changed = False
        table: dict[str, Any] = {}
        topics: dict[str, list[str]] = {}
        for (topic, group), queues in sorted(self._offsets.items()):
            offsets = {queue_id: min(offset, end(topic, queue_id)) for queue_id, offset in sorted(queues.items())}
            table[f"{topic}{_SEPARATOR}{group}"] = offsets
            topics.setdefault(group, []).append(topic)
        content = {
            **self._content,
            "dataVersion": self.data_version,
            "groupTopicMap": topics,
            "offsetTable": {**table, **self._others},
        }
        if self.FILE == LMQ_OFFSETS:
            light = [key for key in table if key.partition(_SEPARATOR)[2].startswith(LMQ_PREFIX)]
            content[LMQ_TABLE] = {key: table[key].get(0, 0) for key in light}
            content[OFFSET_TABLE] = {key: queues for key, queues in content["offsetTable"].items() if key not in light}
        return content


# Which client of a group has a queue for itself, as consumers in order want it (RebalanceLockManager).

LOCKS_EXPIRED_AFTER_MS = 60_000
"""A lock that is not renewed for so long is free (rocketmq.broker.rebalance.lockMaxLiveTime)."""

_MOST_LOCKS = 100_000


class _Lock(NamedTuple):
    client_id: str
    renewed_at: int


class QueueLocks:
    """Locks by group and queue. The caller gives the time (ms)."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, MessageQueue], _Lock] = {}

    def lock(self, group: str, queue: MessageQueue, client_id: str, now: int) -> bool:
        """Give the queue to a client, or leave it to the one that has it; whether the client has it now."""
        held = self._locks.get((group, queue))
        if held is not None and held.client_id != client_id and now - held.renewed_at <= LOCKS_EXPIRED_AFTER_MS:
            return False
        if held is None and len(self._locks) >= _MOST_LOCKS:
            return False
        self._locks[group, queue] = _Lock(client_id, now)
        return True

    def unlock(self, group: str, queue: MessageQueue, client_id: str) -> None:
        """Take the queue back from the client that has it."""
        held = self._locks.get((group, queue))
        if held is not None and held.client_id == client_id:
            del self._locks[group, queue]

    def is_held(self, group: str, now: int) -> bool:
        """Whether any client of `group` has a queue for itself."""
        return any(
            other == group and now - held.renewed_at <= LOCKS_EXPIRED_AFTER_MS
            for (other, _), held in self._locks.items()
        )

    def expire(self, now: int) -> None:
        """Forget locks that were not renewed."""
        old = [key for key, held in self._locks.items() if now - held.renewed_at > LOCKS_EXPIRED_AFTER_MS]
        for key in old:
            del self._locks[key]


# Writes the broker's tables to config/, one after the other in a thread of its own: no client waits for a disk.


class ConfigSaver:
    """Files of one folder. `tell` takes a line for what could not be written."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self._folder = folder
        self._tell = tell
        self._lock = threading.Lock()
        self._waiting: dict[str, Future[None]] = {}
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="config")

    def save(
        self,
        name: str,
        content: Callable[[], Any],
        before: Callable[[], None] | None = None,
        write: Callable[[Path, Any], None] | None = None,
    ) -> Future[None]:
        """Have what `content` gives then written to the file `name`, as soon as what is being written is; `before` is
        called in between. Both are called in a thread of the saver, and so is `write`, for files other than JSON.
        However often a file is to be saved, it waits once.

        The future is done when the file is on disk, or could not be written, which is reported.
        """
        with self._lock:
            waiting = self._waiting.get(name)
            if waiting is None:
                waiting = self._waiting[name] = self._executor.submit(self._save, name, content, before, write)
            return waiting

    def _save(
        self,
        name: str,
        content: Callable[[], Any],
        before: Callable[[], None] | None,
        write: Callable[[Path, Any], None] | None,
    ) -> None:
        with self._lock:
            # what changes from now on needs to be saved once more
            del self._waiting[name]
        try:
            found = content()
            if before is not None:
                before()
            (write or write_config)(self._folder / name, found)
        except RmqctlError as error:
            self._tell(f"{name} is not written: {error}")

    def close(self) -> None:
        """Wait until all is written."""
        self._executor.shutdown()
