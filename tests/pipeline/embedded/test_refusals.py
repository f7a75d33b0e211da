"""What is not answered: what would change something, get at anything but the store, or is wrong; with a sentence."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rmqctl.pipeline.sql.duckdb import EmbeddedSql
from rmqctl.pipeline.sql.stores import QueryError
from tests.pipeline.embedded.asking import rows_of
from tests.quick import every

CHANGES = [
    "copy messages to '{folder}/out.csv'",
    "copy (select 1) to '{folder}/out.parquet'",
    "explain analyze copy (select 1) to '{folder}/out.csv'",
    "export database '{folder}/out'",
    "attach '{folder}/x.db'",
    "install httpfs",
    "load icu",
    "create table t as select * from messages",
    "create temp table t as select 1",
    "create view v as select 1",
    "create or replace temp view messages as select 1 topic",
    "create macro f(a) as a",
    "create secret s (type s3)",
    "create type t as enum ('a')",
    "insert into messages select * from messages",
    "update topics set topic = 'a'",
    "delete from messages",
    "truncate messages",
    "drop view messages",
    'drop view if exists main."topics"',
    "drop table messages",
    "alter view messages rename to m",
    "comment on view messages is 'x'",
    "pragma database_list",
    "call enable_logging()",
    "checkpoint",
    "begin",
    "prepare p as select 1",
    "set threads = 1",
    "set lock_configuration = false",
    "reset threads",
    "use memory",
    "vacuum",
]


@pytest.mark.parametrize("statement", every(3, CHANGES))
def test_only_queries_are_answered(clean: EmbeddedSql, tmp_path: Path, statement: str) -> None:
    with pytest.raises(QueryError, match="would change something"):
        clean.answer(statement.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert rows_of(clean, "select 1") == [(1,)]


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('{file}')",
        "select * from read_csv('{file}')",
        "select * from '{file}'",
        "select * from glob('{folder}/*')",
        "select * from read_parquet('https://example.org/x.parquet')",
        "select * from enable_logging(storage := 'file', storage_config := {{'path': '{folder}/log'}})",
        "select * from duckdb_secrets()",
        "select query from spying",
    ],
)
def test_nothing_but_the_store_is_reached(clean: EmbeddedSql, tmp_path: Path, query: str) -> None:
    spying = pa.table({"query": ["a variable of Python's"]})
    file = tmp_path / "secret.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(QueryError) as raised:
        clean.answer(query.format(file=file, folder=tmp_path))
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert spying.num_rows == 1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select topc from messages", r'^Referenced column "topc" not found .*"topic".* \(line 1, position 8\)$'),
        ("select 1,\n  topc from messages", r"\(line 2, position 3\)$"),
        ("selec 1", r'^syntax error at or near "selec" \(line 1, position 1\)$'),
        ("select * from message", '^Table with name message does not exist! Did you mean "messages"'),
        ("select 1 // 0", r"^Division by zero in expression"),
        ("select cast(topic as int) from messages", "^Could not convert string '.*' to INT32"),
        ("select foo(topic) from messages", "^Scalar Function with name foo does not exist"),
        ("select topic from messages group by", r'^syntax error at or near "by"'),
        ("select error('a\nb')", "^a b$"),
        ("select 1; select 2", "^these are several statements"),
        ("  -- nothing", "^there is no statement"),
    ],
)
def test_what_is_wrong_with_a_query_is_one_sentence(clean: EmbeddedSql, query: str, said: str) -> None:
    with pytest.raises(QueryError, match=said) as raised:
        clean.answer(query)
    text = str(raised.value)
    assert "\n" not in text
    assert len(text) < 700
    assert not any(word in text for word in ("Error:", "Traceback", "LINE 1", "SET error_on"))


def test_the_views_are_named_where_one_is_not_found(clean: EmbeddedSql) -> None:
    with pytest.raises(QueryError) as raised:
        clean.answer("select * from msgs")
    assert "messages, consumequeue, index_entries" in str(raised.value.hint)
