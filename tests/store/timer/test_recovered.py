"""The timer as Java recovers it, on stores of real brokers: what is on the wheel, and what is lost."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqctl.store import MessageStore, StoreConfig
from rmqctl.store.answers.delays import timed
from rmqctl.store.check.catalogue import Severity
from rmqctl.store.check.check import check
from rmqctl.store.options import Events
from rmqctl.store.predict import Prediction, predict
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import PendingTimer, pending_messages
from rmqctl.store.timer.recovered import RecoveredTimer, recover_timer
from rmqctl.store.timer.wheel import timer_counts
from tests.features import feature_store, feature_truth, timer_codes

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


@pytest.mark.parametrize("name", _NAMES)
def test_the_wheel_is_what_java_has(name: str, tmp_path: Path) -> None:
    store = feature_store(name, tmp_path)
    timer, pending = _recovered(store)
    (truth,) = feature_truth(name, "timerRecovered")
    rows = feature_truth(name, "timerPending")
    assert (timer.queue_offset, timer.log_end) == (truth["queueOffset"], truth["logMax"])
    assert sorted(timer.linked["position"].tolist()) == sorted(row["pos"] for row in rows)
    whats = Counter(row["what"] for row in rows)
    assert sum(one.on_wheel for one in pending.messages()) == whats["delivers"] + whats["rolls"]
    assert (pending.recalled, pending.recalls) == (whats["deleted"], whats["deletes"])
    assert sum(one.to_enqueue for one in pending.messages()) == len(feature_truth(name, "timerNotEnqueued"))
    assert len(pending.lost) == 0


def test_a_crash_delivers_the_last_second_twice(tmp_path: Path) -> None:
    store = feature_store("timer-crash", tmp_path)
    _, pending = _recovered(store)
    assert (len(pending), len(pending.twice)) == (168, 20)
    assert timer_codes(store) == {"RMQ-TMR-005"}


def test_recalls_of_533_are_known_and_said(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    _, pending = _recovered(store)
    assert (len(pending), pending.recalled, pending.old_recalls) == (163, 6, 6)
    assert timer_codes(store) == {"RMQ-TMR-006"}


@pytest.mark.late
def test_delays_says_overdue_and_what_no_broker_looks_at_any_more(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    timer, pending = _recovered(store)
    first, last = min(one.out for one in pending.messages()), max(one.out for one in pending.messages())
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
    first = min(one.out for one in pending.messages(pending.lost))
    assert read_time <= first < read_time + 60_000
    checkpoint = bytearray((store / "checkpoint").read_bytes())
    checkpoint[:8] = (first + 1).to_bytes(8, "big")
    (store / "checkpoint").write_bytes(checkpoint)
    _, after = _recovered(store)
    at_once = sum(one.out == first for one in pending.messages(pending.lost))
    assert at_once
    assert len(pending.lost) - len(after.lost) == at_once


def _predicted(store: Path, version: str, **settings: bool) -> Prediction:
    with StoreFiles(store, StoreConfig(**settings)) as files:  # type: ignore[arg-type]
        return predict(files, version)


@pytest.mark.late
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_broker_that_starts_after_more_than_7_days_passes_over_what_was_due(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    # of messages that are far off the slot comes before they are due: there they are stored again
    due = sorted(_recovered(store)[1].rows["slot_time"].tolist())

    def predicted_at(now: int) -> Prediction:
        monkeypatch.setattr("rmqctl.store.predict.timer.time", SimpleNamespace(time_ns=lambda: now * 1_000_000))
        return _predicted(store, version)

    # TimerMessageStore#recover: it begins 7 days before now, less the blank slots
    assert predicted_at(due[0] + _SEVEN_DAYS - 60_000).messages_stuck == 0
    for late in (1, 5_000_000, 400 * 86_400_000):
        now = due[0] + _SEVEN_DAYS - 60_000 + late
        found = predicted_at(now)
        passed = sum(out < now - _SEVEN_DAYS + 60_000 for out in due)
        assert (found.messages_stuck, found.messages_passed_over, found.is_harmful) == (passed, passed, True)
        assert any("`rmqctl rebuild --timer` makes them due at once" in said for said in found.warnings)
    now = max(time.time_ns() // 1_000_000, now)
    monkeypatch.setattr("rmqctl.store.timer.recovered.time", SimpleNamespace(time_ns=lambda: now * 1_000_000))
    with MessageStore.open(store) as opened:
        assert opened.rebuild_timer(now=now).due_already == len(due)
    assert predicted_at(now).messages_stuck == 0


def _with_snapshots(tmp_path: Path) -> Path:
    """A store whose broker wrote snapshots, and the plain wheel never: 29 messages are in older files of the log."""
    store = feature_store("timer-crash", tmp_path)
    wheel = store / "timerwheel"
    shutil.copy2(wheel, store / "timerwheel.9804")
    shutil.copy2(wheel, store / "timerwheel.7268")
    with wheel.open("r+b") as file:
        file.truncate(0)
        file.truncate(38_707_200)
    os.utime(wheel, (0, 0))
    return store


def test_the_newest_snapshot_of_the_wheel_counts_for_5_5_0_alone(tmp_path: Path) -> None:
    store = _with_snapshots(tmp_path)
    assert timer_codes(store) == {"RMQ-TMR-005"}
    assert [_predicted(store, version).messages_stuck for version in ("5.5.0", "5.3.3")] == [0, 29]
    assert _predicted(store, "5.5.0", timer_wheel_snapshot_flush=False).messages_stuck == 29
    # the one before is enough, as the log behind it is read again; without any the plain wheel is read
    (store / "timerwheel.9804").unlink()
    assert _predicted(store, "5.5.0").messages_stuck == 0
    with (store / "timerwheel.7268").open("r+b") as file:
        file.truncate(1_000)
    torn = _predicted(store, "5.5.0")
    assert (torn.loads, "Timer wheel length:1000" in str(torn.error)) == (False, True)
    assert _predicted(store, "5.3.3").loads
    assert "RMQ-TMR-004" in timer_codes(store)
    (store / "timerwheel.7268").unlink()
    assert _predicted(store, "5.5.0").messages_stuck == 29


def test_counts_by_topic_are_held_against_what_waits(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    path = store / "config" / "timermetrics"
    text = path.read_text(encoding="ascii")
    assert timer_codes(store) == {"RMQ-TMR-006"}
    path.write_text(text.replace('"count":37', '"count":36'), encoding="ascii")
    with StoreFiles(store) as files:
        (found,) = [finding for finding in check(files) if finding.code == "RMQ-TMR-052"]
    assert (found.message, found.severity) == ("waiting by it: Reminders 36 instead of 37", Severity.NOTICE)
    # torn: the backup has them; without both a broker counts from 0
    path.write_text(text[:60], encoding="ascii")
    assert "RMQ-TMR-052" not in timer_codes(store)
    warning = "the timer's counts by topic begin at 0"
    assert not any(warning in said for said in _predicted(store, "5.5.0").warnings)
    path.with_name("timermetrics.bak").unlink()
    assert any(warning in said for said in _predicted(store, "5.5.0").warnings)
    with MessageStore.open(store) as opened:
        opened.rebuild_timer(now=1_795_653_660_000)
    assert timer_counts(store / "config") == {"Later": 126, "Reminders": 37}
    assert timer_codes(store) == set()


def test_without_any_file_of_the_timer_its_queue_is_delivered_again(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    for name in ("timerwheel", "config/timercheck"):
        (store / name).unlink()
    shutil.rmtree(store / "timerlog")
    assert "RMQ-TMR-004" in timer_codes(store)
    assert _predicted(store, "5.5.0").timer_reset


def test_a_timed_message_before_any_timer_is_sound(tmp_path: Path) -> None:
    """As `append` stores one: the first broker that starts puts it on its wheel, once."""
    store = feature_store("timer-clean-533", tmp_path)
    for name in ("timerwheel", "config/timercheck", "config/timermetrics", "config/timermetrics.bak"):
        (store / name).unlink(missing_ok=True)
    shutil.rmtree(store / "timerlog")
    assert not any(code.startswith("RMQ-TMR") for code in timer_codes(store))
    assert not _predicted(store, "5.5.0").timer_reset
