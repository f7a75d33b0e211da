"""A port for gRPC over TLS and without, going by the first byte, as the ports of remoting are.

The library of gRPC takes either at a port, so it listens at a socket of this machine, and what comes is handed on.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
import ssl

from rmqctl.network.remoting.requests import Tell
from rmqctl.network.remoting.server import Address, bound
from rmqctl.network.remoting.tls import Admission, Listener

_BUFFER = 64 * 1024
_FIRST_BYTE_SECONDS = 120.0


class _End(asyncio.BufferedProtocol):
    """One end of a connection that is handed on: what comes here leaves at the other end."""

    def __init__(self, front: Front, other: _End | None = None) -> None:
        self._front = front
        self.other = other
        self.transport: asyncio.Transport | None = None
        # Python 3.11.2 reads from a transport that was paused as it was made
        self._early = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came, or the way to the service is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.other is None:
            self._front.ends.add(self)
            transport.pause_reading()
            self._task = asyncio.create_task(self._connect(transport))

    async def _connect(self, transport: asyncio.Transport) -> None:
        try:
            taken = await self._front.connected(transport.get_extra_info("peername"))
            _, self.other = await asyncio.get_running_loop().create_unix_connection(
                lambda: _End(self._front, self), sock=taken
            )
            if not transport.is_closing():
                self._hand_on(bytes(self._early))
                self._early.clear()
                transport.resume_reading()
                return
        except OSError as error:
            self._front.tell(f"a connection cannot be handed on: {error.strerror}")
        self.connection_lost(None)
        transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended: the other end does, too."""
        self._front.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where bytes that come may be put: taken from there before any others come."""
        return self._front.incoming

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what came."""
        self._hand_on(bytes(self._front.incoming[:nbytes]))

    def _hand_on(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        elif len(self._early) < _BUFFER:
            self._early += data
        elif self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        """What is handed on is not read: no more is taken."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """It is read again."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


class Front:
    """Takes connections at an address, and hands them on to `inside`, where the service listens."""

    def __init__(self, tls: ssl.SSLContext, most: int, tell: Tell) -> None:
        """`most`: connections at once."""
        self.tell = tell
        self.name = f"rmqctl-{secrets.token_hex(8)}"
        self.inside = f"unix-abstract:{self.name}"
        self.ends: set[_End] = set()
        self.incoming = memoryview(bytearray(_BUFFER))
        self._tls = tls
        self._admission = Admission(most, tell)
        self._admission.count(lambda: len(self.ends))
        self._numbers = itertools.count()
        self._listener: Listener | None = None

    async def listen(self, host: str, port: int) -> Address:
        """Take connections; port 0 is any free one. RefusedError where that cannot be."""
        taken = bound(host, port)
        address = taken.getsockname()
        self._listener = Listener(
            taken, self._tls, lambda: _End(self), self.tell, self._admission, _FIRST_BYTE_SECONDS, lambda: None
        )
        return address[0], address[1]

    async def connected(self, peer: Address | None) -> socket.socket:
        """Return a socket that is connected to the service, and bound to a name that tells it the client's address."""
        host, port = (peer or ("gone", 0))[:2]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            taken.setblocking(False)
            taken.bind(f"\0{self.name}-{next(self._numbers)}/{where}")
            await asyncio.get_running_loop().sock_connect(taken, f"\0{self.name}")
        except OSError:
            taken.close()
            raise
        return taken

    async def close(self) -> None:
        """Take no more connections, and end those there are."""
        if self._listener is not None:
            await self._listener.close()
        for end in list(self.ends):
            if end.transport is not None:
                end.transport.close()
