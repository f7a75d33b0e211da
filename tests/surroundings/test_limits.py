"""Commands where a standard file is closed, the working folder is gone or the process may have little: never a bug of
rmqctl, and nothing of the store is called damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.formats.errors import ExhaustedError, exhausted
from rmqctl.formats.message import Message
from rmqctl.reports.outcome import concluded
from rmqctl.store import MessageStore
from rmqctl.store.config.config import StoreConfig
from tests.quick import sample

UNIQUE = {"UNIQ_KEY": "0000000000000000000000000000000A"}
RMQCTL = f"RMQCTL_NO_NUMBA=1 {sys.executable} -m rmqctl.start"
# command, surroundings, exit code, what stderr says
CASES = [
    ("check", ">&-", 6, "rmqctl: standard output is closed"),
    ("ls", ">&-", 6, "rmqctl: standard output is closed"),
    ("check", "<&-", 0, ""),
    ("check", "2>&-", 0, ""),
    ("check", "gone", 0, ""),
    ("info", "gone", 0, ""),
    ("repair", "gone", 0, ""),
    ("append -t T --body-file -", "<&-", 3, "rmqctl: standard input is closed"),
    ("append --from -", "<&-", 3, "rmqctl: standard input is closed"),
    ("sql", "<&-", 3, "rmqctl: standard input is closed"),
    ("check", "ulimit -n 9", 0, ""),
    ("repair", "ulimit -n 12", 0, ""),
]


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    config = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400)
    with MessageStore.open(root, "rw", config, create=True) as store:
        for queue in range(12):
            store.put(Message("T", b"x", queue, 0, UNIQUE))
    return root


def _run(command: str, surroundings: str, store: Path) -> subprocess.CompletedProcess[str]:
    verb, _, rest = command.partition(" ")
    line = f"{RMQCTL} {verb} -s {store} {rest}"
    if surroundings == "gone":
        line = f"mkdir {store}.gone; cd {store}.gone; rmdir {store}.gone; {line}"
    elif surroundings.startswith("ulimit"):
        line = f"{surroundings}; {line}"
    else:
        line += f" {surroundings}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("case", sample([" ".join(case[:2]) for case in CASES], ["check >&-", "sql <&-", "check gone"]))
def test_surroundings_are_no_bug(small_store: Path, case: str) -> None:
    command, surroundings, code, said = next(one for one in CASES if " ".join(one[:2]) == case)
    before = {path: path.read_bytes() for path in small_store.rglob("*") if path.is_file()}
    ran = _run(command, surroundings, small_store)
    assert (ran.returncode, said in ran.stderr) == (code, True), ran.stdout + ran.stderr
    assert {path: path.read_bytes() for path in small_store.rglob("*") if path.is_file()} == before


def test_the_answer_is_json_where_that_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    def lacking() -> int:
        raise OSError(24, "Too many open files", "store/lock")

    assert concluded(lacking, as_json=True) == 6
    said = json.loads(capsys.readouterr().err)
    assert (said["error"], said["exit_code"], said["file"]) == ("RMQ-E-021", 6, "store/lock")
    assert said["hint"] == "raise the limit (ulimit -n)"


@pytest.mark.parametrize(
    ("error", "is_lack"),
    [
        (OSError(24, "Too many open files", "f"), True),
        (OSError(23, "Too many open files in system", "f"), True),
        (OSError(12, "Cannot allocate memory", "f"), True),
        (MemoryError(), True),
        (RuntimeError("can't start new thread"), True),
        (ImportError("x.so: failed to map segment from shared object"), True),
        (ImportError("cannot import name 'a' from 'b'"), False),
        (ModuleNotFoundError("No module named 'duckdb'"), False),
        (RuntimeError("dictionary changed size during iteration"), False),
        (OSError(5, "Input/output error", "f"), False),
        (OSError(2, "No such file or directory", "f"), False),
    ],
)
def test_a_lack_is_known_by_its_error(error: BaseException, is_lack: bool) -> None:
    found = exhausted(error)
    assert isinstance(found, ExhaustedError) is is_lack
    assert found is None or found.hint
