"""Small changes of the product that would cost somebody data: what the proofs of kills and failing disks must catch."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.files import io
from rmqctl.store.files import reading as presence
from rmqctl.store.files.io import remove_any
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.journal import plan
from rmqctl.store.log.transient_pool import PooledSink, TransientStorePool
from rmqctl.store.write import writer
from rmqctl.store.write import writer as open_writer

Set = Callable[[Any, str, Any], object]
"""Such as setattr, or monkeypatch's."""


def _short_writes(put: Set) -> None:
    """A write that wrote a part is taken for a whole one."""

    def write_at(descriptor: int, path: Any, offset: int, data: Any) -> None:
        with io._changing("write", path, offset, len(data)):
            os.pwrite(descriptor, data, offset)

    put(io, "write_at", write_at)


def _silent_writes(put: Set) -> None:
    """Errors of writing are passed over."""

    def write_at(descriptor: int, path: Any, offset: int, data: Any) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, data, offset)

    put(io, "write_at", write_at)


def _absent_by_error(put: Set) -> None:
    """A disk that gives no answer is taken for absence."""
    put(presence, "_ABSENT", (*presence._ABSENT, errno.EIO))


def _queue_seems_empty(put: Set) -> None:
    """Files of which the disk says nothing are left out of their queue."""
    listed = MappedFileQueue._list_once

    def list_once(self: Any, problems: Any) -> Any:
        try:
            return listed(self, problems)
        except UnreadableError:
            return [], True

    put(MappedFileQueue, "_list_once", list_once)


def _lock_stays(put: Set) -> None:
    """A store that could not be opened keeps its lock and its mark."""
    put(open_writer, "give_back", lambda opened: None)


def _in_place(path: Path, data: bytes) -> None:
    descriptor = io.open_for_writing(path, create=True)
    io.truncate(path, 0)
    io.write_at(descriptor, path, 0, data)
    os.close(descriptor)


def _half_files(put: Set) -> None:
    """Small files are written in their place, not beside it."""
    put(io, "write_whole", _in_place)


def _not_kept(put: Set) -> None:
    """What a change takes out is removed."""
    real = plan._keep

    def keep(folder: Path, path: Path, place: str) -> None:
        real(folder, path, place)
        remove_any(folder / place)

    put(plan, "_keep", keep)


def _in_memory(put: Set) -> None:
    """What is put is acknowledged while it is in memory alone."""
    put(writer, "DirectSink", lambda: PooledSink(TransientStorePool(1000, 1 << 26)))


MUTANTS: dict[str, Callable[[Set], None]] = {
    "short writes": _short_writes,
    "silent writes": _silent_writes,
    "absent by error": _absent_by_error,
    "queue seems empty": _queue_seems_empty,
    "lock stays": _lock_stays,
    "half files": _half_files,
    "not kept": _not_kept,
    "in memory": _in_memory,
}
"""By name: each changes the modules of this process, by what it is given to set attributes with."""
