"""What a change and its undo leave is on disk when they return, and nothing of it is lost to anybody else's files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, RefusedError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.folder import Journalled, read_journal
from rmqctl.store.journal.journal import Journal, roll_back
from rmqctl.store.journal.plan import CreateFile, Install, MoveAway, Operation, Plan, WriteRange
from rmqctl.store.journal.undo import resume, undo
from tests.goldens import tree_state
from tests.store.files.durable import Disk, recorded_disk
from tests.store.journal.changing import small_store


def assert_safe(disk: Disk) -> None:
    assert (disk.unsafe_names(), disk.unsafe_bytes()) == ([], [])


def changed_and_taken_out(root: Path, _: Journal) -> list[Operation]:
    queue = root / "queues" / "U" / "0"
    return [WriteRange(queue / "c", 5, b"new"), CreateFile(queue / "d", 100), MoveAway(queue.parent)]


def with_another_name(root: Path, _: Journal) -> list[Operation]:
    os.link(root / "checkpoint", root.parent / "snapshot")
    return [WriteRange(root / "checkpoint", 5, b"new")]


def made_beforehand(root: Path, journal: Journal) -> list[Operation]:
    staged = journal.staging / "one"
    io.create_file(staged, 100)
    io.write_range(staged, 0, b"new")
    return [WriteRange(root / "index" / "one", 5, b"new"), Install(staged, root / "index" / "one")]


def taken_out_and_made(root: Path, _: Journal) -> list[Operation]:
    return [MoveAway(root / "queues" / "U"), CreateFile(root / "queues" / "U" / "0" / "d", 100)]


Made = Callable[[Path, Journal], list[Operation]]


def change(layout: StoreLayout, made: Made, *, keeps: bool = True) -> None:
    journal = Journal(layout, "test", keeps=keeps)
    journal.apply(Plan(made(layout.root, journal)))


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("made", [changed_and_taken_out, with_another_name, made_beforehand])
def test_a_change(tmp_path: Path, made: Made, keeps: bool) -> None:
    layout = small_store(tmp_path)
    with recorded_disk(tmp_path) as disk:
        change(layout, made, keeps=keeps)
        assert_safe(disk)


@pytest.mark.parametrize("keeps", [True, False])
def test_all_of_the_journal_is_there_before_it_is_one_and_before_the_store_changes(tmp_path: Path, keeps: bool) -> None:
    """And what tells whether somebody else used the store is on disk as the journal says, although it stays."""
    layout = small_store(tmp_path)
    root, name = layout.root, "journal.json" if keeps else "state.json"
    seen: dict[str, set[str]] = {}

    def look(operation: str, path: str) -> None:
        where = Path(path)
        if operation == "rename to" and where.name == name:
            seen.setdefault("the journal is one", {*disk.unsafe_names(), *disk.unsafe_bytes()})
        elif seen and where.is_relative_to(root):
            seen.setdefault("the store changes", {*disk.unsafe_names(), *disk.unsafe_bytes()})

    with recorded_disk(tmp_path, look) as disk:
        if keeps:
            io.write_range(layout.checkpoint, 0, b"k")
        journal = Journal(layout, "test", keeps=keeps)
        journal.apply(Plan([WriteRange(root / "queues" / "U" / "0" / "c", 5, b"new")]))
    # but for the journal itself on its way to its name
    assert [[one for one in unsafe if name not in one] for unsafe in seen.values()] == [[], []]


def kept(layout: StoreLayout) -> Journalled:
    """A change that has taken out a file and a folder, as its journal is read."""
    journal = Journal(layout, "test")
    journal.apply(Plan([MoveAway(layout.root / "index" / "one"), MoveAway(layout.root / "queues" / "U")]))
    return read_journal(layout, journal.folder)


def test_what_somebody_else_has_put_in_its_place_is_never_removed(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    journal = kept(layout)
    place = layout.root / "index" / "one"
    place.write_bytes(b"2" * 500)
    with pytest.raises(RefusedError, match="another program wrote"):
        roll_back(journal.folder, journal.entries)
    assert place.read_bytes() == b"2" * 500
    place.unlink()
    roll_back(journal.folder, journal.entries)
    assert place.read_bytes() == b"1" * 500


def test_what_was_kept_and_is_gone_is_told(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    journal = kept(layout)
    [gone] = journal.folder.rglob("one")
    gone.unlink()
    with pytest.raises(CorruptError, match="is gone") as caught:
        roll_back(journal.folder, journal.entries)
    assert str(caught.value.file) == str(gone)


def test_a_journal_that_says_something_else_than_it_did_is_not_used(tmp_path: Path) -> None:
    """It is well-formed, and would put bytes to another place."""
    layout = small_store(tmp_path)
    change(layout, with_another_name)
    [path] = layout.kept.glob("*/journal.json")
    text = path.read_text()
    assert '"offset": 5' in text
    path.write_text(text.replace('"offset": 5', '"offset": 6'))
    before = tree_state(layout.root)
    with pytest.raises(CorruptError, match="has changed since it was written") as damaged:
        undo(layout)
    assert damaged.value.file == str(path)
    assert tree_state(layout.root) == before


@pytest.mark.parametrize("damaged", ["after.bin", "staged/one"])
def test_what_a_resume_would_put_into_the_store_is_looked_at_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    layout = small_store(tmp_path)
    before = tree_state(layout.root)

    def stop(*_: object) -> None:
        raise WriteFailedError("stopped before the first operation")

    def made(root: Path, journal: Journal) -> list[Operation]:
        return [*made_beforehand(root, journal), WriteRange(root / "checkpoint", 5, b"new")]

    with monkeypatch.context() as patch:
        patch.setattr("rmqctl.store.journal.journal.carry_out", stop)
        with pytest.raises(WriteFailedError):
            change(layout, made)
    [bad] = layout.kept.glob(f"*/{damaged}")
    data = bad.read_bytes()
    bad.write_bytes(data[:-1] + b"?")
    with pytest.raises(CorruptError) as caught:
        resume(layout)
    assert str(caught.value.file) == str(bad)
    assert tree_state(layout.root) == before
    bad.write_bytes(data)
    undo(layout)
    assert tree_state(layout.root) == before


@pytest.mark.parametrize("made", [changed_and_taken_out, with_another_name, made_beforehand, taken_out_and_made])
def test_its_undo(tmp_path: Path, made: Made) -> None:
    layout = small_store(tmp_path)
    before = tree_state(layout.root)
    change(layout, made)
    if made is with_another_name:
        # a snapshot of what the change made, which an undo leaves alone
        os.link(layout.root / "checkpoint", tmp_path / "later")
    with recorded_disk(tmp_path) as disk:
        undo(layout)
        assert_safe(disk)
    assert tree_state(layout.root) == before
    if made is with_another_name:
        assert (tmp_path / "later").read_bytes()[5:8] == b"new"
