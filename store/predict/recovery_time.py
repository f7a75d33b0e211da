"""How much a start reads until its store is recovered, and an estimate of how long that takes, with its basis."""

from __future__ import annotations

from typing import NamedTuple

# CommitLog#checkMessageAndReturnSize over mapped files of small messages, one thread, log in memory (bench/)
_FAST_BYTES_PER_S = 500_000_000
# a hard disk or a network disk that delivers the log while it is read
_SLOW_BYTES_PER_S = 100_000_000
# opening and mapping: 200,000 files took 48 s, and 150 s in older versions (apache/rocketmq#5091)
_FAST_S_PER_FILE = 48 / 200_000
_SLOW_S_PER_FILE = 150 / 200_000
BASIS = (
    "estimate: the log at 500 MB/s (in memory) to 100 MB/s (slow disk), in one thread as RocketMQ reads it; 0.24 to "
    "0.75 ms for each file that is opened; JVM start, registration and timers not included"
)


class RecoveryWork(NamedTuple):
    """`log_bytes` of `log_files` are read from where the recovery begins to where the log ends for the broker;
    `queue_files` are opened before that. `seconds_least`, `seconds_most`: the estimated duration, by `basis`."""

    log_bytes: int
    log_files: int
    queue_files: int
    seconds_least: float
    seconds_most: float
    basis: str


def recovery_work(log_bytes: int, log_files: int, queue_files: int) -> RecoveryWork:
    """Return the work of a start with the time it takes."""
    opened = log_files + queue_files
    least = log_bytes / _FAST_BYTES_PER_S + opened * _FAST_S_PER_FILE
    most = log_bytes / _SLOW_BYTES_PER_S + opened * _SLOW_S_PER_FILE
    return RecoveryWork(log_bytes, log_files, queue_files, round(least, 3), round(most, 3), BASIS)
