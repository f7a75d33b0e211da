"""The commitlog as a master hands it on: stretches of its files, as they lie on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rmqctl.formats.errors import RemovedError
from rmqctl.store.files.mapped_file_queue import MappedFileQueue


class LogStretch(NamedTuple):
    """`size` readable bytes from `physical_offset` on, `position` bytes behind the beginning of their file."""

    physical_offset: int
    start_offset: int
    position: int
    size: int


class LogSource:
    """What there is to send. Any thread may ask."""

    def __init__(self, log: MappedFileQueue, end: Callable[[], int]) -> None:
        """`end`: physical offset behind what slaves may have."""
        self._log = log
        self.end = end

    def last_file(self) -> int:
        """Where the last file begins: what a slave without a log is sent (WriteSocketService#run)."""
        end, size = self.end(), self._log.file_size
        return end - end % size if size else end

    def stretch(self, offset: int, most: int) -> LogStretch | None:
        """Up to `most` bytes of one file from `offset` on; None where there are none now."""
        if offset < 0 or (file := self._log.find(offset)) is None:
            return None
        size = min(self.end(), file.end_offset) - offset
        if size <= 0:
            return None
        return LogStretch(offset, file.start_offset, offset - file.start_offset, min(size, most))

    def open(self, stretch: LogStretch) -> int | None:
        """A descriptor of a stretch's file, which whoever asks for it closes: what is removed meanwhile can be read to
        its end. None where it is removed already. UnreadableError."""
        file = self._log.find(stretch.physical_offset)
        try:
            return None if file is None else self._log.descriptors.duplicate(file.path)
        except RemovedError:
            return None
