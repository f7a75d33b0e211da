"""Root on another user's store: whatever is made belongs to that user, or his broker could not write to it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from tests.goldens import GoldenStore, tree_state
from tests.opened import store_path
from tests.rmqctl.looking import run

_USER, _GROUP = 65534, 65533
_FILE, _DIRECTORY = 0o640, 0o750

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture(autouse=True)
def secretive() -> object:
    """A umask under which nothing that is made can be read by others."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def _give(store: Path) -> Path:
    """The store becomes another user's, in a folder that stays root's."""
    for path in (store, *store.rglob("*")):
        os.chown(path, _USER, _GROUP)
        path.chmod(_DIRECTORY if path.is_dir() else _FILE)
    return store


def _strangers(*tops: Path) -> list[tuple[str, int, int, str]]:
    """Everything that does not belong to the store's user as the store does."""
    found = []
    for path in [path for top in tops for path in (top, *top.rglob("*"))]:
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if (status.st_uid, status.st_gid, mode) != (_USER, _GROUP, _DIRECTORY if path.is_dir() else _FILE):
            found.append((str(path), status.st_uid, status.st_gid, oct(mode)))
    return found


@as_root
def test_changes(golden_store: GoldenStore) -> None:
    store = _give(golden_store("torn-zero"))
    kept = store.with_name(store.name + ".rmqctl")
    for path in (store / "index").iterdir():
        path.unlink()
    assert run("recover", "-s", store, "--index-size", "500,2000").code == exit_codes.OK
    assert _strangers(store, kept) == []
    assert run("append", "-s", store, "-t", "New", "-k", "key", "--body", "x").code == exit_codes.OK
    assert run("rebuild", "-s", store, "--yes").code == exit_codes.OK
    next((store / "index").iterdir()).write_bytes(b"")
    assert run("repair", "-s", store, "--yes").code == exit_codes.OK
    assert _strangers(store, kept) == []
    assert run("undo", "-s", store).code == exit_codes.OK
    assert run("recover", "-s", store, "--no-journal", "--yes").code == exit_codes.OK
    assert _strangers(store, kept) == []


@as_root
def test_copies(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = _give(golden_store("clean"))
    assert run("snapshot", tmp_path / "copy", "-s", store).code == exit_codes.OK
    assert _strangers(tmp_path / "copy") == []
    assert run("salvage", store, "--to", tmp_path / "new").code == exit_codes.OK
    assert _strangers(tmp_path / "new") == []


@as_root
def test_a_commitlog_elsewhere_in_a_folder_of_roots(golden_store: GoldenStore, tmp_path: Path) -> None:
    """As of a volume that is mounted for the broker: its root is root's."""
    store = _give(golden_store("crash"))
    os.chown(store, 0, 0)
    os.chown(store / "commitlog", 0, 0)
    log = store.parent / "log"
    (store / "commitlog").rename(log)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\nstorePathCommitLog={log}\nmappedFileSizeCommitLog=262144\n")
    body = "x" * 200_000
    assert run("recover", "-s", store, "-c", conf).code == exit_codes.OK
    for _ in range(2):
        assert run("append", "-s", store, "-c", conf, "-t", "T", "--body", body).code == exit_codes.OK
    assert _strangers(*log.iterdir()) == []


@as_root
def test_elsewhere_nothing_is_given_away(tmp_path: Path) -> None:
    os.chown(tmp_path, _USER, _GROUP)
    assert run("export", "-s", store_path("v4-clean"), tmp_path / "o.jsonl").code == exit_codes.OK
    status = (tmp_path / "o.jsonl").stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o600)


@pytest.mark.parametrize(
    "command", [("append", "-t", "T", "--body", "x"), ("recover",), ("rebuild",), ("clean", "--at-once", "--yes")]
)
def test_a_user_who_cannot_give_is_refused(
    command: tuple[str, ...], golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    before = tree_state(store)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    done = run(command[0], "-s", store, *command[1:])
    assert (done.code, f"belongs to the user with id {os.getuid()}" in done.err) == (exit_codes.REFUSED, True)
    assert tree_state(store) == before
    assert not store.with_name("clean.rmqctl").exists()
