"""Every verb on every hostile store: no crash, no hang, bounded memory and disk, nothing outside, nothing raw."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.layouts import MESSAGE_MAGIC_V1
from rmqctl.output import outcome as exit_codes
from rmqctl.store.check.check import check
from rmqctl.store.predict import predict
from rmqctl.store.store_files import StoreFiles
from tests.hostile.corpus import CORPUS
from tests.hostile.driver import SECONDS, peak, reset_peak
from tests.hostile.in_frames import claims
from tests.hostile.making import log_file
from tests.processes import run
from tests.quick import sample

ROOT = Path(__file__).parents[2]
# a whole process with all commands on one store; each command has its own bound
PROCESS_SECONDS = 1800
MEMORY = 600 << 20
DISK = 200 << 20
# of processor time, for the worst content of a commitlog
SECONDS_PER_MIB = 6
MEMORY_PER_MIB = 16 << 20
BESIDE = {"store", "store.rmqctl", "outside", "new", "new.lost-and-found.jsonl", "new.jsonl", "new.parquet"}
# lengths, names and texts that lie
QUICK = {"sizes_of_frames", "links_out_of_the_store", "escapes_in_messages"}
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


@pytest.mark.parametrize("name", sample(CORPUS, QUICK))
def test_no_harm_is_done(name: str, tmp_path: Path) -> None:
    done = run([sys.executable, "-m", "tests.hostile.driver", name, tmp_path / "stores"], seconds=PROCESS_SECONDS)
    assert (done.returncode, done.stderr[-2000:]) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) > 25
    [look] = [row for row in rows if row["command"] == "look"]
    assert look["untouched"], "looking changed something"
    complaints = [text for row in rows if row is not look for text in _complaints(row)]
    assert complaints == []
    assert {path.name for path in tmp_path.iterdir()} == {"stores"}
    assert not Path("/tmp/evil").exists()


_MIB = 1 << 20
_SHAPES: dict[str, Callable[[int], bytes]] = {
    "heads that claim everything": claims,
    "magic codes everywhere": lambda size: MESSAGE_MAGIC_V1.to_bytes(4, "big") * (size // 4),
    "blank frames everywhere": lambda size: struct.pack(">iI", 8, 0xCBD43194) * (size // 8),
    "sizes of 91 everywhere": lambda size: (91).to_bytes(4, "big") * (size // 4),
    "ones": lambda size: b"\xff" * size,
}


def _cost(folder: Path, data: bytes) -> tuple[float, int]:
    """Processor seconds and bytes of memory that a full check and a prediction take for a log of this content."""
    log_file(folder, data, size=len(data))
    reset_peak()
    before, began = peak(), time.process_time()
    with StoreFiles(folder) as files:
        list(check(files, "full"))
        predict(files, "5.3.3")
    return time.process_time() - began, peak() - before


@pytest.mark.parametrize("shape", sample(_SHAPES, ["heads that claim everything"]))
def test_time_and_memory_are_bounded_for_each_mib(shape: str, tmp_path: Path) -> None:
    """And four times the bytes cost four times the time (twice that for chance), not sixteen times."""
    _cost(tmp_path / "first", _SHAPES[shape](_MIB // 16))  # compiles
    small, _ = _cost(tmp_path / "small", _SHAPES[shape](_MIB))
    large, memory = _cost(tmp_path / "large", _SHAPES[shape](4 * _MIB))
    assert large <= SECONDS_PER_MIB * 4
    assert large <= 8 * max(small, 0.25)
    assert memory <= MEMORY_PER_MIB * 4 + (64 << 20)


def test_the_driver_sees_what_it_is_for() -> None:
    """The complaints are made where they should be."""
    good = {"command": "x", "code": 0, "seconds": 0.1, "memory": 0, "disk": 0, "raw": [], "talk": ""}
    assert _complaints(good) == []
    for name, value in (
        ("code", 70), ("code", -1), ("seconds", SECONDS + 1), ("memory", MEMORY + 1), ("disk", DISK + 1),
        ("raw", ["\\x1b"]), ("beside", ["store", "evil"]), ("outside_changed", True),
    ):  # fmt: skip
        assert len(_complaints({**good, name: value})) == 1
