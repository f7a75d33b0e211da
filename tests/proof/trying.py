"""Tests of a changed product, in a process that has imported everything else beforehand.

A server imports what is no part of the product and forks for each try: that is most of what a short try costs. A try
ends at the first test that fails, and when its processor time is used up or nothing moves any more: an endless loop
has been noticed.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis.configuration import set_hypothesis_home_dir

from tests import processes

_BEFOREHAND = ("hypothesis", "numpy", "pyarrow", "pyarrow.compute", "click", "rich", "construct")
_OPTIONS = (
    "-x",
    "-q",
    "--tb=short",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-W",
    "ignore:Module already imported",
)
_LONGEST = 1_000_000.0
_STILL_SECONDS, _STILL = 60, 2.0
"""Within how long a try has to use more processor time than this, in seconds: nothing that is waited for in these tests
takes as long, and what a store's threads use that wait for work is less."""


class Trier:
    """Starts the server when it is needed; it ends with the process that has started it."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def first_failure(self, folder: Path, tests: list[str], seconds: float) -> str | None:
        """What fails first of `tests`, run in `folder`, with `seconds` of processor time; None if all pass.

        AssertionError where pytest itself does not work.
        """
        if self._server is None or self._server.poll() is not None:
            # what is compiled is kept: most modules are those of the last try
            but = ("PYTEST", "PYTHONDONTWRITEBYTECODE")
            environment = {name: value for name, value in os.environ.items() if not name.startswith(but)}
            self._server = processes.start(
                [sys.executable, "-m", "tests.proof.trying"],
                seconds=_LONGEST,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([str(folder), tests, seconds]) + "\n")
        self._server.stdin.flush()
        code, said = json.loads(self._server.stdout.readline())
        assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), said
        return said if code else None


def _serve() -> None:
    for name in _BEFOREHAND:
        with suppress(ImportError):
            __import__(name)
    # nothing of the project may be there already when a try begins
    for name in [name for name in sys.modules if name == "tests" or name.startswith(("tests.", "rmqctl"))]:
        del sys.modules[name]
    answers = os.dup(1)
    os.dup2(2, 1)
    _adopt_orphans()
    for line in sys.stdin:
        folder, tests, seconds = json.loads(line)
        os.write(answers, (json.dumps(_tried(folder, tests, seconds)) + "\n").encode())


def _tried(folder: str, tests: list[str], seconds: float) -> tuple[int, str]:
    shutil.rmtree(f"{folder}/tmp", ignore_errors=True)
    output = Path(folder) / "output-of-tests"
    child = os.fork()
    if child == 0:
        _child(folder, tests, seconds, output)
    status = _ended(child)
    said = output.read_text(errors="replace")
    if os.WIFSIGNALED(status):
        return 1, f"ended by signal {os.WTERMSIG(status)}"
    code = os.waitstatus_to_exitcode(status)
    # what a test logs may look like that, too
    summary = said.rpartition("short test summary info")[2].splitlines()
    failed = [line for line in summary if line.startswith(("FAILED ", "ERROR "))]
    if code in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR) and failed:
        code = pytest.ExitCode.TESTS_FAILED  # a module of tests that cannot be imported any more
    return int(code), failed[0] if code == pytest.ExitCode.TESTS_FAILED and failed else said[-2000:]


def _child(folder: str, tests: list[str], seconds: float, output: Path) -> None:
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for one in (1, 2):
        os.dup2(descriptor, one)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = folder
    os.environ["TMPDIR"] = f"{folder}/tmp"
    os.mkdir(os.environ["TMPDIR"])
    # an example that made one change fail is kept there, and would be tried on every other one
    set_hypothesis_home_dir(f"{folder}/.hypothesis")
    sys.path[:] = [folder, *(path for path in sys.path if path not in ("", os.environ.get("PWD"), str(_root())))]
    code = 70
    try:
        code = pytest.main([*_OPTIONS, *tests])
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code))


def _root() -> Path:
    return Path(__file__).parents[2]


def _ended(child: int) -> int:
    """Its status, once it has ended or was killed because nothing moves."""
    descriptor = os.pidfd_open(child)
    used, since = -1.0, time.monotonic()
    try:
        while not select.select([descriptor], [], [], 5)[0]:
            now = sum(_processor_time(process) for process in _family(child))
            if abs(now - used) > _STILL:
                used, since = now, time.monotonic()
            elif time.monotonic() - since > _STILL_SECONDS:
                os.killpg(child, signal.SIGKILL)
    finally:
        os.close(descriptor)
    status = os.waitpid(child, 0)[1]
    _end_orphans()
    return status


def _adopt_orphans() -> None:
    """What the tests of a try have started and left becomes a child of this process."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _end_orphans() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while left := children.read_text().split():
        for process in left:
            os.kill(int(process), signal.SIGKILL)
            os.waitpid(int(process), 0)


def _family(process: int) -> list[int]:
    """A process, what it has started, and what that has started in turn."""
    found = [process]
    for one in found:
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def _processor_time(process: int) -> float:
    """Seconds that it has used, with those of its children that have ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return 0.0


if __name__ == "__main__":
    _serve()
