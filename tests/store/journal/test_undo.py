"""Undo and resume: whatever was interrupted and wherever, the store ends as it was before or as the change makes it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotFoundError, RefusedError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.journal.folder import read_state
from rmqctl.store.journal.log import changes, refuse_unfinished, unfinished_change
from rmqctl.store.journal.undo import resume, undo
from rmqctl.store.options import ChangeOptions
from tests.goldens import TreeState, tree_state
from tests.quick import shares
from tests.store.files.crashing import Observed, crashed, recorded
from tests.store.journal.changing import MOMENT, copied, start

# a quick run kills at every seventh place, all shares together at every one
SHARES = 7


@pytest.fixture(autouse=True)
def same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change carries the same time, so that outcomes can be compared with their times."""
    monkeypatch.setattr("rmqctl.store.journal.log.time.time_ns", lambda: MOMENT)


@pytest.fixture
def states(tmp_path: Path) -> tuple[TreeState, TreeState]:
    """What the store is before the change and after it."""
    layout, work = start(tmp_path / "states")
    before = tree_state(layout.root)
    work()
    return before, tree_state(layout.root)


def test_an_applied_change_is_undone(tmp_path: Path, states: tuple[TreeState, TreeState]) -> None:
    layout, work = start(tmp_path)
    before = tree_state(layout.root)
    journal = work()
    assert tree_state(layout.root) == states[1] != before
    assert undo(layout, change=ChangeOptions(dry_run=True)).state == "applied"
    assert tree_state(layout.root) == states[1]
    assert undo(layout).state == "undone"
    assert tree_state(layout.root) == before == states[0]
    assert read_state(journal.folder)["state"] == "undone"
    with pytest.raises(NotFoundError, match="nothing to undo"):
        undo(layout)


def numbers(seen: list[Observed], torn: bool) -> list[int]:
    """Which changes to be killed at: all of them, or within each of the writes."""
    return [number for number, observed in enumerate(seen, start=1) if not torn or observed[0] == "write"]


@pytest.mark.parametrize("share", shares(SHARES))
@pytest.mark.parametrize("torn", [False, True], ids=["between", "within"])
def test_killed_anywhere_while_applying(
    tmp_path: Path, states: tuple[TreeState, TreeState], torn: bool, share: slice
) -> None:
    layout, work = start(tmp_path / "all")
    seen = recorded(work)
    total = len(seen)
    assert total > 80
    untouched = prepared = 0
    for number in numbers(seen, torn)[share]:
        layout, work = start(tmp_path / f"{number}")
        assert crashed(work, number, torn=torn)
        if unfinished_change(layout) is None:
            # not begun, or complete but for the last flush of the journal
            assert tree_state(layout.root) == states[number == total]
            untouched += 1
            continue
        prepared += 1
        with pytest.raises(RefusedError, match="was interrupted"):
            refuse_unfinished(layout)
        other = copied(tmp_path / f"{number}", tmp_path / f"{number}-forward")
        assert undo(layout).state == "undone"
        assert tree_state(layout.root) == states[0], number
        assert resume(other).state == "applied"
        assert tree_state(other.root) == states[1], number
        # and what was finished can be taken back like any other
        undo(other)
        assert tree_state(other.root) == states[0], number
        shutil.rmtree(tmp_path / f"{number}")
        shutil.rmtree(tmp_path / f"{number}-forward")
    assert torn or (untouched > 0 and prepared > 50 // SHARES)


@pytest.mark.parametrize("share", shares(SHARES))
@pytest.mark.parametrize("torn", [False, True], ids=["between", "within"])
def test_killed_anywhere_while_undoing(
    tmp_path: Path, states: tuple[TreeState, TreeState], torn: bool, share: slice
) -> None:
    layout, work = start(tmp_path / "all")
    work()
    seen = recorded(lambda: undo(layout))
    assert len(seen) > 50
    for number in numbers(seen, torn)[share]:
        folder = tmp_path / f"{number}"
        layout, work = start(folder)
        work()
        assert crashed(partial(undo, layout), number, torn=torn)
        again = copied(folder, tmp_path / f"{number}-again")
        pending = unfinished_change(layout)
        if pending is None:
            # not begun, or only the last flush is missing
            assert tree_state(layout.root) in states
        else:
            assert undo(layout).state == "undone"
            assert tree_state(layout.root) == states[0], number
            assert resume(again).state == "undone"
            assert tree_state(again.root) == states[0], number
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / f"{number}-again")


@pytest.mark.parametrize("share", shares(SHARES))
@pytest.mark.parametrize("first", [40, 50, 60, 75, 90])
def test_killed_again_while_resuming(
    tmp_path: Path, states: tuple[TreeState, TreeState], first: int, share: slice
) -> None:
    layout, work = start(tmp_path / "all")
    assert crashed(work, first)
    assert unfinished_change(layout)
    total = len(recorded(lambda: resume(copied(tmp_path / "all", tmp_path / "total"))))
    for number in range(1, total + 1, 3)[share]:
        layout = copied(tmp_path / "all", tmp_path / f"{number}")
        assert crashed(partial(resume, layout), number, torn=number % 2 == 0)
        if unfinished_change(layout) is None:  # only the last flush is missing
            assert tree_state(layout.root) == states[1]
            continue
        other = copied(tmp_path / f"{number}", tmp_path / f"{number}-back")
        resume(layout)
        assert tree_state(layout.root) == states[1], number
        undo(other)
        assert tree_state(other.root) == states[0], number


@pytest.mark.parametrize("share", shares(SHARES))
def test_across_file_systems(
    tmp_path: Path, states: tuple[TreeState, TreeState], share: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is a mount point: nothing can be renamed into the folder beside it."""

    def elsewhere(source: Path, _target: Path) -> bool:
        if io.observer is not None:
            io.observer("move", str(source), 0, 0)
        return False

    monkeypatch.setattr(io, "rename_within", elsewhere)
    layout, work = start(tmp_path / "all")
    total = len(recorded(work))
    undo(layout)
    assert tree_state(layout.root) == states[0]
    for number in range(20, total + 1, 2)[share]:
        layout, work = start(tmp_path / f"{number}")
        assert crashed(work, number)
        if unfinished_change(layout) is None:
            continue
        other = copied(tmp_path / f"{number}", tmp_path / f"{number}-forward")
        back = len(recorded(partial(undo, copied(tmp_path / f"{number}", tmp_path / f"{number}-x"))))
        crashed(partial(undo, layout), 1 + number * 7 % back)
        if unfinished_change(layout):
            undo(layout)
        assert tree_state(layout.root) == states[0], number
        resume(other)
        assert tree_state(other.root) == states[1], number
        for folder in tmp_path.glob(f"{number}*"):
            shutil.rmtree(folder)


def test_a_moved_store_can_be_undone_where_it_is_now(tmp_path: Path, states: tuple[TreeState, TreeState]) -> None:
    _, work = start(tmp_path / "here")
    work()
    layout = copied(tmp_path / "here", tmp_path / "there")
    shutil.rmtree(tmp_path / "here")
    undo(layout)
    assert tree_state(layout.root) == states[0]


def test_ctrl_c_takes_the_change_back(tmp_path: Path, states: tuple[TreeState, TreeState]) -> None:
    layout, work = start(tmp_path)
    count = 0

    def interrupt(operation: str, path: str, *_: int) -> None:
        nonlocal count
        count += "/store/" in path
        if count == 20:
            count += 1
            raise KeyboardInterrupt

    io.observer = interrupt
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        io.observer = None
    assert tree_state(layout.root) == states[0]
    assert [change.state for change in changes(layout)] == ["undone"]


def test_a_failed_write_says_how_to_go_on(tmp_path: Path) -> None:
    layout, work = start(tmp_path)

    def fail(operation: str, path: str, *_: int) -> None:
        if operation == "write" and "/store/" in path:
            raise OSError(28, "No space left on device")

    io.observer = fail
    try:
        with pytest.raises(WriteFailedError, match="No space left") as failed:
            work()
    finally:
        io.observer = None
    assert "free some space" in (failed.value.hint or "")
    assert "rmqctl undo" in (failed.value.hint or "")
    assert unfinished_change(layout)
    resume(layout)
    assert unfinished_change(layout) is None
