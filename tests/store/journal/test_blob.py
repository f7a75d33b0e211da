"""Bytes that a plan keeps in the journal until they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.kept import Blob, Spilled, only_counted
from rmqctl.store.journal.plan import CreateFile, Plan, WriteRange


def test_what_was_put_is_found_again(tmp_path: Path) -> None:
    blob = Blob(tmp_path / "folder" / "blob")
    assert not blob.path.parent.exists()
    pieces = [b"one", b"", b"three" * 1000]
    places = [blob.put(piece) for piece in pieces]
    assert [place.load() for place in places] == pieces
    assert [len(place) for place in places] == [3, 0, 5000]
    blob.finish()
    blob.close()
    assert blob.path.read_bytes() == b"".join(pieces)


def test_bytes_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    blob = Blob(tmp_path / "blob")
    place = blob.put(b"12345")
    blob.close()
    blob.path.write_bytes(b"123")
    with pytest.raises(WriteFailedError, match="lacks 2 of the bytes"):
        place.load()
    with pytest.raises(WriteFailedError, match="lacks 5 of the bytes"):
        only_counted(b"12345").load()


def test_a_plan_writes_the_same_from_memory_and_from_the_journal(tmp_path: Path) -> None:
    found = []
    for name in ("memory", "spilled"):
        store = tmp_path / name
        (store / "commitlog").mkdir(parents=True)
        journal = Journal(StoreLayout(store, (store / "commitlog",)), "test")
        plan = Plan([CreateFile(store / "queue", 100)])
        for offset, data in ((0, b"first"), (50, b"second")):
            kept: bytes | Spilled = data if name == "memory" else journal.spill(data)
            plan.add(WriteRange(store / "queue", offset, kept))
        described = [operation.describe(store) for operation in plan.operations]
        journal.apply(plan)
        found.append((described, (store / "queue").read_bytes(), (journal.folder / "after.bin").read_bytes()))
    assert found[0] == found[1]
    assert found[0][2] == b"firstsecond"


def test_a_discarded_journal_leaves_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    journal = Journal(StoreLayout(store, (store / "commitlog",)), "test")
    journal.spill(b"bytes")
    assert (journal.folder / "after.bin").exists()
    journal.discard()
    assert list(tmp_path.iterdir()) == []
