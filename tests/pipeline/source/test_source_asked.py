"""What the options of a read ask for, without Spark: messages from here to there, of some topics."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from rmqctl.pipeline.spark.options import SourceOptions, parse_options, view_schema
from rmqctl.pipeline.spark.source import MessageReader, PushingMessageReader
from rmqctl.pipeline.spark.split_task import SplitPartition
from tests.goldens import truth
from tests.opened import store_path

FILE_SIZE = 262_144
COLUMNS = ("physical_offset", "topic")
STORED = [(int(row["phyOffset"]), str(row["topic"]), int(row["storeTimestamp"])) for row in truth("clean").messages]


def _given(**options: str) -> tuple[SourceOptions, StructType]:
    given = parse_options({"path": str(store_path("clean")), "columns": ",".join(COLUMNS), **options})
    return given, view_schema("messages", COLUMNS)


def _reader(**options: str) -> MessageReader:
    return MessageReader(*_given(**options))


def _offsets(reader: MessageReader) -> Iterator[int]:
    for partition in reader.partitions():
        for batch in reader.read(partition):
            yield from batch.column("physical_offset").to_pylist()


def test_from_here_to_there() -> None:
    middle, later = STORED[1000][0], STORED[1500][0]
    assert list(_offsets(_reader(startingOffsets=str(middle), endingOffsets=str(later)))) == [
        offset for offset, _, _ in STORED[1000:1500]
    ]
    assert list(_offsets(_reader(startingOffsets="latest"))) == []


def test_some_topics() -> None:
    topics = sorted({topic for _, topic, _ in STORED})
    assert list(_offsets(_reader(subscribe=topics[0]))) == [offset for offset, topic, _ in STORED if topic == topics[0]]
    pattern = f"{topics[-1][:3]}.*"
    assert list(_offsets(_reader(subscribePattern=pattern))) == [
        offset for offset, topic, _ in STORED if topic.startswith(topics[-1][:3])
    ]


def test_from_a_time_on() -> None:
    time = STORED[1200][2]
    assert list(_offsets(_reader(startingTimestamp=str(time)))) == [offset for offset, _, at in STORED if at >= time]


def test_up_to_a_time() -> None:
    begin, time = STORED[700][2], STORED[1200][2]
    found = list(_offsets(_reader(startingTimestamp=str(begin), endingTimestamp=str(time))))
    assert found == [offset for offset, _, at in STORED if begin <= at < time]


def test_from_here_to_there_queue_by_queue() -> None:
    """As the source `kafka` has it: queues that are not named are read from end to end."""
    rows = [row for row in truth("clean").messages if row["topic"] in ("OrderTopic", "TopicTest")]
    starting = {"OrderTopic": {"0": 5, "1": -1, "2": -2}}
    ending = {"OrderTopic": {"0": 9}, "TopicTest": {"3": 4}}
    wanted = [
        row["phyOffset"]
        for row in rows
        if {
            ("OrderTopic", 0): 5 <= row["queueOffset"] < 9,
            ("OrderTopic", 1): False,
            ("TopicTest", 3): row["queueOffset"] < 4,
        }.get((row["topic"], row["queueId"]), True)
    ]
    assert 0 < len(wanted) < len(rows) - 20
    given = {"startingOffsets": json.dumps(starting), "endingOffsets": json.dumps(ending)}
    assert list(_offsets(_reader(**given))) == wanted
    # which are walked, and which are read through the queues, says the same
    assert list(_offsets(_reader(split_size="0", **given))) == wanted
    only = [row["phyOffset"] for row in rows if row["topic"] == "TopicTest" and row["phyOffset"] in wanted]
    assert list(_offsets(_reader(subscribe="TopicTest", **given))) == only


def test_about_so_many_tasks() -> None:
    assert len(_reader().partitions()) < 15
    assert 30 <= len(_reader(minPartitions="40").partitions()) <= 60
    assert list(_offsets(_reader(minPartitions="40"))) == [offset for offset, _, _ in STORED]


def test_a_task_walks_no_further_than_what_is_wanted() -> None:
    """Whole files stay whole where somebody wants no task to begin in the middle of one."""
    first = STORED[3][0]
    for size, wanted in (("128m", (first, first + 2)), ("0", (0, FILE_SIZE))):
        reader = PushingMessageReader(*_given(split_size=size))
        bounds = (spark.GreaterThanOrEqual, first), (spark.LessThanOrEqual, first + 1)
        reader.pushFilters([kind(("physical_offset",), bound) for kind, bound in bounds])
        (partition,) = reader.partitions()
        assert isinstance(partition, SplitPartition)
        assert (partition.split.begin, partition.split.end) == wanted
        assert list(_offsets(reader)) == [first]


def test_filters_go_together_with_options() -> None:
    topics = sorted({topic for _, topic, _ in STORED})
    reader = PushingMessageReader(*_given(subscribe=",".join(topics[:2])))
    reader.pushFilters([spark.In(("topic",), (topics[1], topics[2]))])
    assert list(_offsets(reader)) == [offset for offset, topic, _ in STORED if topic == topics[1]]
