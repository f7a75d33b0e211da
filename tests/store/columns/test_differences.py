"""Differences of times, which can be any two numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.message import Message
from rmqctl.store.check.check import check
from rmqctl.store.log.columns import differences, distinct
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles

LEAST, LARGEST = -(1 << 63), (1 << 63) - 1
NUMBERS = st.one_of(st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, LARGEST - 1, LARGEST]), st.integers(LEAST, LARGEST))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1))
def test_a_difference_stays_in_its_range(pairs: list[tuple[int, int]]) -> None:
    later, earlier = np.array(pairs, np.int64).T
    expected = [min(max(one - other, LEAST), LARGEST) for one, other in pairs]
    assert differences(later, earlier).tolist() == expected


@given(st.lists(NUMBERS | st.integers(0, 3)))
def test_distinct_numbers_are_those_of_a_set(numbers: list[int]) -> None:
    assert distinct(np.array(numbers, np.int64)).tolist() == sorted(set(numbers))


def test_a_message_born_at_the_beginning_of_time_was_not_born_later_than_stored(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", create=True) as store:
        for born in (LEAST, -1, LARGEST):
            store.put(Message("T", b"x", born_timestamp=born))
    with StoreFiles(tmp_path / "store") as files:
        (found,) = (one for one in check(files) if one.code == "RMQ-TIME-005")
    assert "1 message was born" in found.message
