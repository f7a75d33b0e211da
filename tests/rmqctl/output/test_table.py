"""The layout of tables: what gives way, in which order, and what never does."""

from __future__ import annotations

from typing import Any

import pytest

from rmqctl.output.table import NARROWEST, NARROWEST_PATH, table_layout

TIME = 1_700_000_000_000
ROW: dict[str, Any] = {
    "physical_offset": 52319,
    "topic": "OrderTopicWithALongName",
    "store_timestamp": TIME,
    "keys": ["k1", "k2"],
    "body": "b" * 200,
}
NAMES = tuple(ROW)


def lines(available: int | None, droppable: tuple[str, ...] = (), row: dict[str, Any] = ROW) -> list[str]:
    layout = table_layout(tuple(row), [row], available, droppable)
    return [*layout.header(), layout.line(row)]


def test_piped_nothing_is_cut_or_dropped() -> None:
    header, line = lines(None, ("keys",))
    assert header.split() == ["physical", "offset", "topic", "store", "keys", "body"]
    assert "b" * 200 in line
    assert "2023-11-14T22:13:20.000Z" in line


def test_what_fits_is_left_alone() -> None:
    header, line = lines(400)
    assert header.startswith("physical offset  topic")
    assert line.endswith("b" * 200)


@pytest.mark.parametrize("available", [120, 100, 80, 70])
def test_it_fits(available: int) -> None:
    assert max(map(len, lines(available, ("keys",)))) <= available


def test_titles_break_and_times_lose_their_milliseconds_before_texts_are_cut_short() -> None:
    *header, line = lines(80)
    assert header == ["physical", "  offset  topic          store                keys    body"] or len(header) == 2
    assert "2023-11-14 22:13:20 " in line
    assert "52319" in line


def test_columns_are_dropped_in_their_order_when_nothing_else_helps() -> None:
    assert "keys" in lines(70, ("keys", "body"))[-2]
    narrow = lines(52, ("keys", "body"))
    assert "keys" not in narrow[-2]
    assert "body" in narrow[-2]
    narrower = lines(42, ("keys", "body"))
    assert "body" not in narrower[-2]
    assert "52319" in narrower[-1]


def test_numbers_and_times_are_never_cut() -> None:
    row = {"n": -(2**62), "store_timestamp": TIME, "topic": "t" * 50}
    line = lines(10, row=row)[-1]
    assert str(-(2**62)) in line
    assert "2023-11-14 22:13:20" in line
    assert line.endswith("t" * (NARROWEST - 1) + "…")


def test_paths_keep_their_end() -> None:
    row = {"path": "consumequeue/" + "x" * 100 + "/0/00000000000000002000", "size": 2000}
    line = lines(60, row=row)[-1]
    assert line.startswith("…")
    assert "/0/00000000000000002000  " in line
    assert len(lines(20, row=row)[-1].split()[0]) == NARROWEST_PATH
