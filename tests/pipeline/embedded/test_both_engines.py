"""DuckDB in this process and Spark have the same answers: every view of golden stores that differ in what views show,
what docs/sql.md asks, and what it says of their differences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rmqctl.formats.errors import RmqctlError
from rmqctl.pipeline.sql.arrow_views import view_arrow_schema
from rmqctl.pipeline.sql.duckdb import EmbeddedSql, embedded_sql
from rmqctl.pipeline.sql.spark import StoreSql
from rmqctl.pipeline.sql.stores import QueryError
from rmqctl.pipeline.views import TABLES
from rmqctl.sql_prompt import cut_statements
from tests.goldens import broker_conf, properties
from tests.opened import store_path
from tests.pipeline.source.reading import REPRESENTATIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERS = ("checkpoint-lost-abort", "compaction", "log-gone", "propcrc", "stray-file", "v4-cqext")
"""Stores with something in a view that none of REPRESENTATIVE has."""

DOCUMENT = (Path(__file__).parents[3] / "docs/sql.md").read_text(encoding="utf-8")


class Both:
    """A store, asked by both."""

    def __init__(self, here: EmbeddedSql, spark: StoreSql) -> None:
        self.here = here
        self.spark = spark


@pytest.fixture(scope="module")
def clean(spark: SparkSession) -> Iterator[Both]:
    path, attached = str(store_path("clean")), {"b": str(store_path("features"))}
    with embedded_sql(path, attached=attached) as here:
        yield Both(here, StoreSql(spark, path, attached=attached))


def _plain(array: pa.ChunkedArray) -> list[Any]:
    """Values; moments as microseconds, which Python's dates do not reach all of."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    return list(array.to_pylist())


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*map(_plain, table.columns), strict=True))


def _types(table: pa.Table) -> list[tuple[str, str]]:
    """Names and types; what the elements of a list are called says nothing, nor that none is null."""
    return [(field.name, re.sub(r" not null|(?<=list<)\w+: ", "", str(field.type))) for field in table.schema]


def _answer(views: Any, statement: str) -> Any:
    try:
        return views.answer(statement)
    except RmqctlError as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", [*REPRESENTATIVE, *OTHERS])
def test_views_of_a_store_are_the_same(spark: SparkSession, name: str, tmp_path: Path) -> None:
    path, options = str(store_path(name)), {}
    if "store.storePathCommitLog" in properties(name):
        options["config"] = str(broker_conf(name, store_path(name).parent))
    on_spark = StoreSql(spark, path, options)
    with embedded_sql(path, options) as here:
        for view in TABLES:
            found, wanted = (_answer(views, f"select * from {view}") for views in (here, on_spark))
            if isinstance(wanted, tuple):
                assert found == wanted, view
                continue
            assert _types(found) == _types(wanted), view
            assert _rows(found) == _rows(wanted), view


def test_the_columns_are_those_of_the_tables() -> None:
    for view, table in TABLES.items():
        assert sorted(view_arrow_schema(view).names) == sorted(table.columns)


def _asked_in_the_document() -> list[str]:
    blocks = re.findall(r"```sql\n(.*?)```", DOCUMENT, re.DOTALL)
    found = cut_statements("\n".join(blocks)).statements
    assert len(found) > 4
    return found


STATEMENTS = [
    *_asked_in_the_document(),
    "select topic, count(*) n from messages group by topic order by n desc",
    "select msg_id, topic, size from messages where size > 5000",
    "select sum(lag) lag from consumer_offsets group by all",
    "select topic, tags, count(*) n, sum(size) bytes from messages group by all order by topic, tags limit 6",
    "select count(*) from messages",
    "select 1 where (select count(*) from messages) = 2500",
    "select tags from messages where 1 = 1 or body is null",
    "select topic from messages where physical_offset in (select physical_offset from consumequeue where size > 5000)",
    "select a.topic, b.tags from messages a join messages b using (unique_key) where a.size > 3000",
    "select topic from messages union all select cast(queue_id as string) from consumequeue",
    "select topic, sum(size) over (partition by queue_id order by physical_offset) from messages where size > 2000",
    "with big as (select * from messages where size > 3000) select tags, count(*) from big group by all",
    "select * except (body, properties, stored_body) from messages where size > 4000",
    "select explode(keys) from messages where queue_id = 3",
    "select count(distinct topic), max(size), avg(size), min(store_timestamp) from messages",
    "select topic, (select max(size) from messages m where m.topic = t.topic) from topics t",
    "table topics",
    "select properties['KEYS'] from messages where tags is not null and properties['KEYS'] like '%1%'",
    "select decode(body, 'utf-8') from messages where physical_offset = 0",
    "select tags from messages order by tags, physical_offset limit 200",
    "select tags from messages order by tags desc, physical_offset limit 2000",
    "select topic from messages qualify row_number() over (partition by topic order by size, physical_offset) = 1",
    "select unix_millis(store_timestamp) - unix_millis(born_timestamp), size(keys) from messages where queue_id = 1",
    "select date_trunc('second', store_timestamp) s, count(*) from messages group by 1 order by s",
    "select store_timestamp from messages where store_timestamp > timestamp'2026-11-20 23:29:36.5'",
    "select regexp_like(tags, '^Tag[AB]$'), 7 / 2, 7 % 3, topic || '-' || queue_id from messages where queue_id = 0",
    "select topic, queue_id, count(*) from messages group by grouping sets ((topic), (queue_id))",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_has_the_same_answer(clean: Both, statement: str) -> None:
    found, wanted = clean.here.answer(statement), clean.spark.answer(statement)
    assert [kind for _, kind in _types(found)] == [kind for _, kind in _types(wanted)]
    if "order by" in statement.rpartition(")")[2]:
        assert _rows(found) == _rows(wanted)
    else:
        assert sorted(map(repr, _rows(found))) == sorted(map(repr, _rows(wanted)))


@pytest.mark.parametrize("statement", ["select 1 / 0", "select cast('x' as int)", "select no_such from messages"])
def test_both_refuse(clean: Both, statement: str) -> None:
    for views in (clean.here, clean.spark):
        with pytest.raises(QueryError):
            views.answer(statement)


def _told_apart() -> list[tuple[str, str]]:
    """Rows of the table of differences: how it is said here and on Spark."""
    table = DOCUMENT.partition("| on Spark |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| [^|]+ \| (?:`` (.+?) ``|`(.+?)`)[^`]*\| (?:`` (.+?) ``|`(.+?)`) \|$", table, re.MULTILINE)
    assert len(rows) == table.count("\n") == 7
    return [(one or two, three or four) for one, two, three, four in rows]


@pytest.mark.parametrize(("here", "on_spark"), _told_apart())
def test_what_the_document_tells_apart_comes_to_the_same(clean: Both, here: str, on_spark: str) -> None:
    found, wanted = (f"select {said} from messages where physical_offset = 0" for said in (here, on_spark))
    rows = _rows(clean.here.answer(found))
    assert rows
    assert rows == _rows(clean.spark.answer(wanted))
    said = _answer(clean.here, wanted), _answer(clean.spark, found)
    assert any(isinstance(one, tuple) or _rows(one) != rows for one in said), "then it need not be told"


def _only(where: str) -> list[str]:
    text = DOCUMENT.partition(f"\nOnly {where}: ")[2].partition("\n\n")[0]
    found = [one.replace("\n", " ") for one in re.findall(r"`([^`]+)`", text) if " " in one and one != "anti join"]
    assert len(found) > 3
    return found


@pytest.mark.parametrize("statement", _only("in this process"))
def test_what_spark_cannot_do(clean: Both, statement: str) -> None:
    clean.here.answer(statement)
    with pytest.raises(QueryError):
        clean.spark.answer(statement)


@pytest.mark.parametrize("statement", _only("on Spark"))
def test_what_cannot_be_done_in_this_process(clean: Both, statement: str) -> None:
    clean.spark.answer(statement)
    with pytest.raises(QueryError):
        clean.here.answer(statement)
