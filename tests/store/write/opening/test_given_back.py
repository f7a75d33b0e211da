"""A store that could not be opened for writing is as it was, and free for whoever comes next."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.put import OffsetTable
from tests.store.journal.failing import failing
from tests.store.write.writing import SMALL, message


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
    return tmp_path / "s"


def _require_free(root: Path) -> None:
    assert not (root / "abort").exists()
    with MessageStore.open(root, "rw", SMALL) as store:
        store.put(message()).raise_failure()


def _open_files() -> list[Path]:
    folder = Path("/proc/self/fd")
    return [(folder / name).readlink() for name in os.listdir(folder) if (folder / name).is_symlink()]


@pytest.mark.parametrize("number", [errno.EIO, errno.EINTR])
def test_when_its_services_cannot_be_started(root: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock was kept, and `abort` stood there: no other open until the process ended, then a recovery."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(OffsetTable, "load", fail)
    with pytest.raises(UnreadableError, match=os.strerror(number)):
        MessageStore.open(root, "rw", SMALL)
    monkeypatch.undo()
    _require_free(root)


def test_when_its_mark_does_not_reach_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(operation: str, path: str, *_: int) -> None:
        if operation == "fsync" and path == str(root):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(io, "observer", fail)
    # as long as the error is at hand its frames are, and what they have
    with pytest.raises(WriteFailedError, match="fsync failed") as _error:
        MessageStore.open(root, "rw", SMALL)
    monkeypatch.undo()
    assert not [path for path in _open_files() if path.is_relative_to(root)]
    _require_free(root)


def test_an_open_that_cannot_look_says_so(root: Path) -> None:
    """Neither a refusal that blames the store nor an error that is none of ours."""
    with failing(root, "look", single=True) as disk:
        MessageStore.open(root, "rw", SMALL).close()
    for at in range(1, disk.count + 1, 3):
        with failing(root, "look", at, single=True), contextlib.suppress(UnreadableError, WriteFailedError):
            MessageStore.open(root, "rw", SMALL).close()
        if (root / "abort").exists():
            with MessageStore.open(root, "r", SMALL) as store:
                store.recover()
    _require_free(root)
