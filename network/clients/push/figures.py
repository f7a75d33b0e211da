"""Figures of a push consumer by topic: pulls and consumption over the last minute (ConsumerStatsManager)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable

_MINUTE, _HOUR = 60, 3600


class ConsumeFigures:
    """Counts by topic and second. Safe for threads. `clock`: monotonic, in s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pulls: dict[str, _Window] = defaultdict(_Window)
        self._callbacks: dict[str, _Window] = defaultdict(_Window)
        self._good: dict[str, _Window] = defaultdict(_Window)
        self._failed: dict[str, _Window] = defaultdict(_Window)

    def pulled(self, topic: str, messages: int, seconds: float) -> None:
        """Count a pull that brought messages."""
        with self._lock:
            self._pulls[topic].add(self._clock(), messages, seconds)

    def consumed(self, topic: str, good: int, failed: int, seconds: float) -> None:
        """Count a callback: its time, and the messages that it consumed or failed to consume."""
        now = self._clock()
        with self._lock:
            self._callbacks[topic].add(now, 1, seconds)
            self._good[topic].add(now, good, 0.0)
            self._failed[topic].add(now, failed, 0.0)

    def status(self, topic: str) -> dict[str, float]:
        """Return the figures of a topic (ConsumeStatus): times in ms for each pull and callback, messages a second."""
        now = self._clock()
        with self._lock:
            pulls, pulled, pull_seconds = self._pulls[topic].last(now, _MINUTE)
            callbacks, _, seconds = self._callbacks[topic].last(now, _MINUTE)
            good, failed = self._good[topic].last(now, _MINUTE)[1], self._failed[topic].last(now, _MINUTE)[1]
            lost = self._failed[topic].last(now, _HOUR)[1]
        return {
            "consumeFailedMsgs": lost,
            "consumeFailedTPS": failed / _MINUTE,
            "consumeOKTPS": good / _MINUTE,
            "consumeRT": 1000 * seconds / callbacks if callbacks else 0.0,
            "pullRT": 1000 * pull_seconds / pulls if pulls else 0.0,
            "pullTPS": pulled / _MINUTE,
        }


class _Window:
    """Events of the last hour: for each second how many there were, their counts and their seconds."""

    def __init__(self) -> None:
        self._slots: deque[tuple[int, int, int, float]] = deque()

    def add(self, now: float, count: int, seconds: float) -> None:
        at = int(now)
        events = 1
        if self._slots and self._slots[-1][0] == at:
            _, more_events, more, longer = self._slots.pop()
            events, count, seconds = events + more_events, count + more, seconds + longer
        self._slots.append((at, events, count, seconds))
        while self._slots[0][0] <= at - _HOUR:
            self._slots.popleft()

    def last(self, now: float, seconds: int) -> tuple[int, int, float]:
        found = [one for one in self._slots if one[0] > now - seconds]
        return sum(one[1] for one in found), sum(one[2] for one in found), sum(one[3] for one in found)
