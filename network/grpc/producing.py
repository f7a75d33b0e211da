"""Messages that gRPC producers send, the ends of their transactions, and what they take back (SendMessageActivity)."""

from __future__ import annotations

import itertools
import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from rmqctl.formats.hosts import parse_offset_message_id
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.properties import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    encode_properties,
)
from rmqctl.network.grpc import messages
from rmqctl.network.grpc.clients import GrpcClient
from rmqctl.network.grpc.protocol import Code, Encoding, MessageTypeV2, TransactionResolution, TransactionSource, v2
from rmqctl.network.grpc.service import (
    OK,
    GrpcBroker,
    StatusError,
    require_success,
    status_of,
    status_of_answer,
    topic_of,
)
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import CheckTransactionState
from rmqctl.network.topic_config import DEFAULT_TOPIC, TopicConfig

_DEFAULT_QUEUES = 4
_ITEM = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")
_LONGEST_PROPERTIES = 0x7FFF
_MOST_HALVES = 100_000
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
_RESOLUTIONS = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}


class _Half(NamedTuple):
    """Where a half message is: its offsets in the log and in the half queue."""

    topic: str
    physical_offset: int
    queue_offset: int


class Halves:
    """Half messages by the ids of their transactions, as far as they were sent or asked about here; of the oldest
    nothing is known after a time, and their producers are asked again."""

    def __init__(self) -> None:
        self._halves: OrderedDict[str, _Half] = OrderedDict()

    def _note(self, transaction_id: str, half: _Half) -> None:
        self._halves[transaction_id] = half
        self._halves.move_to_end(transaction_id)
        if len(self._halves) > _MOST_HALVES:
            self._halves.popitem(last=False)

    def sent(self, topic: str, answer: RemotingCommand) -> None:
        """A half message was stored."""
        offset = parse_offset_message_id(answer.fields["msgId"])[1]
        self._note(answer.fields["transactionId"], _Half(topic, offset, int(answer.fields["queueOffset"])))

    def asked(self, topic: str, transaction_id: str, header: CheckTransactionState) -> None:
        """The producer of a half message is asked: a copy is in its place."""
        self._note(transaction_id, _Half(topic, header.commit_log_offset, header.tran_state_table_offset))

    def find(self, transaction_id: str, topic: str) -> _Half:
        """Return where the half message of a transaction is. Raises: StatusError."""
        found = self._halves.get(transaction_id)
        if found is None or found.topic != topic:
            raise StatusError(Code.INTERNAL_SERVER_ERROR, f"no transaction {transaction_id!r} of {topic} is known")
        return found

    def end(self, transaction_id: str) -> None:
        """A transaction has ended."""
        self._halves.pop(transaction_id, None)


class Producing:
    """What producers ask."""

    def __init__(self, service: GrpcBroker, halves: Halves) -> None:
        self._service = service
        self._halves = halves
        self._turns = itertools.count()

    async def send(self, request: Any, client: GrpcClient) -> Any:
        """Store messages of one topic: several in one queue, all or none."""
        given = request.messages
        messages.one_topic(given)
        name, broker = topic_of(given[0].topic), self._service.broker
        most = broker.files.config.max_message_size
        properties = [messages.properties_of(one, broker.clock(), client.remote, most) for one in given]
        topic = broker.topics.find(name)
        kinds = [messages.type_of_message(one) for one in properties]
        for kind in kinds:
            # a topic that is not there has no type, so that none is made by sending
            messages.require_type("UNSPECIFIED" if topic is None else messages.type_of_topic(topic), kind.name)
        if topic is None or not topic.write_queue_nums:
            raise StatusError(Code.FORBIDDEN, f"the topic {name} has no queue to write to")
        answer = await self._put(given, properties, topic, kinds[0], client)
        if answer.code not in _STORED:
            require_success(answer)
        if kinds[0] == MessageTypeV2.TRANSACTION:
            self._halves.sent(name, answer)
        return _sent(given, answer)

    async def _put(
        self, given: Sequence[Any], properties: list[dict[str, str]], topic: TopicConfig, kind: MessageTypeV2,
        client: GrpcClient,
    ) -> RemotingCommand:  # fmt: skip
        first = given[0].system_properties
        encodings = {one.system_properties.body_encoding == Encoding.GZIP for one in given}
        is_half = kind == MessageTypeV2.TRANSACTION
        if len(given) > 1 and (len(encodings) > 1 or kind not in (MessageTypeV2.NORMAL, MessageTypeV2.FIFO)):
            raise StatusError(
                Code.INTERNAL_SERVER_ERROR, "several messages at once are NORMAL or FIFO, all compressed or none"
            )
        flag = SYS_FLAG_COMPRESSED if encodings.pop() else 0
        texts = [encode_properties(one) for one in properties]
        groups = {one.system_properties.message_group for one in given}
        group = groups.pop() if len(groups) == 1 else ""
        queues = topic.write_queue_nums
        queue_id = messages.queue_of_group(group, queues) if group else next(self._turns) % queues
        body, own = given[0].body, texts[0].decode("utf-8")
        if len(given) > 1:
            own = ""
            body = b"".join(_item(one.body, text) for one, text in zip(given, texts, strict=True))
        born = messages.milliseconds(first.born_timestamp) or self._service.broker.clock()
        header = headers.SendMessage(
            producer_group=topic.name, topic=topic.name, default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=_DEFAULT_QUEUES, queue_id=queue_id, born_timestamp=born, flag=0, properties=own,
            sys_flag=flag | (TRANSACTION_PREPARED if is_half else 0), reconsume_times=0, unit_mode=False,
            batch=len(given) > 1,
        )  # fmt: skip
        return await self._service.ask(client, RequestCode.SEND_MESSAGE, header, body)

    async def end_transaction(self, request: Any, client: GrpcClient) -> Any:
        """Commit a half message or roll it back."""
        topic, transaction_id = topic_of(request.topic), str(request.transaction_id)
        if not transaction_id.strip():
            raise StatusError(Code.INVALID_TRANSACTION_ID, "transaction id cannot be blank")
        half = self._halves.find(transaction_id, topic)
        how = _RESOLUTIONS.get(request.resolution, TRANSACTION_NONE)
        header = headers.EndTransaction(
            topic=topic, producer_group=topic,
            tran_state_table_offset=half.queue_offset, commit_log_offset=half.physical_offset, commit_or_rollback=how,
            from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
            msg_id=request.message_id, transaction_id=transaction_id,
        )  # fmt: skip
        require_success(await self._service.ask(client, RequestCode.END_TRANSACTION, header))
        if how != TRANSACTION_NONE:
            self._halves.end(transaction_id)
        return v2.EndTransactionResponse(status=OK)

    async def recall(self, request: Any, client: GrpcClient) -> Any:
        """Have a timed message not delivered, if its time has not come."""
        name = topic_of(request.topic)
        topic = self._service.broker.topics.find(name)
        kind = "UNSPECIFIED" if topic is None else messages.type_of_topic(topic)
        messages.require_type(kind, MessageTypeV2.DELAY.name)
        header = headers.RecallMessage(producer_group=name, topic=name, recall_handle=str(request.recall_handle))
        answer = await self._service.ask(client, RequestCode.RECALL_MESSAGE, header)
        return v2.RecallMessageResponse(status=OK, message_id=require_success(answer).fields["msgId"])


def _item(body: bytes, properties: bytes) -> bytes:
    """Return one message of a batch (MessageDecoder#encodeMessage)."""
    if len(properties) > _LONGEST_PROPERTIES:
        raise StatusError(Code.MESSAGE_PROPERTIES_TOO_LARGE, "the properties of a message are too large")
    size = _ITEM.size + len(body) + _LENGTH.size + len(properties)
    return _ITEM.pack(size, 0, 0, 0, len(body)) + body + _LENGTH.pack(len(properties)) + properties


def _sent(given: Sequence[Any], answer: RemotingCommand) -> Any:
    status = status_of_answer(answer)
    if answer.code != ResponseCode.SUCCESS:
        status = status_of(status.code, f"send message failed, sendStatus={ResponseCode(answer.code).name}")
    fields = answer.fields
    # of several messages, which are one of the store's puts, there is one
    entry = v2.SendResultEntry(
        status=status,
        message_id=",".join(one.system_properties.message_id for one in given),
        transaction_id=fields.get("transactionId", ""),
        offset=int(fields.get("queueOffset", "0")),
        recall_handle=fields.get("recallHandle", ""),
    )
    return v2.SendMessageResponse(status=status, entries=[entry])
