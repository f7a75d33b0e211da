"""File times that are not those of the messages: `repair` sets them where their code is named, and `undo` puts back."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.check.check import check
from rmqctl.store.files import io
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.store.files.crashing import CrashError

_DAY_S = 86_400


def _shifted(store: Path, days: int) -> list[int]:
    """Shift the mtimes of all commitlog files but the last; return when each of them was closed, in ms."""
    with StoreFiles(store) as files:
        log = files.log.files
        closed = [store_time_at(files.log, following.start_offset) or 0 for following in log[1:]]
        for file, moment in zip(log, closed, strict=False):
            os.utime(file.path, ns=(0, (moment // 1000 + days * _DAY_S) * 1_000_000_000))
    return closed


def _codes(store: Path) -> set[str]:
    with StoreFiles(store) as files:
        return {finding.code for finding in check(files) if finding.code.startswith("RMQ-TIME-00")} - {"RMQ-TIME-003"}


def _times(store: Path) -> list[int]:
    with StoreFiles(store) as files:
        return [file.path.stat().st_mtime_ns // 1_000_000 for file in files.log.files]


@pytest.mark.parametrize(("days", "code"), [(30, "RMQ-TIME-001"), (-30, "RMQ-TIME-002")])
def test_times_are_set_where_their_code_is_named(golden_store: GoldenStore, days: int, code: str) -> None:
    store = golden_store("clean")
    closed = _shifted(store, days)
    assert len(closed) > 1
    assert _codes(store) == {code}
    before, last = tree_state(store), _times(store)[-1]
    with StoreFiles(store) as files:
        planned = repair(files, only=[code], change=ChangeOptions(dry_run=True))
    assert {row["operation"] for row in planned.operations} == {"set time"}
    assert tree_state(store) == before
    with StoreFiles(store) as files:
        assert repair(files, only=[code]).mended == {code: 1}
    assert _times(store) == [*closed[: len(_times(store)) - 1], last]
    assert _codes(store) == set()
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


def test_no_other_repair_touches_them(golden_store: GoldenStore) -> None:
    """A broker deletes files by their times: that is not done by the way."""
    store = golden_store("clean")
    _shifted(store, 30)
    before = tree_state(store)
    with StoreFiles(store) as files:
        report = repair(files)
    assert report.mended == {}
    assert tree_state(store) == before


def test_a_snapshot_by_hard_links_keeps_its_times(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    _shifted(store, 30)
    with StoreFiles(store) as files:
        first = files.log.files[0].path
    other = tmp_path / "second-name"
    other.hardlink_to(first)
    time_there = other.stat().st_mtime_ns
    with StoreFiles(store) as files:
        repair(files, only=["RMQ-TIME-001"])
    assert other.stat().st_mtime_ns == time_there
    assert first.stat().st_mtime_ns != time_there


def test_killed_at_any_write(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between two files leaves a change that undo takes back, to the times that were there."""
    store = golden_store("clean")
    _shifted(store, 30)
    before = tree_state(store)
    real = io.set_modified
    seen: list[Path] = []

    def dying(path: Path, mtime_ns: int) -> None:
        if path.parent.name == "commitlog":
            if seen:
                raise CrashError
            seen.append(path)
        real(path, mtime_ns)

    with monkeypatch.context() as patched:
        patched.setattr(io, "set_modified", dying)
        with pytest.raises(CrashError), StoreFiles(store) as files:
            repair(files, only=["RMQ-TIME-001"])
    assert tree_state(store) != before
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


def test_no_time_in_the_future(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store("clean")
    closed = _shifted(store, -30)
    monkeypatch.setattr(time, "time_ns", lambda: (min(closed) - 1) * 1_000_000)
    with StoreFiles(store) as files, pytest.raises(RefusedError, match="stored in the future"):
        repair(files, only=["RMQ-TIME-002"])
