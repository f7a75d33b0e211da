"""SQL on Spark: with how many tasks what is asked for is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.pipeline.engine.engine import SparkEngine
from rmqctl.pipeline.engine.spark_job import completed_tasks
from rmqctl.pipeline.sql.sql import StoreSql
from rmqctl.store.check.check import check
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.opened import store_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
