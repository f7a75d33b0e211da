"""When a change can not be undone, and what the log of changes keeps and forgets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, RmqctlError, StoreInUseError
from rmqctl.store.files import lock
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import take_lock
from rmqctl.store.journal.folder import held
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.log import (
    changes,
    end_interrupted,
    find_change,
    note_permanent,
    refuse_unfinished,
    unfinished_change,
)
from rmqctl.store.journal.plan import ClearRange, MoveAway, Plan, Resize, WriteRange
from rmqctl.store.journal.undo import forget, resume, undo
from tests.goldens import tree_state
from tests.store.files.crashing import crashed, recorded
from tests.store.journal.changing import MOMENT, content, copied, expected, plan_of_everything, small_store, start


@pytest.fixture(autouse=True)
def same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change carries the same time, so that outcomes can be compared with their times."""
    monkeypatch.setattr("rmqctl.store.journal.log.time.time_ns", lambda: MOMENT)


def test_only_the_last_change_can_be_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = small_store(tmp_path)
    before = tree_state(layout.root)
    ids = []
    for number in range(3):
        monkeypatch.setattr("rmqctl.store.journal.log.time.time_ns", lambda number=number: MOMENT + number * 10**9)
        journal = Journal(layout, "test")
        journal.apply(Plan([WriteRange(layout.checkpoint, number * 10, b"%d" % number)]))
        ids.append(journal.folder.name)
        if number:
            with pytest.raises(RefusedError, match=f"{number + 1} changes begin with"):
                find_change(layout, ids[0][:8])
    with pytest.raises(RefusedError, match=ids[2]):
        undo(layout, ids[0])
    assert undo(layout, ids[2]).id == ids[2]
    assert undo(layout).id == ids[1]
    assert undo(layout, ids[0]).id == ids[0]
    assert tree_state(layout.root) == before
    with pytest.raises(RefusedError, match="undone already"):
        undo(layout, ids[0])
    with pytest.raises(NotFoundError, match="no change 'nothing'"):
        undo(layout, "nothing")


def _touch(layout: StoreLayout, name: str) -> str:
    path = layout.root / name
    with path.open("r+b") as file:
        byte = file.read(1)
        file.seek(0)
        file.write(byte)
    os.utime(path)
    return name


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda layout: _touch(layout, "commitlog/0"), "commitlog/0"),
        (lambda layout: _touch(layout, "batch/W/0/unit"), "batch/W/0/unit"),
        (lambda layout: _touch(layout, "index/one"), "index/one"),
        (lambda layout: (layout.root / "abort").write_bytes(b""), "abort"),
        (lambda layout: (layout.root / "commitlog" / "2").write_bytes(b"new"), "commitlog/2"),
        (lambda layout: (layout.root / "batch" / "W" / "0" / "more").write_bytes(b"new"), "batch/W/0"),
        (lambda layout: (layout.root / "batch" / "W" / "0" / "unit").unlink(), "batch/W"),
        (lambda layout: (layout.root / "queues" / "V" / "3" / "d").unlink(), "queues/V/3/d"),
        (lambda layout: os.truncate(layout.root / "queues" / "T" / "0" / "a", 999), "queues/T/0/a"),
        (lambda layout: (layout.root / "queues" / "U").mkdir(), "queues/U"),
    ],
)
def test_a_store_that_has_changed_since_is_left_alone(
    tmp_path: Path, wrong: Callable[[StoreLayout], object], named: str
) -> None:
    layout, work = start(tmp_path)
    work()
    wrong(layout)
    before = tree_state(tmp_path)
    with pytest.raises(RefusedError, match="has written to the store") as refused:
        undo(layout)
    assert (refused.value.file or "").startswith(str(layout.root / named))
    assert tree_state(tmp_path) == before


@pytest.mark.parametrize("place", ["before.bin", "journal.json", "moved/000012/b", "moved/000011/U/0/c"])
def test_a_damaged_journal_is_not_used(tmp_path: Path, place: str) -> None:
    layout, work = start(tmp_path)
    path = work().folder / place
    data = path.read_bytes()
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    before = tree_state(layout.root)
    with pytest.raises(CorruptError) as damaged:
        undo(layout)
    assert damaged.value.file == str(path)
    assert tree_state(layout.root) == before


def test_a_journal_may_not_reach_out_of_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = small_store(tmp_path / "a")
    victim = tmp_path / "logs" / f"{0:020d}"
    victim.parent.mkdir()
    victim.write_bytes(b"precious")
    other = StoreLayout(layout.root, (victim.parent,))  # the commitlog is said to be the folder with the victim
    journal = Journal(other, "test")
    journal.apply(Plan([WriteRange(victim, 0, b"PRECIOUS"), MoveAway(layout.abort)]))
    # the journal of another store, which somebody may have made up
    copy = copied(tmp_path / "a", tmp_path / "b")
    with pytest.raises(RefusedError, match="was made with the commitlog in"):
        undo(copy)
    elsewhere = StoreLayout(layout.root, (layout.root / "queues",))
    with pytest.raises(RefusedError, match="was made with the commitlog in"):
        undo(elsewhere)
    # somebody else's
    with monkeypatch.context() as patched:
        patched.setattr("rmqctl.store.journal.entry._owner", lambda _: os.geteuid() + 1)
        with pytest.raises(RefusedError, match="was made with the commitlog in"):
            undo(layout)
    assert victim.read_bytes() == b"PRECIOUS"
    assert not layout.abort.exists()
    # this user's own, for this very store: it remembers where the commitlog is
    undo(layout)
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"path": "checkpoint"', '"path": "../victim"'),
        ('"path": "checkpoint"', '"path": "."'),
        ('"path": "checkpoint"', '"path": 5'),
        ('"path": "checkpoint"', '"path": "check\\u0000point"'),
        ('"kind": "Resize"', '"kind": "Else"'),
        ('"new_size": 4096', '"new_size": -1'),
        ('"moved": "moved/000011/U"', '"moved": "moved/../../x"'),
        ('"staged": "staged/one"', '"staged": "/etc/passwd"'),
        ('"before": [', '"before": ["x", '),
    ],
)
def test_a_forged_journal_is_refused(tmp_path: Path, old: str, new: str) -> None:
    import hashlib

    layout, work = start(tmp_path)
    path = work().folder / "journal.json"
    text = path.read_text()
    assert old in text
    digest = json.loads(text)["sha256"]
    text = text.replace(old, new, 1).replace(digest, "0" * 64)
    path.write_text(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1))
    before = tree_state(tmp_path)
    with pytest.raises(RmqctlError):
        undo(layout)
    assert tree_state(tmp_path) == before


def test_without_a_journal_nothing_is_kept(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    before = content(layout.root)
    journal = Journal(layout, "test", ["--no-journal"], keeps=False)
    journal.apply(plan_of_everything(layout, journal))
    assert content(layout.root) == expected(before)
    assert [path.name for path in layout.kept.iterdir()] == ["history.jsonl"]
    [change] = changes(layout)
    assert (change.state, change.folder, change.arguments) == ("permanent", None, ["--no-journal"])
    with pytest.raises(RefusedError, match="was made with --no-journal"):
        undo(layout)


def test_what_cannot_be_undone_bars_the_way_for_what_was_before(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    applied = work().folder.name
    note_permanent(layout, {"id": "2999-clean", "verb": "clean", "started": 1})
    with pytest.raises(RefusedError, match="2999-clean came later"):
        undo(layout, applied)


def test_forgetting_frees_space_and_keeps_the_line(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    journal = work()
    # a command that was killed while it planned
    abandoned = layout.kept / "29990101T000000000Z-recover"
    abandoned.mkdir()
    (abandoned / "after.bin").write_bytes(b"x" * 5000)
    found = changes(layout)
    assert [change.state for change in found] == ["applied", "abandoned"]
    assert forget(layout, found) == sum(change.kept_bytes for change in found) > 5000
    [change] = changes(layout)
    assert (change.id, change.state, change.folder, change.paths) == (journal.folder.name, "forgotten", None, 11)
    assert change.kept_bytes == 0
    with pytest.raises(RefusedError, match="cannot be undone any more"):
        undo(layout)


def test_an_unfinished_change_is_not_forgotten(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    assert crashed(work, 60)
    with pytest.raises(RefusedError, match="was interrupted"):
        forget(layout, changes(layout))
    undo(layout)


def test_a_broker_that_ran_on_the_half_changed_store_is_noticed(tmp_path: Path) -> None:
    layout = small_store(tmp_path)
    log = layout.root / "commitlog"
    journal = Journal(layout, "test")
    plan = Plan([ClearRange(log / "0", 0, 100), Resize(layout.root / "index" / "one", 10)])
    total = len(recorded(lambda: journal.apply(plan)))
    undo(layout)
    assert crashed(lambda: Journal(layout, "again").apply(plan), total - 3)
    _touch(layout, "checkpoint")
    for end in (undo, resume):
        with pytest.raises(RefusedError, match="has written to the store") as refused:
            end(layout)
        assert refused.value.file == str(layout.checkpoint)


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    work()
    lock = take_lock(layout)
    try:
        with pytest.raises(RmqctlError, match="open for writing already"):
            undo(layout)
    finally:
        lock.release()
    undo(layout)


def test_only_folders_of_ours_are_ever_removed(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    work()
    mine = layout.kept / "holiday pictures"
    mine.mkdir()
    (layout.kept / "20200101T000000000Z-link").symlink_to(mine)
    assert len(changes(layout)) == 1
    forget(layout, changes(layout))
    assert mine.is_dir()
    elsewhere = tmp_path / "elsewhere"
    layout.kept.rename(elsewhere)
    layout.kept.symlink_to(elsewhere)
    (elsewhere / "20200101T000000000Z-recover").mkdir()
    with pytest.raises(RefusedError, match="is a link"):
        forget(layout, changes(layout))
    assert (elsewhere / "20200101T000000000Z-recover").is_dir()


def test_a_journal_may_not_follow_links_out_of_its_store(tmp_path: Path) -> None:
    layout = small_store(tmp_path / "a")
    victim, other = tmp_path / "etc", tmp_path / "other"
    for folder in (victim, other):
        folder.mkdir()
        (folder / "passwd").write_bytes(b"precious")
    link = layout.root / "consumequeue"
    link.symlink_to(victim)
    Journal(layout, "test").apply(Plan([WriteRange(link / "passwd", 0, b"PRECIOUS")]))
    # the journal of another store, which somebody may have made up
    with pytest.raises(RefusedError, match="not part of this store"):
        undo(copied(tmp_path / "a", tmp_path / "b"))
    # the link leads elsewhere now
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(RefusedError, match="not part of this store"):
        undo(layout)
    assert ((victim / "passwd").read_bytes(), (other / "passwd").read_bytes()) == (b"PRECIOUS", b"precious")
    link.unlink()
    link.symlink_to(victim)
    undo(layout)
    assert (victim / "passwd").read_bytes() == b"precious"


def test_what_stands_among_the_journals_does_no_harm(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    folder = work().folder
    (layout.kept / "history.jsonl").write_bytes(
        b'{"id": 1}\n[]\n{"id":"a","verb":"b","state":"c","started":"x"}\n\xff\n7\n'
    )
    assert [change.state for change in changes(layout)] == ["applied"]
    (folder / "state.json").unlink()
    os.mkfifo(folder / "state.json")
    assert [change.state for change in changes(layout)] == ["damaged"]
    with pytest.raises(CorruptError, match="no file"):
        refuse_unfinished(layout)


def _change_that_keeps_nothing(layout: StoreLayout) -> None:
    plan = Plan([ClearRange(layout.root / "commitlog" / "0", 0, 100), MoveAway(layout.root / "queues" / "U")])
    Journal(layout, "test", ["truncate", "-s", "a b"], keeps=False).apply(plan)


def _assert_no_way_back(layout: StoreLayout) -> None:
    last = changes(layout)[-1]
    for end in (undo, resume, refuse_unfinished, lambda layout: forget(layout, [last])):
        with pytest.raises(RefusedError, match="cannot be undone") as refused:
            end(layout)
        assert "rmqctl truncate -s 'a b'" in str(refused.value.hint)
    refuse_unfinished(layout, mends=True)
    end_interrupted(layout, lambda head: head["verb"] == "other")
    assert unfinished_change(layout) == last.id
    end_interrupted(layout)
    assert (unfinished_change(layout), changes(layout)[-1].state) == (None, "permanent")


def test_an_interrupted_change_that_kept_nothing_is_known(tmp_path: Path) -> None:
    layout = small_store(tmp_path / "first")
    Journal(layout, "first").apply(Plan([ClearRange(layout.root / "index" / "one", 0, 10)]))
    before = content(layout.root)
    states = set()
    for number in range(1, 100):
        copy = copied(tmp_path / "first", tmp_path / str(number))
        if not crashed(lambda layout=copy: _change_that_keeps_nothing(layout), number):  # type: ignore[misc]
            break
        state = changes(copy)[-1].state
        states.add(state)
        if state == "interrupted":
            _assert_no_way_back(copy)
        elif state == "permanent":  # complete, but for what is left of its folder
            assert content(copy.root) != before
            refuse_unfinished(copy)
        else:  # nothing was changed yet
            assert content(copy.root) == before
    assert states == {"applied", "abandoned", "interrupted", "permanent"}


def test_what_is_being_undone_is_not_forgotten(tmp_path: Path) -> None:
    layout, work = start(tmp_path)
    folder = work().folder
    [listed] = changes(layout)
    with held(folder), pytest.raises(StoreInUseError, match="prunes"):
        forget(layout, [listed])
    with held(folder), pytest.raises(StoreInUseError):
        undo(layout)
    assert crashed(lambda: undo(layout), 30)
    lock._held.clear()
    with pytest.raises(RefusedError, match="was interrupted"):  # it was listed before that
        forget(layout, [listed])
    undo(layout)
