"""Timers whose slots are not a second wide (timerPrecisionMs): stores of 5.5.0 that were killed, and what it delivered
from them when it was started again.

`timer-precision-100` always had 100 ms. `timer-precision-changed` had 1000 ms, then 100, then 1000 again: two slots
became one at the last start, and what was in the first of them was not delivered.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.predict import predict
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import PendingTimer, pending_messages
from rmqctl.store.timer.recovered import RecoveredTimer, recover_timer
from tests.features import feature_store, timer_codes
from tests.network.callers import Writing

FINE, CHANGED = "timer-precision-100", "timer-precision-changed"


def _timer(store: Path, precision: int | None = None) -> tuple[RecoveredTimer, PendingTimer]:
    with StoreFiles(store, StoreConfig(timer_precision_ms=precision)) as files:
        reader = StoreReader(files)
        queue = files.queues.find(TIMER_TOPIC, 0)
        timer = recover_timer(reader, queue)
        return timer, pending_messages(reader, queue, timer)


@pytest.mark.parametrize("precision", [None, 100])
def test_slots_of_a_tenth_of_a_second_lead_to_all_that_waits(precision: int | None, tmp_path: Path) -> None:
    timer, pending = _timer(feature_store(FINE, tmp_path), precision)
    assert (timer.precision, timer.broken, len(timer.damage)) == (100, [], 0)
    # 5.5.0 delivered 30 to B and 18 to A: three of those were on the wheel, and not yet in its count of the queue
    assert pending.by_topic() == {"B": 30, "A": 15}
    assert (len(pending.lost), len(pending.twice)) == (0, 3)
    assert timer_codes(tmp_path / FINE) == {"RMQ-TMR-005", "RMQ-TMR-052"}


@pytest.mark.late
def test_the_finer_wheel_reaches_less_far(tmp_path: Path) -> None:
    _, pending = _timer(feature_store(FINE, tmp_path))
    last = int(pending.rows["out"].max())
    # started a day later 5.5.0 passed over what was on the wheel, and put there what was not
    assert int(pending.is_passed(last + 12 * 3_600_000).sum()) == 0
    assert int(pending.is_passed(last + 86_400_000).sum()) == 40
    assert pending.reach_ms == 7 * 86_400_000 // 10


def test_what_another_precision_has_left_on_the_wheel_is_no_damage(tmp_path: Path) -> None:
    store = feature_store(CHANGED, tmp_path)
    timer, pending = _timer(store)
    # 5.5.0 delivered 38 of the 40 to B
    assert (timer.precision, timer.broken, pending.by_topic()) == (1000, [], {"B": 40, "A": 15})
    assert [message.topic for message in pending.messages(pending.lost)] == ["B", "B"]
    assert timer_codes(store) == {"RMQ-TMR-003", "RMQ-TMR-005", "RMQ-TMR-052"}
    with StoreFiles(store) as files:
        assert predict(files, "5.5.0").messages_stuck == 2


def test_a_coarser_precision_loses_what_shares_a_slot_then(tmp_path: Path) -> None:
    store = feature_store(FINE, tmp_path)
    assert len(_timer(store)[1].lost) == 0
    assert len(_timer(store, 1000)[1].lost) > 0
    for precision, is_said in ((None, True), (100, False)):
        with StoreFiles(store, StoreConfig(timer_precision_ms=precision)) as files:
            warnings = predict(files, "5.5.0").warnings
        assert any("without timerPrecisionMs=100" in text for text in warnings) is is_said


@pytest.mark.parametrize("how", ["repair", "rebuild"])
def test_what_is_written_has_the_precision_of_the_store(how: str, tmp_path: Path) -> None:
    store = feature_store(FINE, tmp_path)
    (store / "abort").unlink()
    found, before = _timer(store)
    if how == "repair":
        with StoreFiles(store) as files:
            repair(files, only=["RMQ-TMR-005"])
    else:
        with MessageStore.open(store) as opened:
            opened.rebuild_timer(now=found.checkpoint.last_read_time_ms)
    timer, after = _timer(store, 100)
    assert (len(after.lost), len(after.twice), after.by_topic()) == (0, 0, before.by_topic())
    # in the slot of their own tenth of a second, no earlier
    assert after.rows["slot_time"].tolist() == after.rows["out"].tolist()
    assert timer.broken == []


def test_a_cut_clears_the_slots_of_what_goes(tmp_path: Path) -> None:
    store = feature_store(FINE, tmp_path)
    (store / "abort").unlink()
    with StoreFiles(store) as files:
        queue = files.queues.find(TIMER_TOPIC, 0)
        assert queue is not None
        unit = queue.unit(50)
    assert unit is not None
    with MessageStore.open(store) as opened:
        opened.truncate(unit.physical_offset)
    timer, pending = _timer(store)
    assert (timer.ahead, timer.broken, timer.queue_end) == (0, [], 50)
    assert len(pending.lost) == 0


@pytest.mark.parametrize("configured", [None, 100])
def test_append_and_serve_keep_the_precision_of_the_store(configured: int | None, tmp_path: Path) -> None:
    store = feature_store(FINE, tmp_path)
    with MessageStore.open(store) as opened:
        opened.recover()
    now = _timer(store)[0].checkpoint.last_read_time_ms
    config = StoreConfig(timer_precision_ms=configured)
    with MessageStore.open(store, "rw", config, clock=lambda: now) as opened:
        put_at = {f"{delay}": now + delay for delay in (40_250, 40_300, 40_301)}
        for body, time in put_at.items():
            opened.put(Message("C", body.encode(), properties={"TIMER_DELIVER_MS": str(time)}))
    before = _timer(store)[1].by_topic()
    with contextlib.closing(Writing(store, config)) as writing:
        writing.now = now
        assert writing.send("C", b"40900", _TIMER_DELIVER_MS=str(now + 40_900)).code == 0
        assert writing.send("C", b"150", _TIMER_DELIVER_MS=str(now + 150)).code == 0
        writing.step(199)
        assert writing.stored("C") == []
        writing.step(1)
        assert [one.body for one in writing.stored("C")] == [b"150"]
    # the wheel is gone, and the log of what waits says how wide its slots are
    assert not (store / "timerwheel").exists()
    timer, after = _timer(store)
    assert (timer.precision, len(after.lost), len(after.twice), timer.broken) == (100, 0, 0, [])
    assert after.by_topic()["C"] == before["C"] + 1 == 4
    with MessageStore.open(store) as opened:
        outs = {one.body: int(one.properties()["TIMER_OUT_MS"]) - now for one in opened.messages()
                if one.topic == TIMER_TOPIC and one.properties()["REAL_TOPIC"] == "C"}  # fmt: skip
    assert outs == {b"40250": 40_200, b"40300": 40_200, b"40301": 40_300, b"40900": 40_800, b"150": 100}
