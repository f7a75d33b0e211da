"""The real RocketMQ as a process that measures on request (bench/java)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.interop.harness import OPENED
from tests.interop.toolchain import SOURCES, HarnessError, Unavailable, toolchain_with

VERSION = "5.3.3"
JAVA_SOURCES = Path(__file__).parent / "java"
_HEAP = "-Xmx4g"


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
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise HarnessError("the JVM has no pipes")
        requests.write("\t".join(map(str, words)) + "\n")
        requests.flush()
        for line in answers:
            if line.startswith("{"):
                return Answer(**json.loads(line))
        log = (self._scratch / "log").read_text(errors="replace")
        raise HarnessError(f"RocketMQ ended at {words[0]}: {log[-2000:]}")


def missing() -> str | None:
    """Why the real RocketMQ cannot be run here; None if it can. Fetches and compiles at the first call."""
    try:
        toolchain_with(VERSION, "bench", JAVA_SOURCES)
    except (Unavailable, HarnessError) as reason:
        return str(reason)
    return None


@contextlib.contextmanager
def running() -> Iterator[RocketMQ]:
    """A JVM that ends, without any shutdown of its stores, when the context does."""
    tools = toolchain_with(VERSION, "bench", JAVA_SOURCES)
    with tempfile.TemporaryDirectory(prefix="rmqctl-bench-jvm-") as folder:
        command = [
            str(tools.java), _HEAP, *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
            f"-Drmq.logback.configurationFile={SOURCES / 'logback.xml'}", f"-Duser.home={folder}",
            f"-Djava.io.tmpdir={folder}", "-cp", tools.classpath, "rmqctl.bench.Main",
        ]  # fmt: skip
        log = Path(folder, "log")
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=dict(os.environ)
            ) as process,
        ):
            try:
                yield RocketMQ(process, Path(folder))
            finally:
                process.kill()
