"""Replies to requests: pushed to the producer that asked, and stored besides (ReplyMessageProcessor)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError, WriteFailedError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.properties import in_java_order
from rmqctl.network.broker.broker import WritableBroker
from rmqctl.network.broker.send import (
    RecallHandle,
    born_host,
    checked_topic,
    parse_handle,
    parsed_properties,
    put_and_answer,
    queue_of,
    without_real_place,
)
from rmqctl.network.broker.settings import DLQ_PUT_NUMS, SNDBCK_PUT_NUMS
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import PushReply, RecallMessage, SendMessage, SendMsgBack, request
from rmqctl.network.remoting.requests import FAQ, Asked, Caller, Promised, Reply, RequestError
from rmqctl.network.topic_config import PERM_WRITE, REPLY_TO_CLIENT, UNIT_SUBSCRIPTION, retry_topic
from rmqctl.store.answers.dead_letters import DLQ_PREFIX
from rmqctl.store.read.frames import message_at
from rmqctl.store.write.put import PutResult

_ANSWERS_WITHIN_SECONDS = 10.0
_PUSHED_AT = "PUSH_REPLY_TIME"
_PUSHED = {field.attribute for field in PushReply.FIELDS}


def send_reply(broker: WritableBroker, header: SendMessage, asked: Asked) -> Reply:
    """Push a reply to the producer that asked, and store it unless storeReplyMessageEnable is off."""
    settings = broker.settings
    always = {"MSG_REGION": settings.region_id, "TRACE_ON": "true" if settings.trace_on else "false"}
    # 4.x says so in its answer alone
    properties = {**parsed_properties(header.properties), **({} if broker.identity.release.is_of_4 else always)}
    header = replace(header, properties=_text_of(properties))
    try:
        topic = checked_topic(broker, header)
    except RequestError as error:
        error.fields = {**always, **error.fields}
        raise
    queue_id = queue_of(header, topic)
    client_id = properties.get(REPLY_TO_CLIENT)
    if client_id is None:
        remark = f"reply message properties[{REPLY_TO_CLIENT}] is null"
        return _answer(broker, header, asked, queue_id, always, remark)
    asker = broker.clients.producer(client_id)
    if asker is None:
        remark = f"push reply message fail, channel of <{client_id}> not found."
        return _answer(broker, header, asked, queue_id, always, remark)
    pushed_properties = _text_of({**properties, _PUSHED_AT: str(broker.clock())})
    push = _push(broker, header, asked.caller, pushed_properties)
    done = asker.ask(
        request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, asked.request.body), _ANSWERS_WITHIN_SECONDS
    )

    def pushed() -> RemotingCommand:
        answer = done.result()
        is_pushed = answer is not None and answer.code == ResponseCode.SUCCESS
        remark = None if is_pushed else f"push reply message to {client_id}fail."
        return _answer(broker, header, asked, queue_id, always, remark)

    return Promised(done, pushed)


def _push(broker: WritableBroker, header: SendMessage, caller: Caller, properties: str) -> PushReply:
    """Return the header of the push, with these properties."""
    given = {name: value for name, value in vars(header).items() if name in _PUSHED}
    more = {"born_host": caller.remote, "store_host": broker.identity.address(caller)}
    return PushReply(**given | more | {"properties": properties, "store_timestamp": broker.clock()})


def _text_of(properties: Mapping[str, str]) -> str:
    return names.encode_properties(in_java_order(properties)).decode("utf-8", "surrogatepass")


def _answer(
    broker: WritableBroker,
    header: SendMessage,
    asked: Asked,
    queue_id: int,
    always: Mapping[str, str],
    remark: str | None,
) -> RemotingCommand:
    """Store the reply and return what its sender gets: `remark` says why the push failed, None that it did not."""
    code = ResponseCode.SUCCESS if remark is None else ResponseCode.SYSTEM_ERROR
    fields = {} if remark is not None else {"msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
    if broker.settings.store_reply_message_enable:
        fields |= _stored(broker, header, asked, queue_id)
    return RemotingCommand(code, {**always, **fields}, remark=remark)


def _stored(broker: WritableBroker, header: SendMessage, asked: Asked, queue_id: int) -> dict[str, str]:
    """Put the reply and return where it is; a failure is only reported, because the reply is pushed already."""
    properties = parsed_properties(header.properties)
    message = Message(
        header.topic, asked.request.body, queue_id, header.flag, properties,
        header.properties.encode("utf-8", "surrogatepass"), header.sys_flag, header.born_timestamp,
        born_host(asked.caller), reconsume_times=header.reconsume_times,
    )  # fmt: skip
    try:
        result = broker.put([message]).results[0]
    except (UsageError, WriteFailedError) as error:
        broker.tell(f"a reply to {header.topic} is not stored: {error}")
        return {}
    if not result.status.is_stored:
        broker.tell(f"a reply to {header.topic} is not stored: {result.status}: {result.detail}")
        return {}
    return {"msgId": result.message_id or "", "queueId": str(queue_id), "queueOffset": str(result.queue_offset)}


# Timed messages that are taken back, by the handle that a send gives (RecallMessageProcessor).

_TAG = "_RECALL_TAG_"


def recall_message(broker: WritableBroker, header: RecallMessage, asked: Asked) -> Reply:
    """Have a timed message not delivered, if its time has not come."""
    always = {"MSG_REGION": broker.settings.region_id}
    try:
        handle = _recalled(broker, header)
    except RequestError as error:
        error.fields = {**always, **error.fields}
        raise
    now = broker.clock()
    # 5.3.3 knows no other way than both
    is_key_alone = broker.identity.release.recalls_by_key and not broker.settings.append_topic_for_timer_delete_key
    properties = {
        names.TAGS: _TAG,
        names.TIMER_DELETE_UNIQUE_KEY: handle.unique_key if is_key_alone else f"{handle.topic}+{handle.unique_key}",
        names.UNIQUE_KEY: handle.unique_key,
        "TIMER_DELIVER_MS": handle.timestamp,
        "BORN_TIMESTAMP": str(now),
        "PGROUP": header.producer_group,
    }
    message = Message(
        handle.topic,
        b"0",
        0,
        properties=in_java_order(properties),
        born_timestamp=now,
        born_host=born_host(asked.caller),
    )

    def answer(_: Sequence[PutResult]) -> dict[str, str]:
        return {"msgId": handle.unique_key}

    return put_and_answer(broker, [message], answer, always=always)


def _recalled(broker: WritableBroker, header: RecallMessage) -> RecallHandle:
    """Return the handle of a request, in RocketMQ's order of checks and with its codes."""
    settings = broker.settings
    if not settings.recall_message_enable:
        raise RequestError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
    is_writable = settings.broker_permission & PERM_WRITE or settings.allow_recall_when_broker_not_writeable
    if not is_writable or broker.clock() < settings.start_accept_send_request_time_stamp:
        raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
    topic = header.topic
    if broker.topics.find(topic) is None:
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
    handle = parse_handle(header.recall_handle)
    if handle.topic != topic:
        raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
    if handle.broker != broker.identity.name:
        raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
    is_number = handle.timestamp.isascii() and handle.timestamp.isdigit() and len(handle.timestamp) < 19
    left = int(handle.timestamp) - broker.clock() if is_number else -1
    if not 0 < left < broker.files.config.timer_max_delay_sec * 1000:
        raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
    return handle


# Messages that a consumer could not do with: tried again later, given up in the end (CONSUMER_SEND_MSG_BACK).

_RETRY_TOPIC = "RETRY_TOPIC"
_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
_FIRST_LEVEL = 3
# MQVersion.V3_4_9
_SAYS_MOST_TIMES = 121


def send_back(broker: WritableBroker, header: SendMsgBack, asked: Asked) -> Reply:
    """Store a message for its group once more: behind a delay, or among the dead letters
    (AbstractSendMessageProcessor#consumerSendMsgBack)."""
    group = header.group
    try:
        settings = broker.group(group)
    except RequestError as error:
        raise RequestError(error.code, f"subscription group not exist, {group} \n{FAQ}") from error
    if not broker.settings.broker_permission & PERM_WRITE:
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.identity.name}] sending message is forbidden"
        )
    queues = int(settings["retryQueueNums"])
    if queues <= 0:
        return RemotingCommand(ResponseCode.SUCCESS)
    is_unit = header.unit_mode
    topic = broker.create_topic(retry_topic(group), queues, UNIT_SUBSCRIPTION if is_unit else 0)
    if not topic.perm & PERM_WRITE:
        raise RequestError(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden")
    stored = _sent_back(broker, header.offset)
    most, level = int(settings["retryMaxTimes"]), header.delay_level
    if header.max_reconsume_times is not None and asked.request.version >= _SAYS_MOST_TIMES:
        most = header.max_reconsume_times
    if stored.reconsume_times >= most or level < 0:
        name, queue_id, level = broker.create_topic(DLQ_PREFIX + group, 1).name, 0, 0
    else:
        name, queue_id = topic.name, random.randrange(queues)
        level = level or _FIRST_LEVEL + stored.reconsume_times
    is_dead = name != topic.name

    def counted(_: Sequence[PutResult]) -> dict[str, str]:
        broker.counts.add(SNDBCK_PUT_NUMS, f"{stored.topic}@{group}", 1)
        if is_dead:
            broker.counts.add(DLQ_PUT_NUMS, f"{stored.topic}@{group}", 1)
        return {}

    return put_and_answer(broker, [_again(stored, name, queue_id, level)], counted, always={})


def _sent_back(broker: WritableBroker, offset: int) -> StoredMessage:
    try:
        return message_at(broker.files.log, offset)
    except NotFoundError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}") from error
    except CorruptError as error:
        broker.tell_once((error.file or "", offset), f"sent back by a consumer: {error}")
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}: {error.message}"
        ) from error


def _again(stored: StoredMessage, topic: str, queue_id: int, level: int) -> Message:
    properties = stored.properties()
    properties.setdefault(_RETRY_TOPIC, stored.topic)
    properties.setdefault(_ORIGIN_MESSAGE_ID, stored.message_id)
    properties |= {names.DELAY: str(level), names.WAIT: "false"}
    return Message(
        topic,
        stored.body,
        queue_id,
        stored.flag,
        in_java_order(without_real_place(properties)),
        sys_flag=stored.sys_flag,
        born_timestamp=stored.born_timestamp,
        born_host=stored.born_host,
        reconsume_times=stored.reconsume_times + 1,
    )
