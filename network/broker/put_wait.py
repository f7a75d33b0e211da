"""A put that is not answered before it is on disk, on slaves, or both; or it has waited for too long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rmqctl.network.remoting.codes import ResponseCode


class PutWait:
    """What a put waits for, by the code that it is answered with if that does not come in time. Any thread may tell.

    `code`: how it ended, once it is `done`; slaves that are late count more than a disk that is
    (CommitLog#handleDiskFlushAndHA). `forget`: to be called when nobody waits any more. It is an Awaited: a Future
    would take longer to be made and told than all the rest of a put.
    """

    __slots__ = ("_deadlines", "_is_over", "_lock", "_now", "_told", "code", "forget")

    def __init__(self, now: int) -> None:
        """`now`: ms of the monotonic clock."""
        self.code = ResponseCode.SUCCESS
        self.forget: Callable[[], None] = _nothing
        self._is_over = False
        self._told: Callable[[Any], object] | None = None
        self._now = now
        self._lock = threading.Lock()
        self._deadlines: dict[ResponseCode, int] = {}

    def done(self) -> bool:
        """See Awaited."""
        return self._is_over

    def add_done_callback(self, told: Callable[[Any], object], /) -> None:
        """See Awaited; there may be one."""
        with self._lock:
            if not self._is_over:
                self._told = told
                return
        told(self)

    def wait_for(self, late: ResponseCode, milliseconds: int) -> None:
        """Wait so long for something more. To be said before anybody tells."""
        self._deadlines[late] = self._now + milliseconds

    def reached(self, late: ResponseCode) -> None:
        """It is there."""
        self._end(late, None)

    def expire(self, now: int) -> None:
        """Wait no more for what should be there by now (ms of the monotonic clock)."""
        for late, deadline in list(self._deadlines.items()):
            if deadline <= now:
                self._end(late, late)

    def _end(self, late: ResponseCode, code: ResponseCode | None) -> None:
        with self._lock:
            if self._deadlines.pop(late, None) is None:
                return
            if code is not None:
                self.code = max(self.code, code)
            if self._deadlines:
                return
            self._is_over = True
            # not kept: who is told knows us, and such circles wait for a collection of garbage
            told, self._told = self._told, None
        if told is not None:
            told(self)


def _nothing() -> None:
    """Nobody has to forget anything."""
