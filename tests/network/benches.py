"""A server with a few services, and clients of it that say what they like."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from rmqctl.network.remoting.codec import ONEWAY_FLAG, FrameDecoder, RemotingCommand, encode_frame
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.requests import Asked, Processor, Promised, Reply, Service, Suspended
from rmqctl.network.remoting.server import Limits, RemotingServer

SECONDS = 30
BIG = 1 << 20


def echo(context: None, header: Header, asked: Asked) -> Reply:
    return RemotingCommand(0, asked.request.fields, asked.request.body)


def hold(context: None, header: Header, asked: Asked) -> Reply:
    return Suspended(float(asked.request.fields["seconds"]), (("T", 0),), lambda: RemotingCommand(19))


def big(context: None, header: Header, asked: Asked) -> Reply:
    return RemotingCommand(0, body=bytes(BIG))


def too_big(context: None, header: Header, asked: Asked) -> Reply:
    return RemotingCommand(0, body=bytes(1 << 24))


def fail(context: None, header: Header, asked: Asked) -> Reply:
    raise RuntimeError("a bug")


def call_back(context: None, header: Header, asked: Asked) -> Reply:
    asked.caller.send(RemotingCommand(40, {"consumerGroup": "g"}, flag=ONEWAY_FLAG))
    return RemotingCommand(0)


def ask_back(context: None, header: Header, asked: Asked) -> Reply:
    done = asked.caller.ask(RemotingCommand(307), float(asked.request.fields["seconds"]))
    return Promised(done, lambda: done.result() or RemotingCommand(207))


ECHO, HOLD, BIG_ONE, TOO_BIG, FAIL, SLOW, CALL_BACK, ASK_BACK = range(1, 9)
SERVICES: dict[int, Service[None]] = {
    ECHO: Service(echo, ""),
    HOLD: Service(hold, ""),
    BIG_ONE: Service(big, ""),
    TOO_BIG: Service(too_big, ""),
    FAIL: Service(fail, ""),
    SLOW: Service(echo, "", is_slow=True),
    CALL_BACK: Service(call_back, ""),
    ASK_BACK: Service(ask_back, ""),
}


class Client:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()

    def send(self, code: int, opaque: int = 1, flag: int = 0, body: bytes = b"", **fields: str) -> None:
        self.writer.write(encode_frame(RemotingCommand(code, fields, body, opaque=opaque, flag=flag)))

    async def receive(self) -> RemotingCommand | None:
        """The next command; None when the server has closed the connection."""
        while True:
            command = self._decoder.next_command()
            if command is not None:
                return command
            try:
                data = await asyncio.wait_for(self.reader.read(1 << 16), SECONDS)
            except ConnectionError:
                return None
            if not data:
                return None
            self._decoder.feed(data)


class Bench:
    """A server at a free port, what it told, and clients of it."""

    def __init__(self, server: RemotingServer, port: int, told: list[str], lost: list[Any]) -> None:
        self.server = server
        self.port = port
        self.told = told
        self.lost = lost
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        self._clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self._clients[-1]

    async def close(self) -> None:
        for client in self._clients:
            client.writer.close()
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()
        await self.server.close()


def served(check: Callable[[Bench], Awaitable[None]], limits: Limits | None = None) -> None:
    """Run `check` against a server with these limits."""

    async def run() -> None:
        told: list[str] = []
        lost: list[Any] = []
        server = RemotingServer(Processor(None, SERVICES, told.append), told.append, limits, lost.append)
        _, port = await server.listen("127.0.0.1", 0)
        bench = Bench(server, port, told, lost)
        try:
            await asyncio.wait_for(check(bench), 2 * SECONDS)
        finally:
            await bench.close()

    asyncio.run(run())
