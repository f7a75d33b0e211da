"""How a store grew: its files by the day on which they were begun, what was removed, what changes keep beside it.

RocketMQ makes a commitlog file at its full size when the first message needs it, so the day of that message is the day
on which the disk lost this space.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.formats.errors import format_time
from rmqctl.store.files.reading import removed_error
from rmqctl.store.journal.log import changes
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.store_files import StoreFiles

_CLEAN = "clean"


@dataclass(slots=True)
class DaySize:
    """One day in UTC. `log_files`, `index_files`: those still there that were begun on it, with their bytes;
    `log_total_bytes`: of all log files that were begun until then.

    `cleaned_bytes`: of log, queues and index, removed by `rmqctl clean`; `kept_bytes`: on the disk, kept beside the
    store by changes of that day.
    """

    day: str
    log_files: int = 0
    log_bytes: int = 0
    log_total_bytes: int = 0
    index_files: int = 0
    index_bytes: int = 0
    cleaned_bytes: int = 0
    kept_bytes: int = 0


@dataclass(slots=True)
class SizeHistory:
    """`gone_bytes`: of the log's beginning, that no file holds any more; `cleaned_bytes`, `kept_bytes`: of all days.

    `first_store_timestamp`: of the oldest message, ms; None without one.
    """

    path: str
    first_store_timestamp: int | None = None
    gone_bytes: int = 0
    cleaned_bytes: int = 0
    kept_bytes: int = 0
    days: list[DaySize] = field(default_factory=list)


def size_history(files: StoreFiles) -> SizeHistory:
    """Return the days on which the store's size changed. One frame of each commitlog file is read. UnreadableError."""
    found = SizeHistory(str(files.layout.root), gone_bytes=max(0, files.log.min_offset))
    days: dict[str, DaySize] = defaultdict(lambda: DaySize(""))
    for file in files.log.files:
        timestamp = store_time_at(files.log, file.start_offset)
        if found.first_store_timestamp is None:
            found.first_store_timestamp = timestamp
        day = days[_day(_modified_ms(file.path) if timestamp is None else timestamp)]
        day.log_files += 1
        day.log_bytes += file.size
    for index in files.index.files:
        day = days[_day(index.header.begin_timestamp or _modified_ms(index.path))]
        day.index_files += 1
        day.index_bytes += index.geometry.file_size
    for change in changes(files.layout):
        day = days[_day(change.time)]
        if change.verb == _CLEAN:
            day.cleaned_bytes += change.bytes
            found.cleaned_bytes += change.bytes
        day.kept_bytes += change.kept_bytes
        found.kept_bytes += change.kept_bytes
    total = 0
    for name, day in sorted(days.items()):
        total += day.log_bytes
        day.day, day.log_total_bytes = name, total
        found.days.append(day)
    return found


def _modified_ms(path: Path) -> int:
    """Return when a file without a message was written last; RemovedError."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError as error:
        raise removed_error(path) from error


def _day(timestamp: int) -> str:
    return format_time(timestamp).partition("T")[0]
