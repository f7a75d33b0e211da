"""Loads what dispatches as columns in a thread of its own: numpy and kernels take seconds; no message waits for it."""

from __future__ import annotations

import contextlib
import functools
import threading


def are_loaded() -> bool:
    """Whether columns can be used at once; the first time it is asked, loading begins."""
    return not loading().is_alive()


@functools.cache
def loading() -> threading.Thread:
    """The thread that loads, which nothing waits for, not even the end of the process."""
    thread = threading.Thread(target=load, name="load-columns", daemon=True)
    thread.start()
    return thread


def load() -> None:
    """Import and compile; what is missing is found again, and told, by whoever uses it."""
    with contextlib.suppress(ImportError):
        from rmqctl.store.write.dispatch.column_dispatch import ColumnDispatch

        ColumnDispatch.is_compiled()
