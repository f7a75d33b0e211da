"""The order of changes where the clock was set back: it is that in which they were made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.commands.change import log as log_command
from rmqctl.formats.errors import RefusedError
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.folder import MENDED_AFTER
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.log import HISTORY, changes, end_interrupted, id_time, note, refuse_unfinished
from rmqctl.store.journal.plan import Plan, WriteRange
from rmqctl.store.journal.undo import forget, give_up, undo
from tests.goldens import tree_state
from tests.store.files.crashing import crashed
from tests.store.journal.changing import MOMENT, small_store, start

HOUR_NS = 3_600 * 10**9
SetClock = Callable[[int], None]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Set the clock that changes read, in ns since 1970."""

    def set_clock(moment_ns: int) -> None:
        monkeypatch.setattr("rmqctl.store.journal.log.time.time_ns", lambda: moment_ns)

    set_clock(MOMENT)
    return set_clock


def _change(layout: StoreLayout, verb: str = "test", *, keeps: bool = True) -> str:
    journal = Journal(layout, verb, keeps=keeps)
    journal.apply(Plan([WriteRange(layout.checkpoint, 10, verb.encode())]))
    return journal.folder.name


@pytest.mark.parametrize("back_ns", [1, HOUR_NS, 24 * 366 * HOUR_NS, MOMENT, MOMENT + HOUR_NS])
def test_changes_are_undone_in_the_order_in_which_they_were_made(tmp_path: Path, at: SetClock, back_ns: int) -> None:
    layout = small_store(tmp_path)
    states, made = [tree_state(layout.root)], []
    for number, verb in enumerate(("truncate", "rebuild", "recover")):
        at(MOMENT - number * back_ns // 2)
        made.append(_change(layout, verb))
        states.append(tree_state(layout.root))
    found = changes(layout)
    assert [change.id for change in found] == made
    assert [change.time for change in found] == [(MOMENT - number * back_ns // 2) // 10**6 for number in range(3)]
    for name in reversed(made):
        states.pop()
        assert undo(layout).id == name
        assert tree_state(layout.root) == states[-1]


def test_a_change_comes_after_those_that_only_the_history_names(tmp_path: Path, at: SetClock) -> None:
    layout = small_store(tmp_path)
    permanent = _change(layout, "zzz", keeps=False)
    at(MOMENT - HOUR_NS)
    forgotten = _change(layout, "yyy")
    forget(layout, changes(layout))
    at(MOMENT - 2 * HOUR_NS)
    last = _change(layout, "aaa")
    assert [change.id for change in changes(layout)] == [permanent, forgotten, last]
    assert undo(layout).id == last


@pytest.mark.parametrize("name", ["99999999T999999999Z-test", "20261399T990000000Z-test", "x", "", "2026"])
def test_a_line_of_the_history_without_a_time_does_not_set_the_order(tmp_path: Path, at: SetClock, name: str) -> None:
    layout = small_store(tmp_path)
    note(layout, {"id": name, "verb": "test", "state": "permanent"})
    assert (layout.kept / HISTORY).exists()
    assert _change(layout).startswith("20231114T221320123Z")


def test_the_time_in_an_id_reads_back(tmp_path: Path, at: SetClock) -> None:
    layout = small_store(tmp_path)
    for moment_ms in (1, 2**31 * 1000 - 1, 2**31 * 1000, 2**32 * 1000, 253_402_300_799_998):
        at(moment_ms * 10**6)
        assert id_time(_change(layout)) == moment_ms


def test_undoing_the_mend_asks_for_another_mend_after_the_clock_was_set_back(tmp_path: Path, at: SetClock) -> None:
    layout, work = start(tmp_path)
    assert crashed(work, 70)
    give_up(layout)
    at(MOMENT + 10**6 * HOUR_NS)  # state.json has the time of the clock, which is years earlier
    _change(layout, "recover")
    end_interrupted(layout)
    refuse_unfinished(layout)
    undo(layout)
    with pytest.raises(RefusedError, match="given up"):
        refuse_unfinished(layout)


def test_undoing_a_change_after_the_mend_leaves_the_mend_alone(tmp_path: Path, at: SetClock) -> None:
    layout, work = start(tmp_path)
    assert crashed(work, 70)
    give_up(layout)
    _change(layout, "recover")
    end_interrupted(layout)
    at(MOMENT - HOUR_NS)  # before the time in state.json
    _change(layout, "rebuild")
    undo(layout)
    refuse_unfinished(layout)


def test_a_mend_that_an_older_version_noted_goes_by_its_time(tmp_path: Path, at: SetClock) -> None:
    layout, work = start(tmp_path)
    assert crashed(work, 70)
    folder = Path(give_up(layout).folder or "")
    _change(layout, "recover")
    end_interrupted(layout)
    state = json.loads((folder / "state.json").read_text())
    del state[MENDED_AFTER]
    (folder / "state.json").write_text(json.dumps(state))
    undo(layout)
    with pytest.raises(RefusedError, match="given up"):
        refuse_unfinished(layout)


def test_a_change_is_no_older_than_those_before_it(
    tmp_path: Path, at: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change made while the clock showed 1970 is not pruned as one that is decades old."""
    layout = small_store(tmp_path)
    old = _change(layout)
    at(MOMENT + 40 * 24 * HOUR_NS)
    young = _change(layout)
    at(0)
    dated_1970 = _change(layout)
    monkeypatch.setattr("rmqctl.output.times.now_ms", lambda: (MOMENT + 41 * 24 * HOUR_NS) // 10**6)
    chosen = log_command._chosen(layout, changes(layout), 30 * 86_400_000, named=False)
    assert [change.id for change in chosen] == [old]
    assert [change.id for change in changes(layout)] == [old, young, dated_1970]
