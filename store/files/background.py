"""A background thread that repeats one step: at an interval, or when woken, until it is stopped or fails. It waits for
file descriptors and memory where the process lacks them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rmqctl.formats.errors import EXHAUSTED, exhausted

Failure = Callable[[BaseException], None]
_Opened = TypeVar("_Opened")
_SHARE = 8
_PAUSE_SECONDS = 0.05
_threads = threading.local()
_most_seconds: float | None = None


def sleep(seconds: float) -> None:
    """Wait for `seconds`.

    Python's own function asks the system for an absolute time, which libfaketime refuses (EINVAL) where it leaves the
    monotonic clock alone.
    """
    select.select([], [], [], seconds)


def share_of_descriptors(most: int) -> int:
    """Return how many files one cache may keep open: `most`, or fewer where the process may open few."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if limit == resource.RLIM_INFINITY else max(2, min(most, limit // _SHARE))


@contextmanager
def naming_exhaustion() -> Iterator[None]:
    """Raise ExhaustedError where a thread cannot be started or a file cannot be opened in the block for want of
    descriptors, memory or threads."""
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        if (found := exhausted(error)) is None:
            raise
        raise found from error


@contextmanager
def limited_patience(seconds: float) -> Iterator[None]:
    """Have `patiently` wait for so long at most in all threads of this process.

    A broker's connections end and free descriptors. In a process that only writes, nothing does.
    """
    global _most_seconds  # noqa: PLW0603 - one process, one bound
    before, _most_seconds = _most_seconds, seconds
    try:
        yield
    finally:
        _most_seconds = before


@contextmanager
def patient(goes_on: Callable[[], bool]) -> Iterator[None]:
    """Have `patiently` wait in this thread while `goes_on` says so: a background step cannot be done in half."""
    _threads.goes_on = goes_on
    try:
        yield
    finally:
        del _threads.goes_on


def patiently(opening: Callable[[], _Opened]) -> _Opened:
    """Return what `opening` opens. In a patient thread, where the process lacks descriptors or memory, it is tried
    again until there are some, or the bound of `limited_patience` is over; OSError anywhere else."""
    begun = time.monotonic()
    while True:
        try:
            return opening()
        except OSError as error:
            goes_on: Callable[[], bool] | None = getattr(_threads, "goes_on", None)
            if error.errno not in EXHAUSTED or goes_on is None or not goes_on():
                raise
            if _most_seconds is not None and time.monotonic() - begun > _most_seconds:
                raise
        sleep(_PAUSE_SECONDS)


class Background:
    """Calls `step` until stopped. An exception of a step ends the thread and is handed to `on_failure`: never lost.

    `interval_ms` is the longest pause between two steps. A `wake` ends the pause at once, unless `is_timed`: then
    every pause lasts the whole interval.

    With `linger_ms`, a step that says it found work to do (True) is followed by the next one after that time. Workers
    then need no `wake`: `is_idle` finds those with pending work.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        interval_ms: int,
        on_failure: Failure,
        *,
        is_timed: bool = False,
        linger_ms: int = 0,
    ) -> None:
        self._step = step
        self._seconds = interval_ms / 1000
        self._linger = linger_ms / 1000
        self.is_idle = True
        self._on_failure = on_failure
        self._is_timed = is_timed
        self._signal = threading.Event()
        self._stopping = False
        # a daemon: a program that dies without closing the store leaves it as a kill would, `abort` included
        self._thread = threading.Thread(target=self._run, name=f"rmqctl-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        with naming_exhaustion():
            self._thread.start()

    def wake(self) -> None:
        """Let the next step begin now."""
        if not self._is_timed and not self._signal.is_set():
            self._signal.set()

    def stop(self) -> None:
        """Wait for the running step to end; no other begins."""
        self._stopping = True
        self._signal.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        with patient(lambda: not self._stopping):
            self._repeat()

    def _repeat(self) -> None:
        is_busy = False
        while True:
            self._signal.wait(self._linger if is_busy else self._seconds)
            if self._stopping:
                return
            self._signal.clear()
            try:
                is_busy = self._step() is True and self._linger > 0
                if self._linger and not is_busy:
                    # first the mark, then another look: what comes after the look sees the mark
                    self.is_idle = True
                    is_busy = self._step() is True
                self.is_idle = not is_busy
            except BaseException as error:  # noqa: BLE001 - whatever ends the thread, somebody may wait for it
                self._on_failure(error)
                return


# What Ctrl-C must not come between.


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until this is done, and so do SIGTERM and SIGHUP where they are handled.

    For what does not bear an exception between any two of its steps: a JVM that is asked something (starting a thread
    does: it copies properties). In other threads nothing is raised anyway.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = {number: handler for number, handler in before.items() if callable(handler)}
    for number in handled:
        signal.signal(number, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if number in interrupts:
            os.kill(os.getpid(), number)  # whose handler was kept from it
    if interrupts:
        raise KeyboardInterrupt
