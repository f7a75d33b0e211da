"""Findings of the timer: each provoked, fixed, and the fix undone byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import TIMER_CHECKPOINT
from rmqctl.store import Message, MessageStore
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.check import check
from rmqctl.store.check.cross import Level
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import UNHEARD, ChangeOptions
from rmqctl.store.predict.predicting import predict
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.recover.recover import truncate
from rmqctl.store.repair.repair import mend_of, repair
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import PendingTimer, pending_messages
from rmqctl.store.timer.recovered import RecoveredTimer, recover_timer
from rmqctl.store.timer.wheel import MAGIC_ROLL, PRECISION_MS, read_timer_checkpoint, wheel_ms
from tests.features import feature_store
from tests.goldens import GoldenStore, tree_state

# of the timer's ten messages in broker-real the first five are before it
CUT = 74_829
_FILES = ("timerlog", "timerwheel", "config/timercheck")


def _recovered(store: Path) -> tuple[RecoveredTimer, PendingTimer]:
    with StoreFiles(store) as files:
        reader = StoreReader(files, UNHEARD)
        queue = files.queues.find(TIMER_TOPIC, 0)
        timer = recover_timer(reader, queue)
        return timer, pending_messages(reader, queue, timer)


def _found(store: Path, level: Level = Level.DEFAULT) -> list[Finding]:
    with StoreFiles(store) as files:
        return [finding for finding in check(files, level=level) if finding.kind.family == "TMR"]


def _codes(store: Path, level: Level = Level.DEFAULT) -> set[str]:
    return {finding.code for finding in _found(store, level)}


def _repair(store: Path, *only: str) -> None:
    with StoreFiles(store) as files:
        repair(files, only=only)


@contextmanager
def _undone(store: Path) -> Iterator[None]:
    """Undo at the end what was changed in between, and compare every byte."""
    before = tree_state(store)
    yield
    assert tree_state(store) != before
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


def _cut_without_the_timer(store: Path, kept: Path) -> None:
    shutil.copytree(store, kept)
    with StoreFiles(store) as files:
        truncate(files, CUT)
    _restore_the_timer(store, kept)


def _restore_the_timer(store: Path, kept: Path) -> None:
    for name in _FILES:
        present, copy = store / name, kept / name
        if copy.is_dir():
            shutil.rmtree(present)
            shutil.copytree(copy, present)
        else:
            shutil.copy2(copy, present)


def _set_checkpoint(store: Path, **values: int) -> None:
    wanted = read_timer_checkpoint(store / "config")._replace(**values)
    with (store / "config" / "timercheck").open("r+b") as file:
        file.write(TIMER_CHECKPOINT.struct.pack(*wanted))


@pytest.mark.parametrize("level", [Level.QUICK, Level.DEFAULT])
def test_a_timer_past_the_end_of_log_and_queue(golden_store: GoldenStore, tmp_path: Path, level: Level) -> None:
    store = golden_store("broker-real")
    assert _codes(store) == set()
    _cut_without_the_timer(store, tmp_path / "kept")
    found = {finding.code: finding for finding in _found(store, level)}
    assert set(found) == {"RMQ-TMR-001", "RMQ-TMR-002"}
    past = found["RMQ-TMR-001"]
    assert (past.expected, past.found, past.messages) == (5, 10, 5)
    assert found["RMQ-TMR-002"].physical_offset == CUT
    assert found["RMQ-TMR-002"].message == f"5 units of the timer log lead past the end {CUT}"
    with StoreFiles(store) as files:
        assert any("5 messages past the end of its queue" in text for text in predict(files, "5.3.3").warnings)


@pytest.mark.parametrize("code", ["RMQ-TMR-001", "RMQ-TMR-002"])
def test_its_fix_leads_to_no_message_that_is_gone(golden_store: GoldenStore, tmp_path: Path, code: str) -> None:
    store = golden_store("broker-real")
    _cut_without_the_timer(store, tmp_path / "kept")
    with _undone(store):
        _repair(store, code)
        timer, _ = _recovered(store)
        assert (timer.queue_offset, timer.checkpoint.last_timer_queue_offset, timer.broken) == (5, 5, [])
        assert max(timer.known) < CUT
        assert _codes(store) == set()


@pytest.mark.parametrize("rolled", [{}, {"TIMER_ROLL_TIMES": "1"}])
def test_a_message_in_a_slot_that_the_timer_has_passed(
    golden_store: GoldenStore, tmp_path: Path, rolled: dict[str, str]
) -> None:
    store = golden_store("broker-real")
    _cut_without_the_timer(store, tmp_path / "kept")
    due = str(read_timer_checkpoint(store / "config").last_read_time_ms + 3_600_000)
    with MessageStore.open(store, "rw") as opened:
        timed = {"TIMER_OUT_MS": due, "REAL_TOPIC": "Later", "REAL_QID": "0", "UNIQ_KEY": "again", **rolled}
        assert opened.put(Message(TIMER_TOPIC, b"x", queue_id=0, properties=timed)).queue_offset == 5
    _restore_the_timer(store, tmp_path / "kept")
    lost = next(finding for finding in _found(store) if finding.code == "RMQ-TMR-003")
    assert (lost.messages, lost.message) == (1, "no broker delivers 1 message for Later")
    with StoreFiles(store) as files:
        prediction = predict(files, "5.3.3")
    assert prediction.messages_stuck == 1
    assert prediction.is_harmful
    with _undone(store):
        _repair(store, "RMQ-TMR-003")
        timer, pending = _recovered(store)
        assert [one.topic for one in pending.messages()] == ["Later"]
        assert (len(pending.lost), timer.queue_offset) == (0, 6)
        assert _codes(store) == set()
        with StoreFiles(store) as files:
            assert predict(files, "5.3.3").messages_stuck == 0


def test_a_fix_puts_what_is_due_very_late_on_the_wheel_twice(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    read_time = read_timer_checkpoint(store / "config").last_read_time_ms
    due = read_time + 5 * wheel_ms(PRECISION_MS)
    with MessageStore.open(store, "rw") as opened:
        timed = {"TIMER_OUT_MS": str(due), "REAL_TOPIC": "Later", "REAL_QID": "0", "UNIQ_KEY": "late"}
        opened.put(Message(TIMER_TOPIC, b"x", queue_id=0, properties=timed))
    _set_checkpoint(store, last_timer_queue_offset=11, master_timer_queue_offset=11)
    # without its last unit the broker goes by the checkpoint
    with next((store / "timerlog").iterdir()).open("r+b") as file:
        file.write(bytes(10 * 52))
    assert "RMQ-TMR-003" in _codes(store)
    _repair(store, "RMQ-TMR-003")
    timer, pending = _recovered(store)
    assert [(one.out, one.on_wheel) for one in pending.messages() if one.out == due] == [(due, True)]
    # after the roll window a broker stores it once more
    (unit,) = [one for one in timer.linked if one["out"] == read_time + 172_800_000]
    assert unit["magic"] & MAGIC_ROLL


def test_without_its_wheel_some_are_lost_and_a_fix_puts_them_there(tmp_path: Path) -> None:
    # as Java sees it: 110 delivered, 24 rolled
    store = feature_store("timer-clean-533", tmp_path)
    (store / "timerwheel").unlink()
    _, pending = _recovered(store)
    assert (len(pending) - len(pending.lost), len(pending.lost)) == (134, 29)
    assert _codes(store) == {"RMQ-TMR-003", "RMQ-TMR-006"}
    with StoreFiles(store) as files:
        before = tree_state(store)
        assert repair(files, only=["RMQ-TMR-003"], change=ChangeOptions(dry_run=True)).operations
        assert tree_state(store) == before
    with _undone(store):
        _repair(store, "RMQ-TMR-003")
        timer, pending = _recovered(store)
        assert (len(pending), len(pending.lost), len(pending.twice), pending.again) == (163, 0, 0, 0)
        assert timer.queue_offset == timer.queue_end == 207
        assert _codes(store) == set()


def test_a_crash_can_be_fixed_so_that_nothing_is_delivered_twice(tmp_path: Path) -> None:
    store = feature_store("timer-crash", tmp_path)
    assert _codes(store) == {"RMQ-TMR-005"}
    with StoreFiles(store) as files:
        assert "20 messages of the timer are delivered twice" in predict(files, "5.3.3").warnings
    with _undone(store):
        _repair(store, "RMQ-TMR-005")
        _, pending = _recovered(store)
        assert (len(pending), len(pending.lost), len(pending.twice)) == (168, 0, 0)
        assert _codes(store) == set()


def test_a_timer_log_that_is_gone_and_a_wheel_of_a_wrong_length(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    slots = {int(unit["out"]) for unit in _recovered(store)[0].linked}
    shutil.rmtree(store / "timerlog")
    timer, pending = _recovered(store)
    assert (len(timer.broken), len(pending.lost)) == (len(slots), 163)
    assert _codes(store) == {"RMQ-TMR-002", "RMQ-TMR-003"}
    with (store / "timerwheel").open("r+b") as file:
        file.truncate(1_000_000)
    assert _codes(store) == {"RMQ-TMR-003", "RMQ-TMR-004"}
    with _undone(store):
        _repair(store)
        assert _codes(store) == set()
        assert len(_recovered(store)[1]) == 163


def test_a_torn_timer_log_is_written_again_by_a_broker(tmp_path: Path) -> None:
    store = feature_store("timer-crash", tmp_path)
    timer, _ = _recovered(store)
    with StoreFiles(store) as files:
        last = files.root / "timerlog" / max(path.name for path in (store / "timerlog").iterdir())
    place = timer.log_end - int(last.name)
    with last.open("r+b") as file:
        file.seek(place - 5 * 52)
        file.write(bytes(5 * 52))
    assert _codes(store) <= {"RMQ-TMR-005"}
    assert len(_recovered(store)[1].lost) == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_whole_checkpoint_a_person_decides(tmp_path: Path, is_there: bool) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    path = store / "config" / "timercheck"
    if is_there:
        path.write_bytes(b"short")
    else:
        path.unlink()
    (finding,) = _found(store)
    assert (finding.code, finding.file, finding.fix, mend_of(finding)) == ("RMQ-TMR-004", path, None, None)
    before = tree_state(store)
    with StoreFiles(store) as files:
        report = repair(files, only=["RMQ-TMR-004"])
    assert (report.operations, [row["code"] for row in report.left]) == ([], ["RMQ-TMR-004"])
    assert tree_state(store) == before


def test_a_checkpoint_without_a_time_says_not_what_was_delivered(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    _set_checkpoint(store, last_read_time_ms=0, last_timer_queue_offset=12)
    assert "RMQ-TMR-001" in _codes(store)
    before = tree_state(store)
    with pytest.raises(RefusedError, match="which messages were delivered"):
        _repair(store, "RMQ-TMR-001")
    assert tree_state(store) == before


def test_the_timer_waits_until_its_queue_is_whole(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    shutil.rmtree(store / "consumequeue" / TIMER_TOPIC)
    assert _codes(store) == set()
    _set_checkpoint(store, last_timer_queue_offset=12)
    assert _codes(store) == set()
    _repair(store)
    assert _codes(store) == {"RMQ-TMR-001"}
