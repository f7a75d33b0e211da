"""Reading of store files by position, with a bounded number of open descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rmqctl.formats.errors import EXHAUSTED, RemovedError, UnreadableError, refuse_exhausted, told, unreadable
from rmqctl.store.files.background import patiently, share_of_descriptors

# Whether something lies at a path, what it is, and how full its disk is.
#
# A disk that gives no answer is an error here, never absence: os.path takes it for that, and pathlib from Python 3.14
# on.

before_look: Callable[[str], None] | None = None
"""Called with each path before a system call on it; None until a folder represents remote files that are not all listed
(`store/files/remote_files.py`)."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether there is anything of this name, if only a link that leads nowhere. UnreadableError if the system does not
    say."""
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
    """Return the error for a path about which the system gives no answer."""
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


_MAXIMUM_OPEN = 256
_CHUNK = 1 << 20
_PAGE = 4096


class FileElsewhere(Protocol):
    """A file of which this machine has only name and size: its bytes are read from where they are."""

    size: int
    modified_ns: int | None
    version: str

    @property
    def end_of_data(self) -> int | None:
        """Position behind the last byte that is not zero, where that is found out by reading little; else None."""

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file. RemovedError, UnreadableError."""


STAND_IN = "/rmqctl-remote-"
"""In the names of all folders that stand for stores on servers."""

elsewhere: Callable[[str], FileElsewhere | None] | None = None
"""Says of a path whether the file's bytes are somewhere else; None as long as no such store is open
(`store/files/remote_files.py`)."""


def file_elsewhere(path: str | os.PathLike[str]) -> FileElsewhere | None:
    """The file, if its bytes are not on this machine. UnreadableError where only another process knows of them."""
    found = elsewhere_of(path)
    if found is None:
        _refuse_stand_in(os.fspath(path))
    return found


def elsewhere_of(path: str | os.PathLike[str]) -> FileElsewhere | None:
    """The file, if this process knows that its bytes are not on this machine."""
    return None if elsewhere is None else elsewhere(os.fspath(path))


def _refuse_stand_in(name: str) -> None:
    """UnreadableError for a file of a folder that another process has for a store on a server: there is nothing in it,
    which is not to be taken for zeros of the store."""
    if STAND_IN in name and told(name) == name:
        raise UnreadableError(
            "is a placeholder that another process uses for a remote file",
            file=name,
            hint="name the store by its address, such as s3://bucket/store",
        )


class Descriptors:
    """A cache of read-only descriptors; remote files need none. `pread` is used throughout: a file that shrinks gives a
    short read, where a map would kill the process with SIGBUS."""

    def __init__(self, maximum_open: int = _MAXIMUM_OPEN) -> None:
        self._maximum_open = share_of_descriptors(maximum_open)
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._pins: dict[Path, int] = {}
        # who reads one file again and again names it by the same object, which takes no look at its name: descriptors
        # with these objects, so that none of them goes, by their ids
        self._known: dict[int, tuple[Path, int]] = {}
        self._lock = threading.Lock()
        self.on_removed: Callable[[Path], None] | None = None
        """Called with a directory whose oldest files were removed while they were read."""
        self._exact_readers = 0

    @contextmanager
    def exact_about_removed(self) -> Iterator[None]:
        """Do not call `on_removed` meanwhile: a reader reports which messages it missed, if any."""
        with self._lock:
            self._exact_readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._exact_readers -= 1

    def note_removed(self, directory: Path) -> None:
        """Report that the oldest files of `directory` were removed, unless a reader reports it more exactly."""
        if self.on_removed is not None and not self._exact_readers:
            self.on_removed(directory)

    def read(self, path: Path, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file. RemovedError for a file that is not
        there any more, UnreadableError on any other failure."""
        if elsewhere is not None and (remote := elsewhere(str(path))) is not None:
            return remote.read(position, length)
        with self._lock:
            descriptor = None
            try:
                descriptor = self._descriptor(path)
                data = os.pread(descriptor, length, position)
                while len(data) < length:
                    more = os.pread(descriptor, length - len(data), position + len(data))
                    if not more:
                        break
                    data += more
            except FileNotFoundError as error:
                raise removed_error(path) from error
            except OSError as error:
                refuse_exhausted(error, path)
                place = "" if descriptor is None else f" at byte {_first_bad_page(descriptor, position, length)}"
                raise UnreadableError(
                    f"cannot be read{place}: {error.strerror or error}",
                    file=path,
                    hint="check the permissions and the disk (dmesg), or copy the store elsewhere first",
                ) from error
            return data

    def _descriptor(self, path: Path) -> int:
        # where one has to be closed for the next, it counts which was used last
        known = self._known.get(id(path)) if len(self._open) < self._maximum_open else None
        if known is not None:
            return known[1]
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            self._know(path, descriptor)
            return descriptor
        if len(self._open) >= self._maximum_open:
            self._close_oldest()
        _refuse_stand_in(str(path))
        descriptor = self._opened(path)
        self._open[path] = descriptor
        self._know(path, descriptor)
        return descriptor

    def _opened(self, path: Path) -> int:
        # O_NONBLOCK: a fifo among the files must not hang the tool
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            return os.open(path, flags)
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
        # those that nothing holds are opened again when they are read next
        for held in [held for held in self._open if held not in self._pins]:
            self._close(held)
        return patiently(lambda: os.open(path, flags))

    def _know(self, path: Path, descriptor: int) -> None:
        if len(self._known) >= self._maximum_open:
            self._known.clear()
        self._known[id(path)] = path, descriptor

    def _close_oldest(self) -> None:
        for path in self._open:
            if path not in self._pins:
                self._close(path)
                return

    def _close(self, path: Path) -> None:
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            self._known.clear()
            os.close(descriptor)

    def pin(self, path: Path) -> bool:
        """Keep the file open until `unpin`, so that it can be read to its end even if another process removes it.

        False if there is no such file. What else is wrong with it, reading tells.
        """
        if elsewhere is not None and elsewhere(str(path)) is not None:
            return True
        with self._lock:
            try:
                self._descriptor(path)
            except FileNotFoundError:
                return False
            except OSError as error:
                refuse_exhausted(error, path)
            self._pins[path] = self._pins.get(path, 0) + 1
            return True

    def unpin(self, path: Path) -> None:
        """Take one `pin` back."""
        with self._lock:
            left = self._pins.get(path, 0) - 1
            if left > 0:
                self._pins[path] = left
            else:
                self._pins.pop(path, None)

    def duplicate(self, path: Path) -> int:
        """A descriptor of the file as it is open here; who asks for it closes it. Errors as in `read`."""
        with self._lock:
            try:
                return os.dup(self._descriptor(path))
            except FileNotFoundError as error:
                raise removed_error(path) from error
            except OSError as error:
                raise unreadable(error, path, "opened") from error

    def forget(self, path: Path) -> None:
        """Close the descriptor of a file that was replaced or removed."""
        with self._lock:
            self._close(path)

    def forget_unless_pinned(self, path: Path) -> None:
        """The same for a file that another process removed: who holds it goes on reading it."""
        if path not in self._pins:
            self.forget(path)

    def let_go(self) -> None:
        """Close the descriptors of all files that are not held. Who goes along a store for long must not keep them: a
        writer does not start while they are open, and a broker may put other files in their places."""
        with self._lock:
            for path in [path for path in self._open if path not in self._pins]:
                self._close(path)

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            self._known.clear()
            while self._open:
                os.close(self._open.popitem()[1])

    def __del__(self) -> None:
        # a store that nobody closed: its files are let go of with it, as Python's own are
        with contextlib.suppress(OSError, AttributeError, TypeError):  # the interpreter may be going, too
            self.close()

    def __enter__(self) -> Descriptors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def removed_error(path: Path) -> RemovedError:
    """What to say of a file that is not there any more."""
    return RemovedError(
        "was removed while the store was read",
        file=path,
        hint="run the command again; if no broker and no cleaning removes files of this store, look into a backup",
    )


_SMALL = 1 << 16


def read_small_file(path: Path, limit: int, too_large: UnreadableError | None = None) -> bytes:
    """The first `limit` bytes of a regular file. FileNotFoundError; UnreadableError, also for other than regular files:
    opening a fifo blocks, and a device has no end. `too_large`: raised for a larger file, before it is read."""
    if (remote := file_elsewhere(path)) is not None:
        if too_large is not None and remote.size > limit:
            raise too_large
        return remote.read(0, limit)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(error, path, hint="check its permissions") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("is not a regular file", file=path, hint="move it away")
        if too_large is not None and status.st_size > limit:
            raise too_large
        with open(descriptor, "rb", closefd=False) as file:
            # a read takes memory for all that it may get
            return file.read(min(limit, max(status.st_size, _SMALL)))
    except OSError as error:
        raise unreadable(error, path) from error
    finally:
        os.close(descriptor)


def refuse_broken_link(path: Path) -> None:
    """Raise UnreadableError if `path` is a link whose target is missing."""
    if is_link(path):
        raise UnreadableError(f"is a link to {os.readlink(path)}, which is not there", file=path, hint="move it away")


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An OSError of reading `path` becomes an UnreadableError that names it."""
    try:
        yield
    except OSError as error:
        refuse_exhausted(error, error.filename or path)
        raise UnreadableError(
            f"cannot be read: {error.strerror or error}",
            file=error.filename or path,
            hint="check the permissions and the disk (dmesg)",
        ) from error


def listed(directory: Path) -> list[str]:
    """Return the names in a directory, sorted; none where it is not there. UnreadableError."""
    with named(directory):
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []


def pieces_of(path: Path, offset: int, length: int, at_once: int = _CHUNK) -> Iterator[bytes]:
    """Bytes of a file of this machine from `offset` on, piece by piece; fewer where it ends. UnreadableError."""
    with named(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        while length > 0:
            with named(path):
                data = os.pread(descriptor, min(length, at_once), offset)
            if not data:
                return
            yield data
            offset += len(data)
            length -= len(data)
    finally:
        os.close(descriptor)


def _first_bad_page(descriptor: int, position: int, length: int) -> int:
    """Return where the first unreadable page of [position, position + length) begins, independent of the read size."""
    first = position - position % _PAGE
    for page in range(first, position + length, _PAGE):
        try:
            os.pread(descriptor, _PAGE, page)
        except OSError:
            return page
    return first


# Where a file of a store holds anything but zeros: its holes are not read, and what is read ends with its last byte.
#
# Store files are made at their full size, so most of a young one is a hole or zeros.

_SMALL = 16 * 1024
# what a server is asked for at the least
_PROBE = 64 * 1024
_ZEROS = bytes(_CHUNK)
# 1048576, 524288 … 2, 1 zeros
_RUNS_OF_ZEROS = tuple(bytes(_CHUNK >> power) for power in range(_CHUNK.bit_length()))


def data_extents(path: Path, begin: int, end: int, descriptors: Descriptors | None = None) -> Iterator[tuple[int, int]]:
    """Ranges of [begin, end) that may hold anything but zeros: holes of sparse files are left out.

    With `descriptors` the file is looked at as it is open there. RemovedError, UnreadableError.
    """
    if (remote := file_elsewhere(path)) is not None:
        if begin < min(end, remote.size):
            yield begin, min(end, remote.size)
        return
    if descriptors is None:
        with Descriptors() as own:
            descriptor = own.duplicate(path)
    else:
        descriptor = descriptors.duplicate(path)
    try:
        position = begin
        while position < end:
            try:
                start = os.lseek(descriptor, position, os.SEEK_DATA)
            except OSError as error:  # ENXIO: only a hole is left; else no support, then everything counts as data
                if error.errno != errno.ENXIO and _size_of(descriptor, path) > position:
                    yield position, end
                return
            stop = os.lseek(descriptor, start, os.SEEK_HOLE)
            if start >= end:
                return
            yield start, min(stop, end)
            position = stop
    finally:
        os.close(descriptor)


def _size_of(descriptor: int, path: Path) -> int:
    try:
        return os.fstat(descriptor).st_size
    except OSError as error:
        raise no_answer(error, path) from error


def first_nonzero(descriptors: Descriptors, path: Path, begin: int, end: int) -> int | None:
    """Position of the first byte in [begin, end) that is not zero."""
    for start, stop in data_extents(path, begin, end, descriptors):
        for position in range(start, stop, _CHUNK):
            chunk = descriptors.read(path, position, min(_CHUNK, stop - position))
            if chunk != _ZEROS and (rest := chunk.lstrip(b"\0")):
                return position + len(chunk) - len(rest)
    return None


def end_of_nonzero(descriptors: Descriptors, path: Path, begin: int, end: int) -> int:
    """Position behind the last byte in [begin, end) that is not zero; `begin` if all are zero."""
    if end <= begin:
        return begin
    if end - begin <= _SMALL:  # read sooner than looked at for holes
        return begin + _length_without_zeros(descriptors.read(path, begin, end - begin))
    if (remote := file_elsewhere(path)) is not None and end == remote.size:
        last = descriptors.read(path, max(begin, end - _PROBE), _PROBE)
        if not _length_without_zeros(last) and (known := remote.end_of_data) is not None:
            return max(begin, known)
    for start, stop in reversed(list(data_extents(path, begin, end, descriptors))):
        position = stop
        while position > start:
            at = max(start, position - _CHUNK)
            if length := _length_without_zeros(descriptors.read(path, at, position - at)):
                return at + length
            position = at
    return begin


def _length_without_zeros(data: bytes) -> int:
    """Bytes of `data`, which are _CHUNK at most, up to the last one that is not zero. Runs of zeros are compared at
    once, which is many times as fast as byte by byte."""
    end = len(data)
    for zeros in _RUNS_OF_ZEROS:
        if data.endswith(zeros, 0, end):
            end -= len(zeros)
    return end
