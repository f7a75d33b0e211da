"""Messages that a consumer could not do with: tried again later, given up in the end (CONSUMER_SEND_MSG_BACK)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.java_map import in_java_order
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.broker.send.put_answers import put_and_answer
from rmqctl.network.broker.send.send_services import without_real_place
from rmqctl.network.broker.tables.counts import DLQ_PUT_NUMS, SNDBCK_PUT_NUMS
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import FAQ, Caller, Reply, RequestError, Service
from rmqctl.network.topic_config import PERM_WRITE, retry_topic
from rmqctl.store.answers.dead_letters import DLQ_PREFIX
from rmqctl.store.read.frames import message_at
from rmqctl.store.write.result import PutResult

_RETRY_TOPIC = "RETRY_TOPIC"
_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
_FIRST_LEVEL = 3
_UNIT_SUBSCRIPTION = 2
# MQVersion.V3_4_9
_SAYS_MOST_TIMES = 121


def send_back(broker: WritableBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Store a message for its group once more: behind a delay, or among the dead letters
    (AbstractSendMessageProcessor#consumerSendMsgBack)."""
    group = fields.text(request, "group")
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
    is_unit = fields.flag(request, "unitMode")
    topic = broker.create_topic(retry_topic(group), queues, _UNIT_SUBSCRIPTION if is_unit else 0)
    if not topic.perm & PERM_WRITE:
        raise RequestError(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden")
    stored = _sent_back(broker, fields.long(request, "offset"))
    most, level = int(settings["retryMaxTimes"]), fields.integer(request, "delayLevel")
    if "maxReconsumeTimes" in request.fields and request.version >= _SAYS_MOST_TIMES:
        most = fields.integer(request, "maxReconsumeTimes")
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


SERVICES: dict[int, Service[WritableBroker]] = {
    RequestCode.CONSUMER_SEND_MSG_BACK: Service(
        send_back, "again after a delay that grows, among the dead letters when it was tried often enough"
    ),
}
