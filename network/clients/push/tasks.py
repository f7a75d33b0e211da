"""A thread that runs tasks one after the other, at once or later."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

Warn = Callable[[str], None]
DelayedWork = Callable[[], object]


class Tasks:
    """Tasks of one thread. A task that fails is reported to `warn`; the others run on."""

    def __init__(self, name: str, warn: Warn) -> None:
        self._warn = warn
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, DelayedWork]] = []
        self._numbers = itertools.count()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start running tasks."""
        self._thread.start()

    def soon(self, task: DelayedWork) -> None:
        """Run a task as soon as the thread is free."""
        self.later(0.0, task)

    def later(self, seconds: float, task: DelayedWork) -> None:
        """Run a task after `seconds`. A closed thread drops it."""
        with self._changed:
            if not self._is_closed:
                heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), task))
                self._changed.notify()

    def every(self, seconds: float, task: DelayedWork, *, first: float | None = None) -> None:
        """Run a task after `first` seconds (None: `seconds`), then `seconds` after each of its ends."""

        def run() -> None:
            try:
                task()
            finally:
                self.later(seconds, run)

        self.later(seconds if first is None else first, run)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(None if not self._due else max(0.0, self._due[0][0] - time.monotonic()))
                if self._is_closed:
                    return
                _, _, task = heapq.heappop(self._due)
            try:
                task()
            except Exception as error:  # noqa: BLE001 - the other tasks go on
                self._warn(f"{threading.current_thread().name}: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Drop all tasks and wait for the one that runs."""
        with self._changed:
            self._is_closed = True
            self._due.clear()
            self._changed.notify()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
