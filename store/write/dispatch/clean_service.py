"""Removes expired files of a store that is open for writing: when asked to, or by itself (CleanCommitLogService)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from rmqctl.formats.errors import RefusedError
from rmqctl.store.clean import Cleaner, CleanOptions, CleanReport, clean, clean_locked, options_from_config
from rmqctl.store.compiled.notices import notice
from rmqctl.store.files.background import Background, Failure
from rmqctl.store.store_files import StoreFiles


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
            return clean(self._files, options, now=self._clock(), dry_run=True)
        return self._run(Cleaner(self._files, options, sleep=lambda _: None))

    def _scheduled_options(self) -> CleanOptions:
        return replace(options_from_config(self._files.config), scheduled=True)

    def _run(self, cleaner: Cleaner) -> CleanReport:
        with self._cleaning:
            settled = self._settled_end()
            # a queue file goes with the log it points into: nothing of it may be waiting for its flush then
            self._flush_queues()
            return clean_locked(cleaner, self._clock(), needed_from=settled)
