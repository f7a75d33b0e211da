"""A file that has a second name, as in a snapshot by hard links, keeps its bytes there whatever a change does to it."""

from __future__ import annotations

import os
from pathlib import Path

from store.files.journal import Journal
from store.files.journal_log import changes
from store.files.layout import StoreLayout
from store.files.plan import ClearRange, Plan, WriteRange
from store.files.undo import undo


def test_the_other_name_keeps_its_bytes(tmp_path: Path) -> None:
    path, other = tmp_path / "store" / "commitlog" / ("0" * 20), tmp_path / "other"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"0123456789")
    os.utime(path, ns=(1, 5_000_000_000))
    os.link(path, other)
    before = path.parent.stat().st_mtime_ns
    layout = StoreLayout(tmp_path / "store", (path.parent,))
    Journal(layout, "test").apply(Plan([WriteRange(path, 2, b"xy"), ClearRange(path, 6, 2)]))
    assert path.read_bytes() == b"01xy45\0\089"
    assert other.read_bytes() == b"0123456789"
    assert path.stat().st_nlink == 1
    assert path.parent.stat().st_mtime_ns == before
    undo(layout)
    assert path.read_bytes() == b"0123456789"
    assert path.stat().st_mtime_ns == 5_000_000_000
    assert [change.state for change in changes(layout)] == ["undone"]
