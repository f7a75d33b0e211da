"""Snapshots: equal copies with holes and times, consistent on a live store, and what verifying finds."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, NotAStoreError, RefusedError, WriteFailedError
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.files import io
from rmqctl.store.files.outputs import Sharing
from rmqctl.store.options import Events
from rmqctl.store.predict import predict
from rmqctl.store.recover.recover import recover
from rmqctl.store.snapshot.snapshot import MANIFEST_NAME, take_snapshot, verify_snapshot
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, broker_conf, properties, tree_state
from tests.opened import store_path
from tests.quick import goldens_of
from tests.store.snapshot.taking import take, without_manifest
from tests.store.write.writing import FILE_SIZE, SMALL, lines_of, run_python, stored_messages


@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if not name.startswith("log-gone")))
def test_copies_are_equal_times_included(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store(name)
    before = tree_state(store)
    config = (
        read_broker_conf(broker_conf(name, store.parent)) if "store.storePathCommitLog" in properties(name) else None
    )
    with StoreFiles(store, config) as files:
        report = take_snapshot(files, tmp_path / "copy", "1.0")
    assert without_manifest(tmp_path / "copy") == before == tree_state(store)
    assert report.files == sum(state[2] not in ("directory", "special") for state in before.values())
    found = verify_snapshot(tmp_path / "copy")
    assert (found.problems, found.files, found.end_offset) == ([], report.files, report.end_offset)
    assert sorted(path.name for path in tmp_path.iterdir() if "golden" not in path.name) == ["copy"]


def test_holes_stay_holes(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("broker-real")
    wheel = store / "timerwheel"
    assert wheel.stat().st_blocks * 512 < wheel.stat().st_size // 100
    take(store, tmp_path / "copy", sharing=Sharing.NEVER)
    copied = (tmp_path / "copy" / "timerwheel").stat()
    assert copied.st_blocks <= wheel.stat().st_blocks + 64


def test_the_stated_end_is_reached(golden_store: GoldenStore, tmp_path: Path) -> None:
    report = take(golden_store("crash"), tmp_path / "copy")
    assert (report.min_offset, report.end_offset, report.was_live) == (0, 2135612, False)
    with StoreFiles(tmp_path / "copy") as files:
        assert recover(files).end_offset == report.end_offset


WRITER = """
import sys
import time
from pathlib import Path
from rmqctl.formats.message import Message
from rmqctl.store.message_store import MessageStore
from tests.store.write.writing import SMALL

with MessageStore.open(Path(sys.argv[1]), "rw", SMALL, create=True) as store:
    for number in range(100_000):
        store.put(Message(f"T{number % 5}", b"b" * (number % 900), number % 3, properties={"KEYS": f"k{number}"}))
        if number == 500:
            print("writing", flush=True)
        if number > 500:
            time.sleep(0.0002)
"""


def test_a_live_store(tmp_path: Path) -> None:
    """While somebody writes as fast as he can: every snapshot recovers to exactly the offset that it states."""
    store = tmp_path / "store"
    writer = run_python(WRITER, store)
    try:
        assert next(lines_of(writer)) == "writing"
        reports = []
        for number in range(4):
            with StoreFiles(store, SMALL) as files:
                reports.append(take_snapshot(files, tmp_path / f"copy-{number}", "1"))
            time.sleep(0.05)
    finally:
        writer.kill()
        writer.communicate()
    messages = stored_messages(store, SMALL)
    for number, report in enumerate(reports):
        copy = tmp_path / f"copy-{number}"
        assert report.was_live
        assert verify_snapshot(copy).problems == []
        assert (copy / "abort").exists()
        copied = stored_messages(copy, SMALL)
        with StoreFiles(copy, SMALL) as files:
            found = predict(files, "5.3.3")
        # where the log ends with a whole file, a broker ends it before that file's blank frame
        assert copied[-1].end <= (found.end_offset or 0) <= report.end_offset
        with StoreFiles(copy, SMALL) as files:
            recovered = recover(files)
        assert (recovered.end_offset, recovered.damaged, recovered.truncated_bytes) == (report.end_offset, [], 0)
        assert copied == messages[: len(copied)]
        assert copied[-1].end <= report.end_offset <= copied[-1].end + FILE_SIZE
    ends = [report.end_offset for report in reports]
    assert ends == sorted(ends)
    assert ends[0] < ends[-1]


def test_hard_links_for_full_files_only(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    report = take(store, tmp_path / "copy", hard_links=True)
    logs = sorted((store / "commitlog").iterdir())
    linked = [(tmp_path / "copy" / "commitlog" / path.name).stat().st_ino == path.stat().st_ino for path in logs]
    assert linked == [True] * (len(logs) - 1) + [False]
    assert report.hard_links == len(logs) - 1
    assert verify_snapshot(tmp_path / "copy").problems == []
    others = [path for path in (tmp_path / "copy").rglob("*") if path.is_file() and path.parent.name != "commitlog"]
    assert all(path.stat().st_nlink == 1 for path in others)
    # what a repair does to the store shows in the snapshot
    with logs[0].open("r+b") as file:
        file.write(b"changed")
    assert [problem.path for problem in verify_snapshot(tmp_path / "copy").problems] == [f"commitlog/{logs[0].name}"]


def test_shared_blocks_where_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cannot(_source: int, _descriptor: int, path: Path) -> None:
        raise WriteFailedError("clone failed", file=path) from OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(io, "share_blocks", cannot)
    assert take(store_path("clean"), tmp_path / "copy").reflinks == 0
    with pytest.raises(WriteFailedError) as refused:
        take(store_path("clean"), tmp_path / "other", sharing=Sharing.ALWAYS)
    assert "--reflink auto" in str(refused.value.hint)
    assert not (tmp_path / "other").exists()
    monkeypatch.setattr(io, "share_blocks", lambda source, descriptor, path: os.truncate(descriptor, 0))
    assert take(store_path("noindex"), tmp_path / "shared").reflinks > 10


def test_a_copy_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    writes = 0

    def full(operation: str, _path: str, _offset: int, _length: int) -> None:
        nonlocal writes
        writes += operation == "write"
        if operation == "write" and writes == 20:
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(io, "observer", full)
    with pytest.raises(WriteFailedError):
        take(store_path("clean"), tmp_path / "copy")
    monkeypatch.setattr(io, "observer", None)
    assert list(tmp_path.iterdir()) == []


def test_links_and_special_files_are_named(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    (store / "secret").symlink_to("/etc/passwd")
    os.mkfifo(store / "config-fifo")
    (store / "index" / "link").symlink_to("/etc")
    report = take(store, tmp_path / "copy")
    assert sorted(report.skipped) == ["config-fifo", "index/link", "secret"]
    assert not list((tmp_path / "copy").rglob("*link")) + list((tmp_path / "copy").rglob("secret"))


def test_a_folder_on_another_disk_is_copied(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    (store / "consumequeue").rename(tmp_path / "elsewhere")
    (store / "consumequeue").symlink_to(tmp_path / "elsewhere")
    take(store, tmp_path / "copy")
    assert (tmp_path / "copy" / "consumequeue" / "TopicTest").is_dir()


@pytest.mark.parametrize("damage", ["content", "size", "missing", "extra", "kind", "time"])
def test_what_verifying_finds(damage: str, tmp_path: Path) -> None:
    take(store_path("noindex"), tmp_path / "copy")
    path = tmp_path / "copy" / "checkpoint"
    if damage == "time":
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    elif damage == "content":
        data = bytearray(path.read_bytes())
        data[3] ^= 1
        path.write_bytes(data)
    elif damage == "size":
        path.write_bytes(b"short")
    elif damage == "extra":
        (tmp_path / "copy" / "new").write_bytes(b"")
    else:
        path.unlink()
        if damage == "kind":
            path.symlink_to("/etc/passwd")
    [problem] = verify_snapshot(tmp_path / "copy").problems
    assert (problem.problem, problem.path) == (damage, "new" if damage == "extra" else "checkpoint")


def test_verifying_looks_at_directories(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("noindex")
    for name in ("gone", "file", "stays"):
        (store / name).mkdir()
    take(store, tmp_path / "copy")
    assert verify_snapshot(tmp_path / "copy").problems == []
    (tmp_path / "copy" / "gone").rmdir()
    (tmp_path / "copy" / "file").rmdir()
    (tmp_path / "copy" / "file").write_bytes(b"")
    (tmp_path / "copy" / "consumequeue" / "new").mkdir()
    found = {problem.path: problem.problem for problem in verify_snapshot(tmp_path / "copy").problems}
    assert found == {"gone": "missing", "file": "kind", "consumequeue/new": "extra"}
    # a link to a folder beside the snapshot, whose name begins with the snapshot's
    (tmp_path / "copy" / "consumequeue").rename(tmp_path / "copy-queues")
    (tmp_path / "copy" / "consumequeue").symlink_to(tmp_path / "copy-queues")
    assert "consumequeue" in {problem.path for problem in verify_snapshot(tmp_path / "copy").problems}


def test_a_manifest_that_was_changed(tmp_path: Path) -> None:
    take(store_path("noindex"), tmp_path / "copy")
    manifest = tmp_path / "copy" / MANIFEST_NAME
    text = manifest.read_text()
    content = json.loads(text)
    assert (content["format"], content["program"], content["log"]["min_offset"]) == (1, "rmqctl 0", 0)
    for changed in (text.replace('"end_offset": ', '"end_offset": 1'), "[" * 100_000, "{}", "", "1" * 10_000, "[]"):
        manifest.write_text(changed)
        with pytest.raises(CorruptError):
            verify_snapshot(tmp_path / "copy")
    manifest.unlink()
    with pytest.raises(NotAStoreError):
        verify_snapshot(tmp_path / "copy")


def test_targets_that_are_refused(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    before = tree_state(store.parent)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_bytes(b"")
    for target in (store, store / "new", store.parent, tmp_path / "full"):
        with pytest.raises(RefusedError):
            take(store, target)
    assert tree_state(store.parent) == before


def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(store_path("clean"), tmp_path / "copy", events=Events(progress=interrupted))
    assert list(tmp_path.iterdir()) == []
