"""Cuts a process short at any change of a file, for tests of what is left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from rmqctl.store.files import io

Observed = tuple[str, str, int, int]


class CrashError(BaseException):
    """The process is killed: nothing may run after it."""


_told = threading.excepthook


def _tell(ended: threading.ExceptHookArgs) -> None:
    """What else ends a thread is told; a thread of ours that comes to the change first ends with its process."""
    if ended.exc_type is not CrashError:
        _told(ended)


threading.excepthook = _tell


def recorded(work: Callable[[], object]) -> list[Observed]:
    """Every change of a file that `work` makes, in order."""
    seen: list[Observed] = []
    io.observer = lambda *observed: seen.append(observed)
    try:
        work()
    finally:
        io.observer = None
    return seen


def crashed(work: Callable[[], object], number: int, *, torn: bool = False) -> bool:
    """Run `work`, killed just before its change of that number, counted from 1: whether it came so far.

    Where a thread of its own is what dies, `work` learns of it by an error of its own, or not at all.
    `torn`: if that change is a write, its first half is done.
    """
    count = 0
    write_at = io.write_at

    def kill(operation: str, path: str, offset: int, length: int) -> None:
        nonlocal count
        count += 1
        if count >= number:
            raise CrashError

    def tear(descriptor: int, path: Any, offset: int, data: Any) -> None:
        if count == number - 1:
            os.pwrite(descriptor, memoryview(data)[: len(data) // 2], offset)
        write_at(descriptor, path, offset, data)

    io.observer = kill
    if torn:
        io.write_at = tear
    try:
        work()
    except (CrashError, Exception):
        if count < number:
            raise
    finally:
        io.observer, io.write_at = None, write_at
    return count >= number
