"""Commands with a small address space: a clear error or the answer, never an end by a signal or by a library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.start import NEEDED_MIB
from rmqctl.store import MessageStore
from rmqctl.store.config.config import StoreConfig
from tests.quick import sample

COMMANDS = ("check", "cat", "predict", "stats", "export", "diff", "sql", "recover --yes", "rebuild --yes", "salvage")
LIMITS = (80_000, 150_000, 250_000, 450_000, 700_000, 2_000_000)
CASES = [f"{command} | {limit}" for command in COMMANDS for limit in LIMITS]


def _line(command: str, store: Path) -> str:
    verb = command.partition(" ")[0]
    return {
        "diff": f"diff {store} {store}",
        "export": f"export -s {store} {store}.parquet",
        "salvage": f"salvage {store} --to {store}.salvaged",
        "sql": f"sql -s {store} 'select 1'",
    }.get(verb, f"{command} -s {store}")


@pytest.mark.parametrize("case", sample(CASES, ["check | 80000", "sql | 2000000", "export | 250000"]))
def test_too_little_is_said(tmp_path: Path, case: str) -> None:
    command, _, limit = case.partition(" | ")
    store = tmp_path / "store"
    config = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400)
    with MessageStore.open(store, "rw", config, create=True) as opened:
        opened.put(Message("T", b"x", 0, 0, {}))
    line = f"ulimit -v {limit}; exec {sys.executable} -m rmqctl.start {_line(command, store)} --json"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert ran.returncode in (0, 6), ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    if ran.returncode == 6:
        error = json.loads(ran.stderr.splitlines()[-1])
        assert error["error"] == "RMQ-E-021"
        assert "ulimit -v" in error["hint"]


def test_the_library_is_named(tmp_path: Path) -> None:
    """A limit below what numpy maps: its own C code would end the process with exit code 1, which means damage."""
    assert NEEDED_MIB["numpy"] < NEEDED_MIB["pyarrow"] < NEEDED_MIB["duckdb"]
    (tmp_path / "commitlog").mkdir()
    line = f"ulimit -v 80000; exec {sys.executable} -m rmqctl.start check -s {tmp_path}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, "rmqctl: numpy needs" in ran.stderr) == (6, True), ran.stderr
