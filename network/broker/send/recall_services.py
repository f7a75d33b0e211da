"""Timed messages that are taken back, by the handle that a send gives (RecallMessageProcessor)."""

from __future__ import annotations

from collections.abc import Sequence

from rmqctl.formats import properties as names
from rmqctl.formats.java_map import in_java_order
from rmqctl.formats.message import Message
from rmqctl.network.broker.send.put_answers import put_and_answer
from rmqctl.network.broker.send.recall_handles import RecallHandle, parse_handle
from rmqctl.network.broker.send.send_services import born_host
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Caller, Reply, RequestError, Service
from rmqctl.network.topic_config import PERM_WRITE
from rmqctl.store.write.result import PutResult

_TAG = "_RECALL_TAG_"


def recall_message(broker: WritableBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Have a timed message not delivered, if its time has not come."""
    always = {"MSG_REGION": broker.settings.region_id}
    try:
        handle = _recalled(broker, request)
    except RequestError as error:
        error.fields = {**always, **error.fields}
        raise
    now = broker.clock()
    # 5.5.0 has appendTopicForTimerDeleteKey=false, 5.3.3 knows no other way than both
    is_key_alone = broker.identity.release.has_tag_queries
    properties = {
        names.TAGS: _TAG,
        names.TIMER_DELETE_UNIQUE_KEY: handle.unique_key if is_key_alone else f"{handle.topic}+{handle.unique_key}",
        names.UNIQUE_KEY: handle.unique_key,
        "TIMER_DELIVER_MS": handle.timestamp,
        "BORN_TIMESTAMP": str(now),
        "PGROUP": fields.text(request, "producerGroup"),
    }
    message = Message(
        handle.topic, b"0", 0, properties=in_java_order(properties), born_timestamp=now, born_host=born_host(caller)
    )

    def answer(_: Sequence[PutResult]) -> dict[str, str]:
        return {"msgId": handle.unique_key}

    return put_and_answer(broker, [message], answer, always=always)


def _recalled(broker: WritableBroker, request: RemotingCommand) -> RecallHandle:
    """Return the handle of a request, in RocketMQ's order of checks and with its codes."""
    settings = broker.settings
    if not settings.recall_message_enable:
        raise RequestError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
    if not settings.broker_permission & PERM_WRITE:
        raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
    topic = fields.text(request, "topic")
    if broker.topics.find(topic) is None:
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
    handle = parse_handle(request.fields.get("recallHandle", ""))
    if handle.topic != topic:
        raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
    if handle.broker != broker.identity.name:
        raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
    is_number = handle.timestamp.isascii() and handle.timestamp.isdigit() and len(handle.timestamp) < 19
    left = int(handle.timestamp) - broker.clock() if is_number else -1
    if not 0 < left < broker.files.config.timer_max_delay_sec * 1000:
        raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
    return handle


SERVICES: dict[int, Service[WritableBroker]] = {
    RequestCode.RECALL_MESSAGE: Service(
        recall_message, "a timed message is not delivered; 16 unless recallMessageEnable=true"
    ),
}
