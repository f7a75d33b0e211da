"""A put that is not answered before it is on disk, on slaves, or both; or it has waited for too long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from rmqctl.network.remoting.codes import ResponseCode


class PutWait:
    """What a put waits for, by the code that it is answered with if that does not come in time. Any thread may tell.

    `code`: how it ended, once it is `done`; slaves that are late count more than a disk that is
    (CommitLog#handleDiskFlushAndHA). `forget`: to be called when nobody waits any more.
    """

    def __init__(self, now: int) -> None:
        """`now`: ms."""
        self.done: Future[None] = Future()
        self.code = ResponseCode.SUCCESS
        self.forget: Callable[[], None] = lambda: None
        self._now = now
        self._lock = threading.Lock()
        self._deadlines: dict[ResponseCode, int] = {}

    def wait_for(self, late: ResponseCode, milliseconds: int) -> None:
        """Wait so long for something more. To be said before anybody tells."""
        self._deadlines[late] = self._now + milliseconds

    def reached(self, late: ResponseCode) -> None:
        """It is there."""
        self._end(late, None)

    def expire(self, now: int) -> None:
        """Wait no more for what should be there by now (ms)."""
        for late, deadline in list(self._deadlines.items()):
            if deadline <= now:
                self._end(late, late)

    def _end(self, late: ResponseCode, code: ResponseCode | None) -> None:
        with self._lock:
            if self._deadlines.pop(late, None) is None:
                return
            if code is not None:
                self.code = max(self.code, code)
            is_over = not self._deadlines
        if is_over:
            self.done.set_result(None)
