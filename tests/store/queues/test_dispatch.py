"""Slots and keys that messages imply, against what RocketMQ itself dispatched for every message of every golden."""

from __future__ import annotations

import pytest

from rmqctl.formats.message import StoredMessage, decode_message
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.log.walk import walk
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.dispatch import (
    FurtherSlots,
    QueueSlot,
    index_keys,
    message_count,
    queue_slots,
    unit_tags_code,
)
from tests.goldens import GOLDENS, base_of, truth
from tests.opened import reader
from tests.quick import goldens_of
from tests.store.logs import frame

LEVELS = StoreConfig().delay_levels()
WHOLE = [name for name in GOLDENS if base_of(name) is None and not name.startswith(("rocksdb", "v4-crash", "crash"))]


def _message(topic: str = "T", properties: dict[str, str] | None = None, sys_flag: int = 0) -> StoredMessage:
    data = frame(1000, topic=topic, sys_flag=sys_flag, queue_offset=3, store_timestamp=50_000, properties=properties)
    return decode_message(data, 0, len(data), 1000)


def _slots(message: StoredMessage) -> list[tuple[str, int, int]]:
    return [(slot.topic, slot.queue_id, slot.unit.queue_offset) for slot in queue_slots(message, LEVELS)]


@pytest.mark.parametrize("name", goldens_of(WHOLE))
def test_slots_are_those_of_rocketmq(name: str) -> None:
    """Each `cq` row of the truth is a unit that RocketMQ has for the message, in any queue."""
    log = reader(name).files.log
    messages = {record.physical_offset: record for record in walk(log) if isinstance(record, StoredMessage)}
    for row in truth(name).messages:
        slots = list(queue_slots(messages[row["phyOffset"]], LEVELS))
        found = {(slot.topic, slot.queue_id, slot.unit.queue_offset) for slot in slots}
        expected = {(unit["topic"], unit["queueId"], unit["offset"]) for unit in row["cq"] or []}
        if len(row["topic"].encode()) <= 255:  # a longer one has no queue on disk
            assert found == expected, row["phyOffset"]
        else:
            assert found == set()
        assert {(slot.unit.physical_offset, slot.unit.size) for slot in slots} <= {(row["phyOffset"], row["storeSize"])}
        assert unit_tags_code(messages[row["phyOffset"]], row["properties"], LEVELS) == row["dispatchTagsCode"]
        assert {slot.is_batch for slot in slots} <= {row["topic"] == "InnerBatchTopic"}


@pytest.mark.parametrize(("kind", "count"), [(0, 1), (0x4, 0), (0x8, 1), (0xC, 0)])
def test_prepared_and_rolled_back_messages_take_no_slot(kind: int, count: int) -> None:
    assert len(_slots(_message(sys_flag=kind))) == count


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        *(("1", 51_000), ("2", 55_000), ("18", 7_250_000), ("19", 7_250_000), ("999", 7_250_000)),
        *(("+1", 51_000), ("٣", 60_000), ("0" * 5000 + "2", 55_000), (str((1 << 31) - 1), 7_250_000)),
        *(("0", 0), ("-1", 0)),
        # no int of Java's: a broker ends its log there, and the message keeps a slot to be read by
        *((text, 0) for text in ("x", "", "1_0", " 2", "2 ", "𝟏", str(1 << 31), "9" * 5000)),
    ],
)
def test_delayed_messages_carry_their_delivery_time(level: str, expected: int) -> None:
    message = _message("SCHEDULE_TOPIC_XXXX", {"DELAY": level})
    assert unit_tags_code(message, message.properties(), LEVELS) == expected
    other = _message("T", {"DELAY": level, "TAGS": "a"})
    assert unit_tags_code(other, other.properties(), LEVELS) == ord("a")


def test_a_delivery_time_beyond_64_bits_wraps_as_in_java() -> None:
    message = _message("SCHEDULE_TOPIC_XXXX", {"DELAY": "1"})._replace(store_timestamp=(1 << 63) - 1)
    assert unit_tags_code(message, message.properties(), LEVELS) == -(1 << 63) + 999


def test_tags_codes_are_java_hashes() -> None:
    """String.hashCode over UTF-16 units, as int."""
    codes = {tag: unit_tags_code(_message(), {"TAGS": tag}, LEVELS) for tag in ("TagA", "标签1", "\U0001f600")}
    assert codes == {"TagA": 2598919, "标签1": 26572474, "\U0001f600": 1772899}


# --- several queues (LMQ) ---------------------------------------------------------------------------------------------


def _multi(queues: str, offsets: str) -> list[tuple[str, int, int]]:
    message = _message("Parent", {"INNER_MULTI_DISPATCH": queues, "INNER_MULTI_QUEUE_OFFSET": offsets})
    return _slots(message._replace(queue_id=4))[1:]


def test_multi_dispatch() -> None:
    assert _multi("%LMQ%a,%LMQ%b", "5,0") == [("%LMQ%a", 0, 5), ("%LMQ%b", 0, 0)]
    assert _multi("Other", "7") == [("Other", 4, 7)]
    # empty parts at the end do not count, and a broker with LMQ writes none for a name without its prefix
    assert _multi("%LMQ%a,%LMQ%a", "5,5") == [("%LMQ%a", 0, 5)]  # as brokers number a queue that is listed twice
    assert _multi("%LMQ%a,%LMQ%b,", "5,0") == [("%LMQ%a", 0, 5), ("%LMQ%b", 0, 0)]
    assert _multi("%LMQ%a,Other", "5,") == []


@pytest.mark.parametrize(
    ("queues", "offsets"),
    [
        ("%LMQ%a,%LMQ%b", "5"),
        ("%LMQ%a", "x"),
        ("%LMQ%a", "-1"),
        ("%LMQ%a", "²"),
        ("%LMQ%a", "9" * 19),
        ("%LMQ%a", "9" * 5000),
        ("../../etc", "5"),
        ("a/b", "5"),
        (" ", "5"),
        ("%LMQ%a", " "),
    ],
)
def test_multi_dispatch_that_makes_no_sense(queues: str, offsets: str) -> None:
    assert _multi(queues, offsets) == []


@pytest.mark.parametrize("topic", ["..", ".", "a/b", "/etc/passwd"])
def test_topics_that_are_no_folder_names_take_no_slot(topic: str) -> None:
    assert _slots(_message(topic)) == []


def test_a_negative_queue_id_takes_no_slot() -> None:
    assert _slots(_message()._replace(queue_id=-1)) == []


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "count"), [("5", 5), ("1", 1), ("0", 1), ("-3", 1), ("x", 1), (None, 1)])
def test_an_inner_batch_counts_its_messages(number: str | None, count: int) -> None:
    properties = {} if number is None else {"INNER_NUM": number}
    assert message_count(0xC0, properties, False) == count
    assert message_count(0, properties, True) == count
    assert message_count(0, properties, False) == 1
    [slot] = queue_slots(_message("T", properties, 0xC0), LEVELS)
    assert (slot.is_batch, slot.unit.batch_size, slot.unit.store_timestamp) == (True, count, 50_000)


@pytest.mark.parametrize(
    ("number", "counts"),
    [("32767", range(32767, 32768)), ("32768", range(32768, 1 << 62)), ("4294967297", range(32768, 1 << 62))],
)
def test_a_count_that_no_unit_holds_is_none_that_a_unit_holds(number: str, counts: range) -> None:
    """INNER_NUM is a short in the unit: what is larger must not come out as a count that fits."""
    assert message_count(0xC0, {"INNER_NUM": number}, False) in counts
    assert message_count(0, {"INNER_NUM": number}, True) in counts


# --- index keys -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        ({}, []),
        ({"UNIQ_KEY": "u"}, ["u"]),
        ({"KEYS": "a b"}, ["a", "b"]),
        ({"KEYS": "a b", "UNIQ_KEY": "u"}, ["u", "a", "b"]),
        ({"KEYS": " a  b "}, ["a", "b"]),
        ({"KEYS": "hot hot"}, ["hot"]),
        ({"KEYS": "u a", "UNIQ_KEY": "u"}, ["u", "a"]),
        ({"KEYS": "键1"}, ["键1"]),
    ],
)
def test_index_keys(properties: dict[str, str], keys: list[str]) -> None:
    assert index_keys(_message("T", properties)) == keys


@pytest.mark.parametrize(("kind", "count"), [(0, 1), (0x4, 1), (0x8, 1), (0xC, 0)])
def test_rolled_back_messages_are_not_indexed(kind: int, count: int) -> None:
    assert len(index_keys(_message("T", {"KEYS": "k"}, kind))) == count


@pytest.mark.parametrize(
    "said",
    [
        # as 4.9.8 numbers them, as 5.x does, and as 5.x does that is started again after the third message
        [(0, 2), (1, 1), (2, 2), (3, 1)],
        [(0, 2), (2, 1), (3, 2), (5, 1)],
        [(0, 2), (2, 1), (3, 2), (3, 1)],
    ],
)
def test_offsets_that_run_ahead_in_a_further_queue(said: list[tuple[int, int]]) -> None:
    places = FurtherSlots(lambda topic, queue_id: None)
    slots = [
        QueueSlot("%LMQ%a", 0, QueueUnit(offset, 100 * number, 100, 0), False, is_further=True, listed=listed)
        for number, (offset, listed) in enumerate(said)
    ]
    assert [places.placed(slot).unit.queue_offset for slot in slots] == [0, 1, 2, 3]
    # a copy keeps the offset of its original, and takes no place
    copy = slots[0]._replace(is_copy=True)
    assert places.placed(copy) == copy
    assert (
        places.placed(slots[-1]._replace(unit=slots[-1].unit._replace(queue_offset=said[-1][0] + 1))).unit.queue_offset
        == 4
    )
