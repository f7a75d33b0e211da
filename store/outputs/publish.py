"""Gives what was made beside a new name that name: it takes the place of nothing that has come up there meanwhile."""

from __future__ import annotations

import errno
from pathlib import Path

from rmqctl.formats.errors import RefusedError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.presence import is_directory

_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def publish(staging: Path, target: Path) -> None:
    """Rename the file or directory `staging`, which is on disk, to `target` beside it; the name is on disk as well when
    this returns. RefusedError where the name is taken by anything but an empty directory; WriteFailedError."""
    try:
        if is_directory(staging):
            io.rename(staging, target)  # of a directory: it replaces an empty one, and fails for anything else
        else:
            _publish_file(staging, target)
    except WriteFailedError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _TAKEN:
            raise RefusedError(
                "has come up meanwhile: another process made it", file=target, hint="name a new one, or look into it"
            ) from error
        raise
    io.flush_directory(target.parent)


def _publish_file(staging: Path, target: Path) -> None:
    try:
        io.link(staging, target)  # unlike a rename it never replaces a file
    except WriteFailedError as error:
        if isinstance(error.__cause__, FileExistsError):
            raise
        io.rename_within(staging, target)  # a file system without links
    else:
        io.remove(staging)
