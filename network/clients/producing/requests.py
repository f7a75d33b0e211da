"""Messages as requests of a producer: ids, compression, properties, header (DefaultMQProducerImpl#sendKernelImpl)."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.compression import compress
from rmqctl.formats.layouts import COMPRESSION_SHIFT, SYS_FLAG_COMPRESSED
from rmqctl.formats.message import Message
from rmqctl.formats.properties import BUILT, COMPRESSION_NAMES, TRANSACTION_PREPARED, encode_properties, in_java_order
from rmqctl.network.clients.client import INSTANCE_ID, BrokerError, with_namespace, without_namespace
from rmqctl.network.clients.producing.settings import ProducerSettings, encode_item
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import SendMessageV2, request
from rmqctl.network.topic_config import MAX_RECONSUME_TIMES, MESSAGE_TYPE, RECONSUME_TIME, REPLY
from rmqctl.network.unique_ids import UniqueIds
from rmqctl.store.pop.records import RETRY_PREFIX

_STATUSES = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
}

DEFAULT_REGION = "DefaultRegion"
# until a queue is chosen
_ANY_QUEUE = -1


class SendResult(NamedTuple):
    """What a broker said of a message. `status`: SEND_OK, or what was not made sure of. `unique_key`: the client's own
    id; `message_ids`: the broker's, one for each message of a batch. `is_trace_on`: the broker wants traces."""

    status: str
    unique_key: str
    message_ids: tuple[str, ...]
    queue: MessageQueue
    queue_offset: int
    region: str = DEFAULT_REGION
    is_trace_on: bool = True


class Outgoing(NamedTuple):
    """A message or a batch ready to be sent to any queue of its topic; each attempt sends the same bytes.
    `unique_keys`: those of all messages of a batch, joined by commas."""

    message: Message
    topic: str
    unique_key: str
    code: int
    body: bytes
    header: SendMessageV2
    unique_keys: str
    is_batch: bool


class OutgoingRequests:
    """Makes requests of messages. May be used by many threads."""

    def __init__(self, group: str, settings: ProducerSettings) -> None:
        self._group = group
        self._settings = settings
        kinds = {name.upper(): kind for kind, name in COMPRESSION_NAMES.items() if kind}
        self._compression = kinds[settings.compress_type]
        self._ids = UniqueIds()
        self._lock = threading.Lock()

    def prepare(self, messages: Sequence[Message], *, is_batch: bool) -> Outgoing:
        """Return what is sent for the messages, which are one unless it is a batch."""
        first = messages[0]
        topic = with_namespace(self._settings.namespace, first.topic)
        if is_batch:
            items = [self._identified(one) for one in messages]
            body = b"".join(map(encode_item, items))
            unique_keys = ",".join(one.properties[names.UNIQUE_KEY] for one in items)
            wait = {names.WAIT: first.properties[names.WAIT]} if names.WAIT in first.properties else {}
            properties = dict(self._identified(Message(topic, b"", properties=wait)).properties)
            sys_flag = 0
        else:
            first = self._identified(first)
            prepared = self._compressed(first)
            body, properties, sys_flag = prepared.body, dict(prepared.properties), prepared.sys_flag
            unique_keys = properties[names.UNIQUE_KEY]
            if properties.get("TRAN_MSG", "").lower() == "true":
                sys_flag |= TRANSACTION_PREPARED
        if self._settings.namespace:
            properties[INSTANCE_ID] = self._settings.namespace
        times, most = _retries(topic, properties, first.reconsume_times)
        encoded = encode_properties(in_java_order(properties, BUILT)).decode("utf-8")
        header = SendMessageV2(
            producer_group=self._group, topic=topic, default_topic=self._settings.create_topic_key,
            default_topic_queue_nums=self._settings.default_topic_queue_nums, queue_id=_ANY_QUEUE, sys_flag=sys_flag,
            flag=first.flag, properties=encoded, reconsume_times=times, max_reconsume_times=most,
            unit_mode=self._settings.unit_mode, batch=is_batch,
        )  # fmt: skip
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        if properties.get(MESSAGE_TYPE) == REPLY:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return Outgoing(first, topic, properties[names.UNIQUE_KEY], code, body, header, unique_keys, is_batch)

    def request(self, outgoing: Outgoing, queue: MessageQueue) -> RemotingCommand:
        """Return the request that sends it to a queue."""
        born = outgoing.message.born_timestamp or time.time_ns() // 1_000_000
        header = replace(outgoing.header, queue_id=queue.queue_id, born_timestamp=born, broker_name=queue.broker_name)
        return request(outgoing.code, header, outgoing.body)

    def result(self, address: str, answer: RemotingCommand, outgoing: Outgoing, queue: MessageQueue) -> SendResult:
        """Return what the answer says. Raises: BrokerError where the message is not stored."""
        if answer.code not in _STATUSES:
            raise BrokerError.of(address, answer)
        topic = without_namespace(self._settings.namespace, queue.topic)
        return SendResult(
            _STATUSES[ResponseCode(answer.code)],
            answer.fields.get("transactionId", outgoing.unique_key),
            tuple(filter(None, answer.fields.get("msgId", "").split(","))),
            queue._replace(queue_id=int(answer.fields["queueId"]), topic=topic),
            int(answer.fields["queueOffset"]),
            answer.fields.get("MSG_REGION") or DEFAULT_REGION,
            answer.fields.get("TRACE_ON") != "false",
        )

    def _identified(self, message: Message) -> Message:
        if message.property_bytes is not None:
            message = message._replace(
                properties=names.parse_properties(bytes(message.property_bytes)), property_bytes=None
            )
        with self._lock:
            message = self._ids.given_to(message)
        return message._replace(properties={names.WAIT: "true", **message.properties})

    def _compressed(self, message: Message) -> Message:
        is_small = len(message.body) < self._settings.compress_msg_body_over_howmuch
        if is_small or message.sys_flag & SYS_FLAG_COMPRESSED:
            return message
        flags = SYS_FLAG_COMPRESSED | self._compression << COMPRESSION_SHIFT
        body = compress(message.body, self._compression, self._settings.compress_level)
        return message._replace(body=body, sys_flag=message.sys_flag | flags)


def _retries(topic: str, properties: dict[str, str], times: int) -> tuple[int, int | None]:
    """Return the retry counts of a request. A consumer that retries a message by a send has them as properties, which
    are removed."""
    if not topic.startswith(RETRY_PREFIX):
        return times, None
    given = properties.pop(RECONSUME_TIME, None), properties.pop(MAX_RECONSUME_TIMES, None)
    return times if given[0] is None else int(given[0]), None if given[1] is None else int(given[1])
