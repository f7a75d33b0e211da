"""What the files of a journal say when they are read: whatever else stands in their place is told, and does no harm."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError, RefusedError, RmqctlError, UnreadableError
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.folder import JOURNAL, STATE, read_state
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.log import changes, refuse_unfinished, unfinished
from rmqctl.store.journal.plan import ClearRange, MoveAway, Plan, WriteRange
from rmqctl.store.journal.undo import forget, resume, undo
from rmqctl.store.options import ChangeOptions
from tests.goldens import tree_state
from tests.store.files.crashing import crashed
from tests.store.journal.changing import MOMENT, content, small_store, start
from tests.store.journal.failing import failing


def resealed(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a journal.json and give it the hash of what it says now, as another version, or a forger, would."""
    content = json.loads(path.read_text())
    edit(content)
    text = json.dumps({**content, "sha256": "0" * 64})
    path.write_text(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1))


def changed(folder: Path) -> tuple[StoreLayout, Path]:
    """A store with a small change, and the journal of that."""
    layout = small_store(folder)
    journal = Journal(layout, "test")
    journal.apply(Plan([ClearRange(layout.root / "index" / "one", 0, 10), MoveAway(layout.abort)]))
    return layout, journal.folder


def refused(layout: StoreLayout, kind: type[RmqctlError], match: str) -> RmqctlError:
    """How `undo` refuses, which changes nothing."""
    before = tree_state(layout.root.parent)
    with pytest.raises(kind, match=match) as caught:
        undo(layout)
    assert tree_state(layout.root.parent) == before
    return caught.value


# ---- journal.json


def test_a_journal_of_another_format_names_the_version_for_it(tmp_path: Path) -> None:
    layout, folder = changed(tmp_path)
    path = folder / JOURNAL
    resealed(path, lambda content: content.update(format=4, version="9.1"))
    error = refused(layout, RefusedError, "was written in format 4, this version knows 3")
    assert (error.file, "use the version that wrote it: 9.1" in str(error.hint)) == (str(path), True)


@pytest.mark.parametrize(
    "wrong",
    [{"operations": None}, {"operations": {}}, {"times": None}, {"times": {"checkpoint": "now"}}, {"moment_ns": "now"}],
    ids=str,
)
def test_a_journal_without_operations_or_times(tmp_path: Path, wrong: dict[str, object]) -> None:
    layout, folder = changed(tmp_path)
    path = folder / JOURNAL
    resealed(path, lambda content: content.update(wrong))
    error = refused(layout, CorruptError, "holds no operations")
    assert (error.file, "before.bin and moved/" in str(error.hint)) == (str(path), True)


def test_a_journal_that_is_no_object(tmp_path: Path) -> None:
    layout, folder = changed(tmp_path)
    path = folder / JOURNAL
    path.write_text("[]")
    assert [change.state for change in changes(layout)] == ["damaged"]
    assert refused(layout, CorruptError, "is no JSON object").file == str(path)
    # nothing was interrupted as far as is known, and nobody says so of a change that cannot be read
    with pytest.raises(CorruptError, match="its state cannot be read") as damaged:
        resume(layout)
    assert (damaged.value.file, "--give-up" in str(damaged.value.hint)) == (str(path.parent), True)


def test_a_journal_that_the_disk_does_not_give(tmp_path: Path) -> None:
    """Damage is one thing, a disk that does not answer another."""
    layout, folder = changed(tmp_path)
    path = folder / JOURNAL
    before = tree_state(tmp_path)
    with failing(path, "open", 1, lasting=True, single=True), pytest.raises(UnreadableError, match="Input/output"):
        resume(layout)
    assert tree_state(tmp_path) == before


def _install_of_nothing(content: dict[str, Any]) -> None:
    [one, *_] = (row for row in content["operations"] if row["kind"] == "Install")
    one["staged"] = None


def test_an_install_of_nothing(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    resealed(work().folder / JOURNAL, _install_of_nothing)
    refused(layout, CorruptError, "makes no sense: nothing is staged")


def test_a_path_beside_the_store(tmp_path: Path) -> None:
    layout, folder = changed(tmp_path)
    path = folder / JOURNAL
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    resealed(path, lambda content: content["operations"][0].update(path=str(victim)))
    error = refused(layout, RefusedError, f"would change '{victim}', which is not part of this store")
    assert (error.file, victim.read_bytes()) == (str(path), b"precious")


@pytest.mark.parametrize("noted", [None, ["commit\0log"]])
def test_where_the_commitlog_was_is_not_noted(tmp_path: Path, noted: object) -> None:
    """Then it is where it is now."""
    layout, folder = changed(tmp_path)
    resealed(folder / JOURNAL, lambda content: content.update(commitlog=noted))
    undo(layout)
    assert content(layout.root) == content(small_store(tmp_path / "fresh").root)


def test_whose_the_journal_is_must_be_known(tmp_path: Path) -> None:
    """It may lead out of the store's directory if it is this user's: where the disk does not tell, that is said."""
    layout = small_store(tmp_path)
    log = (layout.root / "commitlog").rename(tmp_path / "logs")
    journal = Journal(StoreLayout(layout.root, (log,)), "test")
    journal.apply(Plan([ClearRange(log / "0", 0, 100)]))
    path = journal.folder / JOURNAL
    before = tree_state(tmp_path)
    with failing(path, "look") as disk:
        undo(layout, change=ChangeOptions(dry_run=True))
    unreadable = 0
    for at in range(1, disk.count + 1):
        # and not that it belongs to somebody else
        with contextlib.suppress(UnreadableError), failing(path, "look", at):
            undo(layout, change=ChangeOptions(dry_run=True))
            continue
        unreadable += 1
    assert unreadable >= 2
    assert tree_state(tmp_path) == before


# ---- state.json


@pytest.mark.parametrize("text", ['{"state": "finished"}', "{}", '{"state": "interrupted"}'])
def test_a_state_that_there_is_not(tmp_path: Path, text: str) -> None:
    """The last is that of a change without a journal."""
    layout, folder = changed(tmp_path)
    path = folder / STATE
    path.write_text(text)
    with pytest.raises(CorruptError, match="says nothing of the change's state") as damaged:
        refuse_unfinished(layout)
    assert damaged.value.file == str(path)
    assert "whether this change is complete is unknown" in str(damaged.value.hint)
    assert "rmqctl undo --give-up" in str(damaged.value.hint)
    assert refused(layout, CorruptError, "says nothing of the change's state").file == str(path)


# ---- the history


def test_a_history_that_is_none_of_ours(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    layout.kept.mkdir()
    path = layout.kept / "history.jsonl"
    path.touch()
    os.truncate(path, (1 << 26) + 1)
    with pytest.raises(CorruptError, match="is larger than any history") as damaged:
        changes(layout)
    assert (damaged.value.file, damaged.value.hint) == (str(path), "look what it is, then move it away")


# ---- names of changes


def test_two_changes_within_one_millisecond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.store.journal.log.time.time_ns", lambda: MOMENT)
    layout = small_store(tmp_path)
    before = tree_state(layout.root)
    for number in range(3):
        Journal(layout, "test").apply(Plan([WriteRange(layout.checkpoint, number * 10, b"%d" % number)]))
    names = [change.id for change in changes(layout)]
    assert [name[-9:] for name in names] == ["123Z-test", "124Z-test", "125Z-test"]
    for name in reversed(names):
        assert undo(layout).id == name
    assert tree_state(layout.root) == before


def test_what_is_left_of_a_forgotten_change_is_in_nobody_s_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed while it was removed, and then a change that begins at the same time is forgotten."""
    monkeypatch.setattr("rmqctl.store.journal.log.time.time_ns", lambda: MOMENT)
    layout = small_store(tmp_path)
    plan = Plan([ClearRange(layout.root / "index" / "one", 0, 10)])
    Journal(layout, "test").apply(plan)
    [name] = [change.id for change in changes(layout)]

    def forgotten() -> None:
        forget(layout, changes(layout))

    gone = layout.kept / f"{name}.gone"
    assert any(crashed(forgotten, number) and gone.exists() for number in range(1, 100))
    Journal(layout, "test").apply(plan)
    later = name.replace("123Z", "124Z")
    assert [change.id for change in changes(layout)] == [name, later]
    forgotten()
    assert [path.name for path in layout.kept.iterdir()] == ["history.jsonl"]
    assert [(change.id, change.state) for change in changes(layout)] == [(name, "forgotten"), (later, "forgotten")]


# ---- what stands in the place of a journal on another disk


@pytest.fixture
def pointing(tmp_path: Path) -> tuple[StoreLayout, Path]:
    """A store of which a journal is elsewhere, and what says where."""
    layout, disk = small_store(tmp_path), tmp_path / "disk"
    disk.mkdir()
    journal = Journal(layout, "test", journal_in=disk)
    journal.apply(Plan([ClearRange(layout.root / "index" / "one", 0, 10)]))
    [pointer] = layout.kept.iterdir()
    return layout, pointer


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"[]", "is no JSON object"), (b" " * ((1 << 20) + 1), "is no file that says where a journal is")],
)
def test_what_says_nothing_of_another_place(pointing: tuple[StoreLayout, Path], data: bytes, told: str) -> None:
    layout, pointer = pointing
    pointer.write_bytes(data)
    with pytest.raises(CorruptError, match=told) as damaged:
        unfinished(layout)
    assert damaged.value.file == str(pointer)
    assert "rmqctl undo --give-up" in str(damaged.value.hint)
    assert [change.state for change in changes(layout)] == ["damaged"]
    refused(layout, CorruptError, told)


def test_what_the_disk_does_not_give_of_it(pointing: tuple[StoreLayout, Path]) -> None:
    layout, pointer = pointing
    with failing(pointer, "open", 1, lasting=True), pytest.raises(CorruptError, match="Input/output error") as damaged:
        unfinished(layout)
    assert damaged.value.file == str(pointer)
    assert unfinished(layout) == []


def test_a_disk_that_comes_back_while_its_journal_is_looked_for(pointing: tuple[StoreLayout, Path]) -> None:
    """Who took it for missing does not know the change's state, and says how to get it."""
    _, pointer = pointing
    with pytest.raises(CorruptError, match="could not be reached just now") as missed:
        read_state(pointer)
    assert (missed.value.file, missed.value.hint) == (str(pointer), "run the command again")
