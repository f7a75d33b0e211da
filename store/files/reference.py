"""Reference counting of a file that readers hold while the cleaner wants it gone (RocketMQ ReferenceResource)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_FORCED = -1000


def monotonic_ms() -> int:
    """The clock of first-shutdown times, in ms: a step of the wall clock must not force a file out early."""
    return time.monotonic_ns() // 1_000_000


class ReferenceCount:
    """Starts available with one reference, the owner's. Times in ms of the monotonic clock.

    (ReferenceResource#shutdown)
    """

    def __init__(self, cleanup: Callable[[], None] | None = None) -> None:
        """`cleanup` is called once, when the last reference is gone after a shutdown; it must not come back here."""
        self._lock = threading.Lock()
        self._count = 1
        self._cleanup = cleanup
        self.available = True
        self.first_shutdown_time: int | None = None
        self.is_cleanup_over = False

    @property
    def count(self) -> int:
        """Current references, the owner's own included; negative once forced."""
        return self._count

    def hold(self) -> bool:
        """Take a reference; False once the file is on its way out (ReferenceResource#hold)."""
        with self._lock:
            if not self.available or self._count <= 0:
                return False
            self._count += 1
            return True

    def release(self) -> None:
        """Give a reference back; the last one cleans up if the file was shut down (ReferenceResource#release)."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        self._count -= 1
        # a file that is still available is in use by its owner, however often somebody released it
        if self._count > 0 or self.available or self.is_cleanup_over:
            return
        if self._cleanup is not None:
            self._cleanup()
        self.is_cleanup_over = True

    def shutdown(self, interval: int, now: int | None = None) -> bool:
        """Ask for the end: no new readers from here on. True when nobody holds the file any more.

        While readers hold it the answer is False, until `interval` ms after the first call, when it is forced.
        (ReferenceResource#shutdown)
        """
        now = monotonic_ms() if now is None else now
        with self._lock:
            if self.available:
                self.available = False
                self.first_shutdown_time = now
                self._release()
            elif self._count > 0 and self._is_overdue(interval, now):
                self._count = _FORCED - self._count
                self._release()
            return self.is_cleanup_over

    def would_end(self, interval: int, now: int | None = None) -> bool:
        """Whether `shutdown` with the same arguments would end it. Changes nothing."""
        now = monotonic_ms() if now is None else now
        with self._lock:
            if self.available:
                return self._count <= 1
            return self._count <= 0 or self._is_overdue(interval, now)

    def _is_overdue(self, interval: int, now: int) -> bool:
        return self.first_shutdown_time is not None and now - self.first_shutdown_time >= interval
