"""Deadlines of requests that wait for an answer, watched by one thread (NettyRemotingClient#scanResponseTable)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

_SCAN_SECONDS = 0.1


class Deadlines:
    """Calls a function when its time has passed, unless it is dropped before. May be used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[float, Callable[[], None]]] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, seconds: float, late: Callable[[], None]) -> int:
        """Have `late` called in `seconds`, in a thread of its own; return the number to drop it by."""
        number = next(self._numbers)
        with self._lock:
            self._waiting[number] = time.monotonic() + seconds, late
            if self._thread is None:
                self._thread = threading.Thread(target=self._scan, name="rmqctl-deadlines", daemon=True)
                self._thread.start()
        return number

    def drop(self, number: int) -> bool:
        """Drop a deadline; return False where it has passed already."""
        with self._lock:
            return self._waiting.pop(number, None) is not None

    def _scan(self) -> None:
        while not self._ended.wait(_SCAN_SECONDS):
            now = time.monotonic()
            with self._lock:
                late = [number for number, (at, _) in self._waiting.items() if at <= now]
                calls = [self._waiting.pop(number)[1] for number in late]
            for call in calls:
                call()

    def close(self) -> None:
        """End the watching."""
        self._ended.set()
