"""Masters and slaves of the real RocketMQ: stores in JVMs of their own that do what a test tells them."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.brokers import serve_command
from tests.interop.harness import MAIN, java_command, write_properties
from tests.interop.toolchain import servers, toolchain
from tests.processes import start

SETTINGS = {
    "store.mappedFileSizeCommitLog": "65536",
    "store.mappedFileSizeConsumeQueue": "2000",
    "store.maxHashSlotNum": "100",
    "store.maxIndexNum": "400",
    "store.timerWheelEnable": "false",
    "store.enableCompaction": "false",
}
LIMIT = 240


@dataclass
class Replica:
    """A running store. `port`: its HA port."""

    process: subprocess.Popen[str]
    port: int
    log: list[str]

    def tell(self, line: str) -> int:
        """Have it do something; the physical offset behind its last message then."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> int:
        """What it says when it has done what it was told, or has come up."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("at "):
                return int(line.split()[1])
            self.log.append(line)
        raise AssertionError("".join(self.log))

    def stop(self) -> None:
        """Have it shut down."""
        self.tell("stop")
        assert self.process.wait(LIMIT) == 0, "".join(self.log)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(LIMIT)


def free_port() -> int:
    """A port that nobody has just now, below those that the system gives to connections."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextlib.contextmanager
def replica(
    version: str, store: Path, role: str, port: int | None = None, more: Mapping[str, str] | None = None
) -> Iterator[Replica]:
    """A master or slave (`role`: brokerRole) over the store at `store`, which is made if there is none."""
    scratch = store.with_name(store.name + "-java")
    scratch.mkdir(exist_ok=True)
    store.mkdir(exist_ok=True)
    port = port or free_port()
    own = {"store.brokerRole": role, "store.haListenPort": str(port)}
    settings = write_properties(scratch / "replica.properties", SETTINGS | own | dict(more or {}))
    with _running([*java_command(toolchain(version), scratch), MAIN, "replica", store, settings], port) as running:
        yield running


@contextlib.contextmanager
def broker(store: Path, settings: Mapping[str, str]) -> Iterator[Replica]:
    """A whole broker of 5.3.3 over the store at `store`, with a broker.conf of these `settings`."""
    scratch = store.with_name(store.name + "-java")
    scratch.mkdir(exist_ok=True)
    command = serve_command(servers("5.3.3"), scratch, store, settings)
    with _running(command, int(settings["haListenPort"])) as running:
        yield running


@contextlib.contextmanager
def _running(command: list[str | Path], port: int) -> Iterator[Replica]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start(command, seconds=LIMIT, **pipes) as process:
        log: list[str] = []
        reading = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
        reading.start()
        try:
            running = Replica(process, port, log)
            running.answer()
            yield running
        finally:
            if process.poll() is None:
                process.kill()
