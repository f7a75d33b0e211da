"""The thread that flushes consume queues and keeps the checkpoint behind them (FlushConsumeQueueService)."""

from __future__ import annotations

import contextlib
import threading
import time

from rmqctl.formats.errors import DiskFullError
from rmqctl.store.commitlog.flush import LogFlusher
from rmqctl.store.files.background import Background, Failure
from rmqctl.store.queues.flush import QueueFlusher
from rmqctl.store.write.dispatch.checkpoint_keeper import CheckpointKeeper
from rmqctl.store.write.dispatch.reput import Follower

# flushConsumeQueueThoroughInterval
_THOROUGH_SECONDS = 60.0


class QueueFlushService:
    """Every flushIntervalConsumeQueue ms: queues first, then the checkpoint that says so (FlushConsumeQueueService)."""

    def __init__(
        self,
        interval_ms: int,
        queue_flusher: QueueFlusher,
        log_flusher: LogFlusher,
        follower: Follower,
        checkpoint: CheckpointKeeper,
        on_failure: Failure,
    ) -> None:
        self._queue_flusher = queue_flusher
        self._log_flusher = log_flusher
        self._follower = follower
        self._checkpoint = checkpoint
        self._last_thorough = time.monotonic()
        # start of the last message whose unit is on disk; -1: none of this writer's
        self._units_to = -1
        # what one flush has read must not be noted after what a later one has
        self._flushing = threading.Lock()
        self._thread = Background("flush-queues", self._step, interval_ms, on_failure, is_timed=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; does not flush."""
        self._thread.stop()

    def _step(self) -> None:
        now = time.monotonic()
        is_thorough = now - self._last_thorough >= _THOROUGH_SECONDS
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
