"""The numbers that a cleaning goes by, each at its edge: settings, ratios, hours, spans, sizes and what is left."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError, UsageError
from rmqctl.store.clean.cleaner import Cleaner, clean
from rmqctl.store.clean.forecast import _bytes_per_day, _less, _then, forecast_clean
from rmqctl.store.clean.options import (
    CleanOptions,
    DiskUsage,
    DiskVerdict,
    clamped_ratios,
    decide,
    judge_disks,
    measure_disks,
    options_from_config,
    used_percent,
)
from rmqctl.store.clean.plan import _span, last_physical_offset, min_offset_after, plan_clean
from rmqctl.store.config.config import StoreConfig, next_hour
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, file_name
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.store.clean.cleaning import HOUR, IDLE, NO_PAUSE, NOW, SIZE, age, age_all, log_files, reasons
from tests.store.logs import frame, log_of

SPACE = struct.Struct(">qiq")


@pytest.fixture
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_without_settings_it_is_cleaned_as_a_broker_without_settings_cleans() -> None:
    options = CleanOptions()
    assert options_from_config(StoreConfig()) == options
    assert (options.reserved_time, options.batch_maximum, options.pause) == (72 * 3_600_000, 10, 100)
    assert (options.forced_after, options.retry_hanging_after) == (120_000, 120_000)
    assert clamped_ratios(options) == (90, 85, 75)
    assert not any((options.at_once, options.scheduled, options.accept_gaps, options.crashed))
    assert options_from_config(StoreConfig(delete_file_batch_max=0)).batch_maximum == 1


def test_the_smallest_and_largest_settings() -> None:
    assert CleanOptions(reserved_time=0, batch_maximum=1, delete_when="0;23").hours() == {0, 23}
    for at_once, scheduled in ((True, False), (False, True)):
        with pytest.raises(UsageError, match="only expired files"):
            CleanOptions(crashed=True, at_once=at_once, scheduled=scheduled)
        CleanOptions(at_once=at_once, scheduled=scheduled)
    for given, counts in (((0, 0, 0), (35, 30, 10)), ((35, 30, 10), (35, 30, 10)), ((99, 99, 99), (90, 85, 95))):
        warning, forcibly, maximum = given
        options = CleanOptions(warning_ratio=warning, forcibly_ratio=forcibly, maximum_ratio=maximum)
        assert clamped_ratios(options) == counts


def test_how_full_a_disk_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded up, and of what an ordinary user may use."""
    layout = StoreLayout(tmp_path, (tmp_path / "commitlog", tmp_path / "more"))
    for blocks, free, available, percent in (
        (1000, 300, 200, 78), (1000, 300, 300, 70), (1000, 0, 0, 100), (1000, 1000, 900, 0), (0, 0, 0, None)
    ):  # fmt: skip
        found = os.statvfs_result((4096, 10, blocks, free, available, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _, found=found: found)
        assert used_percent(tmp_path) == percent
        assert measure_disks(layout, 7) == DiskUsage((percent, percent), percent, 7, blocks * 10)

    def fails(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "statvfs", fails)
    assert measure_disks(layout) == DiskUsage((None, None), None, 0, 0)


def test_the_emptiest_disk_counts_if_all_are_known() -> None:
    for percents, expected in (((50, 40), 40), ((50, None), None), ((None,), None), ((), None), ((0, 90), 0)):
        assert DiskUsage(percents, 10).emptiest_commitlog == expected


@pytest.mark.parametrize(
    ("store_bytes", "partition_bytes", "expected"),
    [
        (75, 200, DiskVerdict(False, False, False)),
        (76, 200, DiskVerdict(True, False, False)),
        (80, 200, DiskVerdict(True, False, False)),
        (81, 200, DiskVerdict(True, True, False)),
        (80, 201, DiskVerdict(True, False, False)),
        (1000, 0, DiskVerdict(False, False, False)),
    ],
)
def test_a_store_s_share_of_a_disk(store_bytes: int, partition_bytes: int, expected: DiskVerdict) -> None:
    """Where two share it each has half; where it cannot be told how large it is nothing is asked for."""
    usage = DiskUsage((10,), 10, store_bytes, partition_bytes)
    assert judge_disks(usage, CleanOptions(replicas_per_partition=2)) == expected
    assert judge_disks(usage, CleanOptions()) == DiskVerdict(False, False, False)


def test_what_may_take_young_files() -> None:
    full = DiskUsage((86,), 10)
    for forced, asked, expected in ((True, False, True), (False, False, False), (False, True, True)):
        options = CleanOptions(scheduled=True, delete_when="", may_force=forced, at_once=asked)
        order = decide(options, NOW, full)
        assert (order.deletes, order.at_once, order.triggers) == (True, expected, ("space",))
    order = decide(CleanOptions(), NOW, full)
    assert (order.deletes, order.at_once, order.triggers, order.disk_full) == (True, False, ("manual",), False)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 s"), (119_999, "119 s"), (120_000, "2 min"), (2 * HOUR - 1, "119 min"), (2 * HOUR, "2 h"),
     (48 * HOUR - 1, "47 h"), (48 * HOUR, "2 d"), (72 * HOUR, "3 d")],
)  # fmt: skip
def test_spans_in_words(milliseconds: int, text: str) -> None:
    assert _span(milliseconds) == text


@pytest.mark.usefixtures("_greenwich")
def test_the_next_hour_of_deletion() -> None:
    """NOW is eight o'clock."""
    four = "04"
    assert next_hour(NOW, four) == NOW + 20 * HOUR
    assert next_hour(NOW + 1_799_999, four) == NOW + 20 * HOUR
    assert next_hour(NOW + 20 * HOUR - 1, four) == NOW + 20 * HOUR
    assert next_hour(NOW + 21 * HOUR - 1, four) == NOW + 21 * HOUR - 1
    assert next_hour(NOW + 21 * HOUR, four) == NOW + 44 * HOUR
    assert next_hour(NOW + 61_000, "9;16") == NOW + HOUR
    assert next_hour(NOW + 61_000, "8") == NOW + 61_000
    assert next_hour(NOW, "") is None


def test_a_disk_from_which_files_go() -> None:
    usage = DiskUsage((90, None, 20), 30, 700, 1000)
    assert _less(usage, 0) == usage
    assert _less(usage, 259) == DiskUsage((65, None, 0), 5, 441, 1000)
    assert _less(usage, 900) == DiskUsage((0, None, 0), 0, 0, 1000)
    unknown = DiskUsage((90,), None, 5, 1000)
    assert _less(unknown, 100) == DiskUsage((80,), None, 0, 1000)
    assert _less(usage._replace(partition_bytes=0), 100) == usage._replace(partition_bytes=0)


def test_when_a_follower_goes(tmp_path: Path) -> None:
    log = log_of(tmp_path, bytes(100), bytes(100), bytes(100))
    goes: list[int | None] = [5, 9, None]
    asked = [0, 99, 100, 199, 200, 299, 300]
    assert [_then(log, goes, offset, 0) for offset in asked] == [5, 5, 9, 9, None, None, None]
    assert [_then(log, goes, offset, 7) for offset in asked[:4]] == [7, 7, 9, 9]
    assert _then(log, goes, None, 0) is None
    assert _then(log, goes, 0, None) is None


def test_how_fast_a_log_of_several_files_grows(tmp_path: Path) -> None:
    """From the beginning of its first file to that of the last one with data."""
    day = 24 * HOUR
    pages = [
        frame(at, store_timestamp=stamp).ljust(500, b"\0") for at, stamp in ((0, day), (500, 9 * day), (1000, 5 * day))
    ]
    assert _bytes_per_day(log_of(tmp_path / "three", *pages, bytes(500))) == 250
    assert _bytes_per_day(log_of(tmp_path / "one", pages[0], bytes(500))) is None
    later = log_of(
        tmp_path / "later", *(frame(at, store_timestamp=at * day).ljust(500, b"\0") for at in (500, 1000)), first=500
    )
    assert _bytes_per_day(later) == 1


def test_when_a_disk_will_be_full(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.store.clean.forecast._bytes_per_day", lambda _: 250)
    monkeypatch.setattr("rmqctl.store.clean.forecast._IDLE_MS", 1 << 62)
    found = os.statvfs_result((4096, 10, 1300, 500, 200, 0, 0, 0, 0, 255))
    monkeypatch.setattr("os.statvfs", lambda _: found)
    with StoreFiles(golden_store("clean")) as files:
        levels = forecast_clean(files, CleanOptions(maximum_ratio=79), NOW, IDLE).levels
    # 8,000 bytes of 10,000 are used
    assert [(level.percent, level.bytes_left) for level in levels] == [(79, 0), (85, 501), (90, 1001)]
    day = 24 * HOUR
    assert [level.reached_timestamp for level in levels] == [NOW, NOW + 501 * day // 250, NOW + 1001 * day // 250]


def test_where_the_last_unit_of_a_queue_file_points_to(tmp_path: Path) -> None:
    units = {0: (7, 100), 1: (0, 1), 2: (0, 0), 3: (5, 0), 4: (-1, 100), 5: (5, -1), 6: (300, 0x7FFFFFFF)}
    for number, (offset, size) in units.items():
        data = SPACE.pack(9, 9, 9) + SPACE.pack(offset, size, -1)
        (tmp_path / file_name(number * 40)).write_bytes(data)
    (tmp_path / file_name(7 * 40)).write_bytes(SPACE.pack(9, 9, 9) + SPACE.pack(5, 6, 7)[:11])
    queue = ConsumeQueue("T", 0, tmp_path, 40, Descriptors())
    queue.load()
    found = [last_physical_offset(queue, file) for file in queue.files.files]
    assert found[:7] == [7, 0, None, None, None, None, 300]
    # a file that is cut in its second unit: the first one is the last
    assert found[7] == 9


# --- what a run does on the disk --------------------------------------------------------------------------------------


def test_every_folder_that_something_left_is_flushed_behind_it(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    age_all(store)
    seen: list[tuple[str, Path]] = []
    with StoreFiles(store) as files:
        cleaner = Cleaner(files, NO_PAUSE, sleep=lambda _: None)
        has_removed = [cleaner.has_removed]
        monkeypatch.setattr(io, "observer", lambda operation, path, *_: seen.append((operation, Path(path))))
        report = cleaner.run(NOW, IDLE)
        assert [*has_removed, cleaner.has_removed] == [False, True]
        assert not report.dry_run
        assert {file.path for file in files.log.files} == {one.path for one in report.kept if one.kind == "commitlog"}
        assert {file.path for file in files.index.files} == {one.path for one in report.kept if one.kind == "index"}
    left = {path.parent for operation, path in seen if operation == "remove"}
    assert {path.name for path in left} >= {"commitlog", "index", "0"}
    for folder in left:
        last = max(
            place for place, (operation, path) in enumerate(seen) if operation == "remove" and path.parent == folder
        )
        assert ("fsync", folder) in seen[last:], folder
    assert {path for operation, path in seen if operation == "remove"} == {one.path for one in report.removed}


def test_a_run_of_a_log_with_a_gap_is_refused_before_anything_goes(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    log_files(store)[3].unlink()
    with StoreFiles(store) as files:
        cleaner = Cleaner(files, NO_PAUSE)
        for ask in (lambda: cleaner.run(NOW, IDLE), lambda: plan_clean(files, NO_PAUSE, now=NOW, usage=IDLE)):
            with pytest.raises(RefusedError, match="cannot tell what may be deleted"):
                ask()
        assert not cleaner.has_removed
    assert len(log_files(store)) == 8


def test_the_hanging_first_file_goes_with_its_entry_on_disk(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    for path in log_files(store):
        age(path, 0)
    seen: list[tuple[str, str]] = []
    with StoreFiles(store) as files:
        first = files.log.files[0]
        with first.hold():
            assert not first.destroy(120_000, 1000)
        # what a reader holds is passed by the first offset, and by what a plan makes of it
        plan = plan_clean(files, NO_PAUSE, now=NOW, usage=IDLE)
        assert min_offset_after(files.log, plan.commitlog) == SIZE
        monkeypatch.setattr(io, "observer", lambda operation, path, *_: seen.append((operation, path)))
        report = Cleaner(files, NO_PAUSE, clock=lambda: 1000).run(NOW, IDLE)
    assert [(one.because.value, one.detail) for one in report.removed if one.kind == "commitlog"] == [
        ("expired", "was held by a reader before")
    ]
    removed = seen.index(("remove", str(first.path)))
    assert ("fsync", str(first.path.parent)) in seen[removed:]


def test_a_run_goes_by_the_clock_of_the_wall_where_no_time_is_given(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    for path in log_files(store):
        age(path, 72 * HOUR - 1)
    age(log_files(store)[0], 72 * HOUR)
    monkeypatch.setattr("rmqctl.store.clean.cleaner.time.time_ns", lambda: NOW * 1_000_000)
    with StoreFiles(store) as files:
        planned = clean(files, NO_PAUSE, usage=IDLE, change=ChangeOptions(dry_run=True))
        report = Cleaner(files, NO_PAUSE, sleep=lambda _: None).run(usage=IDLE)
    assert reasons(planned)[:2] == reasons(report)[:2] == ["expired", "young"]
