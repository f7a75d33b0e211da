"""A slave's way to its master's HA port: TCP."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Protocol

from rmqctl.formats.errors import RemoteError

_CONNECT_SECONDS = 5.0
# a master takes 8 bytes at once, or it is gone
_SEND_SECONDS = 10.0
_CHUNK = 1 << 20


class SlaveLink(Protocol):
    """A connection to a master, or what stands for one."""

    def send(self, data: bytes) -> None:
        """Send all of it. RemoteError if the master is gone."""

    def receive(self, seconds: float) -> bytes:
        """What came meanwhile, waited for so long; empty if nothing did. RemoteError if the master is gone."""

    def close(self) -> None:
        """End it."""


DialMaster = Callable[[], SlaveLink]
"""A new link to the master. RemoteError."""


class SocketLink:
    """One TCP connection."""

    def __init__(self, host: str, port: int) -> None:
        """RemoteError where nobody listens."""
        self._name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), _CONNECT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise RemoteError(
                f"{self._name} cannot be reached: {error.strerror or error}",
                hint="it is the master's HA port that is wanted (haListenPort, 10912 by default)",
            ) from error

    def send(self, data: bytes) -> None:
        """See SlaveLink."""
        try:
            self._socket.settimeout(_SEND_SECONDS)
            self._socket.sendall(data)
        except OSError as error:
            raise RemoteError(f"{self._name}: the connection is lost: {error.strerror or error}") from error

    def receive(self, seconds: float) -> bytes:
        """See SlaveLink."""
        try:
            self._socket.settimeout(max(seconds, 0.001))
            data = self._socket.recv(_CHUNK)
        except TimeoutError:
            return b""
        except OSError as error:
            raise RemoteError(f"{self._name}: the connection is lost: {error.strerror or error}") from error
        if not data:
            raise RemoteError(f"{self._name}: the master has closed the connection")
        return data

    def close(self) -> None:
        """See SlaveLink."""
        with contextlib.suppress(OSError):
            self._socket.close()
