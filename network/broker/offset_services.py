"""Offsets of queues and of groups: where a queue begins and ends, where a time lies, where a group is."""

from __future__ import annotations

import os

from rmqctl.network.broker.broker import Broker
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import bean, fastjson
from rmqctl.network.remoting.services import Caller, RequestError, Service
from rmqctl.store.queues.offset_by_time import Boundary

_UPPER = "UPPER"
# Long.MAX_VALUE
_NO_OFFSET = (1 << 63) - 1
_YOUNG_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 40 // 100


def _offset(offset: int) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, {"offset": str(offset)})


def get_max_offset(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The offset of a queue's next message; 0 for a queue that nobody knows."""
    return _offset(broker.bounds(fields.text(request, "topic"), fields.integer(request, "queueId"))[1])


def get_min_offset(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The offset of a queue's first message; 0 for a queue that nobody knows."""
    return _offset(broker.bounds(fields.text(request, "topic"), fields.integer(request, "queueId"))[0])


def search_offset_by_timestamp(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The offset of a queue for a store time in ms."""
    topic, queue_id = fields.text(request, "topic"), fields.integer(request, "queueId")
    timestamp = fields.long(request, "timestamp")
    if broker.queue(topic, queue_id) is None:
        return _offset(0)
    boundary: Boundary = "upper" if request.fields.get("boundaryType", "").upper() == _UPPER else "lower"
    return _offset(broker.reader.offset_at(topic, queue_id, timestamp, boundary))


def get_earliest_store_time(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The store time of a queue's first message; -1 without one."""
    topic, queue_id = fields.text(request, "topic"), fields.integer(request, "queueId")
    minimum, maximum = broker.bounds(topic, queue_id)
    time = broker.reader.store_time(topic, queue_id, minimum) if minimum < maximum else -1
    return RemotingCommand(ResponseCode.SUCCESS, {"timestamp": str(time)})


def query_consumer_offset(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Where a group is in a queue. A group without an offset there is told so, and its own policy says where it begins.

    A broker that writes says 0 in its place as long as the queue's first message is young, as RocketMQ's does
    (ConsumerManageProcessor#queryConsumerOffset): a group that comes late to a new topic misses nothing.
    """
    group, topic = fields.text(request, "consumerGroup"), fields.text(request, "topic")
    queue_id = fields.integer(request, "queueId")
    offset = broker.offsets.find(group, topic, queue_id)
    is_of_4 = broker.identity.release.is_of_4
    is_zero_wanted = is_of_4 or fields.flag(request, "setZeroIfNotFound", default=True)
    if offset is None and broker.is_writable and is_zero_wanted and _is_young(broker, topic, queue_id):
        offset = 0
    if offset is None and broker.is_writable and is_of_4 and broker.bounds(topic, queue_id)[1] == 0:
        # 4.x looks at the first offset alone, which is 0 where there is no queue
        offset = 0
    if offset is None:
        why = "V3_0_6_SNAPSHOT maybe this group consumer boot first"
        if not is_zero_wanted:
            why = "do not set to zero, maybe this group boot first"
        raise RequestError(ResponseCode.QUERY_NOT_FOUND, f"Not found, {why}")
    return _offset(offset)


def _is_young(broker: Broker, topic: str, queue_id: int) -> bool:
    """Whether the first message that a queue ever had is near the end of the log: within 40 % of the memory
    (accessMessageInMemoryMaxRatio), where the system is likely to have it."""
    queue = broker.queue(topic, queue_id)
    first = queue.unit(0) if queue is not None and queue.min_offset(broker.files.log.min_offset) == 0 else None
    return first is not None and first.is_written and broker.log_end - first.physical_offset <= _YOUNG_BYTES


def update_consumer_offset(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """A group says where it is: kept in memory, and written by a broker that writes."""
    group, topic = fields.text(request, "consumerGroup"), fields.text(request, "topic")
    queue_id, offset = fields.integer(request, "queueId"), fields.long(request, "commitOffset")
    # 4.x keeps whatever it is given
    if not broker.identity.release.is_of_4:
        if broker.groups.find(group) is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if broker.topics.find(topic) is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
    if queue_id < 0:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"queueId[{queue_id}] is no queue")
    if broker.offsets.has_reset(group, topic, queue_id):
        # ConsumerManageProcessor#updateConsumerOffset
        return RemotingCommand(ResponseCode.SUCCESS, remark="Offset has been previously reset")
    broker.offsets.commit(group, topic, queue_id, offset)
    return RemotingCommand(ResponseCode.SUCCESS)


def query_correction_offset(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """By queue, the smallest offset that a group has in a topic; the largest number where `compareGroup` is behind
    it. A broker forgets the offsets of `filterGroups` thereby; here they are only left out."""
    topic, compared = fields.text(request, "topic"), request.fields.get("compareGroup", "")
    left_out = set(request.fields.get("filterGroups", "").split(","))
    smallest: dict[int, int] = {}
    for group in broker.offsets.groups_of(topic):
        for queue_id, offset in broker.offsets.of(group, topic).items() if group not in left_out else ():
            if offset >= broker.bounds(topic, queue_id)[0]:
                smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
    for queue_id, offset in broker.offsets.of(compared, topic).items():
        if smallest.get(queue_id, _NO_OFFSET) > offset:
            smallest[queue_id] = _NO_OFFSET
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(bean(correctionOffsets=smallest)))


SERVICES: dict[int, Service[Broker]] = {
    RequestCode.QUERY_CONSUMER_OFFSET: Service(
        query_consumer_offset, "where a group is in a queue; 22 where it has no offset, so that its own policy rules"
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: Service(
        update_consumer_offset, "kept in memory until the broker ends, never written"
    ),
    RequestCode.QUERY_CORRECTION_OFFSET: Service(query_correction_offset, "by queue, the smallest offset of a group"),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Service(
        search_offset_by_timestamp, "the offset for a store time, LOWER and UPPER", is_slow=True
    ),
    RequestCode.GET_MAX_OFFSET: Service(get_max_offset, "the end of a queue"),
    RequestCode.GET_MIN_OFFSET: Service(get_min_offset, "the beginning of a queue"),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Service(get_earliest_store_time, "store time of a queue's first message"),
}
