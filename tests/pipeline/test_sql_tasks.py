"""SQL on Spark: with how many tasks what is asked for is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.engine import SparkEngine
from rmqctl.pipeline.spark_engine import completed_tasks
from rmqctl.pipeline.sql.spark import StoreSql
from rmqctl.store.check.check import check
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth
from tests.opened import store_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_findings_are_checked_for_by_tasks(
    spark: SparkSession, golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `rmqctl check` finds them; once, however often a statement names them; not to explain it."""
    ran: list[str] = []
    run = SparkEngine.run

    def noted(engine: SparkEngine, name: str, *given: Any, **options: Any) -> list[Any]:
        ran.append(name)
        return run(engine, name, *given, **options)

    monkeypatch.setattr(SparkEngine, "run", noted)
    store = golden_store("cq-truncated")
    expected = [finding.row() for finding in check(StoreFiles(store))]
    sql = StoreSql(spark, str(store))
    found = sql.answer("select * from findings").to_pylist()
    assert ran == ["check: index files", "check: reading the log"]
    assert sorted((row["code"], row["message"], row["file"]) for row in found) == sorted(
        (row["code"], row["message"], row["file"]) for row in expected
    )
    ran.clear()
    twice = sql.answer("select a.code from findings a join findings b on a.message = b.message").to_pylist()
    assert len(twice) >= len(expected)
    assert ran == ["check: index files", "check: reading the log"]
    ran.clear()
    sql.answer("explain select * from findings")
    assert ran == []
    whole = golden_store("clean")
    assert StoreSql(spark, str(whole)).answer("select count(*) n from findings").to_pylist() == [{"n": 0}]


def test_findings_of_several_stores_in_a_session(spark: SparkSession, golden_store: GoldenStore) -> None:
    """By tasks, each row with its store; what is asked of them further on is Spark's."""
    import pyspark_rocketmq

    stores = [golden_store("cq-truncated"), golden_store("clean"), golden_store("crc-flip-old")]
    frame = pyspark_rocketmq.findings(spark, [str(store) for store in stores], split_size="100k")
    wanted = [(str(store), one.row()["code"]) for store in stores for one in check(StoreFiles(store))]
    assert sorted((row.store, row.code) for row in frame.collect()) == sorted(wanted)
    errors = frame.where("severity = 'error'").groupBy("store").count().collect()
    assert {row.store for row in errors} <= {str(stores[0]), str(stores[2])}
    alone = pyspark_rocketmq.findings(spark, str(stores[1]))
    assert (alone.count(), "store" in alone.columns) == (0, False)


def test_a_question_about_a_frame_reads_only_its_columns(spark: SparkSession) -> None:
    """The answer is that of the plain frame; what is asked of the answer further on is Spark's."""
    from pyspark.sql import functions

    import pyspark_rocketmq

    store = str(store_path("clean"))

    def by_topic(messages: DataFrame) -> DataFrame:
        return messages.where("queue_id < 3").groupBy("topic").agg(functions.sum("size").alias("bytes"))

    plain = by_topic(spark.read.format("rocketmq").load(store))
    asked = pyspark_rocketmq.query(spark, store, by_topic)
    assert _read(asked) == {"topic", "queue_id", "size"}
    assert "body" in _read(plain)
    assert asked.dtypes == plain.dtypes
    assert sorted(asked.collect()) == sorted(plain.collect())
    assert asked.where("topic = 'TopicTest'").count() == 1
    assert asked.count() == plain.count()
    # all columns of what is itself the answer, none of what is only counted, one place for each use
    assert "body" in _read(pyspark_rocketmq.query(spark, store, lambda messages: messages))
    assert pyspark_rocketmq.query(spark, store, lambda messages: messages.groupBy().count()).first() == (2500,)
    twice = pyspark_rocketmq.query(
        spark,
        store,
        lambda frame: frame.where("topic = 'TopicTest'").join(frame.where("queue_id = 1"), "physical_offset", "left"),
        push_filters="true",
    )
    wanted = sum(row["topic"] == "TopicTest" for row in truth("clean").messages)
    assert twice.count() == wanted > 0


def test_a_question_about_a_view_of_several_stores(spark: SparkSession, golden_store: GoldenStore) -> None:
    import pyspark_rocketmq

    stores = [str(golden_store("clean")), str(golden_store("crash"))]
    asked = pyspark_rocketmq.query(
        spark,
        stores,
        lambda units: units.where("topic = 'TopicTest'").groupBy("store").count(),
        view="consumequeue",
        push_filters="true",
    )
    assert _read(asked) == {"topic", "store"}
    assert sorted(row.store for row in asked.collect()) == sorted(stores)
    with pytest.raises(UsageError, match="nothing"):
        pyspark_rocketmq.query(spark, stores, lambda frame: frame, view="nothing")


def _read(frame: DataFrame) -> set[str]:
    """The columns that a frame has the source make."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return {name for scan in re.findall(r"BatchScan rocketmq\[(.*?)\]", plan) for name in re.findall(r"(\w+)#", scan)}


def test_a_limit_is_taken_task_by_task(spark: SparkSession) -> None:
    """The store has nine files; before, each of them was read for the first rows of one. Two tasks more make the table
    of rows that are there."""
    sql = StoreSql(spark, str(store_path("clean")), {"split_size": "0"})
    context = spark.sparkContext
    for statement, rows, tasks in (
        ("select * from messages limit 3", 3, 3),
        ("select topic, queue_offset from messages limit 2 offset 4", 2, 3),
        ("select * from (select * from messages limit 0)", 0, 0),
        ("select topic from messages limit 1000000", 2500, 10),
    ):
        context.setJobGroup(statement, statement)
        try:
            table = sql.answer(statement)
        finally:
            context.setLocalProperty("spark.jobGroup.id", "")
        assert (table.num_rows, completed_tasks(context, statement) <= tasks) == (rows, True), statement
    everything = sql.answer("select * from messages")
    assert sql.answer("select * from messages limit 7").schema == everything.schema
    assert sql.answer("select * from messages limit 7").to_pylist() == everything.slice(0, 7).to_pylist()
