"""Ordered pops that lock a queue: released or finished, and undone byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import NotFoundError, RefusedError
from rmqctl.store import Loss, MessageStore
from rmqctl.store.options import ChangeOptions
from tests.features import feature_store
from tests.goldens import tree_state

Place = tuple[str, int]


def _ordered(store: MessageStore) -> dict[Place, str]:
    ordered = [one for one in store.pop(now=0).messages() if one.way == "ordered"]
    return {(one.topic, one.queue_id * 100 + one.queue_offset): one.state for one in ordered}


def test_release_unlocks_one_queue_and_is_undone(tmp_path: Path) -> None:
    path = feature_store("pop-fs", tmp_path)
    before = tree_state(path)
    with MessageStore.open(path) as store:
        report = store.end_pops("g-fifo", "Steps", 0)
        (row,) = report.rows
        # 0 and 2 of 0 to 3 are acknowledged: the next pop begins at 1
        assert (row.queue_id, row.before, row.after, row.again, row.skipped) == (0, 1, 1, 3, 0)
        assert _ordered(store) == {("Steps", 103): "in-flight", ("Steps", 104): "in-flight"}
        assert {one.queue_id: one.offset for one in store.groups("g-fifo")} == {0: 1, 1: 3}
        store.undo()
    assert tree_state(path) == before


def test_finish_takes_all_for_consumed_and_is_undone(tmp_path: Path) -> None:
    path = feature_store("pop-fs", tmp_path)
    before = tree_state(path)
    losses: list[Loss] = []
    with MessageStore.open(path) as store:
        report = store.end_pops("g-fifo", finish=True, change=ChangeOptions(confirm=losses.append))
        changed = [(row.queue_id, row.before, row.after, row.skipped) for row in report.rows]
        assert changed == [(0, 1, 4, 2), (1, 3, 5, 2)]
        assert _ordered(store) == {}
        assert {one.queue_id: one.offset for one in store.groups("g-fifo")} == {0: 4, 1: 5}
        assert [loss.skipped for loss in losses] == [4]
        assert not [one for one in store.check() if one.kind.family == "POP"]
        store.undo()
    assert tree_state(path) == before


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    path = feature_store("pop-fs", tmp_path)
    before = tree_state(path)
    with MessageStore.open(path) as store:
        report = store.end_pops("g-fifo", finish=True, change=ChangeOptions(dry_run=True))
    assert (len(report.rows), bool(report.operations), report.journal) == (2, True, None)
    assert tree_state(path) == before


@pytest.mark.parametrize(("name", "said"), [("pop-fs", "in messages of the log"), ("pop-kv", "kvStore/, a RocksDB")])
def test_what_is_kept_otherwise_is_refused(name: str, said: str, tmp_path: Path) -> None:
    path = feature_store(name, tmp_path)
    before = tree_state(path)
    with MessageStore.open(path) as store:
        with pytest.raises(RefusedError, match=said):
            store.end_pops("g-work")
        with pytest.raises(NotFoundError, match="no queue is locked"):
            store.end_pops("nobody")
    assert tree_state(path) == before


@pytest.mark.parametrize("name", ["pop-fs", "pop-fs-533", "pop-fs-v2", "pop-fs-crash"])
def test_unordered_pops_are_finished_in_their_checkpoints(name: str, tmp_path: Path) -> None:
    path = feature_store(name, tmp_path)
    before = tree_state(path)
    losses: list[Loss] = []
    with MessageStore.open(path) as store:
        found = [one for one in store.pop(now=0).messages() if one.group == "g-work" and one.way == "fs"]
        found_now = sorted(one.code for one in store.check())
        waiting = {(one.topic, one.queue_id, one.queue_offset) for one in found if one.state != "acknowledged"}
        report = store.end_pops("g-work", finish=True, change=ChangeOptions(confirm=losses.append))
    assert report.skipped == len(waiting) > 0
    assert losses[0].skipped == len(waiting)
    with MessageStore.open(path) as store:
        after = [one for one in store.pop(now=0).messages() if one.group == "g-work" and one.way == "fs"]
        assert {one.state for one in after} == {"acknowledged"}
        assert len(after) == len(found)
        assert [one for one in store.pop(now=0).messages() if one.state == "in-flight" and one.group != "g-work"]
        assert sorted(one.code for one in store.check()) == found_now
        with pytest.raises(RefusedError, match="in messages of the log"):
            store.end_pops("g-work", finish=True)
        store.undo()
    assert tree_state(path) == before
