"""What follows the log ends with it: the timer, epochs and offsets, and undo brings all of it back.

The golden broker-real has ten messages of the timer, all of them in the timer log, and groups and levels with offsets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store import Message, MessageStore
from rmqctl.store.config.config_files import read_config, write_config
from rmqctl.store.config.epoch_file import Epoch, epoch_bytes, read_epochs
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.recovered import RecoveredTimer, recover_timer
from rmqctl.store.timer.wheel import read_timer_checkpoint, slots_from, timer_counts
from tests.goldens import GoldenStore, tree_state

# of the timer's messages the first five are before it, and the next begins there
CUT = 74_829
DUE = 1_795_664_000_000


def _timer(store: Path) -> RecoveredTimer:
    with StoreFiles(store) as files:
        return recover_timer(StoreReader(files), files.queues.find(TIMER_TOPIC, 0))


def _cut(store: Path, at: int = CUT) -> list[str]:
    with StoreFiles(store) as files:
        return [row["path"] for row in truncate(files, at).operations]


def _config(store: Path, name: str) -> Any:
    return read_config(store / "config" / name)


def test_the_timer_ends_with_the_log_and_undo_brings_it_back(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    before = tree_state(store)
    assert _timer(store).queue_offset == 10
    paths = _cut(store)
    assert {"timerwheel", "timerlog/00000000000000000000", "config/timercheck"} <= set(paths)
    timer = _timer(store)
    assert (timer.queue_offset, timer.queue_end, timer.broken, timer.ahead) == (5, 5, [], 0)
    assert (timer.checkpoint.last_timer_queue_offset, timer.checkpoint.master_timer_queue_offset) == (5, 5)
    assert timer.checkpoint.last_timer_log_flush_pos == timer.log_end == 5 * 52
    assert max(timer.known) < CUT
    with StoreFiles(store) as files:
        assert slots_from(store / "timerwheel", files.descriptors, timer.log_end) == []
        assert recover(files, change=ChangeOptions(dry_run=True)).operations == []
        undo(files.layout)
    assert tree_state(store) == before


def test_timermetrics_counts_only_what_still_waits(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    assert timer_counts(store / "config") == {"Later": 5}
    with StoreFiles(store) as files:
        queue = files.queues.find(TIMER_TOPIC, 0)
        assert queue is not None
        places = [unit.physical_offset for unit in queue.units(5)]
    for left, place in reversed(list(enumerate(places))):  # each cut takes one more
        _cut(store, place)
        assert timer_counts(store / "config") == {"Later": left}
        with MessageStore.open(store, "r") as opened:
            assert "RMQ-TMR-052" not in {one.code for one in opened.check()}


def test_a_message_that_takes_the_slot_again_is_not_passed_over(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    _cut(store)
    with MessageStore.open(store, "rw") as opened:
        timed = {"TIMER_OUT_MS": str(DUE), "REAL_TOPIC": "Later", "REAL_QID": "0", "UNIQ_KEY": "again"}
        put = opened.put(Message(TIMER_TOPIC, b"x", queue_id=0, properties=timed))
    assert put.queue_offset == 5
    # a broker goes on in the queue there, and puts it on the wheel
    assert _timer(store).queue_offset == 5


def test_a_slot_of_which_messages_stay_leads_to_the_last_of_them(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    with StoreFiles(store) as files:
        queue = files.queues.find(TIMER_TOPIC, 0)
        assert queue is not None
        units = [(unit.queue_offset, unit.physical_offset) for unit in queue.units(5)]
    _cut(store, units[2][1])
    timer = _timer(store)
    assert sorted(timer.linked["physical_offset"].tolist()) == [place for _, place in units[:2]]
    assert timer.queue_offset == 7


def test_offsets_of_groups_and_levels_are_not_past_an_end(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    content = _config(store, "consumerOffset.json")
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    content["offsetTable"][f"{topic}@CID_RMQ_SYS_REVIVE_GROUP"] = {0: 7}
    content["offsetTable"]["Events@g-past"] = {0: 3, 1: 90}
    write_config(store / "config" / "consumerOffset.json", content)
    before = tree_state(store)
    _cut(store)
    with StoreFiles(store) as files:
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in files.queues.all()}
    table = _config(store, "consumerOffset.json")["offsetTable"]
    for key, offsets in table.items():
        for queue_id, offset in offsets.items():
            assert offset <= ends.get((key.partition("@")[0], queue_id), offset)
    assert table["Events@g-past"] == {0: 3, 1: ends["Events", 1]}
    assert table["Pay@g-pay"] == {0: 0, 1: 0, 2: 0, 3: 0}
    # a queue that is not there says nothing
    assert table[f"{topic}@CID_RMQ_SYS_REVIVE_GROUP"] == {0: 7}
    assert _config(store, "delayOffset.json")["offsetTable"][1] == ends["SCHEDULE_TOPIC_XXXX", 0]
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


def test_the_offset_of_pop_is_the_last_settled_record(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    with MessageStore.open(store, "rw") as opened:
        puts = [opened.put(Message(topic, b"{}", queue_id=0)) for _ in range(3)]
    assert puts[1].physical_offset is not None
    content = _config(store, "consumerOffset.json")
    content["offsetTable"][f"{topic}@CID_RMQ_SYS_REVIVE_GROUP"] = {0: 2}
    write_config(store / "config" / "consumerOffset.json", content)
    order = {"table": {f"{topic}@g": {0: {"o": [0, 1, 2], "popTime": 1, "i": 1}, 1: {"o": [0]}}}}
    write_config(store / "config" / "consumerOrderInfo.json", order)
    _cut(store, puts[1].physical_offset)
    table = _config(store, "consumerOffset.json")["offsetTable"]
    assert table[f"{topic}@CID_RMQ_SYS_REVIVE_GROUP"] == {0: 0}
    # what an ordered pop took is gone: it must not hide what takes its slots
    assert _config(store, "consumerOrderInfo.json")["table"] == {f"{topic}@g": {1: {"o": [0]}}}


def test_epochs_that_begin_past_the_end_go(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    path = store / "epochFileCheckpoint"
    path.write_bytes(epoch_bytes([Epoch(1, 0), Epoch(2, CUT - 1), Epoch(3, CUT), Epoch(4, 100_000)]))
    path.with_name(path.name + ".bak").write_bytes(epoch_bytes([Epoch(3, CUT)]))
    before = tree_state(store)
    _cut(store)
    assert read_epochs(path) == [Epoch(1, 0), Epoch(2, CUT - 1)]
    assert not path.with_name(path.name + ".bak").exists()
    with StoreFiles(store) as files:
        checkpoint = files.checkpoint()
        assert checkpoint is not None
        # under a controller it is an end, and stays what the replicas have confirmed
        assert checkpoint.confirm_physical_offset <= CUT
        undo(files.layout)
    assert tree_state(store) == before


def test_an_epoch_that_begins_at_the_end_of_a_sound_log_stays(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    with StoreFiles(store) as files:
        end = recover(files, change=ChangeOptions(dry_run=True)).end_offset
    (store / "epochFileCheckpoint").write_bytes(epoch_bytes([Epoch(1, 0), Epoch(2, end)]))
    with StoreFiles(store) as files:
        assert recover(files, change=ChangeOptions(dry_run=True)).operations == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1\n5\n1-0\n", "the CRC is 5"),
        ("2\n0\n1-0\n", "1 entries instead of 2"),
        ("1\n0\n1+0\n", "a line is not"),
        ("", "a line is not"),
    ],
)
def test_an_epoch_file_that_no_broker_takes_is_not_touched(golden_store: GoldenStore, text: str, said: str) -> None:
    store = golden_store("broker-real")
    path = store / "epochFileCheckpoint"
    path.write_text(text, encoding="ascii")
    with pytest.raises(CorruptError, match=said):
        read_epochs(path)
    assert "epochFileCheckpoint" not in _cut(store)


def test_a_torn_tail_takes_the_timer_with_it(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    with StoreFiles(store) as files:
        queue = files.queues.find(TIMER_TOPIC, 0)
        assert queue is not None
        last = queue.unit(9)
        assert last is not None
        log = files.log.files[0].path
    with log.open("r+b") as file:
        file.truncate(last.physical_offset + 40)
        file.truncate(262_144)
    (store / "abort").touch()
    before = tree_state(store)
    with StoreFiles(store) as files:
        recover(files)
    timer = _timer(store)
    assert (timer.queue_offset, timer.queue_end) == (9, 9)
    assert max(timer.known) < last.physical_offset
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


def test_damaged_timer_files_are_left_alone(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config" / "timercheck").write_bytes(b"short")
    assert not [path for path in _cut(store) if "timer" in path and not path.startswith("consumequeue")]
    with pytest.raises(CorruptError):
        read_timer_checkpoint(store / "config")


def test_what_was_past_the_end_before_a_sound_log_stays_for_a_person(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    content = _config(store, "consumerOffset.json")
    content["offsetTable"]["Events@g-past"] = {1: 9_000}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(content), encoding="utf-8")
    with StoreFiles(store) as files:
        assert recover(files, change=ChangeOptions(dry_run=True)).operations == []
