"""The writer of bytes: observed, loud, and whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.layout import inherited
from rmqctl.store.files.mapped_file import RESERVE_AHEAD, WritableMap
from rmqctl.store.journal.kept import clear_interrupted, move
from tests.goldens import tree_state


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int, int]]:
    """What the observer was told."""
    told: list[tuple[str, str, int, int]] = []
    monkeypatch.setattr(io, "observer", lambda *observed: told.append(observed))
    return told


def test_every_change_is_observed(tmp_path: Path, seen: list[tuple[str, str, int, int]]) -> None:
    file, other = tmp_path / "a" / "file", tmp_path / "b" / "other"
    calls: list[tuple[str, Callable[[], object]]] = [
        ("mkdir", lambda: io.make_directories(file.parent)),
        ("create", lambda: io.create_file(file, 100)),
        ("open write", lambda: io.write_range(file, 5, b"12345")),
        ("truncate", lambda: io.truncate(file, 50)),
        ("fsync", lambda: io.flush_file(file)),
        ("fsync", lambda: io.flush_directory(file.parent)),
        ("link", lambda: io.link(file, file.with_name("link"))),
        ("copy mkdir", lambda: io.copy_file(file, other, shutil.copy2)),
        ("rename rename-to", lambda: io.rename(other, other.with_name("renamed"))),
        ("move rename-to", lambda: move(other.with_name("renamed"), other)),
        ("remove", lambda: io.remove(other)),
        ("rmdir", lambda: io.remove_directory(other.parent)),
        ("open write fsync rename rename-to fsync", lambda: io.write_whole(file, b"whole")),
        ("rmtree", lambda: io.remove_tree(file.parent)),
    ]
    for operations, call in calls:
        seen.clear()
        before = tree_state(tmp_path)
        call()
        assert [observed[0].replace(" ", "-") for observed in seen] == operations.split()
        assert "fsync" in operations or tree_state(tmp_path) != before
    seen.clear()
    io.make_directories(tmp_path)
    assert seen == []


def test_the_observer_is_told_before_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"before")
    before = tree_state(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(io, "observer", refuse)
    calls: list[Callable[[], object]] = [
        lambda: io.create_file(tmp_path / "new", 5),
        lambda: io.make_directories(tmp_path / "new"),
        lambda: io.write_range(file, 0, b"x"),
        lambda: io.truncate(file, 0),
        lambda: io.rename(file, tmp_path / "new"),
        lambda: move(file, tmp_path / "new"),
        lambda: io.copy_file(file, tmp_path / "new", shutil.copy2),
        lambda: io.link(file, tmp_path / "new"),
        lambda: io.share_blocks(0, 0, file),
        lambda: io.remove(file),
        lambda: io.remove_tree(tmp_path),
        lambda: io.flush_directory(tmp_path),
    ]
    for call in calls:
        with pytest.raises(WriteFailedError, match="Input/output error") as failed:
            call()
        assert failed.value.file
    assert tree_state(tmp_path) == before


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(20))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: real(descriptor, data[:3], offset))
    io.write_range(file, 4, b"0123456789")
    assert file.read_bytes() == bytes(4) + b"0123456789" + bytes(6)


def test_a_file_is_created_once(tmp_path: Path) -> None:
    io.create_file(tmp_path / "file", 1 << 40)
    status = (tmp_path / "file").stat()
    assert (status.st_size, status.st_blocks) == (1 << 40, 0)
    with pytest.raises(WriteFailedError, match="exists"):
        io.create_file(tmp_path / "file", 5)
    assert (tmp_path / "file").stat().st_size == 1 << 40


def test_a_file_too_large_for_the_disk_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(WriteFailedError) as failed:
        io.create_file(tmp_path / "file", 5)
    assert failed.value.hint
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("failing", ["open", "write", "fsync", "rename"])
def test_write_whole_is_old_or_new(tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def fail(operation: str, path: str, offset: int, length: int) -> None:
        if operation == failing:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(io, "observer", fail)
    with pytest.raises(WriteFailedError):
        io.write_whole(file, b"new and longer")
    assert file.read_bytes() == b"old"
    monkeypatch.setattr(io, "observer", None)
    io.write_whole(file, b"new and longer")
    assert file.read_bytes() == b"new and longer"


def test_write_whole_leaves_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    io.write_whole(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["file", "folder"])
def test_move_never_replaces(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "target").write_bytes(b"2")
    with pytest.raises(WriteFailedError, match="exists"):
        move(tmp_path / name, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"2"
    assert (tmp_path / name).exists()


def _tree(folder: Path) -> Path:
    (folder / "tree" / "deep").mkdir(parents=True)
    (folder / "tree" / "deep" / "file").write_bytes(b"1" * 5000)
    (folder / "tree" / "link").symlink_to("deep/file")
    os.utime(folder / "tree" / "deep" / "file", ns=(5 * 10**17, 5 * 10**17))
    return folder / "tree"


def test_move_within_a_file_system(tmp_path: Path) -> None:
    source = _tree(tmp_path)
    before = tree_state(source)
    move(source, tmp_path / "far" / "away")
    assert tree_state(tmp_path / "far" / "away") == before
    assert not source.exists()


def test_move_across_file_systems(tmp_path: Path, elsewhere: Path) -> None:
    source = _tree(tmp_path)
    before = tree_state(source)
    move(source, elsewhere / "new" / "tree")
    assert not source.exists()
    assert tree_state(elsewhere / "new" / "tree").keys() == before.keys()
    assert tree_state(elsewhere / "new" / "tree")["deep/file"] == before["deep/file"]
    assert list((elsewhere / "new").iterdir()) == [elsewhere / "new" / "tree"]
    move(elsewhere / "new" / "tree" / "deep" / "file", tmp_path / "file")
    assert tree_state(tmp_path)["file"] == before["deep/file"]


@pytest.mark.parametrize("number", range(1, 30))
def test_interrupted_move_across_file_systems_loses_nothing(
    tmp_path: Path, elsewhere: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _tree(tmp_path)
    before = tree_state(source)["deep/file"]
    count = 0

    def fail(*_: object) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(io, "observer", fail)
    try:
        move(source, elsewhere / "tree")
    except WriteFailedError:
        pass
    else:
        assert count < number
    places = [folder for folder in (source, elsewhere / "tree") if folder.exists()]
    assert places
    assert all(tree_state(folder)["deep/file"] == before for folder in places)


def test_free_bytes_of_nowhere(tmp_path: Path) -> None:
    assert io.free_bytes(tmp_path) > 0
    with pytest.raises(WriteFailedError, match="free space") as failed:
        io.free_bytes(tmp_path / "nowhere")
    assert failed.value.file == str(tmp_path / "nowhere")


# --- mapped writing ---------------------------------------------------------------------------------------------------


def test_mapped_writes_reach_the_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    io.create_file(file, 3 * io.PAGE_SIZE)
    pages = WritableMap(file, 3 * io.PAGE_SIZE, 0)
    pages.reserve(20)
    pages.write(3, b"0123456789abc")
    pages.write(30, b"short")
    pages.flush(3, 35)
    pages.close()
    data = file.read_bytes()
    assert data[3:16] == b"0123456789abc"
    assert data[30:35] == b"short"
    assert len(data) == 3 * io.PAGE_SIZE
    assert file.stat().st_blocks > 0


def test_reserving_a_full_disk_is_an_error_and_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    io.create_file(file, 1 << 24)
    pages = WritableMap(file, 1 << 24, 0)
    asked: list[int] = []

    def full(descriptor: int, offset: int, length: int) -> None:
        asked.append(length)
        if length > io.PAGE_SIZE:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    pages.reserve(100)
    assert asked == [RESERVE_AHEAD, io.PAGE_SIZE]  # the chunk does not fit, what is needed does
    with pytest.raises(WriteFailedError, match="No space left") as failed:
        pages.reserve(3 * io.PAGE_SIZE)
    assert failed.value.file == str(file)
    pages.close()


def test_a_file_shorter_than_the_map_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    with pytest.raises(WriteFailedError, match="shorter"):
        WritableMap(tmp_path / "file", 200, 0)


def test_a_failing_fsync_of_a_map_is_loud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    io.create_file(file, io.PAGE_SIZE)
    pages = WritableMap(file, io.PAGE_SIZE, 0)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(WriteFailedError, match="fsync failed") as failed:
        pages.flush(0, 10)
    assert failed.value.file == str(file)
    pages.close()


def test_writing_whole_does_not_mind_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / f".file.rmqctl-{os.getpid()}").write_bytes(b"much longer than what comes now")
    io.write_whole(tmp_path / "file", b"short")
    assert (tmp_path / "file").read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_whole_file_behind_a_link(tmp_path: Path) -> None:
    """The link stays, what it leads to is replaced and keeps its permissions."""
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o604)
    link.symlink_to(target)
    io.write_whole(link, b"new")
    assert (link.is_symlink(), target.read_bytes(), target.stat().st_mode & 0o777) == (True, b"new", 0o604)
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_link_and_a_pipe_move_across_file_systems(tmp_path: Path, elsewhere: Path) -> None:
    """Neither is opened: the one leads anywhere, the other would be waited for."""
    source, target = tmp_path / "queues", elsewhere / "queues"
    (source / "0").mkdir(parents=True)
    (source / "0" / "file").write_bytes(b"units")
    (source / "0" / "link").symlink_to("/nowhere")
    os.mkfifo(source / "0" / "pipe")
    with pytest.raises(WriteFailedError):
        move(source, target)
    (source / "0" / "pipe").unlink()
    clear_interrupted(target)
    before = tree_state(source)
    move(source, target)
    assert tree_state(target) == before
    assert os.readlink(target / "0" / "link") == "/nowhere"
    assert not source.exists()
    move(target / "0" / "link", tmp_path / "link")
    assert os.readlink(tmp_path / "link") == "/nowhere"
    assert [path.name for path in (target / "0").iterdir()] == ["file"]


def test_who_is_not_root_gives_nothing_away(tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    for name in ("chown", "lchown", "fchown"):
        monkeypatch.setattr(os, name, refused)
    source = _tree(tmp_path / "tree")
    before = tree_state(source)
    move(source, elsewhere / "tree")
    assert tree_state(elsewhere / "tree") == before
    assert inherited(elsewhere / "tree" / "new") is None


def test_a_disk_that_says_nothing_of_what_is_replaced_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(status: object) -> object:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(io, "of_one", unread)
    with pytest.raises(WriteFailedError, match="look at what is replaced failed: Input/output error"):
        io.write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_cannot_be_given_to_its_owner_is_not_kept_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []

    def refuse(descriptor: int, owner: object) -> None:
        refused.append(descriptor)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(io, "_give", refuse)
    with pytest.raises(WriteFailedError, match="open failed: Operation not permitted"):
        io.open_for_writing(tmp_path / "file", create=True)
    assert not os.path.exists(f"/proc/self/fd/{refused[0]}")
