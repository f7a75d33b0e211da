"""Threads that run callbacks, a limit to the messages they get, and an end that waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


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
