"""Sends messages: which queue, what is tried again, what a send gives (DefaultMQProducerImpl)."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from queue import SimpleQueue

from rmqctl.formats import properties as names
from rmqctl.formats.compression import decompress
from rmqctl.formats.errors import CorruptError, RemoteError, UsageError
from rmqctl.formats.message import Message, StoredMessage, parse_offset_message_id
from rmqctl.formats.properties import compression_type
from rmqctl.network.clients.channel import Dial, SocketChannel, messages_of
from rmqctl.network.clients.client import Client, Warn, log_warning, namespace_of, with_namespace, without_namespace
from rmqctl.network.clients.hooks import EndTransactionContext, ProducerHooks
from rmqctl.network.clients.producing.requests import Outgoing, OutgoingRequests, SendResult
from rmqctl.network.clients.producing.routing import Select
from rmqctl.network.clients.producing.sender import Sender
from rmqctl.network.clients.producing.settings import (
    Lifecycle,
    ProducerSettings,
    ServiceState,
    check_batch,
    check_group,
    check_message,
    check_topic,
)
from rmqctl.network.clients.tracing import (
    EndTransactionTrace,
    SendTrace,
    TraceDispatcher,
    TraceOptions,
    trace_group,
    trace_settings,
)
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import request
from rmqctl.network.topic_config import (
    CORRELATION_ID,
    DEFAULT_TOPIC,
    MESSAGE_TYPE,
    REPLY,
    REPLY_TO_CLIENT,
    TIME_TO_LIVE,
    reply_topic,
)

# Request and reply: a message that wants an answer, and the answer that a broker pushes to the one who asked
# (RequestFutureHolder, MessageUtil).


class Requests:
    """Requests of one client that wait for their replies. May be used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Future[Message]] = {}

    def asking(self, message: Message, client_id: str, seconds: float) -> tuple[Message, str, Future[Message]]:
        """Return `message` as one that wants a reply, the id that ties both, and the future of the reply."""
        correlation_id, future = str(uuid.uuid4()), Future[Message]()
        more = {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: client_id, TIME_TO_LIVE: str(int(seconds * 1000))}
        with self._lock:
            self._waiting[correlation_id] = future
        return message._replace(properties={**message.properties, **more}), correlation_id, future

    def forget(self, correlation_id: str) -> None:
        """Wait no longer for a reply."""
        with self._lock:
            self._waiting.pop(correlation_id, None)

    def received(self, command: RemotingCommand) -> RemotingCommand:
        """Take a reply that a broker pushes (326), and return what the broker is answered."""
        try:
            header = headers.PushReply.decode(command.fields)
            properties = names.parse_properties(header.properties.encode("utf-8", "surrogatepass"))
            kind = compression_type(header.sys_flag)
            body = command.body if kind is None else decompress(command.body, kind)
            reply = Message(header.topic, body, header.queue_id, header.flag, properties)
        except (CorruptError, UnicodeDecodeError) as error:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"process reply message fail: {error}")
        with self._lock:
            future = self._waiting.pop(properties.get(CORRELATION_ID, ""), None)
        if future is not None:
            future.set_result(reply)
        return RemotingCommand(ResponseCode.SUCCESS)


def reply_to(request: Message | StoredMessage, body: bytes) -> Message:
    """Return the reply to a message that wants one (MessageUtil#createReplyMessage). UsageError for another message."""
    given = request.properties() if isinstance(request, StoredMessage) else request.properties
    cluster = given.get("CLUSTER")
    if cluster is None or REPLY_TO_CLIENT not in given:
        raise UsageError(f"the message wants no reply: it has no CLUSTER or no {REPLY_TO_CLIENT} property")
    kept = {name: given[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TIME_TO_LIVE) if name in given}
    return Message(reply_topic(cluster), body, properties={MESSAGE_TYPE: REPLY, **kept})


# MQVersion.V5_0_0
_TIMER_VERSION = 413
_DEFAULT_INSTANCE = "DEFAULT"
_SETTINGS = ProducerSettings()
_SENT = "SEND_OK"
# LocalTransactionState
_STATES = {True: "COMMIT_MESSAGE", False: "ROLLBACK_MESSAGE", None: "UNKNOW"}

Decide = Callable[[Message], bool | None]
"""What becomes of a transaction: True to commit, False to roll back, None if that is not known yet."""


class Producer:
    """A producer of one group. A context manager, which starts and ends it; may be used by many threads at once.

    Messages are those that a store takes: what a producer does not set is left alone. Where a queue may be given, a
    selector may be, too (rmqctl.network.clients.producing.routing).
    """

    def __init__(
        self,
        namesrv: str,
        group: str = "rmqctl",
        dial: Dial = SocketChannel,
        settings: ProducerSettings = _SETTINGS,
        warn: Warn = log_warning,
    ) -> None:
        """`namesrv`: addresses of name servers, separated by `;`; one as `http://MQ_INST_user_name.host:port` has the
        namespace of a producer without one in its settings. `warn` gets a line for a hook that fails, and for
        traces that are lost."""
        settings = settings._replace(namespace=settings.namespace or namespace_of(namesrv))
        self.group = with_namespace(settings.namespace, group)
        self.settings = settings
        self._warn = warn
        instance = "" if settings.instance_name == _DEFAULT_INSTANCE else settings.instance_name
        self._client = Client(namesrv, dial, self._asked, instance=instance, unit=settings.unit_name)
        # servers of this process have no address of their own: their owner tells them apart
        self._key: Hashable = (
            namesrv,
            getattr(dial, "__self__", None),
            settings.instance_name,
            settings.unit_name,
            self.group,
        )
        self._lifecycle = Lifecycle()
        self._prepared = OutgoingRequests(self.group, settings)
        self.hooks = ProducerHooks(self.group, settings.namespace, warn)
        """Hooks: append to its lists before sending."""
        self._sender = Sender(self._client, settings, self._prepared, self.hooks)
        self._trace: TraceDispatcher | None = None
        if settings.enable_trace:
            self._trace = trace_dispatcher(namesrv, self.group, "PRODUCE", dial, TraceOptions.of(settings), warn)
            self.hooks.sending.append(SendTrace(self._trace, settings.namespace))
            self.hooks.ending.append(EndTransactionTrace(self._trace, settings.namespace))
        self._decide: Decide | None = None
        self._checks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._requests = Requests()

    # ---- life cycle

    @property
    def state(self) -> ServiceState:
        """State of the producer."""
        return self._lifecycle.state

    def start(self) -> None:
        """Start it: from now on brokers know it, and it may send. No server is asked yet.

        Raises: UsageError for a group that no producer may have; RefusedError where it was started before, or another
        producer of the group runs in this process.
        """

        def checked() -> Hashable:
            check_group(self.group, version=self.settings.client_version)
            return self._key

        self._lifecycle.start(checked, self.group)
        content = {"consumerDataSet": [], "producerDataSet": [{"groupName": self.group}]}
        self._client.start_heartbeats(content, self.settings.heartbeat_broker_interval / 1000)
        self._sender.start()
        # a daemon: a decision that takes long must not keep the process from ending
        threading.Thread(target=self._run_checks, name=f"checks-{self.group}", daemon=True).start()
        if self._trace is not None:
            self._trace.start()

    def close(self) -> None:
        """End it: brokers forget it, and nothing can be sent any more. Traces that wait are sent, for 5 s at most."""
        if self._lifecycle.end():
            self._client.unregister(headers.UnregisterClient(producer_group=self.group))
            if self._trace is not None:
                self._trace.close()
        self._checks.put(None)
        self._sender.close()
        self._client.close()

    def __enter__(self) -> Producer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- sending

    def send(
        self, message: Message, queue: MessageQueue | Select | None = None, *, seconds: float | None = None
    ) -> SendResult:
        """Send a message and wait for the answer: some attempts on different brokers within `seconds` in all
        (sendMsgTimeout if None), one if the queue is given or selected. RemoteError, UsageError, RefusedError."""
        outgoing = self._outgoing(message)
        return self._sender.send(outgoing, self._chosen(outgoing, queue), self._seconds(seconds))

    def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | Select | None = None, *, seconds: float | None = None
    ) -> SendResult:
        """Send messages of one topic as one batch: all of them are stored, or none. See `batches.split`."""
        self._lifecycle.require_running()
        check_batch(messages)
        for message in messages:
            check_message(message, self.settings.max_message_size)
        outgoing = self._prepared.prepare(messages, is_batch=True)
        if len(outgoing.body) > self.settings.max_message_size:
            raise UsageError(f"the message body size over max value, MAX: {self.settings.max_message_size}")
        return self._sender.send(outgoing, self._chosen(outgoing, queue), self._seconds(seconds))

    def send_soon(
        self, message: Message, queue: MessageQueue | Select | None = None, *, seconds: float | None = None
    ) -> Future[SendResult]:
        """Send a message; the result comes with the future within `seconds`. A broker that is lost is retried with
        another one (retryTimesWhenSendAsyncFailed). Errors of `send` before the first attempt."""
        outgoing = self._outgoing(message)
        return self._sender.send_soon(outgoing, self._chosen(outgoing, queue), self._seconds(seconds))

    def send_oneway(self, message: Message, queue: MessageQueue | Select | None = None) -> None:
        """Send a message without an answer."""
        outgoing = self._outgoing(message)
        self._sender.send_oneway(outgoing, self._chosen(outgoing, queue))

    def _outgoing(self, message: Message) -> Outgoing:
        self._lifecycle.require_running()
        check_message(message, self.settings.max_message_size)
        return self._prepared.prepare([message], is_batch=False)

    def _seconds(self, seconds: float | None) -> float:
        return self.settings.send_msg_timeout / 1000 if seconds is None else seconds

    def _chosen(self, outgoing: Outgoing, queue: MessageQueue | Select | None) -> MessageQueue | None:
        """Return the queue that the caller wants, as brokers know it. UsageError for one of another topic."""
        if callable(queue):
            queue = queue(self.queues(outgoing.message.topic), outgoing.message)
        elif queue is not None and self._named(queue.topic) != outgoing.topic:
            raise UsageError("message's topic not equal mq's topic")
        return None if queue is None else queue._replace(topic=outgoing.topic)

    def require_timer(self, topic: str) -> None:
        """RemoteError where a broker that `topic` may be sent to knows no delivery times, and would deliver at once."""
        publish = self._sender.routes.find(self._named(topic))
        for queue in {queue.broker_name: queue for queue in publish.queues}.values():
            address = publish.addresses[queue.broker_name]
            header = headers.QueueHeader(topic=queue.topic, queue_id=0)
            if self._client.ask(address, RequestCode.GET_MAX_OFFSET, header).version < _TIMER_VERSION:
                raise RemoteError(
                    f"broker {queue.broker_name!r} at {address} is older than 5.0: it would deliver at once",
                    hint="delay levels (--delay) work with every broker",
                )

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Queues of a topic that can be written to; those that it would get, if it is not there yet. RemoteError where
        there are none."""
        self._lifecycle.require_running()
        check_topic(topic)
        found = self._sender.routes.find(self._named(topic)).queues
        return tuple(queue._replace(topic=without_namespace(self.settings.namespace, queue.topic)) for queue in found)

    def _named(self, topic: str) -> str:
        return with_namespace(self.settings.namespace, topic)

    # ---- requests and replies

    def request(self, message: Message, *, seconds: float = 3.0) -> Message:
        """Send a message that wants a reply, and return the reply of its consumer. RemoteError if none comes within
        `seconds`."""
        until = time.monotonic() + seconds
        asking, correlation_id, reply = self._requests.asking(message, self._client.client_id, seconds)
        try:
            # brokers push the reply to a producer that they know
            self.queues(message.topic)
            self._client.beat()
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
        """From now on tell brokers that ask what becomes of transactions; `decide` is called with the message in a
        thread of its own. Where it fails the broker asks again, and `warn` of the producer gets a line."""
        self._lifecycle.require_running()
        self._decide = decide
        self._client.beat()

    def send_in_transaction(self, message: Message, decide: Decide) -> SendResult:
        """Send a message that no consumer gets yet, call `decide`, and end the transaction as that says. With None the
        broker asks later: see `answer_checks`; so it does where `decide` fails, and `warn` of the producer gets a line
        (DefaultMQProducerImpl#sendMessageInTransaction). A message that is not stored safely, which the status of the
        result says, is rolled back without a call."""
        properties = {**message.properties, "TRAN_MSG": "true", "PGROUP": self.group}
        properties.pop(names.DELAY, None)
        half = message._replace(properties=properties)
        result = self.send(half)
        outcome = self._decided(message, decide) if result.status == _SENT else False
        if result.message_ids:
            self._end(half, outcome, result)
        return result

    def _decided(self, message: Message, decide: Decide) -> bool | None:
        try:
            return decide(message)
        except Exception as error:  # noqa: BLE001 - the broker asks later
            said = f"{type(error).__name__}: {error}"
            self._warn(f"the outcome of a transaction is not known, and the broker will ask for it: {said}")
            return None

    def _end(self, half: Message, outcome: bool | None, result: SendResult) -> None:
        broker = result.queue.broker_name
        address = self._sender.routes.address_of(broker)
        if address is None:
            raise RemoteError(f"no name server knows broker {broker!r}: the transaction waits for its end")
        self._run_end_hooks(half, outcome, result.unique_key, address, is_asked=False)
        if outcome is None:
            return
        offset = parse_offset_message_id(result.message_ids[0])[1]
        self._end_at(address, outcome, offset, result.queue_offset, result.unique_key, is_asked=False)

    def _run_end_hooks(
        self, message: Message, outcome: bool | None, unique_key: str, address: str, *, is_asked: bool
    ) -> None:
        state = _STATES[outcome]
        self.hooks.end_transaction(
            EndTransactionContext(self.group, message, unique_key, address, state, is_from_check=is_asked)
        )

    def _end_at(
        self, address: str, outcome: bool, offset: int, queue_offset: int, unique_key: str, *, is_asked: bool
    ) -> None:
        header = headers.EndTransaction(
            producer_group=self.group, commit_log_offset=offset, tran_state_table_offset=queue_offset,
            commit_or_rollback=8 if outcome else 12, from_transaction_check=is_asked, msg_id=unique_key,
            transaction_id=unique_key,
        )  # fmt: skip
        self._client.connection(address).oneway(request(RequestCode.END_TRANSACTION, header))

    def _asked(self, address: str, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return self._requests.received(command)
        if command.code != RequestCode.CHECK_TRANSACTION_STATE or self._decide is None:
            return None
        self._checks.put(partial(self._check, address, command, self._decide))
        return None

    def _run_checks(self) -> None:
        while (check := self._checks.get()) is not None:
            # one that is ended answers nothing more
            if self.state is ServiceState.RUNNING:
                check()

    def _check(self, address: str, command: RemotingCommand, decide: Decide) -> None:
        """Have the outcome of a transaction decided, and tell the broker (checkTransactionState)."""
        try:
            (message,) = messages_of(command.body)
            self._end_checked(address, command, message, decide)
        except Exception as error:  # noqa: BLE001 - the broker asks again
            said = f"{type(error).__name__}: {error}"
            self._warn(f"the check of a transaction failed, and the broker will ask again: {said}")

    def _end_checked(self, address: str, command: RemotingCommand, message: StoredMessage, decide: Decide) -> None:
        topic = without_namespace(self.settings.namespace, message.topic)
        half = Message(topic, message.plain_body(), message.queue_id, message.flag, message.properties())
        outcome = decide(half)
        unique_key = half.properties.get(names.UNIQUE_KEY, message.message_id)
        self._run_end_hooks(half, outcome, unique_key, address, is_asked=True)
        if outcome is not None:
            check = headers.CheckTransactionState.decode(command.fields)
            offset, queue_offset = check.commit_log_offset, check.tran_state_table_offset
            self._end_at(address, outcome, offset, queue_offset, check.msg_id, is_asked=True)


def trace_dispatcher(
    namesrv: str, group: str, kind: str, dial: Dial, options: TraceOptions, warn: Warn
) -> TraceDispatcher:
    """Return the dispatcher of a client's traces, which sends by a producer of its own; `kind`: PRODUCE or CONSUME."""

    def make() -> Producer:
        return Producer(namesrv, trace_group(group, kind), dial, trace_settings(namesrv), warn)

    return TraceDispatcher(make, options, warn)


__all__ = ["DEFAULT_TOPIC", "Decide", "Producer", "ProducerSettings", "SendResult", "trace_dispatcher"]
