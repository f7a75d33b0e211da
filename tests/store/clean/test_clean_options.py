"""When a cleaning deletes at all: hours, disk ratios with their clamps, somebody who asks (cleaning rules, 2)."""

from __future__ import annotations

import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.store.clean.options import (
    CleanOptions,
    DiskUsage,
    DiskVerdict,
    decide,
    judge_disks,
    measure_disks,
    options_from_config,
    used_percent,
)
from rmqctl.store.config.config import StoreConfig, config_from_properties
from rmqctl.store.files.layout import StoreLayout

# 2027-01-15 08:00 UTC
NOW = 1_800_000_000_000
IDLE = DiskUsage((10,), 10)


@pytest.fixture
def _five_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "XYZ-5")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_five_hours_east")
def test_the_hour_is_local_and_lasts_the_whole_hour() -> None:
    options = CleanOptions(scheduled=True, delete_when="04;13")
    assert decide(options, NOW, IDLE).triggers == ("time",)
    assert decide(options, NOW + 3_599_999, IDLE).deletes
    assert not decide(options, NOW + 3_600_000, IDLE).deletes
    assert not decide(options, NOW - 1, IDLE).deletes
    assert not decide(CleanOptions(scheduled=True, delete_when="08"), NOW, IDLE).deletes


def test_the_default_hour_is_four() -> None:
    assert CleanOptions().hours() == {4}
    assert CleanOptions(delete_when="4;023;").hours() == {4, 23}
    assert CleanOptions(delete_when="24;-1;5").hours() == {5}  # no hour is one of the first two


@pytest.mark.parametrize("text", ["x", "4,5", "4.5", " 4", "4; 23", ";4"])
def test_hours_that_do_not_parse(text: str) -> None:
    with pytest.raises(UsageError):
        CleanOptions(delete_when=text)


@pytest.mark.parametrize("wrong", [{"batch_maximum": 0}, {"reserved_time": -1}])
def test_impossible_numbers(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        CleanOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # the rows of the table of isSpaceToDelete, each at its edge: a ratio must be exceeded
        (DiskUsage((91,), 10), DiskVerdict(True, True, True)),
        (DiskUsage((90,), 10), DiskVerdict(True, True, False)),
        (DiskUsage((86,), 10), DiskVerdict(True, True, False)),
        (DiskUsage((85,), 10), DiskVerdict(True, False, False)),
        (DiskUsage((10,), 91), DiskVerdict(True, True, True)),
        (DiskUsage((10,), 86), DiskVerdict(True, True, False)),
        (DiskUsage((76,), 10), DiskVerdict(True, False, False)),
        (DiskUsage((10,), 76), DiskVerdict(True, False, False)),
        (DiskUsage((75,), 75), DiskVerdict(False, False, False)),
        # unknown usage asks for a deletion, but never of young files
        (DiskUsage((None,), 10), DiskVerdict(True, False, False)),
        (DiskUsage((10,), None), DiskVerdict(True, False, False)),
        (DiskUsage((None,), 95), DiskVerdict(True, True, True)),
        # of several commitlog disks the emptiest counts
        (DiskUsage((95, 20), 10), DiskVerdict(False, False, False)),
        (DiskUsage((95, 80), 10), DiskVerdict(True, False, False)),
        (DiskUsage((95, None), 10), DiskVerdict(True, False, False)),
    ],
)
def test_what_disks_ask_for(usage: DiskUsage, expected: DiskVerdict) -> None:
    assert judge_disks(usage, CleanOptions()) == expected


def test_ratios_are_clamped_as_the_broker_does() -> None:
    high = CleanOptions(warning_ratio=99, forcibly_ratio=99, maximum_ratio=99)
    assert judge_disks(DiskUsage((91,), 0), high) == DiskVerdict(True, True, True)
    assert judge_disks(DiskUsage((86,), 0), high) == DiskVerdict(True, True, False)
    low = CleanOptions(warning_ratio=1, forcibly_ratio=1, maximum_ratio=1)
    assert judge_disks(DiskUsage((36,), 0), low) == DiskVerdict(True, True, True)
    assert judge_disks(DiskUsage((35,), 0), low) == DiskVerdict(True, True, False)
    assert judge_disks(DiskUsage((30,), 0), low) == DiskVerdict(True, False, False)
    assert judge_disks(DiskUsage((10,), 0), low) == DiskVerdict(False, False, False)


def test_a_warning_below_the_forcible_ratio_still_warns() -> None:
    options = CleanOptions(warning_ratio=50, forcibly_ratio=85)
    assert judge_disks(DiskUsage((60,), 0), options) == DiskVerdict(True, True, True)


def test_several_brokers_on_one_disk_count_their_own_share() -> None:
    options = CleanOptions(replicas_per_partition=2)
    # a share is 500: 81 % of it forces, 76 % asks, 75 % does neither; the disk's own 80 % does not count here
    assert judge_disks(DiskUsage((80,), 80, 405, 1000), options) == DiskVerdict(True, True, False)
    assert judge_disks(DiskUsage((80,), 80, 400, 1000), options) == DiskVerdict(True, False, False)
    assert judge_disks(DiskUsage((80,), 80, 375, 1000), options) == DiskVerdict(False, False, False)


def test_somebody_who_asks_gets_a_deletion_by_age_whatever_hour_and_disks_say() -> None:
    order = decide(CleanOptions(delete_when=""), NOW, DiskUsage((99,), 99))
    assert (order.deletes, order.at_once, order.triggers, order.disk_full) == (True, False, ("manual",), True)
    assert decide(CleanOptions(at_once=True), NOW, IDLE).at_once


def test_a_full_disk_takes_young_files_in_a_scheduled_run_unless_that_is_switched_off() -> None:
    full = DiskUsage((88,), 10)
    assert decide(CleanOptions(scheduled=True, delete_when=""), NOW, full) == (True, True, ("space",), False)
    assert decide(CleanOptions(scheduled=True, delete_when="", may_force=False), NOW, full).at_once is False
    assert decide(CleanOptions(scheduled=True, delete_when=""), NOW, IDLE).deletes is False


def test_options_of_a_broker_conf() -> None:
    config = config_from_properties(
        {
            "fileReservedTime": "48",
            "deleteWhen": "02;14",
            "deleteFileBatchMax": "0",
            "destroyMapedFileIntervalForcibly": "5000",
            "redeleteHangedFileInterval": "6000",
            "cleanFileForciblyEnable": "false",
            "diskMaxUsedSpaceRatio": "60",
            "diskSpaceWarningLevelRatio": "70",
            "diskSpaceCleanForciblyRatio": "65",
            "deleteCommitLogFilesInterval": "1",
        }
    )
    assert options_from_config(config) == CleanOptions(
        reserved_time=48 * 3_600_000,
        delete_when="02;14",
        batch_maximum=1,
        forced_after=5000,
        retry_hanging_after=6000,
        may_force=False,
        maximum_ratio=60,
        warning_ratio=70,
        forcibly_ratio=65,
        pause=1,
    )


def test_defaults_are_the_broker_s() -> None:
    options = options_from_config(StoreConfig())
    assert options == CleanOptions()
    assert (options.reserved_time, options.batch_maximum, options.forced_after) == (259_200_000, 10, 120_000)


Statvfs = namedtuple("Statvfs", "f_blocks f_bfree f_bavail f_frsize")


@pytest.mark.parametrize(
    ("blocks", "free", "available", "percent"),
    [(100, 50, 50, 50), (1000, 499, 499, 51), (100, 20, 10, 89), (100, 0, 0, 100), (100, 100, 100, 0), (0, 0, 0, None)],
)
def test_usage_counts_what_a_user_may_use_and_rounds_up(
    monkeypatch: pytest.MonkeyPatch, blocks: int, free: int, available: int, percent: int | None
) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: Statvfs(blocks, free, available, 4096))
    assert used_percent(Path("/")) == percent


def test_a_missing_directory_has_no_usage(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path, (tmp_path, tmp_path / "gone"))
    usage = measure_disks(layout)
    assert usage.commitlog[0] is not None
    assert 0 <= usage.commitlog[0] <= 100
    assert usage.commitlog[1] is None
    assert usage.consumequeue is None
    assert usage.emptiest_commitlog is None
    assert usage.partition_bytes > 0
