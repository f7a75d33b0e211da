"""Bridging where inner batches were lost: their fillers take all the queue offsets that the batches had."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.formats.layouts import SYS_FLAG_INNER_BATCH, SYS_FLAG_NEED_UNWRAP
from rmqctl.formats.message import StoredMessage
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.journal.undo import undo
from rmqctl.store.log.walk import Damage, walk
from rmqctl.store.recover.bridge import DAMAGED_PROPERTY, PADDING_TOPIC, recover_bridging
from rmqctl.store.recover.lost import survey_damage
from rmqctl.store.recover.report import RecoverReport
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state, truth

NAME = "innerbatch"
TOPIC = "InnerBatchTopic"


class Batch(NamedTuple):
    """A batch as its unit tells of it."""

    queue_id: int
    base: int
    messages: int
    physical_offset: int
    size: int


# what RocketMQ itself wrote, in the order of the log: batches of 1 to 7 messages in two queues by turns
WRITTEN = [
    Batch(row["queueId"], row["queueOffset"], int(row["properties"]["INNER_NUM"]), row["phyOffset"], row["storeSize"])
    for row in truth(NAME).messages
    if row["topic"] == TOPIC
]


def written(queue_id: int, base: int) -> Batch:
    return next(batch for batch in WRITTEN if (batch.queue_id, batch.base) == (queue_id, base))


def overwrite(store: Path, position: int, data: bytes) -> None:
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(position)
        file.write(data)


def garble(store: Path, first: Batch, last: Batch) -> None:
    """Nothing of the messages from `first` to `last` is left."""
    length = last.physical_offset + last.size - first.physical_offset
    overwrite(store, first.physical_offset, hashlib.shake_128(b"batch").digest(length))


def break_crc(store: Path, batch: Batch) -> None:
    """The message is whole but for one byte of its body."""
    with (store / "commitlog" / f"{0:020d}").open("rb") as file:
        file.seek(batch.physical_offset + 100)
        byte = file.read(1)[0]
    overwrite(store, batch.physical_offset + 100, bytes([byte ^ 1]))


def without_queues(store: Path) -> None:
    for name in ("batchconsumequeue", "consumequeue", "index"):
        shutil.rmtree(store / name)


def bridge(store: Path) -> RecoverReport:
    with StoreFiles(store, read_broker_conf(broker_conf(NAME, store.parent))) as files:
        report = recover_bridging(files)
    with StoreFiles(store, read_broker_conf(broker_conf(NAME, store.parent))) as files:
        again = recover_bridging(files)
    assert (again.operations, again.bridged) == ([], [])
    return report


def units(store: Path) -> list[Batch]:
    """The units of the batch queues in the order of the log."""
    found: list[Batch] = []
    with StoreFiles(store) as files:
        for queue_id in (0, 1):
            queue = files.queues.find(TOPIC, queue_id)
            assert queue is not None
            assert queue.kind == "BatchCQ"
            for unit in queue.units(0):
                found.append(Batch(queue_id, unit.queue_offset, unit.batch_size, unit.physical_offset, unit.size))
    return sorted(found, key=lambda batch: batch.physical_offset)


def assert_dense(store: Path) -> None:
    """Every unit begins where the one before it ends, up to where RocketMQ ended the queues."""
    for row in truth(NAME).queues:
        if row["topic"] == TOPIC:
            end = 0
            for batch in units(store):
                if batch.queue_id == row["queueId"]:
                    assert batch.base == end, batch
                    end += batch.messages
            assert end == row["max"]


def fillers(store: Path) -> list[StoredMessage]:
    """What stands in the batch queues in place of lost batches."""
    with StoreFiles(store) as files:
        found = list(walk(files.log))
    assert not [record for record in found if isinstance(record, Damage)]
    messages = [record for record in found if isinstance(record, StoredMessage) and record.topic == TOPIC]
    made = [message for message in messages if not message.sys_flag & SYS_FLAG_NEED_UNWRAP]
    assert {message.sys_flag for message in made} <= {SYS_FLAG_INNER_BATCH}
    for message in made:
        # a broker makes the unit of both properties, if it has both (CommitLog#setBatchSizeIfNeeded)
        assert message.properties()["INNER_BASE"] == str(message.queue_offset)
    return made


@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize(("queue_id", "base"), [(0, 0), (1, 2), (0, 28), (0, 56)])
def test_a_batch_that_only_fails_its_crc(golden_store: GoldenStore, queue_id: int, base: int, has_queues: bool) -> None:
    store, batch = golden_store(NAME), written(queue_id, base)
    break_crc(store, batch)
    if not has_queues:
        without_queues(store)
    before = tree_state(store)
    [row] = bridge(store).bridged
    assert (row["fillers"], row["padding_bytes"], row["slots_given_up"]) == (1, 0, 0)
    [filler] = fillers(store)
    assert filler.properties() == {
        "INNER_NUM": str(batch.messages),
        "INNER_BASE": str(base),
        DAMAGED_PROPERTY: "body_crc",
    }
    assert filler.body.startswith(b"rmqctl: the message that stood here was damaged")
    assert units(store) == WRITTEN
    with StoreFiles(store) as files:
        undo(files.layout)
    after = tree_state(store)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {".", "lock"}


def test_units_tell_of_batches_of_which_nothing_is_left(golden_store: GoldenStore) -> None:
    store = golden_store(NAME)
    garble(store, WRITTEN[3], WRITTEN[-2])
    [row] = bridge(store).bridged
    assert (row["fillers"], row["padding_bytes"], row["slots_given_up"]) == (len(WRITTEN) - 4, 0, 0)
    assert len(fillers(store)) == len(WRITTEN) - 4
    assert units(store) == WRITTEN


def test_without_units_one_filler_covers_the_gap(golden_store: GoldenStore) -> None:
    store = golden_store(NAME)
    garble(store, written(0, 4), written(0, 18))
    without_queues(store)
    [row] = bridge(store).bridged
    assert (row["fillers"], row["slots_given_up"]) == (2, 0)
    assert {(m.queue_id, m.queue_offset, m.properties()["INNER_NUM"]) for m in fillers(store)} == {
        (0, 4, "18"),  # batches of 5, 7, 2 and 4 messages
        (1, 6, "10"),  # 6, 1 and 3
    }
    for filler in fillers(store):  # there was room for more than their units need
        assert filler.properties()[DAMAGED_PROPERTY] == row["reason"]
        assert filler.body == b"rmqctl: the message that stood here was damaged and is lost"
    assert_dense(store)
    gone = range(written(0, 4).physical_offset, written(1, 16).physical_offset)
    whole = [batch for batch in WRITTEN if batch.physical_offset not in gone]
    assert [batch for batch in units(store) if batch.physical_offset not in gone] == whole


def test_a_unit_and_the_gap_before_it(golden_store: GoldenStore) -> None:
    """The queue's units begin in the middle of the damage: what they do not tell is the gap before them."""
    store = golden_store(NAME)
    garble(store, written(0, 4), written(0, 18))
    folder = store / "batchconsumequeue" / TOPIC / "0"
    data = (folder / f"{0:020d}").read_bytes()
    # the units of base 4 and 9 are overwritten with those behind them
    (folder / f"{0:020d}").write_bytes(data[: 2 * 46] + data[4 * 46 :] + bytes(2 * 46))
    (folder / f"{460:020d}").unlink()
    bridge(store)
    found = sorted((m.queue_offset, m.properties()["INNER_NUM"]) for m in fillers(store) if m.queue_id == 0)
    assert found == [(4, "12"), (16, "2"), (18, "4")]
    assert_dense(store)


def test_batches_at_the_end_of_their_queue_leave_no_trace(golden_store: GoldenStore) -> None:
    """Neither units nor batches behind: how many messages there were is not known."""
    store = golden_store(NAME)
    last = written(0, 56)
    garble(store, written(0, 50), last)
    without_queues(store)
    [row] = bridge(store).bridged
    assert row["fillers"] == 1
    assert [(m.queue_id, m.queue_offset, m.properties()["INNER_NUM"]) for m in fillers(store)] == [(1, 49, "7")]


def test_batches_at_the_start_of_their_queue_are_no_gap(golden_store: GoldenStore) -> None:
    store = golden_store(NAME)
    garble(store, written(0, 0), written(0, 1))
    without_queues(store)
    [row] = bridge(store).bridged
    assert row["fillers"] == 0
    assert fillers(store) == []
    assert units(store) == WRITTEN[3:]


def test_a_gap_behind_the_first_batch_of_a_queue_alone(golden_store: GoldenStore) -> None:
    """The batch at offset 0 says where the gap begins as well as any later one."""
    store = golden_store(NAME)
    garble(store, written(0, 1), written(0, 4))
    without_queues(store)
    bridge(store)
    assert [(m.queue_offset, m.properties()["INNER_NUM"]) for m in fillers(store) if m.queue_id == 0] == [(1, "8")]
    assert_dense(store)


def test_a_gap_over_two_damaged_spans_is_left(golden_store: GoldenStore) -> None:
    """Which of the two has how much of it would be a guess."""
    store = golden_store(NAME)
    garble(store, written(0, 4), written(0, 4))
    garble(store, written(0, 9), written(0, 9))
    without_queues(store)
    rows = bridge(store).bridged
    assert [row["fillers"] for row in rows] == [0, 0]
    assert units(store) == [batch for batch in WRITTEN if batch not in (written(0, 4), written(0, 9))]


def test_a_gap_larger_than_its_room_is_a_damaged_number(golden_store: GoldenStore) -> None:
    """No checksum covers queueOffset: so many messages cannot have stood in these few bytes."""
    store = golden_store(NAME)
    garble(store, written(0, 4), written(0, 4))
    for batch in WRITTEN:
        if batch.queue_id == 0 and batch.base > 4:
            overwrite(store, batch.physical_offset + 20, (batch.base + 100).to_bytes(8, "big"))
    without_queues(store)
    [row] = bridge(store).bridged
    assert row["fillers"] == 0
    assert fillers(store) == []


def test_a_unit_that_contradicts_good_batches_is_not_believed(golden_store: GoldenStore) -> None:
    store = golden_store(NAME)
    batch = written(0, 4)
    garble(store, batch, batch)
    path = store / "batchconsumequeue" / TOPIC / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    at = 2 * 46
    assert int.from_bytes(data[at : at + 8], "big") == batch.physical_offset
    data[at + 36 : at + 38] = (6).to_bytes(2, "big")  # a batch of five: the sixth is another's
    path.write_bytes(data)
    bridge(store)
    assert [(m.queue_offset, m.properties()["INNER_NUM"]) for m in fillers(store)] == [(4, "5")]
    assert_dense(store)


def test_padding_takes_no_place_in_a_batch_queue(golden_store: GoldenStore) -> None:
    store = golden_store(NAME)
    garble(store, written(0, 4), written(0, 18))
    without_queues(store)
    bridge(store)
    with StoreFiles(store) as files:
        assert PADDING_TOPIC not in {queue.topic for queue in files.queues.all()}


def test_a_batch_of_one_message_is_on_the_map_of_what_is_good(golden_store: GoldenStore) -> None:
    """Alone between two damages: what is missing of its queue lies before it and behind it."""
    store = golden_store(NAME)
    place = next(number for number, batch in enumerate(WRITTEN[1:-1], start=1) if batch.messages == 1)
    one = WRITTEN[place]
    break_crc(store, WRITTEN[place - 1])
    break_crc(store, WRITTEN[place + 1])
    with StoreFiles(store, read_broker_conf(broker_conf(NAME, store.parent))) as files:
        spans, found = survey_damage(files)
    assert len(spans) == 2
    run = next(number for number, (begin, _, _) in enumerate(found.runs) if begin == one.physical_offset)
    assert (run, one.base, one.base) in found.queues[TOPIC, one.queue_id]
    assert (TOPIC, one.queue_id) in found.batch_queues
