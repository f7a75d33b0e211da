"""The topics of a store: those that its broker configured, and those that only its consume queues know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rmqctl.network.broker.tables.config_table import config_table
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.services import RequestError, Tell
from rmqctl.network.topic_config import DEFAULT_TOPIC, PERM_READ, PERM_WRITE, TopicConfig, retry_topic, topic_from_bean
from rmqctl.store.answers.dead_letters import RETRY_PREFIX
from rmqctl.store.config.config_files import DELETED_TOPICS, deleted_in, next_version
from rmqctl.store.config.topic_names import is_brokers_own
from rmqctl.store.store_files import StoreFiles

# what clients may make us remember
_MOST_TOPICS = 100_000
_BOTH = PERM_READ | PERM_WRITE


class TopicTable:
    """Topics by name. A queue that has files counts as readable although the configuration has fewer: no message may be
    out of reach. Where topics are written, it is the configuration that counts."""

    FILE = "topics.json"

    def __init__(self, files: StoreFiles, tell: Tell, *, is_written: bool = False) -> None:
        """UnsupportedError where the queues cannot be read. A damaged topics.json is told, and its topics are then
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
        self._deleted = deleted_in(self._content) if is_written else set()
        self._topics: dict[str, TopicConfig] = {
            name: topic_from_bean(name, one)
            for name, one in table.items()
            if isinstance(name, str) and isinstance(one, dict)
        }
        self._routes: tuple[int, dict[str, TopicConfig]] | None = None
        self._widen(files)

    def _widen(self, files: StoreFiles) -> None:
        queues: dict[str, int] = defaultdict(int)
        for queue in files.queues.all():
            queues[queue.topic] = max(queues[queue.topic], queue.queue_id + 1)
        for name, count in queues.items():
            if name in self._deleted and name not in self._topics:
                continue
            topic = self._topics.get(name) or TopicConfig(name, count, count)
            if not self._is_written or name not in self._topics:
                self._topics[name] = topic._replace(read_queue_nums=max(topic.read_queue_nums, count))

    def find(self, name: str) -> TopicConfig | None:
        """The topic; None if there is none of that name."""
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
            if name != DEFAULT_TOPIC
        }

    # ---- where topics are created

    def put(self, topic: TopicConfig) -> TopicConfig:
        """Have a topic, in the place of the one of this name. RequestError where there are too many."""
        if topic.name not in self._topics and len(self._topics) >= _MOST_TOPICS:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_TOPICS} topics are remembered")
        self._topics[topic.name] = topic
        self._routes = None
        self._deleted.discard(topic.name)
        return topic

    def is_deleted(self, name: str) -> bool:
        """Whether somebody wants nobody to see it, and not only nobody knows it."""
        return name in self._deleted

    def remove(self, name: str) -> None:
        """Forget a topic, although there may be queues of it."""
        self._routes = None
        if self._topics.pop(name, None) is not None and len(self._deleted) < _MOST_TOPICS:
            self._deleted.add(name)

    def content(self, now: int) -> dict[str, Any]:
        """What topics.json is to hold, as a new version of `now` (ms)."""
        self.data_version = next_version(self.data_version, now)
        table = {topic.name: topic.as_bean() for topic in self.all()}
        content = {name: value for name, value in self._content.items() if name != DELETED_TOPICS}
        content |= {"dataVersion": self.data_version, "topicConfigTable": table}
        return {**content, DELETED_TOPICS: sorted(self._deleted)} if self._deleted else content


def is_system_topic(name: str, cluster: str, broker_name: str) -> bool:
    """Whether the broker has it for itself (TopicValidator#isSystemTopic)."""
    own = (cluster, broker_name, f"{cluster}_REPLY_TOPIC")
    return is_brokers_own(name) or name in own


def is_retry_topic(name: str) -> bool:
    """Whether it belongs to one group's retries."""
    return name.startswith(RETRY_PREFIX)


__all__ = [
    "DEFAULT_TOPIC",
    "PERM_READ",
    "TopicTable",
    "is_retry_topic",
    "is_system_topic",
]
