"""Snapshots as the tests take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqctl.store.snapshot.snapshot import MANIFEST_NAME, SnapshotReport, take_snapshot
from rmqctl.store.store_files import StoreFiles
from tests.goldens import tree_state


def take(store: Path, target: Path, **options: Any) -> SnapshotReport:
    """A snapshot of a store with the sizes that its files have."""
    with StoreFiles(store) as files:
        return take_snapshot(files, target, "0", **options)


def without_manifest(path: Path) -> dict[str, tuple[int, int, str]]:
    """What a snapshot holds of the store."""
    return {name: state for name, state in tree_state(path).items() if name != MANIFEST_NAME}
