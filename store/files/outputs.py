"""Files that appear under their names only when they are complete: written beside them, flushed, then renamed."""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path

from rmqctl.formats.errors import RefusedError, WriteFailedError, unreadable
from rmqctl.store.files import io
from rmqctl.store.files.background import sleep
from rmqctl.store.files.io import flush_tree, remove_any
from rmqctl.store.files.layout import StoreLayout, holds_log_files, looks_like_store, of_one
from rmqctl.store.files.reading import data_extents, is_directory, is_real_directory, is_there

# Where output may go: never among the files of a store, neither of the one that is read nor of any other.

_FOLDERS = frozenset(
    "commitlog consumequeue consumequeue_ext batchconsumequeue index config timerwheel timerlog compaction".split()
)
_FILES = frozenset("checkpoint abort abort.bak lock timerwheel".split())
_ELSEWHERE = "name a place outside of every store"


def is_vacant(path: Path) -> bool:
    """Whether a new directory may take this name: nothing has it, or a directory without anything in it."""
    return not is_there(path) or (is_directory(path) and not any(path.iterdir()))


def check_output_place(path: Path, read: StoreLayout | None = None, *, beside_loose_files: bool = False) -> None:
    """RefusedError if something new at `path` would lie among the files of a store. A broker does not start with a
    stray file in its commitlog, and what replaces a file of a store destroys it.

    Stores are known by their layout, and folders by the files of a log in them. In the store that is `read` nothing may
    be written at all. Links are followed. `beside_loose_files`: folders with files of a log in them are no stores.
    """
    real = Path(os.path.realpath(path))
    if read is not None:
        for top in (read.root, *read.commitlog):
            if real.is_relative_to(os.path.realpath(top)):
                raise RefusedError("is inside the store that is read", file=path, hint=_ELSEWHERE)
    for above in real.parents:
        first, *further = real.relative_to(above).parts
        if (first in _FOLDERS or (first in _FILES and not further)) and looks_like_store(above):
            raise RefusedError(f"is inside the store {above}", file=path, hint=_ELSEWHERE)
    if not beside_loose_files and holds_log_files(real.parent):
        raise RefusedError("is inside a commitlog or a consume queue", file=path, hint=_ELSEWHERE)


# What is made beside its final name until it is complete: how it is called, and what killed processes left of it.

_NAME = re.compile(r"\.(?P<target>.+)\.rmqctl-(?P<process>[1-9]\d{0,9})(?:-[a-z]+)?", re.DOTALL)
_LARGEST_PROCESS = 1 << 22
# how far two clocks of one machine may be apart: a process that began later than this after a file was made by another
_CLOCKS_DIFFER_S = 60.0


def staging_of(path: Path) -> Path:
    """Where `path` is made before it gets its name: beside it, so that a rename is all that is left to do."""
    return path.with_name(f".{path.name}.rmqctl-{os.getpid()}")


@contextlib.contextmanager
def in_work(staging: Path) -> Iterator[None]:
    """Let others see, by a lock, that the file or directory `staging` is being worked on: what its name says of the
    process means nothing in another container or on another machine."""
    descriptor = io.open_made(staging)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: then the name has to do
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def staged_directory(target: Path) -> Iterator[Path]:
    """A new directory beside `target`, held while the block runs and gone after an error in it. Who takes it gives it
    its name. What killed processes left of the same target is removed first."""
    clear_left_behind(target)
    staging = staging_of(target)
    io.make_directories(staging, flushed=True)
    try:
        with in_work(staging):
            yield staging
    except BaseException:
        if is_there(staging):
            remove_any(staging)
        raise


def left_behind(directory: Path) -> list[Path]:
    """What processes that are gone have left in `directory`, by name; [] where it cannot be listed."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    return [directory / name for name in names if _is_left_behind(directory / name)]


def clear_left_behind(target: Path) -> None:
    """Remove what killed processes left of `target`; never what a living one is working on. Files of other users that
    cannot be removed stay."""
    for path in left_behind(target.parent):
        if _target_name(path.name) == target.name:
            with contextlib.suppress(WriteFailedError):
                remove_any(path)


def _target_name(name: str) -> str:
    """Of which target a leftover is: that of a leftover is the leftover's own."""
    while found := _NAME.fullmatch(name):
        name = found["target"]
    return name


def _is_left_behind(path: Path) -> bool:
    found = _NAME.fullmatch(path.name)
    if found is None or int(found["process"]) > _LARGEST_PROCESS:
        return False
    try:
        changed = path.lstat().st_ctime
    except OSError:  # gone by now
        return False
    return not is_at_work(int(found["process"]), changed) and not is_locked(path)


def is_at_work(process: int, changed: float) -> bool:
    """Whether the process with this id may have made what was changed last at `changed` (s since 1970). An id is given
    to another process once its own is gone, and in a container every run may have the same."""
    if process == os.getpid():
        return False  # what this process makes is locked
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    started = _started(process)
    return started is None or started <= changed + _CLOCKS_DIFFER_S


def _started(process: int) -> float | None:
    """When a process began, in s since 1970; None if that cannot be known."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        up = float(Path("/proc/uptime").read_bytes().split()[0])
        return time.time() - up + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def is_locked(path: Path) -> bool:
    """Whether a process has a file or directory `in_work`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


STANDARD_OUTPUT = Path("-")
_BUFFER = 1 << 20


class OutputFile:
    """A new file to write to, byte after byte. What libraries ask of a file object is here too; `close` flushes
    nothing onto the disk: `finish` does. WriteFailedError for I/O errors, DiskFullError among them."""

    def __init__(self, path: Path) -> None:
        """Creates `path`, which must not exist."""
        self.path = path
        self.size = 0
        self._buffer = bytearray()
        self._descriptor: int | None = self._open()
        self._is_abandoned = False

    def _open(self) -> int:
        io.create_file(self.path, 0)
        return io.open_for_writing(self.path)

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written."""
        return self._descriptor is None

    def writable(self) -> bool:
        """Whether it can be written to."""
        return not self.closed

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append bytes; their number."""
        view = memoryview(data).cast("B")
        if self._is_abandoned:
            return len(view)
        if len(self._buffer) + len(view) >= _BUFFER:
            self._drain()
        if len(view) >= _BUFFER:
            self._write(view)
        else:
            self._buffer += view
        return len(view)

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size + len(self._buffer)

    def flush(self) -> None:
        """Nothing: a library's idea of when to flush is not ours."""

    def close(self) -> None:
        """Nothing: libraries close what they write to, and then it is not yet on the disk."""

    def finish(self) -> None:
        """Everything onto the disk, and close."""
        self._drain()
        descriptor = self._opened()
        self._make_durable(descriptor)
        os.close(descriptor)
        self._descriptor = None

    def _make_durable(self, descriptor: int) -> None:
        io.flush_descriptor(descriptor, self.path)

    def abandon(self) -> None:
        """Close without caring for what was written, or for the end that a library writes when it is collected."""
        if self._descriptor is not None:
            self._is_abandoned = True
            os.close(self._descriptor)
            self._descriptor = None

    def _drain(self) -> None:
        if self._buffer:
            data, self._buffer = self._buffer, bytearray()
            self._write(memoryview(data))

    def _write(self, view: memoryview) -> None:
        self._put(self._opened(), view)
        self.size += len(view)

    def _put(self, descriptor: int, view: memoryview) -> None:
        io.write_at(descriptor, self.path, self.size, view)

    def _opened(self) -> int:
        if self._descriptor is None:
            raise AssertionError("written to after it was closed")
        return self._descriptor


class OutputStream(OutputFile):
    """The same for what is there already and no plain file: standard output, a device or a pipe. What was written
    before an error is gone for good."""

    def _open(self) -> int:
        if self.path != STANDARD_OUTPUT:
            return io.open_stream(self.path)
        try:
            return os.dup(1)
        except OSError as error:
            raise WriteFailedError("standard output is closed") from error

    def _make_durable(self, descriptor: int) -> None:
        """Nothing: a pipe or terminal has no disk."""

    def _put(self, descriptor: int, view: memoryview) -> None:
        try:
            io.write_on(descriptor, self.path, view)
        except WriteFailedError as error:
            # nobody reads standard output any more: that is how `| head` ends
            if self.path == STANDARD_OUTPUT and isinstance(error.__cause__, BrokenPipeError):
                raise error.__cause__ from None
            raise


def require_new_file(path: Path, overwrite: bool, read: StoreLayout | None = None) -> None:
    """RefusedError for a file that must not be written: one that is there already, unless `overwrite` allows to replace
    it; a directory; one among the files of a store, above all of that which is `read`."""
    if path == STANDARD_OUTPUT:
        return
    check_output_place(path, read)
    if is_directory(path):
        raise RefusedError("is a directory", file=path, hint="name a file, or ask for a partitioned export")
    if is_there(path) and not overwrite and (path.is_block_device() or not _is_stream(path)):
        raise RefusedError("exists already", file=path, hint="choose another name, or allow it with --overwrite")


@contextlib.contextmanager
def new_file(path: Path, overwrite: bool = False) -> Iterator[OutputFile]:
    """A file that gets the name `path` when the block ends well, and leaves nothing behind when it does not.

    Where `path` is a link, the file that it leads to is replaced. `-` is standard output; it, devices and pipes are
    written into as they are. RefusedError as in `require_new_file`.
    """
    require_new_file(path, overwrite)
    if _is_stream(path):
        stream = OutputStream(path)
        try:
            yield stream
            stream.finish()
        finally:
            stream.abandon()
        return
    path = Path(os.path.realpath(path))
    io.make_directories(path.parent, flushed=True)
    clear_left_behind(path)
    staging = staging_of(path)
    try:
        output = OutputFile(staging)
        try:
            with in_work(staging):
                yield output
            output.finish()
        finally:
            output.abandon()
        io.rename(staging, path)
    except BaseException:
        if is_there(staging):
            io.remove(staging)
        raise
    io.flush_directory(path.parent)


def _is_stream(path: Path) -> bool:
    """Whether there is something of this name that is written into instead of being replaced."""
    if path == STANDARD_OUTPUT:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextlib.contextmanager
def new_directory(path: Path, read: StoreLayout | None = None) -> Iterator[Path]:
    """A directory that gets its name when the block ends well.

    RefusedError if a non-empty directory or a file has that name, or if it is inside a store.
    """
    check_output_place(path, read)
    path = Path(os.path.realpath(path))
    if not is_vacant(path):
        raise RefusedError("exists already", file=path, hint="a partitioned export needs a directory of its own")
    with staged_directory(path) as staging:
        yield staging
        flush_tree(staging)
        io.rename(staging, path)
    io.flush_directory(path.parent)


# Gives what was made beside a new name that name: it takes the place of nothing that has come up there meanwhile.

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


# Temporary folders: they go with the process that made them, even where it is killed.

# how often, and after how many seconds each, a folder that somebody still writes to is removed
_TRIES, _BETWEEN = 50, 0.1

# Takes the names of folders, until the other end of its standard input is closed, which the kernel does when a process
# ends, however it ends. What that process started may be at work a moment longer: a JVM, which makes no parents anew.
_WATCHER = f"""
while IFS= read -r folder; do set -- "$@" "$folder"; done
for _ in $(seq {_TRIES}); do rm -rf -- "$@" && exit; sleep {_BETWEEN}; done
"""
# by process: one that was forked has its own
_watchers: dict[int, RawIOBase] = {}


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder, as of `make_temporary`, while the block runs. WriteFailedError where there can be none."""
    made = make_temporary(prefix)
    try:
        with in_work(made):  # to a process of another container the number in its name says nothing
            yield made
    finally:
        remove_for_good(made)


def make_temporary(prefix: str) -> Path:
    """A new directory where the system keeps temporary files, for this user only. Who makes it removes it; a watcher
    does that for a process that is killed, or, if both are, who makes the next one under the same prefix."""
    made = io.make_temporary_directory(f"{prefix}{os.getpid()}-")
    remove_forgotten(prefix, made.parent)
    _watch(made)
    return made


def remove_forgotten(prefix: str, beside: Path) -> None:
    """Remove what killed processes of this user left in a folder; what cannot be removed stays."""
    for path in beside.glob(f"{prefix}*"):
        process = path.name[len(prefix) :].partition("-")[0]
        if not process.isdigit() or int(process) == os.getpid() or not is_real_directory(path):
            continue
        status = path.lstat()
        is_forgotten = not is_at_work(int(process), status.st_mtime) and not is_locked(path)
        if status.st_uid == os.geteuid() and is_forgotten:
            with suppress(WriteFailedError):
                io.remove_tree(path)


def remove_for_good(folder: Path) -> None:
    """Remove a folder into which an abandoned task may still write. Nothing if it is not there."""
    if not is_directory(folder):
        return
    going = folder.with_name(f".{folder.name}.rmqctl-{os.getpid()}-going")
    # under a new name first: what a path still says does not lead there any more
    io.rename(folder, going)
    for _ in range(_TRIES):
        try:
            io.remove_tree(going)
            return
        except WriteFailedError:
            sleep(_BETWEEN)
    io.remove_tree(going)


def _watch(folder: Path) -> None:
    """Have a folder removed when this process has ended."""
    if b"\n" in (name := os.fsencode(folder)):
        return
    # without a shell nothing is left either, unless the process is killed
    with suppress(OSError, NotImplementedError):
        if os.getpid() not in _watchers:
            _watchers[os.getpid()] = _start_watcher()
        _watchers[os.getpid()].write(name + b"\n")


def _start_watcher() -> RawIOBase:
    """The other end of the watcher's standard input. It is in a session of its own, which no terminal ends."""
    reading, writing = os.pipe()
    try:
        nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        files = [(os.POSIX_SPAWN_DUP2, reading, 0), *nothing]
        os.posix_spawn("/bin/sh", ["sh", "-c", _WATCHER], os.environ, file_actions=files, setsid=True)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    # nobody closes it but the end of the process
    return os.fdopen(writing, "wb", buffering=0, closefd=False)


# Copies one file with its holes and its time, sharing blocks with the source where the file system can.

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
        raise unreadable(error, source, "opened") from error
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
                raise unreadable(error, source) from error
            io.write_at(writing, target, position, data)
