"""The numbers of `info` and `ls` against RocketMQ's."""

from __future__ import annotations

import pytest

from rmqctl.store.info.info import (
    count_log,
    file_rows,
    info,
    queue_rows,
    topic_rows,
    topic_rows_from_log,
)
from rmqctl.store.options import Events
from tests.goldens import GOLDENS, is_broken, truth
from tests.opened import reader, store_path
from tests.quick import goldens_of
from tests.store.logs import bytes_to_read

WHOLE = [name for name in GOLDENS if not is_broken(name)]


@pytest.mark.parametrize("name", goldens_of(WHOLE))
def test_info_of_whole_stores(name: str) -> None:
    view = truth(name)
    row = info(reader(name).files)
    log = row["commitlog"]
    assert (log["min_offset"], log["max_offset"]) == (view.summary["minPhy"], view.summary["maxPhy"])
    assert log["messages"] == view.summary["messages"]
    assert log["bytes"] == sum(message["storeSize"] for message in view.messages)
    assert log["first_store_timestamp"] == view.messages[0]["storeTimestamp"]
    assert log["last_store_timestamp"] == view.messages[-1]["storeTimestamp"]
    assert (log["damaged_spans"], log["damaged_bytes"], log["problems"]) == (0, 0, [])
    assert log["file_size"] == 262144
    assert row["abort"] is view.summary["abortBefore"]
    assert row["clean_shutdown"] is not view.summary["abortBefore"]
    assert row["locked"] is False
    checkpoint = view.summary["checkpointBefore"]
    assert list(row["checkpoint"].values())[:3] == checkpoint[:3]


@pytest.mark.parametrize("name", goldens_of(WHOLE))
def test_queues_and_topics_of_whole_stores(name: str) -> None:
    look = reader(name)
    expected = {(row["topic"], row["queueId"]): row for row in truth(name).queues if row.get("units")}
    assert info(look.files)["consumequeue"]["kind"] == ("rocksdb" if name == "rocksdb" else "files")
    if not truth(name).summary["abortBefore"]:
        found = {(row["topic"], row["queue_id"]): row for row in queue_rows(look)}
        assert found.keys() == expected.keys()
        for place, row in found.items():
            assert (row["min_offset"], row["max_offset"]) == (expected[place]["min"], expected[place]["max"])
            assert row["messages"] == expected[place]["max"] - expected[place]["min"]
            assert row["first_store_timestamp"] == expected[place]["earliestTime"]
        assert info(look.files)["consumequeue"]["units"] == sum(row["units"] for row in expected.values())
    sizes: dict[str, list[int]] = {}
    for row in truth(name).messages:
        sizes.setdefault(row["topic"], []).append(row["storeSize"])
    counted = {row["topic"]: (row["messages"], row["bytes"]) for row in topic_rows_from_log(look.files)}
    assert counted == {topic: (len(each), sum(each)) for topic, each in sizes.items()}


def test_bytes_of_topics_by_queues_are_those_of_the_log() -> None:
    by_queues = {row["topic"]: (row["messages"], row["bytes"]) for row in topic_rows(reader("clean"))}
    by_log = {row["topic"]: (row["messages"], row["bytes"]) for row in topic_rows_from_log(reader("clean").files)}
    assert by_queues == by_log


@pytest.mark.parametrize(
    ("name", "spans", "damaged", "problems"),
    [
        ("crc-flip-last", 1, 268, 0),
        ("torn-zero", 1, 316, 0),
        ("tail-garbage-clean", 1, 777, 0),
        ("gap", 1, 262144, 1),
        ("stray-file", 0, 0, 1),
        ("empty-last", 0, 0, 1),
        ("short-last", 1, 262144 - 150000, 1),
        ("first-gone", 0, 0, 0),
        ("prealloc-last", 0, 0, 0),
    ],
)
def test_damage_is_counted(name: str, spans: int, damaged: int, problems: int) -> None:
    log = info(reader(name).files)["commitlog"]
    assert (log["damaged_spans"], log["damaged_bytes"], len(log["problems"])) == (spans, damaged, problems)


def test_without_a_walk_nothing_is_counted() -> None:
    log = info(reader("clean").files, walk_log=False)["commitlog"]
    assert (log["messages"], log["bytes"], log["damaged_spans"]) == (None, None, None)
    assert log["max_offset"] is None  # zeros follow the last message up to the end of its file


def test_progress_is_told_every_byte_once() -> None:
    told: list[int] = []
    count_log(reader("clean").files, Events(progress=told.append))
    assert sum(told) == bytes_to_read(reader("clean").files.log)


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_every_file_is_listed_once_with_its_size(name: str) -> None:
    rows = list(file_rows(reader(name).files))
    listed = {row["path"]: row["size"] for row in truth(name).summary["filesBefore"]}
    assert {row["path"]: row["size"] for row in rows} == listed
    assert len(rows) == len(listed)
    for row in rows:
        assert row["on_disk_bytes"] == (store_path(name) / row["path"]).stat().st_blocks * 512
        if row["kind"] == "commitlog":
            assert row["last_offset"] - row["first_offset"] == row["size"]
