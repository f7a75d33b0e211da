"""Snapshots, salvaged stores and exports: the original is untouched, and the copy is whole or not there."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.files.reading import exists
from rmqctl.store.message_store import MessageStore
from rmqctl.store.salvage.salvage import salvage
from rmqctl.store.snapshot.snapshot import take_snapshot, verify_snapshot
from rmqctl.store.store_files import StoreFiles
from tests.proof.crash.state import State, files_of, in_log, recovered
from tests.store.journal.commands import CONFIG

SNAPSHOT, SALVAGED, EXPORTED = "deep/snapshot", "deep/salvaged", "exported.parquet"


def snapshot(root: Path, *, hard_links: bool = False) -> None:
    """Beside the store."""
    with StoreFiles(root, CONFIG) as files:
        take_snapshot(files, root.parent / SNAPSHOT, "test", hard_links=hard_links)


def salvaged(root: Path) -> None:
    """Into a new store beside it."""
    salvage([root], root.parent / SALVAGED, config=CONFIG)


def exported(root: Path) -> None:
    """Into one file."""
    with MessageStore.open(root, "r", CONFIG) as store:
        store.export(root.parent / EXPORTED)


def check_original(state: State) -> None:
    """Byte for byte as it was."""
    name = state.root.name
    before = {path.partition("/")[2]: one for path, one in state.files_before.items() if path.startswith(f"{name}/")}
    before = {path: one for path, one in before.items() if path != "lock"}
    assert files_of(state.root) == before, "the original was touched"


def check_snapshot(state: State) -> None:
    """Whole, with everything that its manifest says, or not there."""
    check_original(state)
    target = state.root.parent / SNAPSHOT
    assert exists(target) or not state.is_done, "the snapshot is gone"
    if exists(target):
        problems = verify_snapshot(target).problems
        assert not problems, f"the snapshot is not whole: {problems}"
        assert in_log(target, CONFIG) == state.before


def check_salvaged(state: State) -> None:
    """A store with every message, or not there."""
    check_original(state)
    target = state.root.parent / SALVAGED
    assert exists(target) or not state.is_done, "the salvaged store is gone"
    if exists(target):
        bodies = [one.body for one in state.before]
        assert sorted(one.body for one in in_log(target, CONFIG)) == sorted(bodies)
        assert len(recovered(target, CONFIG)) == len(bodies)


def check_exported(state: State) -> None:
    """A file with every message, or not there."""
    check_original(state)
    target = state.root.parent / EXPORTED
    assert exists(target) or not state.is_done, "the exported file is gone"
    if exists(target):
        content = target.read_bytes()
        assert content == state.files_after[EXPORTED], "the exported file is not whole"
