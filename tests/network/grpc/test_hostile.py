"""Calls as no client makes them: each gets a clear answer, nothing changes, and others are served."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from rmqctl.network.grpc import server
from rmqctl.network.grpc.protocol import CALLS, SERVICE, Code, v2
from tests.network.grpc.calling import Client, until
from tests.network.grpc.conftest import Make

_UNARY = [name for name, call in CALLS.items() if not call.is_answer_stream]


def _is_served(client: Client) -> bool:
    route = client.QueryRoute(topic=v2.Resource(name="T"), endpoints=client.endpoints)
    return bool(route.status.code == Code.OK)


def test_requests_without_fields_and_with_values_that_are_none_are_refused(make: Make) -> None:
    calling = make("T")
    client = calling.client()
    topic = v2.Resource(name="T", resource_namespace="\x1b[2J")
    for name in _UNARY:
        assert getattr(client, name)().status.code != Code.OK, name
    assert client.receive("", "") == []
    assert client.status.code == Code.ILLEGAL_CONSUMER_GROUP
    broken = [
        client.Heartbeat(client_type=99, group=v2.Resource(name="g")),
        client.QueryRoute(topic=topic, endpoints=v2.Endpoints(scheme=77, addresses=client.endpoints.addresses)),
        client.send("T", b"a", message_type=99, body_encoding=77, born_timestamp={"seconds": -(1 << 60)}),
        client.send("T", b"a", message_type=3, delivery_timestamp={"seconds": -(1 << 60), "nanos": -5}),
        client.EndTransaction(topic=topic, transaction_id="t", resolution=9, source=9),
        client.RecallMessage(topic=topic, recall_handle="\x00" * 5000),
        client.ChangeInvisibleDuration(
            group=topic, topic=topic, receipt_handle="0 1 2", invisible_duration={"seconds": 1 << 60}
        ),
        client.AckMessage(group=topic, topic=topic, entries=[v2.AckMessageEntry()] * 10_001),
    ]
    assert all(one.status.code in Code._value2member_map_ for one in broken)
    client.receive("g", "T", batch_size=-1, attempt_id="x" * 10_000, filter_expression=v2.FilterExpression(type=-7))
    assert client.status.code == Code.ILLEGAL_FILTER_EXPRESSION
    assert _is_served(client)
    assert [line for line in calling.told if "Error" in line] == []


def test_bytes_that_are_no_request_end_their_call_alone(make: Make) -> None:
    calling = make("T")
    client, lot = calling.client(), random.Random(5)
    for name in CALLS:
        send = client.channel.stream_stream(f"/{SERVICE}/{name}")
        for _ in range(5):
            # a field of a length beyond the end
            garbage = b"\x0a\x7f" + lot.randbytes(lot.randrange(1, 60))
            with pytest.raises(grpc.RpcError) as raised:
                list(send(iter([garbage]), metadata=client.metadata, timeout=10))
            assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT, name
    assert _is_served(client)
    with pytest.raises(grpc.RpcError) as raised:
        client.channel.unary_unary(f"/{SERVICE}/PullMessage")(b"", metadata=client.metadata, timeout=10)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_what_is_too_large_is_refused(make: Make) -> None:
    calling = make("T")
    client = calling.client()
    with pytest.raises(grpc.RpcError) as raised:
        client.send("T", bytes(17 * 1024 * 1024))
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    crowded = calling.client("c-2")
    crowded.metadata.append(("x-mq-namespace", "x" * 100_000))
    with pytest.raises(grpc.RpcError) as raised:
        crowded.send("T", b"a")
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    many = [v2.Resource(name=f"t{number}") for number in range(60_000)]
    settings = v2.Settings(client_type=1, publishing=v2.Publishing(topics=many))
    with pytest.raises(grpc.RpcError) as raised:
        next(client.telemetry(v2.TelemetryCommand(settings=settings)))
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert _is_served(client)


@pytest.mark.parametrize("limit", ["time", "memory"])
def test_a_request_that_never_comes_ends(make: Make, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    used = [1 << 20]
    monkeypatch.setattr(server, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(server, "_anonymous_bytes", lambda: used[0])
    monkeypatch.setattr(server, "_LONGEST_SECONDS", 0.3 if limit == "time" else 60.0)
    calling = make("T")
    client, ended, found = calling.client(), threading.Event(), list[Any]()

    def never() -> Iterator[bytes]:
        ended.wait(60)
        yield from ()

    call = client.channel.stream_unary(f"/{SERVICE}/SendMessage").future(never(), metadata=client.metadata, timeout=60)
    call.add_done_callback(found.append)
    assert _is_served(client)
    if limit == "memory":
        used[0] = 1 << 30
    until(lambda: found)
    ended.set()
    assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _is_served(client)
    assert bool(calling.told) is (limit == "memory")
