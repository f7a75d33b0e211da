"""Appends that fail: nothing of them is visible, and the next one goes on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write.checks import Headroom
from tests.store.write.writing import FILE_SIZE, SMALL, body_that_leaves, files_below, message, records, wait_until

OVERHEAD = 91 + len("TopicA")
FULL = body_that_leaves(8, 0)


def failing(operation: str, number: int) -> Callable[[str, str, int, int], None]:
    """An observer that lets one kind of operation on the commitlog fail."""

    def look(done: str, path: str, _offset: int, _length: int) -> None:
        if done == operation and "commitlog" in path:
            raise OSError(number, os.strerror(number))

    return look


def test_a_full_disk_leaves_nothing_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, allocate_ahead=False) as store:
        store.put(message(FULL - 1000))
        store.wait_for_dispatch()
        before = files_below(tmp_path / "s")
        with monkeypatch.context() as patch:
            patch.setattr(io, "observer", failing("reserve", errno.ENOSPC))
            # for a new file: it would have to roll
            with pytest.raises(WriteFailedError, match="No space left"):
                store.put(message(2000))
        assert files_below(tmp_path / "s") == before
        assert store.put(message(2000)).queue_offset == 1
    assert [kind for kind, _ in records(tmp_path / "s")] == ["StoredMessage", "Blank", "StoredMessage", "Empty"]


def test_a_write_that_fails_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
        with monkeypatch.context() as patch:
            patch.setattr(io, "observer", failing("write", errno.EIO))
            with pytest.raises(WriteFailedError, match="Input/output"):
                store.put(message())
        again = store.put(message())
        assert (again.queue_offset, again.physical_offset) == (1, OVERHEAD + 100)


def test_a_roll_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where the file before cannot be closed, nor where the message is refused once its room is there."""
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, allocate_ahead=False) as store:
        store.put(message(FULL - 1000))
        store.wait_for_dispatch()
        before = files_below(tmp_path / "s")
        with monkeypatch.context() as patch:
            patch.setattr(io, "observer", failing("write", errno.EIO))
            with pytest.raises(WriteFailedError, match="Input/output"):
                store.put(message(2000))
        assert files_below(tmp_path / "s") == before
        with monkeypatch.context() as patch:
            patch.setattr(Headroom, "admit", lambda *_: False)
            assert not store.put(message(2000)).status.is_stored
        assert files_below(tmp_path / "s") == before
        assert store.put(message(2000)).physical_offset == FILE_SIZE


@pytest.mark.parametrize("ahead", [True, False])
def test_a_file_that_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, allocate_ahead=ahead) as store:
        store.put(message(10))
        with monkeypatch.context() as patch:
            patch.setattr(io, "observer", failing("create", errno.EACCES))
            store.put(message(FULL - 1000))
            result = store.put(message(2000))
            assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
            assert "Permission denied" in result.detail
        assert store.put(message(2000)).physical_offset == FILE_SIZE


def test_a_file_made_ahead_is_removed_if_nobody_needs_it(tmp_path: Path) -> None:
    commitlog = tmp_path / "s" / "commitlog"
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message(FILE_SIZE * 3 // 4))
        wait_until(lambda: len(list(commitlog.iterdir())) == 3)
    assert [path.name for path in commitlog.iterdir()] == [f"{0:020}"]
