"""What all puts of a store share, whatever path they take: the put lock, the last store time, the room that is open."""

from __future__ import annotations

import threading
from typing import NamedTuple

from rmqctl.formats.layouts import BLANK_FRAME
from rmqctl.store.files.mapped_file import MappedFile


class Window(NamedTuple):
    """The room in the current file that ordinary messages may use: what lies before `limit` in `mapped`, whose first
    byte has `start_offset`."""

    file: MappedFile
    mapped: object
    limit: int
    start_offset: int


class PutState:
    """Owned by the writer. All of it is changed under `lock` only, but for `close_window`.

    `last_timestamp`: the store time of the last message, in ms of the writer's clock. `begin_in_lock`: since when the
    lock is held, in ms of the monotonic clock. `window`: None where the fast path is not open: in a store that has
    none, is closed or failed, and until the slow path has opened it.
    """

    __slots__ = ("begin_in_lock", "last_timestamp", "lock", "window")

    def __init__(self, last_timestamp: int) -> None:
        self.lock = threading.Lock()
        self.last_timestamp = last_timestamp
        self.begin_in_lock: int | None = None
        self.window: Window | None = None

    def room_of(self, file: MappedFile) -> int:
        """Bytes of reserved room in `file` behind the end of the log that are not in the window yet."""
        limit = _limit_of(file)
        window = self.window
        used = window.limit if window is not None and window.file is file else file.wrote_position
        return max(0, limit - max(used, file.wrote_position))

    def open_window(self, file: MappedFile) -> None:
        """From now on the reserved room of `file`, which is the last one, is the window."""
        self.window = Window(file, file.writable_map.map, _limit_of(file), file.start_offset)

    def close_window(self) -> None:
        """Send every message to the slow path from now on. Needs no lock."""
        self.window = None


def _limit_of(file: MappedFile) -> int:
    return min(file.writable_map.reserved, file.size - BLANK_FRAME.size)
