"""A master's slaves, how far each has come, and puts that wait for them (DefaultHAService, GroupTransferService)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

IN_SYNC_BYTES = 256 * 1024 * 1024
"""A slave that is no further behind counts as one that keeps up (haMaxGapNotInSync, haSlaveFallbehindMax)."""

_RATE_SECONDS = 1.0


class Slave:
    """One connection. Offsets are physical. `acknowledged`: what it says that it has; `next_offset`: what it is sent
    next, -1 before it has asked; `sent`: bytes of the log."""

    def __init__(self, remote: str) -> None:
        self.remote = remote
        self.acknowledged = -1
        self.next_offset = -1
        self.sent = 0
        self._before = (time.monotonic(), 0)
        self._rate = 0

    def bytes_per_second(self) -> int:
        """Bytes of the log a second, over the last few seconds before somebody asked."""
        (at, sent), now = self._before, time.monotonic()
        if now - at >= _RATE_SECONDS:
            self._rate = round((self.sent - sent) / (now - at))
            self._before = (now, self.sent)
        return self._rate


class _Wait(NamedTuple):
    offset: int
    slaves: int
    told: Callable[[], None]


class Slaves:
    """All of them. Any thread may ask and tell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slaves: list[Slave] = []
        self._waits: list[_Wait] = []
        self.wake: Callable[[], None] = lambda: None
        """Have what was put sent at once, and not only when the connections look next."""

    def add(self, slave: Slave) -> None:
        """One came."""
        with self._lock:
            self._slaves.append(slave)

    def remove(self, slave: Slave) -> None:
        """One went."""
        with self._lock:
            self._slaves.remove(slave)

    def all(self) -> list[Slave]:
        """Those that are here."""
        with self._lock:
            return list(self._slaves)

    def keeping_up(self, log_end: int) -> int:
        """How many are here, and not too far behind the end of the log to be waited for."""
        return sum(log_end - slave.acknowledged < IN_SYNC_BYTES for slave in self.all() if slave.acknowledged >= 0)

    def acknowledge(self, slave: Slave, offset: int) -> None:
        """A slave has all before `offset`."""
        with self._lock:
            slave.acknowledged = offset
            due = [wait for wait in self._waits if self._is_due(wait)]
            self._waits = [wait for wait in self._waits if wait not in due]
        for wait in due:
            wait.told()

    def _is_due(self, wait: _Wait) -> bool:
        return sum(slave.acknowledged >= wait.offset for slave in self._slaves) >= wait.slaves

    def tell_when_acknowledged(self, offset: int, slaves: int, told: Callable[[], None]) -> Callable[[], None]:
        """Call `told` when so many slaves have all before `offset`, which may be now. Gives what ends the waiting."""
        wait = _Wait(offset, slaves, told)
        with self._lock:
            is_due = self._is_due(wait)
            if not is_due:
                self._waits.append(wait)
        if is_due:
            told()
        else:
            self.wake()

        def forget() -> None:
            with self._lock:
                self._waits = [one for one in self._waits if one is not wait]

        return forget
