"""Starts `rmqctl serve` as a process of its own, or a broker behind sockets in a thread of ours; and ends it."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqctl.network.broker.settings import BrokerIdentity
from rmqctl.network.serving import ListeningBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.processes import LIMIT, start

SECONDS = 60
ANY = "127.0.0.1:0"


@dataclass
class Served:
    """A running `rmqctl serve`. `ended`: its exit code, once it was told to end."""

    namesrv: str
    broker: str
    process: subprocess.Popen[str]
    metrics: str | None = None
    slaves: str | None = None
    grpc: str | None = None
    errors: str = ""

    def end(self, number: int = signal.SIGTERM) -> int:
        """Tell it to end, and wait until it has."""
        self.process.send_signal(number)
        _, self.errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode


@contextlib.contextmanager
def serving(store: Path, *options: str, seconds: float = LIMIT) -> Iterator[Served]:
    """`rmqctl serve` over `store` at free ports; killed in the end if it was not told to, or after `seconds`."""
    command = [sys.executable, "-m", "rmqctl", "serve", "-s", str(store), "--json"]
    for name in ("--listen", "--namesrv"):
        command += [] if name in options else [name, ANY]
    pipe = subprocess.PIPE
    with start([*command, *options], seconds=seconds, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # of a process that hangs: `start` ends it
            if not line:
                process.kill()
                raise AssertionError(f"it did not come up: {process.communicate()[1]}")
            at = json.loads(line)
            assert at["writable"] is ("--writable" in options)
            yield Served(at["namesrv"], at["broker"], process, at.get("metrics"), at.get("slaves"), at.get("grpc"))
        finally:
            if process.poll() is None:
                process.kill()


@contextlib.contextmanager
def serving_here(
    path: Path,
    config: StoreConfig,
    settings: dict[str, str],
    *,
    name: str = "broker-a",
    register_at: str | None = None,
    tells: bool = False,
) -> Iterator[ListeningBroker]:
    """A broker that writes the store at `path`, which is made if there is none, behind sockets at free ports. It has to
    tell nothing, unless it `tells` what fails."""
    told: list[str] = []
    identity = BrokerIdentity(name=name)
    with (
        MessageStore.open(path, "rw", config, create=True) as store,
        ListeningBroker(store, identity, told.append, settings, register_at=register_at) as broker,
    ):
        yield broker
    assert tells or told == [], told


def free_pair() -> tuple[int, int]:
    """Return two free ports with a free one between them, below those that the system gives to connections."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000, 4)
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port + 1)),
            socket.create_server(("127.0.0.1", port + 2)),
        ):
            return port, port + 2
