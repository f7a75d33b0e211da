"""A server that takes nothing of a large request, as one that is frozen: the request ends by its time-out."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from rmqctl.formats.errors import RemoteError
from rmqctl.network.clients.channel import Connection, Dial, SocketChannel, dial_encrypted, send_all
from rmqctl.network.remoting.codec import FrameDecoder, RemotingCommand, encode_frame
from tests.network.certificates import certificate

BODY = bytes(15 << 20)
"""More than the kernel takes for a peer that reads nothing."""
SECONDS = 0.5

Peer = Callable[[socket.socket], None]


@contextlib.contextmanager
def served(peer: Peer) -> Iterator[str]:
    """The address of a server that does this with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        # what connections inherit: a kernel that adapts takes many MiB
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=peer, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def frozen(taken: socket.socket) -> None:
    threading.Event().wait()


def slow(taken: socket.socket) -> None:
    """Take some KiB at a time, with pauses that are together longer than the time-out, and answer."""
    decoder = FrameDecoder()
    while True:
        time.sleep(SECONDS / 100)
        decoder.feed(taken.recv(1 << 17))
        while (asked := decoder.next_command()) is not None:
            taken.sendall(encode_frame(RemotingCommand(0, opaque=asked.opaque, flag=1)))


def connection(address: str, dial: Dial = SocketChannel) -> Connection:
    return Connection(address, dial, lambda _: None)


def ways() -> list[Callable[[Connection], object]]:
    large = RemotingCommand(10, body=BODY)
    return [lambda to: to.request(large, SECONDS), lambda to: to.submit(large, SECONDS)]


@pytest.mark.parametrize("way", ways(), ids=["request", "submit"])
def test_a_frozen_server_costs_one_time_out(way: Callable[[Connection], object]) -> None:
    with served(frozen) as address:
        to = connection(address)
        begun = time.monotonic()
        with pytest.raises(RemoteError, match=r"nothing is taken for 0\.5 s"):
            way(to)
        assert time.monotonic() - begun >= SECONDS
        # a part of the request is on its way: what followed would be taken for the rest
        assert not to.is_open
        with pytest.raises(RemoteError):
            to.request(RemotingCommand(10), SECONDS)


def test_others_do_not_wait_behind_it() -> None:
    """Senders take turns: those behind the one that gave up fail at once."""
    with served(frozen) as address:
        to = connection(address)
        failed: list[str] = []

        def asking() -> None:
            try:
                to.request(RemotingCommand(10, body=BODY), SECONDS)
            except RemoteError as error:
                failed.append(str(error))

        threads = [threading.Thread(target=asking) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20 * SECONDS)
        assert len(failed) == 20


def test_over_tls(tmp_path: Path) -> None:
    held = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(held.certificate, held.key)

    def shaken(taken: socket.socket) -> None:
        with contextlib.suppress(OSError):
            frozen(context.wrap_socket(taken, server_side=True))

    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with served(shaken) as address:
        to = connection(address, dial_encrypted(client))
        with pytest.raises(RemoteError, match="nothing is taken"):
            to.request(RemotingCommand(10, body=BODY), SECONDS)


def test_a_socket_that_is_closed_meanwhile_is_a_lost_connection() -> None:
    full = Mock(spec=socket.socket)
    full.send.side_effect = BlockingIOError
    full.fileno.return_value = -1
    with pytest.raises(OSError, match="it is closed"):
        send_all(full, b"some", SECONDS)


def test_a_slow_server_gets_all_of_it() -> None:
    """Only a server that takes nothing at all counts as gone."""
    with served(slow) as address:
        begun = time.monotonic()
        answer = connection(address).submit(RemotingCommand(10, body=BODY), SECONDS).result(60)
        assert answer.code == 0
        assert time.monotonic() - begun > SECONDS
