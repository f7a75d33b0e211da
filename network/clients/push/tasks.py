"""A thread that runs tasks one after the other, at once or later."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rmqctl.network.clients.client import Warn

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


# Threads that run callbacks, a limit to the messages they get, and an end that waits for them.


class CallbackThreads:
    """A pool of threads. With `limit` no more messages than that are handed to callbacks."""

    def __init__(self, threads: int, limit: int | None, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._changed = threading.Condition()
        self._left = limit
        self._limit = limit
        self._running = 0
        self._ended = 0
        self._is_closed = False

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread of the pool. A closed pool drops it."""

        def run() -> None:
            with self._changed:
                if self._is_closed:
                    return
                self._running += 1
            try:
                work()
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

        with self._changed:
            if not self._is_closed:
                self._pool.submit(run)

    @property
    def is_closed(self) -> bool:
        """Return whether no further callback may start."""
        return self._is_closed

    def reserve(self, wanted: int) -> int:
        """Return how many of `wanted` messages a callback may get."""
        with self._changed:
            if self._is_closed:
                return 0
            allowed = wanted if self._left is None else min(wanted, self._left)
            self._left = None if self._left is None else self._left - allowed
            return allowed

    def ended(self, reserved: int, count: int) -> None:
        """Note that `count` of the `reserved` messages have got their verdict; the others may be reserved again."""
        with self._changed:
            self._ended += count
            if self._left is not None:
                self._left += reserved - count
            self._changed.notify_all()

    @property
    def count(self) -> int:
        """Number of messages that callbacks have had."""
        return self._ended

    def wait_for_limit(self, seconds: float) -> bool:
        """Wait until as many messages as the limit allows have got their verdict. Return whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: self._limit is not None and self._ended >= self._limit, seconds)

    def close(self, seconds: float) -> None:
        """Start no further callback, and wait up to `seconds` for those that run."""
        until = time.monotonic() + seconds
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._changed.wait_for(lambda: not self._running, max(0.0, until - time.monotonic()))
