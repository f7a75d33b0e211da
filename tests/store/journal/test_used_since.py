"""One rule: between any two steps of ours anyone may have used the store, and any step may be the last one.

A change is killed at steps of every kind, while it is made and while it is taken back. Then somebody uses the store, in
each way there is; and whoever reads the journal finds it out, changes nothing, and names the way out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotFoundError, RefusedError, UnreadableError, WriteFailedError
from rmqctl.store.files import io, lock
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal import used as marks
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.kept import TreeItem, is_leftover, is_same
from rmqctl.store.journal.log import changes, end_interrupted, refuse_unfinished, unfinished_change
from rmqctl.store.journal.plan import ClearRange, MoveAway, Plan, Resize
from rmqctl.store.journal.undo import forget, give_up, resume, undo
from rmqctl.store.options import ChangeOptions
from tests.goldens import TreeState, tree_state
from tests.store.files.crashing import Observed, crashed, recorded
from tests.store.journal.changing import MOMENT, copied, start


@pytest.fixture(autouse=True)
def same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change carries the same time, so that outcomes can be compared with their times."""
    monkeypatch.setattr("rmqctl.store.journal.log.time.time_ns", lambda: MOMENT)


def _kept_times(path: Path, data: bytes, offset: int) -> None:
    """Write as through a map that leaves the time as it was (tmpfs)."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _message_behind_the_end(layout: StoreLayout) -> None:
    log = layout.root / "commitlog" / "1"
    with log.open("ab"):
        os.truncate(log, max(log.stat().st_size, 302_000))
    _kept_times(log, b"a new message", 301_000)


def _message_where_it_is_cleared(layout: StoreLayout) -> None:
    _kept_times(layout.root / "commitlog" / "0", b"a new message", 700)


def _broker_started(layout: StoreLayout) -> None:
    os.utime(layout.lock)


def _new_file_of_the_log(layout: StoreLayout) -> None:
    (layout.root / "commitlog" / "2").write_bytes(b"rolled")


def _first_file_cleaned(layout: StoreLayout) -> None:
    (layout.root / "commitlog" / "0").unlink()


def _clean_stop(layout: StoreLayout) -> None:
    """A broker removes `abort`; where the change has taken it out already it makes a checkpoint of its own."""
    if layout.abort.exists():
        layout.abort.unlink()
    else:
        layout.checkpoint.write_bytes(b"B" * 4096)


def _queue_of_its_own(layout: StoreLayout) -> None:
    path = layout.root / "queues" / "V" / "3" / "d"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"U" * 2000)


USES = [
    _message_behind_the_end,
    _message_where_it_is_cleared,
    _broker_started,
    _new_file_of_the_log,
    _first_file_cleaned,
    _clean_stop,
    _queue_of_its_own,
]


def _points(seen: list[Observed]) -> list[int]:
    """Each 17th step, and the first of each kind."""
    first = {observed[0]: number for number, observed in reversed(list(enumerate(seen, start=1)))}
    return sorted({*range(1, len(seen) + 1, 17), *first.values()})


def _refused_with_a_way_out(layout: StoreLayout, folder: Path) -> None:
    before = tree_state(folder)
    for end in (undo, resume):
        with pytest.raises(RefusedError, match="has written to the store") as refused:
            end(layout)
        assert "rmqctl undo --give-up" in str(refused.value.hint)
        assert "rmqctl recover" in str(refused.value.hint)
    assert tree_state(folder) == before
    store = tree_state(layout.root)
    assert give_up(layout, change=ChangeOptions(dry_run=True)).state == "given-up"
    assert tree_state(folder) == before
    assert give_up(layout).state == "given-up"
    # all that was stored since is there, and all that was taken out
    assert tree_state(layout.root) == store
    kept = tree_state(layout.kept)
    assert {name: kept[name] for name in kept if name[-1] != "." and "state.json" not in name and "/" in name} == {
        name.removeprefix("store.rmqctl/"): state
        for name, state in before.items()
        if name.startswith("store.rmqctl/") and "state.json" not in name and name.count("/") > 1
    }
    for step in (undo, resume, refuse_unfinished, give_up, lambda layout: forget(layout, changes(layout))):
        with pytest.raises(RefusedError, match="given up"):
            step(layout)
    refuse_unfinished(layout, mends=True)
    end_interrupted(layout)
    assert (unfinished_change(layout), changes(layout)[-1].state) == (None, "mended")
    with pytest.raises(RefusedError, match="was given up"):
        undo(layout)
    forget(layout, changes(layout))
    assert changes(layout)[-1].state == "mended"
    assert [path.name for path in layout.kept.iterdir()] == ["history.jsonl"]


def test_used_after_a_change_was_killed(tmp_path: Path) -> None:
    layout, work = start(tmp_path / "all")
    points = _points(recorded(work))
    between = 0
    for place, number in enumerate(points):
        folder = tmp_path / f"{number}"
        layout, work = start(folder)
        assert crashed(work, number)
        if unfinished_change(layout) is None:
            continue
        lock._held.clear()
        USES[place % len(USES)](layout)
        _refused_with_a_way_out(layout, folder)
        between += 1
    assert between > 5


def test_what_could_not_be_read_is_held_against_its_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a disk that fails while a change begins, and is well again afterwards."""

    def fail(*_: object) -> int:
        raise UnreadableError("cannot be read: Input/output error", file="commitlog/0")

    layout, work = start(tmp_path / "all")
    before = tree_state(layout.root)
    steps = _points(recorded(work))
    for place, use in enumerate((None, _new_file_of_the_log, _broker_started)):
        layout, work = start(tmp_path / f"{place}")
        with monkeypatch.context() as patch:
            patch.setattr(marks, "end_of_nonzero", fail)
            assert crashed(work, steps[-3])
        assert unfinished_change(layout) is not None
        lock._held.clear()
        if use is not None:
            use(layout)
            _refused_with_a_way_out(layout, tmp_path / f"{place}")
        else:
            undo(layout)
            assert tree_state(layout.root) == before


def test_used_after_an_undo_was_killed(tmp_path: Path) -> None:
    layout, work = start(tmp_path / "all")
    work()
    whole = copied(tmp_path / "all", tmp_path / "whole")
    points = _points(recorded(lambda: undo(whole)))
    between = 0
    for place, number in enumerate(points):
        folder = tmp_path / f"{number}"
        layout = copied(tmp_path / "all", folder)
        assert crashed(partial(undo, layout), number)
        lock._held.clear()
        if unfinished_change(layout) is None:
            continue
        use = USES[place % len(USES)]
        use(layout)
        _refused_with_a_way_out(layout, folder)
        between += 1
    assert between > 5


@pytest.mark.parametrize("use", USES)
def test_used_after_a_change_was_complete(tmp_path: Path, use: Callable[[StoreLayout], None]) -> None:
    layout, work = start(tmp_path)
    work()
    if use is _clean_stop:
        layout.abort.write_bytes(b"")  # a broker was killed
    else:
        use(layout)
    before = tree_state(tmp_path)
    with pytest.raises(RefusedError, match="has written to the store") as refused:
        undo(layout)
    assert "--give-up" not in str(refused.value.hint)
    assert tree_state(tmp_path) == before
    with pytest.raises(NotFoundError):
        give_up(layout)


def test_forgetting_may_end_at_any_step(tmp_path: Path) -> None:
    layout, work = start(tmp_path / "all")
    work()
    after = tree_state(layout.root)
    whole = copied(tmp_path / "all", tmp_path / "whole")
    seen = recorded(lambda: forget(whole, changes(whole)))
    kinds = [observed[0] for observed in seen if observed[0] != "rename to"]
    # the new name is on disk before anything is removed
    assert kinds.index("rename") + 1 == kinds.index("rmtree") - 1
    assert kinds[kinds.index("rename") + 1] == "fsync"
    for number in range(1, len(seen) + 1):
        layout = copied(tmp_path / "all", tmp_path / f"{number}")
        assert crashed(lambda layout=layout: forget(layout, changes(layout)), number)  # type: ignore[misc]
        _forgotten_or_not(layout, after)


def test_forgetting_may_end_within_a_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut, or EIO, in the middle of a folder: some of its files are gone, state.json first."""
    layout, work = start(tmp_path)
    work()
    after = tree_state(layout.root)

    def in_part(path: Path) -> None:
        (path / "state.json").unlink()
        raise WriteFailedError("Input/output error", file=path)

    with monkeypatch.context() as patched:
        patched.setattr(io, "remove_tree", in_part)
        with pytest.raises(WriteFailedError, match="Input/output"):
            forget(layout, changes(layout))
    assert [change.state for change in changes(layout)] == ["forgotten"]
    _forgotten_or_not(layout, after)


def _forgotten_or_not(layout: StoreLayout, after: TreeState) -> None:
    refuse_unfinished(layout)  # messages may be appended
    [change] = changes(layout)
    assert change.state in ("applied", "forgotten")
    if change.state == "forgotten":
        with pytest.raises(RefusedError, match="cannot be undone any more"):
            undo(layout)
        with pytest.raises(NotFoundError):
            resume(layout)
        assert tree_state(layout.root) == after
    forget(layout, changes(layout))
    assert [path.name for path in layout.kept.iterdir()] == ["history.jsonl"]
    if change.state == "applied":
        assert [one.state for one in changes(layout)] == ["forgotten"]


def test_a_store_has_one_journal_whatever_it_is_called(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    before = tree_state(layout.root)
    link = tmp_path / "elsewhere" / "LINK"
    link.parent.mkdir()
    link.symlink_to(layout.root)
    linked = StoreLayout(link, (link / "commitlog",))
    assert linked.kept == layout.kept
    assert crashed(work, 70)
    for name in (layout, linked):
        with pytest.raises(RefusedError, match="was interrupted"):
            refuse_unfinished(name)
    undo(linked)
    assert tree_state(layout.root) == before
    journal = Journal(linked, "again")
    journal.apply(Plan([ClearRange(linked.root / "commitlog" / "0", 0, 100)]))
    undo(layout)
    assert tree_state(layout.root) == before


def test_who_takes_the_mend_back_has_to_mend_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, work = start(tmp_path)
    assert crashed(work, 70)
    _broker_started(layout)
    give_up(layout)
    half = tree_state(layout.root)
    monkeypatch.setattr("rmqctl.store.journal.log.time.time_ns", lambda: MOMENT + 10**9)
    Journal(layout, "recover").apply(Plan([ClearRange(layout.root / "commitlog" / "0", 0, 3000)]))
    end_interrupted(layout)
    refuse_unfinished(layout)
    undo(layout)
    assert tree_state(layout.root) == half
    with pytest.raises(RefusedError, match="given up"):
        refuse_unfinished(layout)


def test_a_damaged_state_can_be_given_up(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    journal = work()
    store = tree_state(layout.root)
    (journal.folder / "state.json").write_bytes(b"?")
    (journal.folder / "journal.json").write_bytes(b"?")
    with pytest.raises(Exception, match="is no JSON") as damaged:
        refuse_unfinished(layout)
    assert "rmqctl undo --give-up" in damaged.value.hint  # type: ignore[attr-defined]
    give_up(layout)
    with pytest.raises(RefusedError, match="given up"):
        refuse_unfinished(layout)
    end_interrupted(layout)
    refuse_unfinished(layout)
    assert tree_state(layout.root) == store
    assert (journal.folder / "before.bin").stat().st_size > 0


def test_what_is_taken_out_need_not_be_changed_before(tmp_path: Path) -> None:
    layout, _ = start(tmp_path)
    before = tree_state(layout.root)
    path = layout.root / "queues" / "T" / "0" / "a"
    Journal(layout, "resized").apply(Plan([Resize(path, 5000), MoveAway(path)]))
    assert not path.exists()
    undo(layout)
    assert tree_state(layout.root) == before


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [(".0.rmqctl-gone", True), (".0.rmqctl-moving", True), (".0", False), ("0.rmqctl-gone", False), ("0", False)],
)
def test_what_a_killed_move_leaves_is_told_from_hidden_files_of_others(name: str, is_ours: bool) -> None:
    """What is not ours counts as written by somebody."""
    assert is_leftover(Path("/s/consumequeue/T") / name) == is_ours


def test_a_copy_of_another_size_is_not_the_one_that_was_kept(tmp_path: Path) -> None:
    """Whatever its time says; nothing of it has to be read."""
    kept = TreeItem("file", 5, 1, "a hash")
    assert is_same(tmp_path, [kept], [kept])
    assert not is_same(tmp_path, [replace(kept, size=6)], [kept])
