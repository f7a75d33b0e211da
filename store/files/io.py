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
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.formats.errors import DiskFullError, WriteFailedError, exhausted
from rmqctl.store.files.background import patiently
from rmqctl.store.files.layout import Ownership, inherited, of_one
from rmqctl.store.files.reading import (
    exists,
    file_elsewhere,
    is_directory,
    is_file,
    is_link,
    is_real_directory,
    is_real_file,
    is_there,
    no_answer,
)

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

PAGE_SIZE = 4096

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
        raise _failed(operation, path, error) from error


def _failed(operation: str, path: str | os.PathLike[str], error: OSError) -> WriteFailedError:
    if (found := exhausted(error, path)) is not None:
        return found
    message = f"{operation} failed: {error.strerror or error}"
    if error.errno in _NO_SPACE:
        return DiskFullError(message, file=path, hint="free some space on this disk, then run the command again")
    return WriteFailedError(message, file=path)


def _tell_target(path: Path) -> None:
    """Let the observer know of the name that a file is about to get."""
    if observer is not None:
        observer("rename to", os.fspath(path), 0, 0)


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes an unprivileged process may still write on the disk of `path`."""
    try:
        status = os.statvfs(path)
    except OSError as error:
        raise WriteFailedError(f"cannot read the free space: {error.strerror}", file=path) from error
    return status.f_bavail * status.f_frsize


def make_directories(path: Path, below: Path | None = None, *, flushed: bool = False) -> None:
    """Create `path` and its parents where they are missing; those down to `below`, if it is given, must be there.

    With `flushed` new directories survive a power cut; else the caller that puts files into them flushes them.
    """
    if is_directory(path):
        return
    wanted = (path, *(above for above in path.parents if below is None or below in above.parents))
    missing = [directory for directory in wanted if not is_directory(directory)]
    with _changing("mkdir", path):
        for directory in reversed(missing):
            owner = inherited(directory)
            directory.mkdir(exist_ok=True)
            if owner is not None:
                give_to(directory, owner)
    for directory in reversed(missing) if flushed else ():
        flush_directory(directory.parent)


def create_file(path: Path, size: int) -> None:
    """A new sparse file of `size` zero bytes; fails if it exists."""
    with _changing("create", path, 0, size):
        owner = inherited(path)
        descriptor = patiently(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        try:
            _give(descriptor, owner)
            os.ftruncate(descriptor, size)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)


def open_for_writing(path: str | os.PathLike[str], create: bool = False, owner: Ownership | None = None) -> int:
    """A descriptor of `path` for reading and writing, closed by the caller. `owner`: if not of the store around it."""
    with _changing("open", path):
        owner = (owner or inherited(Path(path))) if create and not exists(path) else None
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        descriptor = patiently(lambda: os.open(path, flags, 0o644))
        try:
            _give(descriptor, owner)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def open_made(path: Path) -> int:
    """A descriptor of a file or directory that we have just made, to hold it by; the caller closes it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise _failed("open", path, error) from error


def open_stream(path: Path) -> int:
    """A descriptor for writing one after the other into what is there and no plain file: a device or a pipe."""
    with _changing("open", path):
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)


def write_on(descriptor: int, path: Path, data: memoryview) -> None:
    """Write all of `data` where a stream is."""
    with _changing("write", path, 0, len(data)):
        while data:
            data = data[os.write(descriptor, data) :]


def _give(descriptor: int, owner: Ownership | None) -> None:
    if owner is not None:
        status = os.fstat(descriptor)
        if (status.st_uid, status.st_gid) != (owner.user, owner.group) and os.geteuid() == 0:
            os.fchown(descriptor, owner.user, owner.group)
        os.fchmod(descriptor, owner.directory_mode if stat.S_ISDIR(status.st_mode) else owner.file_mode)


def give_to(path: Path, owner: Ownership) -> None:
    """Give a file or directory its permissions; owner and group too, if this user is root."""
    with _changing("chown", path):
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = patiently(lambda: os.open(path, flags))
        try:
            _give(descriptor, owner)
        finally:
            os.close(descriptor)


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
    """Replace `path` by `data`: written beside it, flushed, renamed, so that it is the old or the new, never half.
    A link is followed. What is replaced hands on its owner and permissions."""
    path = Path(os.path.realpath(path)) if is_link(path) else path
    temporary = path.with_name(f".{path.name}.rmqctl-{os.getpid()}")
    if is_there(temporary):  # of a process with the same id that was killed, perhaps longer than ours
        remove(temporary)
    try:
        replaced = of_one(path.stat()) if is_file(path) else None
    except OSError as error:
        raise _failed("look at what is replaced", path, error) from error
    descriptor = open_for_writing(temporary, create=True, owner=replaced)
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
        _tell_target(target)
        os.replace(source, target)


def rename_within(source: Path, target: Path) -> bool:
    """Rename to a name that is free; False, and nothing is done, where `target` is on another file system."""
    with _changing("move", source):
        _tell_target(target)
        if is_there(target):
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


def copy_file(source: Path, target: Path, copy_bytes: Callable[[Path, Path], object]) -> None:
    """Copy content, times and owners of a file, or of a directory with everything in it; links stay links.

    `copy_bytes(source, target)` copies what is in a regular file to a new one.
    """
    import shutil

    def copy(one: str | Path, other: str | Path) -> None:
        if not is_real_file(one):
            shutil.copy2(one, other, follow_symlinks=False)
            return
        copy_bytes(Path(one), Path(other))
        shutil.copystat(one, other)

    with _changing("copy", target):
        make_directories(target.parent)
        if is_real_directory(source):
            shutil.copytree(source, target, symlinks=True, copy_function=copy)
        else:
            copy(source, target)
        if os.geteuid() == 0:  # nobody else can
            for path in [source, *(source.rglob("*") if is_directory(target) else ())]:
                os.lchown(target / path.relative_to(source), path.lstat().st_uid, path.lstat().st_gid)


def link(source: Path, target: Path) -> None:
    """Give a file a second name on its file system."""
    with _changing("link", target):
        target.hardlink_to(source)


def link_to(source: Path, target: Path) -> None:
    """Make a symbolic link to a file or directory, of which the path is absolute."""
    with _changing("link", target):
        target.symlink_to(source)


def share_blocks(source: int, descriptor: int, path: Path) -> None:
    """Let an empty file share the blocks of an open one until one of them is written."""
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


def make_temporary_directory(prefix: str) -> Path:
    """A new directory where the system keeps temporary files, for this user only."""
    import tempfile

    with _changing("mkdir", prefix):
        return Path(tempfile.mkdtemp(prefix=prefix))


class TemporaryFile:
    """A file without a name where the system keeps temporary ones ($TMPDIR), gone with this object."""

    def __init__(self) -> None:
        import tempfile

        with _changing("create", tempfile.gettempdir()):
            self._descriptor, path = tempfile.mkstemp(prefix="rmqctl-")
            os.unlink(path)
        self.size = 0

    def append(self, data: bytes) -> None:
        """Put `data` at its end."""
        with _changing("write", "a temporary file"):
            left = memoryview(data)
            while left:
                written = os.pwrite(self._descriptor, left, self.size)
                left, self.size = left[written:], self.size + written

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes of it."""
        return os.pread(self._descriptor, length, position)

    def __del__(self) -> None:
        os.close(self._descriptor)


def make_executable(path: Path) -> None:
    """Let every user who may read a file run it."""
    with _changing("chmod", path):
        path.chmod(0o755)


def flush_descriptor(descriptor: int, path: str | os.PathLike[str]) -> None:
    """fsync; a failure is fatal for the file, because the kernel forgets which pages were lost."""
    with _changing("fsync", path):
        os.fsync(descriptor)


def flush_file(path: Path, flags: int = os.O_NONBLOCK) -> None:
    """fsync a file by name; it need not be ours to write."""
    with _changing("fsync", path):
        descriptor = patiently(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def flush_directory(path: Path) -> None:
    """fsync a directory, so that creations and renames in it survive a power cut."""
    flush_file(path, os.O_DIRECTORY)


def map_for_writing(descriptor: int, path: Path, size: int) -> mmap.mmap:
    """A map of the first `size` bytes of an open file; WriteFailedError if it is shorter."""
    with _changing("map", path, 0, size):
        if os.fstat(descriptor).st_size < size:
            raise OSError(errno.EIO, "the file is shorter than it should be")
        return patiently(lambda: mmap.mmap(descriptor, size, access=mmap.ACCESS_WRITE))


def anonymous_map(size: int) -> mmap.mmap:
    """Return anonymous memory of `size` bytes of zeros. OSError if the system has no memory."""
    return mmap.mmap(-1, size)


def reserve(descriptor: int, path: Path, offset: int, length: int) -> None:
    """Give a range of a sparse file real blocks."""
    with _changing("reserve", path, offset, length):
        os.posix_fallocate(descriptor, offset, length)


def announce(path: Path, offset: int, length: int) -> None:
    """Notify the observer before native code writes to a map; it may raise."""
    if observer is not None:
        with _changing("write", path, offset, length):
            pass


def flush_data(descriptor: int, path: Path, offset: int, length: int) -> None:
    """fdatasync of a whole file, of which this range was written. It lets other threads run meanwhile, where mmap.flush
    would stop the whole process for the length of the fsync."""
    with _changing("fsync", path, offset, length):
        os.fdatasync(descriptor)


# Files and directories with everything in them: onto the disk, to another owner, away.


def flush_tree(path: Path) -> None:
    """fsync a file, or a directory with everything in it."""
    if is_link(path):
        return
    if not is_directory(path):
        flush_file(path)
        return
    for child in path.iterdir():
        flush_tree(child)
    flush_directory(path)


def give_tree(path: Path, owner: Ownership) -> None:
    """Give a file, or a directory with everything in it, none of which is a link, its permissions; owner and group too,
    if this user is root."""
    for one in (path, *path.rglob("*")):
        give_to(one, owner)


def on_disk_bytes(status: os.stat_result, path: str | Path | None = None) -> int:
    """Return the bytes that a file takes on its disk, without its holes; its full size if it is remote."""
    is_elsewhere = path is not None and file_elsewhere(path) is not None
    return status.st_size if is_elsewhere else status.st_blocks * 512


def tree_on_disk_bytes(path: Path) -> int:
    """The same of all files below a folder, or of a file. What folders take is left out: each file system differs.
    FileNotFoundError where something goes meanwhile; UnreadableError."""
    every = path.rglob("*") if is_real_directory(path) else [path]
    try:
        return sum(on_disk_bytes(found) for found in (one.lstat() for one in every) if not stat.S_ISDIR(found.st_mode))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise no_answer(error, error.filename or path) from error


def remove_any(path: Path) -> None:
    """Remove a file, a link, or a directory with everything in it."""
    if is_real_directory(path):
        remove_tree(path)
    else:
        remove(path)


# A long new file is brought to disk while it is still being written: its last flush finds little to do then.


_STEP = 32 * 1024 * 1024


class EarlyFlush:
    """Flushes a file in a thread each time that much was written to it. WriteFailedError of a flush is raised by
    whichever call comes next: it is fatal for the file."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self._unflushed = 0

    def wrote(self, length: int) -> None:
        """Count `size` written bytes."""
        self._unflushed += length
        if self._unflushed < _STEP or (self._running is not None and not self._running.done()):
            return
        if self._running is not None:
            self._running.result()
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # loads logging, which few commands need

            self._pool = ThreadPoolExecutor(1, "flush")
        self._running = self._pool.submit(flush_descriptor, self._descriptor, self._path)
        self._unflushed = 0

    def close(self) -> None:
        """Wait for the running flush; the descriptor may be closed then."""
        if self._pool is not None:
            self._pool.shutdown()

    def finish(self) -> None:
        """The same, and raise its error if it failed."""
        self.close()
        if self._running is not None:
            self._running.result()
