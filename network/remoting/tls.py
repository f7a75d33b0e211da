"""TLS: contexts for servers and clients, and a port that speaks both, going by the first byte (TlsMode.PERMISSIVE)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rmqctl.formats.errors import UsageError, counted
from rmqctl.network.remoting.requests import Tell

# How many connections a process takes: what its file descriptors leave once the store has its share.

# what a busy store has open at once: 256 files that are read, 128 queues, the log, the index, and what is flushed
_STORE_DESCRIPTORS = 512
_FEWEST = 2
# how often the same lack is reported
_SILENT_SECONDS = 60.0


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one, where the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_left(most: int) -> int:
    """Return how many connections this process may take: `most`, or fewer where the limit of open files and what the
    store needs leave fewer. A small limit is shared by halves."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return most
    reserved = min(_STORE_DESCRIPTORS, limit // 2)
    return max(_FEWEST, min(most, limit - reserved - _open_descriptors()))


def _open_descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


class Admission:
    """One bound for the connections of several servers, and one line for what is refused because of it."""

    def __init__(self, most: int, tell: Tell) -> None:
        """`most`: connections at once, of all servers."""
        self.most = most
        self._tell = tell
        self._counts: list[Callable[[], int]] = []
        self._said: dict[str, float] = {}

    def count(self, taken: Callable[[], int]) -> None:
        """Count the connections of one more server: `taken` says how many it has."""
        self._counts.append(taken)

    def is_full(self) -> bool:
        """Return whether no further connection is taken; says so once a minute."""
        if sum(taken() for taken in self._counts) < self.most:
            return False
        self.say(f"there are {counted(self.most, 'connection')} already: further ones are closed")
        return True

    def say(self, line: str) -> None:
        """Report a lack, the same one at most once a minute."""
        now = time.monotonic()
        if now - self._said.get(line, -_SILENT_SECONDS) >= _SILENT_SECONDS:
            self._said[line] = now
            self._tell(line)


# the record type of a handshake, with which every TLS client begins
_HANDSHAKE_BYTE = b"\x16"
_HANDSHAKE_SECONDS = 10.0
# after an accept that failed
_AGAIN_SECONDS = 1.0

Accepted = Callable[[], asyncio.BufferedProtocol]


def server_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """What a server shows: a chain of certificates and its key, which may stand in the same file, both in PEM. TLS 1.2
    and later. UsageError for files that are none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # without a password nobody is asked for one
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        names = str(certificate) if key is None else f"{certificate} and {key}"
        raise UsageError(
            f"{names} cannot be used for TLS: {error.strerror if isinstance(error, OSError) else error}",
            hint="a certificate and its key in PEM, the key without a password",
        ) from error
    # clients of gRPC ask for it; those of remoting for none
    context.set_alpn_protocols(["h2"])
    return context


def client_context(authorities: Path | None, *, check_name: bool = False) -> ssl.SSLContext:
    """What a client asks for: with `authorities` (PEM) a certificate that they have signed; without, any
    (tls.client.authServer=false). UsageError for an invalid file.

    Whose name it bears is asked with `check_name` only, because RocketMQ's own clients never ask
    (TlsHelper#buildSslContext sets no endpoint identification), and brokers are known by addresses that name servers
    tell: certificates made for RocketMQ seldom bear those. Then it must be that of the host or address that is dialled.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_name
    if authorities is None:
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        context.load_verify_locations(authorities)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{authorities} cannot be used for TLS: {reason}", hint="certificates in PEM") from error
    return context


class Listener:
    """Accept connections at a socket one at a time: with a context encrypted ones and plain ones, else plain ones."""

    def __init__(
        self,
        taken: socket.socket,
        context: ssl.SSLContext | None,
        made: Accepted,
        tell: Tell,
        admission: Admission,
        idle_seconds: float,
        on_refused: Callable[[], None],
    ) -> None:
        """`made` gives the protocol of each connection; `tell` gets those that failed; `on_refused` is called for each
        one that `admission` refuses."""
        self._taken = taken
        self._context = context
        self._made = made
        self._tell = tell
        self._admission = admission
        self._on_refused = on_refused
        self._idle_seconds = idle_seconds
        self._undecided: set[asyncio.Task[None]] = set()
        taken.setblocking(False)
        self._task = asyncio.get_running_loop().create_task(self._accept())

    @property
    def undecided(self) -> int:
        """Connections that are accepted and have no protocol yet."""
        return len(self._undecided)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._taken)
            except OSError as error:
                # too many open files: some will be closed
                self._admission.say(f"a connection cannot be accepted: {error.strerror}")
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if self._admission.is_full():
                self._on_refused()
                connection.close()
                # those that wait for nothing else must not keep the loop from its clients
                await asyncio.sleep(0)
                continue
            task = loop.create_task(self._decide(connection))
            self._undecided.add(task)
            task.add_done_callback(self._undecided.discard)

    async def _decide(self, connection: socket.socket) -> None:
        """Look at the first byte without taking it, and hand the connection on."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        is_taken = False
        try:
            is_encrypted = False
            if self._context is not None:
                first = await self._first_byte(connection)
                if not first:
                    return
                is_encrypted = first == _HANDSHAKE_BYTE
            is_taken = True
            if is_encrypted:
                await loop.connect_accepted_socket(
                    self._made, connection, ssl=self._context, ssl_handshake_timeout=_HANDSHAKE_SECONDS
                )
            else:
                await loop.connect_accepted_socket(self._made, connection)
        except (OSError, TimeoutError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else str(error) or "nothing came"
            self._tell(f"a connection came to nothing: {reason}")
        finally:
            if not is_taken:
                connection.close()

    async def _first_byte(self, connection: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(connection, readable.set)
        try:
            async with asyncio.timeout(self._idle_seconds):
                await readable.wait()
        finally:
            loop.remove_reader(connection)
        return connection.recv(1, socket.MSG_PEEK)

    async def close(self) -> None:
        """Take no more connections, and let go of those that are undecided."""
        tasks = [self._task, *self._undecided]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._taken.close()
