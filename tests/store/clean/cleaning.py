"""What the tests of cleaning share: goldens with files of a chosen age, and runs at a fixed time."""

from __future__ import annotations

import os
from pathlib import Path

from rmqctl.store.clean.cleaner import CleanReport, clean
from rmqctl.store.clean.options import CleanOptions, DiskUsage
from rmqctl.store.store_files import StoreFiles

NOW = 1_800_000_000_000
HOUR = 3_600_000
SIZE = 262_144
IDLE = DiskUsage((10,), 10)
NO_PAUSE = CleanOptions(pause=0)


def age(path: Path, milliseconds: int) -> None:
    """Make a file `milliseconds` old at NOW."""
    stamp = (NOW - milliseconds) * 1_000_000
    os.utime(path, ns=(stamp, stamp))


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def log_starts(store: Path) -> list[int]:
    return [int(path.name) for path in log_files(store)]


def age_all(store: Path, hours: int = 100) -> None:
    for path in log_files(store):
        age(path, hours * HOUR)


def run(store: Path, options: CleanOptions = NO_PAUSE, usage: DiskUsage = IDLE) -> CleanReport:
    with StoreFiles(store) as files:
        return clean(files, options, now=NOW, usage=usage)


def reasons(report: CleanReport, kind: str = "commitlog") -> list[str]:
    return [decision.because.value for decision in report.decisions if decision.kind == kind]


def queue_ranges(store: Path) -> dict[tuple[str, int], tuple[int, int]]:
    with StoreFiles(store) as files:
        low = files.log.min_offset
        return {
            (queue.topic, queue.queue_id): (queue.min_offset(low), queue.max_offset) for queue in files.queues.all()
        }
