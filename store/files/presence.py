"""Whether something lies at a path, and what it is.

A disk that gives no answer is an error here, never absence: os.path takes it for that, and pathlib from Python 3.14 on.
"""

from __future__ import annotations

import errno
import os
import stat

from rmqctl.formats.errors import UnreadableError

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether there is anything of this name, if only a link that leads nowhere. UnreadableError if nobody can tell."""
    return _status(path, follow_links=False) is not None


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is something that can be opened: links are followed. UnreadableError as above."""
    return _status(path, follow_links=True) is not None


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether it is a regular file, or a link to one. UnreadableError as above."""
    found = _status(path, follow_links=True)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_directory(path: str | os.PathLike[str]) -> bool:
    """Whether it is a directory, or a link to one. UnreadableError as above."""
    found = _status(path, follow_links=True)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_real_file(path: str | os.PathLike[str]) -> bool:
    """Whether it is a regular file itself, no link to one. UnreadableError as above."""
    found = _status(path, follow_links=False)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_real_directory(path: str | os.PathLike[str]) -> bool:
    """Whether it is a directory itself, no link to one. UnreadableError as above."""
    found = _status(path, follow_links=False)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_link(path: str | os.PathLike[str]) -> bool:
    """Whether it is a symbolic link. UnreadableError as above."""
    found = _status(path, follow_links=False)
    return found is not None and stat.S_ISLNK(found.st_mode)


def status_of(path: str | os.PathLike[str]) -> os.stat_result | None:
    """What the system says of it, links followed; None if nothing is there. UnreadableError as above."""
    return _status(path, follow_links=True)


def no_answer(error: OSError, path: str | os.PathLike[str]) -> UnreadableError:
    """What is raised where the system does not say what lies at `path`."""
    hint = "check the permissions and the disk (dmesg)"
    return UnreadableError(f"cannot be looked at: {error.strerror}", file=path, hint=hint)


def _status(path: str | os.PathLike[str], *, follow_links: bool) -> os.stat_result | None:
    try:
        return os.stat(path) if follow_links else os.lstat(path)
    except ValueError:  # a name that no file can have
        return None
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise no_answer(error, path) from error
