"""What a cleaning is asked to do, how full the disks are, and what follows from that (CleanCommitLogService)."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.store.config.config import StoreConfig, cleaning_hours
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import disk_space

HOUR_MS = 3_600_000
DEFAULT_LOGICAL_FORCIBLY_PERCENT = 80
# RocketMQ bounds what is configured: beyond these the settings have no effect (CleanCommitLogService)
_WARNING_RANGE = (35, 90)
_FORCIBLY_RANGE = (30, 85)
_MAXIMUM_RANGE = (10, 95)


def _clamped(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])


@dataclass(frozen=True, slots=True)
class CleanOptions:
    """How to clean. Times in ms, ratios in percent of the disk.

    `scheduled`: the broker's own rule, which waits for its hour or a full disk, and takes young files too from a disk
    that is nearly full. Otherwise the caller asked for it: age alone counts, unless `at_once` ignores age as well.
    `accept_gaps`: files missing in the middle of the commitlog are known to be gone for good. `crashed`: a store that
    was not closed cleanly is cleaned too, as far as that is safe: of expired commitlog files that no recovery needs.
    """

    reserved_time: int = 72 * HOUR_MS
    batch_maximum: int = 10
    at_once: bool = False
    scheduled: bool = False
    accept_gaps: bool = False
    crashed: bool = False
    delete_when: str = "04"
    forced_after: int = 120_000
    retry_hanging_after: int = 120_000
    pause: int = 100
    queue_pause: int = 100
    may_force: bool = True
    warning_ratio: int = 90
    forcibly_ratio: int = 85
    maximum_ratio: int = 75
    replicas_per_partition: int = 1
    logical_forcibly_ratio: float = DEFAULT_LOGICAL_FORCIBLY_PERCENT

    def __post_init__(self) -> None:
        """UsageError for values no rule can be made of."""
        if self.reserved_time < 0:
            raise UsageError("files cannot be kept for a negative time")
        if self.crashed and (self.at_once or self.scheduled):
            raise UsageError(
                "of a store that was not closed cleanly only expired files are removed",
                hint="leave out --at-once and --scheduled",
            )
        if self.batch_maximum < 1:
            raise UsageError("the number of files to delete in one run must be at least 1")
        self.hours()

    def hours(self) -> frozenset[int]:
        """Local hours of `delete_when`. UsageError, see `cleaning_hours`."""
        return cleaning_hours(self.delete_when)


def options_from_config(config: StoreConfig) -> CleanOptions:
    """The options a broker with this configuration would clean by, of its scheduled cleaning too."""
    return CleanOptions(
        reserved_time=config.file_reserved_time * HOUR_MS,
        # RocketMQ counts after the fact: a maximum of 0 still lets one file go
        batch_maximum=max(1, config.delete_file_batch_max),
        delete_when=config.delete_when,
        forced_after=config.destroy_maped_file_interval_forcibly,
        retry_hanging_after=config.redelete_hanged_file_interval,
        pause=config.delete_commit_log_files_interval,
        queue_pause=config.delete_consume_queue_files_interval,
        may_force=config.clean_file_forcibly_enable,
        warning_ratio=config.disk_space_warning_level_ratio,
        forcibly_ratio=config.disk_space_clean_forcibly_ratio,
        maximum_ratio=config.disk_max_used_space_ratio,
        logical_forcibly_ratio=100 * config.logical_disk_space_clean_forcibly_threshold,
    )


class DiskUsage(NamedTuple):
    """Usage of the disks in percent; None if unknown (a missing directory).

    `store_bytes` and `partition_bytes` serve the rule for several brokers on one disk only.
    """

    commitlog: tuple[int | None, ...]
    consumequeue: int | None
    store_bytes: int = 0
    partition_bytes: int = 0

    @property
    def emptiest_commitlog(self) -> int | None:
        """The commitlog's figure that the rules look at: its emptiest disk, None if one of them is unknown."""
        known = [percent for percent in self.commitlog if percent is not None]
        return min(known) if known and len(known) == len(self.commitlog) else None


def used_percent(path: Path) -> int | None:
    """Return the used part of the disk of `path`, rounded up, of the space for ordinary users; None if unknown.

    (UtilAll#getDiskPartitionSpaceUsedPercent)
    """
    try:
        used, entire = disk_space(path)
    except OSError:
        return None
    return -(-used * 100 // entire) if entire > 0 else None


def measure_disks(layout: StoreLayout, store_bytes: int = 0) -> DiskUsage:
    """The usage of the disks of a store as it is now."""
    partition = 0
    try:
        status = os.statvfs(layout.commitlog[0])
        partition = status.f_blocks * status.f_frsize
    except OSError:
        pass
    percents = tuple(used_percent(directory) for directory in layout.commitlog)
    return DiskUsage(percents, used_percent(layout.consumequeue), store_bytes, partition)


class DiskVerdict(NamedTuple):
    """`wants_space`: the disks ask for a deletion. `at_once`: of young files too. `disk_full`: writes would stop."""

    wants_space: bool
    at_once: bool
    disk_full: bool


def clamped_ratios(options: CleanOptions) -> tuple[int, int, int]:
    """The ratios for the warning level, for forced cleaning and for cleaning at any hour, in percent, as they count."""
    return (
        _clamped(options.warning_ratio, _WARNING_RANGE),
        _clamped(options.forcibly_ratio, _FORCIBLY_RANGE),
        _clamped(options.maximum_ratio, _MAXIMUM_RANGE),
    )


def judge_disks(usage: DiskUsage, options: CleanOptions) -> DiskVerdict:
    """What the disks ask for (CleanCommitLogService#isSpaceToDelete, in its order)."""
    warning, forcibly, maximum = clamped_ratios(options)
    for percent in (usage.emptiest_commitlog, usage.consumequeue):
        if percent is not None and (percent > warning or percent > forcibly):
            return DiskVerdict(True, True, percent > warning)
    if options.replicas_per_partition > 1:
        share = usage.partition_bytes // options.replicas_per_partition
        logical = 100 * usage.store_bytes / share if share else 0
        if logical > options.logical_forcibly_ratio:
            return DiskVerdict(True, True, False)
        return DiskVerdict(logical > maximum, False, False)
    # an unknown usage asks for a deletion as well, as in RocketMQ
    asks = any(percent is None or percent > maximum for percent in (usage.emptiest_commitlog, usage.consumequeue))
    return DiskVerdict(asks, False, False)


class CleaningOrder(NamedTuple):
    """What a run is to do: whether it deletes at all, whether age matters, and the triggers that say so."""

    deletes: bool
    at_once: bool
    triggers: tuple[str, ...]
    disk_full: bool


def decide(options: CleanOptions, now: int, usage: DiskUsage) -> CleaningOrder:
    """The order for a run at `now` (ms since 1970; hours are those of the local time zone).

    A scheduled run deletes in its hours or when the disks ask for it. A requested run always does, and the disks then
    never add young files: RocketMQ's would (CleanCommitLogService), a person has `at_once`.
    """
    disks = judge_disks(usage, options)
    if not options.scheduled:
        return CleaningOrder(True, options.at_once, ("manual",), disks.disk_full)
    hour = time.localtime(now / 1000).tm_hour
    triggers = (["time"] if hour in options.hours() else []) + (["space"] if disks.wants_space else [])
    at_once = options.at_once or (disks.at_once and options.may_force)
    return CleaningOrder(bool(triggers), at_once, tuple(triggers), disks.disk_full)
