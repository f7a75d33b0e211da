"""A process with RocketMQ's producers and members of groups, which come and go as a test says (Members.java)."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from tests.interop.toolchain import Unavailable, clients
from tests.processes import SHORT_LIVED_JVM, start

SECONDS = 120


class Got(NamedTuple):
    """A message that a member had. Times are ms since 1970."""

    member: str
    body: str
    times: int
    broker: str
    queue_id: int
    topic: str
    begin: int
    end: int


class Members:
    """Java's members; `lines`: what the process has printed, as columns."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self.lines: list[list[str]] = []
        self._reading = threading.Thread(target=self._read, args=(process.stdout,))
        self._reading.start()
        wait_for(lambda: ["ready"] in self.lines)

    def _read(self, out: TextIO) -> None:
        self.lines.extend(line.rstrip("\n").split("\t") for line in out)

    def do(self, line: str) -> list[list[str]]:
        """Have it carry out a line, and return what it printed meanwhile."""
        before = len(self.lines)
        self._stdin.write(line + "\n")
        self._stdin.flush()
        wait_for(lambda: ["done", line] in self.lines[before:])
        return self.lines[before:]

    def got(self, name: str) -> list[Got]:
        """Return what a member had up to now."""
        found = [one for one in list(self.lines) if one[:2] == ["got", name]]
        return [
            Got(one[1], one[2], int(one[3]), one[4], int(one[5]), one[6], int(one[7]), int(one[8])) for one in found
        ]

    def end(self) -> None:
        """End the process, if it runs."""
        self._stdin.close()
        self._reading.join(SECONDS)


@contextlib.contextmanager
def java_members(version: str, folder: Path, namesrv: str) -> Iterator[Members]:
    """A process of the clients of `version`; skips where there are none. `folder` is its user's home."""
    try:
        tools = clients(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    command: list[str | Path] = [tools.java, *SHORT_LIVED_JVM, "-Xmx256m", f"-Duser.home={folder}", "-cp"]
    command += [tools.classpath, "rmqctl.clients.Members", namesrv]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with start(command, seconds=3 * SECONDS, **pipes) as process:
        members = Members(process)
        yield members
        members.end()


def wait_for(is_so: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)
