"""Processes that tests start: each has a limit, and is ended with all its children when its test is.

The limits are for what hangs, not for what is slow: a busy machine must not come near them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIMIT = 300.0
"""Seconds after which a process is taken for hanging."""
SHORT_LIVED_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that ends before the time is earned that its better compiler and its parallel collector take."""

Command = Sequence[str | Path]

_started: dict[subprocess.Popen[Any], threading.Timer] = {}


def start(command: Command, *, seconds: float = LIMIT, **options: Any) -> subprocess.Popen[Any]:
    """A process in a group of its own, in the repository; `options` are those of Popen.

    The group is killed after `seconds`, whereupon whoever reads its output comes to the end, and by `end_all`.
    """
    process = subprocess.Popen(command, **{"cwd": ROOT, "start_new_session": True, **options})
    limit = threading.Timer(seconds, _kill, [process])
    limit.daemon = True
    limit.start()
    _started[process] = limit
    return process


def run(
    command: Command, *, seconds: float = LIMIT, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Like subprocess.run, in the repository, text and all output captured unless `options` say otherwise.

    TimeoutExpired after `seconds`, with the group killed; with `check` CalledProcessError if it does not end with 0.
    """
    given = options.pop("input", None)
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL if given is None else subprocess.PIPE}
    streams |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with start(command, seconds=seconds + 60, **streams) as process:
        try:
            output, problems = process.communicate(given, timeout=seconds)
        finally:
            _end(process)
    ended = subprocess.CompletedProcess(command, process.returncode, output, problems)
    if check:
        ended.check_returncode()
    return ended


def processor_seconds(process_id: int) -> float:
    """What a process has taken of the processor so far, user and system."""
    words = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def started() -> frozenset[subprocess.Popen[Any]]:
    """Return the processes that `start` has started and that nothing has ended."""
    return frozenset(_started)


def end_all(kept: Collection[subprocess.Popen[Any]] = ()) -> None:
    """Kill the processes of `started`, except those in `kept`."""
    for process in started():
        if process not in kept:
            _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    _started.pop(process).cancel()
    _kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # what was still to be written to it
                stream.close()


def _kill(process: subprocess.Popen[Any]) -> None:
    """SIGKILL to the process and to what it has started in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
