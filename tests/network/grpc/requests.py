"""Requests of gRPC as no client of RocketMQ sends them, and what is answered: the codes, without texts, times and ids.

`answers.json` holds what the real proxy answered (tests/interop/test_grpc.py): ours has to answer the same.
"""

from __future__ import annotations

import json
import queue
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from tests.network.callers import with_header
from tests.network.grpc.stubs import service_pb2

ANSWERS = Path(__file__).with_name("answers.json")
_SECONDS = 30
_MASKED = ("message_id", "transaction_id", "receipt_handle", "recall_handle", "checksum", "host", "port", "born_host",
           "store_host", "born_timestamp", "store_timestamp", "delivery_timestamp", "access_point",
           "user_agent")  # fmt: skip
TOPICS = {"plain": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "tx": "TRANSACTION", "mixed": "MIXED", "untyped": ""}
"""Topics that the requests are about, with their types."""
GROUPS = ("g", "g-fifo", "g-else")
SETTINGS = {
    "recallMessageEnable": "true",
    "enableMixedMessageType": "true",
    "enablePropertyFilter": "true",
    "timerWheelEnable": "true",
    "timerPrecisionMs": "500",
    # a message of 4 MiB has room, and no transaction is asked for before its client could end it
    "mappedFileSizeCommitLog": "16777216",
    "transactionTimeOut": "6000",
}
"""What a broker needs for them."""


def create(namesrv: str, broker: str, topic: str, **more: Any) -> None:
    """Create a topic of one queue, and wait until the name server knows it."""
    fields: dict[str, Any] = {"topic": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102", "topicSysFlag": 0, "order": False}
    client = Client(namesrv)
    client.ask(broker, *with_header(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | more))
    while client.route(topic, anew=True) is None:
        time.sleep(0.1)
    client.close()


def create_typed(namesrv: str, broker: str, topics: Mapping[str, str] = TOPICS) -> None:
    """Create topics of these types, and the groups that consume them."""
    for topic, kind in topics.items():
        create(namesrv, broker, topic, **({"attributes": f"+message.type={kind}"} if kind else {}))
    for group in GROUPS:
        create_group(namesrv, broker, group, consumeMessageOrderly=group.endswith("fifo"))


def create_group(namesrv: str, broker: str, group: str, **more: Any) -> None:
    """Create a group with these settings: a real proxy refuses the settings of consumers of unknown ones."""
    config = {"groupName": group, "consumeEnable": True, "consumeFromMinEnable": True, "retryQueueNums": 1} | more
    client = Client(namesrv)
    client.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(config).encode())
    client.close()


class Raw:
    """A client of one channel and id, and the answers so far."""

    def __init__(self, address: str, client_id: str = "raw-1") -> None:
        self.address = address
        self.channel = grpc.insecure_channel(
            address, [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        )
        self.headers = {"x-mq-client-id": client_id, "x-mq-language": "JAVA", "x-mq-protocol": "v2"}
        self.headers |= {"x-mq-client-version": "5.1.2", "x-mq-request-id": "1"}
        self.answers: list[list[Any]] = []
        self._telemetry: list[queue.SimpleQueue[Any]] = []

    def close(self) -> None:
        """End its streams and its connection."""
        for one in self._telemetry:
            one.put(None)
        self.channel.close()

    def call(self, name: str, request: Mapping[str, Any], *, seconds: float = _SECONDS, **headers: str | None) -> Any:
        """The answer, a list of them of a stream; of a call that fails its status's name."""
        method = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name[name]
        given = getattr(service_pb2, method.input_type.name)
        answer = getattr(service_pb2, method.output_type.name)
        make: Callable[..., Any] = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        path = f"/apache.rocketmq.v2.MessagingService/{name}"
        stub = make(path, given.SerializeToString, answer.FromString)
        sent = self.headers | {f"x-mq-{key.replace('_', '-')}": text for key, text in headers.items()}
        metadata = [(key, text) for key, text in sent.items() if text is not None]
        try:
            got = stub(ParseDict(request, given()), timeout=seconds, metadata=metadata)
            return [*map(_shown, got)] if method.server_streaming else _shown(got)
        except grpc.RpcError as error:
            return error.code().name

    def ask(self, label: str, name: str, request: Mapping[str, Any], **more: Any) -> Any:
        """Call, and keep the answer masked."""
        got = self.call(name, request, **more)
        self.answers.append([label, masked(got)])
        return got

    def telemetry(self, label: str, *commands: Mapping[str, Any], answers: int = 1) -> queue.SimpleQueue[Any]:
        """Open a stream, send commands and keep the first answers. Return what sends more."""
        sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for one in commands:
            sent.put(ParseDict(one, service_pb2.TelemetryCommand()))
        self._telemetry.append(sent)
        stub = self.channel.stream_stream(
            "/apache.rocketmq.v2.MessagingService/Telemetry",
            service_pb2.TelemetryCommand.SerializeToString,
            service_pb2.TelemetryCommand.FromString,
        )
        got = stub(iter(sent.get, None), metadata=[*self.headers.items()], timeout=600)
        found: list[Any] = []
        try:
            for _ in range(answers):
                found.append(_shown(next(got)))
        except StopIteration:
            found.append("end")
        except grpc.RpcError as error:
            found.append(error.code().name)
        self.answers.append([label, masked(found)])
        self.commands: Iterator[Any] = map(_shown, got)
        return sent


def _shown(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True)


def masked(found: Any, name: str = "") -> Any:
    """Without what is another each time, and texts for people."""
    if name in _MASKED or (name == "body" and len(found) > 100):
        return "*"
    if isinstance(found, list):
        return [masked(one) for one in found]
    if isinstance(found, dict):
        if found.keys() <= {"code", "message"} and "code" in found:
            return found["code"]
        shown = {key: masked(one, key) for key, one in sorted(found.items())}
        # what all messages have
        return {key: one for key, one in shown.items() if one != "*"}
    return re.sub(r"[0-9a-f-]{32,}", "*", found) if isinstance(found, str) else found


def written(found: list[list[Any]]) -> str:
    """Answers as text, a line each."""
    return "[\n" + ",\n".join(json.dumps(one) for one in found) + "\n]\n"


def answers() -> dict[str, Any]:
    """What the real proxy answered."""
    return dict(json.loads(ANSWERS.read_text(encoding="ascii")))
