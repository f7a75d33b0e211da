"""The timer as Java recovers it, on stores of real brokers: what is on the wheel, and what is lost."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.store.answers.delays import timed
from rmqctl.store.check.check import check
from rmqctl.store.options import Events
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.recovered import PendingTimer, RecoveredTimer, pending_messages, recover_timer
from tests.features import feature_store, feature_truth

_NAMES = ("timer-crash", "timer-clean-533")
_SEVEN_DAYS = 7 * 86_400_000


def _fail(error: Exception) -> None:
    raise error


def _said(text: str) -> None:
    assert text


def _recovered(store: Path) -> tuple[RecoveredTimer, PendingTimer]:
    with StoreFiles(store) as files:
        reader = StoreReader(files, Events(damage=_fail))
        queue = files.queues.find(TIMER_TOPIC, 0)
        timer = recover_timer(reader, queue)
        return timer, pending_messages(reader, queue, timer)


def _codes(store: Path) -> set[str]:
    with StoreFiles(store) as files:
        return {finding.code for finding in check(files) if finding.code.startswith("RMQ-TMR")}


@pytest.mark.parametrize("name", _NAMES)
def test_the_wheel_is_what_java_has(name: str, tmp_path: Path) -> None:
    store = feature_store(name, tmp_path)
    timer, pending = _recovered(store)
    (truth,) = feature_truth(name, "timerRecovered")
    rows = feature_truth(name, "timerPending")
    assert (timer.queue_offset, timer.log_end) == (truth["queueOffset"], truth["logMax"])
    assert sorted(timer.linked["position"].tolist()) == sorted(row["pos"] for row in rows)
    whats = Counter(row["what"] for row in rows)
    assert sum(one.on_wheel for one in pending.messages) == whats["delivers"] + whats["rolls"]
    assert (pending.recalled, len(pending.recalls)) == (whats["deleted"], whats["deletes"])
    assert sum(one.to_enqueue for one in pending.messages) == len(feature_truth(name, "timerNotEnqueued"))
    assert pending.lost == []


def test_a_crash_delivers_the_last_second_twice(tmp_path: Path) -> None:
    store = feature_store("timer-crash", tmp_path)
    _, pending = _recovered(store)
    assert (len(pending.messages), pending.twice) == (168, 20)
    assert _codes(store) == {"RMQ-TMR-005"}


def test_recalls_of_533_are_known_and_said(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    _, pending = _recovered(store)
    assert (len(pending.messages), pending.recalled, pending.old_recalls) == (163, 6, 6)
    assert _codes(store) == {"RMQ-TMR-006"}


def test_delays_says_overdue_and_what_no_broker_looks_at_any_more(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    timer, pending = _recovered(store)
    first, last = min(one.out for one in pending.messages), max(one.out for one in pending.messages)
    with StoreFiles(store) as files:
        reader = StoreReader(files, Events(damage=_fail, note=_said))
        waiting = list(timed(reader, first - 1))
        overdue = list(timed(reader, last + 3_600_000))
        late = list(timed(reader, last + _SEVEN_DAYS))
    assert {row.state for row in waiting} == {"waiting"}
    assert {row.state for row in overdue} == {"overdue"}
    assert "overdue by" in overdue[0].detail
    assert {row.state for row in late} == {"not-delivered"}
    assert [sum(row.pending or 0 for row in rows) for rows in (waiting, overdue, late)] == [163, 163, 163]
    assert timer.queue_offset == timer.queue_end


def test_what_was_due_before_the_broker_stopped_needs_no_unit(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    timer, _ = _recovered(store)
    shutil.rmtree(store / "timerlog")
    _, pending = _recovered(store)
    read_time = timer.checkpoint.last_read_time_ms
    first = min(one.out for one in pending.lost)
    assert read_time <= first < read_time + 60_000
    checkpoint = bytearray((store / "checkpoint").read_bytes())
    checkpoint[:8] = (first + 1).to_bytes(8, "big")
    (store / "checkpoint").write_bytes(checkpoint)
    _, after = _recovered(store)
    at_once = sum(one.out == first for one in pending.lost)
    assert at_once
    assert len(pending.lost) - len(after.lost) == at_once
