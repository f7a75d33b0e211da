"""What else than the log, queues and index stops a start: the lock, the timer's files, permissions."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import refuse_exhausted
from rmqctl.formats.wording import counted
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import exists, is_directory, is_file, is_link, status_of
from rmqctl.store.predict.loading import load_files
from rmqctl.store.predict.rules import Rules
from rmqctl.store.timer.timer_state import CHECKPOINT_FILE

# 7 days of one-second slots, twice, of 32 bytes each (TimerWheel)
_WHEEL_SIZE = 7 * 86_400 * 2 * 32
_TIMER_LOG_SIZE = 104_857_600
_READ, _WRITE, _LIST = 4, 2, 1
_INVALID = "java.io.IOException: Invalid argument"


def refused_before_loading(layout: StoreLayout) -> str | None:
    """What stops the store before it is loaded (DefaultMessageStore's constructor); None for nothing."""
    error = not_opened(layout.lock)
    if error is not None:
        return error
    for directory in (layout.root, *layout.commitlog, layout.consumequeue):
        if exists(directory) and not is_directory(directory):
            return f"{directory} is not a directory"
    return None


def not_opened(path: Path) -> str | None:
    """Return Java's error for a file that a start opens for writing, or makes; None where that works."""
    if is_directory(path):
        return f"java.io.FileNotFoundException: {path} (Is a directory)"
    if _is_loop(path):
        return f"java.io.FileNotFoundException: {path} (Too many levels of symbolic links)"
    if is_link(path) and not exists(path) and not is_directory(Path(os.path.realpath(path)).parent):
        return f"java.io.FileNotFoundException: {path} (No such file or directory)"
    if _is_kind(path, stat.S_ISSOCK):
        return f"java.io.FileNotFoundException: {path} (No such device or address)"
    return None


def _is_loop(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def not_mapped(path: Path) -> str | None:
    """Return Java's error for a file that a start opens, then maps, lengthens or flushes; None where that works. A fifo
    opens, and refuses the rest."""
    return not_opened(path) or (_INVALID if _is_kind(path, stat.S_ISFIFO) else None)


def refused_lock(layout: StoreLayout) -> str | None:
    """What stops the start once the lock is taken, which is then written and flushed (DefaultMessageStore#start)."""
    return _INVALID if _is_kind(layout.lock, stat.S_ISFIFO) else None


def refused_abort(layout: StoreLayout, rules: Rules) -> str | None:
    """What stops a store that has started, when it makes its abort file (DefaultMessageStore#createTempFile).

    4.9.8 takes anything of that name for the file; 5.x reads it and writes its process id there.
    """
    if not rules.writes_abort:
        return None
    if _is_kind(layout.abort, stat.S_ISFIFO):
        return f"none is logged: the broker waits without end for a process that writes into the fifo {layout.abort}"
    return not_opened(layout.abort)


def _is_kind(path: Path, kind: Callable[[int], bool]) -> bool:
    status = status_of(path)
    return status is not None and kind(status.st_mode)


def refused_by_timer(layout: StoreLayout, config: StoreConfig, rules: Rules) -> str | None:
    """What stops the timer, which 5.x loads after the store; None for nothing."""
    if not rules.knows_batches or not config.timer_wheel_enable:
        return None
    wheel = layout.root / "timerwheel"
    error = not_mapped(layout.config / CHECKPOINT_FILE) or not_mapped(wheel)
    if error is not None:
        return error
    status = status_of(wheel)
    size = 0 if status is None else status.st_size
    if size not in (0, _WHEEL_SIZE):
        return f"java.lang.RuntimeException: Timer wheel length:{size} != expected:{_WHEEL_SIZE}"
    return load_files([layout.root / "timerlog"], _timer_log_size(layout.root / "timerlog"), rules).error


def _timer_log_size(directory: Path) -> int:
    """The size that most files there have: mappedFileSizeTimerLog is not among the settings that are known here."""
    try:
        sizes = [path.stat().st_size for path in directory.iterdir() if is_file(path)]
    except OSError as error:
        refuse_exhausted(error, directory)
        return _TIMER_LOG_SIZE
    return max(sizes, key=lambda size: (sizes.count(size), size), default=_TIMER_LOG_SIZE)


class Owner(NamedTuple):
    """Who will run the broker, as far as is known: the owner of the store's folder."""

    user: int
    group: int

    def may(self, path: Path, wanted: int) -> bool:
        """Whether they may use an existing `path` so; true where that cannot be known."""
        try:
            status = path.stat()
        except OSError:
            return True
        if self.user == 0:
            return True
        shift = 6 if status.st_uid == self.user else 3 if status.st_gid == self.group else 0
        return stat.S_IMODE(status.st_mode) >> shift & wanted == wanted


def permission_problems(layout: StoreLayout) -> tuple[str | None, list[str]]:
    """What stops the start for want of permissions, None for nothing; and what goes wrong later."""
    try:
        status = layout.root.stat()
    except OSError:
        return None, []
    owner = Owner(status.st_uid, status.st_gid)
    error: str | None = None
    denied: list[Path] = []
    for path, is_needed in _mapped(layout):
        if not owner.may(path, _READ | _WRITE):
            denied.append(path)
            if is_needed and error is None:
                error = f"java.io.FileNotFoundException: {path} (Permission denied)"
    warnings = []
    if denied:
        more = f" and {counted(len(denied) - 1, 'more file')}" if len(denied) > 1 else ""
        warnings.append(f"user {owner.user}, who owns the store, cannot read and write {denied[0]}{more}")
    for directory in _folders(layout):
        if not owner.may(directory, _READ | _WRITE | _LIST):
            does = "cannot list it: a broker takes it for empty" if not owner.may(directory, _READ | _LIST) else ""
            does = (
                does or "cannot make files in it: a broker stops when it needs the next one, or does not keep offsets"
            )
            warnings.append(f"{directory}: user {owner.user}, who owns the store, {does}")
    return error, warnings


def _mapped(layout: StoreLayout) -> Iterator[tuple[Path, bool]]:
    """Files that a start opens for reading and writing, and whether it ends where it cannot."""
    for path in (layout.lock, layout.checkpoint, layout.root / "timerwheel", layout.config / CHECKPOINT_FILE):
        yield path, True
    for directory in layout.commitlog:
        for path in _entries(directory):
            yield path, True
    for root in (layout.consumequeue, layout.batchconsumequeue, layout.consumequeue_ext):
        for topic in _entries(root):
            for queue in _entries(topic):
                for path in _entries(queue):
                    yield path, True
    for path in _entries(layout.index):
        yield path, True
    for path in _entries(layout.config):
        yield path, False


def _folders(layout: StoreLayout) -> Iterator[Path]:
    yield layout.root
    yield from (directory for directory in layout.commitlog)
    yield from (layout.consumequeue, layout.index, layout.config)
    for topic in _entries(layout.consumequeue):
        yield topic
        yield from (queue for queue in _entries(topic) if is_directory(queue))


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory / name for name in os.listdir(directory))
    except OSError as error:
        refuse_exhausted(error, directory)
        return []
