"""Messages that producers send, one by one and in batches (SendMessageProcessor)."""

from __future__ import annotations

import base64
import binascii
import random
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_int
from rmqctl.formats.errors import CorruptError, ExhaustedError, NotFoundError, UsageError, WriteFailedError
from rmqctl.formats.message import LOCAL_HOST, Host, Message, parse_host
from rmqctl.formats.properties import encode_properties, in_java_order, parse_properties
from rmqctl.network.broker.broker import WritableBroker
from rmqctl.network.broker.tables import DEFAULT_TOPIC
from rmqctl.network.broker.transactions import TRANSACTION, as_half
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import SendMessage
from rmqctl.network.remoting.requests import FAQ, Asked, Caller, Reply, RequestError
from rmqctl.network.topic_config import PERM_INHERIT, PERM_WRITE, UNIT, UNIT_SUBSCRIPTION, TopicConfig
from rmqctl.network.unique_ids import UniqueIds
from rmqctl.store.answers.dead_letters import DLQ_PREFIX
from rmqctl.store.config.config_files import NOT_ALLOWED_TO_SEND, topic_problem
from rmqctl.store.pop.records import RETRY_PREFIX
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.frames import message_at
from rmqctl.store.status import PutStatus
from rmqctl.store.write.put import STORED, PutResult

# The messages in the body of a batch, as clients encode them (MessageDecoder#encodeMessage).

# total size, magic, crc, flag, body length; then the body, int16 and the properties
_HEAD = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")


class BatchItem(NamedTuple):
    """One message of a batch. `property_bytes` in stored form."""

    flag: int
    body: bytes
    property_bytes: bytes


def batch_items(body: bytes) -> list[BatchItem]:
    """All messages of a batch; CorruptError where its lengths do not add up, or there are none."""
    items: list[BatchItem] = []
    position = 0
    while position < len(body):
        left = len(body) - position
        if left < _HEAD.size:
            raise CorruptError("the batch ends inside the head of a message")
        size, _, _, flag, length = _HEAD.unpack_from(body, position)
        if not _HEAD.size + _LENGTH.size <= size <= left or not 0 <= length <= size - _HEAD.size - _LENGTH.size:
            raise CorruptError(f"a message of {size} bytes with a body of {length} does not fit into the {left} left")
        body_at = position + _HEAD.size
        properties_at = body_at + length + _LENGTH.size
        (count,) = _LENGTH.unpack_from(body, body_at + length)
        if count < 0 or properties_at + count != position + size:
            raise CorruptError(f"properties of {count} bytes do not fill a message of {size}")
        items.append(BatchItem(flag, body[body_at : body_at + length], body[properties_at : properties_at + count]))
        position += size
    if not items:
        raise CorruptError("the batch has no message")
    return items


# How puts end, as answers to who has sent (SendMessageProcessor#handlePutMessageResult).

_CODES = {
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}

Answer = Callable[[Sequence[PutResult]], Mapping[str, str]]


def put_and_answer(
    broker: WritableBroker,
    messages: Sequence[Message],
    answer: Answer,
    *,
    batch: bool = False,
    always: Mapping[str, str],
) -> Reply:
    """Put, and answer with the fields that `answer` makes of the results once the message is as durable as it wants to
    be. `always`: fields of answers of any kind. RequestError where it is not stored."""
    congestion = broker.congestion(messages[0])
    if congestion:
        raise RequestError(ResponseCode.SYSTEM_ERROR, congestion, always)
    try:
        put = broker.put(messages, batch=batch)
    except ExhaustedError as error:
        # clients try again, perhaps at another broker: there may be descriptors in a moment
        raise RequestError(ResponseCode.SYSTEM_BUSY, f"not now: {error}", always) from error
    except (UsageError, WriteFailedError) as error:
        broker.tell(f"a message for {messages[0].topic} is not stored: {error}")
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error), always) from error
    first = put.results[0]
    if first.status is not STORED and not first.status.is_stored:
        code = _CODES.get(first.status, ResponseCode.SYSTEM_ERROR)
        raise RequestError(code, f"{first.status}: {first.detail}", always)
    fields = {**always, **answer(put.results)}

    if not broker.is_waited_for(put):
        return RemotingCommand(ResponseCode.SUCCESS, fields)

    def answered(code: ResponseCode) -> RemotingCommand:
        return RemotingCommand(code, fields)

    return broker.when_durable(messages, put, answered)


# Handles by which producers take timed messages back (RecallMessageHandle).

_VERSION = "v1"
_PARTS = 5


class RecallHandle(NamedTuple):
    """What a handle says (RecallMessageHandle.HandleV1). `timestamp`: ms, as a text."""

    topic: str
    broker: str
    timestamp: str
    unique_key: str

    def encode(self) -> str:
        """Return the handle as clients have it."""
        text = " ".join((_VERSION, *self))
        return base64.urlsafe_b64encode(text.encode("utf-8")).decode("ascii")


def parse_handle(text: str) -> RecallHandle:
    """Return the fields of a handle; RequestError for an invalid one."""
    try:
        padded = text + "=" * (-len(text) % 4)
        version, *parts = base64.b64decode(padded, b"-_", validate=True).decode("utf-8").split(" ")
    except (binascii.Error, ValueError):
        version, parts = "", []
    if version != _VERSION or len(parts) < _PARTS - 1:
        raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    return RecallHandle(*parts[: _PARTS - 1])


def handle_of(broker: WritableBroker, message: Message, result: PutResult) -> str | None:
    """Return the handle of a message that was just put; None for one that waits for no time."""
    has_time = any(name in message.properties for name in names.TIMER_PROPERTIES)
    if not has_time or result.physical_offset is None or message.topic.startswith(RETRY_PREFIX):
        return None
    try:
        stored = message_at(broker.files.log, result.physical_offset)
    except (CorruptError, NotFoundError):
        return None
    due = stored.properties().get(names.TIMER_OUT_MS, "")
    if stored.topic != TIMER_TOPIC or not due.isdecimal():
        return None
    # the time is cut to whole seconds from one millisecond before it
    key = message.properties.get(names.UNIQUE_KEY, "")
    return RecallHandle(message.topic, broker.identity.name, str(int(due) + 1), key).encode()


# What is looked at before a message is taken: the topic, its queues, what may be (AbstractSendMessageProcessor).

_RANDOM_BELOW = 99_999_999


def checked_topic(broker: WritableBroker, header: SendMessage) -> TopicConfig:
    """The topic to send to, which is created if that may be. RequestError in RocketMQ's order and with its codes
    (msgCheck)."""
    name = header.topic
    begin = broker.settings.start_accept_send_request_time_stamp
    if broker.clock() < begin:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin // 1000))
        remark = f"broker unable to service, until {since},{begin % 1000:03d}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
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


def _created(broker: WritableBroker, header: SendMessage) -> TopicConfig:
    """Create a topic for a send (TopicConfigManager#createTopicInSendMessageMethod)."""
    name = header.topic
    is_retry = name.startswith(RETRY_PREFIX)
    default = broker.topics.find(header.default_topic)
    if default is not None and header.default_topic == DEFAULT_TOPIC and not broker.settings.auto_create_topic_enable:
        default = None
    if default is not None and default.perm & PERM_INHERIT:
        queues = max(0, min(header.default_topic_queue_nums, default.write_queue_nums))
        unit = (UNIT_SUBSCRIPTION if is_retry else UNIT) if header.unit_mode else 0
        made = TopicConfig(name, queues, queues, default.perm & ~PERM_INHERIT, default.filter_type, unit)
        broker.topics.put(made)
        broker.save_topics()
        return made
    if is_retry:
        return broker.create_topic(name, 1, UNIT_SUBSCRIPTION if header.unit_mode else 0)
    raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!\n{FAQ}")


def queue_of(header: SendMessage, topic: TopicConfig) -> int:
    """The queue that is asked for, any one where none is."""
    if header.queue_id >= 0:
        return header.queue_id
    if not topic.write_queue_nums:
        raise RequestError(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] has no queue to write to")
    return random.randrange(_RANDOM_BELOW) % topic.write_queue_nums


_MULTI_TAGS_FLAG = 2
_MULTI_TAG = "MULTI_TAG"
_POP_CHECKPOINT = "POP_CK"
_BATCH_QUEUES = "BatchCQ"
_LONGEST_BATCH_TOPIC = 127
# MQVersion.V3_4_9: from then on clients say how often a message may be consumed again
_SAYS_MOST_TIMES = 121

_SEPARATOR, _NAME_SEPARATOR = names.PROPERTY_SEPARATOR.decode(), names.NAME_SEPARATOR.decode()

_ids = UniqueIds()


def send_message(broker: WritableBroker, header: SendMessage, asked: Asked) -> Reply:
    """Store a message, or a batch of them."""
    settings = broker.settings
    always = {"MSG_REGION": settings.region_id, "TRACE_ON": "true" if settings.trace_on else "false"}
    if asked.request.code == RequestCode.SEND_BATCH_MESSAGE:
        header = replace(header, batch=True)
    try:
        topic = checked_topic(broker, header)
        if header.batch:
            return _send_batch(broker, header, topic, asked, always)
        return _send_one(broker, header, topic, asked, always)
    except RequestError as error:
        error.fields = {**always, **error.fields}
        raise


def _send_one(
    broker: WritableBroker, header: SendMessage, topic: TopicConfig, asked: Asked, always: Mapping[str, str]
) -> Reply:
    properties = _properties(broker, header, always)
    queue_id = queue_of(header, topic)
    sys_flag = header.sys_flag | (_MULTI_TAGS_FLAG if topic.filter_type == _MULTI_TAG else 0)
    # by their places: names would take half of the time of the whole
    message = Message(
        header.topic, asked.request.body, queue_id, header.flag, properties, None, sys_flag, header.born_timestamp,
        born_host(asked.caller), None, None, header.reconsume_times,
    )  # fmt: skip
    if header.topic.startswith(RETRY_PREFIX):
        message = _retried(broker, header, asked, message)
    is_half = TRANSACTION in properties and properties[TRANSACTION].lower() == "true"
    if is_half and not (header.reconsume_times > 0 and _number(properties.get(names.DELAY)) > 0):
        if broker.settings.reject_transaction_message:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.identity.name}] sending transaction message is forbidden",
            )
        message = as_half(message)
    elif names.REAL_TOPIC in properties:
        message = message._replace(properties=without_real_place(message.properties))
    message = message._replace(properties=in_java_order(message.properties))

    def fields(results: Sequence[PutResult]) -> dict[str, str]:
        answer = {
            "msgId": results[0].message_id or "",
            "queueId": str(queue_id),
            "queueOffset": str(results[0].queue_offset),
            "transactionId": properties[names.UNIQUE_KEY],
        }
        handle = handle_of(broker, message, results[0]) if broker.identity.release.has_recall else None
        return answer if handle is None else {**answer, "recallHandle": handle}

    return put_and_answer(broker, [message], fields, always=always)


def _properties(broker: WritableBroker, header: SendMessage, always: Mapping[str, str]) -> dict[str, str]:
    """Properties of a message as a broker completes them."""
    properties = parsed_properties(header.properties)
    if not broker.identity.release.is_of_4:
        properties |= always
    elif properties.get(names.WAIT) == "true" and not header.batch:
        # 4.x saves its bytes, but not in batches: to wait is what is done without it
        del properties[names.WAIT]
    properties.pop(_POP_CHECKPOINT, None)
    if names.UNIQUE_KEY not in properties and not header.batch:
        properties[names.UNIQUE_KEY] = _ids.next()
    properties["CLUSTER"] = broker.identity.cluster
    return properties


def parsed_properties(text: str) -> dict[str, str]:
    """As parse_properties; UnicodeDecodeError for half of a surrogate pair."""
    if not text.isascii():
        return parse_properties(text.encode("utf-8", "surrogatepass"))
    found: dict[str, str] = {}
    for segment in text.split(_SEPARATOR):
        name, _, value = segment.partition(_NAME_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def without_real_place(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return properties of a message that is delayed again, without the target of an earlier delay, which would mark it
    as delivered."""
    if _number(properties.get(names.DELAY)) <= 0:
        return properties
    return {name: value for name, value in properties.items() if name not in (names.REAL_TOPIC, names.REAL_QUEUE_ID)}


def _number(text: str | None) -> int:
    return parse_int(text or "0") or 0


def born_host(caller: Caller) -> Host:
    """Where a message comes from."""
    return _host_of(caller.remote)


@lru_cache(maxsize=1024)
def _host_of(remote: str) -> Host:
    try:
        return parse_host(remote)
    except UsageError:
        return LOCAL_HOST


def _retried(broker: WritableBroker, header: SendMessage, asked: Asked, message: Message) -> Message:
    """A message for a retry topic: the dead letter queue takes it where it was tried often enough, or where its group
    consumes in order (AbstractSendMessageProcessor#handleRetryAndDLQ)."""
    group = header.topic.removeprefix(RETRY_PREFIX).partition("+")[0]
    settings = broker.group(group)
    most = int(settings["retryMaxTimes"])
    if header.max_reconsume_times is not None and asked.request.version >= _SAYS_MOST_TIMES:
        most = header.max_reconsume_times
    if header.reconsume_times <= most and not broker.locks.is_held(group, broker.elapsed()):
        return message
    topic = broker.create_topic(DLQ_PREFIX + group, 1)
    # 4.x leaves the delay as it is
    more = {} if broker.identity.release.is_of_4 else {names.DELAY: "-1"}
    return message._replace(topic=topic.name, queue_id=0, properties={**message.properties, **more})


def _send_batch(
    broker: WritableBroker, header: SendMessage, topic: TopicConfig, asked: Asked, always: Mapping[str, str]
) -> Reply:
    if len(header.topic) > _LONGEST_BATCH_TOPIC:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}")
    if header.topic.startswith(RETRY_PREFIX):
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}")
    if topic.attributes.get("queue.type") == _BATCH_QUEUES:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "batches for a topic of batch queues are not taken yet")
    common = in_java_order(_properties(broker, header, always))
    # 5.5.0 leaves the messages of a batch as they are
    added = {} if broker.identity.release.has_lite_topics else common
    try:
        items = batch_items(asked.request.body)
        own = [parse_properties(item.property_bytes) for item in items]
    except (CorruptError, UnicodeDecodeError) as error:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}") from error
    queue_id, host, behind = queue_of(header, topic), born_host(asked.caller), encode_properties(added)
    messages = []
    for item, properties in zip(items, own, strict=True):
        before = item.property_bytes
        if before and behind and not before.endswith(names.PROPERTY_SEPARATOR):
            before += names.PROPERTY_SEPARATOR
        messages.append(
            Message(
                header.topic,
                item.body,
                queue_id,
                item.flag,
                {**properties, **added},
                before + behind,
                sys_flag=header.sys_flag,
                born_timestamp=header.born_timestamp,
                born_host=host,
                reconsume_times=header.reconsume_times,
            )
        )

    def fields(results: Sequence[PutResult]) -> dict[str, str]:
        answer = {
            "msgId": ",".join(result.message_id or "" for result in results),
            "queueId": str(queue_id),
            "queueOffset": str(results[0].queue_offset),
        }
        unique_key = common.get(names.UNIQUE_KEY)
        return answer if unique_key is None else {**answer, "transactionId": unique_key}

    return put_and_answer(broker, messages, fields, batch=True, always=always)
