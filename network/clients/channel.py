"""A way to one server: requests out, answers and the server's own requests in."""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import NamedTuple, Protocol

from rmqctl.formats.errors import CorruptError, RemoteError, UsageError
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.network.remoting.authentication import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature
from rmqctl.network.remoting.codec import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    FrameDecoder,
    RemotingCommand,
    ResponseCode,
    encode_frame,
)

Answered = RemotingCommand | Future[RemotingCommand] | None
"""An answer to a request of the server, at once or later; None for no answer."""

OnRequest = Callable[[RemotingCommand], Answered]
"""Takes a request that the server sends, and returns the answer; in a thread of the channel, so it must not wait for
answers."""

LANGUAGE = "PYTHON"
SEND_SECONDS = 3.0
"""A server that takes nothing for so long counts as gone (sendMsgTimeout)."""


class AddressError(RemoteError):
    """The address of a name server is missing or malformed."""


class Channel(Protocol):
    """A connection to a server, or its substitute in the same process."""

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""

    def send(self, command: RemotingCommand, seconds: float = SEND_SECONDS) -> None:
        """Send a command as it is. RemoteError if the server is gone, or takes nothing for `seconds`."""

    def close(self) -> None:
        """End it; pending requests get a RemoteError."""


Dial = Callable[[str, "Answers"], Channel]
"""dial(address, answers): a channel to the server at `host:port`. RemoteError."""


class Answers:
    """Requests that wait for their answers, by their opaque numbers."""

    def __init__(self, address: str, on_request: Callable[[RemotingCommand], object]) -> None:
        self.address = address
        self._on_request = on_request
        self._lock = threading.Lock()
        self._opaque = 0
        self._waiting: dict[int, Future[RemotingCommand]] = {}

    def expect(self, command: RemotingCommand) -> tuple[RemotingCommand, Future[RemotingCommand]]:
        """`command` with a number of its own, and the future of its answer."""
        future: Future[RemotingCommand] = Future()
        with self._lock:
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            self._waiting[self._opaque] = future
            return command._replace(opaque=self._opaque, language=LANGUAGE), future

    def received(self, command: RemotingCommand) -> None:
        """The server sent something."""
        if not command.is_response:
            # a server that is gone meanwhile asks again, if it comes back
            with contextlib.suppress(RemoteError):
                self._on_request(command)
            return
        with self._lock:
            future = self._waiting.pop(command.opaque, None)
        if future is not None:
            future.set_result(command)

    def forget(self, opaque: int) -> None:
        """Discard a pending answer."""
        with self._lock:
            self._waiting.pop(opaque, None)

    def forget_future(self, future: Future[RemotingCommand]) -> None:
        """Take no answer for a future any more."""
        with self._lock:
            self._waiting = {opaque: one for opaque, one in self._waiting.items() if one is not future}

    def lost(self, reason: str) -> None:
        """The server is gone: nothing will be answered."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(RemoteError(f"{self.address}: {reason}"))


class Connection:
    """Requests over one channel."""

    def __init__(self, address: str, dial: Dial, on_request: OnRequest) -> None:
        """RemoteError where the server cannot be reached."""
        self.address = address
        self._on_request = on_request
        self._answers = Answers(address, self._asked)
        self._channel = dial(address, self._answers)

    def _asked(self, command: RemotingCommand) -> None:
        answer = self._on_request(command)
        if command.is_oneway:
            return
        if isinstance(answer, Future):
            answer.add_done_callback(lambda done: self._answer_later(command, done))
            return
        if answer is None:
            # mqadmin's consumerStatus, for one, need not wait for an answer that does not come
            remark = f" request type {command.code} not supported"
            answer = RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        self._answer(command, answer)

    def _answer_later(self, command: RemotingCommand, done: Future[RemotingCommand]) -> None:
        if not done.cancelled():
            # a server that is gone meanwhile waits no longer
            with contextlib.suppress(RemoteError):
                self._answer(command, done.result())

    def _answer(self, command: RemotingCommand, answer: RemotingCommand) -> None:
        self._channel.send(answer._replace(opaque=command.opaque, flag=RESPONSE_FLAG, language=LANGUAGE))

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._channel.is_open

    def submit(self, command: RemotingCommand, seconds: float = SEND_SECONDS) -> Future[RemotingCommand]:
        """Send a request; its answer comes with the future. RemoteError as for `Channel.send`."""
        numbered, future = self._answers.expect(command)
        try:
            self._channel.send(numbered, seconds)
        except RemoteError:
            self._answers.forget(numbered.opaque)
            raise
        return future

    def abandon(self, future: Future[RemotingCommand]) -> None:
        """Take no answer for a future of `submit` any more."""
        self._answers.forget_future(future)

    def request(self, command: RemotingCommand, seconds: float) -> RemotingCommand:
        """Send a request and wait for its answer. RemoteError if none comes in `seconds`, or the server takes nothing
        of the request for so long."""
        numbered, future = self._answers.expect(command)
        try:
            self._channel.send(numbered, seconds)
            return future.result(seconds)
        except FutureTimeoutError:
            raise RemoteError(
                f"{self.address}: request {command.code} is not answered within {seconds:.3g} s"
            ) from None
        finally:
            self._answers.forget(numbered.opaque)

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request that is not answered."""
        numbered, _ = self._answers.expect(command._replace(flag=ONEWAY_FLAG))
        self._answers.forget(numbered.opaque)
        self._channel.send(numbered)

    def close(self) -> None:
        """End it."""
        self._channel.close()


# TLS over a socket for one thread that reads and others that write, none of whom waits for another.

_CHUNK = 1 << 18


class EncryptedSocket:
    """Reads and writes through a TLS connection. Writers take turns, as with a plain socket.

    The library's own TLS sockets may not be used by two threads at once; here nothing is locked while a peer is waited
    for.
    """

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Shake hands with `host`, within the socket's timeout. OSError (ssl.SSLError) where that fails."""
        self._plain = plain
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_hostname=host if context.check_hostname else None)
        self._lock = threading.Lock()
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(self._goes.read())
                data = plain.recv(_CHUNK)
                if not data:
                    raise OSError("the server ends the connection instead of shaking hands") from None
                self._came.write(data)
            except ssl.SSLError:
                # a peer that is gone by now must not hide why the handshake failed
                with contextlib.suppress(OSError):
                    plain.sendall(self._goes.read())
                raise
        plain.sendall(self._goes.read())

    def recv(self, size: int) -> bytes:
        """Some bytes; none when the server has ended the connection."""
        while True:
            with self._lock:
                try:
                    return self._tls.read(size)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return b""
            data = self._plain.recv(size)
            if not data:
                return b""
            with self._lock:
                self._came.write(data)

    def send_all(self, data: bytes, seconds: float) -> None:
        """See `send_all`."""
        with self._lock:
            self._tls.write(data)
            encrypted = self._goes.read()
        send_all(self._plain, encrypted, seconds)

    def shutdown(self, how: int) -> None:
        """End the connection."""
        self._plain.shutdown(how)

    def close(self) -> None:
        """Give the socket back."""
        self._plain.close()


# The messages in the body of an answer: stored frames back to back (MessageDecoder#decodes).


def messages_of(body: bytes) -> list[StoredMessage]:
    """All of them, their checksums checked. CorruptError where the bytes are no messages."""
    found: list[StoredMessage] = []
    position = 0
    while position < len(body):
        try:
            message = decode_message(body, position, len(body) - position, None)
        except FrameDamage as damage:
            raise CorruptError(f"byte {position} of the answer begins no message: {damage.detail}") from damage
        found.append(message)
        position += message.total_size
    return found


# Channels over TCP: a socket, and a thread that reads what comes.


def send_all(plain: socket.socket, data: bytes, seconds: float) -> None:
    """Send all of `data`, however slowly it is taken. TimeoutError where nothing is taken for `seconds`: for a frozen
    server a socket would wait without end."""
    left = memoryview(data)
    while left:
        try:
            left = left[plain.send(left, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            number = plain.fileno()
            if number < 0:  # another thread has closed it meanwhile
                raise ConnectionAbortedError("it is closed") from None
            ready = select.poll()
            ready.register(number, select.POLLOUT)
            if not ready.poll(seconds * 1000):
                raise TimeoutError(f"nothing is taken for {seconds:.3g} s") from None


_CONNECT_SECONDS = 3.0
_LARGEST_PORT = 65535


SendAll = Callable[[bytes, float], None]


class SocketChannel:
    """One TCP connection."""

    def __init__(self, address: str, answers: Answers, tls: ssl.SSLContext | None = None) -> None:
        """RemoteError if no server listens, or, with `tls`, if no server shows the required certificate."""
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
            encrypted = None if tls is None else EncryptedSocket(plain, tls, host)
            self._socket = encrypted or plain
            self._send_all: SendAll = functools.partial(send_all, plain) if encrypted is None else encrypted.send_all
            plain.settimeout(None)
        except OSError as error:
            plain.close()
            reason = getattr(error, "verify_message", "") or str(error)
            raise RemoteError(
                f"{address} does not speak TLS as it should: {reason}",
                hint="is TLS spoken there, and is its certificate the one meant?",
            ) from error
        threading.Thread(target=self._read, name=f"rmqctl-read-{address}", daemon=True).start()

    def send(self, command: RemotingCommand, seconds: float = SEND_SECONDS) -> None:
        """See Channel."""
        frame = encode_frame(command)
        try:
            with self._sending:
                self._send_all(frame, seconds)
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
            reason = f"not an answer of RocketMQ: {error.message}"
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
    """Return host and port to dial. AddressError for a malformed address: systems take ports beyond the largest for
    others."""
    host, _, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_LARGEST_PORT))
    if not host or not is_number or not 0 < int(port) <= _LARGEST_PORT:
        raise AddressError(f"{address!r} is no address", hint="write it as HOST:PORT, 127.0.0.1:9876")
    return host.strip("[]"), int(port)


def dial_encrypted(context: ssl.SSLContext) -> Dial:
    """Opens channels over TLS."""
    return lambda address, answers: SocketChannel(address, answers, context)


# Clients with a user: credentials from a file, and channels that sign what they send (AclClientRPCHook).


class Credentials(NamedTuple):
    """The user of a client. `token`: of a temporary user."""

    access_key: str
    secret_key: str
    token: str = ""


def read_credentials(path: Path) -> Credentials:
    """Read a file like RocketMQ's conf/tools.yml: accessKey, secretKey and securityToken.

    Raises: UsageError where it does not name the first two; UnreadableError.
    """
    from rmqctl.store.config.accounts import read_yaml

    hint = "write `accessKey: NAME` and `secretKey: PASSWORD`"
    try:
        content = read_yaml(path)
    except CorruptError as error:
        raise UsageError(error.message, file=path, hint=hint) from error
    access_key, secret_key, token = (content.get(name) for name in ("accessKey", "secretKey", "securityToken"))
    if not access_key or not secret_key:
        raise UsageError("accessKey or secretKey is missing", file=path, hint=hint)
    return Credentials(str(access_key), str(secret_key), str(token or ""))


def dial_signed(dial: Dial, credentials: Credentials) -> Dial:
    """Return what opens the channels of `dial` for a user."""
    return lambda address, answers: _SignedChannel(dial, address, answers, credentials)


class _SignedChannel:
    def __init__(self, dial: Dial, address: str, answers: Answers, credentials: Credentials) -> None:
        self._channel: Channel = dial(address, answers)
        self._user = {ACCESS_KEY: credentials.access_key}
        if credentials.token:
            self._user[SECURITY_TOKEN] = credentials.token
        self._secret = credentials.secret_key

    @property
    def is_open(self) -> bool:
        """See Channel."""
        return self._channel.is_open

    def send(self, command: RemotingCommand, seconds: float = SEND_SECONDS) -> None:
        """See Channel. Answers are sent unsigned."""
        if not command.is_response:
            fields = {**command.fields, **self._user}
            fields[SIGNATURE] = signature(fields, bytes(command.body), self._secret)
            command = command._replace(fields=fields)
        self._channel.send(command, seconds)

    def close(self) -> None:
        """See Channel."""
        self._channel.close()
