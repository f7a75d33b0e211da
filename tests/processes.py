"""Processes that tests start: each has a limit and is ended with all its children, whatever the test does.

The limits are for what hangs, not for what is slow: a busy machine must not come near them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIMIT = 300.0
"""Seconds after which a process is taken for hanging."""

Command = Sequence[str | Path]


@contextlib.contextmanager
def started(command: Command, *, seconds: float = LIMIT, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process in a group of its own, started in the repository; `options` are those of Popen.

    The whole group is killed after `seconds`, whereupon who reads its output comes to the end, and when the block
    ends. Whoever wants to know how the process ended waits for it inside the block.
    """
    with subprocess.Popen(command, start_new_session=True, **{"cwd": ROOT, **options}) as process:
        limit = threading.Timer(seconds, end, [process])
        limit.daemon = True
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            end(process)


def run(
    command: Command, *, seconds: float = LIMIT, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Like subprocess.run with text and captured output, in the repository; the group is killed when it hangs.

    TimeoutExpired after `seconds`; with `check`, CalledProcessError if it ends with anything but 0.
    """
    given = options.pop("input", None)
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL if given is None else subprocess.PIPE}
    streams |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with started(command, seconds=seconds + 60, **streams) as process:
        output, problems = process.communicate(given, timeout=seconds)
    ended = subprocess.CompletedProcess(command, process.returncode, output, problems)
    if check:
        ended.check_returncode()
    return ended


def end(process: subprocess.Popen[Any]) -> None:
    """SIGKILL to the process and to what it started in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
