"""Messages that producers send, one by one and in batches (SendMessageProcessor)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, UsageError
from rmqctl.formats.hashing import parse_int
from rmqctl.formats.hosts import LOCAL_HOST, Host, parse_host
from rmqctl.formats.java_map import in_java_order
from rmqctl.formats.message import Message
from rmqctl.formats.properties import encode_properties, parse_properties
from rmqctl.network.broker.send.batch_items import batch_items
from rmqctl.network.broker.send.put_answers import put_and_answer
from rmqctl.network.broker.send.recall_handles import handle_of
from rmqctl.network.broker.send.send_checks import checked_topic, queue_of
from rmqctl.network.broker.send.send_header import SendHeader, send_header
from rmqctl.network.broker.transactions.halves import TRANSACTION, as_half
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.services import Caller, Reply, RequestError, Service
from rmqctl.network.topic_config import TopicConfig
from rmqctl.network.unique_ids import UniqueIds
from rmqctl.store.answers.dead_letters import DLQ_PREFIX, RETRY_PREFIX
from rmqctl.store.write.result import PutResult

_MULTI_TAGS_FLAG = 2
_MULTI_TAG = "MULTI_TAG"
_POP_CHECKPOINT = "POP_CK"
_BATCH_QUEUES = "BatchCQ"
_LONGEST_BATCH_TOPIC = 127
# MQVersion.V3_4_9: from then on clients say how often a message may be consumed again
_SAYS_MOST_TIMES = 121

_SEPARATOR, _NAME_SEPARATOR = names.PROPERTY_SEPARATOR.decode(), names.NAME_SEPARATOR.decode()

_ids = UniqueIds()


def send_message(broker: WritableBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Store a message, or a batch of them."""
    settings = broker.settings
    always = {"MSG_REGION": settings.region_id, "TRACE_ON": "true" if settings.trace_on else "false"}
    header = send_header(request)
    try:
        topic = checked_topic(broker, header)
        if header.is_batch:
            return _send_batch(broker, request, header, topic, caller, always)
        return _send_one(broker, request, header, topic, caller, always)
    except RequestError as error:
        error.fields = {**always, **error.fields}
        raise


def _send_one(
    broker: WritableBroker,
    request: RemotingCommand,
    header: SendHeader,
    topic: TopicConfig,
    caller: Caller,
    always: Mapping[str, str],
) -> Reply:
    properties = _properties(broker, header, always)
    queue_id = queue_of(header, topic)
    sys_flag = header.sys_flag | (_MULTI_TAGS_FLAG if topic.filter_type == _MULTI_TAG else 0)
    # by their places: names would take half of the time of the whole
    message = Message(
        header.topic, request.body, queue_id, header.flag, properties, None, sys_flag, header.born_timestamp,
        born_host(caller), None, None, header.reconsume_times,
    )  # fmt: skip
    if header.topic.startswith(RETRY_PREFIX):
        message = _retried(broker, request, header, message)
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


def _properties(broker: WritableBroker, header: SendHeader, always: Mapping[str, str]) -> dict[str, str]:
    """Properties of a message as a broker completes them."""
    properties = parsed_properties(header.properties)
    if not broker.identity.release.is_of_4:
        properties |= always
    elif properties.get(names.WAIT) == "true" and not header.is_batch:
        # 4.x saves its bytes, but not in batches: to wait is what is done without it
        del properties[names.WAIT]
    properties.pop(_POP_CHECKPOINT, None)
    if names.UNIQUE_KEY not in properties and not header.is_batch:
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
    """Properties of a message that is going to be delayed anew: where an earlier delay was to end is no matter now, and
    would say that it was delivered already."""
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


def _retried(broker: WritableBroker, request: RemotingCommand, header: SendHeader, message: Message) -> Message:
    """A message for a retry topic: the dead letter queue takes it where it was tried often enough, or where its group
    consumes in order (AbstractSendMessageProcessor#handleRetryAndDLQ)."""
    group = header.topic.removeprefix(RETRY_PREFIX).partition("+")[0]
    settings = broker.group(group)
    most = int(settings["retryMaxTimes"])
    if header.max_reconsume_times is not None and request.version >= _SAYS_MOST_TIMES:
        most = header.max_reconsume_times
    if header.reconsume_times <= most and not broker.locks.is_held(group, broker.elapsed()):
        return message
    topic = broker.create_topic(DLQ_PREFIX + group, 1)
    # 4.x leaves the delay as it is
    more = {} if broker.identity.release.is_of_4 else {names.DELAY: "-1"}
    return message._replace(topic=topic.name, queue_id=0, properties={**message.properties, **more})


def _send_batch(
    broker: WritableBroker,
    request: RemotingCommand,
    header: SendHeader,
    topic: TopicConfig,
    caller: Caller,
    always: Mapping[str, str],
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
        items = batch_items(request.body)
        own = [parse_properties(item.property_bytes) for item in items]
    except (CorruptError, UnicodeDecodeError) as error:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}") from error
    queue_id, host, behind = queue_of(header, topic), born_host(caller), encode_properties(added)
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


SERVICES: dict[int, Service[WritableBroker]] = {
    RequestCode.SEND_MESSAGE: Service(send_message, "stored; with SYNC_FLUSH answered when it is on disk"),
    RequestCode.SEND_MESSAGE_V2: Service(send_message, "the same"),
    RequestCode.SEND_BATCH_MESSAGE: Service(send_message, "all messages of the batch stored, or none"),
}
