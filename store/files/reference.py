"""Reference counting of a file that readers hold while the cleaner wants it gone (RocketMQ ReferenceResource)."""

from __future__ import annotations

import threading
import time

_FORCED = -1000


class ReferenceCount:
    """Starts available with one reference, the owner's. Times in ms of the monotonic clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 1
        self.available = True
        self.first_shutdown_time: int | None = None

    @property
    def count(self) -> int:
        """Current references, the owner's own included; negative once forced."""
        return self._count

    def hold(self) -> bool:
        """Take a reference; False once the file is on its way out."""
        with self._lock:
            if not self.available or self._count <= 0:
                return False
            self._count += 1
            return True

    def release(self) -> None:
        """Give a reference back."""
        with self._lock:
            self._count -= 1

    def shutdown(self, interval: int, now: int | None = None) -> bool:
        """Ask for the end: no new readers from here on. True when nobody holds the file any more.

        While readers hold it the answer is False, until `interval` ms after the first call, when it is forced.
        (ReferenceResource#shutdown)
        """
        now = time.monotonic_ns() // 1_000_000 if now is None else now
        with self._lock:
            if self.available:
                self.available = False
                self.first_shutdown_time = now
                self._count -= 1
            elif (
                self._count > 0 and self.first_shutdown_time is not None and now - self.first_shutdown_time >= interval
            ):
                self._count = _FORCED - self._count - 1
            return self._count <= 0
