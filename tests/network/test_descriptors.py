"""Connections never take the file descriptors that the store needs."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import ExhaustedError
from rmqctl.formats.message import Message
from rmqctl.network.remoting.tls import Admission, connections_left
from rmqctl.store import MessageStore
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import background, io
from rmqctl.store.files.layout import ownership_of
from tests.network.benches import Bench, served

UNIQUE = {"UNIQ_KEY": "0000000000000000000000000000000A"}
CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400)


def test_a_small_limit_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (200, 200))
    assert 2 <= connections_left(2000) <= 100
    monkeypatch.setattr(resource, "getrlimit", lambda which: (4096, 4096))
    assert connections_left(2000) == 2000
    monkeypatch.setattr(resource, "getrlimit", lambda which: (16, 16))
    assert connections_left(2000) == 2


def test_what_is_refused_is_said_once() -> None:
    lines: list[str] = []
    admission = Admission(3, lines.append)
    counts = [1, 2]
    admission.count(lambda: counts[0])
    admission.count(lambda: counts[1])
    assert [admission.is_full() for _ in range(1000)] == [True] * 1000
    assert lines == ["there are 3 connections already: further ones are closed"]
    counts[1] = 1
    assert not admission.is_full()


def test_an_accept_without_descriptors_is_said_once_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(bench: Bench) -> None:
        loop, failed = asyncio.get_running_loop(), 0
        accept = socket.socket.accept

        def failing(self: socket.socket) -> Any:
            nonlocal failed
            if failed < 3:
                failed += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return accept(self)

        monkeypatch.setattr("rmqctl.network.remoting.tls._AGAIN_SECONDS", 0.01)
        monkeypatch.setattr(socket.socket, "accept", failing)
        _, writer = await asyncio.open_connection("127.0.0.1", bench.port)
        async with asyncio.timeout(20):
            while not bench.server.connections:
                await asyncio.sleep(0.01)
        writer.close()
        assert failed == 3
        assert [line for line in bench.told if "accepted" in line] == [
            "a connection cannot be accepted: Too many open files"
        ]
        assert loop.is_running()

    served(check)


class _Lacking:
    """File descriptors are used up, but for files that are open already."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_lacking = False
        self.refused = 0
        opened = os.open

        def open_(path: Any, *arguments: Any, **options: Any) -> int:
            if self.is_lacking and "store" in str(path):
                self.refused += 1
                raise OSError(errno.EMFILE, "Too many open files", str(path))
            return opened(path, *arguments, **options)

        monkeypatch.setattr(os, "open", open_)


def _give_away(path: Path) -> None:
    path.mkdir()
    io.give_to(path, ownership_of(path.parent))


@pytest.mark.parametrize("make", [_give_away, lambda path: io.create_file(path, 10)])
def test_a_background_step_waits_for_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """The directory of a new queue is made, then given to the store's owner."""
    (tmp_path / "store").mkdir(mode=0o750)
    lacking = _Lacking(monkeypatch)
    lacking.is_lacking = True

    def slept(seconds: float) -> None:
        lacking.is_lacking = lacking.refused < 3

    monkeypatch.setattr("rmqctl.store.files.background.sleep", slept)
    path = tmp_path / "store" / "new"
    with background.patient(lambda: True):
        make(path)
    assert (lacking.refused, path.exists()) == (3, True)
    lacking.is_lacking = True
    with pytest.raises(ExhaustedError):
        make(path.with_name("other"))


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_store_writes_again_once_there_are_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    lacking = _Lacking(monkeypatch)
    config = CONFIG._replace(flush_disk_type=flush, sync_flush_timeout=200)
    stored = 0
    with MessageStore.open(tmp_path / "store", "rw", config, create=True) as store:
        for number in range(200):
            lacking.is_lacking = 20 <= number < 120
            try:
                result = store.put(Message(f"T{number % 5}", b"x" * 3000, 0, 0, UNIQUE))
            except ExhaustedError:
                assert lacking.is_lacking
                break
            stored += result.status.is_stored
        assert lacking.refused > 0
        lacking.is_lacking = False
        for _ in range(30):
            result = store.put(Message("T9", b"x" * 3000, 0, 0, UNIQUE))
            assert result.status.is_stored, result
            stored += 1
    assert not (tmp_path / "store" / "abort").exists()
    with MessageStore.open(tmp_path / "store") as store:
        assert [finding for finding in store.check() if finding.severity == "error"] == []
        assert sum(queue.max_offset for queue in store.files.queues.all()) == stored
