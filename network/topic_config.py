"""A topic as a broker is configured for it and a route describes it (TopicConfig, PermName)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.network.remoting.codec import MessageQueue, bean, integer_of, text_of
from rmqctl.store.config import config_tables
from rmqctl.store.config.config_files import MOST_QUEUES, topic_problem
from rmqctl.store.pop.records import RETRY_PREFIX

PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1

# properties of a message that wants a reply, and of the reply
CORRELATION_ID, REPLY_TO_CLIENT, TIME_TO_LIVE = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"
MESSAGE_TYPE, REPLY = "MSG_TYPE", "reply"
DEFAULT_TOPIC = "TBW102"
"""The topic that lends its settings to new ones; where none can be created it must not be seen."""
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace of the name server: of an ordered topic its brokers and how many queues each has, `broker:queues;…`."""
UNIT, UNIT_SUBSCRIPTION = 1, 2
"""Bits of a topic's sys flag: sent to by producers in unit mode, retried by consumers in unit mode (TopicSysFlag)."""
_SINGLE_TAG = "SINGLE_TAG"
_DEFAULT_QUEUES = 16
# TopicMessageType, without what no topic is made for by hand
_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


class TopicConfig(NamedTuple):
    """One topic. Queues have the ids from 0 up to their number."""

    name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int = PERM_READ | PERM_WRITE
    filter_type: str = _SINGLE_TAG
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, Any] = {}

    @property
    def is_readable(self) -> bool:
        """Whether consumers may pull from it."""
        return bool(self.perm & PERM_READ)

    def readable_queues(self, broker: str) -> list[MessageQueue]:
        """The queues at a broker of this name that consumers may pull from."""
        count = self.read_queue_nums if self.is_readable else 0
        return [MessageQueue(broker, number, self.name) for number in range(count)]

    def as_bean(self) -> dict[str, Any]:
        """Return the topic as in topics.json and in answers."""
        return bean(
            attributes=dict(self.attributes),
            order=self.order,
            perm=self.perm,
            readQueueNums=self.read_queue_nums,
            topicFilterType=self.filter_type,
            topicName=self.name,
            topicSysFlag=self.sys_flag,
            writeQueueNums=self.write_queue_nums,
        )


def topic_from_bean(name: str, content: Mapping[str, Any]) -> TopicConfig:
    """The topic `name` of an object of topics.json; what is missing or of the wrong type is as RocketMQ has it."""
    attributes = content.get("attributes")
    return TopicConfig(
        name,
        max(0, integer_of(content, "readQueueNums", _DEFAULT_QUEUES)),
        max(0, integer_of(content, "writeQueueNums", _DEFAULT_QUEUES)),
        integer_of(content, "perm", PERM_READ | PERM_WRITE),
        text_of(content, "topicFilterType") or _SINGLE_TAG,
        integer_of(content, "topicSysFlag"),
        content.get("order") is True,
        attributes if isinstance(attributes, dict) else {},
    )


def topic_from_text(text: str, queues: int) -> TopicConfig:
    """Return the topic of NAME, NAME:TYPE or NAME:TYPE:QUEUES, by default of NORMAL messages with `queues` queues.
    UsageError."""
    name, *more = text.split(":")
    kind = more[0] if more else "NORMAL"
    count = more[1] if len(more) > 1 else str(queues)
    problem = topic_problem(name)
    if problem is None and kind not in _TYPES:
        problem = f"{kind!r} is not a type of messages ({', '.join(_TYPES)})"
    if problem is None and not (
        len(more) <= 2 and count.isascii() and count.isdigit() and 0 < int(count) <= MOST_QUEUES
    ):
        problem = f"a topic has 1 to {MOST_QUEUES} queues"
    if problem is not None:
        raise UsageError(f"topic {text!r}: {problem}", hint="write it as NAME, NAME:FIFO or NAME:FIFO:4")
    attributes = {} if kind == "NORMAL" else {config_tables.MESSAGE_TYPE: kind}
    return TopicConfig(name, int(count), int(count), attributes=attributes)


def reply_topic(cluster: str) -> str:
    """Return the topic of a cluster's replies (MixAll#getReplyTopic)."""
    return f"{cluster}_REPLY_TOPIC"


RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
"""Retry count and maximum, as properties of what a consumer sends to its retry topic."""


def retry_topic(group: str) -> str:
    """Where messages of `group` go that are to be consumed again (MixAll#getRetryTopic)."""
    return RETRY_PREFIX + group
