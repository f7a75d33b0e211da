"""What is looked at before a message is taken: the topic, its queues, what may be (AbstractSendMessageProcessor)."""

from __future__ import annotations

import random

from rmqctl.network.broker.send.send_header import SendHeader
from rmqctl.network.broker.tables.topics import DEFAULT_TOPIC
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.services import FAQ, RequestError
from rmqctl.network.topic_config import PERM_INHERIT, PERM_WRITE, TopicConfig
from rmqctl.store.answers.dead_letters import RETRY_PREFIX
from rmqctl.store.config.topic_names import NOT_ALLOWED_TO_SEND, topic_problem

# TopicSysFlag
_UNIT = 1
_UNIT_SUBSCRIPTION = 2
_RANDOM_BELOW = 99_999_999


def checked_topic(broker: WritableBroker, header: SendHeader) -> TopicConfig:
    """The topic to send to, which is created if that may be. RequestError in RocketMQ's order and with its codes
    (msgCheck)."""
    name = header.topic
    topic = broker.topics.find(name)
    if not broker.settings.broker_permission & PERM_WRITE and topic is not None and topic.order:
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.identity.name}] sending message is forbidden"
        )
    problem = topic_problem(name, broker.identity.release)
    if problem is not None:
        raise RequestError(ResponseCode.INVALID_PARAMETER, problem)
    if name in NOT_ALLOWED_TO_SEND:
        raise RequestError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
    if topic is None:
        topic = _created(broker, header)
    queues = max(topic.write_queue_nums, topic.read_queue_nums)
    if header.queue_id >= queues:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{header.queue_id}] is illegal, topic:[{name}] has {queues} queues",
        )
    return topic


def _created(broker: WritableBroker, header: SendHeader) -> TopicConfig:
    """A topic that is made because somebody sends to it (TopicConfigManager#createTopicInSendMessageMethod)."""
    name = header.topic
    is_retry = name.startswith(RETRY_PREFIX)
    default = broker.topics.find(header.default_topic)
    if default is not None and header.default_topic == DEFAULT_TOPIC and not broker.settings.auto_create_topic_enable:
        default = None
    if default is not None and default.perm & PERM_INHERIT:
        queues = max(0, min(header.default_topic_queues, default.write_queue_nums))
        unit = (_UNIT_SUBSCRIPTION if is_retry else _UNIT) if header.is_unit_mode else 0
        made = TopicConfig(name, queues, queues, default.perm & ~PERM_INHERIT, default.filter_type, unit)
        broker.topics.put(made)
        broker.save_topics()
        return made
    if is_retry:
        return broker.create_topic(name, 1, _UNIT_SUBSCRIPTION if header.is_unit_mode else 0)
    raise RequestError(
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[{name}] not exist, apply first please!\n{FAQ}",
    )


def queue_of(header: SendHeader, topic: TopicConfig) -> int:
    """The queue that is asked for, any one where none is."""
    if header.queue_id >= 0:
        return header.queue_id
    if not topic.write_queue_nums:
        raise RequestError(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] has no queue to write to")
    return random.randrange(_RANDOM_BELOW) % topic.write_queue_nums
