"""Units brought together by queue: counted, and sorted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.store.log.implied import QueueUnits, UnitColumns, sorted_by_queue, units_by_queue

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
ROW = st.tuples(st.integers(0, 3), st.integers(-1, 5), LONG, LONG, INT, LONG, st.booleans())
KINDS = (np.int32, np.int32, np.int64, np.int64, np.int32, np.int64, np.bool_)


def _part(rows: list[tuple[int, ...]]) -> UnitColumns:
    columns: list[Any] = [np.array([row[at] for row in rows], kind) for at, kind in enumerate(KINDS)]
    columns[6] &= columns[1] >= 0
    return UnitColumns(*columns)


def _lists(found: QueueUnits) -> list[object]:
    edges = [0, *found.ends.tolist()]
    parts = [slice(*edge) for edge in itertools.pairwise(edges)]
    queues = zip(found.topic_ids.tolist(), found.queue_ids.tolist(), parts, strict=True)
    return [(topic, queue, found.slots[part].tolist(), found.units[part].tolist()) for topic, queue, part in queues]


@settings(deadline=None)
@given(st.lists(st.lists(ROW, min_size=1, max_size=12), max_size=4))
def test_counted_and_sorted(parts: list[list[tuple[int, ...]]]) -> None:
    columns = [_part(rows) for rows in parts]
    expected: dict[tuple[int, int], list[tuple[int, tuple[int, ...]]]] = {}
    for topic, queue, slot, *unit, taken in (row for rows in parts for row in rows):
        if taken and queue >= 0:
            expected.setdefault((topic, queue), []).append((slot, tuple(unit)))
    wanted = [
        (*queue, [slot for slot, _ in units], [unit for _, unit in units]) for queue, units in sorted(expected.items())
    ]
    assert _lists(units_by_queue(columns, False)) == wanted
    if columns:
        assert _lists(sorted_by_queue(columns, False)) == wanted


def test_queue_ids_beyond_what_is_counted() -> None:
    """A damaged or hostile id must not cost memory for all the ids below it."""
    part = _part([(0, (1 << 31) - 1, 5, 6, 7, 8, True), (3, 0, 1, 2, 3, 4, True)])
    found = units_by_queue([part], False)
    assert [*zip(found.topic_ids, found.queue_ids, strict=True)] == [(0, (1 << 31) - 1), (3, 0)]


def test_rows_are_places_among_all_messages() -> None:
    part = _part([(0, 1, 5, 6, 7, 8, False), (0, 1, 1, 2, 3, 4, True), (0, 0, 9, 9, 9, 9, True)])
    found = units_by_queue([part, part], True)
    assert found.rows is not None
    assert [one.tolist() for one in np.split(found.rows, found.ends[:-1])] == [[2, 5], [1, 4]]
