"""Whether something lies at a path, what it is, and how full its disk is.

A disk that gives no answer is an error here, never absence: os.path takes it for that, and pathlib from Python 3.14 on.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from rmqctl.formats.errors import UnreadableError, refuse_exhausted

before_look: Callable[[str], None] | None = None
"""Told of each path before the system is asked about it; None as long as no folder stands for files elsewhere of which
not all are known yet (`store/remote/shadow.py`)."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether there is anything of this name, if only a link that leads nowhere. UnreadableError if nobody can tell."""
    return _status(path, follow_links=False) is not None


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is something that can be opened: links are followed. UnreadableError as above."""
    return _status(path, follow_links=True) is not None


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether it is a regular file, or a link to one. UnreadableError as above."""
    return stat.S_ISREG(_mode(path, follow_links=True))


def is_directory(path: str | os.PathLike[str]) -> bool:
    """Whether it is a directory, or a link to one. UnreadableError as above."""
    return stat.S_ISDIR(_mode(path, follow_links=True))


def has_entries(path: str | os.PathLike[str]) -> bool:
    """Return whether it is a directory with something in it. False where it cannot be listed."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except OSError as error:
        refuse_exhausted(error, path)
        return False


def is_real_file(path: str | os.PathLike[str]) -> bool:
    """Whether it is a regular file itself, no link to one. UnreadableError as above."""
    return stat.S_ISREG(_mode(path, follow_links=False))


def is_real_directory(path: str | os.PathLike[str]) -> bool:
    """Whether it is a directory itself, no link to one. UnreadableError as above."""
    return stat.S_ISDIR(_mode(path, follow_links=False))


def is_link(path: str | os.PathLike[str]) -> bool:
    """Whether it is a symbolic link. UnreadableError as above."""
    return stat.S_ISLNK(_mode(path, follow_links=False))


def _mode(path: str | os.PathLike[str], *, follow_links: bool) -> int:
    """What kind of thing it is, and who may do what with it; 0, which is no kind, where nothing is there."""
    found = _status(path, follow_links=follow_links)
    return 0 if found is None else found.st_mode


def status_of(path: str | os.PathLike[str]) -> os.stat_result | None:
    """What the system says of it, links followed; None if nothing is there. UnreadableError as above."""
    return _status(path, follow_links=True)


def no_answer(error: OSError, path: str | os.PathLike[str]) -> UnreadableError:
    """What is raised where the system does not say what lies at `path`."""
    hint = "check the permissions and the disk (dmesg)"
    return UnreadableError(f"cannot be looked at: {error.strerror}", file=path, hint=hint)


def _status(path: str | os.PathLike[str], *, follow_links: bool) -> os.stat_result | None:
    if before_look is not None:
        before_look(os.fspath(path))
    try:
        return os.stat(path) if follow_links else os.lstat(path)
    except ValueError:  # a name that no file can have
        return None
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        refuse_exhausted(error, path)
        raise no_answer(error, path) from error


def disk_space(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Of the disk of `path`: bytes that are used, and those that an ordinary user may use in all. OSError."""
    status = os.statvfs(path)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    return used, used + status.f_bavail * status.f_frsize


# NTFS and CIFS, SMB clients, many network file systems, exFAT, ext3 and 128-byte inodes of ext4, FAT
_UNITS_NS = (100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000)
_LAST_OF_32_BITS_NS = (2**31 - 1) * 1_000_000_000


def is_same_time(found_ns: int, expected_ns: int) -> bool:
    """Return whether a file system that was given the time `expected_ns` may read it back as `found_ns`.

    A file system rounds a time that is set to its own unit, some only when they drop the file from their cache. Where
    times have 32 bits of seconds it keeps a later one as the last of them.
    """
    if found_ns == expected_ns:
        return True
    if found_ns == _LAST_OF_32_BITS_NS:
        return expected_ns > found_ns
    return any(found_ns % unit == 0 and abs(found_ns - expected_ns) < unit for unit in _UNITS_NS)
