"""When each file is going to be removed by a broker, as things stand: by its age and by how full the disk is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.notebook import as_html
from rmqctl.store.clean.options import CleanOptions, DiskUsage, clamped_ratios, judge_disks
from rmqctl.store.clean.plan import last_physical_offset, last_position, measure_usage, modified_ms, refuse_unknowable
from rmqctl.store.config.config import next_hour
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import disk_space
from rmqctl.store.log.survey import look_at_tail
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.queue_table import has_rocksdb_queues
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.store_files import StoreFiles

AGE = "age"
DISK = "disk"
FOLLOWS = "follows"
STAYS = "stays"
_HOUR_MS = 3_600_000
_IDLE_MS = _HOUR_MS
"""A store without a message for so long is not being written to."""
_DAY_MS = 86_400_000


class FileForecast(NamedTuple):
    """One file. `expires_timestamp`: when it is older than fileReservedTime; `goes_timestamp`: when a broker that runs
    removes it, both in ms; None: not as things stand. `because`: its age, at an hour of deleteWhen; the disk, which
    does not wait for the hour, and from 85 % on not for the age; it follows the commitlog; or it stays."""

    kind: str
    path: Path
    size: int
    modified_timestamp: int
    expires_timestamp: int | None
    goes_timestamp: int | None
    because: str
    detail: str = ""


class DiskLevel(NamedTuple):
    """One of the ratios of a disk. `percent`: above it `effect` sets in. `bytes_left`: until then, 0 where it has been
    reached, None where the disk cannot be measured. `reached_timestamp`: when, if the log goes on growing as it did and
    nothing else comes or goes; None where that cannot be said."""

    setting: str
    percent: int
    effect: str
    bytes_left: int | None
    reached_timestamp: int | None


class Forecast(NamedTuple):
    """`bytes_per_day`: how fast the commitlog has grown, None for one of a single file or without a
    message in the last hour."""

    usage: DiskUsage
    bytes_per_day: int | None
    levels: list[DiskLevel]
    files: list[FileForecast]
    notes: list[str]

    def _repr_html_(self) -> str:
        return as_html(self)


def forecast_clean(files: StoreFiles, options: CleanOptions, now: int, usage: DiskUsage | None = None) -> Forecast:
    """What becomes of every commitlog, consume queue and index file from `now` (ms) on, if the disk stays as full as it
    is but for what is removed. The last files stay. RefusedError where it cannot be known what is deleted."""
    refuse_unknowable(files, options)
    usage = usage or measure_usage(files, options)
    log = _commitlog(files, options, now, usage)
    goes = [one.goes_timestamp for one in log]
    notes = []
    written = look_at_tail(files.log).largest_store_timestamp
    is_idle = written > 0 and now - written > _IDLE_MS
    rate = None if is_idle else _bytes_per_day(files.log)
    if is_idle:
        hours = (now - written) // _HOUR_MS
        notes.append(f"the last message was stored {hours} h ago: growth is not extrapolated")
    elif rate is None:
        notes.append("how fast the log grows is not known: it has one file, or its times cannot be read")
    if files.has_abort():
        notes.append("the store was not closed cleanly, or a broker has it open: what a recovery does is not foreseen")
    if has_rocksdb_queues(files.layout):
        notes.append("the consume queues are in a RocksDB: the broker's compaction drops their stale units")
    followers = list(_followers(files, goes))
    return Forecast(usage, rate, _levels(files, options, now, rate), [*log, *followers], notes)


def _commitlog(files: StoreFiles, options: CleanOptions, now: int, usage: DiskUsage) -> list[FileForecast]:
    """(CleanCommitLogService#deleteExpiredFiles, MappedFileQueue#deleteExpiredFileByTime)"""
    last = last_position(files.log)
    found: list[FileForecast] = []
    freed, at, stopped = 0, now, False
    disks = judge_disks(usage, options)
    for position, file in enumerate(files.log.files):
        modified = modified_ms(file.path)
        row = FileForecast("commitlog", file.path, file.size, modified, None, None, STAYS)
        if position >= last:
            detail = "the last file with data is always kept" if position == last else "holds nothing yet"
            found.append(row._replace(detail=detail))
            continue
        expires = modified + options.reserved_time
        # the disks are looked at before every run
        if position % options.batch_maximum == 0:
            disks = judge_disks(_less(usage, freed), options)
        if disks.at_once and options.may_force:
            at, because = max(at, now), DISK
        elif disks.wants_space:
            at, because = max(at, expires), DISK
        else:
            hour = next_hour(max(at, expires), options.delete_when)
            stopped |= hour is None
            at, because = hour or at, AGE
        if stopped:
            found.append(row._replace(expires_timestamp=expires, detail="deleteWhen names no hour"))
            continue
        freed += file.size
        # what has expired long ago goes at the next hour, and waits for nothing but that
        detail = "waits for an older file" if because == AGE and at > max(now, expires) + _DAY_MS else ""
        found.append(row._replace(expires_timestamp=expires, goes_timestamp=at, because=because, detail=detail))
    return found


def _less(usage: DiskUsage, freed: int) -> DiskUsage:
    """Return `usage` after that number of bytes is freed."""
    if not freed or not usage.partition_bytes:
        return usage
    share = freed * 100 // usage.partition_bytes
    logs = tuple(None if percent is None else max(0, percent - share) for percent in usage.commitlog)
    queues = None if usage.consumequeue is None else max(0, usage.consumequeue - share)
    return usage._replace(commitlog=logs, consumequeue=queues, store_bytes=max(0, usage.store_bytes - freed))


def _followers(files: StoreFiles, goes: list[int | None]) -> Iterator[FileForecast]:
    """A file of a queue or of the index goes with the commitlog file that holds the last message it points to."""
    if not has_rocksdb_queues(files.layout):
        for queue in files.queues.all():
            kind = "consumequeue" if isinstance(queue, ConsumeQueue) else "batchconsumequeue"
            last = last_position(queue.files)
            at: int | None = 0
            for position, file in enumerate(queue.files.files):
                row = FileForecast(kind, file.path, file.size, modified_ms(file.path), None, None, STAYS)
                if position >= last:
                    yield row._replace(detail="the last file of its queue")
                    continue
                at = _then(files.log, goes, last_physical_offset(queue, file), at)
                yield _following(row, at)
    known = files.index.files
    at = 0
    for number, index in enumerate(known):
        size = index.path.stat().st_size
        row = FileForecast("index", index.path, size, modified_ms(index.path), None, None, STAYS)
        if number == len(known) - 1:
            yield row._replace(detail="the last index file")
            continue
        at = _then(files.log, goes, index.header.end_physical_offset, at)
        yield _following(row, at)


def _following(row: FileForecast, at: int | None) -> FileForecast:
    if at is None:
        return row._replace(detail="points to what stays, or is behind such a file")
    return row._replace(goes_timestamp=at, because=FOLLOWS)


def _then(log: MappedFileQueue, goes: list[int | None], physical_offset: int | None, before: int | None) -> int | None:
    """When a file goes that points up to `physical_offset`, the one before it at `before`."""
    if physical_offset is None or before is None:
        return None
    for file, at in zip(log.files, goes, strict=True):
        if physical_offset < file.end_offset:
            return None if at is None else max(at, before)
    return None


def _bytes_per_day(log: MappedFileQueue) -> int | None:
    """How fast the log has grown from its first file to its last, by the store times at their beginnings."""
    last = last_position(log)
    if last < 1:
        return None
    first_time, last_time = (store_time_at(log, log.files[place].start_offset) for place in (0, last))
    if first_time is None or last_time is None or last_time <= first_time:
        return None
    return (log.files[last].start_offset - log.files[0].start_offset) * _DAY_MS // (last_time - first_time)


def _levels(files: StoreFiles, options: CleanOptions, now: int, rate: int | None) -> list[DiskLevel]:
    """The three ratios of CleanCommitLogService#isSpaceToDelete, each with what it does."""
    try:
        used, entire = disk_space(files.layout.commitlog[0])
    except OSError:
        used = entire = 0  # said by bytes_left
    levels = []
    warning, forcibly, maximum = clamped_ratios(options)
    for setting, percent, effect in (
        ("diskMaxUsedSpaceRatio", maximum, "expired files go at any hour"),
        ("diskSpaceCleanForciblyRatio", forcibly, "young files go, too, the oldest first"),
        ("diskSpaceWarningLevelRatio", warning, "the broker takes no messages"),
    ):
        left = max(0, entire * percent // 100 - used + 1) if entire else None
        reached = now if left == 0 else None
        if left and rate:
            reached = now + left * _DAY_MS // rate
        levels.append(DiskLevel(setting, percent, effect, left, reached))
    return levels
