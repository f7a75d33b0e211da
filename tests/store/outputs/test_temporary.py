"""Temporary folders of killed processes go; those of living ones, of others and of another kind stay."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

from rmqctl.store.files.outputs import in_work, make_temporary
from tests.processes import run, start


def _gone() -> int:
    process = start([sys.executable, "-c", "pass"])
    process.wait(timeout=30)
    return process.pid


def test_who_makes_one_removes_what_killed_processes_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = _gone()
    left = [tmp_path / f"rmqctl-spark-{gone}-{name}" for name in ("abc", "def")]
    kept = [
        tmp_path / f"rmqctl-spark-{os.getppid()}-living",
        tmp_path / f"rmqctl-sql-{gone}-other",
        tmp_path / "rmqctl-spark-notes",
        tmp_path / f"rmqctl-spark-{gone}-locked",
    ]
    for folder in (*left, *kept):
        (folder / "local").mkdir(parents=True)
        (folder / "local" / "block").write_bytes(b"x" * 100)
    link = tmp_path / f"rmqctl-spark-{gone}-link"
    link.symlink_to(kept[0])
    with in_work(kept[3]):
        made = make_temporary("rmqctl-spark-")
    assert sorted(tmp_path.iterdir()) == sorted([*kept, link, made])
    assert made.name.startswith(f"rmqctl-spark-{os.getpid()}-")
    assert (kept[0] / "local" / "block").exists()


def test_nothing_is_said_of_it_when_the_process_ends(tmp_path: Path) -> None:
    program = "from rmqctl.store.files.outputs import make_temporary; make_temporary('rmqctl-test-')"
    done = run(
        [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    until = time.monotonic() + 60
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []
