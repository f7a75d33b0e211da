"""The commitlog as a stream: every message once, from a log that grows by halves, across restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from rmqctl.formats.errors import UnreadableError, UsageError
from rmqctl.pipeline.spark.options import parse_options, view_schema
from rmqctl.pipeline.spark.source import RocketMQSource
from rmqctl.pipeline.spark.stream import MessageStreamReader
from rmqctl.store.files.layout import file_name
from tests.goldens import truth
from tests.opened import store_path
from tests.pipeline.growing import FILE_SIZE, Writer
from tests.store.logs import changed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = ("physical_offset", "queue_offset", "topic")


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "store")


def _reader(store: Path, **options: str) -> MessageStreamReader:
    given = parse_options({"path": str(store), "columns": ",".join(COLUMNS), **options})
    return MessageStreamReader(given, view_schema("messages", COLUMNS))


def _read(reader: MessageStreamReader, begin: int, end: int) -> Iterator[int]:
    for partition in reader.partitions({"physical_offset": begin}, {"physical_offset": end}):
        for batch in reader.read(partition):
            assert batch.schema.names == list(COLUMNS)
            yield from batch.column("physical_offset").to_pylist()


def _offset(position: dict[str, Any] | None) -> int:
    assert position is not None
    return int(position["physical_offset"])


def test_so_many_messages_a_batch() -> None:
    """On a log with blank ends of files and with damage: none is lost, and there are never more but around damage."""
    for name in ("clean", "torn-zero", "crc-flip-third", "gap"):
        reader = _reader(store_path(name), maxOffsetsPerTrigger="700")
        limit = reader.getDefaultReadLimit()
        position = reader.initialOffset()
        counts, offsets = [], []
        while True:
            end = reader.latestOffset(position, limit)
            if end == position:
                break
            found = list(_read(reader, _offset(position), _offset(end)))
            counts.append(len(found))
            offsets += found
            position = end
        whole = _reader(store_path(name))
        assert offsets == list(_read(whole, _offset(whole.initialOffset()), _offset(whole.reportLatestOffset())))
        assert len(counts) >= len(offsets) // 1000
        if name == "clean":
            assert counts == [700, 700, 700, 400]


def test_a_batch_that_begins_inside_of_a_message() -> None:
    reader = _reader(store_path("clean"), maxOffsetsPerTrigger="10")
    stored = [int(row["phyOffset"]) for row in truth("clean").messages]
    end = reader.latestOffset({"physical_offset": stored[5] + 3}, reader.getDefaultReadLimit())
    assert list(_read(reader, stored[5] + 3, _offset(end))) == stored[6:16]


def test_messages_and_bytes_both_limit_a_batch() -> None:
    reader = _reader(store_path("clean"), maxOffsetsPerTrigger="700", max_bytes="10k")
    begin = reader.initialOffset()
    assert 0 < _offset(reader.latestOffset(begin, reader.getDefaultReadLimit())) <= 10 * 1024


@pytest.mark.parametrize(
    ("option", "value"),
    [("endingOffsets", "7"), ("endingTimestamp", "7"), ("startingOffsets", '{"T": {"0": 1}}')],
)
def test_what_a_stream_has_not(option: str, value: str) -> None:
    given = {"path": str(store_path("clean")), option: value}
    with pytest.raises(UsageError, match=r"^a stream "):
        RocketMQSource(given).streamReader(view_schema("messages"))


def test_where_a_stream_begins(writer: Writer) -> None:
    for _ in range(5):
        writer.put()
    store = writer.folder.parent
    assert _reader(store).reportLatestOffset() == {"physical_offset": writer.position}
    assert _reader(store).initialOffset() == {"physical_offset": 0, "history": {}}
    assert _offset(_reader(store, starting_offset="latest").initialOffset()) == writer.position
    assert _offset(_reader(store, starting_offset="77").initialOffset()) == 77


def test_any_two_positions_have_the_messages_that_begin_between_them(writer: Writer) -> None:
    for _ in range(200):
        writer.put()
    reader = _reader(writer.folder.parent, split_size="3000")
    latest = int(reader.latestOffset({"physical_offset": 0}, ReadAllAvailable())["physical_offset"])
    assert list(_read(reader, 0, latest)) == writer.offsets
    for begin, end in ((0, 1), (1, 5000), (4999, 5001), (latest - 1, latest), (latest, latest), (0, 40_000)):
        assert list(_read(reader, begin, end)) == [offset for offset in writer.offsets if begin <= offset < end]


def test_limits_and_targets(writer: Writer) -> None:
    for _ in range(50):
        writer.put()
    store = writer.folder.parent
    reader = _reader(store, max_bytes="1000")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(1000)
    assert _reader(store).getDefaultReadLimit() == ReadAllAvailable()
    assert _offset(reader.latestOffset({"physical_offset": 100}, ReadMaxBytes(1000))) == 1100
    reader.prepareForTriggerAvailableNow()
    target = reader.latestOffset({"physical_offset": 0}, ReadAllAvailable())
    assert _offset(target) == writer.position
    for _ in range(50):
        writer.put()
    assert reader.latestOffset({"physical_offset": 0}, ReadAllAvailable()) == target
    assert reader.latestOffset(target, ReadAllAvailable()) == target
    assert _offset(reader.reportLatestOffset()) == writer.position > _offset(target)


def test_messages_that_were_removed_unread_are_not_passed_in_silence(writer: Writer) -> None:
    for _ in range(300):
        writer.put()
    store = writer.folder.parent
    (writer.folder / file_name(0)).unlink()
    with pytest.raises(UnreadableError, match=f"messages from 100 to {FILE_SIZE} were removed"):
        list(_read(_reader(store), 100, 2 * FILE_SIZE))
    going_on = _reader(store, fail_on_data_loss="false")
    assert list(_read(going_on, 100, 2 * FILE_SIZE)) == [
        offset for offset in writer.offsets if FILE_SIZE <= offset < 2 * FILE_SIZE
    ]
    assert going_on.initialOffset() == {"physical_offset": FILE_SIZE, "history": {}}


def test_damage_is_passed(writer: Writer) -> None:
    for _ in range(120):
        writer.put()
    path = writer.folder / file_name(0)
    bad = writer.offsets[33]
    path.write_bytes(changed(path.read_bytes(), bad + 100, b"\xff\xfe\xfd"))
    reader = _reader(writer.folder.parent, split_size="2000")
    latest = int(reader.latestOffset({"physical_offset": 0}, ReadAllAvailable())["physical_offset"])
    assert list(_read(reader, 0, latest)) == [offset for offset in writer.offsets if offset != bad]


def _sunk(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.physical_offset for row in spark.read.parquet(str(folder / "sink")).collect())


def _start(frame: DataFrame, folder: Path, *, available_now: bool = False) -> StreamingQuery:
    sink = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    sink = sink.trigger(availableNow=True) if available_now else sink.trigger(processingTime="50 milliseconds")
    return sink.start(str(folder / "sink"))


def test_a_growing_log_is_read_once_across_a_restart(spark: SparkSession, writer: Writer, tmp_path: Path) -> None:
    """The writer is caught in the middle of frames all the time; the query is stopped somewhere and started again."""
    writer.put()
    messages = spark.readStream.format("rocketmq").option("columns", ",".join(COLUMNS)).load(str(tmp_path / "store"))

    enough = threading.Event()

    def write() -> None:
        while not enough.is_set():
            writer.put(0.02)

    thread = threading.Thread(target=write)
    thread.start()
    query = _start(messages, tmp_path)
    try:
        _wait_for(query, lambda: sum(one["numInputRows"] for one in query.recentProgress) > 20)
        query.stop()
        half = _sunk(spark, tmp_path)
        query = _start(messages, tmp_path)
        _wait_for(query, lambda: len(query.recentProgress) > 1)
    finally:
        enough.set()
        thread.join()
    query.processAllAvailable()
    query.stop()
    assert _sunk(spark, tmp_path) == writer.offsets
    assert half == writer.offsets[: len(half)]
    assert 20 < len(half) < len(writer.offsets)


def _wait_for(query: StreamingQuery, condition: Callable[[], bool], seconds: float = 240) -> None:
    """Wait for what a query does; one that has failed or stands still says what it knows."""
    end = time.monotonic() + seconds
    while not condition():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < end, (query.status, query.recentProgress[-2:])
        time.sleep(0.05)


def test_a_golden_in_small_batches(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.readStream.format("rocketmq").option("columns", ",".join(COLUMNS)).option("max_bytes", "100k")
    query = _start(source.load(str(store_path("features"))), tmp_path, available_now=True)
    query.awaitTermination(120)
    wanted = sorted(int(row["phyOffset"]) for row in truth("features").messages)
    assert _sunk(spark, tmp_path) == wanted
    assert len([one for one in query.recentProgress if one["numInputRows"]]) > 1
