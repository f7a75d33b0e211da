"""Commands where a standard file is closed, the working folder is gone or the process may have little: never a bug of
rmqctl, and nothing of the store is called damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rmqctl.formats.errors import ExhaustedError, exhausted
from rmqctl.formats.message import Message
from rmqctl.output.outcome import concluded
from rmqctl.store import MessageStore
from rmqctl.store.config.config import StoreConfig
from tests.quick import sample

UNIQUE = {"UNIQ_KEY": "0000000000000000000000000000000A"}
RMQCTL = f"{sys.executable} -m rmqctl.start"
# command, surroundings, exit code, what stderr says
CASES = [
    ("check", ">&-", 6, "rmqctl: standard output is closed"),
    ("ls", ">&-", 6, "rmqctl: standard output is closed"),
    ("check", "<&-", 0, ""),
    ("check", "2>&-", 0, ""),
    ("check", "gone", 0, ""),
    ("info", "gone", 0, ""),
    ("repair", "gone", 0, ""),
    ("append -t T --body x", ">&-", 6, "rmqctl: standard output is closed"),
    ("recover --yes", ">&-", 6, "rmqctl: standard output is closed"),
    ("rebuild --yes", ">&-", 6, "rmqctl: standard output is closed"),
    ("append -t T --body-file -", "<&-", 3, "rmqctl: standard input is closed"),
    ("append --from -", "<&-", 3, "rmqctl: standard input is closed"),
    ("sql", "<&-", 3, "rmqctl: standard input is closed"),
    ("check", "ulimit -n 9", 0, ""),
    ("repair", "ulimit -n 12", 0, ""),
    ("predict", "ulimit -n 6", 6, "Too many open files"),
    ("stats", "ulimit -n 6", 6, "Too many open files"),
    ("recover --yes", "ulimit -n 6", 6, "Too many open files"),
    ("rebuild --yes", "ulimit -n 6", 6, "Too many open files"),
    ("truncate --at 0 --yes", "ulimit -n 6", 6, "raise the limit (ulimit -n)"),
    ("clean --yes", "ulimit -n 6", 0, ""),
    ("snapshot {store}.copy", "ulimit -n 6", 6, "raise the limit (ulimit -n)"),
    ("check", "unset HOME XDG_CACHE_HOME XDG_CONFIG_HOME", 0, ""),
    ("sql 'select 1'", "export HOME=/proc/1/none XDG_CACHE_HOME=/proc/1/none XDG_CONFIG_HOME=/proc/1/none", 0, ""),
    ("serve --writable --listen 127.0.0.1:0", "ulimit -n 8", 6, "raise the limit (ulimit -n)"),
]
WITH_CAPABILITIES = "+dac_override,+dac_read_search"
"""Root is never short of processes; another user may read this Python with these."""


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
    line = f"{RMQCTL} {verb} -s {store} {rest.format(store=store)}"
    if surroundings == "gone":
        line = f"mkdir {store}.gone; cd {store}.gone; rmdir {store}.gone; {line}"
    elif surroundings.startswith(("ulimit", "unset", "export")):
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
    assert "Traceback" not in ran.stderr
    assert {path: path.read_bytes() for path in small_store.rglob("*") if path.is_file()} == before


@pytest.mark.thorough
def test_a_writer_that_never_gets_a_descriptor_ends(small_store: Path) -> None:
    """The message is in the log; what follows the log waits for descriptors that nothing frees."""
    ran = _run("append -t T --body x", "ulimit -n 8", small_store)
    assert (ran.returncode, "raise the limit (ulimit -n)" in ran.stderr) == (6, True), ran.stderr
    with MessageStore.open(small_store) as store:
        store.recover()
        assert [finding.code for finding in store.check() if finding.severity.is_alarm] == []
        assert len(list(store.messages())) == 13


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["check", "append -t T --body x", "sql 'select 1'", "recover --yes", "serve"])
def test_no_thread_is_a_clear_error(small_store: Path, command: str) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become a user that may start no thread")
    # the folders of pytest are closed to other users
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        _without_threads(shutil.copytree(small_store, Path(folder) / "store"), command)


def _without_threads(store: Path, command: str) -> None:
    for path in (store.parent, store, *store.rglob("*")):
        os.chown(path, 65534, 65534)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    verb, _, rest = command.partition(" ")
    sets = " ".join(f"--{name}=-all,{WITH_CAPABILITIES}" for name in ("inh-caps", "ambient-caps", "bounding-set"))
    user = f"setpriv --reuid=65534 --regid=65534 --clear-groups {sets}"
    line = f'{user} bash -c "ulimit -u 1; {RMQCTL} {verb} -s {store} {rest}"'
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, "no thread can be started" in ran.stderr) == (6, True), ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    after = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before


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
