"""Messages that were stored at some time, found through the index: as many as a walk finds, whatever the clock did."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pytest

from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.formats.message import Message
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.pipeline import queue_pruning as named
from rmqctl.pipeline.spark.options import SourceOptions
from rmqctl.pipeline.wanted import Comparison, Wanted, wanted_by
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.pipeline.source.damaged_index import damaged_anew
from tests.pipeline.source.reading import REPRESENTATIVE, BytesRead, found, options_of
from tests.quick import sample
from tests.rmqctl.looking import run

Row = tuple[int, datetime.datetime]
NAMES = ("physical_offset", "store_timestamp")
NOON = 1_700_000_000_000
_MS = datetime.timedelta(milliseconds=1)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index and queues are asked however little that saves."""
    monkeypatch.setattr(named, "_WORTH", 1e9)


def _found(options: SourceOptions, wanted: Wanted) -> tuple[list[Row], bool]:
    """The rows that are not left out, and whether anything was read in spans."""
    rows, spanned = found(options, wanted, NAMES)
    return [(row[0], row[1]) for row in rows], any(spanned)


def _between(first: datetime.datetime, last: datetime.datetime) -> Wanted:
    return wanted_by([Comparison("store_timestamp", ">", (first,)), Comparison("store_timestamp", "<", (last,))])


def _assert_found(options: SourceOptions, rows: list[Row], rng: random.Random, tries: int) -> bool:
    """The same as of all rows, for a moment, some ms and more; whether spans were read."""
    is_spanned = False
    for _ in range(tries):
        first = rng.choice(rows)[1]
        last = first + rng.choice([0, 5, 700, 60_000]) * _MS
        messages, spanned = _found(options, _between(first, last))
        assert messages == [row for row in rows if first <= row[1] <= last], (first, last)
        is_spanned = is_spanned or spanned
    return is_spanned


@pytest.mark.parametrize("name", sample(REPRESENTATIVE, ["features"]))
@pytest.mark.usefixtures("always")
def test_as_many_as_a_walk_finds(name: str) -> None:
    options = options_of(name)
    is_spanned = _assert_found(options, _found(options, Wanted())[0], random.Random(name), 4)
    assert is_spanned or name not in ("clean", "features", "gap", "crc-flip-third", "torn-zero")


@pytest.mark.thorough
@pytest.mark.usefixtures("always")
def test_whatever_became_of_the_index(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("crash")
    options = SourceOptions(str(store))
    rows = _found(options, Wanted())[0]
    for rng, _ in damaged_anew(store / "index", tmp_path / "whole", 18):
        _assert_found(options, rows, rng, 2)


def _store(
    path: Path, times: list[int], each: int = 1, body: bytes = b"x" * 100, file_size: int | None = None
) -> SourceOptions:
    """A store with messages that were stored at these times, in one file of the commitlog unless a size is given."""
    config = StoreConfig(mapped_file_size_commit_log=file_size or max(20_000, 1_055_000 * len(body) // 1000))
    config = config._replace(max_hash_slot_num=10_000, max_index_num=40_000)
    now = [0]
    with MessageStore.open(path, "rw", config, create=True, clock=lambda: now[0]) as store:
        for number, now[0] in enumerate(times):
            messages = [Message("T", body, properties={UNIQUE_KEY: f"{number}-{count}"}) for count in range(each)]
            assert all(result.status.name == "PUT_OK" for result in store.put_many(messages))
    return SourceOptions(str(path))


@pytest.mark.usefixtures("always")
def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """For a single message, for a while and for good, to before the first one, too."""
    times = [NOON + 1500 * number for number in range(400)]
    times[100] -= 30 * 60_000
    times[150:170] = [time - 200_000 for time in times[150:170]]
    times[300:] = [time - 100_000 for time in times[300:]]
    options = _store(tmp_path / "store", times)
    rows = _found(options, Wanted())[0]
    assert [round(row[1].timestamp() * 1000) for row in rows] == times
    assert _assert_found(options, rows, random.Random(1), 12)
    for odd in (0, 1, 100, 150, 169, 299, 300):
        messages, _ = _found(options, _between(rows[odd][1], rows[odd][1]))
        assert rows[odd] in messages


@pytest.mark.usefixtures("always")
def test_an_entry_with_a_wrong_time(tmp_path: Path) -> None:
    """Wrong by little, in order or out of it, and by much."""
    options = _store(tmp_path / "store", [NOON + 4000 * number for number in range(40)])
    rows = _found(options, Wanted())[0]
    with StoreFiles(Path(options.path)) as files:
        (file,) = files.index.files
        entry = next(one for one in file.entries() if one.physical_offset == rows[20][0])
        at = file.geometry.entry_position(entry.number) + INDEX_ENTRY.offset("time_difference")
    whole = file.path.read_bytes()
    for seconds in (0, 1, 76, 77, 78, 79, 81, 82, 84, 85, 1 << 30):
        file.path.write_bytes(whole[:at] + seconds.to_bytes(4, "big") + whole[at + 4 :])
        messages, spanned = _found(options, _between(rows[20][1], rows[20][1]))
        assert spanned
        assert rows[20] in messages, seconds


def test_a_minute_of_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what lies within the tolerance of the clock, units and entries are read: 40 bytes a message."""
    options = _store(tmp_path / "store", [NOON + number * 36_000 for number in range(100)], 50, b"x" * 2000)
    first = datetime.datetime.fromtimestamp(NOON / 1000, datetime.UTC) + 20 * 60_000 * _MS
    rows, _ = _found(options, Wanted())
    read = BytesRead(monkeypatch)
    messages, spanned = _found(options, _between(first, first + 60_000 * _MS))
    assert messages == [row for row in rows if first <= row[1] <= first + 60_000 * _MS]
    assert spanned
    assert len(messages) == 100
    assert read.bytes < 0.08 * rows[-1][0]
    without = options._replace(clock_tolerance=None)
    assert _found(without, _between(first, first + 60_000 * _MS)) == (messages, False)


def test_a_time_without_an_upper_end_reads_the_end_of_the_log_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last hours of a log of 50 hours, in a task of Spark and in the embedded engine; and the first ones."""
    times = [NOON + number * 1_800_000 for number in range(100)]
    options = _store(tmp_path / "store", times, 50, b"x" * 2000, 250_000)
    rows, _ = _found(options, Wanted())
    hours = 2 * 3600_000 * _MS
    late = [row for row in rows if row[1] >= rows[-1][1] - hours]
    early = [row for row in rows if row[1] <= rows[0][1] + hours]
    asked: tuple[tuple[Comparison, str, list[Row]], ...] = (
        (Comparison("store_timestamp", ">", (late[0][1],)), ">=", late),
        (Comparison("store_timestamp", "<", (early[-1][1],)), "<=", early),
    )
    read = BytesRead(monkeypatch)
    for comparison, operator, wanted in asked:
        read.bytes = 0
        assert _found(options, wanted_by([comparison]))[0] == wanted
        assert 0 < read.bytes < 0.2 * rows[-1][0]
        read.bytes = 0
        query = f"select count(*) as n from messages where store_timestamp {operator} '{comparison.values[0]}'"
        done = run("sql", "-s", options.path, query, "--json")
        assert done.objects == [{"n": len(wanted)}], done.err
        assert 0 < read.bytes < 0.2 * rows[-1][0]
