"""Every verb on every hostile store: no crash, no hang, bounded memory and disk, nothing outside, nothing raw."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqctl import exit_codes
from tests.hostile.corpus import CORPUS
from tests.hostile.driver import SECONDS

ROOT = Path(__file__).parents[2]
# a whole process with all commands on one store; each command has its own bound
PROCESS_SECONDS = 600
MEMORY = 600 << 20
DISK = 200 << 20
BESIDE = {"store", "store.rmqctl", "outside", "new", "new.lost-and-found.jsonl", "new.jsonl", "new.parquet"}
ENDINGS = set(exit_codes.MEANINGS) - {exit_codes.BUG, exit_codes.INTERRUPTED}


def _complaints(row: dict[str, Any]) -> list[str]:
    found = []
    if row["code"] not in ENDINGS:
        found.append(f"ends with {row['code']}: {row['talk']}")
    if row["seconds"] > SECONDS:
        found.append(f"takes {row['seconds']} s")
    if row["memory"] > MEMORY:
        found.append(f"takes {row['memory'] >> 20} MiB of memory")
    if row["disk"] > DISK:
        found.append(f"takes {row['disk'] >> 20} MiB of disk")
    if row["raw"]:
        found.append(f"raw on the terminal: {row['raw']}")
    if set(row.get("beside", ())) - BESIDE:
        found.append(f"wrote beside the store: {row['beside']}")
    if row.get("outside_changed"):
        found.append("changed files outside the store")
    return [f"{row['command']}: {text}" for text in found]


@pytest.mark.parametrize("name", CORPUS)
def test_no_harm_is_done(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.driver", name, str(tmp_path / "stores")],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr[-2000:]) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) > 25
    [look] = [row for row in rows if row["command"] == "look"]
    assert look["untouched"], "looking changed something"
    complaints = [text for row in rows if row is not look for text in _complaints(row)]
    assert complaints == []
    assert {path.name for path in tmp_path.iterdir()} == {"stores"}
    assert not Path("/tmp/evil").exists()


def test_the_driver_sees_what_it_is_for() -> None:
    """The complaints are made where they should be."""
    good = {"command": "x", "code": 0, "seconds": 0.1, "memory": 0, "disk": 0, "raw": [], "talk": ""}
    assert _complaints(good) == []
    for name, value in (
        ("code", 70), ("code", -1), ("seconds", SECONDS + 1), ("memory", MEMORY + 1), ("disk", DISK + 1),
        ("raw", ["\\x1b"]), ("beside", ["store", "evil"]), ("outside_changed", True),
    ):  # fmt: skip
        assert len(_complaints({**good, name: value})) == 1
