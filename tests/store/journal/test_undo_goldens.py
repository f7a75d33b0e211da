"""Every golden, recovered or rebuilt and then undone: the same bytes, files, times and directories as before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError, UnsupportedError
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.journal.folder import APPLIED, STATE, write_state
from rmqctl.store.journal.log import changes
from rmqctl.store.journal.undo import undo
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.quick import goldens_of


def undone(store: Path, config: StoreConfig, before: goldens.TreeState) -> None:
    """Undo whatever was done; but for the lock file, which taking the broker's lock makes, all is as before."""
    layout = config.layout(store)
    if [change for change in changes(layout) if change.state == "applied"]:
        undo(layout)
    after = tree_state(store)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {".", "lock"}


@pytest.mark.parametrize("name", goldens_of(goldens.GOLDENS))
def test_recovered_and_undone(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    config = read_broker_conf(broker_conf(name, store.parent))
    before = tree_state(store)
    for cut, full in ((False, False), (True, False), (True, True)):
        try:
            with StoreFiles(store, config) as files:
                recover(files, cut=cut, full=full)
        except (RefusedError, UnsupportedError):
            pass
        undone(store, config, before)


@pytest.mark.parametrize("name", goldens_of(goldens.GOLDENS))
def test_rebuilt_and_undone(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    config = read_broker_conf(broker_conf(name, store.parent))
    before = tree_state(store)
    try:
        with StoreFiles(store, config) as files:
            assert rebuild(files).journal
    except (RefusedError, UnsupportedError):
        assert name == "rocksdb" or "log-gone" in name
    undone(store, config, before)


def test_undone_where_nothing_is_known_of_the_lock(golden_store: GoldenStore) -> None:
    """Somebody had removed it when the change was done: undo makes it anew, which is no use of the store."""
    store = golden_store("crash")
    before = tree_state(store)
    with StoreFiles(store) as files:
        recover(files)
    [folder] = [Path(change.folder) for change in changes(files.layout) if change.folder is not None]
    marks = json.loads((folder / STATE).read_text())["marks"]
    del marks["lock"]
    write_state(folder, APPLIED, marks=marks)
    (store / "lock").unlink()
    undone(store, StoreConfig(), before)
