"""Clients of the gRPC service: what they say of themselves, and what they are asked on their telemetry streams.

A client is known by its id from its settings on, until it ends or is silent for as long as the broker bears that.
(ClientActivity, GrpcClientSettingsManager)
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import decode_message
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.members import ConsumerData, Heartbeat, subscription_from_bean
from rmqctl.network.grpc.messages import message_of
from rmqctl.network.grpc.protocol import ClientType, Code, v2
from rmqctl.network.grpc.service import OK, From, StatusError, filter_kind, group_of, status_of, topic_of
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode, bean, json_answer
from rmqctl.network.remoting.headers import CheckTransactionState
from rmqctl.network.remoting.requests import RequestError

_CONSUMERS = {ClientType.PUSH_CONSUMER: "CONSUME_PASSIVELY", ClientType.SIMPLE_CONSUMER: "CONSUME_ACTIVELY"}
_LITE = (ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER)
_MOST_CLIENTS = 10_000
_MOST_TOPICS = 1000
_LARGEST_SETTINGS = 256 * 1024
# commands that a client has not read yet, and questions that it has not answered
_MOST_COMMANDS = 256
_LONGEST_POLLING_SECONDS = 20
_BATCH = 32
# CustomizedRetryPolicy: seconds before each retry
_RETRIES = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_LITE_QUOTA, _LONGEST_LITE_TOPIC = 2000, 64
OnCheck = Callable[[str, str, CheckTransactionState], None]
"""Takes the topic and the id of a transaction, and where its half message is from now on."""


class GrpcClient:
    """One client: a Caller that is asked on its telemetry stream, where it has one."""

    def __init__(self, who: From, local_ip: str, on_check: OnCheck) -> None:
        self.client_id = who.client_id
        self.language = who.language.upper() or "OTHER"
        self.version = who.version
        self.remote = who.remote
        self.local_ip = local_ip
        self.settings: Any = None
        self.heard_at = 0
        self.commands: asyncio.Queue[Any] | None = None
        """What its telemetry stream is to send; None without one."""
        self._on_check = on_check
        self._asked: dict[str, tuple[int, Future[RemotingCommand | None]]] = {}

    @property
    def group(self) -> str:
        """The consumer group that it is in; empty for a producer."""
        return "" if self.settings is None else str(self.settings.subscription.group.name)

    # ---- what the broker asks of it

    def _push(self, **command: Any) -> bool:
        """Have the client sent a command; whether there is a way to."""
        if self.commands is None or self.commands.full():
            return False
        self.commands.put_nowait(v2.TelemetryCommand(status=OK, **command))
        return True

    def send(self, command: RemotingCommand) -> None:
        """See Caller. Of what needs no answer these clients know the check of a transaction alone."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        header = CheckTransactionState.decode(command.fields)
        half = decode_message(command.body, 0, len(command.body), None)
        transaction_id = header.transaction_id or header.msg_id
        self._on_check(half.topic, transaction_id, header)
        message = message_of(half, half.properties(), half.topic)
        orphan = v2.RecoverOrphanedTransactionCommand(message=message, transaction_id=transaction_id)
        self._push(recover_orphaned_transaction_command=orphan)

    def ask(self, command: RemotingCommand, seconds: float) -> Future[RemotingCommand | None]:
        """See Caller. In the thread of the loop."""
        future: Future[RemotingCommand | None] = Future()
        if len(self._asked) >= _MOST_COMMANDS:
            raise RequestError(ResponseCode.SYSTEM_BUSY, f"{self.client_id} has too many questions to answer already")
        nonce, is_sent = secrets.token_hex(16), False
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            is_sent = self._push(print_thread_stack_trace_command=v2.PrintThreadStackTraceCommand(nonce=nonce))
        elif command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            stored = decode_message(command.body, 0, len(command.body), None)
            message = message_of(stored, stored.properties(), stored.topic)
            is_sent = self._push(verify_message_command=v2.VerifyMessageCommand(nonce=nonce, message=message))
        if not is_sent:
            future.set_result(None)
            return future
        self._asked[nonce] = command.code, future
        asyncio.get_running_loop().call_later(seconds, self._answered, nonce, None)
        return future

    def _answered(self, nonce: str, answer: RemotingCommand | None) -> None:
        _, future = self._asked.pop(nonce, (0, None))
        if future is not None:
            future.set_result(answer)

    def answered(self, command: Any) -> None:
        """Take an answer of the client's to what it was asked."""
        kind = command.WhichOneof("command")
        nonce = getattr(command, kind).nonce
        asked, _ = self._asked.get(nonce, (0, None))
        if kind == "thread_stack_trace" and asked == RequestCode.GET_CONSUMER_RUNNING_INFO:
            content = bean(jstack=command.thread_stack_trace.thread_stack_trace)
            self._answered(nonce, json_answer(content))
        elif kind == "verify_message_result" and asked == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            results = {Code.OK: "CR_SUCCESS", Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER"}
            result = results.get(command.status.code, "CR_THROW_EXCEPTION")
            content = bean(
                autoCommit=True, consumeResult=result, order=False, remark=command.status.message, spentTimeMills=0
            )
            self._answered(nonce, RemotingCommand(ResponseCode.SUCCESS, body=json.dumps(content).encode()))


class GrpcClients:
    """All clients by their ids, each a member of its groups at the broker as long as it is heard."""

    def __init__(self, broker: Broker, on_check: OnCheck, on_gone: Callable[[GrpcClient], None]) -> None:
        """`on_gone`: called with a client that has ended, or is silent."""
        self._broker = broker
        self._on_check = on_check
        self._on_gone = on_gone
        self._clients: dict[str, GrpcClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, who: From) -> GrpcClient:
        """Return who makes a call; one that said nothing of itself yet is not remembered."""
        found = self._clients.get(who.client_id)
        if found is None:
            return GrpcClient(who, self._broker.identity.host, self._on_check)
        found.remote, found.heard_at = who.remote, self._broker.elapsed()
        return found

    def settle(self, who: From, settings: Any) -> tuple[GrpcClient, Any]:
        """Take the settings that a client sends; return it, and the settings that it is to go by.

        Raises: StatusError.
        """
        if settings.ByteSize() > _LARGEST_SETTINGS:
            raise StatusError(Code.BAD_REQUEST, f"settings are larger than {_LARGEST_SETTINGS} bytes")
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise StatusError(Code.BAD_REQUEST, "there is no publishing or subscription data in client settings")
        if settings.client_type in _LITE:
            raise StatusError(Code.NOT_IMPLEMENTED, "lite topics are not supported")
        if settings.client_type == ClientType.PULL_CONSUMER:
            raise StatusError(Code.INTERNAL_SERVER_ERROR, "pull consumers are not served")
        client = self._clients.get(who.client_id)
        if client is None and len(self._clients) >= _MOST_CLIENTS:
            raise StatusError(Code.TOO_MANY_REQUESTS, f"there are {_MOST_CLIENTS} clients already")
        completed = self._completed(settings)
        client = client or GrpcClient(who, self._broker.identity.host, self._on_check)
        client.settings = completed
        self._clients[who.client_id] = client
        client.remote, client.heard_at = who.remote, self._broker.elapsed()
        self._register(client)
        return client, completed

    def _completed(self, given: Any) -> Any:
        settings = v2.Settings()
        settings.CopyFrom(given)
        settings.metric.Clear()
        settings.metric.SetInParent()
        policy = settings.backoff_policy
        if settings.HasField("publishing"):
            for topic in settings.publishing.topics:
                topic_of(topic)
            policy.max_attempts = 3
            backoff = policy.exponential_backoff
            backoff.initial.FromMilliseconds(10)
            backoff.max.FromSeconds(1)
            backoff.multiplier = 2
            settings.publishing.max_body_size = self._broker.files.config.max_message_size
            settings.publishing.validate_message_type = True
            return settings
        subscription = settings.subscription
        group = self._broker.group(group_of(subscription.group))
        for entry in subscription.subscriptions:
            filter_kind(entry.expression)
        subscription.fifo = group["consumeMessageOrderly"] is True
        subscription.receive_batch_size = _BATCH
        subscription.long_polling_timeout.FromSeconds(_LONGEST_POLLING_SECONDS)
        subscription.lite_subscription_quota, subscription.max_lite_topic_size = _LITE_QUOTA, _LONGEST_LITE_TOPIC
        _set_backoff(policy, group)
        return settings

    def heartbeat(self, client: GrpcClient) -> None:
        """A client is there. Raises: StatusError for one whose settings are not known, which sends them then."""
        if client.settings is None:
            raise StatusError(Code.UNRECOGNIZED_CLIENT_TYPE, f"client {client.client_id} has sent no settings")
        self._register(client)

    def _register(self, client: GrpcClient) -> None:
        settings, now = client.settings, self._broker.clock()
        if settings.HasField("publishing"):
            # producers are known by the topics that they send to
            topics = tuple(dict.fromkeys(topic.name for topic in settings.publishing.topics if topic.name))
            heartbeat = Heartbeat(client.client_id, topics[:_MOST_TOPICS], (), False)
        else:
            wanted = tuple(
                subscription_from_bean(
                    {
                        "topic": entry.topic.name, "subString": entry.expression.expression or "*", "subVersion": now,
                        "expressionType": filter_kind(entry.expression),
                    }
                )
                for entry in settings.subscription.subscriptions[:_MOST_TOPICS]
            )  # fmt: skip
            kind = _CONSUMERS.get(settings.client_type, "CONSUME_ACTIVELY")
            data = ConsumerData(client.group, kind, "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", wanted)
            heartbeat = Heartbeat(client.client_id, (), (data,), False)
        version = self._broker.identity.release.number
        self._broker.clients.heard(client, heartbeat, client.language, version, self._broker.elapsed())

    def end(self, client_id: str) -> None:
        """A client is gone; nothing happens where it is not known."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            self._broker.lost(client)
            self._on_gone(client)

    def expire(self) -> None:
        """Send away who is silent for too long."""
        now, most = self._broker.elapsed(), self._broker.settings.channel_expired_timeout
        for client in [one for one in self._clients.values() if now - one.heard_at > most]:
            self.end(client.client_id)


def _set_backoff(policy: Any, group: dict[str, Any]) -> None:
    """Set how often, and after which times, a group tries a message again."""
    policy.max_attempts = max_attempts(group)
    found = group.get("groupRetryPolicy")
    given = found if isinstance(found, dict) else {}
    exponential = given.get("exponentialRetryPolicy")
    if isinstance(exponential, dict) and given.get("type") == "EXPONENTIAL":
        backoff = policy.exponential_backoff
        backoff.initial.FromMilliseconds(int(exponential.get("initial", 5000)))
        backoff.max.FromMilliseconds(int(exponential.get("max", 7_200_000)))
        backoff.multiplier = float(exponential.get("multiplier", 2))
        return
    custom = given.get("customizedRetryPolicy")
    times = custom.get("next") if isinstance(custom, dict) else None
    for milliseconds in times if isinstance(times, list) else [second * 1000 for second in _RETRIES]:
        policy.customized_backoff.next.add().FromMilliseconds(int(milliseconds))


def max_attempts(group: dict[str, Any]) -> int:
    """Return how often a group gets a message before it is among the dead letters."""
    return int(group["retryMaxTimes"]) + 1


async def read(context: Any) -> Any:
    """Return the next message of a call; None after the last one. Unreadable bytes end the call."""
    try:
        message = await context.read()
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request cannot be read")
    return None if message is grpc.aio.EOF else message


async def telemetry(clients: GrpcClients, who: From, context: Any, permit: Callable[[Any], None]) -> None:
    """Serve a telemetry stream: settings come, and answers; commands go. Raises: StatusError, which ends it.

    `permit` raises StatusError for a command that is not permitted: that one is answered, and the stream goes on.
    """
    client: GrpcClient | None = None
    commands: asyncio.Queue[Any] = asyncio.Queue(_MOST_COMMANDS)

    async def write() -> None:
        while True:
            await context.write(await commands.get())

    writing = asyncio.create_task(write())
    try:
        while (command := await read(context)) is not None:
            kind = command.WhichOneof("command")
            try:
                permit(command)
            except StatusError as error:
                await commands.put(v2.TelemetryCommand(status=status_of(error.code, error.message)))
                continue
            if kind == "settings":
                client, settings = clients.settle(who, command.settings)
                client.commands = commands
                await commands.put(v2.TelemetryCommand(status=OK, settings=settings))
            elif kind in ("thread_stack_trace", "verify_message_result") and client is not None:
                client.answered(command)
    except CorruptError as error:
        raise StatusError(Code.BAD_REQUEST, error.message) from error
    finally:
        writing.cancel()
        if client is not None and client.commands is commands:
            client.commands = None
