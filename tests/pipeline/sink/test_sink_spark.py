"""`df.write.format("rocketmq")` and `writeStream`: what was read comes back the same, a stream's messages once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.store.message_store import MessageStore
from tests.opened import store_path
from tests.pipeline.growing import Writer
from tests.pipeline.sink.staged import whole
from tests.processes import ROOT
from tests.store.write.writing import SMALL, stored_messages
from tests.test_library_examples import blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def conf(tmp_path: Path) -> str:
    """A broker.conf with small files."""
    path = tmp_path / "broker.conf"
    path.write_text("mappedFileSizeCommitLog=8388608\nmaxHashSlotNum=5000\nmaxIndexNum=20000\n")
    return str(path)


def _left_beside(root: Path) -> list[str]:
    return [path.name for path in root.parent.iterdir() if path.name.startswith(f".{root.name}")]


def _kept(message: StoredMessage) -> tuple[Any, ...]:
    """What a write keeps of a message that is new; the bit of sys_flag is that of the store's own address."""
    return (
        message.topic, message.queue_id, message.flag, message.sys_flag & ~32, message.born_timestamp,
        str(message.born_host), message.reconsume_times, message.prepared_transaction_offset, message.body,
        message.property_bytes,
    )  # fmt: skip


def test_what_was_read_comes_back_the_same(spark: SparkSession, tmp_path: Path, conf: str) -> None:
    frame = spark.read.format("rocketmq").option("split_size", "100k").load(str(store_path("features")))
    assert frame.rdd.getNumPartitions() > 1
    to_store = frame.write.format("rocketmq").option("config", conf).mode("append")
    to_store.option("as_stored", "true").save(str(tmp_path / "copy"))
    to_store.option("as_stored", "false").save(str(tmp_path / "new"))
    wanted = stored_messages(store_path("features"))
    copies = whole(tmp_path / "copy")
    assert [one._replace(physical_offset=0, queue_offset=0) for one in copies] == [
        one._replace(physical_offset=0, queue_offset=0) for one in wanted
    ]
    assert list(map(_kept, whole(tmp_path / "new"))) == list(map(_kept, wanted))
    assert _left_beside(tmp_path / "copy") == _left_beside(tmp_path / "new") == []


def test_rows_of_ones_own(spark: SparkSession, tmp_path: Path, conf: str) -> None:
    target = tmp_path / "store"
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "concat('Topic', id % 2) topic", "cast(id as string) body", "id % 3 queue_id", "array(concat('k', id)) keys",
        "'paid' tags", "timestamp'2026-11-20 10:00:00.123456' born_timestamp",
    )  # fmt: skip
    for _ in range(2):
        frame.write.format("rocketmq").option("config", conf).mode("append").save(str(target))
    found = whole(target)
    assert [one.body for one in found] == [b"%d" % number for number in range(1000)] * 2
    assert {one.born_timestamp for one in found} == {1_795_168_800_123}
    with MessageStore.open(target) as store:
        (message,) = (one for one in store.query("Topic1", "k7").messages if one.queue_offset < 100)
        assert (message.queue_id, message.properties()) == (1, {"KEYS": "k7", "TAGS": "paid"})
        assert [row["topic"] for row in store.topics()] == ["Topic0", "Topic1"]


# mode, what is said
REFUSED: dict[str, tuple[str, str]] = {
    "select 'T' topic, 'b' body, 1 colour": ("append", "messages have no column 'colour'"),
    "select 'T' topic, 'c' body": ("overwrite", "nothing is overwritten"),
    "select explode(array('T', null)) topic, 'b' body": ("append", "task 0, row 1 has no topic"),
    "select 'T' topic, 'b' body, explode(array(0, 1, -1)) queue_id": ("append", "row 2: .*queue id -1 is negative"),
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_refused_changes_nothing(spark: SparkSession, tmp_path: Path, conf: str, statement: str) -> None:
    mode, why = REFUSED[statement]
    target = tmp_path / "store"
    with MessageStore.open(target, "rw", SMALL, create=True):
        pass
    before = sorted(path for path in target.rglob("*") if path.name != "config")
    with pytest.raises(PySparkException, match=why):
        spark.sql(statement).write.format("rocketmq").mode(mode).save(str(target))
    assert sorted(path for path in target.rglob("*") if path.name != "config") == before
    assert _left_beside(target) == []


def test_other_modes_are_spark_s_to_refuse(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("select 'T' topic, 'b' body")
    for mode in ("ignore", "errorifexists"):
        with pytest.raises(AnalysisException, match="cannot be written in the"):
            frame.write.format("rocketmq").mode(mode).save(str(tmp_path / "store"))
    frame.where("body = 'c'").write.format("rocketmq").mode("append").save(str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()
    assert _left_beside(tmp_path / "store") == []


# ---- streams


class Query:
    """A stream from one store into another, with a checkpoint."""

    def __init__(self, frame: DataFrame, folder: Path, conf: str) -> None:
        self._frame = frame
        self.checkpoint = folder / "checkpoint"
        self.target = folder / "target"
        self._conf = conf

    def start(self) -> StreamingQuery:
        sink = self._frame.writeStream.format("rocketmq").option("checkpointLocation", str(self.checkpoint))
        return sink.option("config", self._conf).trigger(availableNow=True).start(str(self.target))

    def run(self) -> None:
        """Everything there is."""
        query = self.start()
        assert query.awaitTermination(280)
        assert query.exception() is None

    def forget_last(self) -> None:
        """As if the driver had been killed between the end of the last micro-batch and Spark's note of it."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())
        for path in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / path).unlink(missing_ok=True)


@pytest.fixture
def source(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "source")


@pytest.fixture
def query(spark: SparkSession, source: Writer, tmp_path: Path, conf: str) -> Query:
    source.put()
    frame = spark.readStream.format("rocketmq").option("columns", "topic,body,keys").load(str(source.store))
    return Query(frame, tmp_path, conf)


def test_a_stream_stores_each_message_once(query: Query, source: Writer) -> None:
    source.put_many(60)
    query.run()
    source.put_many(40)
    query.run()

    def bodies() -> list[bytes]:
        return [one.body for one in whole(query.target)]

    wanted = [one.body for one in stored_messages(source.store)]
    assert bodies() == wanted
    query.forget_last()
    query.run()
    assert bodies() == wanted
    with MessageStore.open(query.target) as store:
        last = len(wanted) - 60
        store.truncate(stored_messages(query.target)[last].physical_offset)
    query.forget_last()
    failed = query.start()
    with pytest.raises(PySparkException, match=r"was stored up to \d+, but the log was cut back"):
        failed.awaitTermination(280)
    assert bodies() == wanted[:last]
    assert _left_beside(query.target) == []


def test_a_store_in_use_ends_the_query_which_goes_on_later(query: Query, source: Writer, tmp_path: Path) -> None:
    query.run()
    source.put_many(20)
    with MessageStore.open(query.target, "rw"), pytest.raises(PySparkException, match="has the store open"):
        query.start().awaitTermination(280)
    query.run()
    wanted = [one.body for one in stored_messages(source.store)]
    assert [one.body for one in whole(query.target)] == wanted
    assert _left_beside(query.target) == []
    # with a new checkpoint it is another query, which begins anew
    query.checkpoint.rename(tmp_path / "old")
    query.run()
    assert [one.body for one in whole(query.target)] == [*wanted, *wanted]


def test_the_example_of_the_document_runs(spark: SparkSession, tmp_path: Path, conf: str) -> None:
    (code,) = (one for one in blocks((ROOT / "docs" / "spark.md").read_text(encoding="utf-8")) if ".write" in one)
    with MessageStore.open(tmp_path / "store", "rw", SMALL, create=True) as store:
        for number in range(20):
            tags = "paid" if number % 4 else "open"
            store.put(Message("Orders", b"%d" % number, number % 3, properties={"KEYS": f"k{number}", "TAGS": tags}))
        store.put(Message("Others", b"x", properties={"TAGS": "paid"}))
    code = code.replace("/data/", f"{tmp_path}/").replace('"rocketmq")', f'"rocketmq").option("config", "{conf}")')
    exec(compile(code, "docs/spark.md", "exec"), {"spark": spark})
    wanted = [(b"%d" % number, number % 3) for number in range(20) if number % 4]
    for name in ("replay", "copy"):
        found = whole(tmp_path / name)
        assert [one.body for one in found] == [body for body, _ in wanted]
        assert {one.topic for one in found} == {"OrdersAgain"}
    assert [one.queue_id for one in whole(tmp_path / "replay")] == [queue_id for _, queue_id in wanted]
