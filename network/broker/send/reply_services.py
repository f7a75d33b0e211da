"""Replies to requests: pushed to the producer that asked, and stored besides (ReplyMessageProcessor)."""

from __future__ import annotations

from collections.abc import Mapping

from rmqctl.formats import properties as names
from rmqctl.formats.errors import UsageError, WriteFailedError
from rmqctl.formats.java_map import in_java_order
from rmqctl.formats.message import Message
from rmqctl.network.broker.send.send_checks import checked_topic, queue_of
from rmqctl.network.broker.send.send_header import SendHeader, send_header
from rmqctl.network.broker.send.send_services import born_host, parsed_properties
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Caller, Promised, Reply, RequestError, Service
from rmqctl.network.topic_config import REPLY_TO_CLIENT

_ANSWERS_WITHIN_SECONDS = 10.0
_PUSHED_AT = "PUSH_REPLY_TIME"


def send_reply(broker: WritableBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Push a reply to the producer that asked, and store it unless storeReplyMessageEnable is off."""
    settings = broker.settings
    always = {"MSG_REGION": settings.region_id, "TRACE_ON": "true" if settings.trace_on else "false"}
    header = send_header(request)
    # 4.x says so in its answer alone
    properties = {**parsed_properties(header.properties), **({} if broker.identity.release.is_of_4 else always)}
    header = header._replace(properties=_text_of(properties))
    try:
        topic = checked_topic(broker, header)
    except RequestError as error:
        error.fields = {**always, **error.fields}
        raise
    queue_id = queue_of(header, topic)
    client_id = properties.get(REPLY_TO_CLIENT)
    if client_id is None:
        remark = f"reply message properties[{REPLY_TO_CLIENT}] is null"
        return _answer(broker, header, request, caller, queue_id, always, remark)
    asker = broker.clients.producer(client_id)
    if asker is None:
        remark = f"push reply message fail, channel of <{client_id}> not found."
        return _answer(broker, header, request, caller, queue_id, always, remark)
    fields = _pushed_fields(broker, header, caller) | {
        "properties": _text_of({**properties, _PUSHED_AT: str(broker.clock())})
    }
    command = RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body)
    done = asker.ask(command, _ANSWERS_WITHIN_SECONDS)

    def pushed() -> RemotingCommand:
        answer = done.result()
        is_pushed = answer is not None and answer.code == ResponseCode.SUCCESS
        remark = None if is_pushed else f"push reply message to {client_id}fail."
        return _answer(broker, header, request, caller, queue_id, always, remark)

    return Promised(done, pushed)


def _pushed_fields(broker: WritableBroker, header: SendHeader, caller: Caller) -> dict[str, str]:
    """Return the header of the push but for the properties (ReplyMessageRequestHeader)."""
    return {
        "producerGroup": header.producer_group,
        "topic": header.topic,
        "defaultTopic": header.default_topic,
        "defaultTopicQueueNums": str(header.default_topic_queues),
        "queueId": str(header.queue_id),
        "sysFlag": str(header.sys_flag),
        "bornTimestamp": str(header.born_timestamp),
        "flag": str(header.flag),
        "reconsumeTimes": str(header.reconsume_times),
        "unitMode": "true" if header.is_unit_mode else "false",
        "bornHost": caller.remote,
        "storeHost": broker.identity.address(caller),
        "storeTimestamp": str(broker.clock()),
    }


def _text_of(properties: Mapping[str, str]) -> str:
    return names.encode_properties(in_java_order(properties)).decode("utf-8", "surrogatepass")


def _answer(
    broker: WritableBroker,
    header: SendHeader,
    request: RemotingCommand,
    caller: Caller,
    queue_id: int,
    always: Mapping[str, str],
    remark: str | None,
) -> RemotingCommand:
    """Store the reply and return what its sender gets: `remark` says why the push failed, None that it did not."""
    code = ResponseCode.SUCCESS if remark is None else ResponseCode.SYSTEM_ERROR
    fields = {} if remark is not None else {"msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
    if broker.settings.store_reply_message_enable:
        fields |= _stored(broker, header, request.body, caller, queue_id)
    return RemotingCommand(code, {**always, **fields}, remark=remark)


def _stored(broker: WritableBroker, header: SendHeader, body: bytes, caller: Caller, queue_id: int) -> dict[str, str]:
    """Put the reply and return where it is; a failure is only reported, because the reply is pushed already."""
    properties = parsed_properties(header.properties)
    message = Message(
        header.topic, body, queue_id, header.flag, properties, header.properties.encode("utf-8", "surrogatepass"),
        header.sys_flag, header.born_timestamp, born_host(caller), reconsume_times=header.reconsume_times,
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


_ABOUT = "pushed to the producer that asked (326), and stored unless storeReplyMessageEnable=false"

SERVICES: dict[int, Service[WritableBroker]] = {
    RequestCode.SEND_REPLY_MESSAGE: Service(send_reply, _ABOUT),
    RequestCode.SEND_REPLY_MESSAGE_V2: Service(send_reply, _ABOUT),
}
