"""Commands that store many messages on a disk that fills up: an I/O error, and nothing that looks complete."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from tests.opened import store_path
from tests.rmqctl.looking import run


def _full_for(times: int, monkeypatch: pytest.MonkeyPatch, operations: tuple[str, ...], ending: str) -> None:
    """The disk is full for the first such operations on a path with this in it, then there is room again."""
    left = list(range(times))

    def full(done: str, path: str, _offset: int, _length: int) -> None:
        if done in operations and ending in path and left:
            left.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(io, "observer", full)


@pytest.mark.parametrize("offsets", ["keep", "renumber"])
def test_a_salvage_leaves_no_message_out_for_want_of_space(
    offsets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # for the thread that makes files ahead, for many messages at once, and for some single ones
    _full_for(30, monkeypatch, ("create",), "00000000000001048576")
    done = run("salvage", store_path("clean"), "--to", tmp_path / "new", "--offsets", offsets)
    assert (done.code, "free some space" in done.err) == (exit_codes.WRITE_FAILED, True)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert run("salvage", store_path("clean"), "--to", tmp_path / "new").code == exit_codes.OK


def test_a_salvage_without_headroom_for_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(1 << 30))
    monkeypatch.setattr(io, "free_bytes", lambda _path: 1 << 20 if 700 < next(looks) < 1000 else 200 << 20)
    done = run("salvage", store_path("clean"), "--to", tmp_path / "new")
    assert (done.code, "DISK_FULL" in done.err) == (exit_codes.WRITE_FAILED, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("operations", "ending"),
    # a file that cannot be linked to its name is renamed
    [(("rename",), ".rmqctl-PID"), (("link", "move"), ".lost-and-found.jsonl")],
)
def test_a_salvage_that_cannot_take_its_name(
    operations: tuple[str, ...], ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _full_for(len(operations), monkeypatch, operations, "new" + ending.replace("PID", str(os.getpid())))
    assert run("salvage", store_path("crc-flip-last"), "--to", tmp_path / "new").code == exit_codes.WRITE_FAILED
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_that_cannot_take_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _full_for(1, monkeypatch, ("rename",), f"new.rmqctl-{os.getpid()}")
    assert run("snapshot", tmp_path / "new", "-s", store_path("clean")).code == exit_codes.WRITE_FAILED
    assert list(tmp_path.iterdir()) == []


def _lines(path: Path, sizes: list[int]) -> Path:
    rows = [{"topic": "T", "queue_id": 0, "body": "x" * size} for size in sizes]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_an_append_ends_at_the_first_message_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones would fit, but then whoever goes on with the rest would store them twice."""
    lines = _lines(tmp_path / "lines", [100, 100, 60000, 100])
    monkeypatch.setattr(io, "free_bytes", lambda _path: (1 << 20) + 50000)
    done = run("append", "-s", tmp_path / "s", "--create", "--from", lines, "--keep-going")
    assert (done.code, "line 3: DISK_FULL" in done.err) == (exit_codes.WRITE_FAILED, True)
    monkeypatch.undo()
    with MessageStore.open(tmp_path / "s") as store:
        assert len(store.get("T", 0, 0).messages) == 2


def test_no_message_is_bad_because_the_store_takes_none(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerRole=SLAVE\n")
    lines = _lines(tmp_path / "lines", [1, 2])
    done = run("append", "-s", tmp_path / "s", "-c", conf, "--create", "--from", lines)
    assert (done.code, "SERVICE_NOT_AVAILABLE" in done.err, "bad line" in done.err) == (
        exit_codes.WRITE_FAILED,
        True,
        False,
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1.5 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", path], capture_output=True, timeout=20, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode(errors='replace').strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], timeout=20, check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    done = run("salvage", store_path("clean"), "--to", small_disk / "new")
    assert (done.code, "free some space" in done.err) == (exit_codes.WRITE_FAILED, True)
    assert list(small_disk.iterdir()) == []
    done = run("snapshot", small_disk / "new", "-s", store_path("clean"))
    assert done.code == exit_codes.WRITE_FAILED
    assert list(small_disk.iterdir()) == []
