"""Undo, resume and prune where file times are coarse, and where open files cannot be removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotFoundError, RefusedError
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.files import io
from rmqctl.store.journal.log import changes
from rmqctl.store.journal.undo import forget, resume, undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.snapshot.snapshot import take_snapshot, verify_snapshot
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.quick import every, sample
from tests.store.files.crashing import crashed, recorded
from tests.store.files.file_systems import coarse_times, open_files_stay
from tests.store.journal.changing import MOMENT, start

SECOND = 1_000_000_000
UNITS = sample([100, 1_000, 10_000_000, SECOND, 2 * SECOND], [100, 2 * SECOND])


@pytest.fixture(autouse=True)
def same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change carries the same time, with a digit in each place."""
    monkeypatch.setattr("rmqctl.store.journal.log.time.time_ns", lambda: MOMENT)


@pytest.mark.parametrize("unit", UNITS)
def test_a_change_is_undone_where_times_are_coarse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: int) -> None:
    coarse_times(monkeypatch, unit)
    layout, work = start(tmp_path)
    before = tree_state(layout.root)
    work()
    assert tree_state(layout.root) != before
    assert undo(layout).state == "undone"
    assert tree_state(layout.root) == before


@pytest.mark.parametrize("step", every(11, range(0, 90, 4)))
def test_an_interrupted_change_ends_where_times_are_coarse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    coarse_times(monkeypatch, SECOND)
    layout, work = start(tmp_path / "first")
    before = tree_state(layout.root)
    seen = recorded(work)
    layout, work = start(tmp_path / "second")
    if step >= len(seen):
        pytest.skip(f"the change has {len(seen)} steps")
    crashed(work, step + 1)
    if any(change.is_unfinished for change in changes(layout)):
        assert resume(layout).state == "applied"
        undo(layout)
    assert tree_state(layout.root) == before


def test_a_time_that_the_disk_rounds_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems show what was set until they read it from the disk again."""
    layout, work = start(tmp_path)
    work()
    coarse_times(monkeypatch, 2 * SECOND)
    assert undo(layout).state == "undone"


@pytest.mark.parametrize("unit", UNITS)
def test_another_program_is_still_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: int) -> None:
    layout, work = start(tmp_path)
    work()
    os.utime(layout.root / "index" / "two", ns=(0, MOMENT + 5 * SECOND))
    coarse_times(monkeypatch, unit)
    with pytest.raises(RefusedError, match="another program has written"):
        undo(layout)


@pytest.mark.parametrize("name", sample(["crash", "clean", "gap"], ["crash"]))
def test_a_store_is_recovered_and_rebuilt_where_times_are_coarse(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    coarse_times(monkeypatch, SECOND)
    store = golden_store(name)
    config = read_broker_conf(broker_conf(name, store.parent))
    before = tree_state(store)
    for work in (recover, rebuild):
        with StoreFiles(store, config) as files:
            report = work(files)
        if report.journal is not None:
            undo(files.layout)
        after = tree_state(store)
        assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {".", "lock"}
    assert report.journal is not None


def test_a_snapshot_that_went_to_a_disk_of_coarse_times(
    golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreFiles(golden_store("clean")) as files:
        take_snapshot(files, tmp_path / "copy", version="1")
    coarse_times(monkeypatch, 2 * SECOND)
    report = verify_snapshot(tmp_path / "copy")
    assert (report.problems, report.files > 0) == ([], True)


def test_what_a_change_kept_is_removed_over_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_files_stay(monkeypatch)
    layout, work = start(tmp_path)
    work()
    assert forget(layout, changes(layout)) > 0
    assert not layout.kept.exists() or [path.name for path in layout.kept.iterdir()] == ["history.jsonl"]
    with pytest.raises((NotFoundError, RefusedError)):
        undo(layout)


def test_a_rebuild_closes_what_it_replaces(
    golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the journal on another disk the old queues and index are copied there and removed here."""
    open_files_stay(monkeypatch)
    store, elsewhere = golden_store("clean"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(io, "rename_within", lambda source, target: False)
    with StoreFiles(store) as files:
        assert files.index.files
        assert list(files.queues.all())
        rebuild(files, change=ChangeOptions(journal_in=elsewhere))
    undo(files.layout)
    assert not list(store.rglob(".*"))
