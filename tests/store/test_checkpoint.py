"""The checkpoint file of goldens, and files that are none."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.checkpoint import Checkpoint, checkpoint_bytes, read_checkpoint, write_checkpoint
from tests.goldens import GOLDENS, base_of, truth
from tests.opened import store_path
from tests.quick import goldens_of

NAMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_goldens(name: str) -> None:
    checkpoint = read_checkpoint(store_path(name) / "checkpoint")
    if "checkpoint-lost" in name:
        assert checkpoint is None
        return
    assert checkpoint is not None
    # the same longs by a plain read
    data = (store_path(name) / "checkpoint").read_bytes()
    assert len(data) == 4096
    assert tuple(checkpoint) == struct.unpack(">5q", data[:40])
    times = [row["storeTimestamp"] for source in (name, base_of(name) or name) for row in truth(source).messages]
    for value in (getattr(checkpoint, field) for field in NAMES):
        # a checkpoint lags; only in one golden it was put into the future
        assert value == 0 or name == "checkpoint-future" or not times or value <= max(times)
    assert checkpoint_bytes(checkpoint) == data


def test_future() -> None:
    checkpoint = read_checkpoint(store_path("checkpoint-future") / "checkpoint")
    assert checkpoint is not None
    assert checkpoint[:3] == (1795304174156,) * 3


@pytest.mark.parametrize(
    ("physic", "logics", "expected"),
    [(0, 0, 0), (5000, 9000, 2000), (9000, 5000, 2000), (2999, 9000, 0), (-5, 9000, 0)],
)
def test_minimum_has_a_margin(physic: int, logics: int, expected: int) -> None:
    """StoreCheckpoint#getMinTimestamp; the index time has no part in it."""
    assert Checkpoint(physic, logics, 1).min_timestamp == expected


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_checkpoint(path, Checkpoint(1, 2, 3, 4, 5))
    assert path.read_bytes() == struct.pack(">5q", 1, 2, 3, 4, 5) + bytes(4056)
    write_checkpoint(path, Checkpoint(6, 7, 8, 9, 10))
    assert read_checkpoint(path) == Checkpoint(6, 7, 8, 9, 10)
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(("size", "is_one"), [(0, False), (39, False), (40, True), (5000, True)])
def test_lengths(tmp_path: Path, size: int, is_one: bool) -> None:
    (tmp_path / "checkpoint").write_bytes(bytes(size))
    assert (read_checkpoint(tmp_path / "checkpoint") is not None) == is_one


def test_files_that_are_none(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "missing") is None
    with pytest.raises(UnreadableError) as error:
        read_checkpoint(tmp_path)
    assert error.value.file == str(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    assert read_checkpoint(tmp_path / "fifo") is None  # and it does not hang
