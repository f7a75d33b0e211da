"""Temporary folders: they go with the process that made them, even where it is killed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.presence import is_directory, is_real_directory
from rmqctl.store.outputs.staging import in_work, is_at_work, is_locked

# how often, and after how many seconds each, a folder that somebody still writes to is removed
_TRIES, _BETWEEN = 50, 0.1

# Takes the names of folders, until the other end of its standard input is closed, which the kernel does when a process
# ends, however it ends. What that process started may be at work a moment longer: a JVM, which makes no parents anew.
_WATCHER = f"""
while IFS= read -r folder; do set -- "$@" "$folder"; done
for _ in $(seq {_TRIES}); do rm -rf -- "$@" && exit; sleep {_BETWEEN}; done
"""
# by process: one that was forked has its own
_watchers: dict[int, RawIOBase] = {}


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder, as of `make_temporary`, while the block runs. WriteFailedError where there can be none."""
    made = make_temporary(prefix)
    try:
        with in_work(made):  # to a process of another container the number in its name says nothing
            yield made
    finally:
        remove_for_good(made)


def make_temporary(prefix: str) -> Path:
    """A new directory where the system keeps temporary files, for this user only. Who makes it removes it; a watcher
    does that for a process that is killed, or, if both are, who makes the next one under the same prefix."""
    made = io.make_temporary_directory(f"{prefix}{os.getpid()}-")
    remove_forgotten(prefix, made.parent)
    _watch(made)
    return made


def remove_forgotten(prefix: str, beside: Path) -> None:
    """Remove what killed processes of this user left in a folder; what cannot be removed stays."""
    for path in beside.glob(f"{prefix}*"):
        process = path.name[len(prefix) :].partition("-")[0]
        if not process.isdigit() or int(process) == os.getpid() or not is_real_directory(path):
            continue
        status = path.lstat()
        is_forgotten = not is_at_work(int(process), status.st_mtime) and not is_locked(path)
        if status.st_uid == os.geteuid() and is_forgotten:
            with suppress(WriteFailedError):
                io.remove_tree(path)


def remove_for_good(folder: Path) -> None:
    """Remove a folder into which somebody who was given up may still be writing. Nothing if it is not there."""
    if not is_directory(folder):
        return
    going = folder.with_name(f".{folder.name}.rmqctl-{os.getpid()}-going")
    # under a new name first: what a path still says does not lead there any more
    io.rename(folder, going)
    for _ in range(_TRIES):
        try:
            io.remove_tree(going)
            return
        except WriteFailedError:
            time.sleep(_BETWEEN)
    io.remove_tree(going)


def _watch(folder: Path) -> None:
    """Have a folder removed when this process has ended."""
    if b"\n" in (name := os.fsencode(folder)):
        return
    # without a shell nothing is left either, unless the process is killed
    with suppress(OSError, NotImplementedError):
        if os.getpid() not in _watchers:
            _watchers[os.getpid()] = _start_watcher()
        _watchers[os.getpid()].write(name + b"\n")


def _start_watcher() -> RawIOBase:
    """The other end of the watcher's standard input. It is in a session of its own, which no terminal ends."""
    reading, writing = os.pipe()
    try:
        nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        files = [(os.POSIX_SPAWN_DUP2, reading, 0), *nothing]
        os.posix_spawn("/bin/sh", ["sh", "-c", _WATCHER], os.environ, file_actions=files, setsid=True)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    # nobody closes it but the end of the process
    return os.fdopen(writing, "wb", buffering=0, closefd=False)
