"""Entries of several tables and of logs come in the order of their keys, the newest first for each."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.store.rocksdb import database
from rmqctl.store.rocksdb.table import KeyEntry

_STREAM = st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.integers(0, 9)), max_size=12, unique=True)


@pytest.mark.parametrize("most", [0, 32])
@given(st.lists(_STREAM, max_size=5), st.integers(1, 4))
def test_parts_are_merged_as_entries_are(most: int, streams: list[list[tuple[bytes, int]]], size: int) -> None:
    entries = [
        [
            KeyEntry(key, sequence, 1, bytes((number,)))
            for key, sequence in sorted(one, key=lambda one: (one[0], -one[1]))
        ]
        for number, one in enumerate(streams)
    ]
    parts = [iter([one[at : at + size] for at in range(0, len(one), size)]) for one in entries]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "_MOST_MERGED", most)
        found = [entry for part in database._merged(parts) for entry in part]
    assert found == [*heapq.merge(*entries, key=lambda entry: (entry.key, -entry.sequence))]
