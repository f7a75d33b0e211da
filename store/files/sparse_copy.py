"""Copies one file with its holes and its time, sharing blocks with the source where the file system can."""

from __future__ import annotations

import enum
import errno
import os
from pathlib import Path

from rmqctl.formats.errors import UnreadableError, WriteFailedError, refuse_exhausted
from rmqctl.store.files import io
from rmqctl.store.files.ownership import of_one
from rmqctl.store.files.zeros import data_extents

_CHUNK = 4 * 1024 * 1024
_CANNOT_SHARE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)


class Sharing(enum.StrEnum):
    """Whether a copy may share blocks with its source (a reflink)."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def copy_sparsely(source: Path, target: Path, length: int, sharing: Sharing) -> bool:
    """Copy the first `length` bytes of a regular file to a new one, which is flushed; whether blocks are shared.

    Holes stay holes, and the time of the last change is that of the source, as are its permissions and, where this user
    is root, its owner and group. A source that becomes shorter meanwhile
    leaves a hole. UnreadableError; WriteFailedError, also where `sharing` is a must and cannot be.
    """
    try:
        # O_NOFOLLOW and O_NONBLOCK: what was a file when it was listed may be a link or a fifo by now
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        refuse_exhausted(error, source)
        raise UnreadableError(f"cannot be opened: {error.strerror}", file=source) from error
    try:
        status = os.fstat(reading)
        io.create_file(target, 0)
        writing = io.open_for_writing(target)
        try:
            shared = sharing is not Sharing.NEVER and _share(reading, writing, target, sharing)
            io.truncate(target, length)
            if not shared:
                _copy(reading, source, writing, target, length)
            io.give_to(target, of_one(status))
            io.set_modified(target, status.st_mtime_ns)
            io.flush_descriptor(writing, target)  # last: it brings the time to disk, too
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    return shared


def _share(reading: int, writing: int, target: Path, sharing: Sharing) -> bool:
    try:
        io.share_blocks(reading, writing, target)
    except WriteFailedError as error:
        cause = error.__cause__
        cannot = isinstance(cause, OSError) and cause.errno in _CANNOT_SHARE
        if sharing is Sharing.ALWAYS or not cannot:
            error.hint = "`--reflink auto` copies where blocks cannot be shared"
            raise
        return False
    return True


def _copy(reading: int, source: Path, writing: int, target: Path, length: int) -> None:
    for begin, end in data_extents(source, 0, length):
        for position in range(begin, end, _CHUNK):
            try:
                data = os.pread(reading, min(_CHUNK, end - position), position)
            except OSError as error:
                refuse_exhausted(error, source)
                raise UnreadableError(f"cannot be read: {error.strerror}", file=source) from error
            io.write_at(writing, target, position, data)
