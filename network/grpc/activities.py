"""Messages that gRPC consumers get and are done with, and those that gRPC producers send.

(ReceiveMessageActivity, AckMessageActivity, SendMessageActivity)
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.message import parse_offset_message_id
from rmqctl.formats.properties import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    encode_properties,
)
from rmqctl.network.broker.members import filter_of
from rmqctl.network.grpc import messages
from rmqctl.network.grpc.clients import GrpcClient, max_attempts
from rmqctl.network.grpc.messages import message_of, milliseconds
from rmqctl.network.grpc.pops import Pops, ReceiptHandle, none_found, parse_receipt_handle
from rmqctl.network.grpc.protocol import Code, Encoding, MessageTypeV2, TransactionResolution, TransactionSource, v2
from rmqctl.network.grpc.service import (
    OK,
    GrpcBroker,
    StatusError,
    filter_kind,
    group_of,
    require_success,
    status_of,
    status_of_answer,
    topic_of,
)
from rmqctl.network.remoting import headers, pop_headers
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import CheckTransactionState
from rmqctl.network.remoting.requests import ANY_QUEUE, RequestError
from rmqctl.network.topic_config import DEFAULT_TOPIC, TopicConfig
from rmqctl.store.pop.records import MOST_AT_ONCE
from rmqctl.store.read.filter import SQL92

_SHORTEST_POLL_MS, _LONGEST_POLL_MS = 5_000, 20_000
# from this version on clients know the code for too short a deadline
_KNOWS_POLLING_TIME = "5.0.3"
_SHORTEST_INVISIBLE_MS, _LONGEST_INVISIBLE_MS = 10_000, 43_200_000
_RENEWED_INVISIBLE_MS = 60_000
_FROM_LAST = 1
_NACK_MS = 1000
_MOST_ENTRIES = 10_000
# an answer has to be on its way before the client gives up
_BEFORE_DEADLINE_MS = 200
# bytes of messages that are on their way to clients, of all together
_MOST_ON_THEIR_WAY = 256 * 1024 * 1024


class Consuming:
    """What consumers ask."""

    def __init__(self, service: GrpcBroker, pops: Pops) -> None:
        self._service = service
        self._broker = service.broker
        self._pops = pops
        self._renewals = Renewals(service, pops)
        self._on_their_way = 0

    # ---- messages go out

    async def receive(self, request: Any, client: GrpcClient, seconds: float | None) -> AsyncGenerator[Any, None]:
        """Yield a status, messages, and when that was. `seconds`: what is left of the call's time."""
        group, topic = group_of(request.group), topic_of(request.message_queue.topic)
        kind, expression = filter_kind(request.filter_expression), request.filter_expression.expression or "*"
        try:
            wanted = filter_of(kind, expression)
        except UsageError as error:
            # as at RocketMQ's proxy, which leaves SQL92 to its broker
            is_sql = kind == SQL92 and request.filter_expression.expression
            code = Code.INTERNAL_SERVER_ERROR if is_sql else Code.ILLEGAL_FILTER_EXPRESSION
            raise StatusError(code, str(error)) from error
        if self._broker.topics.find(topic) is None:
            raise StatusError(Code.INTERNAL_SERVER_ERROR, f"topic {topic} does not exist")
        poll = _poll_time(request, client, seconds)
        invisible = _RENEWED_INVISIBLE_MS
        if not request.auto_renew:
            invisible = milliseconds(request.invisible_duration)
            _require_invisible(invisible)
        if self._on_their_way > _MOST_ON_THEIR_WAY:
            raise StatusError(Code.TOO_MANY_REQUESTS, "too many messages are on their way to clients that do not read")
        if request.batch_size <= 0:
            # as at RocketMQ's proxy, which looks for no message until the time is over
            await asyncio.sleep(poll / 1000)
            raise none_found()
        settings = self._broker.group(group)
        header = pop_headers.PopRequest(
            consumer_group=group, topic=topic, queue_id=ANY_QUEUE, poll_time=poll, born_time=self._broker.clock(),
            order=settings["consumeMessageOrderly"] is True, attempt_id=request.attempt_id or None, exp_type=kind,
            exp=expression, max_msg_nums=min(request.batch_size, MOST_AT_ONCE), invisible_time=invisible,
            init_mode=_FROM_LAST,
        )  # fmt: skip
        left = deque(await self._pops.pop(client, header))
        size = sum(stored.total_size for stored, _ in left)
        self._on_their_way += size
        try:
            has_begun = False
            while left:
                stored, handle = left[0]
                properties = stored.properties()
                if not wanted.matches_properties(properties):
                    await self._pops.acknowledge(client, group, topic, handle)
                elif stored.reconsume_times >= max_attempts(settings):
                    await self._pops.forward(client, group, topic, handle)
                else:
                    if not has_begun:
                        has_begun = True
                        yield v2.ReceiveMessageResponse(status=OK)
                    if request.auto_renew:
                        self._renewals.note(client, group, topic, handle)
                    yield v2.ReceiveMessageResponse(message=message_of(stored, properties, topic, handle.text))
                left.popleft()
            if not has_begun:
                raise StatusError(Code.MESSAGE_NOT_FOUND, "no match message")
        finally:
            self._on_their_way -= size
            for _, handle in left:
                # the client is gone: another one gets it soon
                self._service.spawn(self._pops.change(client, group, topic, handle, _NACK_MS))

    async def renew(self) -> None:
        """Renew what is due, from time to time."""
        await self._renewals.step()

    def gone(self, client: GrpcClient) -> None:
        """A client is gone: others get what it had."""
        self._renewals.gone(client)

    # ---- messages are done with

    async def acknowledge(self, request: Any, client: GrpcClient) -> Any:
        """Messages are done with, each by its handle."""
        group, topic = group_of(request.group), topic_of(request.topic)
        if len(request.entries) > _MOST_ENTRIES:
            raise StatusError(Code.BAD_REQUEST, f"more than {_MOST_ENTRIES} entries")
        entries = []
        for entry in request.entries:
            status = OK
            try:
                handle = await self._renewals.take(group, entry.receipt_handle)
                if self._pops.is_outstanding(handle, group, topic):
                    await self._pops.acknowledge(client, group, topic, handle)
            except (StatusError, RequestError) as error:
                status = self._service.failed("AckMessage", error)
            entries.append(
                v2.AckMessageResultEntry(
                    message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
                )
            )
        return v2.AckMessageResponse(status=_of_all([entry.status for entry in entries]), entries=entries)

    async def change_invisible(self, request: Any, client: GrpcClient) -> Any:
        """A message stays invisible for another time from now on, and has another handle."""
        group, topic = group_of(request.group), topic_of(request.topic)
        wanted = milliseconds(request.invisible_duration)
        _require_invisible(wanted, shortest=0)
        handle = await self._renewals.take(group, request.receipt_handle)
        if not self._pops.is_outstanding(handle, group, topic):
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, "the message is acknowledged")
        handle = await self._pops.change(client, group, topic, handle, wanted, suspend=request.suspend)
        return v2.ChangeInvisibleDurationResponse(status=OK, receipt_handle=handle.text)

    async def forward(self, request: Any, client: GrpcClient) -> Any:
        """A consumer gives a message up."""
        group, topic = group_of(request.group), topic_of(request.topic)
        handle = await self._renewals.take(group, request.receipt_handle)
        if self._pops.is_outstanding(handle, group, topic):
            await self._pops.forward(client, group, topic, handle)
        return v2.ForwardMessageToDeadLetterQueueResponse(status=OK)


def _of_all(statuses: Sequence[Any]) -> Any:
    """Return the status of an answer with several entries."""
    codes = {status.code for status in statuses}
    if len(codes) > 1:
        return status_of(Code.MULTIPLE_RESULTS, "mixed results")
    return status_of(codes.pop()) if codes else status_of(Code.INTERNAL_SERVER_ERROR, "there are no entries")


def _require_invisible(milliseconds: int, shortest: int = _SHORTEST_INVISIBLE_MS) -> None:
    if milliseconds < shortest:
        raise StatusError(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {shortest}")
    if milliseconds > _LONGEST_INVISIBLE_MS:
        raise StatusError(
            Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {_LONGEST_INVISIBLE_MS}"
        )


def _poll_time(request: Any, client: GrpcClient, seconds: float | None) -> int:
    """Return for how long a call may wait (ms). `seconds`: what is left of its time."""
    left = None if seconds is None else int(seconds * 1000)
    if request.HasField("long_polling_timeout") or left is None:
        wanted = milliseconds(request.long_polling_timeout)
    else:
        wanted = left - (0 if client.settings is None else milliseconds(client.settings.request_timeout) // 2)
    wanted = min(max(wanted, _SHORTEST_POLL_MS), _LONGEST_POLL_MS)
    if left is None or wanted <= left:
        return wanted
    if left < _SHORTEST_POLL_MS:
        is_known = client.version >= _KNOWS_POLLING_TIME
        raise StatusError(
            Code.ILLEGAL_POLLING_TIME if is_known else Code.BAD_REQUEST,
            "The deadline time remaining is not enough for polling, please check network condition",
        )
    return left - _BEFORE_DEADLINE_MS


# Messages that clients want for as long as they work on them: invisible for longer before their time is over.
#
# (DefaultReceiptHandleManager, RenewStrategyPolicy)
_AHEAD_MS = 10_000
_MINUTE_MS = 60_000
# how long each renewal is for
_MINUTES = (1, 3, 5, 10, 30, 60)
_LONGEST_MS = 3 * 60 * _MINUTE_MS
_MOST_FAILURES = 3
_MOST = 100_000
# what a client that is gone had is for others soon
_GONE_MS = 1000


class _Renewed:
    """A message that a client has, with its handle of now."""

    def __init__(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        self.client, self.group, self.topic, self.handle = client, group, topic, handle
        self.popped_at = handle.pop.popped_at
        self.times = self.failures = 0
        self.task: asyncio.Task[None] | None = None


class Renewals:
    """Messages by the handles that clients were given."""

    def __init__(self, service: GrpcBroker, pops: Pops) -> None:
        self._service = service
        self._pops = pops
        self._renewed: dict[tuple[str, str], _Renewed] = {}

    def note(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        """A client is given a message. Beyond a bound, none is renewed: they come again after their time."""
        if len(self._renewed) < _MOST:
            self._renewed[group, handle.text] = _Renewed(client, group, topic, handle)

    async def take(self, group: str, text: str) -> ReceiptHandle:
        """Return the handle of now of a message, given the client's, and renew it no more. Raises: StatusError."""
        found = self._renewed.pop((group, text), None)
        if found is None:
            return parse_receipt_handle(text)
        if found.task is not None:
            await asyncio.wait([found.task])
        return found.handle

    async def step(self) -> None:
        """Renew what is over soon, and forget what is over."""
        now = self._service.broker.clock()
        due = [(key, one) for key, one in self._renewed.items() if one.handle.expires_at - now < _AHEAD_MS]
        for key, one in due:
            is_over = one.handle.expires_at <= now or now - one.popped_at >= _LONGEST_MS
            if is_over or one.failures >= _MOST_FAILURES:
                self._renewed.pop(key, None)
            elif key in self._renewed:
                one.task = asyncio.create_task(self._renew(one))
                await asyncio.wait([one.task])
                one.task = None

    async def _renew(self, one: _Renewed) -> None:
        time = _MINUTES[min(one.times, len(_MINUTES) - 1)] * _MINUTE_MS
        try:
            if self._pops.is_outstanding(one.handle, one.group, one.topic):
                one.handle = await self._change(one, time)
            one.times += 1
        except (StatusError, RequestError):
            one.failures += 1

    def _change(self, one: _Renewed, milliseconds: int) -> Any:
        return self._pops.change(one.client, one.group, one.topic, one.handle, milliseconds)

    def gone(self, client: GrpcClient) -> None:
        """A client is gone: others get what it had."""
        for key in [key for key, one in self._renewed.items() if one.client is client]:
            self._service.spawn(self._change(self._renewed.pop(key), _GONE_MS))


# Messages that gRPC producers send, the ends of their transactions, and what they take back (SendMessageActivity).

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
_RESOLUTIONS = {TransactionResolution.COMMIT: TRANSACTION_COMMIT, TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK}


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
