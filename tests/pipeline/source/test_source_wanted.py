"""Filters of Spark as what a message must be: never narrower than the filters, and as narrow as they allow."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from rmqctl.pipeline.spark.source import comparisons
from rmqctl.pipeline.wanted import Range, Wanted, wanted_by
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.native.tables import Columns
from tests.opened import reader

UTC = datetime.UTC
NOON = datetime.datetime(2026, 11, 20, 12, 0, 0, 1500, UTC)
NOON_MS = 1_795_176_000_001


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([], Wanted()),
        ([spark.EqualTo(("physical_offset",), 7)], Wanted(Range(7, 7))),
        ([spark.GreaterThan(("physical_offset",), 7)], Wanted(Range(low=7))),
        ([spark.GreaterThanOrEqual(("PHYSICAL_OFFSET",), 7)], Wanted(Range(low=7))),
        (
            [spark.LessThan(("physical_offset",), 9), spark.LessThanOrEqual(("physical_offset",), 8)],
            Wanted(Range(high=8)),
        ),
        ([spark.In(("physical_offset",), (9, 3, 5))], Wanted(Range(3, 9), places=frozenset((3, 5, 9)))),
        (
            [spark.In(("physical_offset",), (9, 3, 5)), spark.In(("physical_offset",), (5, 9, 11))],
            Wanted(Range(5, 9), places=frozenset((5, 9))),
        ),
        ([spark.In(("physical_offset",), (9, None))], Wanted()),
        ([spark.EqualTo(("queue_id",), 2)], Wanted(queue_ids=Range(2, 2))),
        ([spark.EqualTo(("topic",), "a")], Wanted(topics=frozenset("a"))),
        ([spark.In(("topic",), ("a", "b")), spark.In(("topic",), ("b", "c"))], Wanted(topics=frozenset("b"))),
        ([spark.GreaterThan(("store_timestamp",), NOON)], Wanted(store_times=Range(low=NOON_MS))),
        ([spark.LessThan(("store_timestamp",), NOON)], Wanted(store_times=Range(high=NOON_MS + 1))),
        # these say nothing that could be relied on
        ([spark.Not(spark.EqualTo(("topic",), "a"))], Wanted()),
        ([spark.IsNotNull(("topic",)), spark.IsNull(("store_timestamp",))], Wanted()),
        ([spark.EqualNullSafe(("topic",), None)], Wanted()),
        ([spark.EqualTo(("topic", "x"), "a")], Wanted()),
        ([spark.StringStartsWith(("topic",), "a")], Wanted()),
        ([spark.EqualTo(("physical_offset",), 1.5)], Wanted()),
        ([spark.EqualTo(("crc_ok",), True)], Wanted()),
        ([spark.GreaterThan(("store_timestamp",), NOON.replace(tzinfo=None))], Wanted()),
    ],
)
def test_filters(filters: list[spark.Filter], wanted: Wanted) -> None:
    assert wanted_by(comparisons(filters)) == wanted


def test_a_message_id_says_the_offset() -> None:
    first = "7F00000100002A9F00000000000000DF"
    second = "7F00000100002A9F0000000000001000"
    assert wanted_by(comparisons([spark.EqualTo(("msg_id",), first)])).physical_offsets == Range(0xDF, 0xDF)
    assert wanted_by(comparisons([spark.In(("msg_id",), (first, second, "no id"))])).physical_offsets == Range(
        0xDF, 0x1000
    )
    assert wanted_by(comparisons([spark.EqualTo(("msg_id",), "no id")])).physical_offsets.high < 0


NUMBERS: dict[str, Any] = {
    "physical_offset": st.integers(-5, 2_200_000),
    "queue_id": st.integers(-1, 16),
    "store_timestamp": st.integers(1_795_217_374_000, 1_795_217_377_000).map(
        lambda ms: datetime.datetime.fromtimestamp(ms // 1000, UTC) + datetime.timedelta(milliseconds=ms % 1000)
    ),
    "topic": st.sampled_from(["TopicTest", "a", "OrderTopic", "none of these"]),
}
COMPARED: dict[Any, Any] = {
    spark.EqualTo: lambda left, right: left == right,
    spark.GreaterThan: lambda left, right: left > right,
    spark.GreaterThanOrEqual: lambda left, right: left >= right,
    spark.LessThan: lambda left, right: left < right,
    spark.LessThanOrEqual: lambda left, right: left <= right,
    spark.In: lambda left, right: left in right,
}


@st.composite
def _filters(draw: Any) -> spark.Filter:
    column = draw(st.sampled_from(sorted(NUMBERS)))
    kind = draw(st.sampled_from(list(COMPARED)))
    values = NUMBERS[column]
    value = tuple(draw(st.lists(values, min_size=1, max_size=3))) if kind is spark.In else draw(values)
    made: spark.Filter = kind((column,), value)
    return made


@settings(deadline=None)
@given(st.lists(_filters(), max_size=3))
def test_rows_hold_every_message_that_passes_the_filters(filters: list[Any]) -> None:
    wanted = wanted_by(comparisons(filters))
    for batch in _batches(wanted.needs):
        rows = wanted.rows(batch)
        chosen = set(range(batch.rows)) if rows is None else set(rows.tolist())
        passing = {row for row in range(0, batch.rows, 17) if all(_passes(batch, row, one) for one in filters)}
        assert passing <= chosen
        if all(one.attribute[0] != "topic" or isinstance(one, spark.EqualTo | spark.In) for one in filters) and not any(
            isinstance(one, spark.In | spark.GreaterThan | spark.LessThan) for one in filters
        ):
            assert {row for row in chosen if row % 17 == 0} == passing


def _batches(needs: Columns) -> list[MessageColumns]:
    key = int(needs | Columns.HEAD | Columns.TOPIC)
    if key not in _known:
        log = reader("clean").files.log
        found = walk_columns(log, columns=Columns(key), rows=700)
        _known[key] = [record for record in found if isinstance(record, MessageColumns)]
    return _known[key]


_known: dict[int, list[MessageColumns]] = {}


def _passes(batch: MessageColumns, row: int, one: Any) -> bool:
    column = one.attribute[0]
    value: Any = batch.topic(row) if column == "topic" else int(getattr(batch, column)[row])
    if column == "store_timestamp":
        value = datetime.datetime.fromtimestamp(value // 1000, UTC) + datetime.timedelta(milliseconds=value % 1000)
    passed: bool = COMPARED[type(one)](value, one.value)
    return passed
