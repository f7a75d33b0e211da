"""Values of SQL's answers as they are printed: no type of Arrow fails, and nothing is shown as what it is not."""

from __future__ import annotations

import json
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from rmqctl.sql_prompt import cut_statements, json_rows, printable_rows, unique_names

MICROS = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("values", "kind", "printed"),
    [
        ([1, None], pa.int64(), [1, None]),
        ([True, None], pa.bool_(), [True, None]),
        ([1.5, float("nan"), float("-inf"), None], pa.float64(), [1.5, "nan", "-inf", None]),
        ([Decimal("12.00"), Decimal("0.50"), Decimal("1e30")], pa.decimal128(38, 2), [12, 0.5, 1e30]),
        ([Decimal("0.1234567890123456789")], pa.decimal128(38, 19), ["0.1234567890123456789"]),
        ([1_700_000_000_123_000, 1_700_000_000_123_456, None], MICROS,
         ["2023-11-14T22:13:20.123Z", "2023-11-14T22:13:20.123456Z", None]),
        ([1_700_000_000_123_000], pa.timestamp("us"), ["2023-11-14T22:13:20.123"]),
        ([(1 << 63) - 1, -1], MICROS, ["9223372036854775", "1969-12-31T23:59:59.999999Z"]),
        ([date(2026, 1, 2)], pa.date32(), ["2026-01-02"]),
        ([timedelta(seconds=90)], pa.duration("us"), ["0:01:30"]),
        (["a", None], pa.string(), ["a", None]),
        ([["a", None], [], None], pa.list_(pa.string()), [["a", None], [], None]),
        ([[("a", 1)], None], pa.map_(pa.string(), pa.int32()), [{"a": 1}, None]),
        ([{"a": 1, "b": b"\xff"}, None], pa.struct([("a", pa.int32()), ("b", pa.binary())]),
         [{"a": 1, "b": "0xff"}, None]),
        ([[1_700_000_000_123_000]], pa.list_(MICROS), [["2023-11-14T22:13:20.123Z"]]),
        ([None, None], pa.null(), [None, None]),
    ],
)  # fmt: skip
def test_values(values: list[Any], kind: pa.DataType, printed: list[Any]) -> None:
    table = pa.table({"x": pa.array(values, kind)})
    assert [row["x"] for row in printable_rows(table)] == printed
    for row in json_rows(table):
        json.dumps(row, allow_nan=False)


def test_bytes_are_text_where_they_are() -> None:
    table = pa.table({"body": pa.array(["Grüße".encode(), b"\xff\x00", None], pa.binary())})
    assert list(printable_rows(table)) == [{"body": "Grüße"}, {"body": "0xff00"}, {"body": None}]
    assert list(json_rows(table)) == [{"body": "Grüße"}, {"body_base64": "/wA="}, {"body": None}]


def test_a_slice_shows_its_own_rows() -> None:
    lists = pa.array([["a"], ["b", "c"], [], ["d"]])
    maps = pa.array([[("a", 1)], [("b", 2)], [], [("d", 4)]], pa.map_(pa.string(), pa.int64()))
    structs = pa.array([{"a": 1}, {"a": 2}, None, {"a": 4}])
    table = pa.table({"l": lists, "m": maps, "s": structs}).slice(1, 3)
    assert [row["l"] for row in printable_rows(table)] == [["b", "c"], [], ["d"]]
    assert [row["m"] for row in printable_rows(table)] == [{"b": 2}, {}, {"d": 4}]
    assert [row["s"] for row in printable_rows(table)] == [{"a": 2}, None, {"a": 4}]


def test_columns_of_one_name_all_show() -> None:
    assert unique_names(["a", "a", "a_2", "b", "a"]) == ["a", "a_2", "a_2_2", "b", "a_3"]
    table = pa.table([[1], [2]], names=["n", "n"])
    assert list(json_rows(table)) == [{"n": 1, "n_2": 2}]


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("select 1", [], "select 1"),
        ("select 1; select 2 ;", ["select 1", "select 2"], ""),
        ("select ';'; select \"a;b\"; x", ["select ';'", 'select "a;b"'], " x"),
        ("select 1 -- no; end\n; select 2", ["select 1 -- no; end"], " select 2"),
        ("/* ; */ select 1; -- done;", ["/* ; */ select 1"], ""),
        ("select 'an ''old; one'''; ", ["select 'an ''old; one'''"], ""),
        (";;;  ; -- nothing", [], ""),
        ("/* open; ", [], ""),
        ("select 'open; ", [], "select 'open; "),
    ],
)
def test_statements(text: str, statements: list[str], rest: str) -> None:
    for of_spark in (False, True):
        assert cut_statements(text, of_spark=of_spark) == (statements, rest)


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("select `c;d`; x", ["select `c;d`"], " x"),
        ("select 'it\\'s; one'; select 'two", ["select 'it\\'s; one'"], " select 'two"),
    ],
)
def test_statements_of_spark(text: str, statements: list[str], rest: str) -> None:
    assert cut_statements(text, of_spark=True) == (statements, rest)


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("select 'a\\'; select 'b'", ["select 'a\\'"], " select 'b'"),
        ("select $$a;b$$, $x$ $$;$x$; select $1;", ["select $$a;b$$, $x$ $$;$x$", "select $1"], ""),
        ("select $$open; ", [], "select $$open; "),
    ],
)
def test_statements_of_duckdb(text: str, statements: list[str], rest: str) -> None:
    assert cut_statements(text) == (statements, rest)
