"""Messages one after another, chosen and in order, past damage."""

from __future__ import annotations

from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.store.options import Events
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Order, Selection
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, Row, is_broken, truth
from tests.opened import reader
from tests.quick import goldens_of


def select(name: str, order: Order = "log", **chosen: Any) -> tuple[list[int], list[CorruptError]]:
    """Physical offsets of the messages, and the damage met."""
    damage: list[CorruptError] = []
    begin, end = chosen.pop("begin", 0), chosen.pop("end", None)
    selection = Selection(Criteria(**chosen), begin, end)
    found = [
        message.physical_offset
        for message in reader(name).telling(Events(damage=damage.append)).messages(selection, order)
    ]
    return found, damage


def rows(name: str, **fields: Any) -> list[Row]:
    return [row for row in truth(name).messages if all(row[key] == value for key, value in fields.items())]


def offsets(chosen: list[Row]) -> list[int]:
    return [row["phyOffset"] for row in chosen]


@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if not is_broken(name)))
def test_all_of_an_undamaged_log(name: str) -> None:
    assert select(name) == (offsets(truth(name).messages), [])


@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if not is_broken(name)))
def test_queue_order_is_that_of_the_queues(name: str) -> None:
    units = sorted(
        (unit["topic"], unit["queueId"], unit["offset"], row["phyOffset"])
        for row in truth(name).messages
        for unit in row["cq"] or []
    )
    found, damage = select(name, "queue")
    assert damage == []
    if truth(name).summary["abortBefore"]:
        # dispatch was behind when the broker was killed, or had no directory: what is there is in order
        assert found == [unit[3] for unit in units if unit[3] in set(found)]
    else:
        assert found == [unit[3] for unit in units]


def test_filters() -> None:
    every = truth("clean").messages
    assert select("clean", topic="OrderTopic")[0] == offsets(rows("clean", topic="OrderTopic"))
    assert select("clean", topic="OrderTopic", queue_id=3)[0] == offsets(rows("clean", topic="OrderTopic", queueId=3))
    assert select("clean", tags="TagA || 标签1")[0] == offsets(
        [row for row in every if row["tags"] in ("TagA", "标签1")]
    )
    hot = [row for row in every if "hot" in (row["keys"] or "").split(" ")]
    assert len(hot) > 20
    assert select("clean", key="hot")[0] == offsets(hot)
    unique = every[5]["properties"]["UNIQ_KEY"]
    assert select("clean", key=unique)[0] == [every[5]["phyOffset"]]
    begin, end = every[700]["storeTimestamp"], every[900]["storeTimestamp"]
    inside = [row for row in every if begin <= row["storeTimestamp"] <= end]
    assert select("clean", begin_time=begin, end_time=end)[0] == offsets(inside)
    both = [row for row in inside if row["topic"] == "OrderTopic"]
    assert select("clean", "queue", topic="OrderTopic", begin_time=begin, end_time=end)[0] == offsets(
        sorted(both, key=lambda row: (row["queueId"], row["queueOffset"]))
    )


def test_offsets_of_the_log_need_not_be_starts() -> None:
    every = offsets(truth("clean").messages)
    assert select("clean", begin=every[10], end=every[20])[0] == every[10:20]
    assert select("clean", begin=every[10] + 1, end=every[20] + 1)[0] == every[11:21]
    assert select("clean", begin=1 << 40)[0] == []


def test_offsets_of_a_queue() -> None:
    chosen = rows("clean", topic="OrderTopic", queueId=3)
    assert select("clean", "queue", topic="OrderTopic", queue_id=3, begin=5, end=9)[0] == offsets(chosen[5:9])


def test_multi_dispatch_queues_lead_to_their_messages() -> None:
    found, damage = select("lmq", "queue", topic="%LMQ%all")
    assert found == offsets(rows("lmq", topic="LmqParent"))
    assert damage == []


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [
        ("crc-flip-third", 1695806, None),
        ("crc-flip-last", 2106230, None),
        ("torn-zero", 2135296, 2135612),
        ("tail-garbage-clean", 2135612, 2135612 + 777),
        ("gap", 1048576, 1310720),
    ],
)
def test_damage_is_passed_and_told(name: str, begin: int, end: int | None) -> None:
    found, damage = select(name)
    lost = [row for row in truth("clean").messages if begin == row["phyOffset"]] if name.startswith("crc") else []
    limit = end if end is not None else begin + lost[0]["storeSize"]
    assert [error.physical_offset for error in damage] == [begin]
    base = truth("crash" if name == "torn-zero" else "clean").messages
    assert found == [row["phyOffset"] for row in base if not begin <= row["phyOffset"] < limit]
    assert f"up to {limit} " in str(damage[0])


def test_damage_in_the_order_of_the_queues() -> None:
    lost = [row for row in truth("clean").messages if 1048576 <= row["phyOffset"] < 1310720]
    found, damage = select("gap", "queue")
    assert len(damage) == len(lost) == 304
    assert {error.physical_offset for error in damage} == set(offsets(lost))
    assert sorted(found) == offsets(truth("gap").messages)


def test_messages_that_were_removed_are_no_damage() -> None:
    found, damage = select("first-gone", "queue")
    assert damage == []
    assert sorted(found) == offsets(truth("first-gone").messages)


def test_units_that_a_lost_file_held_are_damage() -> None:
    # cq-truncated: 20 units at the end are zeros, which nobody can tell from never written; the other queues are short
    found, damage = select("cq-truncated", "queue", topic="topic-with-dash")
    assert (len(found), damage) == (300, [])


def test_units_that_are_missing_with_their_file_are_damage(golden_store: GoldenStore) -> None:
    """A cleaner takes files from the beginning: what is gone from the middle is damage, told once, and passed."""
    store = golden_store("clean")
    units = [row["phyOffset"] for row in rows("clean", topic="topic-with-dash")]
    folder = store / "consumequeue" / "topic-with-dash" / "0"
    sorted(folder.iterdir())[1].unlink()
    damage: list[CorruptError] = []
    with StoreFiles(store) as files:
        selection = Selection(Criteria(topic="topic-with-dash"))
        found = StoreReader(files).telling(Events(damage=damage.append)).messages(selection, "queue")
        assert [message.physical_offset for message in found] == units[:100] + units[200:]
    [told] = damage
    assert "units 100 to 199 of 'topic-with-dash' queue 0 are missing with their file" in str(told)
    assert told.file == str(folder)


def test_an_unknown_topic_in_the_order_of_the_queues() -> None:
    for queue_id in (None, 3):
        with pytest.raises(NotFoundError, match="no topic") as caught:
            select("clean", "queue", topic="OrderTopik", queue_id=queue_id)
        assert caught.value.hint is not None
        assert "OrderTopic" in caught.value.hint
    with pytest.raises(NotFoundError, match="topic 'OrderTopic' has no queue 77") as caught:
        select("clean", "queue", topic="OrderTopic", queue_id=77)
    assert caught.value.hint == "its queues are 0, 1, 2, 3, 4, 5, 6, 7"
