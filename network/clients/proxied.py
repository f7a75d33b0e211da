"""Producing and consuming through a proxy of RocketMQ 5: gRPC by the official Python client (the extra grpc-client).

The client is imported without its log folder in the home directory. What it does not give away, the place of a message
and the reason of a refusal, is asked of the proxy by the client's own calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import sys
import time
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rmqctl.formats.errors import NotFoundError, RemoteError, UsageError
from rmqctl.formats.properties import KEYS, TAGS, UNIQUE_KEY, split_keys
from rmqctl.store.read.filter import BySql

if TYPE_CHECKING:
    from rmqctl.formats.message import Message
    from rmqctl.network.clients.channel import Credentials

_LOG = "rocketmq.v5.log"
_SECONDS = 5
_SETTINGS_SECONDS = 10.0
_INVISIBLE_SECONDS = 60
_SHORT_POLL_SECONDS, _LONG_POLL_SECONDS = 5, 20
"""The shortest and the longest that a proxy waits for messages."""
_MOST = 16
_DIGESTS: dict[int, Callable[[bytes], str]] = {
    1: lambda body: f"{zlib.crc32(body):08X}",
    2: lambda body: hashlib.md5(body, usedforsecurity=False).hexdigest().upper(),
    3: lambda body: hashlib.sha1(body, usedforsecurity=False).hexdigest().upper(),
}
"""By DigestType: CRC32, MD5, SHA1."""


class ProxyAddress(NamedTuple):
    """A proxy, `host:port`. `ca`: certificates to verify its own with; None speaks plain text. `user`: who signs."""

    text: str
    ca: Path | None = None
    user: Credentials | None = None


class _FirstProblem(logging.Handler):
    """Keeps what the client logged first: of some failures it says nothing else."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.text = self.text or record.getMessage()


_problem = _FirstProblem(logging.WARNING)


def _client() -> Any:
    """Return the client's package. ModuleNotFoundError where the extra is missing."""
    if _LOG not in sys.modules:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        logger: Any = logging.getLogger("rocketmq-python-client")
        logger.propagate = False
        logger.addHandler(_problem)
        logger.warn = logger.warning
        module: Any = types.ModuleType(_LOG)
        module.logger = logger
        sys.modules[_LOG] = module
    import rocketmq

    return rocketmq


class _Session:
    """What producers and consumers have in common. A context manager."""

    def __init__(self, address: ProxyAddress, namespace: str | None) -> None:
        self._address = address
        if address.ca is not None:
            # read when the first channel is made
            os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = str(address.ca)
        self._rocketmq = _client()
        from rocketmq.grpc_protocol import definition_pb2, service_pb2

        self._defined: Any = definition_pb2
        self._calls: Any = service_pb2
        self._namespace = namespace or ""
        user = self._rocketmq.Credentials(*(address.user or ())[:2])
        self._configuration = self._rocketmq.ClientConfiguration(
            address.text, user, self._namespace, request_timeout=_SECONDS
        )
        self._connected: Any = None

    def __exit__(self, *_: object) -> None:
        # it tells the proxy, which may be gone
        with contextlib.suppress(RemoteError), self._asking():
            self._connected.shutdown()

    def _named(self, name: str) -> Any:
        return self._defined.Resource(name=name, resource_namespace=self._namespace)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """RemoteError, NotFoundError or UsageError in the place of the client's errors."""
        import grpc
        from rocketmq.v5.exception import ClientException

        try:
            yield
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise RemoteError(f"proxy {self._address.text} did not answer in time") from error
            said = details if code is grpc.StatusCode.UNAVAILABLE else f"{code.name}, {details}"
            raise RemoteError(f"cannot reach a proxy at {self._address.text}: {said}") from error
        except ClientException as error:
            text = Exception.__str__(error)
            if error.code is None:
                raise UsageError(text) from error
            raise self._refused(error.code, text) from error

    def _refused(self, code: int, text: str) -> Exception:
        name = self._defined.Code.Name(code)
        said = f"proxy {self._address.text} answered {name}: {text.partition(chr(10))[0]}"
        return NotFoundError(said) if name.endswith("_NOT_FOUND") else RemoteError(said)

    def _check(self, status: Any) -> None:
        if status.code != self._defined.Code.OK:
            raise self._refused(status.code, status.message)

    def _route(self, topic: str) -> Sequence[Any]:
        """Return the queues of a topic."""
        request = self._calls.QueryRouteRequest(
            topic=self._named(topic), endpoints=self._configuration.rpc_endpoints.endpoints
        )
        with self._asking():
            answer = self._connected.rpc_client.query_topic_route_async(
                self._configuration.rpc_endpoints, request, self._connected.sign(), _SECONDS
            ).result()
        self._check(answer.status)
        return list(answer.message_queues)


class ProxyProducer(_Session):
    """A producer at a proxy. A context manager."""

    def __init__(self, address: ProxyAddress, namespace: str | None = None) -> None:
        super().__init__(address, namespace)
        # leaves open what was not ended
        checker = type("Checker", (self._rocketmq.TransactionChecker,), {"check": lambda *_: 0})()
        self._connected = self._rocketmq.Producer(self._configuration, None, checker, tls_enable=address.ca is not None)
        self._topics: set[str] = set()

    def __enter__(self) -> ProxyProducer:
        with self._asking():
            self._connected.startup()
        return self

    def send(
        self,
        message: Message,
        *,
        group: str | None = None,
        deliver_at: int | None = None,
        end: Literal["commit", "rollback"] | None = None,
    ) -> dict[str, Any]:
        """Send a message and return what is known of it. `group`: the message group, whose messages stay in order;
        `deliver_at` in ms, of which a proxy gets the second; `end`: of a transaction.

        RemoteError, NotFoundError for an unknown topic, UsageError for what the client refuses.
        """
        if message.topic not in self._topics:
            self._route(message.topic)
            self._topics.add(message.topic)
        with self._asking():
            made = self._made(message, group, deliver_at)
            transaction = None if end is None else self._connected.begin_transaction()
            receipt = self._connected.send(made, transaction)
            if transaction is not None:
                self._check((transaction.commit() if end == "commit" else transaction.rollback()).status)
        found = {"status": "SEND_OK", "unique_key": receipt.message_id, "topic": message.topic}
        # of half messages and delayed ones it is an offset elsewhere
        return found | (
            {"recall_handle": receipt.recall_handle}
            if receipt.recall_handle
            else {"queue_offset": receipt.offset}
            if end is None
            else {"transaction": end}
        )

    def _made(self, message: Message, group: str | None, deliver_at: int | None) -> Any:
        made = self._rocketmq.Message()
        made.topic = message.topic
        made.body = message.body
        for name, text in message.properties.items():
            if name == TAGS:
                made.tag = text
            elif name == KEYS:
                for key in split_keys(text):
                    made.keys = key
            elif name != UNIQUE_KEY:  # a client makes its own
                made.add_property(name, text)
        if group is not None:
            made.message_group = group
        if deliver_at is not None:
            made.delivery_timestamp = -(-deliver_at // 1000)
        return made


class ProxyConsumer(_Session):
    """A simple consumer at a proxy, a member of a group. A context manager."""

    def __init__(
        self, address: ProxyAddress, group: str, topic: str, subscription: str, namespace: str | None = None
    ) -> None:
        """`subscription`: tags, or an SQL92 expression (BySql)."""
        super().__init__(address, namespace)
        self._group, self._topic = group, topic
        kinds = self._defined.FilterType
        kind = kinds.SQL if isinstance(subscription, BySql) else kinds.TAG
        self._filter = self._defined.FilterExpression(type=kind, expression=str(subscription))
        expression = self._rocketmq.FilterExpression(self._filter.expression, self._filter.type)
        with self._asking():
            self._connected = self._rocketmq.SimpleConsumer(
                self._configuration, group, {topic: expression}, _LONG_POLL_SECONDS, tls_enable=address.ca is not None
            )
        self._queues: list[Any] = []
        self._settings: Any = None
        self._connected.reset_setting = self._take

    def _take(self, settings: Any) -> None:
        self._settings = settings
        self._connected._init_settings_event.set()

    def __enter__(self) -> ProxyConsumer:
        brokers = {queue.broker.name: queue for queue in self._route(self._topic)}
        self._queues = list(brokers.values())
        settled = self._connected._init_settings_event
        _problem.text = ""
        with self._asking():
            self._connected.startup()
        end = time.monotonic() + _SETTINGS_SECONDS
        while not settled.wait(0.1) and not _problem.text and time.monotonic() < end:
            pass
        if not settled.is_set():
            self.__exit__()
            said = _problem.text.rpartition("message: ")[2] or "no settings came"
            raise RemoteError(f"proxy {self._address.text} does not take group {self._group!r}: {said}")
        return self

    def batches(self, most: int, *, to_the_end: bool, limit: int | None = None) -> Iterator[list[dict[str, Any]]]:
        """Yield up to `most` messages at a time as rows, and acknowledge them when the next ones are asked for. Ends
        when no broker has more, unless not `to_the_end`, or after `limit`."""
        for endpoints, messages in self._received(most, to_the_end=to_the_end, limit=limit):
            yield [_row(one) for one in messages]
            self._acknowledge(endpoints, messages)

    def decided(
        self,
        decide: Callable[[dict[str, Any]], tuple[bool, dict[str, Any]]],
        threads: int,
        *,
        to_the_end: bool,
        limit: int | None = None,
        max_retries: int | None = None,
    ) -> Iterator[list[dict[str, Any]]]:
        """Call `decide` with each message, as a row, in some threads, or with those of an ordered group one by one.

        It returns whether the message is acknowledged, and what is yielded of it. Any other message comes again when
        the backoff of its group is over, or is a dead letter after `max_retries`, None for those that the group has.
        Ends as `batches`, or with what `decide` raises.
        """
        most = 1 if self._settings.subscription.fifo else threads
        with ThreadPoolExecutor(most, thread_name_prefix="deciding") as pool:
            for endpoints, messages in self._received(most, to_the_end=to_the_end, limit=limit, auto_renew=True):
                # each is done with as soon as it is decided on
                deciding = {pool.submit(decide, _row(one)): one for one in messages}
                for done in as_completed(deciding):
                    is_consumed, found = done.result()
                    if is_consumed:
                        self._acknowledge(endpoints, [deciding[done]])
                    else:
                        self._reject(endpoints, deciding[done], max_retries)
                    yield [found]

    def _received(
        self, most: int, *, to_the_end: bool, limit: int | None, auto_renew: bool = False
    ) -> Iterator[tuple[Any, list[Any]]]:
        """Yield the endpoints of a broker and messages of it. With `auto_renew` they stay invisible until they are done
        with, or this client is gone."""
        from rocketmq.v5.client.connection import RpcEndpoints

        empty = 0
        while self._queues and (limit is None or limit > 0):
            queue = self._queues.pop(0)
            self._queues.append(queue)
            endpoints = RpcEndpoints(queue.broker.endpoints)
            wanted = min(most, _MOST, limit or most)
            poll = _SHORT_POLL_SECONDS if to_the_end else _LONG_POLL_SECONDS
            messages = self._receive(endpoints, queue, wanted, poll, auto_renew=auto_renew)
            empty = 0 if messages else empty + 1
            if messages:
                limit = None if limit is None else limit - len(messages)
                yield endpoints, messages
            elif to_the_end and empty >= len(self._queues):
                return

    def _receive(self, endpoints: Any, queue: Any, most: int, poll_seconds: int, *, auto_renew: bool) -> list[Any]:
        request = self._calls.ReceiveMessageRequest(
            group=self._named(self._group), message_queue=queue, filter_expression=self._filter, batch_size=most,
            auto_renew=auto_renew,
        )  # fmt: skip
        if not auto_renew:
            request.invisible_duration.seconds = _INVISIBLE_SECONDS
        request.long_polling_timeout.seconds = poll_seconds
        rpc = self._connected.rpc_client

        async def received() -> list[Any]:
            call = await rpc.receive_message(endpoints, request, self._connected.sign(), _SECONDS + poll_seconds)
            return [one async for one in call]

        with self._asking():
            future: Future[list[Any]] = asyncio.run_coroutine_threadsafe(received(), rpc.get_channel_io_loop())
            try:
                answers = future.result()
            finally:
                future.cancel()
        for one in answers:
            if one.HasField("status") and one.status.code != self._defined.Code.MESSAGE_NOT_FOUND:
                self._check(one.status)
        return [one.message for one in answers if one.HasField("message")]

    def _acknowledge(self, endpoints: Any, messages: Sequence[Any]) -> None:
        request = self._calls.AckMessageRequest(group=self._named(self._group), topic=self._named(self._topic))
        for one in messages:
            found = one.system_properties
            request.entries.add(message_id=found.message_id, receipt_handle=found.receipt_handle)
        self._ask(self._connected.rpc_client.ack_message_async, endpoints, request)

    def _reject(self, endpoints: Any, message: Any, max_retries: int | None) -> None:
        """Have a message come again, or be a dead letter."""
        found, policy, rpc = message.system_properties, self._settings.backoff_policy, self._connected.rpc_client
        most = policy.max_attempts if max_retries is None else max_retries + 1
        named = {"group": self._named(self._group), "topic": self._named(self._topic)}
        named |= {"message_id": found.message_id, "receipt_handle": found.receipt_handle}
        if found.delivery_attempt >= most:
            dead = self._calls.ForwardMessageToDeadLetterQueueRequest(
                delivery_attempt=found.delivery_attempt, max_delivery_attempts=most, **named
            )
            self._ask(rpc.forward_message_to_dead_letter_queue_async, endpoints, dead)
            return
        again = self._calls.ChangeInvisibleDurationRequest(**named)
        again.invisible_duration.FromMilliseconds(_backoff(policy, found.delivery_attempt))
        self._ask(rpc.change_invisible_duration_async, endpoints, again)

    def _ask(self, call: Callable[..., Any], endpoints: Any, request: Any) -> None:
        with self._asking():
            answer = call(endpoints, request, self._connected.sign(), _SECONDS).result()
        self._check(answer.status)


def _backoff(policy: Any, attempt: int) -> int:
    """Return after which time (ms) a message comes again that was handed out `attempt` times."""
    times = policy.customized_backoff.next
    if times:
        return int(times[min(attempt, len(times)) - 1].ToMilliseconds())
    backoff = policy.exponential_backoff
    longest = int(backoff.max.ToMilliseconds())
    return int(min(longest, backoff.initial.ToMilliseconds() * backoff.multiplier ** (attempt - 1)))


COLUMNS = ("topic", "queue_id", "queue_offset", "store_timestamp", "tags", "keys", "body_size", "body")
"""The columns of `ProxyConsumer.batches` in a table."""


def _row(message: Any) -> dict[str, Any]:
    """A message as of `cat --json`, without what a proxy does not say: the offset in the log, the frame's size, flags.

    `crc_ok`: whether the body is what its digest says.
    """
    import base64

    from rmqctl.formats.errors import format_time

    found = message.system_properties
    body = message.body
    digest = _DIGESTS.get(found.body_digest.type)
    times = {
        name: getattr(found, f"{name}_timestamp").seconds * 1000
        + getattr(found, f"{name}_timestamp").nanos // 1_000_000
        for name in ("store", "born")
    }
    row: dict[str, Any] = {
        "unique_key": found.message_id or None,
        "topic": message.topic.name,
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "store_timestamp": times["store"],
        "store_time": format_time(times["store"]),
        "born_timestamp": times["born"],
        "born_time": format_time(times["born"]),
        "store_host": found.store_host,
        "born_host": found.born_host,
        "crc_ok": digest is None or digest(body) == found.body_digest.checksum,
        "reconsume_times": max(0, found.delivery_attempt - 1),
        "tags": found.tag or None,
        "keys": list(found.keys),
        "message_group": found.message_group or None,
        "properties": dict(message.user_properties),
    }
    if found.body_encoding == 2:  # GZIP in name: zlib
        with contextlib.suppress(zlib.error):
            body = zlib.decompress(body, 47)
    row["body_size"] = len(body)
    try:
        return row | {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return row | {"body_base64": base64.b64encode(body).decode("ascii")}
