"""Units of queues and entries of index files from columns: compiled, plain, and NumPy or the index's own rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT, INDEX_ENTRY
from tests.store.native.forms import compiled_form, plain_form

_INT = st.one_of(st.sampled_from([0, 1, -1, 0x7FFFFFFF, -0x80000000]), st.integers(-(1 << 31), (1 << 31) - 1))
_LONG = st.one_of(st.sampled_from([0, 1, -1, (1 << 63) - 1, -(1 << 63)]), st.integers(-(1 << 63), (1 << 63) - 1))
_ROW = st.tuples(st.integers(0, 3), st.integers(0, 4), _LONG, _LONG, _INT, _LONG, st.booleans())


def _columns(rows: list[Any], kinds: list[Any]) -> list[Any]:
    return [np.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]


@given(st.lists(_ROW, max_size=30))
def test_units_come_together_by_queue(rows: list[tuple[int, int, int, int, int, int, bool]]) -> None:
    topics, queues, slots, offsets, sizes, codes, taken = _columns(
        rows, [np.int32, np.int32, np.int64, np.int64, np.int32, np.int64, np.uint8]
    )
    wanted = sorted((row for row in rows if row[6]), key=lambda row: row[:2])
    for form in (plain_form("units"), compiled_form("units")):
        counts = np.zeros(4 * 5, np.int64)
        form.count_units(topics, queues, taken, 5, counts)
        assert counts.tolist() == [sum(row[:2] == (code // 5, code % 5) for row in wanted) for code in range(20)]
        places = np.cumsum(counts) - counts
        placed, units = np.zeros(len(wanted), np.int64), np.zeros(len(wanted) * CONSUMEQUEUE_UNIT.size, np.uint8)
        form.place_units(topics, queues, slots, offsets, sizes, codes, taken, 5, places, placed, units)
        assert placed.tolist() == [row[2] for row in wanted]
        assert units.tobytes() == b"".join(CONSUMEQUEUE_UNIT.struct.pack(*row[3:6]) for row in wanted)


def test_a_queue_or_a_unit_out_of_range_is_refused() -> None:
    one, two = np.array([9], np.int32), np.array([1], np.int32)
    longs, taken = np.array([1], np.int64), np.ones(1, np.uint8)
    for form in (plain_form("units"), compiled_form("units")):
        with pytest.raises(IndexError):
            form.count_units(one, two, taken, 5, np.zeros(20, np.int64))
        with pytest.raises(IndexError):
            form.count_units(-one, two, taken, 5, np.zeros(20, np.int64))
        with pytest.raises(IndexError):
            form.place_units(
                two, two, longs, longs, one, longs, taken, 5, np.zeros(20, np.int64), longs, np.zeros(19, np.uint8)
            )


@given(st.lists(st.tuples(st.one_of(_INT, st.integers(-9, 9)), _LONG, _LONG), max_size=30), st.integers(1, 7), _LONG)
def test_entries_lead_on_to_the_newest_of_their_slot(rows: list[tuple[int, int, int]], slots: int, first: int) -> None:
    hashes, offsets, times = _columns(rows, [np.int32, np.int64, np.int64])
    newest: dict[int, int] = {}
    wanted = b""
    before = []
    for number, (hashed, offset, time) in enumerate(rows, 3):
        before.append(newest.get(hashed % slots, 0))
        newest[hashed % slots] = number
        seconds = min(max(0, time - first) // 1000, 0x7FFFFFFF) if first > 0 else 0
        wanted += INDEX_ENTRY.struct.pack(hashed, offset, seconds, before[-1])
    for form in (plain_form("units"), compiled_form("units")):
        table, previous = np.zeros(slots, np.int32), np.zeros(len(rows), np.int32)
        assert form.link_entries(hashes, slots, table, 3, previous) == len(newest)
        assert previous.tolist() == before
        assert {at: int(number) for at, number in enumerate(table) if number} == newest
        entries = np.zeros(len(rows) * INDEX_ENTRY.size, np.uint8)
        form.pack_entries(hashes, offsets, times, first, previous, entries)
        assert entries.tobytes() == wanted


@given(st.integers(0, 12).flatmap(lambda count: st.tuples(st.lists(st.booleans(), min_size=count, max_size=count),
       st.tuples(*(st.integers(-1, row - 1) for row in range(count))))))  # fmt: skip
def test_marks_follow_chains_backwards(case: tuple[list[bool], tuple[int, ...]]) -> None:
    marked, earlier = case
    wanted = set()
    for row in (row for row, is_marked in enumerate(marked) if is_marked):
        at = row
        while at >= 0:
            wanted.add(at)
            at = earlier[at]
    for form in (plain_form("units"), compiled_form("units")):
        marks = np.array(marked, np.uint8)
        form.mark_earlier(marks, np.array(earlier, np.int64))
        assert {*np.flatnonzero(marks).tolist()} == wanted
        with pytest.raises(IndexError):
            form.mark_earlier(np.ones(1, np.uint8), np.array([1], np.int64))
