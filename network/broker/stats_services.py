"""How full the queues are and how far the groups have come: what mqadmin shows of topics and consumers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.tables.counts import GROUP_GET_NUMS, TOPIC_PUT_NUMS
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue, bean, fastjson
from rmqctl.network.remoting.services import Caller, RequestError, Service

_TOPICS_SEPARATOR = ";"


def _body(content: Any) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


def get_topic_stats(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Smallest and next offset of a topic's queues, and when the last message of each was stored."""
    name = fields.text(request, "topic")
    topic = broker.topic(name, f"topic[{name}] not exist")
    table: dict[MessageQueue, Any] = {}
    for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
        minimum, maximum = broker.bounds(topic.name, queue_id)
        last = broker.store_time(topic.name, queue_id, maximum - 1) if maximum > 0 else 0
        queue = MessageQueue(broker.identity.name, queue_id, topic.name)
        table[queue] = bean(lastUpdateTimestamp=last, maxOffset=maximum, minOffset=minimum)
    rate = broker.counts.per_second(TOPIC_PUT_NUMS, topic.name, broker.elapsed())
    return _body(bean(offsetTable=table, topicPutTps=rate))


def _consume_stats(broker: Broker, group: str, topics: Iterable[str]) -> dict[MessageQueue, dict[str, int]]:
    """By queue, how far `group` is and how far it could be (OffsetWrapper)."""
    table: dict[MessageQueue, dict[str, int]] = {}
    for name in topics:
        topic = broker.topics.find(name)
        for queue_id in range(topic.read_queue_nums if topic is not None else 0):
            consumed = max(0, broker.offsets.find(group, name, queue_id) or 0)
            last = broker.store_time(name, queue_id, consumed - 1) if consumed > 0 else 0
            table[MessageQueue(broker.identity.name, queue_id, name)] = bean(
                brokerOffset=max(0, broker.bounds(name, queue_id)[1]),
                consumerOffset=consumed,
                lastTimestamp=last,
                pullOffset=broker.offsets.pulled(group, name, queue_id),
            )
    return table


def _topics_of(broker: Broker, group: str) -> list[str]:
    """Topics of a group: those with offsets, of a group that is there only those it still subscribes."""
    topics = broker.offsets.topics_of(group)
    members = broker.clients.consumer_group(group)
    if members is None or not members.subscriptions:
        return topics
    return [topic for topic in topics if topic in members.subscriptions]


def get_consume_stats(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """How far a group has come, queue by queue."""
    group, topic = fields.text(request, "consumerGroup"), request.fields.get("topic")
    listed = request.fields.get("topicList")
    if listed:
        topics = [name for name in listed.split(_TOPICS_SEPARATOR) if name]
    else:
        topics = [topic] if topic else _topics_of(broker, group)
    rate = sum(_consumed_per_second(broker, group, one) for one in topics)
    return _body(bean(consumeTps=rate, offsetTable=_consume_stats(broker, group, topics)))


def _consumed_per_second(broker: Broker, group: str, topic: str) -> float:
    return broker.counts.per_second(GROUP_GET_NUMS, f"{topic}@{group}", broker.elapsed())


def view_stats(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """One of the broker's counts over the last minute, hour and day, such as TOPIC_PUT_NUMS of a topic."""
    name, key = fields.text(request, "statsName"), fields.text(request, "statsKey")
    found = broker.counts.figures(name, key, broker.elapsed())
    if found is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    minute, hour, day = (bean(avgpt=one.average, sum=one.sum, tps=one.tps) for one in found)
    return _body(bean(statsDay=day, statsHour=hour, statsMinute=minute))


def get_broker_consume_stats(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The same of all groups, topic by topic. `isOrder`: only topics whose messages are in order."""
    is_order = fields.flag(request, "isOrder")
    groups: list[Any] = []
    behind = in_flight = 0
    for group in sorted({*broker.groups.names(), *broker.offsets.groups()}):
        stats: list[Any] = []
        for topic in _topics_of(broker, group):
            config = broker.topics.find(topic)
            if config is None or (is_order and not config.order):
                continue
            table = _consume_stats(broker, group, [topic])
            behind += sum(one["brokerOffset"] - one["consumerOffset"] for one in table.values())
            in_flight += sum(one["pullOffset"] - one["consumerOffset"] for one in table.values())
            stats.append(bean(consumeTps=_consumed_per_second(broker, group, topic), offsetTable=table))
        groups.append({group: stats})
    content = bean(
        brokerAddr=broker.identity.address(caller),
        consumeStatsList=groups,
        totalDiff=behind,
        totalInflightDiff=in_flight,
    )
    return _body(content)


def query_consume_time_span(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """By queue, the store times of its messages and of the group's last one (ms), and how late the group is."""
    name, group = fields.text(request, "topic"), fields.text(request, "group")
    topic = broker.topic(name, f"topic[{name}] not exist")
    spans: list[Any] = []
    for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
        minimum, maximum = broker.bounds(topic.name, queue_id)
        consumed = broker.offsets.find(group, topic.name, queue_id) or 0
        earliest = broker.store_time(topic.name, queue_id, minimum)
        current = broker.store_time(topic.name, queue_id, consumed - 1) if consumed > 0 else earliest
        next_time = broker.store_time(topic.name, queue_id, consumed) if consumed < maximum else 0
        latest = broker.store_time(topic.name, queue_id, maximum - 1) if maximum > 0 else 0
        spans.append(
            bean(
                consumeTimeStamp=current,
                consumeTimeStampStr=_local_time(current),
                delayTime=broker.clock() - next_time if next_time > 0 else 0,
                maxTimeStamp=latest,
                maxTimeStampStr=_local_time(latest),
                messageQueue=MessageQueue(broker.identity.name, queue_id, topic.name),
                minTimeStamp=earliest,
                minTimeStampStr=_local_time(earliest),
            )
        )
    return _body(bean(consumeTimeSpanSet=spans))


def _local_time(timestamp: int) -> str:
    """UtilAll#formatDate with YYYY_MM_DD_HH_MM_SS_SSS."""
    moment = time.localtime(timestamp // 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', moment)}:{timestamp % 1000:03d}"


def query_who_consumes(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Groups that are there and subscribe a topic, and groups that have offsets of it."""
    topic = fields.text(request, "topic")
    groups = {*broker.clients.groups_subscribing(topic), *broker.offsets.groups_of(topic)}
    return _body(bean(groupList=sorted(groups)))


def query_topics_by_consumer(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Topics that a group has offsets of."""
    group = fields.text(request, "group")
    topics = sorted(broker.offsets.topics_of(group))
    return _body(bean(brokerAddr=broker.identity.address(caller), topicList=topics))


SERVICES: dict[int, Service[Broker]] = {
    RequestCode.GET_TOPIC_STATS_INFO: Service(
        get_topic_stats, "bounds and last times of a topic's queues", is_slow=True
    ),
    RequestCode.VIEW_BROKER_STATS_DATA: Service(view_stats, "a count over the last minute, hour and day"),
    RequestCode.GET_CONSUME_STATS: Service(get_consume_stats, "how far a group has come", is_slow=True),
    RequestCode.GET_BROKER_CONSUME_STATS: Service(
        get_broker_consume_stats, "how far all groups have come", is_slow=True
    ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: Service(
        query_consume_time_span, "store times of a group's queues", is_slow=True
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Service(
        query_who_consumes, "groups that subscribe a topic or have offsets"
    ),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: Service(query_topics_by_consumer, "topics that a group has offsets of"),
}
