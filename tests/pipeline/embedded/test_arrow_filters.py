"""Expressions of Arrow as comparisons: as DuckDB hands them over, and never more than what they say."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rmqctl.pipeline.sql import arrow_views
from rmqctl.pipeline.sql.arrow_views import Understood, understood
from rmqctl.pipeline.wanted import Comparison

TOPIC, OFFSET, TIME = pc.field("topic"), pc.field("physical_offset"), pc.field("store_timestamp")
NOON = datetime.datetime(2026, 11, 20, 12, 0, 0, 1500, datetime.UTC)
NULL = pa.scalar(None, pa.bool_())


def _said(*comparisons: Comparison, fields: str) -> Understood:
    return Understood(comparisons, frozenset(fields.split()))


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (TOPIC == "a", _said(Comparison("topic", "=", ("a",)), fields="topic")),
        (TOPIC == 'a") or ("1" == "1', _said(Comparison("topic", "=", ('a") or ("1" == "1',)), fields="topic")),
        (TOPIC == "", _said(Comparison("topic", "=", ("",)), fields="topic")),
        (OFFSET >= 7, _said(Comparison("physical_offset", ">", (7,)), fields="physical_offset")),
        (
            (OFFSET > 7) & (OFFSET <= 9) & (TOPIC == "b"),
            _said(
                Comparison("physical_offset", ">", (7,)),
                Comparison("physical_offset", "<", (9,)),
                Comparison("topic", "=", ("b",)),
                fields="topic physical_offset",
            ),
        ),
        (
            pc.if_else(pc.is_valid(OFFSET), pc.is_in(OFFSET, pa.array([3, 5])), NULL),
            _said(Comparison("physical_offset", "in", (3, 5)), fields="physical_offset"),
        ),
        (pa.scalar(NOON) > TIME, _said(Comparison("store_timestamp", "<", (NOON,)), fields="store_timestamp")),
        (
            (TOPIC == "a") | ((TOPIC == "b") & (OFFSET < 3)) | pc.is_in(TOPIC, pa.array(["c"])),
            _said(Comparison("topic", "in", ("a", "b", "c")), fields="topic physical_offset"),
        ),
        ((TOPIC == "a") | (OFFSET == 3), _said(fields="topic physical_offset")),
        ((TOPIC == "a") | ~(TOPIC == "b"), _said(fields="topic")),
        # these say nothing that could be relied on, but name what they look at
        ((TOPIC == "a") | (OFFSET < 3), _said(fields="topic physical_offset")),
        (~(TOPIC == "a"), _said(fields="topic")),
        (TOPIC != "a", _said(fields="topic")),
        (TOPIC.is_valid(), _said(fields="topic")),
        (pc.if_else(TOPIC == "a", OFFSET < 3, pa.scalar(True)), _said(fields="topic physical_offset")),
        (OFFSET + 1 < 3, _said(fields="physical_offset")),
        (pc.scalar(7) == OFFSET, _said(fields="physical_offset")),
        (OFFSET < TIME, _said(fields="physical_offset store_timestamp")),
        (pa.scalar(1 << 62, pa.timestamp("us", "UTC")) < TIME, _said(fields="store_timestamp")),
        (None, _said(fields="")),
    ],
)
def test_what_is_understood(expression: Any, said: Understood) -> None:
    assert understood(expression) == said


@pytest.mark.parametrize("expression", [pc.field("a", "b") == 1, pc.field(("a", "b")).is_valid(), pc.field(3) == 1])
def test_of_what_is_not_known_every_column_is_made(expression: Any) -> None:
    assert understood(expression) == Understood((), None)


def test_another_form_of_the_steps_narrows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [("call", "equal"), ("field_ref", "topic"), ("literal", "0"), ("end", "equal")]
    for other in (steps[:-1], [*steps, *steps], [("new", "x")], [], [*steps[:2], ("literal", "7"), steps[3]]):
        monkeypatch.setattr(arrow_views, "_steps", lambda _, other=other: iter(other))
        assert understood(TOPIC == "a") == Understood((), None), other
