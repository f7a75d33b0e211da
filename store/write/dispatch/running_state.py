"""Whether an open store takes messages, and what went wrong if it no longer does (RunningFlags)."""

from __future__ import annotations

import threading
from collections.abc import Callable


class RunningState:
    """Open, closed, or failed for good. The first failure is kept: it is the one that says why."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.is_closed = False
        self.failure: BaseException | None = None

    @property
    def is_writeable(self) -> bool:
        """Whether messages may be put."""
        return self.failure is None and not self.is_closed

    def on_failure(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when the store fails, so that nobody waits for what will not come."""
        self._listeners.append(listener)

    def fail(self, error: BaseException) -> None:
        """Make the store non-writeable until it was opened anew: after an error of a background service or of an
        fsync nobody knows what is on disk."""
        with self._lock:
            if self.failure is None:
                self.failure = error
        for listener in self._listeners:
            listener()

    def raise_failure(self) -> None:
        """Raise the error that ended the store's work, if any."""
        if self.failure is not None:
            raise self.failure
