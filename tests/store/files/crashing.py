"""Cuts a process short at any change of a file, for tests of what is left."""

from __future__ import annotations

from collections.abc import Callable

from store.files import io

Observed = tuple[str, str, int, int]


class CrashError(BaseException):
    """The process is killed: nothing may run after it."""


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

    `torn`: if that change is a write, its first half is done, and wrong.
    """
    count = 0

    def kill(operation: str, path: str, offset: int, length: int) -> None:
        nonlocal count
        count += 1
        if count < number:
            return
        if count == number and torn and operation == "write" and length > 1:
            with open(path, "r+b") as file:
                file.seek(offset)
                file.write(b"\xee" * (length // 2))
        raise CrashError

    io.observer = kill
    try:
        work()
    except CrashError:
        return True
    finally:
        io.observer = None
    return False
