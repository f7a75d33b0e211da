"""One small file that is a directory, a fifo or a broken link, or that cannot be read, never hides the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.check.check import check
from rmqctl.store.files import lock
from rmqctl.store.info.info import info
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.predict.predicting import predict
from rmqctl.store.recover.recover import recover
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.store.check.breaking import checked, codes

SMALL = (
    "checkpoint",
    "abort",
    "brokerIdentity",
    "epochFileCheckpoint",
    "epochFileCheckpoint.bak",
    "config/timercheck",
    "config/timermetrics",
    "config/transactionMetrics",
)


def _directory(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _broken_link(path: Path) -> None:
    path.symlink_to("/nonexistent/file")


FORMS = (_directory, _fifo, _broken_link)


def _broken(golden: GoldenStore, name: str, make: Callable[[Path], None]) -> Path:
    store = golden("clean")
    path = store / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    make(path)
    return store


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize("name", SMALL)
def test_small_file_that_is_not_regular(name: str, make: Callable[[Path], None], golden_store: GoldenStore) -> None:
    """Report it, check all the rest, change nothing."""
    store = _broken(golden_store, name, make)
    before = tree_state(store)
    findings, summary = checked(store)
    (found,) = [finding for finding in findings if finding.code == "RMQ-FILE-007"]
    assert (found.file, found.fix) == (store / name, "rmqctl repair --only RMQ-FILE-007")
    assert "RMQ-CKPT-001" not in codes(findings)
    assert (summary.messages, summary.data_lost) == (2500, False)
    assert summary.perhaps == (["positions of the timer"] if name == "config/timercheck" else [])
    with StoreFiles(store) as files:
        assert info(files)["commitlog"]["messages"] == 2500
        predict(files, "5.3.3")
        recover(files, change=ChangeOptions(dry_run=True))
    assert tree_state(store) == before


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize("name", ["checkpoint", "abort", "config/timercheck"])
def test_repair_moves_it_away_and_undo_brings_it_back(
    name: str, make: Callable[[Path], None], golden_store: GoldenStore
) -> None:
    store = _broken(golden_store, name, make)
    before = tree_state(store)
    with StoreFiles(store) as files:
        report = repair(files, only=["RMQ-FILE-007"])
    assert report.mended == {"RMQ-FILE-007": 1}
    assert not os.path.lexists(store / name)
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


@pytest.mark.parametrize("make", FORMS)
def test_recover_goes_on_as_without_a_checkpoint(make: Callable[[Path], None], golden_store: GoldenStore) -> None:
    """The result is that of a store whose checkpoint is missing; undo brings back what was there."""
    missing = golden_store("crash")
    (missing / "checkpoint").unlink()
    with StoreFiles(missing) as files:
        recover(files)
    expected = (missing / "checkpoint").read_bytes()
    shutil.rmtree(missing)
    store = golden_store("crash")
    (store / "checkpoint").unlink()
    make(store / "checkpoint")
    before = tree_state(store)
    with StoreFiles(store) as files:
        recover(files)
    assert (store / "checkpoint").read_bytes() == expected
    assert not checked(store)[1].alarms
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


def test_repair_of_all_replaces_checkpoint_and_abort(golden_store: GoldenStore) -> None:
    """One repair moves both away and recovers the store."""
    store = _broken(golden_store, "checkpoint", _directory)
    (store / "abort").mkdir()
    with StoreFiles(store) as files:
        repair(files)
    assert not checked(store)[1].alarms
    assert (store / "checkpoint").is_file()
    assert not (store / "abort").exists()


@pytest.mark.parametrize("make", FORMS)
def test_lock_that_is_not_regular(make: Callable[[Path], None], golden_store: GoldenStore) -> None:
    """No broker starts: `check` reports it."""
    findings, summary = checked(_broken(golden_store, "lock", make))
    (found,) = [finding for finding in findings if finding.code == "RMQ-FILE-060"]
    assert found.fix is None
    assert "by hand" in found.message
    assert summary.messages == 2500


@pytest.mark.parametrize("name", ["lock", "checkpoint", "abort"])
@pytest.mark.parametrize("make", [_directory, _broken_link])
def test_no_broker_starts(name: str, make: Callable[[Path], None], golden_store: GoldenStore) -> None:
    store = _broken(golden_store, name, make)
    with StoreFiles(store) as files:
        found = predict(files, "5.3.3")
    assert not found.loads
    assert f"java.io.FileNotFoundException: {store / name} (" in str(found.error)


@pytest.mark.parametrize("make", FORMS)
def test_lock_that_is_not_regular_names_the_way_out(make: Callable[[Path], None], golden_store: GoldenStore) -> None:
    """No change begins: neither a recovery nor a repair, whose report would be that nothing is to be fixed."""
    store = _broken(golden_store, "lock", make)
    before = tree_state(store)
    for change in (recover, repair):
        with StoreFiles(store) as files, pytest.raises(RefusedError) as refused:
            change(files)
        assert f"mv {store / 'lock'} {store}.lock-moved" in str(refused.value.hint)
    assert tree_state(store) == before


def test_lock_that_is_a_link_to_a_file_to_be_made(golden_store: GoldenStore) -> None:
    """A broker makes the target of the link, as a writer does: nothing is wrong."""
    store = _broken(golden_store, "lock", lambda path: path.symlink_to("../new-lock"))
    assert "RMQ-FILE-060" not in codes(checked(store)[0])
    with StoreFiles(store) as files:
        assert predict(files, "5.3.3").loads
        recover(files)


def test_holder_of_a_lock_that_cannot_be_opened(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's list of locks names the holder; without one the lock is reported as unreadable."""
    store = golden_store("clean")
    path = store / "lock"
    path.touch()
    status = path.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    listed = store.parent / "locks"
    listed.write_text(f"1: POSIX  ADVISORY  WRITE 4711 {device}:{status.st_ino} 0 0\n")
    opened = os.open

    def deny(name: str | Path, flags: int, *rest: int) -> int:
        if Path(name) == path:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(name, flags, *rest)

    monkeypatch.setattr("os.open", deny)
    monkeypatch.setattr(lock, "_KERNEL_LOCKS", str(listed))
    assert lock.lock_holder(path) == 4711
    listed.write_text("")
    assert lock.lock_holder(path) is None


@pytest.mark.parametrize("name", ["checkpoint", "abort", "lock", "config/timercheck"])
def test_without_permission(name: str, golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that this user cannot open is unreadable, not damaged; the rest is checked."""
    store = golden_store("clean")
    path = store / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    opened, access = os.open, os.access

    def deny(at: str | Path, flags: int, *rest: int, **more: int) -> int:
        if Path(at) == path:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(at, flags, *rest, **more)

    def denied(at: str | Path, *rest: int, **more: bool) -> bool:
        return Path(at) != path and access(at, *rest, **more)

    monkeypatch.setattr("os.open", deny)
    monkeypatch.setattr("os.access", denied)
    with StoreFiles(store) as files:
        run = check(files)
        (found,) = [finding for finding in run if finding.code == "RMQ-FILE-006"]
        assert found.file == path
        assert "Permission denied" in found.message
        assert run.summary.messages == 2500
        recover(files, change=ChangeOptions(dry_run=True))
