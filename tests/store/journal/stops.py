"""Every state of the disk in which a command can be stopped: what is there before each change of a file that it makes.

A command runs once. Before each change its folder is copied, with all times, so that a test can put the copy in the
place of the folder and go on from there as after a kill.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqctl.store.files import io
from tests.processes import start

_CHANGE_NOTHING = ("fsync", "map")
"""Operations that leave files as they are: there is no other state behind them."""
_ANNOUNCED = "rename to"
"""Told between a renaming and its beginning: there is no other state before it."""


class Stop(NamedTuple):
    """`state`: the number of the state, from 0. `number`: of the change before which the command was stopped, from 1;
    `change`: which that was. `copy`: what was there then."""

    state: int
    number: int
    change: str
    copy: Path


Chosen = Callable[[int, str], bool]
"""Whether a state is wanted, by its number from 0 and the change before which it is."""


def stops(folder: Path, copies: Path, work: Callable[[], object], chosen: Chosen) -> list[Stop]:
    """The states of `folder` in which `work` can be stopped, and the one that it leaves; of those that differ from the
    one before the `chosen` are copied into `copies`."""
    keeper = _Keeper(folder, copies, chosen)
    io.observer = lambda operation, path, _offset, _length: keeper.look(operation, path)
    try:
        work()
    finally:
        io.observer = None
    keeper.look("", "the end")
    return keeper.found


def stops_of_process(folder: Path, copies: Path, program: str, root: Path, chosen: Chosen) -> list[Stop]:
    """The same for a Python program with threads, which is given `root` and stops itself, all of its threads at once,
    whenever it is about to change a file."""
    keeper = _Keeper(folder, copies, chosen)
    process = start([sys.executable, "-c", f"{_STOPPING}\n{program}", root])
    while True:
        seen = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert seen is not None
        keeper.look("", "a change" if seen.si_code == os.CLD_STOPPED else "the end")
        if seen.si_code != os.CLD_STOPPED:
            break
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        os.kill(process.pid, signal.SIGCONT)
    assert process.wait() == 0
    return keeper.found


_STOPPING = """
import os, signal
from rmqctl.store.files import io
io.observer = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
"""


class _Keeper:
    """Copies the chosen states of a folder."""

    def __init__(self, folder: Path, copies: Path, chosen: Chosen) -> None:
        self._folder = folder
        self._copies = copies
        self._chosen = chosen
        self._number = 0
        self._states = 0
        self._last = ""
        self.found: list[Stop] = []

    def look(self, operation: str, path: str) -> None:
        """A change is about to be made."""
        self._number += 1
        last, self._last = self._last, operation
        if last in _CHANGE_NOTHING or operation == _ANNOUNCED:
            return
        change = f"{operation} {path}".strip()
        if self._chosen(self._states, change):
            copy = self._copies / str(self._number)
            copied(self._folder, copy)
            self.found.append(Stop(self._states, self._number, change, copy))
        self._states += 1


def copied(folder: Path, target: Path) -> None:
    """All of a folder, times and links and all, in the place of whatever is at `target`."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(folder, target, symlinks=True)
