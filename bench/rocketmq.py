"""The real RocketMQ as a process that measures on request (bench/java)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.harness import java_command
from tests.interop.toolchain import HarnessError, Toolchain, Unavailable, clients_with, proxy, servers, toolchain_with

VERSION = "5.5.0"
JAVA_SOURCES = Path(__file__).parent / "java"
CLIENT_SOURCES = Path(__file__).parent / "clients"
CALL_SOURCES = Path(__file__).parent / "grpc"
_JVM = ("-Xmx4g",)
_CLIENT_JVM = ("-Xmx1g",)


class Answer(NamedTuple):
    """What was measured. `drained`: seconds until queues and index were complete, too."""

    messages: int
    bytes: int
    seconds: float
    drained: float


class RocketMQ:
    """One JVM. Times are taken inside of it, so that its start does not count."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        """Use `running`."""
        self._process = process
        self._scratch = scratch

    def walk(self, store: Path) -> Answer:
        """Every message of the log through CommitLog#checkMessageAndReturnSize, CRC included, in one thread."""
        return self._ask("walk", store, self._scratch / "checker")

    def load(self, store: Path) -> Answer:
        """DefaultMessageStore#load, which recovers."""
        return self._ask("load", store)

    def rebuild(self, store: Path) -> Answer:
        """Load, start, and wait until everything is dispatched."""
        return self._ask("rebuild", store)

    def put(self, store: Path, count: int, body_size: int) -> Answer:
        """putMessage of `count` messages in one thread, after a warm-up."""
        return self._ask("put", store, count, body_size)

    def put_batches(self, store: Path, count: int, body_size: int, batch: int) -> Answer:
        """putMessages of `batch` messages at a time."""
        return self._ask("batch", store, count, body_size, batch)

    def _ask(self, *words: object) -> Answer:
        return Answer(**self.figures(*words))

    def figures(self, *words: object) -> dict[str, Any]:
        """What it answers to a request."""
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise HarnessError("the JVM has no pipes")
        requests.write("\t".join(map(str, words)) + "\n")
        requests.flush()
        for line in answers:
            if line.startswith("{"):
                told: dict[str, Any] = json.loads(line)
                return told
        log = (self._scratch / "log").read_text(errors="replace")
        raise HarnessError(f"RocketMQ ended at {words[0]}: {log[-2000:]}")


def missing() -> str | None:
    """Why the real RocketMQ cannot be run here; None if it can. Fetches and compiles at the first call."""
    return _reason(lambda: toolchain_with(VERSION, "bench", JAVA_SOURCES))


def missing_clients() -> str | None:
    """The same of its clients and its broker."""
    return _reason(_client_tools) or _reason(lambda: servers(VERSION))


def missing_calls() -> str | None:
    """The same of its clients of gRPC and its proxy."""
    return _reason(_call_tools) or _reason(lambda: proxy(VERSION))


def _reason(tools: Callable[[], Toolchain]) -> str | None:
    try:
        tools()
    except (Unavailable, HarnessError) as reason:
        return str(reason)
    return None


def _client_tools() -> Toolchain:
    return clients_with(VERSION, f"bench-clients-{VERSION}", CLIENT_SOURCES)


def _call_tools() -> Toolchain:
    return clients_with("grpc", "bench-calls", CALL_SOURCES)


@contextlib.contextmanager
def running() -> Iterator[RocketMQ]:
    """A JVM that ends, without any shutdown of its stores, when the context does."""
    with tempfile.TemporaryDirectory(prefix="rmqctl-bench-jvm-") as folder:
        command = java_command(toolchain_with(VERSION, "bench", JAVA_SOURCES), Path(folder), jvm=_JVM)
        with _running([*command, "rmqctl.bench.Main"], Path(folder)) as jvm:
            yield jvm


@contextlib.contextmanager
def running_clients() -> Iterator[RocketMQ]:
    """Another one, with clients that measure brokers (bench/clients)."""
    with _running_clients(_client_tools(), "Clients") as jvm:
        yield jvm


@contextlib.contextmanager
def running_calls() -> Iterator[RocketMQ]:
    """Another one, with clients that measure proxies (bench/grpc)."""
    with _running_clients(_call_tools(), "Calls") as jvm:
        yield jvm


@contextlib.contextmanager
def _running_clients(tools: Toolchain, main: str) -> Iterator[RocketMQ]:
    with tempfile.TemporaryDirectory(prefix="rmqctl-bench-clients-") as folder:
        command = java_command(tools, Path(folder), jvm=_CLIENT_JVM)
        with _running([*command, f"rmqctl.bench.{main}"], Path(folder)) as jvm:
            yield jvm


@contextlib.contextmanager
def _running(command: list[str | Path], scratch: Path) -> Iterator[RocketMQ]:
    pipe = subprocess.PIPE
    with (
        Path(scratch, "log").open("w") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process,
    ):
        try:
            yield RocketMQ(process, scratch)
        finally:
            process.kill()
