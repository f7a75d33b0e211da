"""The server: connections on one asyncio loop, each bounded in what it may bring, hold and leave unread."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, RefusedError, counted
from rmqctl.network.remoting.codec import (
    LARGEST_FRAME,
    RESPONSE_FLAG,
    VERSION,
    FrameDecoder,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    encode_head,
)
from rmqctl.network.remoting.requests import Processor, RequestError, Session, Shared, Tell
from rmqctl.network.remoting.tls import Admission, Listener

# What went through a server since it began: for the line that a person watches, and for the page of metrics.

OTHER = -1
"""Counts codes that RocketMQ does not define: what a client sends must not make new ones."""
_CODES = {int(code): int(code) for code in RequestCode}


class Seen(NamedTuple):
    """Counts at one moment. `bytes_in` and `bytes_out` are of whole frames; `held`: pulls that wait for messages."""

    connections: int
    requests: int
    bytes_in: int
    bytes_out: int
    held: int


class Traffic:
    """Counts requests by code, and bytes both ways. For the thread of the loop alone."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.bytes_in = 0
        self.bytes_out = 0
        self.refused_connections = 0

    def request(self, code: int) -> None:
        """A request with this code came."""
        self.requests[_CODES.get(code, OTHER)] += 1

    def seen(self, connections: int, held: int) -> Seen:
        """The counts now, with what is not counted here."""
        return Seen(connections, self.requests.total(), self.bytes_in, self.bytes_out, held)


Address = tuple[str, int]

# from so many bytes on answers leave at once: their clients can go on while others are answered
_TOGETHER = 4 * 1024
# a body of so many bytes on leaves after its head: to join them takes longer than one more call of the kernel
_LARGE_BODY = 64 * 1024
_INCOMING = 256 * 1024
# requests of ours that one client may have to answer
_MOST_ASKED = 64


class Limits(NamedTuple):
    """What clients together and one by one may take. `idle_seconds`: how long a connection may be silent
    (serverChannelMaxIdleTimeSeconds). `buffered`: bytes of frames that are not whole yet, of all connections."""

    connections: int = 1000
    suspended: int = 10_000
    slow_requests: int = 64
    largest_frame: int = LARGEST_FRAME
    buffered: int = 256 * 1024 * 1024
    idle_seconds: float = 120.0


def bound(host: str, port: int, *, listens: bool = True) -> socket.socket:
    """A socket that has taken an address, for `RemotingServer.listen_on`. RefusedError where it cannot be had.

    One that does not listen keeps the address for a library that takes no sockets: close it just before.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        if listens:
            return socket.create_server((str(address[0]), port), family=family, backlog=100)
        taken = socket.socket(family, socket.SOCK_STREAM)
        try:
            # a listening socket has the address to itself all the same
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind((str(address[0]), port))
        except OSError:
            taken.close()
            raise
        return taken
    except OSError as error:
        # what asyncio and sockets add to it names the address once more
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise RefusedError(
            f"cannot listen at {_address_text((host, port))}: {reason}",
            hint="name another address, or port 0 for any free port",
        ) from error


VIP_PORTS_BELOW = 2
"""Where clients with the VIP channel send: below the broker's own port (MixAll#brokerVIPChannel)."""
_TRIES = 50


def bound_pair(host: str, port: int, tell: Tell) -> tuple[socket.socket, socket.socket | None]:
    """A socket at a broker's address and one at its VIP channel, or None where that cannot be had: `tell` hears why.
    Port 0 is a free port whose VIP channel is free, too, where there is one. RefusedError as for `bound`."""
    problem = ""
    for attempt in range(1, _TRIES + 1):
        own = bound(host, port)
        below = int(own.getsockname()[1]) - VIP_PORTS_BELOW
        if below <= 0:
            problem = f"port {below + VIP_PORTS_BELOW} has no port {VIP_PORTS_BELOW} below"
            break
        try:
            return own, bound(host, below)
        except RefusedError as error:
            problem = error.message
        if port or attempt == _TRIES:
            break
        own.close()
    tell(f"clients with the VIP channel on cannot send: {problem}")
    return own, None


class RemotingServer:
    """Serves what a processor answers at any number of addresses."""

    def __init__(
        self,
        processor: Processor[Any],
        tell: Tell,
        limits: Limits | None = None,
        on_lost: Callable[[PeerConnection], None] | None = None,
        tls: ssl.SSLContext | None = None,
        admission: Admission | None = None,
        version: int = VERSION,
    ) -> None:
        """`tell` gets lines for the operator; `on_lost` is called for every connection that ended. With `tls`
        connections may be encrypted. `admission`: the bound that this server shares with others; `version`: the
        MQVersion in every header that goes out."""
        self.version = version
        self.limits = limits or Limits()
        self.tell = tell
        self.admission = admission or Admission(self.limits.connections, tell)
        self.admission.count(self._taken)
        self.on_lost = on_lost or (lambda connection: None)
        self.connections: set[PeerConnection] = set()
        self.buffered = 0
        # what is received, of whichever connection: taken from there before the next is read
        self.incoming = memoryview(bytearray(_INCOMING))
        self.traffic = Traffic()
        self._tls = tls
        self._listeners: list[Listener] = []
        # one at a time: slow requests read the same files, and none of them may take a client's turn
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="slow-requests")
        self.shared = Shared(processor, self.executor, self.limits.slow_requests, self.limits.suspended)

    def seen(self) -> Seen:
        """What went through so far, and who is here."""
        return self.traffic.seen(len(self.connections), self.shared.waiting.count)

    async def listen(self, host: str, port: int) -> Address:
        """Take connections at an address too; port 0 is any free one. RefusedError where that cannot be."""
        return await self.listen_on(bound(host, port))

    async def listen_on(self, taken: socket.socket) -> Address:
        """The same at an address that `bound` has taken."""
        loop = asyncio.get_running_loop()
        address = taken.getsockname()
        listener = Listener(
            taken,
            self._tls,
            lambda: PeerConnection(self, loop),
            self.tell,
            self.admission,
            self.limits.idle_seconds,
            self._count_refused,
        )
        self._listeners.append(listener)
        return address[0], address[1]

    def _count_refused(self) -> None:
        self.traffic.refused_connections += 1

    def _taken(self) -> int:
        return len(self.connections) + sum(listener.undecided for listener in self._listeners)

    async def close(self) -> None:
        """Take no more connections, end those there are, and wait for requests that are being answered."""
        for listener in self._listeners:
            await listener.close()
        for connection in list(self.connections):
            connection.close()
        await asyncio.to_thread(self.executor.shutdown, cancel_futures=True)


class PeerConnection(asyncio.BufferedProtocol):
    """One client's connection: a Caller."""

    def __init__(self, server: RemotingServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._decoder = FrameDecoder(server.limits.largest_frame)
        self._transport: asyncio.Transport | None = None
        self._session = Session(server.shared, loop, self, self._write)
        self._is_paused = False
        self._buffered = 0
        self._last_active = loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._opaque = 0
        self._asked: dict[int, Future[RemotingCommand | None]] = {}
        # answers that go out together: a call of the kernel for each would take a third of the time
        self._outgoing: list[bytes] = []
        self._outgoing_size = 0
        self._is_answering = False
        self.remote = ""
        self.local_ip = ""

    # ---- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # a connection may be over again before it is looked at: then there are no addresses
        self.remote = _address_text(transport.get_extra_info("peername") or ("gone", 0))
        self.local_ip = str((transport.get_extra_info("sockname") or ("",))[0])
        limit = self._server.limits.connections
        if len(self._server.connections) >= limit:
            self._server.traffic.refused_connections += 1
            self._end(f"there are {counted(limit, 'connection')} already")
            return
        self._server.connections.add(self)
        self._watch_idleness()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client went, or was sent away."""
        self._transport = None
        self._count_buffered(0)
        self._session.close()
        for opaque in list(self._asked):
            self._answered(opaque, None)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self in self._server.connections:
            self._server.connections.discard(self)
            self._server.on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for received bytes: they are taken from there before those of other connections."""
        return self._server.incoming

    def buffer_updated(self, nbytes: int) -> None:
        """Take `nbytes` received bytes."""
        self._last_active = self._loop.time()
        self._server.traffic.bytes_in += nbytes
        self._decoder.feed(self._server.incoming[:nbytes])
        self._process()

    def pause_writing(self) -> None:
        """The client does not read what it asked for: it is not heard until it does."""
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        self._is_paused = False
        if self._transport is not None:
            self._transport.resume_reading()
            self._process()

    # ---- requests

    def _process(self) -> None:
        self._is_answering = True
        next_command, count, serve = self._decoder.next_command, self._server.traffic.request, self._session.serve
        try:
            while not self._is_paused and self._transport is not None:
                command = next_command()
                if command is None:
                    break
                if command.flag & RESPONSE_FLAG:
                    self._answered(command.opaque, command)
                    continue
                count(command.code)
                serve(command)
        except CorruptError as error:
            self._end(error.message)
            return
        finally:
            self._is_answering = False
            self._send_out()
        self._count_buffered(self._decoder.buffered)
        if self._server.buffered > self._server.limits.buffered:
            self._end("unfinished frames of all clients take too much memory")

    # ---- what goes out

    def send(self, command: RemotingCommand) -> None:
        """Send the client a request; one that is disconnected meanwhile misses it."""
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        self._write(command._replace(opaque=self._opaque))

    def ask(self, command: RemotingCommand, seconds: float) -> Future[RemotingCommand | None]:
        """See Caller. In the thread of the loop."""
        if len(self._asked) >= _MOST_ASKED:
            raise RequestError(ResponseCode.SYSTEM_BUSY, f"{self.remote} has {_MOST_ASKED} requests to answer already")
        self.send(command)
        opaque = self._opaque
        future: Future[RemotingCommand | None] = Future()
        self._asked[opaque] = future
        self._loop.call_later(seconds, self._answered, opaque, None)
        return future

    def _answered(self, opaque: int, answer: RemotingCommand | None) -> None:
        future = self._asked.pop(opaque, None)
        if future is not None:
            future.set_result(answer)

    def _write(self, command: RemotingCommand | None) -> None:
        if command is None or self._transport is None or self._transport.is_closing():
            return
        version = self._server.version
        if command.version != version:
            command = command._replace(version=version)
        try:
            head = encode_head(command)
        except CorruptError as error:
            self._server.tell(f"{self.remote}: {error.message}")
            command = RemotingCommand(
                ResponseCode.SYSTEM_ERROR, remark=error.message, opaque=command.opaque, flag=command.flag
            )
            head = encode_head(command)
        size = len(head) + len(command.body)
        self._server.traffic.bytes_out += size
        if not self._outgoing and not self._is_answering:
            # with what else is to be said in this turn of the loop
            self._loop.call_soon(self._send_out)
        if len(command.body) < _LARGE_BODY:
            self._outgoing.append(head + command.body)
        else:
            self._outgoing.append(head)
            self._send_out()
            self._outgoing.append(command.body)
        self._outgoing_size += size
        if self._outgoing_size >= _TOGETHER:
            self._send_out()

    def _send_out(self) -> None:
        if self._outgoing and self._transport is not None and not self._transport.is_closing():
            self._last_active = self._loop.time()
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()
        self._outgoing_size = 0

    @property
    def unsent(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size() + self._outgoing_size

    def close(self) -> None:
        """End the connection; what was answered still goes out."""
        self._send_out()
        if self._transport is not None:
            self._transport.close()

    # ---- bounds

    def _end(self, reason: str) -> None:
        self._server.tell(f"{self.remote}: connection closed: {reason}")
        if self._transport is not None:
            self._transport.abort()

    def _count_buffered(self, size: int) -> None:
        self._server.buffered += size - self._buffered
        self._buffered = size

    def _watch_idleness(self) -> None:
        left = self._last_active + self._server.limits.idle_seconds - self._loop.time()
        if left <= 0:
            self.close()
        else:
            self._idle_timer = self._loop.call_later(left, self._watch_idleness)


def _address_text(address: Any) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
