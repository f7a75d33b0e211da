"""Small files besides config JSON (lock, abort, checkpoint, epochs, timer): report those that no broker reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.config.epoch_file import EPOCH_FILE, IDENTITY_FILE
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import is_new_target
from rmqctl.store.files.presence import is_directory, is_file, is_link, is_there
from rmqctl.store.files.reading import read_small_file, refuse_broken_link
from rmqctl.store.timer.timer_state import CHECKPOINT_FILE

_IN_CONFIG = (CHECKPOINT_FILE, "timermetrics", "transactionMetrics")


def small_file_findings(layout: StoreLayout) -> Iterator[Finding]:
    """Report each small file that is not a regular file or cannot be read. Their content is checked elsewhere."""
    yield from _lock(layout.lock)
    for path in _paths(layout):
        problem = _problem(path)
        if problem is not None:
            code = "RMQ-FILE-006" if is_file(path) else "RMQ-FILE-007"
            # nothing else says what the timer has delivered
            yield Finding(code, problem, path, data_lost=None if path.name == CHECKPOINT_FILE else False)


def _paths(layout: StoreLayout) -> Iterator[Path]:
    yield from (layout.checkpoint, layout.abort, layout.root / "timerwheel")
    for path in (
        *(layout.root / name for name in (EPOCH_FILE, IDENTITY_FILE)),
        *(layout.config / n for n in _IN_CONFIG),
    ):
        yield from (path, backup_of(path))


def _problem(path: Path) -> str | None:
    """Return why the file cannot be read, None where it can or is not there."""
    try:
        read_small_file(path, 1)
    except FileNotFoundError:
        try:
            refuse_broken_link(path)
        except UnreadableError as error:
            return error.message
    except UnreadableError as error:
        return "is a directory" if is_directory(path) else error.message
    return None


def _lock(path: Path) -> Iterator[Finding]:
    """Report a lock that cannot be taken. It is not opened: closing it would drop a lock that this process holds."""
    if not is_there(path) or is_new_target(path):
        return
    if not is_file(path):
        what = "a directory" if is_directory(path) else "a link that leads nowhere" if is_link(path) else "not a file"
        yield Finding("RMQ-FILE-060", f"it is {what}: move it out of the store by hand", path, data_lost=False)
    elif not os.access(path, os.R_OK, effective_ids=True):
        text = "cannot be opened: Permission denied. Whether a broker holds the lock is unknown"
        yield Finding("RMQ-FILE-006", text, path, data_lost=False)
