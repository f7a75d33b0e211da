"""Frames that are cut at any byte: the peer closes or falls silent, and no descriptor, thread or other peer suffers."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.network.remoting.codec import FrameDecoder, RemotingCommand, encode_frame
from rmqctl.store.config.config import StoreConfig
from tests.network.serving import SECONDS, serving_here

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400)
QUESTION = encode_frame(RemotingCommand(28, {"ignored": "x"}, b"body", opaque=5))


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def _answer(connection: socket.socket) -> RemotingCommand:
    decoder = FrameDecoder()
    while (answer := decoder.next_command()) is None:
        data = connection.recv(1 << 16)
        assert data
        decoder.feed(data)
    return answer


def _sockets() -> int:
    """Return how many sockets this process holds."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving_here(tmp_path / "store", CONFIG, {}) as broker:
        yield broker.address


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are counted in /proc")
@pytest.mark.parametrize("reset", [False, True])
def test_every_length_then_close_or_silence(address: str, reset: bool) -> None:
    with _connected(address) as first:
        first.sendall(QUESTION)
        assert _answer(first).code == 0
        before, threads = _sockets(), threading.active_count()
        silent = []
        for length in range(len(QUESTION)):
            closing, waiting = _connected(address), _connected(address)
            for one in (closing, waiting):
                one.sendall(QUESTION[:length])
            if reset:
                closing.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            closing.close()
            silent.append((length, waiting))
        first.sendall(QUESTION)
        assert _answer(first).code == 0
        # silence is patience: what is missing comes, and the answer as well
        for length, one in silent:
            one.sendall(QUESTION[length:])
            assert _answer(one).code == 0
            one.close()
        end = time.monotonic() + SECONDS
        while _sockets() > before and time.monotonic() < end:
            time.sleep(0.01)
        assert _sockets() <= before
        # a pool may have grown, but not with each connection
        assert threading.active_count() < threads + len(QUESTION) // 2
