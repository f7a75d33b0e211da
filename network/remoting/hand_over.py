"""Calls that other threads hand over to the loop's: however many come before it gets to them, it is woken once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable


class HandOver:
    """For one loop. Any thread may `call`."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def call(self, loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
        """Have `function` called in the thread of `loop`, after those that were handed over before. A loop that has
        ended calls none."""
        self._calls.append(function)
        # first the call, then the look whether somebody comes for it; he takes back the mark before he looks for calls
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._run, loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_woken = False
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            # one that fails keeps none of the others from being called
            if self._calls:
                loop.call_soon(self._run, loop)
