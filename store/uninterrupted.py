"""What Ctrl-C must not come between."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until this is done, and so do SIGTERM and SIGHUP where they are handled.

    For what does not bear an exception between any two of its steps: a JVM that is asked something (starting a thread
    does: it copies properties), LLVM, whose modules would be disposed of twice. In other threads nothing is raised
    anyway.
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
