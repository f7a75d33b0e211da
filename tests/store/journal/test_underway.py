"""What goes wrong between the first and the last step of a change, and who meddles there: it is told and taken back."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, RefusedError, RmqctlError, UnreadableError, WriteFailedError
from rmqctl.store.clean.cleaner import clean
from rmqctl.store.files import io, lock
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.journal import Journal, changing
from rmqctl.store.journal.log import changes, unfinished_change
from rmqctl.store.journal.plan import ClearRange, CreateFile, MoveAway, Operation, Plan, WriteRange
from rmqctl.store.journal.undo import resume, undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.store.files.crashing import CrashError
from tests.store.journal.changing import content, fill, small_store
from tests.store.journal.failing import failing

Meets = Callable[[str, Path], None]


@contextmanager
def observed(meets: Meets) -> Iterator[None]:
    """`meets` every change of a file first, by its kind and the file; it may raise."""
    io.observer = lambda operation, path, *_: meets(operation, Path(path))
    try:
        yield
    finally:
        io.observer = None


def change(layout: StoreLayout, *operations: Operation) -> None:
    Journal(layout, "test").apply(Plan(list(operations)))


def killed_at(layout: StoreLayout, kind: str, name: str, *operations: Operation) -> None:
    """A change whose process ends before the first step of this kind on a file of this name."""

    def kill(operation: str, path: Path) -> None:
        if (operation, path.name) == (kind, name):
            raise CrashError

    with observed(kill), pytest.raises(CrashError):
        change(layout, *operations)
    lock._held.clear()  # the process is gone, and with it its lock
    assert unfinished_change(layout)


# ---- the disk


def test_a_file_that_cannot_be_looked_at_halfway(tmp_path: Path) -> None:
    """Each look at the file fails once: a change that had not begun leaves nothing, one that had says how to end."""
    layout = small_store(tmp_path)
    before = tree_state(layout.root)
    with failing(layout.checkpoint, "look") as disk:
        change(layout, WriteRange(layout.checkpoint, 5, b"new"))
    undo(layout)
    assert tree_state(layout.root) == before
    begun = set()
    for at in range(1, disk.count + 1):
        error: RmqctlError | None = None
        try:
            with failing(layout.checkpoint, "look", at):
                change(layout, WriteRange(layout.checkpoint, 5, b"new"))
        except (UnreadableError, WriteFailedError) as caught:
            error = caught
        told = ("", "", "") if error is None else (error.file, error.message, str(error.hint))
        assert error is None or (told[0], "Input/output error" in told[1]) == (str(layout.checkpoint), True), at
        is_begun = isinstance(error, WriteFailedError)
        assert (unfinished_change(layout) is not None) == is_begun, at
        assert is_begun == ("`rmqctl undo -s" in told[2]) == ("`rmqctl resume -s" in told[2]), at
        if is_begun:
            begun.add(told[1].partition(":")[0])
        if is_begun or error is None:  # a look whose answer does not matter
            undo(layout)
        assert tree_state(layout.root) == before
        shutil.rmtree(layout.kept, ignore_errors=True)
    # pathlib's own errors and ours
    assert begun >= {"I/O error", "cannot be looked at"}


def test_a_change_that_finds_the_disk_full_halfway_is_ended_first(golden_store: GoldenStore) -> None:
    """Only where nothing had begun another place for the journal is of help."""
    store = golden_store("clean")
    before = content(store)

    def full(operation: str, path: Path) -> None:
        if operation == "write" and path.parent.name == "commitlog":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def overwrite() -> None:
        with StoreFiles(store) as files, changing(files, "test", ChangeOptions()) as planned:
            planned.plan.add(WriteRange(files.log.files[0].path, 0, b"new"))

    with observed(full), pytest.raises(WriteFailedError, match="No space left") as failed:
        overwrite()
    assert "free some space" in str(failed.value.hint)
    assert "`rmqctl undo -s" in str(failed.value.hint)
    assert "--journal" not in str(failed.value.hint)
    with StoreFiles(store) as files:
        undo(files.layout)
    assert content(store) == before


def test_a_journal_that_can_be_neither_made_nor_removed(tmp_path: Path) -> None:
    """The disk goes the moment the journal has its name: nobody can tell whether it is there after a power cut."""
    layout = small_store(tmp_path)
    before = tree_state(layout.root)
    gone = False

    def goes(operation: str, path: Path) -> None:
        nonlocal gone
        if gone:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        gone = (operation, path.name) == ("rename to", "journal.json")

    with observed(goes), pytest.raises(WriteFailedError, match="Input/output error") as failed:
        change(layout, WriteRange(layout.checkpoint, 5, b"new"))
    assert "`rmqctl undo -s" in str(failed.value.hint)
    assert tree_state(layout.root) == before
    undo(layout)
    assert tree_state(layout.root) == before


def test_a_journal_that_loses_bytes_halfway(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    before = tree_state(layout.root)

    def lose(operation: str, path: Path) -> None:
        if operation == "open" and path == layout.checkpoint:
            [after] = layout.kept.glob("*/after.bin")
            os.truncate(after, 1)

    with observed(lose), pytest.raises(WriteFailedError, match="lacks 2 of the bytes that were put") as failed:
        change(layout, WriteRange(layout.checkpoint, 5, b"new"))
    assert Path(str(failed.value.file)).name == "after.bin"
    assert "`rmqctl undo -s" in str(failed.value.hint)
    with pytest.raises(CorruptError):
        resume(layout)
    undo(layout)
    assert tree_state(layout.root) == before


def test_a_sector_that_went_bad_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the change wrote cannot be read any more: that is no reason not to put back what was there."""
    layout = small_store(tmp_path)
    before = tree_state(layout.root)
    bad: set[int] = set()
    pread = os.pread

    def read(descriptor: int, length: int, position: int) -> bytes:
        if os.fstat(descriptor).st_ino in bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, length, position)

    def interrupted(operation: str, path: Path) -> None:
        if (operation, path) == ("utime", layout.checkpoint) and not bad:
            bad.add(path.stat().st_ino)
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "pread", read)
    with observed(interrupted), pytest.raises(KeyboardInterrupt):
        change(layout, WriteRange(layout.checkpoint, 5, b"new"))
    assert bad
    assert tree_state(layout.root) == before
    assert [one.state for one in changes(layout)] == ["undone"]


def test_a_file_that_cannot_be_opened_to_be_compared(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    path = layout.root / "index" / "one"
    change(layout, WriteRange(path, 5, b"new"))
    before = tree_state(tmp_path)
    with failing(path, "open") as disk:
        undo(layout, change=ChangeOptions(dry_run=True))
    assert disk.count > 0
    for at in range(1, disk.count + 1):
        with failing(path, "open", at), pytest.raises(UnreadableError, match="Input/output error") as unreadable:
            undo(layout)
        assert unreadable.value.file == str(path)
    assert tree_state(tmp_path) == before


def test_clean_that_has_not_begun_says_nothing_of_a_half_done_one(golden_store: GoldenStore) -> None:
    """As long as nothing was removed an error of reading is what it is, without a word of what is removed."""
    store = golden_store("clean")
    before = content(store)
    with StoreFiles(store) as files, failing(store, "look") as disk:
        assert clean(files, now=0).removed == []
    hints = []
    for number in range(1, disk.count + 1, 5):
        with StoreFiles(store) as files:
            assert files.log.files
            try:
                with failing(store, "look", number):
                    clean(files, now=0)
            except UnreadableError as error:
                hints.append(error.hint)
    assert len(hints) > 5
    assert not any("rmqctl clean" in str(hint) for hint in hints)
    assert content(store) == before


# ---- files of others


def test_a_file_of_another_user_is_refused_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = small_store(tmp_path)
    before = tree_state(layout.root)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: layout.checkpoint.stat().st_uid + 1)
        with pytest.raises(RefusedError, match="belongs to another user") as refused:
            change(layout, WriteRange(layout.checkpoint, 5, b"new"))
    assert refused.value.file == str(layout.checkpoint)
    assert "the user that the broker runs as" in str(refused.value.hint)
    assert (tree_state(layout.root), layout.kept.exists()) == (before, False)


def test_what_somebody_made_where_the_change_was_to_make_a_file(tmp_path: Path) -> None:
    """The folder that was to be taken out stands as it did; the file in it is not ours to remove."""
    layout = small_store(tmp_path)
    queue = layout.root / "queues" / "U"
    killed_at(layout, "move", "U", MoveAway(queue), CreateFile(queue / "0" / "d", 100))
    fill(queue / "0" / "d", b"units")
    before = tree_state(tmp_path)
    for end in (undo, resume):
        with pytest.raises(RefusedError, match="has written to the store") as refused:
            end(layout)
        assert refused.value.file == str(queue / "0" / "d")
    assert tree_state(tmp_path) == before


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    path = layout.root / "index" / "one"
    killed_at(layout, "utime", "one", WriteRange(path, 5, b"new"))
    path.unlink()
    path.mkdir()
    before = tree_state(tmp_path)
    for end in (undo, resume):
        with pytest.raises(RefusedError, match="has written to the store") as refused:
            end(layout)
        assert refused.value.file == str(path)
    assert tree_state(tmp_path) == before


def test_what_somebody_put_into_a_folder_that_the_change_made(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    queue = layout.root / "queues" / "V" / "3"
    killed_at(layout, "utime", "d", CreateFile(queue / "d", 100))
    fill(queue / "e", b"units")
    before = tree_state(tmp_path)
    for end in (undo, resume):
        with pytest.raises(RefusedError, match="has written to the store") as refused:
            end(layout)
        assert refused.value.file == str(queue / "e")
    assert tree_state(tmp_path) == before
    (queue / "e").unlink()
    undo(layout)


def test_an_empty_folder_that_somebody_removed(tmp_path: Path) -> None:
    """It holds nothing of the change yet: there is nothing to put back, and nobody stumbles over it."""
    layout = small_store(tmp_path)
    empty = layout.root / "queues" / "V" / "3"
    empty.mkdir(parents=True)
    before = content(layout.root)
    killed_at(layout, "create", "d", CreateFile(empty / "d", 100))
    empty.rmdir()
    assert undo(layout).state == "undone"
    assert content(layout.root) == before


# ---- bytes behind the end, and copies on their way


@pytest.mark.parametrize("end", [undo, resume])
def test_a_file_that_grows_by_what_is_written(tmp_path: Path, end: Callable[[StoreLayout], object]) -> None:
    layout = small_store(tmp_path)
    before, files = tree_state(layout.root), content(layout.root)
    writes: list[Operation] = [WriteRange(layout.checkpoint, 90, b"N" * 20), ClearRange(layout.checkpoint, 105, 20)]
    wanted = {**files, "checkpoint": b"k" * 90 + b"N" * 15 + bytes(20)}
    killed_at(layout, "utime", "checkpoint", *writes)
    assert content(layout.root) == wanted
    end(layout)
    if end is resume:
        assert content(layout.root) == wanted
        with layout.checkpoint.open("ab") as file:
            file.write(b"more")
        with pytest.raises(RefusedError, match="has written to the store"):
            undo(layout)
        os.truncate(layout.checkpoint, 125)
        os.utime(layout.checkpoint, ns=(0, Path(changes(layout)[-1].folder or "").stat().st_mtime_ns))
        with pytest.raises(RefusedError, match="has written to the store"):
            undo(layout)
    else:
        assert tree_state(layout.root) == before


@pytest.mark.parametrize("end", [undo, resume])
def test_killed_while_a_file_with_two_names_gets_its_own_bytes(
    tmp_path: Path, elsewhere: Path, end: Callable[[StoreLayout], object]
) -> None:
    """On the disk of the commitlog, which is not that of the journal: the copy is beside the file."""
    layout = small_store(tmp_path)
    log = elsewhere / "commitlog"
    shutil.copytree(layout.root / "commitlog", log)
    shutil.rmtree(layout.root / "commitlog")
    os.link(log / "0", elsewhere / "snapshot")
    layout = StoreLayout(layout.root, (log,))
    before, kept = content(log), (elsewhere / "snapshot").read_bytes()
    killed_at(layout, "rename", ".0.rmqctl-moving", ClearRange(log / "0", 0, 100))
    assert (log / ".0.rmqctl-moving").exists()
    end(layout)
    assert content(log) == (before if end is undo else {**before, "0": bytes(100) + before["0"][100:]})
    assert (elsewhere / "snapshot").read_bytes() == kept


def test_killed_twice_while_a_file_with_two_names_gets_its_own_bytes(tmp_path: Path) -> None:
    """The copy of the first time is in the journal's folder, and is made anew."""
    layout = small_store(tmp_path)
    before = tree_state(layout.root)
    os.link(layout.checkpoint, tmp_path / "snapshot")
    killed_at(layout, "rename", "single", WriteRange(layout.checkpoint, 5, b"new"))
    [copy] = layout.kept.glob("*/single")
    copy.write_bytes(b"half")
    resume(layout)
    assert layout.checkpoint.read_bytes() == b"kkkkknew" + b"k" * 92
    assert (tmp_path / "snapshot").read_bytes() == b"k" * 100
    undo(layout)
    assert tree_state(layout.root) == before
