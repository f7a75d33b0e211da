"""Messages with a delivery time of their own: delivered to the second and once, after restarts and crashes too."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import TIMER_CHECKPOINT, TIMER_LOG_UNIT
from rmqctl.network.broker import delays as timer_service
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.store.answers.delays import timed
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import Events
from rmqctl.store.timer.wheel import TimerCheckpoint, read_timer_checkpoint
from tests.goldens import GoldenStore, properties
from tests.network.callers import Writing

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20)
HOUR = 3_600_000
Make = Callable[[Path], Writing]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Brokers with a timer, closed in the end."""
    made: list[Writing] = []

    def one(path: Path) -> Writing:
        made.append(Writing(path, CONFIG))
        return made[-1]

    yield one
    for writing in made:
        writing.close()


def _bodies(writing: Writing, topic: str = "T") -> list[bytes]:
    return _bodies_of(writing, topic, 0)


def _figures(writing: Writing) -> list[str]:
    found = writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]
    names = ("ReadBehind", "OffsetBehind", "CongestNum", "EnqueueTps", "DequeueTps")
    return [found[f"timer{name}"] for name in names]


def test_a_broker_says_how_far_its_timer_is(make: Make, tmp_path: Path) -> None:
    writing = make(tmp_path / "store")
    assert _figures(writing) == ["0", "0", "0", "0.0", "0.0"]
    for seconds in (5, 5, 500):
        assert writing.send("T", b"x", 1, _TIMER_DELAY_SEC=seconds).code == 0
    writing.store.wait_for_dispatch()
    assert _figures(writing)[:3] == ["0", "3", "0"]
    writing.step(1_000)
    assert _figures(writing)[:3] == ["0", "0", "3"]
    for _ in range(9):
        writing.step(1_000)
    assert _figures(writing) == ["0", "0", "1", "0.3", "0.2"]


def test_each_is_delivered_once_at_its_time_and_keeps_what_it_was(make: Make, tmp_path: Path) -> None:
    writing = make(tmp_path / "store")
    begin = writing.now
    assert writing.send("T", b"seconds", 1, _TIMER_DELAY_SEC="2", _KEYS="k").code == 0
    assert writing.send("T", b"ms", 1, _TIMER_DELAY_MS="1500").code == 0
    answer = writing.send("T", b"at", 1, _TIMER_DELIVER_MS=str(begin + 3_000))
    assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "1", "2")
    assert writing.send("T", b"past", 1, _TIMER_DELIVER_MS=str(begin)).code == 0
    seen: dict[bytes, int] = {}
    for _ in range(50):
        writing.step(100)
        for message in writing.stored("T", 1):
            seen.setdefault(message.body, writing.now - begin)
    assert list(seen) == [b"past", b"seconds", b"ms", b"at"]
    # not before it is due, and within a second
    for body, due in ((b"ms", 1_500), (b"seconds", 2_000), (b"at", 3_000)):
        assert due <= seen[body] <= due + 1_000
    found = writing.stored("T", 1)
    assert len(found) == 4
    properties = {message.body: message.properties() for message in found}[b"seconds"]
    assert (properties["KEYS"], properties["REAL_TOPIC"], properties["REAL_QID"]) == ("k", "T", "1")
    assert properties["TIMER_OUT_MS"] == str(begin + 1_000)
    assert int(properties["TIMER_ENQUEUE_MS"]) == begin // 1_000 * 1_000
    assert begin + 2_000 <= int(properties["TIMER_DEQUEUE_MS"]) <= begin + 3_000


def test_what_a_timer_refuses(make: Make, tmp_path: Path) -> None:
    writing = make(tmp_path / "store")
    for delay in ("259201", "soon"):
        assert writing.send("T", b"x", _TIMER_DELAY_SEC=delay).code == Response.MESSAGE_ILLEGAL
    # a level wins
    assert writing.send("T", b"level", _DELAY="1", _TIMER_DELAY_SEC="3600").code == 0
    writing.step(1_500)
    assert _bodies(writing) == [b"level"]
    # what somebody sends to the timer's own topic is passed over
    assert writing.send("rmq_sys_wheel_timer", b"no time").code == 0
    writing.step(1_000)
    assert any("does not say when it is due" in line for line in writing.told)


def test_one_is_taken_back(make: Make, tmp_path: Path) -> None:
    writing = make(tmp_path / "store")
    due = str(writing.now + 5_000)
    for key in ("a", "b"):
        writing.send("T", key.encode(), _UNIQ_KEY=key, _TIMER_DELIVER_MS=due)
    writing.send("T", b"never", _TIMER_DEL_UNIQKEY="a", _TIMER_DELIVER_MS=due)
    for _ in range(8):
        writing.step(1_000)
    assert _bodies(writing) == [b"b"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_restart_loses_none_and_repeats_none_that_was_saved(make: Make, tmp_path: Path, is_killed: bool) -> None:
    writing = make(tmp_path / "store")
    # the one that waits longest comes first: what is behind it must not come again
    for body, seconds in ((b"long", 3_600), (b"short", 1), (b"middle", 60), (b"soon", 2)):
        writing.send("T", body, _TIMER_DELAY_SEC=str(seconds))
    for _ in range(6):
        writing.step(1_000)
    assert _bodies(writing) == [b"short", b"soon"]
    writing.send("T", b"after", _TIMER_DELAY_SEC="90")
    # what was to be saved is
    writing.master.saver.save("none", dict, write=lambda path, content: None).result(60)
    if is_killed:
        writing.store.wait_for_dispatch()  # else the copy has to be recovered
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
        # a broker reads its queue again from the first message that waits
        found = read_timer_checkpoint(tmp_path / "killed/config")
        assert (found.last_timer_queue_offset, found.master_timer_queue_offset) == (4, 0)
        (tmp_path / "killed/abort").unlink(missing_ok=True)
        writing.close()
        with MessageStore.open(tmp_path / "killed", "rw", CONFIG):
            pass
    else:
        writing.close()
    again = make(tmp_path / ("killed" if is_killed else "store"))
    again.now = writing.now
    again.step(1_000)
    assert _bodies(again) == [b"short", b"soon"]
    again.step(100_000)
    again.step(1_000)
    assert _bodies(again) == [b"short", b"soon", b"middle", b"after"]
    again.step(HOUR)
    assert _bodies(again) == [b"short", b"soon", b"middle", b"after", b"long"]


def test_many_that_wait_are_found_in_steps_that_hold_nobody(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = make(tmp_path / "store")
    for number in range(700):
        writing.send("T", b"%d" % number, _TIMER_DELAY_SEC=str(60 + number % 7))
    writing.close()
    # each step ends as soon as it may, and says that there is more
    monkeypatch.setattr(timer_service, "_STEP_SECONDS", 0.0)
    again = make(tmp_path / "store")
    again.now = writing.now
    assert again.master.timer is not None
    waiting: list[int] = []
    while not waiting or again.master.is_behind:
        again.step(100)
        waiting.append(again.master.timer.waiting)
    assert waiting == [200, 400, 600, 700]
    again.step(100_000)
    while len(_bodies(again)) < 700:
        again.step(1_000)
    assert Counter(_bodies(again)) == Counter(b"%d" % number for number in range(700))


def test_a_broker_finds_a_log_of_what_waits(make: Make, tmp_path: Path) -> None:
    store = tmp_path / "store"
    writing = make(store)
    for body, seconds in ((b"one", 60), (b"done", 1), (b"two", 60), (b"done too", 1)):
        writing.send("T", body, _TIMER_DELAY_SEC=str(seconds))
    for _ in range(4):
        writing.step(1_000)
    waiting = [unit.physical_offset for unit in writing.store.files.queues.find("rmq_sys_wheel_timer", 0).units(0, 4)]  # type: ignore[union-attr]
    writing.close()
    found = read_timer_checkpoint(store / "config")
    assert (found.last_timer_queue_offset, found.master_timer_queue_offset) == (4, 4)
    log = (store / "timerlog" / f"{0:020d}").read_bytes()
    assert len(log) == 104_857_600
    assert found.last_timer_log_flush_pos == 3 * TIMER_LOG_UNIT.size
    units = [TIMER_LOG_UNIT.unpack_from(log, number * TIMER_LOG_UNIT.size) for number in range(4)]
    # size, the unit before in its slot, magic, due, place; the last one says where the queue was read to
    out = units[0][3] + units[0][4]
    rows = [(unit[0], unit[1], unit[2], unit[3] + unit[4], unit[5]) for unit in units[:3]]
    assert rows == [
        (52, -1, 1, out, waiting[0]),
        (52, 0, 1, out, waiting[2]),
        (52, -1, 1, found.last_read_time_ms - 1_000, waiting[3]),
    ]
    assert units[3] == (0,) * 9
    # and we take over from a log: from then on a broker would read the queue again
    again = make(store)
    again.now = writing.now
    assert not (store / "timerlog" / f"{0:020d}").exists()
    taken = read_timer_checkpoint(store / "config")
    assert (taken.last_timer_queue_offset, taken.master_timer_queue_offset) == (4, 0)
    again.step(1_000)
    again.step(60_000)
    assert sorted(_bodies(again)) == [b"done", b"done too", b"one", b"two"]


def test_what_a_broker_has_stored_once_more_comes_once(make: Make, tmp_path: Path) -> None:
    """A broker stores what waits longer than two days once more when these are over (TIMER_ROLL_TIMES)."""
    writing = make(tmp_path / "store")
    due = str((writing.now + 70 * HOUR) // 1_000 * 1_000)
    place: dict[str, Any] = {"_REAL_TOPIC": "T", "_REAL_QID": "0", "_TIMER_OUT_MS": due, "_UNIQ_KEY": "u"}
    writing.send("T", b"for the topic")
    writing.send("rmq_sys_wheel_timer", b"long", **place)
    writing.send("rmq_sys_wheel_timer", b"long", _TIMER_ROLL_TIMES="1", **place)
    writing.close()
    checkpoint = TimerCheckpoint(writing.now, 0, 2, 2)
    (tmp_path / "store/config/timercheck").write_bytes(TIMER_CHECKPOINT.struct.pack(*checkpoint).ljust(4096, b"\0"))
    again = make(tmp_path / "store")
    again.now = writing.now
    again.step(71 * HOUR)
    again.step(1_000)
    assert _bodies(again) == [b"for the topic", b"long"]


def test_what_a_broker_has_left_on_its_wheel_is_delivered_and_nothing_else(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    sizes = {
        name.removeprefix("store."): int(value) for name, value in properties("broker-real").items() if value.isdigit()
    }
    config = StoreConfig(
        mapped_file_size_commit_log=sizes["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=sizes["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=sizes["maxHashSlotNum"],
        max_index_num=sizes["maxIndexNum"],
    )
    writing = Writing(store, config)
    with contextlib.closing(writing):
        before = Counter(body for queue in range(4) for body in _bodies_of(writing, "Later", queue))
        writing.now = read_timer_checkpoint(store / "config").last_read_time_ms
        writing.step(1_000)
        waiting = [one for one in _bodies_of(writing, "rmq_sys_wheel_timer", 0) if one not in before]
        assert (len(waiting), writing.master.timer is not None and writing.master.timer.waiting) == (5, 5)
        for _ in range(3):
            writing.step(HOUR)
        after = Counter(body for queue in range(4) for body in _bodies_of(writing, "Later", queue))
        assert {body for body in after - before if body.startswith(b"timer")} == set(waiting)
        assert max(after.values()) == 1


def _bodies_of(writing: Writing, topic: str, queue_id: int) -> list[bytes]:
    return [message.body for message in writing.stored(topic, queue_id)]


def test_a_damaged_checkpoint_is_refused_not_written_over(make: Make, tmp_path: Path) -> None:
    make(tmp_path / "store").close()
    (tmp_path / "store/config/timercheck").write_bytes(b"short")
    with pytest.raises(CorruptError, match="no checkpoint of the timer"):
        make(tmp_path / "store")
    assert (tmp_path / "store/config/timercheck").read_bytes() == b"short"


def test_without_a_wheel_all_is_as_it_was(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store")
    assert writing.send("T", b"x", _TIMER_DELAY_SEC="1").code == Response.SYSTEM_ERROR
    assert writing.ask(Request.GET_ROUTEINFO_BY_TOPIC, topic="T").code == Response.REQUEST_CODE_NOT_SUPPORTED
    writing.close()
    assert not (tmp_path / "store/config/timercheck").exists()


def _asked(store: Path) -> list[tuple[int | None, str | None, int | None, int | None]]:
    """What `delays` says of the timer: pending, for which queue, and when the first is due."""
    told: list[str] = []
    with MessageStore.open(store) as opened:
        rows = list(timed(opened.reader.telling(Events(damage=_fail, note=told.append)), 0))
    assert [line for line in told if "taken back" not in line and "again when it starts" not in line] == []
    return [(row.pending, row.target_topic, row.target_queue_id, row.first_due_timestamp) for row in rows]


def _fail(error: CorruptError) -> None:
    raise error


def test_delays_says_what_waits_here(make: Make, tmp_path: Path) -> None:
    store = tmp_path / "store"
    writing = make(store)
    due = (writing.now + 60_000) // 1_000 * 1_000
    writing.send("T", b"done", 1, _TIMER_DELAY_SEC="1")
    for number in range(3):
        writing.send("T", b"waits", 1, _UNIQ_KEY=f"k{number}", _TIMER_DELIVER_MS=str(due + number * 1_000))
    writing.send("U", b"waits", 0, _TIMER_DELIVER_MS=str(due - 5_000))
    writing.send("T", b"never", _TIMER_DEL_UNIQKEY="k1", _TIMER_DELIVER_MS=str(due + 1_000))
    expected = [(1, "U", 0, due - 6_000), (2, "T", 1, due - 1_000)]
    for _ in range(4):
        writing.step(1_000)
    writing.master.saver.save("none", dict, write=lambda path, content: None).result(60)
    writing.store.flush()
    # while it runs, going by its queue; then by the log that it leaves to a broker
    assert _asked(store) == expected
    writing.close()
    assert (store / "timerlog").is_dir()
    assert _asked(store) == expected
    again = make(store)
    again.now = due + 10_000
    for _ in range(3):
        again.step(1_000)
    again.close()
    assert [(row[0], row[1]) for row in _asked(store)] == [(0, None)]
