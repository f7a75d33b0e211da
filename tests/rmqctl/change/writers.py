"""An `append` in a process of its own, in the middle of its work."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.processes import start

MESSAGES = 4000
"""How many it was sent, with the keys k0, k1, … and commitlog files for a few hundred each."""


@contextlib.contextmanager
def appending(store: Path, config: Path, **pipes: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stores messages in a new store and waits for more; two files of its log are full by now. `config`
    gives it files of 64 KiB."""
    command: list[str | Path] = [sys.executable, "-m", "rmqctl", "append", "-s", store, "-c", config]
    with start([*command, "--create", "--from", "-", "--keep-going"], stdin=subprocess.PIPE, **pipes) as writer:
        assert writer.stdin is not None
        for number in range(MESSAGES):
            writer.stdin.write(json.dumps({"topic": "T", "body": "x" * 50, "keys": [f"k{number}"]}).encode() + b"\n")
        writer.stdin.flush()
        deadline = time.monotonic() + 200
        while not (store / "abort").exists() or len(list((store / "commitlog").iterdir())) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield writer
        with contextlib.suppress(BrokenPipeError):
            writer.stdin.close()
