"""What is made beside its final name until it is complete: how it is called, and what killed processes left of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.presence import is_there
from rmqctl.store.files.trees import remove_any

_NAME = re.compile(r"\.(?P<target>.+)\.rmqctl-(?P<process>[1-9]\d{0,9})(?:-[a-z]+)?", re.DOTALL)
_LARGEST_PROCESS = 1 << 22
# how far two clocks of one machine may be apart: a process that began later than this after a file was made by another
_CLOCKS_DIFFER_S = 60.0


def staging_of(path: Path) -> Path:
    """Where `path` is made before it gets its name: beside it, so that a rename is all that is left to do."""
    return path.with_name(f".{path.name}.rmqctl-{os.getpid()}")


@contextlib.contextmanager
def in_work(staging: Path) -> Iterator[None]:
    """Let others see, by a lock, that the file or directory `staging` is being worked on: what its name says of the
    process means nothing in another container or on another machine."""
    descriptor = io.open_made(staging)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: then the name has to do
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def staged_directory(target: Path) -> Iterator[Path]:
    """A new directory beside `target`, held while the block runs and gone after an error in it. Who takes it gives it
    its name. What killed processes left of the same target is removed first."""
    clear_left_behind(target)
    staging = staging_of(target)
    io.make_directories(staging, flushed=True)
    try:
        with in_work(staging):
            yield staging
    except BaseException:
        if is_there(staging):
            remove_any(staging)
        raise


def left_behind(directory: Path) -> list[Path]:
    """What processes that are gone have left in `directory`, by name; [] where it cannot be listed."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    return [directory / name for name in names if _is_left_behind(directory / name)]


def clear_left_behind(target: Path) -> None:
    """Remove what killed processes left of `target`; never what a living one is working on. What cannot be removed
    stays, because it belongs to somebody else."""
    for path in left_behind(target.parent):
        if _target_name(path.name) == target.name:
            with contextlib.suppress(WriteFailedError):
                remove_any(path)


def _target_name(name: str) -> str:
    """Of which target a leftover is: that of a leftover is the leftover's own."""
    while found := _NAME.fullmatch(name):
        name = found["target"]
    return name


def _is_left_behind(path: Path) -> bool:
    found = _NAME.fullmatch(path.name)
    if found is None or int(found["process"]) > _LARGEST_PROCESS:
        return False
    try:
        changed = path.lstat().st_ctime
    except OSError:  # gone by now
        return False
    return not is_at_work(int(found["process"]), changed) and not is_locked(path)


def is_at_work(process: int, changed: float) -> bool:
    """Whether the process with this id may have made what was changed last at `changed` (s since 1970). An id is given
    to another process once its own is gone, and in a container every run may have the same."""
    if process == os.getpid():
        return False  # what this process makes is locked
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    started = _started(process)
    return started is None or started <= changed + _CLOCKS_DIFFER_S


def _started(process: int) -> float | None:
    """When a process began, in s since 1970; None if that cannot be known."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        up = float(Path("/proc/uptime").read_bytes().split()[0])
        return time.time() - up + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def is_locked(path: Path) -> bool:
    """Whether a process has a file or directory `in_work`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
