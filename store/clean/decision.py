"""What becomes of one file in a cleaning, and why."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UnreadableError, refuse_exhausted
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue


class Because(enum.StrEnum):
    """Why a file goes (the first three) or stays."""

    EXPIRED = "expired"
    AT_ONCE = "at_once"
    STALE = "stale"
    NOT_DUE = "not_due"
    YOUNG = "young"
    BEHIND = "behind_a_kept_file"
    BATCH_MAXIMUM = "batch_maximum"
    HELD = "held"
    LAST = "last"
    PREALLOCATED = "preallocated"
    STILL_USED = "still_used"
    DAMAGED = "damaged"


_GOES = (Because.EXPIRED, Because.AT_ONCE, Because.STALE)
_SAYS = {
    Because.NOT_DUE: "neither the hour nor the disks ask for a deletion",
    Because.BEHIND: "an older file is kept, and files are removed in their order",
    Because.BATCH_MAXIMUM: "enough for one run: run again, or raise the maximum",
    Because.HELD: "a reader holds it",
    Because.LAST: "the last file with data is always kept",
    Because.PREALLOCATED: "holds nothing yet",
}


class FileDecision(NamedTuple):
    """What becomes of one file. `start_offset` as its name says it; None for index files. `size` in bytes.

    `modified_timestamp` (ms) is the file's mtime, the only age RocketMQ knows. `kind`: commitlog, consumequeue,
    batchconsumequeue, consumequeue_ext or index.
    """

    kind: str
    path: Path
    size: int
    start_offset: int | None
    modified_timestamp: int
    because: Because
    detail: str

    @property
    def goes(self) -> bool:
        """Whether the file is removed."""
        return self.because in _GOES


def modified_ms(path: Path) -> int:
    """The file's mtime in ms, as Java's File#lastModified gives it."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        refuse_exhausted(error, path)
        raise UnreadableError(f"cannot be read: {error.strerror}", file=path) from error


def decision_on(kind: str, file: MappedFile, because: Because, detail: str | None = None) -> FileDecision:
    """The decision about a file of a queue; without `detail` the usual words for its reason."""
    modified = modified_ms(file.path)
    return FileDecision(kind, file.path, file.size, file.start_offset, modified, because, detail or words_for(because))


def words_for(because: Because) -> str:
    """A reason as a sentence, empty where only the case can be told."""
    return _SAYS.get(because, "")


def last_position(files: MappedFileQueue) -> int:
    """Position of the last file with data, 0 if there is none: what a broker leaves as the last one."""
    last = files.last_with_data()
    return 0 if last is None else files.files.index(last)
