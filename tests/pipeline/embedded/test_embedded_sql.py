"""SQL in this process: answers as RocketMQ's truth has them, and nothing read that is not needed. That Spark says the
same is tested in test_both_engines.py."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqctl.formats.errors import CorruptError, EngineError, NotAStoreError, UsageError
from rmqctl.pipeline.sql import arrow_views as message_scan
from rmqctl.pipeline.sql import duckdb as module
from rmqctl.pipeline.sql.duckdb import EmbeddedSql, embedded_sql
from rmqctl.pipeline.sql.stores import QueryError
from rmqctl.pipeline.views import TABLES
from rmqctl.store import MessageStore
from rmqctl.store.log.walk import Progress
from rmqctl.store.scan import chosen
from rmqctl.store.scan.batches import BatchMaker
from tests.goldens import GoldenStore, tree_state, truth
from tests.opened import store_path
from tests.pipeline.embedded.asking import rows_of
from tests.quick import every, sample
from tests.store.rocksdb.stores import unpacked


@pytest.mark.parametrize("name", sample(["clean", "features", "v4-clean", "broker-real"], ["features"]))
def test_messages_by_topic(name: str) -> None:
    with embedded_sql(str(store_path(name))) as views:
        found = dict(rows_of(views, "select topic, count(*) from messages group by topic"))
    assert found == Counter(str(row["topic"]) for row in truth(name).messages)


def test_every_view_answers_on_a_broken_store() -> None:
    with embedded_sql(str(store_path("crc-flip-old"))) as views:
        assert rows_of(views, "select count(*) from messages") == [(2499,)]
        errors = rows_of(views, "select code, physical_offset from findings where severity = 'error'")
        assert [offset for _, offset in errors] == [402516]
        dangling = "select physical_offset from consumequeue anti join messages using (physical_offset)"
        assert rows_of(views, dangling) == [(402516,)]
        entries = "select count(*) from index_entries anti join messages using (physical_offset)"
        assert rows_of(views, entries)[0][0] >= 1
        assert rows_of(views, "select * from consumer_offsets") == []
        assert len(rows_of(views, "select topic, log_messages from topics")) == 12


CONDITIONS: dict[str, Any] = {
    "physical_offset between 100000 and 200000": lambda row: 100_000 <= row["phyOffset"] <= 200_000,
    "physical_offset in (0, 223, 1000000, 2000001)": lambda row: row["phyOffset"] in (0, 223, 1_000_000, 2_000_001),
    "topic = 'OrderTopic' and queue_id = 1": lambda row: row["topic"] == "OrderTopic" and row["queueId"] == 1,
    "topic in ('a', 'none of these') and size > 700": lambda row: row["topic"] == "a" and row["storeSize"] > 700,
    "topic = 'a' or physical_offset < 5000": lambda row: row["topic"] == "a" or row["phyOffset"] < 5000,
    "topic <> 'a' and tags is null": lambda row: row["topic"] != "a" and "TAGS" not in row["properties"],
    "not crc_ok or topic = ''' or ''1'' = ''1'": lambda _: False,
    "store_timestamp >= timestamp'2026-11-20 23:29:36.500'": lambda row: row["storeTimestamp"] >= 1_795_217_376_500,
    "store_timestamp = timestamp'2026-11-20 23:29:34.498'": lambda row: row["storeTimestamp"] == 1_795_217_374_498,
    "store_timestamp > timestamp'2030-01-01'": lambda _: False,
    "unique_key = 'FD00000000000000000000000000000257005FFD2B2766E359450102'": lambda row: (
        row["properties"].get("UNIQ_KEY") == "FD00000000000000000000000000000257005FFD2B2766E359450102"
    ),
    "keys = ['key38']": lambda row: row["properties"].get("KEYS") == "key38",
    "tags = 'TagC' and queue_id < 2": lambda row: row["properties"].get("TAGS") == "TagC" and row["queueId"] < 2,
    "msg_id = '7F00000100002A9F00000000000000DF'": lambda row: row["phyOffset"] == 0xDF,
    "body_size > 2000 and sys_flag = 0": lambda row: row["bodyLength"] > 2000 and row["sysFlag"] == 0,
}


@pytest.mark.parametrize("condition", every(2, CONDITIONS))
def test_conditions_find_what_they_say(clean: EmbeddedSql, condition: str) -> None:
    found = rows_of(clean, f"select physical_offset from messages where {condition}")
    wanted = [row["phyOffset"] for row in truth("clean").messages if CONDITIONS[condition](row)]
    assert [offset for (offset,) in found] == wanted
    counted = rows_of(clean, f"select count(*) from messages where {condition}")
    assert counted == [(len(found),)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], list[int]]]:
    """For each query: the columns that were made, and the bytes of the ranges that were walked."""
    found: list[tuple[tuple[str, ...], list[int]]] = []

    def watched(log: Any, span: Any, groups: Any, chooser: Any, maker: Any, *rest: Any, **options: Any) -> Any:
        made: BatchMaker = maker._asked
        if not found or found[-1][0] != made.names:
            found.append((made.names, []))
        found[-1][1].append(span.end - span.start)
        return chosen.scanned(log, span, groups, chooser, maker, *rest, **options)

    def watched_spans(files: Any, task: Any, groups: Any, wanted: Any, maker: Any) -> Any:
        if not found or found[-1][0] != maker._asked.names:
            found.append((maker._asked.names, []))
        found[-1][1].extend(end - begin for begin, end in task.spans)
        return spanned(files, task, groups, wanted, maker)

    spanned = message_scan._spanned
    monkeypatch.setattr(message_scan, "scanned", watched)
    monkeypatch.setattr(message_scan, "_spanned", watched_spans)
    return found


@pytest.mark.parametrize(
    ("query", "columns", "most"),
    [
        ("select topic, count(*) from messages group by topic", {"topic"}, None),
        ("select count(*) from messages", {"physical_offset"}, None),
        ("select tags from messages where body_size > 7", {"tags"}, None),
        ("select m.tags from messages m join consumequeue q using (physical_offset) where q.size > 1",
         {"tags", "physical_offset"}, None),
        ("select size from messages where physical_offset between 100000 and 110000", {"size"}, 30_000),
        ("select size from messages where msg_id = '7F00000100002A9F00000000000000DF'", {"size"}, 300),
        ("select size from messages where topic = 'a' and queue_id = 0", {"size"}, 800_000),
        ("select size from messages where store_timestamp > timestamp'2026-11-20 23:29:36.500'", {"size"}, 1_300_000),
    ],
)  # fmt: skip
def test_no_more_is_read_than_needed(
    clean: EmbeddedSql, reads: list[tuple[tuple[str, ...], list[int]]], query: str, columns: set[str], most: int | None
) -> None:
    clean.answer(query)
    ((names, walked),) = reads
    assert set(names) == columns
    assert sum(walked) <= (most or 1 << 40)
    assert most is not None or sum(walked) > 2_000_000


def test_a_query_that_can_have_no_answer_reads_nothing(
    clean: EmbeddedSql, reads: list[tuple[tuple[str, ...], list[int]]]
) -> None:
    assert rows_of(clean, "select * from messages where 1 = 0") == []
    assert rows_of(clean, "select topic from messages where physical_offset = -5") == []
    assert reads == []


TYPES = {
    "string": "VARCHAR",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "binary": "BLOB",
    "array<string>": "VARCHAR[]",
    "map<string,string>": "MAP(VARCHAR, VARCHAR)",
}
"""A type as Spark's DDL writes it, and what DuckDB calls it."""


@pytest.mark.parametrize("view", TABLES)
def test_columns_have_the_names_order_and_types_of_the_view(clean: EmbeddedSql, view: str) -> None:
    found = [row[:2] for row in rows_of(clean, f"describe {view}")]
    assert found == [(name, TYPES[column.kind]) for name, column in TABLES[view].columns.items()]


def test_whole_numbers_are_bigint_and_times_utc(clean: EmbeddedSql) -> None:
    table = clean.answer("select sum(size) s, count(*) n, max(store_timestamp) t, sum(physical_offset) p from messages")
    assert [str(field.type) for field in table.schema] == ["int64", "int64", "timestamp[us, tz=UTC]", "int64"]
    assert table.column(0)[0].as_py() == sum(row["storeSize"] for row in truth("clean").messages)
    large = clean.answer("select sum(9223372036854775807) s from range(3)")
    assert large.column(0)[0].as_py() == 3 * 9223372036854775807


def test_nulls_come_where_spark_has_them(clean: EmbeddedSql) -> None:
    numbers = "(values (2), (null), (1)) t(a)"
    assert rows_of(clean, f"select a from {numbers} order by a") == [(None,), (1,), (2,)]
    assert rows_of(clean, f"select a from {numbers} order by a desc") == [(2,), (1,), (None,)]


def test_names_of_spark_that_are_understood(clean: EmbeddedSql) -> None:
    statement = """select collect_list(a) l, len(collect_set(b)) s, decode(encode('é'), 'utf-8') d,
        unix_millis(timestamp'1970-01-01 00:00:01') u from (values (1, 1), (null, 1), (3, 2)) t(a, b)"""
    assert rows_of(clean, statement) == [([1, 3], 2, "é", 1000)]
    assert rows_of(clean, "select explode([1, 2])") == [(1,), (2,)]


def test_views_of_ones_own_last(clean: EmbeddedSql) -> None:
    assert clean.answer("create or replace temporary view big as select topic from messages where size > 3000").equals(
        pa.table({})
    )
    wanted = [row["topic"] for row in truth("clean").messages if row["storeSize"] > 3000]
    assert [topic for (topic,) in rows_of(clean, "select topic from big")] == wanted
    assert ("big",) in rows_of(clean, "show tables")
    clean.answer("drop view big")
    with pytest.raises(QueryError, match="big does not exist"):
        clean.answer("select * from big")


@pytest.mark.parametrize(
    "statement",
    [
        "explain select topic from messages where queue_id = 1",
        "explain analyze select 1",
        "describe messages",
        "summarize topics",
        "show tables",
        "with big as (select * from messages where size > 3000) select tags, count(*) from big group by all",
        "from messages select topic limit 1",
        "table topics",
        "values (1)",
        "pivot topics on perm using count(*)",
        "set variable wanted = 'a'",
        "-- a comment; and another\nselect /* ; */ 1",
    ],
)
def test_what_else_is_understood(clean: EmbeddedSql, statement: str) -> None:
    assert clean.answer(statement) is not None


def test_a_plan_says_what_is_handed_over(clean: EmbeddedSql) -> None:
    table = clean.answer("explain select topic from messages where queue_id = 1")
    assert table.schema.names == ["plan"]
    plan = table.column(0)[0].as_py()
    assert "queue_id" in plan
    assert "body" not in plan


def test_errors_of_the_store_keep_their_class(golden_store: GoldenStore, tmp_path: Path) -> None:
    damaged = golden_store("rocksdb")
    (damaged / "consumequeue/CURRENT").write_text("MANIFEST-000099\n")
    with embedded_sql(str(damaged)) as views, pytest.raises(CorruptError, match="this RocksDB cannot be read"):
        views.answer("select * from consumequeue")
    store = golden_store("broker-real")
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text('{"offsetTable":{"a@b":{0:', encoding="utf-8")
    with embedded_sql(str(store)) as views:
        with pytest.raises(CorruptError, match=r"consumerOffset\.json.*does not parse"):
            views.answer("select * from consumer_offsets")
        # an error is of its query alone
        assert rows_of(views, "select count(*) from messages") == [(len(truth("broker-real").messages),)]
    with pytest.raises(NotAStoreError), embedded_sql(str(tmp_path / "none")):
        pass
    with pytest.raises(UsageError), embedded_sql(str(store), {"split_size": "much"}):
        pass


def test_an_answer_that_is_too_large_is_said(monkeypatch: pytest.MonkeyPatch, clean: EmbeddedSql) -> None:
    monkeypatch.setattr(module, "LARGEST_ANSWER", 1_000_000)
    with pytest.raises(EngineError, match="larger than 1000000 bytes"):
        clean.answer("select * from messages")
    assert rows_of(clean, "select count(*) from messages") == [(2500,)]


def test_memory_is_bound() -> None:
    statement = "select len(list(a)) from range(30000000) t(a)"
    with embedded_sql(str(store_path("clean")), memory="50MB") as views:
        with pytest.raises(EngineError, match="needs more memory than it may take"):
            views.answer(statement)
        assert rows_of(views, "select 1") == [(1,)]


@pytest.mark.thorough
def test_looking_changes_nothing(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    before = tree_state(store)
    with embedded_sql(str(store)) as views:
        for view in TABLES:
            rows_of(views, f"select count(*) from {view}")
    assert tree_state(store) == before


def test_progress_is_told_in_bytes_of_the_log(clean: EmbeddedSql) -> None:
    told: list[int] = []
    advance: Progress = told.append
    clean.answer("select count(*) from messages", advance)
    assert sum(told) > 2_000_000


def test_a_group_past_the_end_has_no_lag_that_is_known(golden_store: GoldenStore) -> None:
    """As in `rmqctl groups`: a sum over groups is not made smaller by one that is past an end."""
    store = golden_store("broker-real")
    path = store / "config" / "consumerOffset.json"
    text = path.read_text(encoding="utf-8")
    changed = re.sub(r'("Events@g-events":\{\s*0:)\d+', r"\g<1>9999", text)
    assert changed != text
    path.write_text(changed, encoding="utf-8")
    with MessageStore.open(store) as opened:
        known = {(row.group, row.topic, row.queue_id): row.lag for row in opened.groups() if row.offset is not None}
    with embedded_sql(str(store)) as views:
        rows = rows_of(views, "select consumer_group, topic, queue_id, lag from consumer_offsets")
    assert {row[:3]: row[3] for row in rows} == known
    assert known["g-events", "Events", 0] is None


def test_light_queues_that_are_in_a_rocksdb_alone_are_queues(tmp_path: Path) -> None:
    """As `rmqctl ls --queues` has them: combineCQUseRocksdbForLmq, beside the files of all others."""
    store = unpacked("rocksdb-55", tmp_path)
    with MessageStore.open(store) as opened:
        listed = {(row["topic"], row["queue_id"]): row["messages"] for row in opened.queues()}
    with embedded_sql(str(store)) as views:
        units = rows_of(views, "select topic, queue_id, count(*) n from consumequeue group by all")
        topics = rows_of(views, "select topic, queue_messages from topics where topic like '%LMQ%'")
    assert {row[:2]: row[2] for row in units} == listed
    assert dict(topics) == {topic: count for (topic, _), count in listed.items() if topic.startswith("%LMQ%")}
    assert topics
