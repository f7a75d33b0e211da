"""Values as people read them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.output import table as cells


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (None, "", "-"),
        ("", "", "-"),
        ("a\x1bb\n", "", r"a\x1bb\n"),
        (True, "abort", "yes"),
        (False, "abort", "no"),
        (7, "queue_id", "7"),
        (-1, "queue_id", "-1"),
        (1_700_000_000_000, "store_timestamp", "2023-11-14T22:13:20.000Z"),
        (0, "store_timestamp", "0"),
        (1_700_000_000_000, "size", "1.5 TiB"),
        (1_700_000_000_000, "resize_count", "1700000000000"),
        (1535, "on_disk_bytes", "1.5 KiB"),
        (0, "bytes", "0 B"),
        (1536, "bytes_left", "1.5 KiB"),
        (709, "lag_ms", "709ms"),
        (16_709, "lag_ms", "16s"),
        (-187_200_000, "lag_ms", "-2d 4h"),
        (0, "lag_ms", "0ms"),
        ({"size": 2048}, "fields", "size=2048"),
        (b"\x00\xff", "", "00ff"),
        (["a", "b\u202e"], "keys", r"a, b\u202e"),
        ([], "keys", "-"),
        ({"k\x07": "v\x07", "n": 1}, "properties", r"k\x07=v\x07 n=1"),
        ({}, "properties", "-"),
        (1.5, "", "1.5"),
    ],
)
def test_cell(value: Any, name: str, expected: str) -> None:
    assert cells.cell(value, name) == expected


def test_sizes_as_digits() -> None:
    assert cells.cell(1_700_000_000_000, "size", digits=True) == "1700000000000"
    assert cells.cell(16_709, "lag_ms", digits=True) == "16709"


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (1_700_000_000_000, "first_store_timestamp", "2023-11-14T22:13:20.000Z (1700000000000)"),
        (0, "first_store_timestamp", "0"),
        (1023, "bytes", "1023"),
        (1536, "file_size", "1536 (1.5 KiB)"),
        (1536, "messages", "1536"),
        (True, "bytes", "yes"),
        (None, "bytes", "-"),
    ],
)
def test_listed(value: Any, name: str, expected: str) -> None:
    assert cells.listed(value, name) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_human_size(count: int, expected: str) -> None:
    assert cells.human_size(count) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "true"),
        (3, 3),
        ("a\nb\x1b", "a\nb\\x1b"),
        (b"\x01", "01"),
        (["a", "\u202e"], '["a", "\\u202e"]'),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_csv_value(value: Any, expected: Any) -> None:
    assert cells.csv_value(value) == expected


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("中文中文", 4, "中 …"),
        ("中文", 4, "中文"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_cut(text: str, width: int, expected: str) -> None:
    assert cells.cut(text, width) == expected


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=30), st.integers(1, 20))
def test_a_cut_and_padded_cell_is_as_wide_as_its_column(text: str, width: int) -> None:
    assert cells.width_of(cells.padded(cells.cut(text, width), width, right=True)) == width


def test_padding_goes_to_the_side_that_is_asked_for() -> None:
    assert (cells.padded("中", 4, right=True), cells.padded("中", 4, right=False)) == ("  中", "中  ")
