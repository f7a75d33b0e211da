"""What is cleaned and what is refused, in which order things go, and what a failure leaves."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError, StoreInUseError, UnreadableError, WriteFailedError
from rmqctl.store.clean import cleaner
from rmqctl.store.clean.cleaner import clean, unread_before
from rmqctl.store.clean.forecast import forecast_clean
from rmqctl.store.clean.options import CleanOptions, DiskUsage
from rmqctl.store.clean.plan import measure_usage, messages_before, plan_clean
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import file_name
from rmqctl.store.options import UNHEARD, ChangeOptions, Events
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.processes import start
from tests.store.clean.cleaning import HOUR, IDLE, NO_PAUSE, NOW, SIZE, age, age_all, log_files, log_starts, run


def test_a_dry_run_changes_nothing_and_tells_what_the_run_then_does(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    (store / "lock").unlink()
    before = tree_state(store)
    options = CleanOptions(batch_maximum=5, pause=0)
    with StoreFiles(store) as files:
        planned = clean(files, options, now=NOW, usage=IDLE, change=ChangeOptions(dry_run=True))
    assert tree_state(store) == before
    done = run(store, options)
    assert [(d.path, d.because) for d in planned.decisions] == [(d.path, d.because) for d in done.decisions]
    assert (planned.min_offset, planned.bytes_freed) == (done.min_offset, done.bytes_freed)
    gone = before.keys() - tree_state(store).keys()
    assert gone == {str(decision.path.relative_to(store)) for decision in planned.removed}


def test_a_store_that_was_not_closed_cleanly_is_refused(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    age_all(store)
    before = {path: state for path, state in tree_state(store).items() if path not in ("lock", ".")}
    with pytest.raises(RefusedError) as caught:
        run(store)
    assert "recover" in str(caught.value.hint)
    assert {path: state for path, state in tree_state(store).items() if path not in ("lock", ".")} == before
    with StoreFiles(store) as files:
        assert "abort" in " ".join(
            clean(files, NO_PAUSE, now=NOW, usage=IDLE, change=ChangeOptions(dry_run=True)).notes
        )
        report = clean(
            files, CleanOptions(pause=0, crashed=True), now=NOW, usage=IDLE, change=ChangeOptions(dry_run=True)
        )
    assert "queues and index are kept as they are" in " ".join(report.notes)


_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_store_in_use_is_refused(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    holder = start([sys.executable, "-c", _HOLDER, str(store / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreInUseError):
            run(store)
        assert len(log_files(store)) == 9
        holder.communicate(b"")
    run(store)
    assert len(log_files(store)) == 1


def test_the_lock_is_given_back(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    run(store)
    with StoreFiles(store) as files:
        assert files.lock_holder() is None


def test_a_gap_is_refused_unless_it_is_known(golden_store: GoldenStore) -> None:
    store = golden_store("gap")
    age_all(store)
    with pytest.raises(RefusedError, match="cannot tell"):
        run(store)
    report = run(store, CleanOptions(accept_gaps=True, batch_maximum=4, pause=0))
    assert [d.start_offset for d in report.removed if d.kind == "commitlog"] == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert report.min_offset == 5 * SIZE, "the fifth file is the missing one"


def test_overlapping_files_are_refused(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "commitlog" / file_name(SIZE + 1)).write_bytes(b"x" * SIZE)
    age_all(store)
    with pytest.raises(RefusedError):
        run(store, CleanOptions(accept_gaps=True, pause=0))
    assert len(log_files(store)) == 10


def test_read_only_commitlog_directories_are_refused(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    with (
        StoreFiles(store, StoreConfig(read_only_commit_log_store_paths="/elsewhere")) as files,
        pytest.raises(RefusedError),
    ):
        clean(files, NO_PAUSE, now=NOW, usage=IDLE)


@pytest.mark.parametrize("name", ["crc-flip-old", "short-middle", "short-last", "stray-file", "tail-garbage-clean"])
def test_damage_that_does_not_touch_the_question_does_not_stop_a_cleaning(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    for path in (store / "commitlog").iterdir():
        age(path, 100 * HOUR)
    report = run(store, CleanOptions(batch_maximum=3, pause=0))
    assert [d.start_offset for d in report.removed if d.kind == "commitlog"] == [0, SIZE, 2 * SIZE]
    stray = store / "commitlog" / "notes.txt"
    assert stray.exists() is (name == "stray-file")


@pytest.mark.parametrize("name", ["log-gone", "noindex", "cq-lost", "index-lost", "index-garbage", "cq-short"])
def test_missing_or_broken_parts(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    if name == "log-gone":
        before = tree_state(store)
        report = run(store)
        after = {path: state for path, state in tree_state(store).items() if path not in (".", "lock")}
        assert report.removed == []
        assert report.notes == ["there are no commitlog files: queues and index have nothing to follow"]
        with StoreFiles(store) as files:
            assert messages_before(files, SIZE) == 0
        assert after == {path: state for path, state in before.items() if path not in (".", "lock")}
        return
    age_all(store)
    run(store, CleanOptions(batch_maximum=20, pause=0))
    assert len(log_files(store)) == 1


# order of the changes, and failures


def test_each_log_file_is_gone_for_good_before_the_next_one_and_what_points_into_it_go(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    age_all(store)
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(io, "observer", lambda operation, path, *_: seen.append((operation, path)))
    run(store, CleanOptions(batch_maximum=4, pause=0))
    removals = [path for operation, path in seen if operation == "remove"]
    assert [Path(path).parent.name for path in removals[:4]] == ["commitlog"] * 4
    assert removals[:4] == sorted(removals[:4])
    assert len(removals) > 4
    # each for good before the next: of two that a power cut meets, the first may come back without the second
    flushed = ("fsync", str(store / "commitlog"))
    of_log = [(operation, path) for operation, path in seen if path in removals[:4] or (operation, path) == flushed]
    assert of_log == [one for path in removals[:4] for one in (("remove", path), flushed)]
    assert seen.index(("remove", removals[4])) > max(place for place, one in enumerate(seen) if one == flushed)


def test_a_removal_that_fails_is_loud_and_leaves_the_rest(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    age_all(store)
    second = str(log_files(store)[1])

    def fail(operation: str, path: str, *_: int) -> None:
        if operation == "remove" and path == second:
            raise PermissionError(1, "Operation not permitted")

    with StoreFiles(store) as files:
        monkeypatch.setattr(io, "observer", fail)
        with pytest.raises(WriteFailedError) as caught:
            clean(files, NO_PAUSE, now=NOW, usage=IDLE)
        assert caught.value.file == second
        assert "others are as they were: run `rmqctl clean` again" in (caught.value.hint or "")
        assert files.lock_holder() is None
        assert next(file.start_offset for file in files.log.files) == SIZE
    assert log_starts(store) == [SIZE * number for number in range(1, 9)]
    monkeypatch.undo()
    run(store)
    assert log_starts(store) == [8 * SIZE]


@pytest.mark.parametrize("dry_run", [True, False])
def test_where_a_file_is_missing_nothing_is_cleaned(golden_store: GoldenStore, dry_run: bool) -> None:
    """A dry run is refused, too: it would promise what the run does not do."""
    store = golden_store("clean")
    age_all(store)
    log_files(store)[3].unlink()
    with StoreFiles(store) as files, pytest.raises(RefusedError):
        clean(files, NO_PAUSE, now=NOW, usage=IDLE, change=ChangeOptions(dry_run=dry_run))
    assert len(log_files(store)) == 8


def test_a_cleaning_that_the_log_of_changes_cannot_have_is_done_all_the_same(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is gone is gone; the report says what `rmqctl log` will not show."""
    store = golden_store("clean")
    age_all(store)

    def fail(operation: str, path: str, *_: int) -> None:
        if path.endswith("history.jsonl"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(io, "observer", fail)
    report = run(store)
    assert [int(one.path.name) for one in report.removed if one.kind == "commitlog"] == list(range(0, 8 * SIZE, SIZE))
    [note] = [note for note in report.notes if "rmqctl log" in note]
    assert note.startswith("`rmqctl log` will not show this cleaning: ")
    assert "Read-only file system" in note


def test_a_cleaning_is_done_where_the_disk_says_nothing_of_the_store_any_more(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UnreadableError("cannot be looked at: Input/output error", file="commitlog")

    store = golden_store("clean")
    age_all(store)
    monkeypatch.setattr(cleaner, "note_permanent", fail)
    report = run(store)
    assert report.removed
    assert [note for note in report.notes if "rmqctl log" in note and "Input/output error" in note]


def test_a_cleaning_is_done_where_the_disk_says_nothing_of_the_history(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    age_all(store)
    looks: list[str] = []
    whole = os.fstat

    def fail(descriptor: int) -> os.stat_result:
        looks.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        if looks[-1].endswith("history.jsonl") and looks.count(looks[-1]) > 1:  # not when it is made
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole(descriptor)

    monkeypatch.setattr(os, "fstat", fail)
    report = run(store)
    assert report.removed
    assert [note for note in report.notes if "rmqctl log" in note and "history.jsonl: cannot be looked at" in note]


def test_a_store_without_a_log_loses_nothing(golden_store: GoldenStore) -> None:
    store = golden_store("log-gone")
    before = tree_state(store)
    with StoreFiles(store) as files:
        plan = plan_clean(files, NO_PAUSE, now=NOW, usage=IDLE)
        assert (plan.min_offset, plan.commitlog) == (-1, [])
        assert messages_before(files, 1 << 40) == 0
        told: list[object] = []
        assert unread_before(files, 1 << 40, Events(damage=told.append, note=told.append)) == []
    assert "there are no commitlog files: queues and index have nothing to follow" in plan.notes
    assert [*plan.followers, *told] == []
    assert tree_state(store) == before


def test_what_cannot_be_known_of_queues_in_a_rocksdb_is_said(golden_store: GoldenStore) -> None:
    store = golden_store("rocksdb")
    with StoreFiles(store) as files:
        assert messages_before(files, 1 << 40) == 384
    (store / "consumequeue/CURRENT").write_text("MANIFEST-000099\n")
    with StoreFiles(store) as files:
        told: list[str] = []
        assert messages_before(files, 1 << 40) is None
        assert unread_before(files, 1 << 40, UNHEARD._replace(note=told.append)) == []
        plan = plan_clean(files, NO_PAUSE, now=NOW, usage=IDLE)
        shared = CleanOptions(pause=0, replicas_per_partition=2)
        own = measure_usage(files, shared).store_bytes
        sizes = [path.stat().st_size for name in ("commitlog", "index") for path in (files.root / name).iterdir()]
    [sentence] = told
    assert "this RocksDB cannot be read: what groups have not read is not known" in sentence
    assert sentence.endswith("what groups have not read is not known")
    assert {one.kind for one in plan.followers} <= {"index"}
    assert own == sum(sizes)


def test_a_store_s_own_bytes_are_counted_where_several_share_a_disk(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    folders = ("commitlog", "index", "consumequeue")
    sizes = [path.stat().st_size for name in folders for path in (store / name).rglob("*") if path.is_file()]
    with StoreFiles(store) as files:
        assert measure_usage(files, CleanOptions(replicas_per_partition=2)).store_bytes == sum(sizes)
        assert measure_usage(files, CleanOptions()).store_bytes == 0


def test_a_disk_that_does_not_say_how_full_it_is(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as too full, as a broker counts it: what has expired does not wait for its hour. No day is foreseen on
    which it will be full."""

    def statvfs(path: object) -> object:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = golden_store("clean")
    age_all(store)
    monkeypatch.setattr(os, "statvfs", statvfs)
    with StoreFiles(store) as files:
        usage = measure_usage(files, NO_PAUSE)
        found = forecast_clean(files, CleanOptions(scheduled=True), NOW)
    assert usage == DiskUsage((None,), None)
    assert [(level.bytes_left, level.reached_timestamp) for level in found.levels] == [(None, None)] * 3
    assert {one.because for one in found.files if one.kind == "commitlog"} == {"disk", "stays"}
