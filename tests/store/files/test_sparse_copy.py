"""Copies with holes and times, and what is made of file systems that cannot share blocks."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.outputs import Sharing, copy_sparsely
from tests.store.journal.failing import failing


def _sparse(path: Path) -> bytes:
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek(10_000_000)
        file.write(b"middle")
        file.truncate(50_000_000)
    os.utime(path, ns=(1, 1_234_567_890_123_456_789))
    return path.read_bytes()


@pytest.mark.parametrize("sharing", [Sharing.AUTO, Sharing.NEVER])
def test_content_holes_and_time(sharing: Sharing, tmp_path: Path) -> None:
    content = _sparse(tmp_path / "source")
    (tmp_path / "source").chmod(0o460)
    copy_sparsely(tmp_path / "source", tmp_path / "copy", 50_000_000, sharing)
    status = (tmp_path / "copy").stat()
    assert stat.S_IMODE(status.st_mode) == 0o460
    assert (tmp_path / "copy").read_bytes() == content
    assert status.st_blocks <= (tmp_path / "source").stat().st_blocks + 16
    assert status.st_mtime_ns == 1_234_567_890_123_456_789


def test_a_part(tmp_path: Path) -> None:
    content = _sparse(tmp_path / "source")
    copy_sparsely(tmp_path / "source", tmp_path / "copy", 10_000_003, Sharing.AUTO)
    assert (tmp_path / "copy").read_bytes() == content[:10_000_003]


def test_shared_blocks_are_cut_to_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file system does it that can: the whole file at first."""
    content = _sparse(tmp_path / "source")

    def shares(source: int, descriptor: int, _path: Path) -> None:
        os.write(descriptor, os.pread(source, 50_000_000, 0))

    monkeypatch.setattr(io, "share_blocks", shares)
    assert copy_sparsely(tmp_path / "source", tmp_path / "copy", 10_000_003, Sharing.ALWAYS)
    assert (tmp_path / "copy").read_bytes() == content[:10_000_003]


def test_the_kernel_is_asked_to_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As linux/fs.h has it: FICLONE is _IOW(0x94, 9, int). Few file systems can, so nothing else shows the number."""
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(fcntl, "ioctl", lambda *question: asked.append(question))
    io.share_blocks(5, 7, tmp_path)
    assert asked == [(7, 1 << 30 | 4 << 16 | 0x94 << 8 | 9, 5)]


def test_other_failures_are_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _sparse(tmp_path / "source")

    def broken(_source: int, _descriptor: int, path: Path) -> None:
        raise WriteFailedError("clone failed", file=path) from OSError(errno.EIO, "broken")

    monkeypatch.setattr(io, "share_blocks", broken)
    with pytest.raises(WriteFailedError):
        copy_sparsely(tmp_path / "source", tmp_path / "copy", 5, Sharing.AUTO)


def test_links_and_fifos_are_not_followed(tmp_path: Path) -> None:
    _sparse(tmp_path / "source")
    (tmp_path / "link").symlink_to(tmp_path / "source")
    with pytest.raises(UnreadableError):
        copy_sparsely(tmp_path / "link", tmp_path / "copy", 5, Sharing.AUTO)
    with pytest.raises(UnreadableError) as gone:
        copy_sparsely(tmp_path / "nowhere", tmp_path / "copy", 5, Sharing.AUTO)
    assert isinstance(gone.value.__cause__, FileNotFoundError)
    assert not (tmp_path / "copy").exists()


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100)
    with failing(source, "read", 1), pytest.raises(UnreadableError, match="cannot be read: Input/output") as unreadable:
        copy_sparsely(source, tmp_path / "copy", 100, Sharing.NEVER)
    assert unreadable.value.file == str(source)
