"""Several stores in this process: read as one, and side by side under names of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotAStoreError
from rmqctl.pipeline.sql.duckdb import EmbeddedSql, embedded_sql
from rmqctl.pipeline.sql.stores import QueryError
from rmqctl.pipeline.views import TABLES
from tests.goldens import truth
from tests.opened import store_path
from tests.pipeline.embedded.asking import rows_of

NAMES = ("clean", "features")


def _paths() -> list[str]:
    return [str(store_path(name)) for name in NAMES]


@pytest.fixture(scope="module")
def both() -> Iterator[EmbeddedSql]:
    """Two stores read as one, the second attached as well."""
    with embedded_sql(_paths(), attached={"b": _paths()[1]}) as views:
        yield views


def test_rows_say_which_store_they_are_of(both: EmbeddedSql) -> None:
    for view in TABLES:
        counts = dict(rows_of(both, f"select store, count(*) from {view} group by store"))
        assert counts.get(_paths()[1], 0) == rows_of(both, f"select count(*) from b.{view}")[0][0]
    assert rows_of(both, "select distinct broker_name from messages") == [(None,)]
    assert rows_of(both, "select store, count(*) n from messages group by store order by n") == [
        (path, len(truth(name).messages)) for path, name in reversed(list(zip(_paths(), NAMES, strict=True)))
    ]


def _bytes_read(views: EmbeddedSql, statement: str) -> int:
    told: list[int] = []
    views.answer(statement, told.append)
    return sum(told)


def test_a_condition_on_the_store_is_kept(both: EmbeddedSql) -> None:
    """And the other store's log is not read."""
    path = _paths()[1]
    wanted = Counter(str(row["topic"]) for row in truth("features").messages)["OrderTopic"]
    condition = f"store = '{path}' and topic = 'OrderTopic'"
    assert rows_of(both, f"select count(*) from messages where {condition}") == [(wanted,)]
    like = "store like '%features' and topic = 'OrderTopic'"
    assert rows_of(both, f"select count(*) from messages where {like}") == [(wanted,)]
    neither = f"store <> '{path}' or topic = 'no such'"
    assert rows_of(both, f"select distinct store from messages where {neither}") == [(_paths()[0],)]
    for view in ("messages", "topics"):
        alone = _bytes_read(both, f"select max(topic) from b.{view}")
        assert 0 < alone == _bytes_read(both, f"select max(topic) from {view} where store = '{path}'")
        assert alone < _bytes_read(both, f"select max(topic) from {view}")


def test_views_of_two_stores_are_joined(both: EmbeddedSql) -> None:
    keys = {name: {row["properties"].get("UNIQ_KEY") for row in truth(name).messages} - {None} for name in NAMES}
    query = "select store, count(*) from main.messages m semi join b.messages b using (unique_key) group by store"
    found = dict(rows_of(both, query))
    assert found[_paths()[1]] == sum("UNIQ_KEY" in row["properties"] for row in truth("features").messages)
    assert found.get(_paths()[0], 0) == sum(
        row["properties"].get("UNIQ_KEY") in keys["features"] for row in truth("clean").messages
    )


@pytest.mark.parametrize("statement", ["drop view b.messages", "create view b.x as select 1", "drop schema b cascade"])
def test_attached_views_are_not_changed(both: EmbeddedSql, statement: str) -> None:
    with pytest.raises(QueryError, match="would change something"):
        both.answer(statement)


def test_what_is_attached_has_to_be_a_store(tmp_path: Path) -> None:
    with (
        pytest.raises(NotAStoreError, match="none: there is no such directory"),
        embedded_sql(_paths()[0], attached={"b": str(tmp_path / "none")}),
    ):
        pass
