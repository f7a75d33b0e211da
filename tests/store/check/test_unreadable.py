"""A disk that fails in places: what cannot be read is named, everything else is looked at."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store import MessageStore
from rmqctl.store.check.cross import Level
from tests.goldens import GoldenStore
from tests.store.check.breaking import HEAD, LOG_FILE_SIZE, alarms, checked, flip, messages


@pytest.fixture
def bad_sector(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes reads of some bytes of one file fail, as those of a failing disk do."""
    bad: list[tuple[str, int, int]] = []

    def is_bad(descriptor: int, position: int, length: int) -> bool:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        return any(name == path and position < end and position + length > begin for path, begin, end in bad)

    pread, preadv = os.pread, os.preadv

    def failing_pread(descriptor: int, length: int, position: int) -> bytes:
        if is_bad(descriptor, position, length):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, length, position)

    def failing_preadv(descriptor: int, buffers: Sequence[memoryview], position: int) -> int:
        if is_bad(descriptor, position, sum(map(len, buffers))):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return preadv(descriptor, buffers, position)

    monkeypatch.setattr(os, "pread", failing_pread)
    monkeypatch.setattr(os, "preadv", failing_preadv)
    return lambda path, begin, end: bad.append((str(path), begin, end))


def _log(store: Path, number: int) -> Path:
    return store / "commitlog" / f"{number * LOG_FILE_SIZE:020d}"


@pytest.mark.parametrize("level", [Level.DEFAULT, Level.FULL])
def test_a_commitlog_file(level: Level, bad_sector: Any, golden_store: GoldenStore) -> None:
    """The damage behind the file that cannot be read is found all the same."""
    store = golden_store("clean")
    damaged = next(one for one in messages(store) if one.physical_offset > 6 * LOG_FILE_SIZE and one.body)
    flip(store, damaged, HEAD.size)
    bad_sector(_log(store, 4), 100_000, 104_096)
    findings, summary = checked(store, level)
    by_code = {finding.code: finding for finding in findings}
    unreadable = by_code["RMQ-FILE-006"]
    assert (unreadable.file, unreadable.data_lost) == (_log(store, 4), None)
    assert by_code["RMQ-LOG-005"].physical_offset == damaged.physical_offset
    assert summary.ranges == [(0, 4 * LOG_FILE_SIZE), (5 * LOG_FILE_SIZE, 9 * LOG_FILE_SIZE)]
    assert (summary.complete, summary.stopped_by) == (False, "unreadable")
    assert summary.log_end == 2135612


@pytest.mark.parametrize("number", [0, 8])
def test_the_first_or_the_last_file(number: int, bad_sector: Any, golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    bad_sector(_log(store, number), 0, 4096)
    findings, summary = checked(store)
    assert "RMQ-FILE-006" in alarms(findings)
    assert not {finding.code for finding in findings if finding.data_lost}
    assert summary.stopped_by == "unreadable"


@pytest.mark.parametrize("name", ["consumequeue/TopicTest/0/00000000000000000000", "index"])
def test_a_queue_or_index_file(name: str, bad_sector: Any, golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = store / name
    if path.is_dir():
        path = sorted(path.iterdir())[1]
    bad_sector(path, 0, 1 << 30)
    findings, summary = checked(store)
    assert path in {finding.file for finding in findings if finding.code == "RMQ-FILE-006"}
    assert summary.errors


def test_a_config_file_that_may_not_be_read(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store("broker-real")
    original = Path.read_bytes

    def failing(self: Path) -> bytes:
        if self.name == "topics.json":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return original(self)

    monkeypatch.setattr(Path, "read_bytes", failing)
    findings, _ = checked(store)
    assert alarms(findings) == {"RMQ-FILE-006"}


@pytest.mark.parametrize("is_folder", [True, False], ids=["the folder", "its table of tiered storage"])
def test_a_config_that_cannot_be_read_does_not_stop_the_answer_about_the_rest(
    golden_store: GoldenStore, is_folder: bool
) -> None:
    store = golden_store("broker-real")
    if is_folder:
        shutil.rmtree(store / "config")
        (store / "config").write_text("x")
    else:
        (store / "config" / "tieredStoreMetadata.json").mkdir()
    (store / "checkpoint").unlink()
    with MessageStore.open(store) as opened:
        codes = {finding.code for finding in opened.check("quick")}
    assert {"RMQ-FILE-007", "RMQ-CKPT-001"} <= codes
