"""Starts `rmqctl serve` as a process of its own, and ends it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.processes import start

SECONDS = 60
ANY = "127.0.0.1:0"


@dataclass
class Served:
    """A running `rmqctl serve`. `ended`: its exit code, once it was told to end."""

    namesrv: str
    broker: str
    process: subprocess.Popen[str]
    errors: str = ""

    def end(self, number: int = signal.SIGTERM) -> int:
        """Tell it to end, and wait until it has."""
        self.process.send_signal(number)
        _, self.errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode


@contextlib.contextmanager
def serving(store: Path, *options: str) -> Iterator[Served]:
    """`rmqctl serve` over `store` at free ports; killed in the end if it was not told to."""
    command = [sys.executable, "-m", "rmqctl", "serve", "-s", str(store), "--json"]
    for name in ("--listen", "--namesrv"):
        command += [] if name in options else [name, ANY]
    with start([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # of a process that hangs: `start` ends it
            if not line:
                process.kill()
                raise AssertionError(f"it did not come up: {process.communicate()[1]}")
            at = json.loads(line)
            assert at["writable"] is False
            yield Served(at["namesrv"], at["broker"], process)
        finally:
            if process.poll() is None:
                process.kill()
