"""Single messages and units: by key, by physical offset, by place in a queue (QueryMessageProcessor)."""

from __future__ import annotations

from typing import Any

from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.broker.broker import Broker
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import bean, fastjson
from rmqctl.network.remoting.services import Caller, RequestError, Service
from rmqctl.store.read.tag_query import messages_with_tag

_MOST_MESSAGES = 64
"""maxMsgsNumBatch."""

_UNIQUE_KEY_MESSAGES = 32
"""defaultQueryMaxNum."""

_TAGS = "T"
_LARGEST_BODY = 15 * 1024 * 1024
_MOST_UNITS = 800


def query_message(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Messages of a topic with a key, oldest first. Damage in the way is no absence: it is told, and where nothing else
    is found it is the answer."""
    limit = min(max(fields.integer(request, "maxNum"), 1), _MOST_MESSAGES)
    if fields.flag(request, "_UNIQUE_KEY_QUERY"):
        limit = _UNIQUE_KEY_MESSAGES
    begin, end = fields.long(request, "beginTimestamp"), fields.long(request, "endTimestamp")
    topic, key = fields.text(request, "topic"), fields.text(request, "key")
    if broker.identity.release.has_tag_queries and request.fields.get("indexType") == _TAGS:
        found = messages_with_tag(broker.reader, topic, key, begin, end, limit)
    else:
        found = broker.reader.query(topic, key, begin, end, limit)
    for error in found.damaged:
        broker.tell_once((error.file or "", error.physical_offset or 0), f"in the way of a query by key: {error}")
    if not found.messages:
        if found.damaged:
            raise found.damaged[0]
        raise RequestError(
            ResponseCode.QUERY_NOT_FOUND,
            "can not find message, maybe time range not correct",
            {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"},
        )
    files = broker.files.index.files
    last, until = (files[-1].header.end_timestamp, files[-1].header.end_physical_offset) if files else (0, 0)
    return RemotingCommand(
        ResponseCode.SUCCESS,
        {"indexLastUpdateTimestamp": str(last), "indexLastUpdatePhyoffset": str(until)},
        _frames(broker, sorted(found.messages, key=lambda message: message.physical_offset)),
    )


def _frames(broker: Broker, messages: list[StoredMessage]) -> bytes:
    """Frames back to back as they are stored: as many as fit into an answer."""
    frames: list[bytes] = []
    total = 0
    for message in messages:
        if frames and total + message.total_size > _LARGEST_BODY:
            break
        frames.append(broker.files.log.read(message.physical_offset, message.total_size))
        total += message.total_size
    return b"".join(frames)


def view_message(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The message whose frame begins at a physical offset."""
    return RemotingCommand(ResponseCode.SUCCESS, body=frame_at(broker, fields.long(request, "offset")))


def frame_at(broker: Broker, offset: int) -> bytes:
    """The frame at a physical offset as it is stored. RequestError where there is none, or a damaged one."""
    try:
        message = broker.reader.lookup(offset)
    except NotFoundError as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}: {error.message}"
        ) from error
    except CorruptError as error:
        broker.tell_once((error.file or "", offset), f"asked for by its offset: {error}")
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the message at offset {offset} is damaged: {error}") from error
    return _frames(broker, [message])


def query_consume_queue(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Units of a queue as they are stored."""
    topic, queue_id = fields.text(request, "topic"), fields.integer(request, "queueId")
    index, count = fields.long(request, "index"), fields.integer(request, "count")
    if index < 0:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"request not invalid, index: {index}, count: {count}")
    queue = broker.queue(topic, queue_id)
    if queue is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    minimum, maximum = broker.bounds(topic, queue_id)
    units: list[dict[str, Any]] = []
    group = request.fields.get("consumerGroup")
    subscription, filter_data = _filter_data(broker, group, topic)
    for unit in queue.units(index, index + min(max(count, 0), _MOST_UNITS)):
        units.append(bean(eval=False, physicOffset=unit.physical_offset, physicSize=unit.size, tagsCode=unit.tags_code))
    content = bean(
        filterData=filter_data,
        maxQueueIndex=maximum,
        minQueueIndex=minimum,
        queueData=units,
        subscriptionData=subscription,
    )
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


def _filter_data(broker: Broker, group: str | None, topic: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return what a group subscribes of a topic, and the text that stands for its compiled filter: SQL has one."""
    if group is None:
        return None, None
    members = broker.clients.consumer_group(group)
    found = None if members is None else members.subscriptions.get(topic)
    return (None, f"{group}@{topic} is not online!") if found is None else (found.bean, "null")


SERVICES: dict[int, Service[Broker]] = {
    RequestCode.QUERY_MESSAGE: Service(query_message, "messages by key through the index", is_slow=True),
    RequestCode.VIEW_MESSAGE_BY_ID: Service(view_message, "a message by its physical offset", is_slow=True),
    RequestCode.QUERY_CONSUME_QUEUE: Service(query_consume_queue, "units of a queue as stored, 800 at most"),
}
