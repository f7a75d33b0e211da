"""Snapshots of what changes while it is copied, of disks that fail, and of copies that somebody else has changed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.snapshot.snapshot import MANIFEST_NAME, sha256_of, take_snapshot, verify_snapshot, write_manifest
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.opened import store_path
from tests.processes import start
from tests.store.journal.failing import failing
from tests.store.snapshot.taking import take, without_manifest
from tests.store.write.writing import SMALL, message, stored_messages

# ---- what goes, or fails, while a store is copied


@pytest.fixture
def live(golden_store: GoldenStore) -> Iterator[Path]:
    """A store that looks as one that a broker has open: its lock is held by another process."""
    store = golden_store("crash")
    program = (
        "import fcntl,sys\nf=open(sys.argv[1],'r+b')\nfcntl.lockf(f,fcntl.LOCK_EX,1)\nprint('held',flush=True)\ninput()"
    )
    (store / "lock").touch()
    holder = start([sys.executable, "-c", program, str(store / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    yield store
    holder.kill()
    holder.communicate()


def _observed(operation: str, name: str, happens: Callable[[], object]) -> Callable[[str, str, int, int], None]:
    """Has something happen once, at the first change of that kind of a file of that name."""
    waiting = [happens]

    def observe(done: str, path: str, *_: int) -> None:
        if waiting and (done, Path(path).name) == (operation, name):
            waiting.pop()()

    return observe


def test_a_cleaner_takes_the_first_files_meanwhile(live: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The log is copied from its end on: what is gone by then, and all before it, is not in the snapshot."""
    logs = sorted((live / "commitlog").iterdir())
    gone = [path.name for path in logs[:3]]

    def clean() -> None:
        for path in logs[:3]:
            path.unlink()

    observer = _observed("open", logs[3].name, clean)
    monkeypatch.setattr(io, "observer", observer)
    report = take(live, tmp_path / "copy")
    monkeypatch.setattr(io, "observer", None)
    assert (report.was_live, report.vanished, report.min_offset) == (True, 1, int(logs[3].name))
    copied = {path.name for path in (tmp_path / "copy" / "commitlog").iterdir()}
    assert copied == {path.name for path in logs if path.name not in gone and int(path.name) < report.end_offset}
    assert verify_snapshot(tmp_path / "copy").problems == []


def test_a_broker_stops_meanwhile(live: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`abort` goes, and with the lock so does a folder: the copy is still to be recovered."""
    first = min(path.name for path in (live / "commitlog").iterdir())

    def stop() -> None:
        (live / "abort").unlink()

    monkeypatch.setattr(io, "observer", _observed("open", first, stop))
    report = take(live, tmp_path / "copy")
    monkeypatch.setattr(io, "observer", None)
    assert report.was_live
    assert not (live / "abort").exists()
    assert (tmp_path / "copy" / "abort").read_bytes() == b""
    assert verify_snapshot(tmp_path / "copy").problems == []


def test_a_folder_that_the_disk_does_not_tell_of(golden_store: GoldenStore, tmp_path: Path) -> None:
    """No copy is made that lacks it; of one that was removed meanwhile nothing is in it."""
    store = golden_store("noindex")
    (store / "extra").mkdir()
    (store / "extra" / "file").write_bytes(b"x")
    top = store / "extra"
    with failing(top, "look") as disk:
        take(store, tmp_path / "whole")
    told = []
    for at in range(1, disk.count + 1):
        copy = tmp_path / f"copy-{at}"
        try:
            with failing(top, "look", at):
                take(store, copy)
            assert (copy / "extra" / "file").read_bytes() == b"x"
        except UnreadableError as error:
            told.append((error.message, error.file))
            assert not copy.exists()
    assert {(f"cannot be {what}: Input/output error", str(top)) for what in ("looked at", "listed")} <= set(told)
    with failing(top, "look", disk.count, error=errno.ENOENT):
        take(store, tmp_path / "gone")
    assert list((tmp_path / "gone" / "extra").iterdir()) == []
    assert verify_snapshot(tmp_path / "gone").problems == []


def test_hard_links_to_another_disk_are_copies(golden_store: GoldenStore, elsewhere: Path) -> None:
    store = golden_store("clean")
    report = take(store, elsewhere / "copy", hard_links=True)
    assert report.hard_links == 0
    assert without_manifest(elsewhere / "copy") == tree_state(store)


def test_a_hard_link_of_what_is_gone_is_none(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody has the store open, so no cleaner was it: the copy fails, and nothing is left of it."""
    store = golden_store("clean")
    path = min((store / "commitlog").iterdir())
    monkeypatch.setattr(io, "observer", _observed("link", path.name, path.unlink))
    with pytest.raises(WriteFailedError, match="No such file"):
        take(store, tmp_path / "copy", hard_links=True)
    assert not (tmp_path / "copy").exists()


def test_a_commitlog_elsewhere_and_one_that_is_not_there(tmp_path: Path) -> None:
    """Files come into `commitlog` of the copy, stray ones of a store at rest too."""
    root, log = tmp_path / "store", tmp_path / "disk" / "log"
    config = SMALL._replace(store_path_commit_log=f"{log},{tmp_path / 'unplugged'}")
    with MessageStore.open(root, "rw", SMALL, create=True) as store:
        for number in range(5):
            store.put(message(100, queue_id=number % 2))
    log.parent.mkdir()
    (root / "commitlog").rename(log)
    (log / "notes.txt").write_text("stray")
    with StoreFiles(root, config) as files:
        take_snapshot(files, tmp_path / "copy", "1")
    assert {path.name for path in (tmp_path / "copy" / "commitlog").iterdir()} == {path.name for path in log.iterdir()}
    assert [one.body for one in stored_messages(tmp_path / "copy", SMALL)] == [b"b" * 100] * 5


# ---- what cannot be verified


def test_a_manifest_that_leads_out(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Whoever made it up learns nothing of files elsewhere."""
    take(golden_store("noindex"), tmp_path / "copy")
    manifest = json.loads((tmp_path / "copy" / MANIFEST_NAME).read_text())
    [row] = [row for row in manifest["files"] if row["path"] == "checkpoint"]
    names = ["../victim", str(tmp_path / "victim"), "a\0b", ""]
    (tmp_path / "victim").write_bytes((tmp_path / "copy" / "checkpoint").read_bytes())
    manifest["files"] += [{**row, "path": name} for name in names]
    manifest["directories"] += ["..", "/etc"]
    write_manifest(tmp_path / "copy", manifest)
    problems = verify_snapshot(tmp_path / "copy").problems
    assert {problem.path for problem in problems} == {*names, "..", "/etc"}
    assert {(problem.problem, problem.found) for problem in problems} == {("path", "it leads out of the snapshot")}


def test_a_manifest_that_is_a_link(tmp_path: Path) -> None:
    take(store_path("noindex"), tmp_path / "copy")
    path = tmp_path / "copy" / MANIFEST_NAME
    path.rename(tmp_path / "manifest")
    path.symlink_to(tmp_path / "manifest")
    with pytest.raises(UnreadableError, match="cannot be opened") as unreadable:
        verify_snapshot(tmp_path / "copy")
    assert unreadable.value.file == str(path)


def test_a_disk_that_does_not_give_a_file_to_be_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take(store_path("noindex"), tmp_path / "copy")
    path = tmp_path / "copy" / "checkpoint"
    for kind, told in (("open", "cannot be opened: Input/output"), ("read", "cannot be read: Input/output")):
        with failing(path, kind, 1), pytest.raises(UnreadableError, match=told) as unreadable:
            sha256_of(path)
        assert unreadable.value.file == str(path)
    assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(os, "pread", lambda descriptor, length, position: b"")
    with pytest.raises(UnreadableError, match="has become shorter while it was read"):
        sha256_of(path)


def test_a_disk_that_does_not_tell_what_is_there_is_no_finding(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Neither is a file missing that it does not tell of, nor is a folder without what it does not list."""
    store = golden_store("noindex")
    copy = tmp_path / "copy"
    take(store, copy)
    (copy / "commitlog" / "more").write_bytes(b"x")
    for top in (copy / "checkpoint", copy / "commitlog"):
        with failing(top, "look") as disk:
            found = verify_snapshot(copy).problems
        assert [(problem.path, problem.problem) for problem in found] == [("commitlog/more", "extra")]
        told = []
        for at in range(1, disk.count + 1):
            try:
                with failing(top, "look", at):
                    assert verify_snapshot(copy).problems == found
            except UnreadableError as error:
                told.append(str(error.file))
        assert len(told) > 1
        assert all(file.startswith(str(top)) for file in told)
