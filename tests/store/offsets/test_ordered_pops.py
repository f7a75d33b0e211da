"""Pops that are open, ordered and unordered ones: released or finished, and undone byte for byte."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotFoundError, RefusedError
from rmqctl.formats.message import Message
from rmqctl.store import Loss, MessageStore
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import lock
from rmqctl.store.journal.log import unfinished_change
from rmqctl.store.options import ChangeOptions
from tests.features import feature_store, feature_truth
from tests.goldens import tree_state
from tests.store.files.crashing import crashed, recorded

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


@pytest.mark.parametrize("finish", [False, True])
def test_what_kvstore_keeps_is_refused(finish: bool, tmp_path: Path) -> None:
    path = feature_store("pop-kv", tmp_path)
    before = tree_state(path)
    with MessageStore.open(path) as store:
        with pytest.raises(RefusedError, match="kvStore/, a RocksDB"):
            store.end_pops("g-work", finish=finish)
        with pytest.raises(NotFoundError, match="no pop of group 'nobody' is open"):
            store.end_pops("nobody", finish=finish)
    assert tree_state(path) == before


Handed = set[tuple[str, int, int]]


def _unordered(store: MessageStore, *states: str) -> Handed:
    found = [one for one in store.pop().messages() if one.group == "g-work" and one.way == "fs"]
    return {(one.topic, one.queue_id, one.queue_offset) for one in found if one.state in states}


def _time_of_stop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the clock say when the broker of a golden was stopped: a part of what it handed out is in flight then."""
    (stopped,) = [row["at"] for row in feature_truth(name, "did") if row["what"] == "stopped"]
    _set_clock(monkeypatch, int(stopped) * 1_000_000)


def _set_clock(monkeypatch: pytest.MonkeyPatch, nanoseconds: int) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds)


@pytest.mark.parametrize("name", ["pop-fs", "pop-fs-533", "pop-fs-v2"])
def test_release_hands_out_at_the_next_start_what_is_in_flight(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = feature_store(name, tmp_path)
    _time_of_stop(name, monkeypatch)
    before = tree_state(path)
    with MessageStore.open(path) as store:
        found_now = sorted(one.code for one in store.check())
        in_flight, due = _unordered(store, "in-flight"), _unordered(store, "overdue")
        done = _unordered(store, "acknowledged") - in_flight - due
        report = store.end_pops("g-work")
        assert report.again == len(in_flight) > 0
        assert report.skipped == 0
        assert sum("due already" in row.detail for row in report.rows) == len({one[:2] for one in due})
    with MessageStore.open(path) as store:
        # what is put again has the time of now
        _set_clock(monkeypatch, time.time_ns() + 1_000_000)
        assert _unordered(store, "in-flight") == set()
        assert _unordered(store, "overdue") == in_flight | due
        assert done <= _unordered(store, "acknowledged")
        assert sorted(one.code for one in store.check()) == found_now
        again = store.end_pops("g-work")
        assert (again.again, again.journal) == (0, None)
        assert not store.recover(change=ChangeOptions(dry_run=True)).operations
        store.undo()
    assert tree_state(path) == before


def test_release_goes_on_in_further_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the log, of a queue and of the index, each full."""
    path = feature_store("pop-fs", tmp_path)
    _time_of_stop("pop-fs", monkeypatch)
    with MessageStore.open(path, "rw") as store:
        (revive,) = {one.topic for one in store.files.queues.all() if one.topic.startswith("rmq_sys_REVIVE")}
        log, index = store.files.log, store.files.index.files[0]

        def fill(topic: str, queue_id: int = 0, size: int = 0, **properties: str) -> int:
            put = store.put(Message(topic, bytes(size), queue_id, properties=properties))
            assert put.physical_offset is not None
            return put.physical_offset

        for queue_id in range(8):
            queue = store.files.queues.find_or_create(revive, queue_id)
            while queue.max_offset % 100 < 99:
                fill(revive, queue_id, TAGS="x")
                store.flush()
        while index.header.index_count < index.geometry.entries - 1:
            fill("Filler", TAGS="x")
            store.flush()
        while fill("Filler", size=100) % log.file_size < log.file_size - 1000:
            pass
    before = tree_state(path)
    with MessageStore.open(path) as store:
        last, in_flight = store.files.log.files[-1].start_offset, _unordered(store, "in-flight")
        assert store.end_pops("g-work").again == len(in_flight)
    with MessageStore.open(path) as store:
        assert store.files.log.files[-1].start_offset > last
        assert len(store.files.index.files) == 2
        assert any(len(queue.files.files) == 2 for queue in store.files.queues.all() if queue.topic == revive)
        _set_clock(monkeypatch, time.time_ns() + 1_000_000)
        assert in_flight <= _unordered(store, "overdue")
        assert not [one for one in store.check() if one.severity.is_alarm]
        store.undo()
    assert tree_state(path) == before


def test_release_refuses_a_store_that_was_not_closed_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = feature_store("pop-fs-crash", tmp_path)
    _time_of_stop("pop-fs-crash", monkeypatch)
    before = tree_state(path)
    with MessageStore.open(path) as store, pytest.raises(RefusedError, match="not closed cleanly"):
        store.end_pops("g-work")
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
        with pytest.raises(NotFoundError, match="no pop of group 'g-work' is open"):
            store.end_pops("g-work", finish=True)
        store.undo()
    assert tree_state(path) == before


def _contents(store: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_release_that_was_killed_is_undone_or_finished(
    is_torn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever that was: nothing of it is there, or all."""
    _time_of_stop("pop-fs", monkeypatch)
    first = feature_store("pop-fs", tmp_path / "first")

    def release(store: Path) -> None:
        with MessageStore.open(store) as opened:
            assert opened.end_pops("g-work").again > 0

    before, done = _contents(first), feature_store("pop-fs", tmp_path / "done")
    changes = len(recorded(lambda: release(done)))
    after = _contents(done)
    ends = Counter[str]()
    for number in range(1, changes + 1, max(1, changes // 12)):
        for verb in ("undo", "resume"):
            store = feature_store("pop-fs", tmp_path / f"{number}-{verb}")
            assert crashed(lambda store=store: release(store), number, torn=is_torn)  # type: ignore[misc]
            lock._held.clear()
            if unfinished_change(StoreConfig().layout(store)) is None:
                assert _contents(store) in (before, after)
                continue
            with MessageStore.open(store) as opened:
                getattr(opened, verb)()
            assert _contents(store) == (before if verb == "undo" else after)
            ends[verb] += 1
    assert min(ends["undo"], ends["resume"]) > 3
