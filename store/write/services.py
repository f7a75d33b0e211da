"""The thread that flushes consume queues and keeps the checkpoint behind them (FlushConsumeQueueService)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rmqctl.formats.errors import DiskFullError, RefusedError
from rmqctl.store.clean.cleaner import Cleaner, CleanReport, clean, clean_locked
from rmqctl.store.clean.options import CleanOptions, options_from_config
from rmqctl.store.files.background import Background, Failure
from rmqctl.store.log.append import LogFlusher
from rmqctl.store.notices import notice
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.queue_table import QueueFlusher
from rmqctl.store.store_files import Checkpoint, StoreFiles, read_checkpoint, write_checkpoint
from rmqctl.store.write.dispatch import Follower

# Keeps the checkpoint file of a store that is being written (StoreCheckpoint).


class CheckpointKeeper:
    """The checkpoint's values, and the file they are written to when they changed.

    Unlike RocketMQ's, a time gets in here only after what it speaks of was fsynced.
    """

    def __init__(self, path: Path, *, keeps_logics_offset: bool = False) -> None:
        """`keeps_logics_offset`: see StoreFiles; else it stays as it is."""
        self._path = path
        self._keeps_logics_offset = keeps_logics_offset
        self._lock = threading.Lock()
        self._on_disk = read_checkpoint(path)
        self._values = self._on_disk or Checkpoint()
        # (time, physical offset) of the oldest and the last message that went back in time, until they are covered
        self._ceiling: tuple[int, int] | None = None

    @property
    def values(self) -> Checkpoint:
        """What the next `write` writes."""
        return self._values

    def set(
        self,
        *,
        physic: int = 0,
        logics: int = 0,
        index: int = 0,
        confirm: int | None = None,
        logics_offset: int | None = None,
        covered_to: int = 0,
    ) -> None:
        """Note times (ms; 0 for no news), the start of the last valid message, and that of the last message whose unit
        and frame are on disk. Not written yet.

        `covered_to`: physical offset up to which log and queues are known to be on disk.
        """
        if not self._keeps_logics_offset:
            logics_offset = None
        with self._lock:
            if self._ceiling is not None:
                timestamp, offset = self._ceiling
                if covered_to > offset:
                    self._ceiling = None
                else:
                    physic, logics = min(physic, timestamp), min(logics, timestamp)
            values = self._values
            self._values = values._replace(
                physic_msg_timestamp=physic or values.physic_msg_timestamp,
                logics_msg_timestamp=logics or values.logics_msg_timestamp,
                index_msg_timestamp=index or values.index_msg_timestamp,
                confirm_physical_offset=values.confirm_physical_offset if confirm is None else confirm,
                logics_physical_offset=values.logics_physical_offset if logics_offset is None else logics_offset,
            )

    def lower(self, timestamp: int, physical_offset: int) -> None:
        """Before a message is stored whose time (ms) lies behind that of earlier ones: see that the file on disk does
        not call it flushed, now or before it is. A recovery trusts that times only grow."""
        with self._lock:
            before = self._ceiling
            self._ceiling = (timestamp if before is None else min(timestamp, before[0]), physical_offset)
            values = self._values
            self._values = values._replace(
                physic_msg_timestamp=min(values.physic_msg_timestamp, timestamp),
                logics_msg_timestamp=min(values.logics_msg_timestamp, timestamp),
            )
        self.write()

    def write(self) -> None:
        """Write the file if anything changed; durable when this returns."""
        with self._lock:
            if self._values != self._on_disk:
                write_checkpoint(self._path, self._values)
                self._on_disk = self._values


class QueueFlushService:
    """Every flushIntervalConsumeQueue ms: queues first, then the checkpoint that says so (FlushConsumeQueueService)."""

    def __init__(
        self,
        intervals_ms: tuple[int, int],
        queue_flusher: QueueFlusher,
        log_flusher: LogFlusher,
        follower: Follower,
        checkpoint: CheckpointKeeper,
        on_failure: Failure,
    ) -> None:
        """`intervals_ms`: flushIntervalConsumeQueue, flushConsumeQueueThoroughInterval."""
        self._thorough_ms = intervals_ms[1]
        self._queue_flusher = queue_flusher
        self._log_flusher = log_flusher
        self._follower = follower
        self._checkpoint = checkpoint
        self._last_thorough = time.monotonic()
        # start of the last message whose unit is on disk; -1: none of this writer's
        self._units_to = -1
        # what one flush has read must not be noted after what a later one has
        self._flushing = threading.Lock()
        self._thread = Background("flush-queues", self._step, intervals_ms[0], on_failure, is_timed=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; does not flush."""
        self._thread.stop()

    def _step(self) -> None:
        now = time.monotonic()
        is_thorough = (now - self._last_thorough) * 1000 >= self._thorough_ms
        if is_thorough:
            self._last_thorough = now
        self.flush_queues(is_thorough)
        # on a full disk an older checkpoint stays, which only makes a recovery read more; closing tries again, loudly
        with contextlib.suppress(DiskFullError):
            self._checkpoint.write()

    def flush(self) -> None:
        """Flush all queues, then write the checkpoint."""
        self.flush_queues(is_thorough=True)
        self._checkpoint.write()

    def flush_queues(self, is_thorough: bool = True) -> None:
        """Flush queues and note it for the checkpoint. Everything noted is read before the flush that makes it true."""
        with self._flushing:
            logics, last = self._follower.last_timestamp, self._follower.last_offset
            physic = self._log_flusher.flushed_timestamp
            covered = min(self._follower.position, self._log_flusher.flushed_offset)
            if not self._queue_flusher.flush(is_thorough):
                logics, covered = 0, 0
            elif last >= 0:
                self._units_to = last
            # the log is flushed at a pace of its own, and no unit counts before its message does
            is_on_disk = 0 <= self._units_to < self._log_flusher.flushed_offset
            index = self._follower.index_timestamp
            self._checkpoint.set(
                physic=physic,
                logics=logics,
                index=index,
                logics_offset=self._units_to if is_on_disk else None,
                covered_to=covered,
            )


# Removes expired files of a store that is open for writing: when asked to, or by itself (CleanCommitLogService).


class CleanService:
    """`clean` once, or from `start` on every cleanResourceInterval ms by the broker's rules, the first time after one
    interval. What is not on disk or not dispatched yet stays in any case.

    (DefaultMessageStore#addScheduleTask, which waits for a minute first)
    """

    def __init__(
        self,
        files: StoreFiles,
        clock: Callable[[], int],
        settled_end: Callable[[], int],
        flush_queues: Callable[[], None],
        on_failure: Failure,
    ) -> None:
        """`clock`: ms since 1970. `settled_end`: before this physical offset the log is on disk and dispatched."""
        self._files = files
        self._clock = clock
        self._settled_end = settled_end
        self._flush_queues = flush_queues
        self._scheduled = Cleaner(files, self._scheduled_options())
        # one cleaning at a time
        self._cleaning = threading.Lock()
        self._thread: Background | None = None
        self._on_failure = on_failure

    @property
    def is_started(self) -> bool:
        """Whether it cleans by itself."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread."""
        interval = max(1, self._files.config.clean_resource_interval)
        self._thread = Background("clean", self.step, interval, self._on_failure, is_timed=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the running cleaning to end; no other begins by itself."""
        if self._thread is not None:
            self._thread.stop()

    def step(self) -> CleanReport | None:
        """One scheduled cleaning; None where it cannot be known what may be deleted, which is told once."""
        # as they are now: they can be changed while the store is open
        self._scheduled.options = self._scheduled_options()
        try:
            return self._run(self._scheduled)
        except RefusedError as error:
            notice(f"{error}: nothing is cleaned")
            return None

    def clean(self, options: CleanOptions | None, dry_run: bool) -> CleanReport:
        """One cleaning that somebody asked for. RefusedError, WriteFailedError; see rmqctl.store.clean.clean."""
        options = options or options_from_config(self._files.config)
        if dry_run:
            return clean(self._files, options, now=self._clock(), change=ChangeOptions(dry_run=True))
        return self._run(Cleaner(self._files, options, sleep=lambda _: None))

    def _scheduled_options(self) -> CleanOptions:
        return replace(options_from_config(self._files.config), scheduled=True)

    def _run(self, cleaner: Cleaner) -> CleanReport:
        with self._cleaning:
            settled = self._settled_end()
            # a queue file goes with the log it points into: nothing of it may be waiting for its flush then
            self._flush_queues()
            return clean_locked(cleaner, self._clock(), needed_from=settled)
