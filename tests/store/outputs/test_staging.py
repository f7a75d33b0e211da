"""What is left of killed processes: cleared by the next one with the same target, and never a living one's."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.formats.errors import DiskFullError
from rmqctl.store.files import io
from rmqctl.store.files import outputs as staging
from rmqctl.store.files.outputs import clear_left_behind, in_work, left_behind, staged_directory, staging_of
from tests.processes import start
from tests.store.journal.failing import failing


@pytest.fixture
def gone() -> int:
    """The id of a process that has ended."""
    process = start([sys.executable, "-c", "pass"])
    process.wait(timeout=30)
    return process.pid


def _directory(path: Path) -> Path:
    path.mkdir()
    (path / "half").write_bytes(b"x")
    return path


def test_of_processes_that_are_gone(tmp_path: Path, gone: int) -> None:
    mine = [
        _directory(tmp_path / f".new.rmqctl-{gone}"),
        _directory(tmp_path / f".new.rmqctl-{gone}-scratch"),
        _directory(tmp_path / f"..new.rmqctl-{gone}-scratch.rmqctl-{gone}-going"),
    ]
    file = tmp_path / f".other.jsonl.rmqctl-{gone}"
    file.write_bytes(b"x")
    others = ["new", ".new", f"new.rmqctl-{gone}", ".new.rmqctl-0", ".new.rmqctl-99999999", ".new.rmqctl-moving"]
    for name in others:
        (tmp_path / name).write_bytes(b"x")
    assert sorted(left_behind(tmp_path)) == sorted([*mine, file])
    clear_left_behind(tmp_path / "new")
    assert left_behind(tmp_path) == [file]
    assert sorted(os.listdir(tmp_path)) == sorted([*others, file.name])


def test_of_living_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _directory(tmp_path / f".new.rmqctl-{os.getppid()}")
    assert left_behind(tmp_path) == []
    # the same id, given to another process after this was made
    monkeypatch.setattr(staging, "_started", lambda _process: path.stat().st_ctime + 3600)
    assert left_behind(tmp_path) == [path]
    # nobody can tell
    monkeypatch.setattr(staging, "_started", lambda _process: None)
    assert left_behind(tmp_path) == []


def test_when_this_process_began() -> None:
    started = staging._started(os.getpid())
    assert started is not None
    with start([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as later:
        try:
            then = staging._started(later.pid)
            assert then is not None
            assert started <= then
        finally:
            later.kill()
    assert staging._started(1 << 22) is None


def test_of_another_machine(tmp_path: Path, gone: int) -> None:
    """Its process ids say nothing here, but what is worked on is locked."""
    path = _directory(tmp_path / f".new.rmqctl-{gone}")
    with in_work(path):
        clear_left_behind(tmp_path / "new")
        assert path.is_dir()
    clear_left_behind(tmp_path / "new")
    assert not path.exists()


def test_of_an_earlier_process_with_our_id(tmp_path: Path) -> None:
    """In a container every run may have the same."""
    target = tmp_path / "new"
    _directory(staging_of(target))
    with staged_directory(target) as made:
        assert os.listdir(made) == []
        assert left_behind(tmp_path) == []
        made.rename(target)
    assert os.listdir(tmp_path) == ["new"]


def test_what_belongs_to_somebody_else_stays(tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _directory(tmp_path / f".new.rmqctl-{gone}")

    def refuse(operation: str, *_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(io, "observer", refuse)
    clear_left_behind(tmp_path / "new")
    assert left_behind(tmp_path) == [path]


def test_what_goes_while_it_is_looked_at(tmp_path: Path, gone: int) -> None:
    """Another process clears as well."""
    path = _directory(tmp_path / f".new.rmqctl-{gone}")
    with failing(path, "look", 1, error=errno.ENOENT) as looked:
        assert left_behind(tmp_path) == []
    assert looked.is_reached
    assert left_behind(tmp_path) == [path]


def test_of_a_living_one_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not even ask whether it lives is told that by being refused."""
    path = _directory(tmp_path / f".new.rmqctl-{os.getppid()}")

    def refused(process: int, signal: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "kill", refused)
    assert left_behind(tmp_path) == []
    monkeypatch.setattr(staging, "_started", lambda _process: path.stat().st_ctime + 3600)
    assert left_behind(tmp_path) == [path]


def test_where_locks_say_nothing(tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is not opened, and a file system may have no locks: then the process in the name has to do."""
    link = tmp_path / f".link.rmqctl-{gone}"
    link.symlink_to(tmp_path / "nothing")
    path = _directory(tmp_path / f".new.rmqctl-{gone}")

    def unsupported(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", unsupported)
    with in_work(path):
        assert left_behind(tmp_path) == [link, path]
    clear_left_behind(tmp_path / "link")
    assert left_behind(tmp_path) == [path]


def test_what_has_its_name_already_stays_whatever_fails_then(tmp_path: Path) -> None:
    target = tmp_path / "new"

    def fails_late() -> None:
        with staged_directory(target) as made:
            (made / "whole").write_bytes(b"x")
            made.rename(target)
            raise ValueError("afterwards")

    with pytest.raises(ValueError, match="afterwards"):
        fails_late()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["new", "new/whole"]


def test_what_cannot_be_opened_to_be_held_is_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    (tmp_path / "made").touch()
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(DiskFullError, match="made: open failed: Disk quota exceeded"), in_work(tmp_path / "made"):
        pass
