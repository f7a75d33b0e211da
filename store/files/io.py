"""The one module that changes files: it creates, writes, maps, flushes, renames, truncates and removes.

Every change goes through `observer` first, so that tests can record, fail or cut any of them. An OSError becomes a
WriteFailedError that names the file: a failed write is never silent.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from formats.errors import DiskFullError, WriteFailedError

PAGE_SIZE = 4096
# A sparse file is given real blocks this far ahead of its write position, so that a full disk is an error of the
# reservation and never a SIGBUS in the middle of a mapped write.
RESERVE_AHEAD = 4 * 1024 * 1024
# madvise(2), Linux 5.14: page tables for a whole range at once, at a fifth of the cost of a fault for each page
_POPULATE_WRITE = 23

Observer = Callable[[str, str, int, int], None]
observer: Observer | None = None


def _observe(operation: str, path: str | os.PathLike[str], offset: int = 0, length: int = 0) -> None:
    if observer is not None:
        observer(operation, os.fspath(path), offset, length)


@contextlib.contextmanager
def _changing(operation: str, path: str | os.PathLike[str], offset: int = 0, length: int = 0) -> Iterator[None]:
    try:
        _observe(operation, path, offset, length)
        yield
    except OSError as error:
        message = f"{operation} failed: {error.strerror or error}"
        if error.errno in _NO_SPACE:
            hint = "free some space on this disk, then run the command again"
            raise DiskFullError(message, file=path, hint=hint) from error
        raise WriteFailedError(message, file=path) from error


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes an unprivileged process may still write on the disk of `path`."""
    try:
        status = os.statvfs(path)
    except OSError as error:
        raise WriteFailedError(f"cannot read the free space: {error.strerror}", file=path) from error
    return status.f_bavail * status.f_frsize


def make_directories(path: Path) -> None:
    """Create `path` and its parents where they are missing."""
    if not path.is_dir():
        with _changing("mkdir", path):
            path.mkdir(parents=True, exist_ok=True)


def create_file(path: Path, size: int) -> None:
    """A new sparse file of `size` zero bytes; fails if it exists."""
    with _changing("create", path, 0, size):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        os.close(descriptor)


def open_for_writing(path: str | os.PathLike[str], create: bool = False) -> int:
    """A descriptor for reading and writing of `path`, which the caller closes."""
    with _changing("open", path):
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)


def write_at(descriptor: int, path: str | os.PathLike[str], offset: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data` at byte `offset`."""
    with _changing("write", path, offset, len(data)):
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view = view[written:]
            offset += written


def write_range(path: Path, offset: int, data: bytes | bytearray | memoryview) -> None:
    """Write `data` into an existing file at `offset`, not flushed."""
    descriptor = open_for_writing(path)
    try:
        write_at(descriptor, path, offset, data)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: written beside it, flushed, renamed, so that it is the old or the new, never half."""
    temporary = path.with_name(f".{path.name}.rmqctl-{os.getpid()}")
    descriptor = open_for_writing(temporary, create=True)
    try:
        write_at(descriptor, temporary, 0, data)
        flush_descriptor(descriptor, temporary)
    except BaseException:
        os.close(descriptor)
        remove(temporary)
        raise
    os.close(descriptor)
    rename(temporary, path)
    flush_directory(path.parent)


def truncate(path: Path, size: int) -> None:
    """Cut or extend (with zeros) a file to `size` bytes."""
    with _changing("truncate", path, size):
        os.truncate(path, size)


def rename(source: Path, target: Path) -> None:
    """Rename within one file system; an existing target file is replaced."""
    with _changing("rename", source):
        os.replace(source, target)


def move(source: Path, target: Path) -> None:
    """Move a file or directory, across file systems too; the target must not exist."""
    with _changing("move", source):
        make_directories(target.parent)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, f"{target} exists already")
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _move_across(source, target)


def _move_across(source: Path, target: Path) -> None:
    """Copy, flush, rename, and only then remove: at every moment one of the two places has all of it."""
    import shutil

    temporary = target.with_name(f".{target.name}.rmqctl-{os.getpid()}")
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, temporary, symlinks=True)
    else:
        shutil.copy2(source, temporary, follow_symlinks=False)
    flush_tree(temporary)
    os.rename(temporary, target)
    flush_directory(target.parent)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(source)
    else:
        source.unlink()
    flush_directory(source.parent)


def flush_tree(path: Path) -> None:
    """fsync a file, or a directory with everything in it."""
    if path.is_symlink():
        return
    if not path.is_dir():
        flush_file(path)
        return
    for child in path.iterdir():
        flush_tree(child)
    flush_directory(path)


def copy_file(source: Path, target: Path) -> None:
    """Copy content and times of a file."""
    import shutil

    with _changing("copy", target):
        make_directories(target.parent)
        shutil.copy2(source, target)


def remove(path: Path) -> None:
    """Remove one file."""
    with _changing("remove", path):
        path.unlink()


def remove_directory(path: Path) -> None:
    """Remove one empty directory."""
    with _changing("rmdir", path):
        path.rmdir()


def remove_tree(path: Path) -> None:
    """Remove a directory with everything in it (staging areas of our own only)."""
    import shutil

    with _changing("rmtree", path):
        shutil.rmtree(path)


def flush_descriptor(descriptor: int, path: str | os.PathLike[str]) -> None:
    """fsync; a failure is fatal for the file, because the kernel forgets which pages were lost."""
    with _changing("fsync", path):
        os.fsync(descriptor)


def flush_file(path: Path) -> None:
    """fsync a file by name."""
    descriptor = open_for_writing(path)
    try:
        flush_descriptor(descriptor, path)
    finally:
        os.close(descriptor)


def flush_directory(path: Path) -> None:
    """fsync a directory, so that creations and renames in it survive a power cut."""
    with _changing("fsync", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class WritableMap:
    """A file mapped for writing. Positions are bytes from the start of the file."""

    def __init__(self, path: Path, size: int, reserved: int) -> None:
        """Map `size` bytes of an existing file; the first `reserved` of them have blocks already."""
        self.path = path
        self.size = size
        self.reserved = reserved
        self._is_growing = False
        self._descriptor = open_for_writing(path)
        try:
            with _changing("map", path, 0, size):
                if os.fstat(self._descriptor).st_size < size:
                    raise OSError(errno.EIO, "the file is shorter than it should be")
                self._map = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_WRITE)
        except BaseException:
            os.close(self._descriptor)
            raise

    def reserve(self, end: int) -> None:
        """Make sure that the disk has blocks up to byte `end`; WriteFailedError if it is full, nothing written."""
        if end <= self.reserved:
            return
        begin = self.reserved
        ahead = min(self.size, -(-end // RESERVE_AHEAD) * RESERVE_AHEAD)
        try:
            self._reserve_up_to(ahead)
        except WriteFailedError:
            # no room for the whole chunk: what is needed now may still fit
            if ahead == end:
                raise
            self._reserve_up_to(min(self.size, -(-end // PAGE_SIZE) * PAGE_SIZE))
        if self._is_growing:
            self._populate(begin)
        # whoever writes little never comes here again, and pages written for nothing would be flushed for nothing
        self._is_growing = True

    def _reserve_up_to(self, end: int) -> None:
        with _changing("reserve", self.path, self.reserved, end - self.reserved):
            os.posix_fallocate(self._descriptor, self.reserved, end - self.reserved)
        self.reserved = end

    def _populate(self, begin: int) -> None:
        """Map the reserved pages from `begin` on in one go. Where the kernel cannot, each write faults for itself."""
        begin -= begin % mmap.PAGESIZE
        with contextlib.suppress(OSError, ValueError):
            self._map.madvise(_POPULATE_WRITE, begin, self.reserved - begin)

    def view(self, begin: int, end: int) -> memoryview:
        """The bytes [begin, end) for code that writes many places at once, to be released before `close`. Only what is
        reserved may be written, and only what was announced by `will_write`."""
        return memoryview(self._map)[begin:end]

    def will_write(self, position: int, length: int) -> None:
        """Let the observer know, and fail, of a write that somebody else carries out."""
        if observer is not None:
            with _changing("write", self.path, position, length):
                pass

    def write_frame(self, position: int, first: bytes, rest: bytes) -> None:
        """Write a frame of two pieces, of which the `first` has 8 bytes and is written last. See `write`."""
        if observer is not None:
            self.will_write(position, 8 + len(rest))
        begin = position + 8
        self._map[begin : begin + len(rest)] = rest
        self._map[position:begin] = first

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Copy `data` to `position`; the range must be reserved. The first eight bytes are copied last, so that a
        reader of the live file sees either no frame or a whole one."""
        self.will_write(position, len(data))
        end = position + len(data)
        head_end = min(position + 8, end)
        self._map[head_end:end] = data[8:]
        self._map[position:head_end] = data[:8]

    def flush(self, begin: int, end: int) -> None:
        """Bring the pages of [begin, end) to disk, and with them whatever else of the file is dirty.

        fdatasync writes the dirty pages of a shared map just as msync does, but lets other threads run meanwhile:
        mmap.flush would stop the whole process for the length of the fsync.
        """
        if end > begin:
            with _changing("fsync", self.path, begin, end - begin):
                os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Unmap; does not flush."""
        self._map.close()
        os.close(self._descriptor)
