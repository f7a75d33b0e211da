"""The topics of a store: those that its broker configured, and those that only its consume queues know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rmqctl.network.broker.config_table import config_table
from rmqctl.network.remoting.services import Tell
from rmqctl.network.topic_config import PERM_READ, PERM_WRITE, RETRY_PREFIX, TopicConfig, retry_topic, topic_from_bean
from rmqctl.store.store_files import StoreFiles

_SYSTEM_TOPICS = frozenset(
    "TBW102 SCHEDULE_TOPIC_XXXX BenchmarkTest RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRACE_TOPIC "
    "RMQ_SYS_TRANS_OP_HALF_TOPIC TRANS_CHECK_MAX_TIME_TOPIC SELF_TEST_TOPIC OFFSET_MOVED_EVENT CHECKPOINT_TOPIC".split()
)
_SYSTEM_PREFIX = "rmq_sys_"
_DEFAULT_TOPIC = "TBW102"
"""A topic that lends its settings to new ones; where nothing can be created it must not be seen."""


class TopicTable:
    """Topics by name. A queue that has files counts as readable although the configuration has fewer: no message may be
    out of reach."""

    def __init__(self, files: StoreFiles, tell: Tell) -> None:
        """UnsupportedError where the queues cannot be read. A damaged topics.json is told, and its topics are then
        those of the queues."""
        table, self.data_version = config_table(
            files, "topics.json", "topicConfigTable", tell, "topics are those of the consume queues alone"
        )
        self._topics: dict[str, TopicConfig] = {
            name: topic_from_bean(name, one)
            for name, one in table.items()
            if isinstance(name, str) and isinstance(one, dict)
        }
        self._widen(files)

    def _widen(self, files: StoreFiles) -> None:
        queues: dict[str, int] = defaultdict(int)
        for queue in files.queues.all():
            queues[queue.topic] = max(queues[queue.topic], queue.queue_id + 1)
        for name, count in queues.items():
            topic = self._topics.get(name) or TopicConfig(name, count, count)
            self._topics[name] = topic._replace(read_queue_nums=max(topic.read_queue_nums, count))

    def find(self, name: str) -> TopicConfig | None:
        """The topic; None if there is none of that name."""
        return self._topics.get(name)

    def add_retry_topics(self, groups: Iterable[str]) -> None:
        """See to it that each group has its retry topic: clients ask for that before all else. Nothing is written."""
        for group in groups:
            name = retry_topic(group)
            if name not in self._topics:
                self._topics[name] = TopicConfig(name, 1, 1)

    def all(self) -> list[TopicConfig]:
        """All topics, by name."""
        return [topic for _, topic in sorted(self._topics.items())]

    def routes(self) -> dict[str, TopicConfig]:
        """Topics as a route shows them while nothing can be written: for reading only."""
        return {
            topic.name: topic._replace(perm=topic.perm & ~PERM_WRITE)
            for topic in self.all()
            if topic.name != _DEFAULT_TOPIC
        }


def is_system_topic(name: str, cluster: str, broker_name: str) -> bool:
    """Whether the broker has it for itself (TopicValidator#isSystemTopic)."""
    own = (cluster, broker_name, f"{cluster}_REPLY_TOPIC")
    return name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIX) or name in own


def is_retry_topic(name: str) -> bool:
    """Whether it belongs to one group's retries."""
    return name.startswith(RETRY_PREFIX)


__all__ = ["PERM_READ", "TopicTable", "is_retry_topic", "is_system_topic"]
