"""The layout of tables: what gives way, in which order, and what never does."""

from __future__ import annotations

from typing import Any

import pytest

from rmqctl.output.table import NARROWEST, NARROWEST_PATH, leaving_order, table_layout

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
    narrow = lines(62, ("keys", "body"))
    assert "keys" not in narrow[-2]
    assert "body" in narrow[-2]
    narrower = lines(52, ("keys", "body"))
    assert "body" not in narrower[-2]
    assert "52319" in narrower[-1]


def test_numbers_and_times_are_never_cut() -> None:
    row = {"n": -(2**62), "store_timestamp": TIME, "topic": "t" * 50}
    line = table_layout(tuple(row), [row], 10, keeps_all=True).line(row)
    assert str(-(2**62)) in line
    assert "2023-11-14 22:13:20" in line
    assert line.endswith("t" * (NARROWEST - 1) + "…")


def test_paths_keep_their_end() -> None:
    row = {"path": "consumequeue/" + "x" * 100 + "/0/00000000000000002000", "size": 2000}
    line = lines(60, row=row)[-1]
    assert line.startswith("…")
    assert "/0/00000000000000002000  " in line
    assert len(lines(20, row=row)[-1].split()[0]) == NARROWEST_PATH


def test_each_column_has_a_rank() -> None:
    """Those that the table's maker names go first, then the others from the right; what a row is never goes."""
    names = ("topic", "queue_id", "first_store_timestamp", "messages", "bytes", "body", "detail")
    assert leaving_order(names, ("detail", "nothing")) == ["detail", "bytes", "messages", "first_store_timestamp"]
    assert leaving_order(("a", "b", "c"), ()) == ["c", "b"]


def test_what_tells_rows_apart_stays_whole_while_others_can_go() -> None:
    row = {"topic": "a-topic-of-20-letter", "queue_id": 3, "store_timestamp": TIME, "tags": "t" * 9, "bytes": 2048}
    for available in (80, 60, 50, 40, 30):
        header, line = lines(available, row=row)[-2:]
        assert "a-topic-of-20-letter" in line
        assert "3" in line.split()
        assert max(len(header), len(line)) <= available
    assert "store" not in lines(40, row=row)[0]
    assert "…" in lines(20, row=row)[-1]  # when nothing else is left to go


def test_a_statement_keeps_all_its_columns() -> None:
    layout = table_layout(NAMES, [ROW], 40, keeps_all=True)
    assert [column.name for column in layout.columns] == list(NAMES)
