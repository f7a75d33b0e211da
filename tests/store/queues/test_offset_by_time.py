"""Offsets by time beyond what the truths hold (tests/test_truth.py): every time of a queue, and damage in the way."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import pytest

from rmqctl.formats.errors import NotFoundError, UnsupportedError
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.offset_by_time import _next_known
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth
from tests.opened import reader

TOPIC, QUEUE = "%DLQ%GroupA", 0


def _times(name: str, topic: str = TOPIC, queue_id: int = QUEUE) -> list[int]:
    rows = [row for row in truth(name).messages if (row["topic"], row["queueId"]) == (topic, queue_id)]
    return [row["storeTimestamp"] for row in sorted(rows, key=lambda row: row["queueOffset"])]


@pytest.mark.parametrize("name", ["clean", "v4-clean"])
def test_every_time_around_every_message(name: str) -> None:
    times = _times(name)
    assert len(times) == 230
    for time in {moment + shift for moment in times for shift in (-1, 0, 1)}:
        lower = reader(name).offset_at(TOPIC, QUEUE, time)
        upper = reader(name).offset_at(TOPIC, QUEUE, time, "upper")
        assert lower == bisect_left(times, time), time
        assert upper == max(bisect_right(times, time) - 1, 0), time


def test_the_ends_of_time() -> None:
    look = reader("clean")
    assert [look.offset_at(TOPIC, QUEUE, 0, boundary) for boundary in ("lower", "upper")] == [0, 0]
    assert [look.offset_at(TOPIC, QUEUE, 1 << 62, boundary) for boundary in ("lower", "upper")] == [230, 229]


def test_never_before_the_queue_s_minimum() -> None:
    look = reader("first-gone")
    row = next(one for one in truth("first-gone").queues if (one["topic"], one["queueId"]) == (TOPIC, QUEUE))
    assert row["min"] > 0
    assert look.offset_at(TOPIC, QUEUE, 0) == row["min"]
    assert look.offset_at(TOPIC, QUEUE, 0, "upper") == row["min"]


def test_an_empty_queue() -> None:
    row = next(one for one in truth("first-gone").queues if one["min"] == one["max"] and one["max"] > 0)
    for boundary in ("lower", "upper"):
        assert reader("first-gone").offset_at(row["topic"], row["queueId"], 1, boundary) == row["max"]


def test_messages_in_a_gap_are_passed_over() -> None:
    times = _times("clean")
    lost = [row for row in truth("clean").messages if 1048576 <= row["phyOffset"] < 1310720]
    slots = {row["queueOffset"] for row in lost if (row["topic"], row["queueId"]) == (TOPIC, QUEUE)}
    assert len(slots) > 5
    known = [(time, slot) for slot, time in enumerate(times) if slot not in slots]
    for time, _ in known:
        expected = min(slot for moment, slot in known if moment >= time)
        assert reader("gap").offset_at(TOPIC, QUEUE, time) in range(_run_start(expected, slots), expected + 1)


def _run_start(slot: int, slots: set[int]) -> int:
    """Lost messages just before a slot may as well have been stored at the time asked for."""
    while slot - 1 in slots:
        slot -= 1
    return slot


def test_a_message_with_a_damaged_body_still_has_its_time() -> None:
    row = next(one for one in truth("clean").messages if one["phyOffset"] == 1695806)
    place = (row["topic"], row["queueId"])
    assert reader("crc-flip-third").store_time(*place, row["queueOffset"]) == row["storeTimestamp"]


def test_an_unknown_queue_is_said(golden_store: GoldenStore) -> None:
    with pytest.raises(NotFoundError, match="no topic 'Nowhere'"):
        reader("clean").offset_at("Nowhere", 0, 1)
    with pytest.raises(NotFoundError, match="no queue 7"):
        reader("clean").offset_at(TOPIC, 7, 1)
    with pytest.raises(UnsupportedError):
        reader("rocksdb").offset_at(TOPIC, 0, 1)


def test_a_hole_is_no_message(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = store / "consumequeue" / TOPIC / "0" / "00000000000000000000"
    data = path.read_bytes()
    path.write_bytes(data[:1000] + bytes(200) + data[1200:])
    times = _times("clean")
    with StoreFiles(store) as files:
        look = StoreReader(files)
        assert look.offset_at(TOPIC, QUEUE, 0) == 0
        found = look.offset_at(TOPIC, QUEUE, times[60], "upper")
        assert times[found] == times[60]
        early = look.offset_at(TOPIC, QUEUE, times[49], "upper")
        assert early not in range(50, 60)


def test_the_message_right_behind_one_without_a_time_is_looked_at() -> None:
    queue = reader("clean").files.queues.find(TOPIC, QUEUE)
    assert isinstance(queue, ConsumeQueue)
    assert _next_known(queue, 0, 230, lambda unit: None if unit.queue_offset == 0 else 5) == (1, 5)
    assert _next_known(queue, 0, 230, lambda _: None) == (230, None)
