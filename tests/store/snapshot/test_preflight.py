"""What a copy of a store takes, and what another place does not take of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.files.lock import StoreLock
from rmqctl.store.snapshot.preflight import Preflight, preflight
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    """A sound store with a topic whose name Windows does not take, and one that differs in case alone."""
    made = golden_store("clean")
    assert (made / "consumequeue" / "Trade|Event").is_dir()
    (made / "consumequeue" / "trade|event").mkdir()
    return made


def _look(store: Path, target: Path, file_system: str | None = None) -> Preflight:
    with StoreFiles(store) as files:
        return preflight(files, target, file_system=file_system)


def _kinds(found: Preflight) -> set[tuple[str, str]]:
    return {(one.weight, one.problem) for one in found.problems}


def test_the_sizes_are_those_of_the_files(store: Path, tmp_path: Path) -> None:
    found = _look(store, tmp_path / "copy", "ext4")
    regular = [path for path in store.rglob("*") if path.is_file()]
    assert (found.files, found.bytes) == (len(regular), sum(path.stat().st_size for path in regular))
    assert found.free_bytes
    assert not found.is_refused


@pytest.mark.parametrize("system", ["exfat", "ntfs", "vfat"])
def test_names_that_windows_refuses(store: Path, tmp_path: Path, system: str) -> None:
    found = _look(store, tmp_path / "copy", system)
    assert {("error", "name"), ("error", "case"), ("notice", "times")} <= _kinds(found)
    assert found.is_refused
    assert not {kind for kind in _kinds(_look(store, tmp_path / "copy", "ext4")) if kind[0] == "error"}


def test_fat_takes_no_file_of_4_gib(store: Path, tmp_path: Path) -> None:
    with (store / "large").open("wb") as file:
        file.truncate(1 << 32)
    assert ("error", "file size") in _kinds(_look(store, tmp_path / "copy", "vfat"))
    assert ("error", "file size") not in _kinds(_look(store, tmp_path / "copy", "exfat"))


def test_too_little_room(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize, f_files, f_favail, f_flag, f_namemax = 1, 4096, 10, 5, 0, real.f_namemax

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    assert {("error", "space"), ("error", "inodes")} <= _kinds(_look(store, tmp_path / "copy", "ext4"))


def test_the_command_names_the_old_place_and_copies_nothing(store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\nstorePathCommitLog={store}/commitlog\n", encoding="utf-8")
    os.symlink("/nowhere", store / "link")
    before = tree_state(store)
    done = run("snapshot", tmp_path / "copy", "-s", store, "-c", conf, "--dry-run", "--json")
    assert done.code == exit_codes.OK, done.err
    problems = done.objects[0]["problems"]
    assert {"storePathRootDir", "storePathCommitLog"} <= {one["path"] for one in problems if one["problem"] == "path"}
    assert [one["path"] for one in problems if one["problem"] == "not copied"] == [str(store / "link")]
    assert not (tmp_path / "copy").exists()
    assert tree_state(store) == before
    assert "storePathRootDir" in run("snapshot", tmp_path / "copy", "-s", store, "-c", conf, "--dry-run").out


def test_a_target_that_is_there_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "other").touch()
    assert run("snapshot", tmp_path / "copy", "-s", store, "--dry-run").code == exit_codes.REFUSED
    assert run("snapshot", tmp_path / "new", "-s", store, "--dry-run", "--verify").code == exit_codes.USAGE


def test_a_running_broker_is_named(store: Path, tmp_path: Path) -> None:
    lock = StoreLock(store / "lock")
    try:
        assert ("warning", "in use") in _kinds(_look(store, tmp_path / "copy", "ext4"))
    finally:
        lock.release()
