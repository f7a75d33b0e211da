"""Limits of asynchronous sends: how many and how many bytes may be on their way (executeAsyncMessageSend)."""

from __future__ import annotations

import threading
import time
from collections import deque

from rmqctl.formats.errors import RemoteError
from rmqctl.network.clients.producing.settings import ProducerSettings

LEAST_NUMBER, LEAST_SIZE = 10, 1 << 20


class AsyncLimits:
    """Limits of one producer, where its settings want any (enableBackpressureForAsyncMode). Safe for threads."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._is_on = settings.enable_backpressure_for_async_mode
        self._number = _Permits(max(settings.back_pressure_for_async_send_num, LEAST_NUMBER))
        self._size = _Permits(max(settings.back_pressure_for_async_send_size, LEAST_SIZE))

    def acquire(self, size: int, until: float) -> None:
        """Wait until a message of `size` bytes may be sent; `until`: a monotonic time in s.

        Raises: RemoteError, with RocketMQ's message, where that is not so in time.
        """
        if not self._is_on:
            return
        if not self._number.acquire(1, until):
            raise RemoteError("send message tryAcquire semaphoreAsyncNum timeout")
        if not self._size.acquire(size, until):
            self._number.release(1)
            raise RemoteError("send message tryAcquire semaphoreAsyncSize timeout")

    def release(self, size: int) -> None:
        """Note that a message of `size` bytes has its result."""
        if self._is_on:
            self._size.release(size)
            self._number.release(1)


class _Permits:
    """A semaphore whose permits are taken several at a time, first come, first served."""

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()

    def acquire(self, count: int, until: float) -> bool:
        """Take permits; return False where they are not free in time."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                left = max(0.0, until - time.monotonic())
                if not left or not self._changed.wait_for(
                    lambda: self._waiting[0] is ticket and self._free >= count, left
                ):
                    return False
                self._free -= count
                return True
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def release(self, count: int) -> None:
        """Return permits."""
        with self._changed:
            self._free += count
            self._changed.notify_all()
