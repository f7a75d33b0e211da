"""The limits of processes that tests start."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import end_all, run, start

_SLEEPER = "import time; time.sleep(600)"
_WITH_A_CHILD = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {_SLEEPER!r}]).pid, flush=True)"


def gone(process: int) -> bool:
    """Whether that process has ended, at the latest after a while."""
    deadline = time.monotonic() + 60
    stat = Path(f"/proc/{process}/stat")
    while time.monotonic() < deadline:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_what_hangs_is_killed_and_said() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run([sys.executable, "-c", _SLEEPER], seconds=0.2)


def test_who_reads_from_a_process_that_hangs_comes_to_the_end() -> None:
    process = start([sys.executable, "-c", _SLEEPER], seconds=0.2, stdout=subprocess.PIPE)
    assert process.communicate() == (b"", None)
    assert process.returncode == -9


@pytest.mark.parametrize("rest", ["", f"; {_SLEEPER}"], ids=["it has ended", "it has not"])
def test_what_a_test_leaves_is_ended_with_its_children(rest: str) -> None:
    process = start([sys.executable, "-c", _WITH_A_CHILD + rest], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    end_all()
    assert process.returncode is not None
    assert gone(child)


def test_run_is_that_of_the_library() -> None:
    ended = run([sys.executable, "-c", "import sys; print(input()); sys.exit('bad')"], input="in")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "in\n", "bad\n")
    with pytest.raises(subprocess.CalledProcessError):
        run([sys.executable, "-c", "raise SystemExit(3)"], check=True)
