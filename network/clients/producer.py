"""Sends messages: which queue, what is tried again, what a send gives (DefaultMQProducerImpl)."""

from __future__ import annotations

import itertools
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.compression import compress
from rmqctl.formats.errors import RemoteError, UsageError
from rmqctl.formats.hosts import parse_offset_message_id
from rmqctl.formats.java_map import BUILT, in_java_order
from rmqctl.formats.layouts import COMPRESSION_SHIFT, SYS_FLAG_COMPRESSED
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.properties import encode_properties
from rmqctl.formats.sys_flag import COMPRESSION_ZLIB, TRANSACTION_PREPARED
from rmqctl.network.clients.channel import Dial
from rmqctl.network.clients.client import SECONDS, BrokerError, Client, texts
from rmqctl.network.clients.frames_of import messages_of
from rmqctl.network.clients.request_reply import Requests, reply_to
from rmqctl.network.clients.sockets import SocketChannel
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue
from rmqctl.network.topic_config import MESSAGE_TYPE, REPLY
from rmqctl.network.unique_ids import UniqueIds

DEFAULT_TOPIC = "TBW102"
_DEFAULT_QUEUES = 4
_ATTEMPTS = 3
_COMPRESSED_FROM = 4096
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
# DefaultMQProducer#retryResponseCodes
_TRY_AGAIN = (17, 14, 1, 2, 16, 204, 205, 1500)
# MQVersion.V5_0_0
_TIMER_VERSION = 413
_BATCH_HEAD = struct.Struct(">iiiii")
_BATCH_LENGTH = struct.Struct(">h")


class SendResult(NamedTuple):
    """What a broker said of a message. `status`: SEND_OK, or what was not made sure of. `unique_key`: the client's own
    id; `message_ids`: the broker's, one for each message of a batch."""

    status: str
    unique_key: str
    message_ids: tuple[str, ...]
    queue: MessageQueue
    queue_offset: int


_STATUSES = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
}

Decide = Callable[[Message], bool | None]
"""What becomes of a transaction: True to commit, False to roll back, None if that is not known yet."""


class Producer:
    """A producer of one group. A context manager; may be used by many threads at once.

    Messages are those that a store takes: what a producer does not set is left alone. Bodies from 4096 bytes on are
    compressed, every message gets a unique id.
    """

    def __init__(self, namesrv: str, group: str = "rmqctl", dial: Dial = SocketChannel) -> None:
        """`namesrv`: addresses of name servers, separated by `;`."""
        self.group = group
        self._client = Client(namesrv, dial, self._asked)
        self._ids = UniqueIds()
        self._identifying = threading.Lock()
        # a turn of its own for each topic, begun anywhere
        self._turns: dict[str, Iterator[int]] = {}
        self._decide: Decide | None = None
        self._requests = Requests()
        self._is_known = False

    # ---- sending

    def send(self, message: Message, queue: MessageQueue | None = None, *, seconds: float = SECONDS) -> SendResult:
        """Send a message and wait for the answer; three attempts on different brokers within `seconds` in all, one if
        the queue is given. RemoteError, UsageError."""
        return self._send([message], queue, seconds, is_batch=False)

    def send_batch(self, messages: Sequence[Message], *, seconds: float = SECONDS) -> SendResult:
        """Send messages of one topic as one batch: all of them are stored, or none."""
        if len({message.topic for message in messages}) != 1:
            raise UsageError("the messages of a batch must have one topic, and there must be some")
        return self._send(messages, None, seconds, is_batch=True)

    def send_soon(self, message: Message, queue: MessageQueue | None = None) -> Future[SendResult]:
        """Send a message; the result comes with the future. One attempt. RemoteError if it cannot even be sent."""
        queue = queue or self._queue(message.topic, None)
        address, request, unique_key = self._request([message], queue, is_batch=False)
        result: Future[SendResult] = Future()

        def answered(done: Future[RemotingCommand]) -> None:
            try:
                result.set_result(_result(address, done.result(), unique_key, queue))
            except RemoteError as error:
                result.set_exception(error)

        self._client.connection(address).submit(request).add_done_callback(answered)
        return result

    def send_oneway(self, message: Message, queue: MessageQueue | None = None) -> None:
        """Send a message without an answer."""
        address, request, _ = self._request([message], queue or self._queue(message.topic, None), is_batch=False)
        self._client.connection(address).oneway(request)

    def require_timer(self, topic: str) -> None:
        """RemoteError where a broker that `topic` may be sent to knows no delivery times, and would deliver at once."""
        route = self._client.route(topic) or self._client.route(DEFAULT_TOPIC)
        for queue in {queue.broker_name: queue for queue in self.queues(topic)}.values():
            address = route.addresses[queue.broker_name] if route is not None else ""
            fields = {"topic": topic, "queueId": 0}
            if self._client.ask(address, RequestCode.GET_MAX_OFFSET, fields).version < _TIMER_VERSION:
                raise RemoteError(
                    f"broker {queue.broker_name!r} at {address} is older than 5.0: it would deliver at once",
                    hint="delay levels (--delay) work with every broker",
                )

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Queues of a topic that can be written to; those that it would get, if it is not there yet. RemoteError where
        there are none."""
        route = self._client.route(topic)
        if route is None:
            default = self._client.route(DEFAULT_TOPIC)
            if default is not None:
                return tuple(
                    queue._replace(topic=topic) for queue in default.writable if queue.queue_id < _DEFAULT_QUEUES
                )
        if route is None or not route.writable:
            raise RemoteError(
                f"no broker takes messages for topic {topic!r}",
                hint="create the topic, or look whether the broker serves for reading only",
            )
        return route.writable

    def _queue(self, topic: str, last_broker: str | None) -> MessageQueue:
        """The next queue in turn, of another broker than the last one if there is one."""
        queues = self.queues(topic)
        turn = self._turns.setdefault(topic, itertools.count(random.randrange(1 << 20)))
        for _ in queues:
            queue = queues[next(turn) % len(queues)]
            if queue.broker_name != last_broker:
                return queue
        return queues[next(turn) % len(queues)]

    def _send(
        self, messages: Sequence[Message], queue: MessageQueue | None, seconds: float, *, is_batch: bool
    ) -> SendResult:
        until = time.monotonic() + seconds
        last: str | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            chosen = queue or self._queue(messages[0].topic, last)
            last = chosen.broker_name
            left = until - time.monotonic()
            try:
                address, request, unique_key = self._request(messages, chosen, is_batch=is_batch)
                answer = self._client.connection(address).request(request, max(left, 0.001))
                return _result(address, answer, unique_key, chosen)
            except RemoteError as error:
                is_over = attempt == _ATTEMPTS or queue is not None or time.monotonic() >= until
                if is_over or (isinstance(error, BrokerError) and error.answer_code not in _TRY_AGAIN):
                    raise
                self._client.route(messages[0].topic, anew=True)
        raise AssertionError("the last attempt returns or raises")

    def _request(
        self, messages: Sequence[Message], queue: MessageQueue, *, is_batch: bool
    ) -> tuple[str, RemotingCommand, str]:
        """Where to send, what, and the unique id."""
        first = messages[0]
        route = self._client.route(queue.topic) or self._client.route(DEFAULT_TOPIC)
        address = route.addresses.get(queue.broker_name) if route is not None else None
        if address is None:
            raise RemoteError(f"no name server knows broker {queue.broker_name!r}")
        if is_batch:
            body = b"".join(_batch_item(self._identified(one)) for one in messages)
            whole = self._identified(Message(first.topic, b""))
            properties = dict(whole.properties)
            sys_flag = 0
        else:
            prepared = _compressed(self._identified(first))
            body, properties, sys_flag = prepared.body, dict(prepared.properties), prepared.sys_flag
        encoded = encode_properties(in_java_order(properties, BUILT)).decode("utf-8")
        fields: dict[str, Any] = {
            "a": self.group, "b": queue.topic, "c": DEFAULT_TOPIC, "d": _DEFAULT_QUEUES, "e": queue.queue_id,
            "f": sys_flag, "g": first.born_timestamp or time.time_ns() // 1_000_000, "h": first.flag, "i": encoded,
            "j": first.reconsume_times, "k": False, "m": is_batch, "n": queue.broker_name,
        }  # fmt: skip
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        if properties.get(MESSAGE_TYPE) == REPLY:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return address, RemotingCommand(code, texts(fields), body), properties[names.UNIQUE_KEY]

    def _identified(self, message: Message) -> Message:
        if message.property_bytes is not None:
            message = message._replace(
                properties=names.parse_properties(bytes(message.property_bytes)), property_bytes=None
            )
        with self._identifying:
            message = self._ids.given_to(message)
        return message._replace(properties={names.WAIT: "true", **message.properties})

    # ---- requests and replies

    def request(self, message: Message, *, seconds: float = SECONDS) -> Message:
        """Send a message that wants a reply, and return the reply of its consumer. RemoteError if none comes within
        `seconds`."""
        until = time.monotonic() + seconds
        asking, correlation_id, reply = self._requests.asking(message, self._client.client_id, seconds)
        try:
            # brokers push the reply to a producer that they know
            self.queues(message.topic)
            self._known()
            self.send(asking, seconds=seconds)
            return reply.result(max(0.0, until - time.monotonic()))
        except FutureTimeoutError:
            raise RemoteError(
                f"the message to {message.topic!r} is sent, but no consumer has replied within {seconds:g} s",
                hint="a consumer of the topic has to send a reply: Producer.reply, or MessageUtil.createReplyMessage",
            ) from None
        finally:
            self._requests.forget(correlation_id)

    def reply(self, request: StoredMessage, body: bytes) -> SendResult:
        """Reply to a message that was consumed. UsageError if it wants no reply; BrokerError where the one who asked is
        gone."""
        return self.send(reply_to(request, body))

    # ---- transactions

    def answer_checks(self, decide: Decide) -> None:
        """From now on tell brokers that ask what becomes of transactions; `decide` is called in a thread of the
        connection with the message, and must not wait for this producer."""
        self._decide = decide
        self._known()

    def send_in_transaction(self, message: Message, decide: Decide) -> SendResult:
        """Send a message that nobody sees, call `decide`, and end the transaction as that says. With None the broker
        asks later: see `answer_checks`."""
        self._known()
        properties = {**message.properties, "TRAN_MSG": "true", "PGROUP": self.group}
        properties.pop(names.DELAY, None)
        half = message._replace(properties=properties, sys_flag=message.sys_flag | TRANSACTION_PREPARED)
        result = self.send(half)
        outcome = decide(message)
        if outcome is not None and result.message_ids:
            self._end(result.queue.broker_name, outcome, result)
        return result

    def _known(self) -> None:
        """Let the brokers know the group: they ask its members."""
        if not self._is_known:
            self._is_known = True
            self._client.start_heartbeats({"consumerDataSet": [], "producerDataSet": [{"groupName": self.group}]})

    def _end(self, broker: str, outcome: bool, result: SendResult) -> None:
        route = self._client.route(result.queue.topic, anew=True)
        if route is None or broker not in route.addresses:
            raise RemoteError(f"no name server knows broker {broker!r}: the transaction waits for its end")
        offset = parse_offset_message_id(result.message_ids[0])[1]
        self._end_at(route.addresses[broker], outcome, offset, result.queue_offset, result.unique_key, is_asked=False)

    def _end_at(
        self, address: str, outcome: bool, offset: int, queue_offset: int, unique_key: str, *, is_asked: bool
    ) -> None:
        fields = {
            "producerGroup": self.group, "commitLogOffset": offset, "tranStateTableOffset": queue_offset,
            "commitOrRollback": 8 if outcome else 12, "fromTransactionCheck": is_asked, "msgId": unique_key,
            "transactionId": unique_key,
        }  # fmt: skip
        command = RemotingCommand(RequestCode.END_TRANSACTION, texts(fields))
        self._client.connection(address).oneway(command)

    def _asked(self, address: str, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return self._requests.received(command)
        if command.code != RequestCode.CHECK_TRANSACTION_STATE or self._decide is None:
            return None
        (message,) = messages_of(command.body)
        outcome = self._decide(
            Message(message.topic, message.plain_body(), message.queue_id, message.flag, message.properties())
        )
        if outcome is not None:
            offset, queue_offset = int(command.fields["commitLogOffset"]), int(command.fields["tranStateTableOffset"])
            self._end_at(address, outcome, offset, queue_offset, command.fields.get("msgId", ""), is_asked=True)
        return None

    def close(self) -> None:
        """End it."""
        self._client.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _compressed(message: Message) -> Message:
    if len(message.body) < _COMPRESSED_FROM or message.sys_flag & SYS_FLAG_COMPRESSED:
        return message
    flags = SYS_FLAG_COMPRESSED | COMPRESSION_ZLIB << COMPRESSION_SHIFT
    return message._replace(body=compress(message.body, COMPRESSION_ZLIB), sys_flag=message.sys_flag | flags)


def _batch_item(message: Message) -> bytes:
    """One message of a batch (MessageDecoder#encodeMessage)."""
    properties = encode_properties(in_java_order(message.properties, BUILT))
    size = _BATCH_HEAD.size + len(message.body) + _BATCH_LENGTH.size + len(properties)
    head = _BATCH_HEAD.pack(size, 0, 0, message.flag, len(message.body))
    return head + message.body + _BATCH_LENGTH.pack(len(properties)) + properties


def _result(address: str, answer: RemotingCommand, unique_key: str, queue: MessageQueue) -> SendResult:
    if answer.code not in _STORED:
        raise BrokerError.of(address, answer)
    return SendResult(
        _STATUSES[ResponseCode(answer.code)],
        answer.fields.get("transactionId", unique_key),
        tuple(filter(None, answer.fields.get("msgId", "").split(","))),
        queue._replace(queue_id=int(answer.fields["queueId"])),
        int(answer.fields["queueOffset"]),
    )
