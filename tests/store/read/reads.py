"""What is read of the files of a store while a test runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.files.reading import Descriptors


def reads_of(descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """Each read from here on: of which file, and how many bytes were asked for."""
    found: list[tuple[Path, int]] = []
    plain = descriptors.read

    def counted(path: Path, position: int, length: int) -> bytes:
        found.append((path, length))
        return plain(path, position, length)

    monkeypatch.setattr(descriptors, "read", counted)
    return found
