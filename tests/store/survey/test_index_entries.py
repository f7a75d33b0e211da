"""Entries of an index file, many at once: plain ones against a list in memory, compiled ones against these (law 8)."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.store.log import implied as index_entries
from rmqctl.store.log.implied import (
    LARGEST_DIFFERENCE,
    IndexKernels,
    index_kernels,
    link_plain,
    new_words,
    pack_plain,
    time_differences,
)

HASHES = st.lists(st.integers(0, 12) | st.integers(-(1 << 31), (1 << 31) - 1), max_size=20)


def kernels() -> IndexKernels:
    """The compiled ones: where numba is there, they are what is used."""
    pytest.importorskip("numba")
    found = index_kernels()
    assert found.link is not link_plain
    return found


@settings(deadline=None)
@given(HASHES, st.integers(1, 7), st.integers(1, 100))
def test_which_entry_each_one_leads_on_to(hashes: list[int], slots: int, number: int) -> None:
    newest: dict[int, int] = {}
    leads_to = []
    for place, hashed in enumerate(hashes):
        leads_to.append(newest.get(hashed % slots, 0))
        newest[hashed % slots] = number + place
    for link in (link_plain, kernels().link):
        table, previous = np.zeros(slots, np.int32), np.full(len(hashes), -1, np.int32)
        used = link(np.array(hashes, np.int32), slots, table, number, previous)
        assert used == len(newest)
        assert previous.tolist() == leads_to
        assert table.tolist() == [newest.get(slot, 0) for slot in range(slots)]
        # what is put later follows it, in slots that are used already
        if hashes:
            used = link(np.array(hashes[:1], np.int32), slots, table, number + 50, previous)
            assert (used, previous[0]) == (0, newest[hashes[0] % slots])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-(1 << 31), (1 << 31) - 1),
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.sampled_from((-1, 0, 1, 999, 1000, 1001, 2500, 7000, 1 << 62)),
        ),
        max_size=8,
    ),
    st.sampled_from((-1, 0, 1, 1000, 6000)),
)
def test_their_bytes(rows: list[tuple[int, int, int]], first: int) -> None:
    expected = b""
    for number, (hashed, offset, time) in enumerate(rows):
        seconds = min(max(0, time - first) // 1000, LARGEST_DIFFERENCE) if first > 0 else 0
        expected += struct.pack(">iqii", hashed, offset, seconds, number + 7)
    columns = [np.array([row[at] for row in rows], kind) for at, kind in enumerate((np.int32, np.int64, np.int64))]
    previous = np.arange(7, 7 + len(rows), dtype=np.int32)
    for pack in (pack_plain, kernels().pack):
        words = new_words(len(rows))
        pack(columns[0], columns[1], columns[2], first, previous, words)
        assert words.tobytes() == expected


@pytest.mark.parametrize(("first", "expected"), [(-1, [0, 0, 0]), (0, [0, 0, 0]), (1, [0, 0, 1]), (1001, [0, 0, 0])])
def test_a_file_whose_first_entry_has_no_time_has_none_at_all(first: int, expected: list[int]) -> None:
    assert time_differences(np.array([0, 1000, 1001], np.int64), first).tolist() == expected


def test_kernels_that_do_something_else_are_not_taken() -> None:
    compiled = kernels()

    def wrong(*arguments: object) -> int:
        return compiled.link(*arguments) + 1  # type: ignore[arg-type]

    assert index_entries._index_entries_is_right(compiled)
    assert not index_entries._index_entries_is_right(compiled._replace(link=wrong))
    assert not index_entries._index_entries_is_right(compiled._replace(pack=lambda *_: None))
