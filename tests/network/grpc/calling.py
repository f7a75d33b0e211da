"""Calls of apache.rocketmq.v2 without a client around them."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from rmqctl.network.broker.broker import wall_clock
from rmqctl.network.broker.settings import BrokerIdentity
from rmqctl.network.grpc.protocol import CALLS, SERVICE, v2
from rmqctl.network.serving import ListeningBroker
from rmqctl.network.topic_config import topic_from_text
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore

SECONDS = 30.0
CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20)
_ids = itertools.count(1)


def until(is_so: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Return what is so in the end. AssertionError where it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = is_so()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come about")


class Client:
    """One client's calls: `client.AckMessage(entries=[…])` with the fields of the request, as keywords or as one
    message."""

    def __init__(self, address: str, client_id: str | None = "c-1", **options: Any) -> None:
        self.channel = grpc.insecure_channel(address, options=list(options.items()))
        self.metadata = [("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.1.2")]
        self.endpoints = v2.Endpoints(scheme=1, addresses=[v2.Address(host="127.0.0.1", port=1)])
        if client_id is not None:
            self.metadata.append(("x-mq-client-id", client_id))
        self.streams: list[Any] = []
        self.settle: Callable[[], object] = lambda: None
        """Wait until what was sent is in its queue."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = CALLS[name]
        made = self.channel.unary_stream if call.is_answer_stream else self.channel.unary_unary
        stub: Any = made(
            f"/{SERVICE}/{name}",
            request_serializer=call.request.SerializeToString,
            response_deserializer=call.answer.FromString,
        )

        def ask(seconds: float = SECONDS, **fields: Any) -> Any:
            answer = stub(call.request(**fields), metadata=self.metadata, timeout=seconds)
            return list(answer) if call.is_answer_stream else answer

        return ask

    def telemetry(self, *commands: Any) -> Iterator[Any]:
        """Open a telemetry stream with these commands; what comes on it."""
        import queue

        sent: queue.Queue[Any] = queue.Queue()
        for command in commands:
            sent.put(command)
        call = CALLS["Telemetry"]
        stream: Any = self.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=call.request.SerializeToString,
            response_deserializer=call.answer.FromString,
        )(iter(sent.get, None), metadata=self.metadata, timeout=SECONDS)
        self.streams.append((stream, sent))
        return stream  # type: ignore[no-any-return]

    def produce(self, *topics: str) -> Any:
        """Say that it sends to topics; the settings that it gets."""
        publishing = v2.Publishing(topics=[v2.Resource(name=topic) for topic in topics])
        settings = v2.Settings(client_type=1, publishing=publishing)
        self.stream = self.telemetry(v2.TelemetryCommand(settings=settings))
        return next(self.stream).settings

    def consume(self, group: str, client_type: int = 3, **topics: str) -> Any:
        """Say that it consumes topics by tags; the settings that it gets."""
        entries = [
            v2.SubscriptionEntry(topic=v2.Resource(name=topic), expression=v2.FilterExpression(type=1, expression=tags))
            for topic, tags in topics.items()
        ]
        subscription = v2.Subscription(group=v2.Resource(name=group), subscriptions=entries)
        settings = v2.Settings(client_type=client_type, subscription=subscription)
        self.stream = self.telemetry(v2.TelemetryCommand(settings=settings))
        return next(self.stream).settings

    def send(self, topic: str, *bodies: bytes, **system: Any) -> Any:
        """Send messages; `system`: their system properties, `user` their own."""
        user, many = system.pop("user", {}), []
        for body in bodies:
            one = v2.Message(topic=v2.Resource(name=topic), body=body, user_properties=user)
            given = {"message_id": f"id-{next(_ids)}", "message_type": 1} | system
            one.system_properties.CopyFrom(v2.SystemProperties(**given))
            many.append(one)
        answer = self.SendMessage(messages=many)
        self.settle()
        return answer

    def receive(self, group: str, topic: str, invisible: int = 15, seconds: float = SECONDS, **more: Any) -> list[Any]:
        """Receive messages, hardly waiting."""
        fields = {"batch_size": 32, "filter_expression": v2.FilterExpression(type=1, expression="*")}
        if not more.get("auto_renew"):
            fields["invisible_duration"] = {"seconds": invisible}
        queue = v2.MessageQueue(topic=v2.Resource(name=topic))
        answers = self.ReceiveMessage(
            seconds=seconds, group=v2.Resource(name=group), message_queue=queue,
            **({"long_polling_timeout": {"nanos": 100_000_000}} | fields | more),
        )  # fmt: skip
        self.status = answers[0].status
        assert answers[-1].WhichOneof("content") == "delivery_timestamp"
        return [answer.message for answer in answers[1:-1]]

    def ack(self, group: str, *messages: Any) -> Any:
        """Acknowledge messages, each given as a message or as topic and handle."""
        topic = messages[0].topic
        entries = [
            v2.AckMessageEntry(
                message_id=one.system_properties.message_id, receipt_handle=one.system_properties.receipt_handle
            )
            for one in messages
        ]
        return self.AckMessage(group=v2.Resource(name=group), topic=topic, entries=entries)

    def _of(self, group: str, message: Any) -> dict[str, Any]:
        system = message.system_properties
        return {
            "group": v2.Resource(name=group), "topic": message.topic, "message_id": system.message_id,
            "receipt_handle": system.receipt_handle,
        }  # fmt: skip

    def change(self, group: str, message: Any, seconds: int) -> Any:
        """Have a message invisible for some seconds from now on."""
        return self.ChangeInvisibleDuration(invisible_duration={"seconds": seconds}, **self._of(group, message))

    def forward(self, group: str, message: Any) -> Any:
        """Give a message up."""
        return self.ForwardMessageToDeadLetterQueue(**self._of(group, message))

    def close(self) -> None:
        """End its calls."""
        for stream, sent in self.streams:
            sent.put(None)
            stream.cancel()
        self.channel.close()


class Calling:
    """A broker over the store at `path` whose clock is moved by `later`; clients of it."""

    def __init__(self, path: Path, *topics: str, **settings: str) -> None:
        self.ahead = 0
        self.told: list[str] = []
        self._kept = contextlib.ExitStack()
        self.store = self._kept.enter_context(
            MessageStore.open(path, "rw", CONFIG, create=True, allocate_ahead=False, clock=self.clock)
        )
        listening = ListeningBroker(
            self.store, BrokerIdentity(), self.told.append, settings, clock=self.clock, ports=(0, 0, 0)
        )
        self.broker = listening.broker
        self.broker.have_topics([topic_from_text(topic, 4) for topic in topics])
        self._kept.enter_context(listening)
        self.address = str(listening.grpc)

    def clock(self) -> int:
        """Milliseconds since 1970."""
        return wall_clock() + self.ahead

    def later(self, seconds: float) -> None:
        """Let time go by."""
        self.ahead += int(seconds * 1000)

    def client(self, client_id: str | None = "c-1", **options: Any) -> Client:
        """A client, closed with the broker."""
        made = Client(self.address, client_id, **options)
        made.settle = self.store.wait_for_dispatch
        self._kept.callback(made.close)
        return made

    def checkpoints(self) -> int:
        """How many checkpoints were stored."""
        self.store.wait_for_dispatch()
        timer = self.store.get("rmq_sys_wheel_timer", 0, 0, 32).messages
        return sum(one.properties()["TAGS"] == "ck" for one in timer)

    def close(self) -> None:
        """End clients, broker and store."""
        self._kept.close()
