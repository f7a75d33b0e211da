"""Many at one store at once: threads that put, alone and many at a time, threads and a second process that read, rolls
and a cleaner. What was acknowledged is read back, and nobody ever sees a byte that was not put."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.processes import start
from tests.proof.proving import Case

_SECONDS_A_CASE = 5
_WRITERS = 8
_READERS = 4
_PAUSE_S = 0.002
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000, timer_wheel_enable=False
)
_READ = "import sys; from tests.proof.load import read_on; read_on(sys.argv[1])"


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` seconds, in stretches of five, of asynchronous and synchronous flushes in turn."""
    for number in range(-(-count // _SECONDS_A_CASE)):
        flush = ("ASYNC_FLUSH", "SYNC_FLUSH")[(number + seed + 1) % 2]
        yield f"{flush}-{number}", functools.partial(_try, flush)


def signed(text: str) -> bytes:
    """A body that says by itself whether it is whole."""
    body = text.encode() + b"." * (len(text) * 37 % 900)
    return b"%08x" % zlib.crc32(body) + body


def check_message(one: StoredMessage) -> None:
    """AssertionError for a body that nobody put."""
    assert int(one.body[:8], 16) == zlib.crc32(one.body[8:]), f"a wrong byte at {one.physical_offset}"
    assert one.body[8:].startswith(f"{one.topic} {one.queue_id} ".encode()), (
        f"of another queue at {one.physical_offset}"
    )


class _Crew:
    """Threads that go on until the time is over or one of them fails."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def sets(self, work: Callable[[int], None]) -> None:
        """Have `work` done again and again, with numbers from 0 on."""

        def again() -> None:
            try:
                for number in itertools.count():
                    if self.is_over.is_set():
                        return
                    work(number)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the main thread raises it
                self.errors.append(error)
                self.is_over.set()

        self._threads.append(threading.Thread(target=again))

    def work(self, seconds: float) -> None:
        """All of them at once; the first error of any."""
        for thread in self._threads:
            thread.start()
        self.is_over.wait(seconds)
        self.is_over.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def _try(flush: str, folder: Path) -> None:
    root = folder / "store"
    config = CONFIG._replace(flush_disk_type=flush)
    acknowledged: list[tuple[int, str]] = []
    crew = _Crew()
    with MessageStore.open(root, "rw", config, create=True) as store:
        assert store.put(Message(topic="first", body=b"")).status.is_stored
        for writer in range(_WRITERS):
            crew.sets(functools.partial(_put, store, acknowledged, writer))
        for _ in range(_READERS):
            crew.sets(functools.partial(_read_last, store))
        crew.sets(functools.partial(_clean, store))
        command = [sys.executable, "-c", _READ, str(root)]
        other = start(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        crew.work(_SECONDS_A_CASE)
        store.flush()
        _, problems = other.communicate()
        assert other.returncode == 0, problems[-1500:]
    read_back(root, acknowledged)


def _put(store: MessageStore, acknowledged: list[tuple[int, str]], writer: int, number: int) -> None:
    """One message, or with every third turn ten at once; what is acknowledged is noted."""
    texts = [f"load {writer} {number}-{place}" for place in range(10 if number % 3 == 2 else 1)]
    messages = [Message(topic="load", queue_id=writer, body=signed(text)) for text in texts]
    results = store.put_many(messages) if len(messages) > 1 else [store.put(messages[0])]
    for text, result in zip(texts, results, strict=True):
        assert result.status.is_stored, result
        assert result.physical_offset is not None
        acknowledged.append((result.physical_offset, text))
    time.sleep(_PAUSE_S)


def _read_last(store: MessageStore, number: int) -> None:
    queue = number % _WRITERS
    found = store.get("load", queue, 0, 1)
    for offset in (found.min_offset, max(found.min_offset, found.max_offset - 20)):
        for one in store.get("load", queue, offset).messages:
            check_message(one)
    time.sleep(_PAUSE_S)


def _clean(store: MessageStore, _: int) -> None:
    time.sleep(1)
    store.clean(CleanOptions(at_once=True, batch_maximum=1, pause=0))


def read_on(root: str) -> None:
    """In a second process: the whole store again and again, until nobody holds its standard input open."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.is_set():
        with contextlib.suppress(RmqctlError), MessageStore.open(root, config=CONFIG) as store:
            for one in store.messages():
                if one.topic == "load":
                    check_message(one)
    os._exit(0)


def read_back(root: Path, acknowledged: list[tuple[int, str]]) -> None:
    """Whatever the cleaner left is there, in the log and in its queue, and nothing else."""
    with MessageStore.open(root, config=CONFIG) as store:
        begin = store.files.log.min_offset
        expected = sorted((offset, text) for offset, text in acknowledged if offset >= begin)
        there = []
        for one in store.messages():
            if one.topic == "load":
                check_message(one)
                assert store.get(one.topic, one.queue_id, one.queue_offset, 1).messages == [one]
                there.append((one.physical_offset, one.body[8:].decode().rstrip(".")))
        assert acknowledged
        assert there == expected, f"{len(there)} for {len(expected)}"
        alarms = [finding for finding in store.check("full") if finding.severity.is_alarm]
        assert not alarms, alarms
