"""append that is told to end: it says how far it came."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests import processes
from tests.processes import start


def test_sigterm_says_how_many_messages_are_stored(tmp_path: Path) -> None:
    store, config = tmp_path / "store", tmp_path / "small.conf"
    config.write_text("mappedFileSizeCommitLog=65536\n")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "rmqctl",
        "append",
        "-s",
        store,
        "-c",
        config,
        "--create",
        "--from",
        "-",
    ]
    said = tmp_path / "said"
    with (
        said.open("wb") as problems,
        start([*command, "--keep-going"], stdin=subprocess.PIPE, stderr=problems) as writer,
    ):
        assert writer.stdin is not None
        for number in range(4000):
            writer.stdin.write(json.dumps({"topic": "T", "body": "x" * 50, "keys": [f"k{number}"]}).encode() + b"\n")
        writer.stdin.flush()
        deadline = time.monotonic() + 200
        while not (store / "abort").exists() or len(list((store / "commitlog").iterdir())) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        writer.terminate()
        assert writer.wait() == 143
    *_, told, last = said.read_text().splitlines()
    assert last == "rmqctl: terminated"
    stored = int(told.removeprefix("interrupted: ").removesuffix(" messages are stored"))
    assert stored > 500
    listed = processes.run([sys.executable, "-m", "rmqctl", "cat", "-s", store, "--json"], check=True).stdout
    assert listed.count("\n") == stored
    assert not (store / "abort").exists()  # closed as after Ctrl-C
