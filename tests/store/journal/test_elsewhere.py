"""A journal on another disk than its store: found again, taken back to the byte, and missed where it is not there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, RmqctlError, UnreadableError
from rmqctl.store.files import io, lock
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.folder import is_known_complete, pointed, tell_begun
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.log import changes, end_interrupted, refuse_unfinished, unfinished
from rmqctl.store.journal.undo import forget, give_up, resume, undo
from tests.goldens import tree_state
from tests.store.files.crashing import crashed, recorded
from tests.store.files.durable import recorded_disk
from tests.store.journal.changing import content, expected, plan_of_everything, small_store


def started(folder: Path) -> tuple[StoreLayout, Path]:
    folder.mkdir()
    layout, disk = small_store(folder), folder / "disk"
    disk.mkdir()
    return layout, disk


def change(layout: StoreLayout, disk: Path) -> Journal:
    journal = Journal(layout, "test", journal_in=disk)
    with journal.planning():
        journal.begin()
        plan = plan_of_everything(layout, journal)
    journal.apply(plan)
    return journal


def killed(folder: Path, part: float) -> tuple[StoreLayout, Path]:
    """A change with its journal elsewhere that came so far."""
    total = len(recorded(lambda: change(*started(folder / "whole"))))
    layout, disk = started(folder / "killed")
    assert crashed(lambda: change(layout, disk), int(total * part))
    lock._held.clear()  # the process is gone, and with it its lock
    return layout, disk


def test_it_is_found_taken_back_and_forgotten(tmp_path: Path) -> None:
    layout, disk = started(tmp_path / "a")
    before, files = tree_state(layout.root), content(layout.root)
    folder = change(layout, disk).folder
    assert folder.parent == disk / "store.rmqctl"
    assert content(layout.root) == expected(files)
    assert [path.name for path in layout.kept.iterdir()] == [folder.name]
    assert (layout.kept / folder.name).is_file()
    [found] = changes(layout)
    assert (found.state, found.folder) == ("applied", str(folder))
    refuse_unfinished(layout)
    undo(layout)
    assert tree_state(layout.root) == before
    forget(layout, changes(layout))
    assert list(disk.iterdir()) == []
    assert [path.name for path in layout.kept.iterdir()] == ["history.jsonl"]


def test_where_it_is_is_on_disk_before_anything_is_planned(tmp_path: Path) -> None:
    layout, place = started(tmp_path / "a")
    with recorded_disk(tmp_path) as disk:
        journal = Journal(layout, "test", journal_in=place)
        journal.begin()
        assert (layout.kept / journal.folder.name).is_file()
        assert (disk.unsafe_names(), disk.unsafe_bytes()) == ([], [])
    # so that a store whose other disk is gone by now can be used: nothing of it has changed
    assert is_known_complete(layout.kept / journal.folder.name)


def test_a_plan_that_fails_leaves_nothing(tmp_path: Path) -> None:
    layout, disk = started(tmp_path / "a")
    before = tree_state(tmp_path / "a")
    journal = Journal(layout, "test", journal_in=disk)
    journal.begin()
    journal.spill(b"x")
    with pytest.raises(UnreadableError), journal.planning():
        (tmp_path / "nothing").read_bytes()
    after = tree_state(tmp_path / "a")
    assert before.keys() == after.keys()


@pytest.mark.parametrize("ending", [undo, resume])
def test_killed_anywhere_it_ends_in_one_of_the_two_states(tmp_path: Path, ending: object) -> None:
    (tmp_path / "t").mkdir()
    total = len(recorded(lambda: change(*started(tmp_path / "t" / "whole"))))
    for number in range(3, total, 23):
        layout, disk = started(tmp_path / "t" / str(number))
        before, files = tree_state(layout.root), content(layout.root)
        assert crashed(lambda layout=layout, disk=disk: change(layout, disk), number)  # type: ignore[misc]
        lock._held.clear()
        if unfinished(layout):
            ending(layout)  # type: ignore[operator]
            state = [one.state for one in changes(layout)]
            assert state == (["undone"] if ending is undo else ["applied"])
            assert (tree_state(layout.root) == before) == (ending is undo)
        assert content(layout.root) in (files, expected(files))
        refuse_unfinished(layout)


def test_a_removal_that_is_killed_anywhere_goes_on_with_the_next_one(tmp_path: Path) -> None:
    """The change is there whole or not at all, and nothing of it stays on either disk."""
    layout, disk = started(tmp_path / "whole")
    change(layout, disk)
    total = len(recorded(lambda: forget(layout, changes(layout))))
    states = set()
    for number in range(1, total + 1):
        layout, disk = started(tmp_path / str(number))
        change(layout, disk)
        assert crashed(lambda layout=layout: forget(layout, changes(layout)), number)  # type: ignore[misc]
        lock._held.clear()
        [found] = changes(layout)
        states.add(found.state)
        refuse_unfinished(layout)
        forget(layout, changes(layout))
        assert list(disk.iterdir()) == []
        assert [path.name for path in layout.kept.iterdir()] == ["history.jsonl"]
    assert states == {"applied", "forgotten"}


def test_what_is_left_of_a_removal_waits_for_its_disk(tmp_path: Path) -> None:
    layout, disk = started(tmp_path / "whole")
    change(layout, disk)
    operations = [operation for operation, *_ in recorded(lambda: forget(layout, changes(layout)))]
    layout, disk = started(tmp_path / "killed")
    folder = change(layout, disk).folder
    assert crashed(lambda: forget(layout, changes(layout)), operations.index("rmtree") + 1)
    lock._held.clear()
    disk.rename(tmp_path / "unplugged")
    forget(layout, changes(layout))
    assert sorted(path.name for path in layout.kept.iterdir()) == [f"{folder.name}.gone", "history.jsonl"]
    (tmp_path / "unplugged").rename(disk)
    assert folder.is_dir()
    forget(layout, changes(layout))
    assert list(disk.iterdir()) == []
    assert [path.name for path in layout.kept.iterdir()] == ["history.jsonl"]


def test_a_half_done_change_whose_disk_is_gone(tmp_path: Path) -> None:
    """Nobody takes the store for a whole one; with the disk it can be taken back, or it is given up."""
    layout, disk = killed(tmp_path, 0.6)
    before = content(layout.root)
    disk.rename(tmp_path / "unplugged")
    for ask in (lambda: refuse_unfinished(layout, mends=True), lambda: undo(layout), lambda: resume(layout)):
        with pytest.raises(UnreadableError, match="the journal of this change is in") as missing:
            ask()
        assert "mount the disk" in str(missing.value.hint)
        assert "--give-up" in str(missing.value.hint)
    assert content(layout.root) == before
    copy = tmp_path / "copy"
    shutil.copytree(layout.kept, copy)
    assert give_up(layout).state == "given-up"
    with pytest.raises(RefusedError, match="given up"):
        refuse_unfinished(layout)
    (tmp_path / "unplugged").rename(disk)
    assert [one.state for one in changes(layout)] == ["given-up"]
    end_interrupted(layout)
    refuse_unfinished(layout)
    assert [one.state for one in changes(layout)] == ["mended"]
    # had it not been given up
    shutil.rmtree(layout.kept)
    copy.rename(layout.kept)
    undo(layout)


def test_a_complete_change_whose_disk_is_gone(tmp_path: Path) -> None:
    layout, disk = started(tmp_path / "a")
    change(layout, disk)
    disk.rename(tmp_path / "unplugged")
    refuse_unfinished(layout)
    assert [one.state for one in changes(layout)] == ["damaged"]
    with pytest.raises(UnreadableError, match="the journal of this change is in"):
        undo(layout)
    with pytest.raises(NotFoundError):
        give_up(layout)
    forget(layout, changes(layout))
    assert changes(layout) == []


@pytest.mark.parametrize("ending", [undo, resume])
def test_a_change_that_was_ended_needs_its_disk_no_more(tmp_path: Path, ending: object) -> None:
    layout, disk = killed(tmp_path, 0.6)
    ending(layout)  # type: ignore[operator]
    disk.rename(tmp_path / "unplugged")
    refuse_unfinished(layout)


@pytest.mark.parametrize("ending", [undo, resume])
def test_nor_does_one_whose_undo_was_interrupted_and_ended(tmp_path: Path, ending: object) -> None:
    layout, disk = started(tmp_path / "whole")
    change(layout, disk)
    total = len(recorded(lambda: undo(layout)))
    layout, disk = started(tmp_path / "killed")
    before = tree_state(layout.root)
    change(layout, disk)
    assert crashed(lambda: undo(layout), total // 2)
    lock._held.clear()
    assert [one.state for one in changes(layout)] == ["undoing"]
    ending(layout)  # type: ignore[operator]
    assert tree_state(layout.root) == before
    disk.rename(tmp_path / "unplugged")
    refuse_unfinished(layout)


def test_nor_does_one_that_was_taken_back_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, disk = started(tmp_path / "a")
    before = content(layout.root)

    def stop(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "write" and path == str(layout.root / "commitlog" / "0"):
            monkeypatch.undo()
            raise KeyboardInterrupt

    monkeypatch.setattr(io, "observer", stop)
    with pytest.raises(KeyboardInterrupt):
        change(layout, disk)
    assert content(layout.root) == before
    assert [one.state for one in changes(layout)] == ["undone"]
    disk.rename(tmp_path / "unplugged")
    refuse_unfinished(layout)


def test_that_it_has_begun_is_on_disk_when_that_was_told(tmp_path: Path) -> None:
    layout, place = started(tmp_path / "a")
    folder = change(layout, place).folder
    for has_begun in (True, False):
        with recorded_disk(tmp_path) as disk:
            tell_begun(layout, folder, has_begun)
            assert pointed(layout.kept / folder.name)["begun"] == int(has_begun)
            assert (disk.unsafe_names(), disk.unsafe_bytes()) == ([], [])


def _of_somebody_else(pointer: Path, folder: Path) -> None:
    os.chown(pointer, 12345, 12345)


def _of_another_store(pointer: Path, folder: Path) -> None:
    pointer.write_text(json.dumps(json.loads(pointer.read_text()) | {"store": "/other"}))


def _nonsense(pointer: Path, folder: Path) -> None:
    pointer.write_bytes(b"\0" * 100)


def _to_another_name(pointer: Path, folder: Path) -> None:
    pointer.write_text(json.dumps(json.loads(pointer.read_text()) | {"folder": "/etc"}))


def _to_a_link(pointer: Path, folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def _folder_of_somebody_else(pointer: Path, folder: Path) -> None:
    os.chown(folder, 12345, 12345)


@pytest.mark.parametrize(
    "what",
    [_of_somebody_else, _of_another_store, _nonsense, _to_another_name, _to_a_link, _folder_of_somebody_else],
    ids=lambda what: what.__name__.strip("_"),
)
def test_what_leads_elsewhere_is_not_believed(tmp_path: Path, what: object) -> None:
    if "somebody" in what.__name__ and os.geteuid() != 0:  # type: ignore[attr-defined]
        pytest.skip("only root can give a file away")
    layout, disk = killed(tmp_path, 0.6)
    [pointer] = layout.kept.iterdir()
    before = content(layout.root)
    what(pointer, disk / "store.rmqctl" / pointer.name)  # type: ignore[operator]
    for ask in (lambda: refuse_unfinished(layout), lambda: undo(layout), lambda: resume(layout)):
        with pytest.raises((CorruptError, UnreadableError)):
            ask()
    assert content(layout.root) == before


def test_a_copy_of_a_store_does_not_take_what_the_other_one_kept(tmp_path: Path) -> None:
    layout, disk = started(tmp_path / "a")
    folder = change(layout, disk).folder
    kept = content(folder)
    copy = tmp_path / "b"
    copy.mkdir()
    shutil.copytree(layout.root, copy / "store")
    shutil.copytree(layout.kept, copy / "store.rmqctl")
    with pytest.raises(CorruptError, match="another store"):
        undo(StoreLayout(copy / "store", (copy / "store" / "commitlog",)))
    assert content(folder) == kept


def test_places_that_are_refused(tmp_path: Path) -> None:
    layout, _ = started(tmp_path / "a")
    outside = tmp_path / "outside"
    outside.mkdir()
    link = tmp_path / "link"
    link.mkdir()
    (link / "store.rmqctl").symlink_to(outside)
    for place in (tmp_path / "nothing", layout.root / "commitlog", layout.root, link):
        with pytest.raises(RmqctlError) as refused:
            Journal(layout, "test", journal_in=place)
        assert isinstance(refused.value, NotFoundError if place.name == "nothing" else RefusedError)
    assert list(outside.iterdir()) == []
    # the directory that the store is in is no other place
    assert Journal(layout, "test", journal_in=layout.root.parent).folder.parent == layout.kept


def test_holes_and_second_names_where_the_journal_is_on_another_disk(tmp_path: Path, elsewhere: Path) -> None:
    layout, _ = started(tmp_path / "a")
    log = layout.root / "commitlog" / "0"
    os.link(log, tmp_path / "snapshot")
    os.truncate(layout.root / "abort", 50_000_000)  # it is moved, and is a hole
    before, files = tree_state(layout.root), content(layout.root)
    change(layout, elsewhere)
    assert content(layout.root) == expected(files)
    assert sum(path.stat().st_blocks for path in elsewhere.rglob("abort")) < 100
    assert (tmp_path / "snapshot").read_bytes() == files["commitlog/0"]
    undo(layout)
    assert tree_state(layout.root) == before
    assert (layout.root / "abort").stat().st_blocks < 100
