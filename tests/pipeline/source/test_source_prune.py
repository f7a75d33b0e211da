"""Leaving out splits: nothing wanted is ever left out while the clock keeps its promise, and jumps are noticed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.pipeline.pruning import first_store_time, kept_splits
from rmqctl.pipeline.splits import Split, plan_splits
from rmqctl.pipeline.wanted import Range, Wanted
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from tests.goldens import truth
from tests.opened import reader
from tests.store.logs import frame, log_of

NOON = 1_700_000_000_000


def _log(folder: Path, times: list[int]) -> tuple[MappedFileQueue, list[int]]:
    """A log with a message for each time, and their offsets."""
    data, offsets = b"", []
    for number, time in enumerate(times):
        offsets.append(len(data))
        data += frame(len(data), b"x" * 40, queue_offset=number, store_timestamp=time)
    return log_of(folder, data + bytes(1000)), offsets


def _splits(log: MappedFileQueue, size: int) -> list[Split]:
    end = log.max_offset
    return [Split("/store", StoreConfig(), begin, min(end, begin + size)) for begin in range(0, end, size)]


def _has(split: Split, offsets: list[int], times: list[int], wanted: Range) -> bool:
    return any(
        split.begin <= offset < split.end and wanted.low <= time <= wanted.high
        for offset, time in zip(offsets, times, strict=True)
    )


@settings(deadline=None)
@given(st.data())
def test_no_split_with_wanted_messages_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever the clock does within its tolerance, and whatever it does beyond it if two splits show it."""
    tolerance = data.draw(st.sampled_from([0, 50, 1000]))
    time, highest, times = NOON, NOON, []
    for step in data.draw(st.lists(st.integers(-60, 100), min_size=1, max_size=60)):
        time = max(time + step, highest - tolerance)
        highest = max(highest, time)
        times.append(time)
    log, offsets = _log(tmp_path_factory.mktemp("log"), times)
    splits = _splits(log, data.draw(st.integers(100, 2000)))
    low, high = sorted(data.draw(st.tuples(*2 * [st.integers(NOON - 100, NOON + 3000)])))
    kept = kept_splits(log, splits, Wanted(store_times=Range(low, high)), tolerance)
    assert [one for one in splits if _has(one, offsets, times, Range(low, high)) and one not in kept] == []


def test_far_splits_are_left_out(tmp_path: Path) -> None:
    times = [NOON + 60_000 * number for number in range(100)]
    log, offsets = _log(tmp_path / "log", times)
    splits = _splits(log, 1000)
    wanted = Range(times[40], times[50])
    kept = kept_splits(log, splits, Wanted(store_times=wanted), 0)
    assert len(kept) < len(splits) / 3
    # no more than the neighbours of what is needed
    needed = [one for one in splits if _has(one, offsets, times, wanted)]
    assert kept[0] in (needed[0], splits[splits.index(needed[0]) - 1])
    assert kept[-1] in (needed[-1], splits[splits.index(needed[-1]) + 1])
    assert kept_splits(log, splits, Wanted(store_times=wanted), None) == splits
    assert len(kept_splits(log, splits, Wanted(store_times=wanted), 10 * 60_000)) > len(kept)


def test_a_clock_that_was_set_back_leaves_nothing_out(tmp_path: Path) -> None:
    times = [NOON + 60_000 * number - (3 * 3_600_000 if number >= 50 else 0) for number in range(100)]
    log, _ = _log(tmp_path / "log", times)
    splits = _splits(log, 1000)
    wanted = Wanted(store_times=Range(times[40], times[45]))
    assert kept_splits(log, splits, wanted, 3_600_000) == splits


def test_times_that_the_log_does_not_seem_to_have_are_looked_for_everywhere(tmp_path: Path) -> None:
    """One message was stamped with the year 1970, inside of a split."""
    times = [NOON + number for number in range(100)]
    times[55] = 1000
    log, offsets = _log(tmp_path / "log", times)
    splits = _splits(log, 5000)
    wanted = Range(high=100_000)
    kept = kept_splits(log, splits, Wanted(store_times=wanted), 60_000)
    assert any(_has(one, offsets, times, wanted) for one in kept)
    assert kept == splits


def test_splits_by_physical_offset() -> None:
    files = reader("clean").files
    splits = plan_splits(files, 65536)
    kept = kept_splits(files.log, splits, Wanted(Range(70_000, 140_000)), None)
    assert [(split.begin, split.end) for split in kept] == [(70_000, 131_072), (131_072, 140_001)]
    assert kept_splits(files.log, splits, Wanted(Range(0, -1)), None) == []
    assert kept_splits(files.log, splits, Wanted(Range(65536, 65536)), None) == [splits[1]._replace(end=65_537)]
    assert kept_splits(files.log, splits, Wanted(), None) == splits


def test_few_offsets_are_looked_for_where_they_are() -> None:
    """Far ones apart, near ones together: each beginning costs a look back."""
    split = Split("/store", StoreConfig(), 0, 1 << 30)
    log = reader("clean").files.log
    places = (5, 9, 500_000_000, 500_001_000, 1 << 31)
    kept = kept_splits(log, [split], Wanted().at(places), None)
    assert [(one.begin, one.end) for one in kept] == [(5, 10), (500_000_000, 500_001_001)]
    assert kept_splits(log, [split], Wanted().at(()), None) == []


@pytest.mark.parametrize("name", ["clean", "features", "v4-features", "crc-flip-old"])
def test_the_first_time_of_a_split_is_that_of_its_first_message(name: str) -> None:
    files = reader(name).files
    stored = [(int(row["phyOffset"]), int(row["storeTimestamp"])) for row in truth(name).messages]
    checked = 0
    for split in plan_splits(files, 20_000):
        first = next((time for offset, time in stored if split.begin <= offset < split.end), None)
        if first is not None:
            assert first_store_time(files.log, split) == first
            checked += 1
    assert checked > 10


def test_a_split_without_messages_has_no_time(tmp_path: Path) -> None:
    log, offsets = _log(tmp_path / "log", [NOON, NOON + 5])
    config = StoreConfig()
    assert first_store_time(log, Split("", config, 0, 10)) == NOON
    assert first_store_time(log, Split("", config, 1, offsets[1])) is None
    assert first_store_time(log, Split("", config, 1, offsets[1] + 1)) == NOON + 5
    assert first_store_time(log, Split("", config, offsets[1] + 1, log.max_offset)) is None


@pytest.mark.parametrize("bit", [62, 44, 41, 35])
@pytest.mark.parametrize("place", [0, 37, 95])
def test_a_flipped_store_time_at_the_start_of_a_split_leaves_out_no_message(
    tmp_path: Path, bit: int, place: int
) -> None:
    times = [NOON + 60_000 * number for number in range(100)]
    _, offsets = _log(tmp_path / "sound", times)
    flipped = list(times)
    flipped[place] += 1 << bit
    log, _ = _log(tmp_path / "log", flipped)
    cuts = [0, *(offset for offset in (offsets[place], offsets[50]) if offset), log.max_offset]
    splits = [Split("/store", StoreConfig(), begin, end) for begin, end in itertools.pairwise(sorted(cuts))]
    for low, high in ((times[96], times[99]), (times[90], times[96]), (times[38], times[40]), (1 << 43, 1 << 62)):
        wanted = Range(low, high)
        kept = kept_splits(log, splits, Wanted(store_times=wanted), 0)
        assert [one for one in splits if _has(one, offsets, flipped, wanted) and one not in kept] == []
