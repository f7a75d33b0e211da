"""The parts that statistics are made of, against plain counts: whatever is cut where, the sum is the same."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.pipeline.jobs.stats_groups import (
    OffsetSet,
    at_most,
    bars,
    bounds,
    buckets,
    merged,
    offset_numbers,
    offset_set,
)
from rmqctl.pipeline.jobs.stats_parts import Clock, clock_of, joined_clocks
from tests.quick import examples

VALUES = st.one_of(
    st.integers(-10, 10), st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([1 << n for n in range(63)])
)


@given(st.lists(VALUES, max_size=50))
def test_buckets_hold_their_values(values: list[int]) -> None:
    for value, bucket in zip(values, buckets(np.array(values, np.int64)).tolist(), strict=True):
        low, high = bounds(bucket)
        assert max(low, -(1 << 63)) <= value <= high or value == -(1 << 63)
    histogram = Counter(buckets(np.array(values, np.int64)).tolist())
    edges = [edge for bar in bars(histogram) for edge in bar[:2]]
    assert edges == sorted(edges)
    half = at_most(histogram, 0.5)
    if half is None:
        assert not values
    else:
        assert sum(value <= half for value in values) * 2 >= len(values)


SPANS = st.lists(st.tuples(st.integers(-20, 60), st.integers(0, 12)), max_size=12)


def spans_set(spans: list[tuple[int, int]]) -> OffsetSet:
    starts = np.array([start for start, _ in spans], np.int64)
    return offset_set(starts, starts + np.array([length for _, length in spans], np.int64))


def counted(spans: list[tuple[int, int]]) -> Counter[int]:
    return Counter(offset for start, length in spans for offset in range(start, start + length))


@given(SPANS, SPANS, SPANS)
def test_offset_sets_are_multisets_that_can_be_merged_in_any_order(
    first: list[tuple[int, int]], second: list[tuple[int, int]], third: list[tuple[int, int]]
) -> None:
    one, two, three = map(spans_set, (first, second, third))
    together = merged([one, two, three])
    assert together == merged([merged([one, two]), three]) == merged([one, merged([three, two])])
    assert together == spans_set(first + second + third)
    plain = counted(first + second + third)
    if not plain:
        assert len(together.starts) == 0
        return
    numbers = offset_numbers(together, 1000)
    inside = range(min(plain), max(plain) + 1)
    assert (numbers.min_offset, numbers.max_offset, numbers.messages) == (min(plain), max(plain), plain.total())
    missing = [offset for offset in inside if not plain[offset]]
    assert numbers.missing == len(missing)
    assert [offset for low, high in numbers.missing_spans for offset in range(low, high + 1)] == missing
    assert numbers.repeated == sum(count - 1 for count in plain.values())
    often = [offset for offset in inside if plain[offset] > 1]
    assert [offset for low, high in numbers.repeated_spans for offset in range(low, high + 1)] == often


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.lists(st.integers(1, 60), max_size=4))
def test_clocks_can_be_cut_anywhere(times: list[int], cuts: list[int]) -> None:
    stamps, places = np.array(times, np.int64), np.arange(len(times), dtype=np.int64) * 7
    whole, rows = clock_of(stamps, places)
    backwards = [row for row in range(1, len(times)) if times[row] < times[row - 1]]
    assert rows.tolist() == backwards
    assert whole.jumps == len(backwards)
    largest = sorted((times[row] - times[row - 1], row * 7) for row in backwards)[:20]
    assert [(-jump.milliseconds, jump.physical_offset) for jump in whole.largest] == largest
    edges = sorted({0, len(times), *(cut for cut in cuts if cut < len(times))})
    parts: list[Clock | None] = [
        clock_of(stamps[begin:end], places[begin:end])[0] for begin, end in itertools.pairwise(edges)
    ]
    forward: Clock | None = None
    for part in parts:
        forward = joined_clocks(forward, part)
    backward: Clock | None = None
    for part in reversed(parts):
        backward = joined_clocks(part, backward)
    assert forward == backward == whole
