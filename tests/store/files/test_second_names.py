"""A file that has a second name, as in a snapshot by hard links, keeps its bytes there whatever a change does to it."""

from __future__ import annotations

import os
from pathlib import Path

from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.log import changes
from rmqctl.store.journal.plan import ClearRange, Plan, Resize, WriteRange
from rmqctl.store.journal.undo import undo
from tests.goldens import tree_state
from tests.store.journal.changing import small_store


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


def test_undo_leaves_a_later_second_name_alone(tmp_path: Path) -> None:
    """A snapshot by hard links that was taken between a change and its undo."""
    layout = small_store(tmp_path)
    log = layout.root / "commitlog" / "0"
    before = tree_state(layout.root)
    Journal(layout, "test").apply(Plan([ClearRange(log, 0, 100), Resize(log, 9000)]))
    other = tmp_path / "snapshot"
    os.link(log, other)
    kept = other.read_bytes(), other.stat().st_mtime_ns
    undo(layout)
    assert (other.read_bytes(), other.stat().st_mtime_ns) == kept
    assert tree_state(layout.root) == before
