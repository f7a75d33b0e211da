"""A file is flushed while it is written; a flush that fails is never lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.io import EarlyFlush


def _flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observer: io.Observer) -> EarlyFlush:
    monkeypatch.setattr(io, "_STEP", 100)
    monkeypatch.setattr(io, "observer", observer)
    path = tmp_path / "file"
    path.touch()
    return EarlyFlush(os.open(path, os.O_RDWR), path)


def test_it_flushes_every_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    flush = _flushed(tmp_path, monkeypatch, lambda operation, *_: seen.append(operation))
    flush.wrote(99)
    assert seen == []
    flush.wrote(1)
    flush.finish()
    assert seen == ["fsync"]


def test_a_failed_flush_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(operation: str, *_: object) -> None:
        raise OSError(5, "no disk")

    flush = _flushed(tmp_path, monkeypatch, fail)
    flush.wrote(100)
    with pytest.raises(WriteFailedError, match="fsync failed"):
        flush.finish()
    other = _flushed(tmp_path, monkeypatch, fail)
    other.wrote(100)
    other.close()
    with pytest.raises(WriteFailedError, match="fsync failed"):
        other.wrote(100)
