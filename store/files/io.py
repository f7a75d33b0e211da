"""The one module that changes files: it creates, writes, maps, flushes, renames, truncates and removes.

Every change goes through `observer` first, so that tests can record, fail or cut any of them. An OSError becomes a
WriteFailedError that names the file: a failed write is never silent.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from formats.errors import DiskFullError, WriteFailedError
from store.files.populate import Populator

PAGE_SIZE = 4096
# A sparse file is given real blocks this far ahead of its write position, so that a full disk is an error of the
# reservation and never a SIGBUS in the middle of a mapped write.
RESERVE_AHEAD = 4 * 1024 * 1024
# the same for a file that keeps growing
_RESERVE_MORE = 16 * 1024 * 1024

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Observer = Callable[[str, str, int, int], None]
observer: Observer | None = None


@contextlib.contextmanager
def _changing(operation: str, path: str | os.PathLike[str], offset: int = 0, length: int = 0) -> Iterator[None]:
    try:
        if observer is not None:
            observer(operation, os.fspath(path), offset, length)
        yield
    except OSError as error:
        message = f"{operation} failed: {error.strerror or error}"
        if error.errno in _NO_SPACE:
            hint = "free some space on this disk, then run the command again"
            raise DiskFullError(message, file=path, hint=hint) from error
        raise WriteFailedError(message, file=path) from error


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes an unprivileged process may still write on the disk of `path`."""
    try:
        status = os.statvfs(path)
    except OSError as error:
        raise WriteFailedError(f"cannot read the free space: {error.strerror}", file=path) from error
    return status.f_bavail * status.f_frsize


def make_directories(path: Path, below: Path | None = None) -> None:
    """Create `path` and its parents where they are missing; those down to `below`, if it is given, must be there."""
    if not path.is_dir():
        with _changing("mkdir", path):
            missing = [path, *(parent for parent in path.parents if below is not None and below in parent.parents)]
            for directory in reversed(missing):
                directory.mkdir(parents=below is None, exist_ok=True)


def create_file(path: Path, size: int) -> None:
    """A new sparse file of `size` zero bytes; fails if it exists."""
    with _changing("create", path, 0, size):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            path.unlink()
            raise
        finally:
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
    if os.path.lexists(temporary):  # of a process with the same id that was killed, perhaps longer than ours
        remove(temporary)
    descriptor = open_for_writing(temporary, create=True)
    try:
        write_at(descriptor, temporary, 0, data)
        flush_descriptor(descriptor, temporary)
    except BaseException:
        remove(temporary)
        raise
    finally:
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


def rename_within(source: Path, target: Path) -> bool:
    """Rename to a name that is free; False, and nothing is done, where `target` is on another file system."""
    with _changing("move", source):
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, f"{target} exists already")
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
    return True


def set_modified(path: Path, modified_ns: int) -> None:
    """Set the time of the last change, in ns since 1970; that of the last access stays."""
    with _changing("utime", path):
        os.utime(path, ns=(path.stat().st_atime_ns, modified_ns))


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
    """Copy content and times of a file, or of a directory with everything in it; links stay links."""
    import shutil

    with _changing("copy", target):
        make_directories(target.parent)
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target, follow_symlinks=False)


def link(source: Path, target: Path) -> None:
    """Give a file a second name on its file system."""
    with _changing("link", target):
        target.hardlink_to(source)


def share_blocks(source: int, descriptor: int, path: Path) -> None:
    """Let an empty file share the blocks of an open one, for as long as nobody writes to either."""
    with _changing("clone", path):
        fcntl.ioctl(descriptor, 0x40049409, source)  # FICLONE


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


def remove_any(path: Path) -> None:
    """Remove a file, a link, or a directory with everything in it."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        remove(path)


def make_temporary_directory(prefix: str) -> Path:
    """A new directory where the system keeps temporary files, for this user only."""
    import tempfile

    with _changing("mkdir", prefix):
        return Path(tempfile.mkdtemp(prefix=prefix))


def make_executable(path: Path) -> None:
    """Let the owner, and whoever may read it, run a file."""
    with _changing("chmod", path):
        path.chmod(0o755)


def flush_descriptor(descriptor: int, path: str | os.PathLike[str]) -> None:
    """fsync; a failure is fatal for the file, because the kernel forgets which pages were lost."""
    with _changing("fsync", path):
        os.fsync(descriptor)


def flush_file(path: Path, flags: int = os.O_NONBLOCK) -> None:
    """fsync a file by name; it need not be ours to write."""
    with _changing("fsync", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def flush_directory(path: Path) -> None:
    """fsync a directory, so that creations and renames in it survive a power cut."""
    flush_file(path, os.O_DIRECTORY)


class WritableMap:
    """A file mapped for writing. Positions are bytes from its start. `map` is for compiled code (see `view`)."""

    def __init__(self, path: Path, size: int, reserved: int) -> None:
        """Map `size` bytes of an existing file; the first `reserved` of them have blocks already."""
        self.path = path
        self.size = size
        self.reserved = self._allocated = self._populated = reserved
        self._is_growing = False
        self._descriptor = open_for_writing(path)
        try:
            with _changing("map", path, 0, size):
                if os.fstat(self._descriptor).st_size < size:
                    raise OSError(errno.EIO, "the file is shorter than it should be")
                self.map = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_WRITE)
                self._populator = Populator(self.map)
        except BaseException:
            os.close(self._descriptor)
            raise

    def reserve(self, end: int) -> None:
        """Make sure that the disk has blocks up to byte `end`; WriteFailedError if it is full, nothing written."""
        if end <= self.reserved:
            return
        chunk = _RESERVE_MORE if self._is_growing else RESERVE_AHEAD
        wanted = min(self.size, -(-end // chunk) * chunk)
        try:
            self._allocate(wanted)
        except WriteFailedError:
            # no room for the whole chunk: what is needed now may still fit
            if wanted == end:
                raise
            wanted = min(self.size, -(-end // PAGE_SIZE) * PAGE_SIZE)
            self._allocate(wanted)
        self.reserved = wanted
        # whoever writes little never comes here again, and pages written for nothing would be flushed for nothing
        if self._is_growing:
            self._look_ahead()
        self._is_growing = True

    def _allocate(self, end: int) -> None:
        if end > self._allocated:
            with _changing("reserve", self.path, self._allocated, end - self._allocated):
                os.posix_fallocate(self._descriptor, self._allocated, end - self._allocated)
            self._allocated = end

    def _look_ahead(self) -> None:
        """Have the pages mapped that are reserved, and a chunk more: it will be reserved next."""
        with contextlib.suppress(WriteFailedError):  # whoever needs the room learns of it
            self._allocate(min(self.size, self.reserved + _RESERVE_MORE))
        if self._allocated > self._populated:
            self._populator.ahead(self._populated, self._allocated)
            self._populated = self._allocated

    def view(self, begin: int, end: int) -> memoryview:
        """The bytes [begin, end) for code that writes many places at once, to be released before `close`. Only what is
        reserved may be written, and only what was announced by `will_write`."""
        return memoryview(self.map)[begin:end]

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
        self.map[begin : begin + len(rest)] = rest
        self.map[position:begin] = first

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Copy `data` to `position`; the range must be reserved. The first eight bytes are copied last, so that a
        reader of the live file sees either no frame or a whole one."""
        self.will_write(position, len(data))
        end = position + len(data)
        head_end = min(position + 8, end)
        self.map[head_end:end] = data[8:]
        self.map[position:head_end] = data[:8]

    def flush(self, begin: int, end: int) -> None:
        """Bring the pages of [begin, end) to disk, and whatever else of the file is dirty. By fdatasync, which lets
        other threads run meanwhile, where mmap.flush would stop the whole process for the length of the fsync."""
        if end > begin:
            with _changing("fsync", self.path, begin, end - begin):
                os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Unmap; does not flush."""
        self._populator.close()
        self.map.close()
        os.close(self._descriptor)
