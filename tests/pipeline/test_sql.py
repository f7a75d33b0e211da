"""SQL over a store: answers as RocketMQ's truth has them, nothing read that is not needed, nothing changed, and a
sentence for what is wrong."""

from __future__ import annotations

import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError

from rmqctl.formats.errors import CorruptError, EngineError, RmqctlError, UnsupportedError
from rmqctl.pipeline.spark_engine import run_job
from rmqctl.pipeline.splits import SplitEdgeError
from rmqctl.pipeline.sql.spark import StoreSql, _needs
from rmqctl.pipeline.sql.stores import QueryError, query_error
from rmqctl.pipeline.views import TABLES
from tests.goldens import GoldenStore, tree_state, truth
from tests.opened import store_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def clean(spark: SparkSession) -> StoreSql:
    return StoreSql(spark, str(store_path("clean")))


def _answer(sql: StoreSql, statement: str) -> list[tuple[Any, ...]]:
    table = sql.collected(sql.query(statement))
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _of(spark: SparkSession, name: str) -> StoreSql:
    return StoreSql(spark, str(store_path(name)))


@pytest.mark.parametrize("name", ["clean", "features", "v4-clean", "broker-real"])
def test_messages_by_topic(spark: SparkSession, name: str) -> None:
    found = dict(_answer(_of(spark, name), "select topic, count(*) from messages group by topic"))
    assert found == Counter(str(row["topic"]) for row in truth(name).messages)


def test_every_view_answers_on_a_broken_store(spark: SparkSession) -> None:
    sql = _of(spark, "crc-flip-old")
    by_topic = dict(_answer(sql, "select topic, count(*) from messages group by topic"))
    assert sum(by_topic.values()) == 2499
    errors = _answer(sql, "select code, physical_offset from findings where severity = 'error'")
    assert [offset for _, offset in errors] == [402516]
    dangling = """select q.topic, q.queue_offset, q.physical_offset from consumequeue q
        left anti join messages m on m.physical_offset = q.physical_offset"""
    assert [row[2] for row in _answer(sql, dangling)] == [402516]
    entries = "select count(*) from index_entries left anti join messages using (physical_offset)"
    assert _answer(sql, entries)[0][0] >= 1
    assert _answer(sql, "select * from consumer_offsets") == []
    assert len(_answer(sql, "select topic, log_messages from topics")) == 12


# of statements that both engines know tests/pipeline/embedded/test_both_engines.py has the same answers
QUERIES = [
    "from messages |> where size > 4000 |> aggregate count(*) group by topic",
    "select count(distinct topic), max(struct(size, msg_id)) from messages",
]


@pytest.mark.parametrize("query", QUERIES)
def test_reading_only_what_is_needed_changes_no_answer(spark: SparkSession, clean: StoreSql, query: str) -> None:
    found = _answer(clean, query)
    for view in ("messages", "consumequeue", "topics"):
        source = spark.read.format("rocketmq").option("view", view)
        source.load(str(store_path("clean"))).createOrReplaceTempView(view)
    try:
        wanted = spark.sql(query).toArrow()
    finally:
        clean._show_stand_ins(("messages", "consumequeue", "topics"))
    rows = zip(*(column.to_pylist() for column in wanted.columns), strict=True)
    assert found
    assert sorted(map(repr, found)) == sorted(map(repr, rows))


@pytest.mark.parametrize(
    ("query", "needs"),
    [
        ("select topic, count(*) from messages group by topic", {"messages": {"topic"}}),
        ("select count(*) from messages", {"messages": set()}),
        ("select 1", {}),
        ("select topic from messages where 1 = 0", {}),
        ("select (select max(size) from messages), code from findings", {"messages": {"size"}, "findings": {"code"}}),
        ("select m.tags from messages m join consumequeue q using (physical_offset) where q.size > 1",
         {"messages": {"tags", "physical_offset"}, "consumequeue": {"physical_offset", "size"}}),
        ("select tags from messages where body like '%x%' and size > 7", {"messages": {"tags", "body", "size"}}),
    ],
)  # fmt: skip
def test_the_columns_that_a_query_needs(clean: StoreSql, query: str, needs: dict[str, set[str]]) -> None:
    assert _needs(clean._optimized(query)) == needs


@pytest.mark.parametrize(
    "query",
    [
        """select (select count(*) from messages where topic = 'a'), (select count(*) from messages where queue_id = 1),
        (select count(*) from messages where physical_offset < 100000), (select count(*) from messages)""",
        "select count(*) from messages a join messages b using (queue_id) where a.topic = 'a' and b.topic = 'TBW102'",
        """with m as (select * from messages) select count(*) from m where physical_offset < 20000
        union all select count(*) from m order by 1""",
        "select count(*) from few, messages where messages.topic = 'a' and few.queue_id = messages.queue_id",
    ],
)
def test_conditions_of_one_place_do_not_reach_another(spark: SparkSession, clean: StoreSql, query: str) -> None:
    """Spark plans all places of one relation by the conditions of the one that it comes to last."""
    clean.query("create or replace temporary view few as select * from messages where physical_offset < 50000")
    found = clean.answer(query).to_pylist()
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        wanted = clean.answer(query).to_pylist()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", str(before))
        clean.query("drop view few")
    assert found == wanted
    assert all(any(row.values()) for row in found)


def test_a_query_of_two_columns_plans_two(clean: StoreSql) -> None:
    (row,) = _answer(clean, "explain select topic from messages where queue_id = 1")
    assert "BatchScan rocketmq[topic" in row[0]
    assert "body" not in row[0]
    assert "EqualTo" in row[0] or "PushedFilters" in row[0] or "queue_id" in row[0]


def test_views_of_ones_own_last(clean: StoreSql) -> None:
    clean.query("create or replace temporary view big as select topic, size from messages where size > 3000")
    wanted = [row["topic"] for row in truth("clean").messages if row["storeSize"] > 3000]
    assert sorted(topic for (topic,) in _answer(clean, "select topic from big")) == sorted(wanted)
    assert ("", "big", True) in _answer(clean, "show views")
    clean.query("drop view big")
    with pytest.raises(QueryError, match="`big` cannot be found"):
        clean.query("select * from big")


def test_columns_say_what_they_are(clean: StoreSql) -> None:
    assert _answer(clean, "describe consumer_offsets")[3][:2] == ("consumer_offset", "bigint")
    assert all(about for _, _, about in _answer(clean, "describe messages"))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select topc from messages", r"`topc` cannot be resolved\. Did you mean .*`topic`.* \(line 1, position 8\)$"),
        ("selec 1", r"^Syntax error at or near 'selec' \(line 1, position 1\)$"),
        ("select * from message", "^The table or view `message` cannot be found"),
        ("select 1 / 0", r"^Division by zero\. .* \(line 1, position 8\)$"),
        ("select cast(topic as int) from messages", "cannot be cast to \"INT\""),
        ("select foo(topic) from messages", "Cannot resolve routine `foo`"),
        ("select topic from messages group by", "Syntax error"),
        ("select raise_error('a\nb')", "^a b$"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_query_is_one_sentence(clean: StoreSql, query: str, said: str) -> None:
    with pytest.raises(QueryError, match=said) as raised:
        clean.collected(clean.query(query))
    text = str(raised.value)
    assert "\n" not in text
    assert len(text) < 700
    assert not any(word in text for word in ("SQLSTATE", "org.apache", "Traceback", "Project", "\tat "))


def test_the_views_are_named_where_one_is_not_found(clean: StoreSql) -> None:
    with pytest.raises(QueryError) as raised:
        clean.query("select * from msgs")
    assert "messages, consumequeue, index_entries" in str(raised.value.hint)


CHANGES = [
    "insert overwrite directory '{folder}/out' using csv select 1",
    "create table t using parquet location '{folder}/out' as select * from messages",
    "create table t (a int) using csv location '{folder}/out'",
    "with x as (select 1) insert into messages select * from x",
    "from messages insert into t select topic insert into u select topic",
    "cache table messages",
    "drop table messages",
    "truncate table messages",
    "delete from messages",
    "add jar '{folder}/x.jar'",
    "load data inpath '{folder}' into table messages",
    "execute immediate 'drop table messages'",
    "begin insert into t values (1); end",
    "create function f() returns int return 1",
    "call system.f()",
]


@pytest.mark.parametrize("statement", CHANGES)
def test_only_queries_are_answered(clean: StoreSql, tmp_path: Path, statement: str) -> None:
    with pytest.raises(QueryError, match="would change something"):
        clean.query(statement.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


CALL = "('java.lang.System', 'setProperty', 'rmqctl.test', 'called')"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"select java_method{CALL}", "java_method would run methods of Java"),
        (f"select (select `reflect`{CALL})", "reflect would run methods of Java"),
        (f"select topic from messages where try_reflect{CALL} is null", "try_reflect would run methods of Java"),
        (f"select identifier('java_' || 'method'){CALL}", "java_method would run methods of Java"),
        (f"select system.builtin.java_method{CALL}", "java_method would run methods of Java"),
        (f"explain select reflect{CALL}", "reflect would run methods of Java"),
        (f"create temporary view called as select reflect{CALL}", "reflect would run methods of Java"),
        (f"declare variable called string default reflect{CALL}", "reflect would run methods of Java"),
        ("select transform(topic) using 'touch {folder}/out' from messages", "would run a program"),
        ("explain insert overwrite directory '{folder}/out' using csv select 1", "would change something"),
        ("explain create table t using csv location '{folder}/out' as select 1", "would change something"),
    ],
)
def test_a_query_runs_no_code(spark: SparkSession, clean: StoreSql, tmp_path: Path, statement: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        clean.answer(statement.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []
    jvm: Any = spark.sparkContext._jvm
    assert jvm.java.lang.System.getProperty("rmqctl.test") is None


def test_views_of_an_attached_store(spark: SparkSession) -> None:
    sql = StoreSql(spark, str(store_path("clean")), attached={"b": str(store_path("features"))})
    count = len(truth("features").messages)
    for query in (
        "select count(*) from b.messages", "select count(messages.topic) from B.`Messages` where messages.size > 0",
        "with x as (table b.messages) select count(*) from x", "from b.messages |> aggregate count(*)",
        "select count(*) from main.messages m semi join b . messages n on m.topic = n.topic having count(*) > 0 union "
        "select count(*) from b.messages minus select count(*) from messages m semi join b.messages n using (topic)",
        "select 'b.messages is no name here' x, count(*) from b.messages group by 1",
        f"select (select count(*) from b.messages tablesample ({count} rows))",
    ):  # fmt: skip
        assert [row[-1] for row in _answer(sql, query)] == [count], query
    assert _answer(sql, "describe b.topics")[0][:2] == ("topic", "string")
    assert "BatchScan rocketmq[topic" in _answer(sql, "explain select topic from b.messages")[0][0]
    with pytest.raises(QueryError, match=r"`c`\.`messages` cannot be found"):
        sql.query("select * from c.messages")
    with pytest.raises(QueryError, match="would change something"):
        sql.query("insert into b.messages select * from messages")


def test_looking_changes_nothing(spark: SparkSession, golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    before = tree_state(store)
    sql = StoreSql(spark, str(store))
    for view in TABLES:
        _answer(sql, f"select count(*) from {view}")
    assert tree_state(store) == before


def test_errors_of_the_store_keep_their_class(spark: SparkSession, golden_store: GoldenStore) -> None:
    damaged = golden_store("rocksdb")
    (damaged / "consumequeue/CURRENT").write_text("MANIFEST-000099\n")
    with pytest.raises(CorruptError, match="this RocksDB cannot be read"):
        _answer(StoreSql(spark, str(damaged)), "select * from consumequeue")
    store = golden_store("broker-real")
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text('{"offsetTable":{"a@b":{0:', encoding="utf-8")
    with pytest.raises(CorruptError, match=r"consumerOffset\.json.*does not parse"):
        _answer(StoreSql(spark, str(store)), "select * from consumer_offsets")


def test_a_split_that_cannot_know_its_edge_makes_it_whole_files(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = _of(spark, "clean")
    collected = sql.collected

    def edgy(frame: DataFrame) -> pa.Table:
        if sql._views["messages"].options.get("split_size") != "0":
            error = query_error(PySparkRuntimeError(_told_by_a_worker(SplitEdgeError("at offset 7: a record hides"))))
            assert isinstance(error, SplitEdgeError)
            raise error
        return collected(frame)

    monkeypatch.setattr(sql, "collected", edgy)
    assert sql.answer("select count(*) from messages").to_pylist() == [{"count(1)": 2500}]


def _told_by_a_worker(error: Exception) -> str:
    """The end of a traceback, as a Python worker of Spark sends it to the driver."""
    return "...\n" + "".join(traceback.format_exception(error))


def test_errors_that_are_not_the_querys() -> None:
    assert query_error(ValueError("x")) is None
    kept = UnsupportedError("x")
    assert query_error(kept) is kept


@pytest.mark.parametrize("kind", [UnsupportedError, CorruptError, SplitEdgeError])
def test_errors_of_a_worker_keep_their_class(kind: type[RmqctlError]) -> None:
    error = query_error(PySparkRuntimeError(_told_by_a_worker(kind("a sentence"))))
    assert type(error) is kind
    assert str(error) == "a sentence"


def test_a_result_that_is_too_large_is_said(spark: SparkSession) -> None:
    told = (
        "Total size of serialized results of 3 tasks (1.1 GiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)"
    )
    error = query_error(PySparkRuntimeError(f"Job aborted due to stage failure: {told}"))
    assert isinstance(error, EngineError)
    assert "maxResultSize=4g" in str(error.hint)


def test_a_job_tells_its_tasks_and_hands_errors_on(spark: SparkSession) -> None:
    told: list[int] = []
    numbers = spark.sparkContext.parallelize(range(8), 8)

    def slowly(number: int) -> int:
        import time

        time.sleep(0.3)
        return number

    assert run_job(spark, "test", lambda: numbers.map(slowly).sum(), told.append) == 28
    assert 0 < sum(told) <= 8

    def fail() -> int:
        raise QueryError("no")

    with pytest.raises(RmqctlError, match="no"):
        run_job(spark, "test", fail)
