"""The timer rebuilt from its queue alone, held against what Java's recovery makes of the same store."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rmqctl.formats.errors import NotFoundError
from rmqctl.formats.layouts import TIMER_LOG_UNIT, TIMER_WHEEL_SLOT, TIMER_WHEEL_SLOTS
from rmqctl.store import Message, MessageStore
from rmqctl.store.files import lock
from rmqctl.store.journal.log import unfinished_change
from rmqctl.store.options import UNHEARD, ChangeOptions
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import PendingTimer, pending_messages
from rmqctl.store.timer.recovered import RecoveredTimer, recover_timer
from rmqctl.store.timer.wheel import read_timer_checkpoint
from tests.features import feature_store, feature_truth, timer_codes
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run
from tests.store.files.crashing import crashed, recorded
from tests.store.rocksdb.stores import unpacked

_NOW = 1_795_653_500_000
_NAMES = ("timer-crash", "timer-clean-533")


def _stopped(store: Path) -> int:
    return read_timer_checkpoint(store / "config").last_read_time_ms


def _recovered(store: Path) -> tuple[RecoveredTimer, PendingTimer]:
    with StoreFiles(store) as files:
        reader = StoreReader(files, UNHEARD)
        queue = files.queues.find(TIMER_TOPIC, 0)
        timer = recover_timer(reader, queue)
        return timer, pending_messages(reader, queue, timer)


def _waiting_for_java(name: str) -> list[int]:
    """Return where the messages are that Java's recovered wheel delivers, some of them after storing them once more."""
    return sorted(
        row["phyOffset"] for row in feature_truth(name, "timerPending") if row["what"] in ("delivers", "rolls")
    )


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("lost", [(), ("timerwheel",), ("timerlog",), ("timerwheel", "timerlog", "config/timercheck")])
def test_what_waits_is_what_waits_for_java(name: str, lost: tuple[str, ...], tmp_path: Path) -> None:
    store = feature_store(name, tmp_path)
    now = _stopped(store)
    for path in map(store.joinpath, lost):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = tree_state(store)
    with MessageStore.open(store) as opened:
        dry = opened.rebuild_timer(now=now, change=ChangeOptions(dry_run=True))
        assert tree_state(store) == before
        report = opened.rebuild_timer(now=now)
        assert (report.messages, report.unreadable, report.uncertain) == (207, 0, 0)
        assert (dry.topics, len(dry.operations)) == (report.topics, len(report.operations))
        assert sum(row["waiting"] for row in report.topics) == report.waiting
    timer, pending = _recovered(store)
    assert sorted(one.physical_offset for one in pending.messages()) == _waiting_for_java(name)
    assert all(one.on_wheel for one in pending.messages())
    assert (timer.queue_offset, timer.broken, timer.ahead, len(pending.twice), pending.again) == (207, [], 0, 0, 0)
    assert timer_codes(store) == set()
    with MessageStore.open(store) as opened:
        opened.undo()
    assert tree_state(store) == before


def test_its_files_are_linked_as_a_broker_links_them(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    now = _stopped(store)
    with MessageStore.open(store) as opened:
        report = opened.rebuild_timer(now=now)
    log = b"".join(path.read_bytes() for path in sorted((store / "timerlog").iterdir()))
    wheel = np.frombuffer((store / "timerwheel").read_bytes(), TIMER_WHEEL_SLOT.dtype())
    live = np.flatnonzero(wheel["time"])
    assert (wheel["time"][live] % TIMER_WHEEL_SLOTS == live).all()
    seen = 0
    for slot in wheel[live]:
        position, chain = int(slot["last_pos"]), []
        while position >= 0:
            unit = TIMER_LOG_UNIT.struct.unpack_from(log, position)
            assert (unit[0], (unit[3] + unit[4]) // 1000) == (52, slot["time"])
            chain.append(position)
            position = unit[1]
        assert (chain[-1], len(chain)) == (slot["first_pos"], slot["num"])
        seen += len(chain)
    assert seen == report.waiting
    sizes = {path.stat().st_size for path in (store / "timerlog").iterdir()}
    assert sizes == {4096}


def test_what_is_due_already_is_delivered_in_the_next_second(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    now = max(one.out for one in _recovered(store)[1].messages()) + 1_001
    with MessageStore.open(store) as opened:
        report = opened.rebuild_timer(now=now)
    assert (report.waiting, report.due_already) == (163, 163)
    timer, pending = _recovered(store)
    assert set(timer.linked["out"].tolist()) == {now // 1000 * 1000}
    assert len(pending) == 163


def test_without_its_checkpoint_nothing_that_was_delivered_comes_again(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    now = _stopped(store)
    (store / "config" / "timercheck").unlink()
    assert "RMQ-TMR-004" in timer_codes(store)
    with MessageStore.open(store) as opened:
        report = opened.rebuild_timer(now=now)
        copies = [one for one in opened.messages() if one.topic != TIMER_TOPIC and "TIMER_OUT_MS" in one.properties()]
    assert (report.delivered, report.recalled, report.recalls, report.waiting) == (len(copies), 7, 7, 163)
    assert timer_codes(store) == set()


def _put(store: Path, key: str, out: int, topic: str = TIMER_TOPIC, **properties: str) -> int:
    """Put a message of the timer, or with another topic its delivered copy; return where it is."""
    timed = {"TIMER_OUT_MS": str(out), "REAL_TOPIC": "Ours", "REAL_QID": "0", "UNIQ_KEY": key, **properties}
    with MessageStore.open(store, "rw") as opened:
        put = opened.put(Message(topic, b"x", queue_id=0, properties=timed))
    assert put.physical_offset is not None
    return put.physical_offset


def test_a_message_that_was_rolled_waits_once_and_only_later_copies_count(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    now = _stopped(store)
    due = now - 10_000
    # a client's own message that looks like a copy, before the timer's
    _put(store, "early", due, "Ours")
    early = _put(store, "early", due)
    _put(store, "rolled", due)
    rolled = _put(store, "rolled", due, TIMER_ROLL_TIMES="1")
    # the same message sent twice by a producer, one of them delivered
    _put(store, "twice", due)
    twice = _put(store, "twice", due)
    _put(store, "twice", due, "Ours", TIMER_DEQUEUE_MS="1")
    _put(store, "elsewhere", due)
    elsewhere = _put(store, "elsewhere", due + 1000)
    _put(store, "elsewhere", due, "Ours")
    # without a key
    without_key = _put(store, "", due)
    with MessageStore.open(store) as opened:
        before = opened.rebuild_timer(now=now, change=ChangeOptions(dry_run=True))
        [row] = [row for row in before.topics if row["topic"] == "Ours"]
        assert (row["waiting"], row["delivered"], before.rolled) == (5, 2, 1)
        opened.rebuild_timer(now=now)
    _, pending = _recovered(store)
    places = {one.physical_offset for one in pending.messages() if one.topic == "Ours"}
    assert places == {early, rolled, twice, elsewhere, without_key}
    assert len(pending.lost) == 0


def test_a_recall_without_a_key_behind_its_topic_takes_nothing_back(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    _, before = _recovered(store)
    _put(store, "recall", int(before.rows["out"].max()), TIMER_DEL_UNIQKEY="Ours+")
    _, after = _recovered(store)
    assert (after.recalls, after.recalled, len(after)) == (before.recalls + 1, before.recalled, len(before))


def test_damage_that_may_hide_a_delivery_is_said(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    now = _stopped(store)
    with MessageStore.open(store) as opened:
        copy = next(one for one in opened.messages() if one.topic != TIMER_TOPIC and "TIMER_OUT_MS" in one.properties())
        assert opened.rebuild_timer(now=now, change=ChangeOptions(dry_run=True)).uncertain == 0
    path = store / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[copy.physical_offset + copy.total_size - 200] ^= 0xFF
    path.write_bytes(data)
    with MessageStore.open(store) as opened:
        report = opened.rebuild_timer(now=now, change=ChangeOptions(dry_run=True))
    assert (report.waiting, report.due_already, report.uncertain) == (164, 1, 1)


def test_a_store_without_timed_messages_is_named(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    shutil.rmtree(store / "consumequeue" / TIMER_TOPIC)
    with MessageStore.open(store) as opened, pytest.raises(NotFoundError, match="has no messages"):
        opened.rebuild_timer()


def test_a_timer_in_rocksdb_gets_no_wheel_beside_it(tmp_path: Path) -> None:
    store = unpacked("rocksdb-store55", tmp_path)
    before = tree_state(store)
    done = run("rebuild", "-s", str(store), "--timer")
    assert done.code == 5
    assert "deliver" in done.err
    assert tree_state(store) == before
    shutil.rmtree(store / "rocksdbstore")
    assert run("rebuild", "-s", str(store), "--timer").code == 0


def test_the_command_says_what_waits_by_topic(tmp_path: Path) -> None:
    store = feature_store("timer-clean-533", tmp_path)
    shown = run("rebuild", "-s", str(store), "--timer", "--dry-run")
    assert shown.code == 0
    assert "Reminders" in shown.out
    assert "recalled" in shown.out
    wrong = run("rebuild", "-s", str(store), "--timer", "--index")
    assert wrong.code == 2
    shutil.rmtree(store / "timerlog")
    done = run("rebuild", "-s", str(store), "--timer", "--json")
    assert done.code == 0
    assert json.loads(done.out)["waiting"] == 163
    assert "mappedFileSizeTimerLog" in done.err


@pytest.mark.parametrize("end", ["undo", "resume"])
def test_a_rebuild_that_is_killed_anywhere_ends_whole(end: str, tmp_path: Path) -> None:
    """After a kill at any write `undo` or `resume` ends in the files before or in those after it."""

    def rebuild(store: Path) -> None:
        with MessageStore.open(store) as opened:
            opened.rebuild_timer(now=_NOW)

    made = feature_store("timer-crash", tmp_path)
    before = tree_state(made)
    other = tmp_path / "other"
    shutil.copytree(made, other)
    count = len(recorded(lambda: rebuild(other)))
    old, new = _contents(made), _contents(other)
    for step in range(0, count, max(count // 12, 1)):
        store = tmp_path / f"store-{step}"
        shutil.copytree(made, store)
        crashed(partial(rebuild, store), step)
        lock._held.clear()
        with MessageStore.open(store) as opened:
            if unfinished_change(opened.files.layout) is not None:
                (opened.undo if end == "undo" else opened.resume)()
        assert _contents(store) in (old, new), step
        shutil.rmtree(store)
    assert tree_state(made) == before


def _contents(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}
