"""Recovery of a store whose writer was killed in the middle of creating files."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.config import read_broker_conf
from store.files.undo import undo
from store.recover import recover
from store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state


def opened(store: Path) -> StoreFiles:
    return StoreFiles(store, read_broker_conf(broker_conf(store.name, store.parent)))


def recovered(store: Path) -> None:
    with opened(store) as files:
        recover(files)


@pytest.mark.parametrize("name", ["crash", "innerbatch"])
def test_a_queue_file_that_never_got_its_size_is_filled(golden_store: GoldenStore, name: str) -> None:
    """A writer that is killed between creating a file and giving it its size leaves one of no bytes."""
    store = golden_store(name)
    recovered(store)
    whole = sorted(path for path in (store / "consumequeue").rglob("0*") if path.is_file())
    queue_files = [path for path in whole if any(path.read_bytes())]
    wanted = {path: path.read_bytes() for path in queue_files}
    for path in queue_files:
        path.write_bytes(b"")
    beyond = [path.with_name(f"{int(path.name) + 40 * len(wanted[path]):020d}") for path in queue_files]
    for path in beyond:
        path.write_bytes(b"")
    before = tree_state(store)
    recovered(store)
    assert {path: path.read_bytes() for path in queue_files} == wanted
    assert not [path for path in beyond if path.exists()]
    with opened(store) as files:
        undo(files.layout)
    assert tree_state(store) == before
