"""Offsets by time beyond what the truths hold (tests/test_truth.py): every time of a queue, and damage in the way."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import pytest

from rmqctl.formats.errors import NotFoundError
from rmqctl.store.queues.consumequeue import BatchConsumeQueue, Boundary, ConsumeQueue, _next_known
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth
from tests.opened import reader
from tests.store.check.breaking import put_field

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
    assert reader("rocksdb").offset_at(TOPIC, 0, 1) == 0


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


@pytest.mark.parametrize("boundary", ["lower", "upper"])
def test_a_flipped_sign_leads_no_search_astray(golden_store: GoldenStore, boundary: Boundary) -> None:
    """No checksum covers a store time, and no broker writes one below 0: a reset by time passed over every message
    before such a one."""
    store, times = golden_store("clean"), _times("clean")
    rows = {
        row["queueOffset"]: row for row in truth("clean").messages if (row["topic"], row["queueId"]) == (TOPIC, QUEUE)
    }
    flipped = {0, 57, 115, 116, 172, len(times) - 1}
    for slot in flipped:
        put_field(store, rows[slot]["phyOffset"], "store_timestamp", times[slot] - (1 << 63))
    known = [(time, slot) for slot, time in enumerate(times) if slot not in flipped]
    with StoreFiles(store) as files:
        look = StoreReader(files)
        for time in {moment + shift for moment in times for shift in (-1, 0, 1)}:
            found = look.offset_at(TOPIC, QUEUE, time, boundary)
            if boundary == "lower":
                expected = min((slot for moment, slot in known if moment >= time), default=len(times))
                assert found in range(_run_start(expected, flipped), expected + 1), time
            else:
                expected = max((slot for moment, slot in known if moment <= time), default=0)
                assert _run_start(found, flipped) <= expected + 1, time
                assert found >= expected, time


def test_batches_with_a_flipped_sign(golden_store: GoldenStore) -> None:
    store = golden_store("innerbatch")
    folder = store / "batchconsumequeue" / "InnerBatchTopic" / "0"
    with StoreFiles(store) as files:
        queue = files.queues.find("InnerBatchTopic", 0)
        assert isinstance(queue, BatchConsumeQueue)
        units = list(queue.units(0))
    place = len(units) - 1
    in_file = min(folder.iterdir()).stat().st_size // 46
    path, time_at = sorted(folder.iterdir())[place // in_file], place % in_file * 46 + 20
    content = bytearray(path.read_bytes())
    assert int.from_bytes(content[time_at : time_at + 8], "big") == units[place].store_timestamp
    content[time_at] |= 0x80
    path.write_bytes(content)
    with StoreFiles(store) as files:
        look = StoreReader(files)
        for unit in units[place // in_file * in_file : place]:
            found = look.offset_at("InnerBatchTopic", 0, unit.store_timestamp)
            first = next(one.queue_offset for one in units if one.store_timestamp >= unit.store_timestamp)
            assert found == first


@pytest.mark.parametrize("boundary", ["lower", "upper"])
@pytest.mark.parametrize("bit", [62, 44, 41, 33, 28])
def test_a_store_time_far_in_the_future_leads_past_no_message(
    golden_store: GoldenStore, boundary: Boundary, bit: int
) -> None:
    store, times = golden_store("clean"), _times("clean")
    rows = {
        row["queueOffset"]: row for row in truth("clean").messages if (row["topic"], row["queueId"]) == (TOPIC, QUEUE)
    }
    flipped = {0, 57, 115, 172}
    for slot in flipped:
        put_field(store, rows[slot]["phyOffset"], "store_timestamp", times[slot] + (1 << bit))
    known = [(time, slot) for slot, time in enumerate(times) if slot not in flipped]
    with StoreFiles(store) as files:
        look = StoreReader(files)
        for time in {moment + shift for moment in times for shift in (-1, 0, 1)}:
            found = look.offset_at(TOPIC, QUEUE, time, boundary)
            if boundary == "lower":
                expected = min((slot for moment, slot in known if moment >= time), default=len(times))
                assert found in range(_run_start(expected, flipped), expected + 1), time
            else:
                expected = max((slot for moment, slot in known if moment <= time), default=0)
                assert _run_start(found, flipped) <= expected + 1, time
                assert found >= expected, time
