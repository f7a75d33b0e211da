"""Messages of one assigned queue that are pulled and not yet consumed (ProcessQueue), and threads for them."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.client import Warn

LOCK_SECONDS = 30.0
"""Age at which a client takes its own lock of a queue for expired; brokers keep it for 60 s."""
PULL_SECONDS = 120.0
"""Time without a pull after which a queue is dropped and assigned afresh."""
_MIB = 1 << 20
MOST_EXPIRED = 16
"""Expired messages that are sent back in one pass of a queue."""


class ProcessQueue:
    """Messages of one queue by queue offset, and the state of its assignment.

    `is_dropped`: the queue belongs to another member, or starts elsewhere; no verdict counts any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # in the order of their offsets
        self._waiting: dict[int, StoredMessage] = {}
        # taken by the callback in order, not committed yet
        self._taken: dict[int, StoredMessage] = {}
        self._started: dict[int, float] = {}
        self._size = 0
        self._max_offset = 0
        self._is_consuming = False
        self.is_dropped = False
        self.is_locked = False
        self.locked_at = self.pulled_at = self.consumed_at = time.monotonic()
        self.consuming = threading.Lock()
        """Held while a callback in order runs: the queue is not unlocked meanwhile."""

    # ---- state

    @property
    def count(self) -> int:
        """Number of messages held."""
        return len(self._waiting) + len(self._taken)

    @property
    def mebibytes(self) -> int:
        """Size of the bodies held, in whole MiB."""
        return self._size // _MIB

    @property
    def span(self) -> int:
        """Distance between the first and the last offset that waits."""
        with self._lock:
            return next(reversed(self._waiting)) - next(iter(self._waiting)) if self._waiting else 0

    @property
    def low(self) -> int | None:
        """Smallest offset without a verdict; None where nothing is held."""
        with self._lock:
            return min((*islice(self._waiting, 1), *self._taken), default=None)

    def info(self) -> dict[str, int | bool]:
        """Return the state as brokers ask for it (ProcessQueueInfo); times in ms since 1970."""
        ago = time.time() - time.monotonic()
        with self._lock:
            waiting, taken = self._waiting, self._taken
            return {
                "cachedMsgMinOffset": next(iter(waiting), 0),
                "cachedMsgMaxOffset": next(reversed(waiting), 0),
                "cachedMsgCount": len(waiting),
                "cachedMsgSizeInMiB": self.mebibytes,
                "transactionMsgMinOffset": min(taken, default=0),
                "transactionMsgMaxOffset": max(taken, default=0),
                "transactionMsgCount": len(taken),
                "locked": self.is_locked,
                "lastLockTimestamp": int((ago + self.locked_at) * 1000),
                "droped": self.is_dropped,
                "lastPullTimestamp": int((ago + self.pulled_at) * 1000),
                "lastConsumeTimestamp": int((ago + self.consumed_at) * 1000),
            }

    def has_valid_lock(self, now: float) -> bool:
        """Return whether the broker's lock on the queue is held and young."""
        return self.is_locked and now - self.locked_at <= LOCK_SECONDS

    def is_pull_expired(self, now: float) -> bool:
        """Return whether the queue has not been pulled from for 120 s."""
        return now - self.pulled_at > PULL_SECONDS

    def holds(self, message: StoredMessage) -> bool:
        """Return whether a message still waits for its verdict."""
        with self._lock:
            return message.queue_offset in self._waiting

    # ---- messages

    def put(self, messages: Sequence[StoredMessage]) -> bool:
        """Add pulled messages. Return True where a consumer in order has to be started."""
        with self._lock:
            self._size += sum([len(one.body) for one in messages if one.queue_offset not in self._waiting])
            self._max_offset = max(self._max_offset, *[one.queue_offset for one in messages[-1:]])
            self._add(messages)
            starts = bool(self._waiting) and not self._is_consuming
            self._is_consuming = self._is_consuming or starts
            return starts

    def _add(self, messages: Sequence[StoredMessage]) -> None:
        """Have messages wait at their places, or replace those that are there."""
        last = next(reversed(self._waiting), -1)
        self._waiting.update([(message.queue_offset, message) for message in messages])
        if any(message.queue_offset < last for message in messages[:1]):
            self._waiting = dict(sorted(self._waiting.items()))

    def begin(self, messages: Sequence[StoredMessage], now: float) -> None:
        """Note that the callback gets messages now."""
        with self._lock:
            self._started.update((message.queue_offset, now) for message in messages)

    def remove(self, messages: Sequence[StoredMessage]) -> int:
        """Remove messages that are done with. Return the offset to commit, -1 where nothing was held.

        That is the smallest offset still held, else the one after the largest ever held.
        """
        with self._lock:
            self.consumed_at = time.monotonic()
            if not self._waiting:
                return -1
            found = [self._waiting.pop(message.queue_offset, None) for message in messages]
            self._size -= sum([len(one.body) for one in found if one is not None])
            for message in messages if self._started else ():
                self._started.pop(message.queue_offset, None)
            return next(iter(self._waiting), self._max_offset + 1)

    def replace(self, message: StoredMessage) -> None:
        """Put a changed message (one attempt more) in the place of the one with its offset."""
        with self._lock:
            if message.queue_offset in self._waiting:
                self._waiting[message.queue_offset] = message

    def expired(self, now: float, seconds: float) -> StoredMessage | None:
        """Return the first message if its callback has run for more than `seconds`."""
        with self._lock:
            first = next(iter(self._waiting.values()), None)
            began = None if first is None else self._started.get(first.queue_offset)
            return first if began is not None and now - began > seconds else None

    def remove_expired(self, message: StoredMessage) -> int:
        """Remove an expired message if it is still the first. Return the offset to commit, or -1."""
        with self._lock:
            is_first = next(iter(self._waiting), -1) == message.queue_offset
        return self.remove([message]) if is_first else -1

    # ---- consumption in order

    def take(self, size: int) -> list[StoredMessage]:
        """Take the first messages; without any the consumer in order has to end."""
        with self._lock:
            self.consumed_at = time.monotonic()
            found = [self._waiting.pop(offset) for offset in list(islice(self._waiting, size))]
            self._taken.update((message.queue_offset, message) for message in found)
            self._is_consuming = bool(found)
            return found

    def commit(self) -> int:
        """Finish all messages taken. Return the offset to commit, -1 where none is taken."""
        with self._lock:
            if not self._taken:
                return -1
            last = max(self._taken)
            self._size -= sum(len(message.body) for message in self._taken.values())
            self._taken.clear()
            return last + 1

    def put_back(self, messages: Sequence[StoredMessage] | None = None) -> None:
        """Have taken messages consumed again, perhaps with one attempt more; all of them by default (rollback)."""
        with self._lock:
            back = list(self._taken.values()) if messages is None else messages
            for message in back:
                self._taken.pop(message.queue_offset, None)
            self._add(back)


# A thread that runs tasks one after the other, at once or later.

DelayedWork = Callable[[], object]


class Tasks:
    """Tasks of one thread. A task that fails is reported to `warn`; the others run on."""

    def __init__(self, name: str, warn: Warn) -> None:
        self._warn = warn
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, DelayedWork]] = []
        self._numbers = itertools.count()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start running tasks."""
        self._thread.start()

    def soon(self, task: DelayedWork) -> None:
        """Run a task as soon as the thread is free."""
        self.later(0.0, task)

    def later(self, seconds: float, task: DelayedWork) -> None:
        """Run a task after `seconds`. A closed thread drops it."""
        with self._changed:
            if not self._is_closed:
                heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), task))
                self._changed.notify()

    def every(self, seconds: float, task: DelayedWork, *, first: float | None = None) -> None:
        """Run a task after `first` seconds (None: `seconds`), then `seconds` after each of its ends."""

        def run() -> None:
            try:
                task()
            finally:
                self.later(seconds, run)

        self.later(seconds if first is None else first, run)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(None if not self._due else max(0.0, self._due[0][0] - time.monotonic()))
                if self._is_closed:
                    return
                _, _, task = heapq.heappop(self._due)
            try:
                task()
            except Exception as error:  # noqa: BLE001 - the other tasks go on
                self._warn(f"{threading.current_thread().name}: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Drop all tasks and wait for the one that runs."""
        with self._changed:
            self._is_closed = True
            self._due.clear()
            self._changed.notify()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()


# Threads that run callbacks, a limit to the messages they get, and an end that waits for them.


class CallbackThreads:
    """A pool of threads. With `limit` no more messages than that are handed to callbacks."""

    def __init__(self, threads: int, limit: int | None, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._changed = threading.Condition()
        self._left = limit
        self._limit = limit
        self._running = 0
        self._ended = 0
        self._is_closed = False

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread of the pool. A closed pool drops it."""

        def run() -> None:
            with self._changed:
                if self._is_closed:
                    return
                self._running += 1
            try:
                work()
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

        with self._changed:
            if not self._is_closed:
                self._pool.submit(run)

    @property
    def is_closed(self) -> bool:
        """Return whether no further callback may start."""
        return self._is_closed

    def reserve(self, wanted: int) -> int:
        """Return how many of `wanted` messages a callback may get."""
        with self._changed:
            if self._is_closed:
                return 0
            allowed = wanted if self._left is None else min(wanted, self._left)
            self._left = None if self._left is None else self._left - allowed
            return allowed

    def ended(self, reserved: int, count: int) -> None:
        """Note that `count` of the `reserved` messages have got their verdict; the others may be reserved again."""
        with self._changed:
            self._ended += count
            if self._left is not None:
                self._left += reserved - count
            self._changed.notify_all()

    @property
    def count(self) -> int:
        """Number of messages that callbacks have had."""
        return self._ended

    def wait_for_limit(self, seconds: float) -> bool:
        """Wait until as many messages as the limit allows have got their verdict. Return whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: self._limit is not None and self._ended >= self._limit, seconds)

    def close(self, seconds: float) -> None:
        """Start no further callback, and wait up to `seconds` for those that run."""
        until = time.monotonic() + seconds
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._changed.wait_for(lambda: not self._running, max(0.0, until - time.monotonic()))
