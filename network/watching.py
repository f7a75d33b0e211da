"""What a person and a machine see of a running server: counts every second, and a page in Prometheus' text format."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.pop.service import PopBroker
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.remoting.server import OTHER, RemotingServer, Seen

if TYPE_CHECKING:
    from rmqctl.network.grpc.server import GrpcServer

Watched = Callable[[Seen, Seen, float], None]
"""Hears what was seen before and what is seen now, and how many seconds lie between."""

WATCH_SECONDS = 1.0
_REQUEST_SECONDS = 5.0
_LARGEST_REQUEST = 8 * 1024
_MOST_READERS = 16


async def watch(counting: Sequence[Callable[[], Seen]], told: Watched) -> None:
    """Tell, once a second, what was seen before and now of all servers together."""
    loop = asyncio.get_running_loop()
    before, at = _together(counting), loop.time()
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        now, then = _together(counting), loop.time()
        told(before, now, then - at)
        before, at = now, then


def _together(counting: Sequence[Callable[[], Seen]]) -> Seen:
    return Seen(*map(sum, zip(*(seen() for seen in counting), strict=True)))


def metrics(servers: Mapping[str, RemotingServer], broker: Broker, calls: GrpcServer | None = None) -> str:
    """The page: all names begin with `rmqctl_`; labels hold nothing that a client or the store can choose. A slave is
    labelled with the address that it comes from."""
    lines: list[str] = []

    def family(name: str, kind: str, text: str, samples: Mapping[str, int]) -> None:
        lines.extend((f"# HELP rmqctl_{name} {text}", f"# TYPE rmqctl_{name} {kind}"))
        lines.extend(f"rmqctl_{name}{labels} {value}" for labels, value in samples.items())

    def of_servers(name: str, kind: str, text: str, value: Callable[[RemotingServer], int]) -> None:
        family(name, kind, text, {f'{{server="{server}"}}': value(one) for server, one in servers.items()})

    of_servers("connections", "gauge", "Open connections.", lambda one: len(one.connections))
    of_servers("held_requests", "gauge", "Pulls that wait for messages.", lambda one: one.shared.waiting.count)
    of_servers(
        "slow_requests", "gauge", "Requests that wait for the one thread of slow ones.", lambda one: one.shared.slow
    )
    of_servers("received_bytes_total", "counter", "Bytes of requests.", lambda one: one.traffic.bytes_in)
    of_servers("sent_bytes_total", "counter", "Bytes of answers.", lambda one: one.traffic.bytes_out)
    of_servers(
        "refused_connections_total",
        "counter",
        "Connections beyond the bound.",
        lambda one: one.traffic.refused_connections,
    )
    family(
        "requests_total",
        "counter",
        "Requests by code (docs/network.md).",
        {
            f'{{server="{name}",code="{code}",request="{_name(code)}"}}': count
            for name, server in servers.items()
            for code, count in sorted(server.traffic.requests.items())
        },
    )
    if calls is not None:
        family("grpc_clients", "gauge", "gRPC clients whose settings are known.", {"": len(calls.clients)})
        family("grpc_received_bytes_total", "counter", "Bytes of gRPC requests.", {"": calls.traffic.bytes_in})
        family("grpc_sent_bytes_total", "counter", "Bytes of gRPC answers.", {"": calls.traffic.bytes_out})
        answered = {f'{{call="{call}",status="{one}"}}': count for (call, one), count in sorted(calls.answered.items())}
        family("grpc_calls_total", "counter", "gRPC calls that were answered, by status.", answered)
    if isinstance(broker, PopBroker):
        pop = broker.pop
        family("pop_checkpoints", "gauge", "Pops that are not settled.", {"": len(pop.records)})
        family("pop_messages", "gauge", "Messages that are popped and not acknowledged.", {"": pop.records.in_flight()})
        family("pop_waiting", "gauge", "Pops that wait for messages.", {"": pop.waiting.total()})
    family("commitlog_end_offset", "gauge", "Physical offset behind the last message.", {"": broker.log_end})
    end, slaves = broker.log_end, broker.slaves.all()
    family("slaves", "gauge", "Slaves that follow the log now.", {"": len(slaves)})
    # who has not said yet where it is has no lag: 0 would be good news
    family(
        "slave_lag_bytes",
        "gauge",
        "Bytes of the log that a slave has not said that it has.",
        {f'{{slave="{one.remote}"}}': max(0, end - one.acknowledged) for one in slaves if one.acknowledged >= 0},
    )
    family(
        "slave_unsent_bytes",
        "gauge",
        "Bytes of the log that a slave was not sent yet; mirrors acknowledge nothing.",
        {f'{{slave="{one.remote}"}}': max(0, end - one.next_offset) for one in slaves if one.next_offset >= 0},
    )
    family("writable", "gauge", "1 where producers may send.", {"": int(isinstance(broker, MasterBroker))})
    return "\n".join(lines) + "\n"


def _name(code: int) -> str:
    return "other" if code == OTHER else RequestCode(code).name


async def serve_metrics(taken: socket.socket, page: Callable[[], str]) -> asyncio.Server:
    """Answer `GET /metrics` at a socket (see `bound`) over HTTP/1.1, one request a connection, few at once."""
    readers = asyncio.Semaphore(_MOST_READERS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if readers.locked():
                return
            async with readers, asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(http_answer(head, page))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # a peer that asks for nothing, or does not read, is not waited for
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    return await asyncio.start_server(answer, sock=taken, limit=_LARGEST_REQUEST)


def http_answer(head: bytes, page: Callable[[], str]) -> bytes:
    """The answer to the head of a request."""
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return _http("400 Bad Request", "this is no request of HTTP/1\n")
    if words[0] not in (b"GET", b"HEAD"):
        return _http("405 Method Not Allowed", "GET /metrics\n")
    if words[1].partition(b"?")[0] != b"/metrics":
        return _http("404 Not Found", "GET /metrics\n")
    return _http("200 OK", page(), with_body=words[0] == b"GET")


def _http(status: str, text: str, *, with_body: bool = True) -> bytes:
    body = text.encode("utf-8")
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (body if with_body else b"")
