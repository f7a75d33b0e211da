"""Channels over TCP: a socket, and a thread that reads what comes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

from rmqctl.formats.errors import CorruptError, RemoteError
from rmqctl.network.clients.channel import Answers, Dial
from rmqctl.network.clients.encrypted import EncryptedSocket
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.frames import FrameDecoder, encode_frame

_CONNECT_SECONDS = 3.0
_LARGEST_PORT = 65535
# a server that takes nothing for so long is gone
_SEND_SECONDS = 30.0
_CHUNK = 1 << 18


class SocketChannel:
    """One TCP connection."""

    def __init__(self, address: str, answers: Answers, tls: ssl.SSLContext | None = None) -> None:
        """RemoteError where nobody listens, or, with `tls`, where nobody shows the certificate that it asks for."""
        self._address = address
        self._answers = answers
        self._sending = threading.Lock()
        self.is_open = True
        host, port = _host_and_port(address)
        try:
            plain = socket.create_connection((host, port), _CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise RemoteError(
                f"{address} cannot be reached: {reason}", hint="is it running, and is this its address?"
            ) from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain if tls is None else EncryptedSocket(plain, tls, host)
            plain.settimeout(None)
        except OSError as error:
            plain.close()
            reason = getattr(error, "verify_message", "") or str(error)
            raise RemoteError(
                f"{address} does not speak TLS as it should: {reason}",
                hint="is TLS spoken there, and is its certificate the one meant?",
            ) from error
        threading.Thread(target=self._read, name=f"rmqctl-read-{address}", daemon=True).start()

    def send(self, command: RemotingCommand) -> None:
        """See Channel."""
        frame = encode_frame(command)
        try:
            with self._sending:
                self._socket.sendall(frame)
        except OSError as error:
            self._lose(f"the connection is lost: {error}")
            raise RemoteError(f"{self._address}: the connection is lost: {error}") from error

    def _read(self) -> None:
        decoder = FrameDecoder()
        reason = "the connection is closed"
        try:
            while data := self._socket.recv(_CHUNK):
                decoder.feed(data)
                while (command := decoder.next_command()) is not None:
                    self._answers.received(command)
        except OSError as error:
            reason = f"the connection is lost: {error}"
        except CorruptError as error:
            reason = f"the answer is none of RocketMQ's: {error.message}"
        finally:
            self._lose(reason)

    def _lose(self, reason: str) -> None:
        self.is_open = False
        self._answers.lost(reason)
        self._socket.close()

    def close(self) -> None:
        """See Channel."""
        self.is_open = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def _host_and_port(address: str) -> tuple[str, int]:
    """What to dial; RemoteError for what is no address. Systems take ports beyond the largest for others."""
    host, _, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_LARGEST_PORT))
    if not host or not is_number or not 0 < int(port) <= _LARGEST_PORT:
        raise RemoteError(f"{address!r} is no address", hint="write it as HOST:PORT, 127.0.0.1:9876")
    return host.strip("[]"), int(port)


def dial_encrypted(context: ssl.SSLContext) -> Dial:
    """Opens channels over TLS."""
    return lambda address, answers: SocketChannel(address, answers, context)
