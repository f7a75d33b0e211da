"""The broker's own lock, and the search for processes that have the store's files open (law 5)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import RefusedError, StoreInUseError, WriteFailedError, told, unreadable
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, refuse_other_user
from rmqctl.store.files.reading import exists, is_directory, is_file, is_link, is_there, status_of

# struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid
_FLOCK = struct.Struct("hhqqi4x")
_KERNEL_LOCKS = "/proc/locks"
_HINT = "stop the broker first, or work on a copy of the store"
_NOT_OPENED = "nothing was changed: see to its permissions and the disk (dmesg), then run the command again"
# POSIX record locks do not exclude within one process, and closing any descriptor of the file drops them: the locks
# that this process holds are known by name instead
_held: set[str] = set()


def is_new_target(path: Path) -> bool:
    """Return whether opening `path` for writing makes a file: it is not there, or a link whose target can be made."""
    return (
        not exists(path) and not is_link(os.path.realpath(path)) and is_directory(Path(os.path.realpath(path)).parent)
    )


def _move_hint(path: Path) -> str:
    away = path.parent.with_name(f"{path.parent.name}.{path.name}-moved")
    return (
        "stop what makes it (such as a container with a bind mount), then move it out of the store: "
        f"mv {shlex.quote(str(path))} {shlex.quote(str(away))}"
    )


class StoreLock:
    """An exclusive POSIX record lock on byte 0 of `lock`: what Java's FileChannel.tryLock sees and takes."""

    def __init__(self, path: Path) -> None:
        """Take the lock, creating the file if needed. StoreInUseError if another process has it; RefusedError where it
        is not a regular file; WriteFailedError where it cannot be opened."""
        self.path = path
        self._name = os.path.realpath(path)
        if self._name in _held:
            raise StoreInUseError("this process has the store open for writing already", file=path, hint=_HINT)
        # a link whose target can be made is followed, as a broker does
        created = not exists(path)
        if is_there(path) and not is_file(path) and not is_new_target(path):
            raise RefusedError("is not a regular file: the lock cannot be taken", file=path, hint=_move_hint(path))
        try:
            self._descriptor = io.open_for_writing(path, create=True)
        except WriteFailedError as error:
            error.hint = error.hint or _NOT_OPENED
            raise
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._descriptor)
            raise StoreInUseError("a broker or another writer holds the lock", file=path, hint=_HINT) from error
        _held.add(self._name)
        if created:
            try:
                io.write_at(self._descriptor, path, 0, b"lock")
                io.flush_directory(path.parent)
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Give the lock back; the file stays, as a broker leaves it."""
        _held.discard(self._name)
        os.close(self._descriptor)


def refuse_own_lock(path: Path) -> None:
    """StoreInUseError if `path` is the lock that this process holds: to open and close it would drop the lock."""
    if os.path.realpath(path) in _held:
        raise StoreInUseError("this process holds the lock", file=path, hint="close the store that it writes to first")


def holder_name(process: int) -> str:
    """Return how to name the process that `lock_holder` returned."""
    return "a process of another container or machine" if process <= 0 else f"process {process}"


def lock_holder(path: Path) -> int | None:
    """Return the process id of the lock's holder, None where the lock is free. Takes and changes nothing (F_GETLK).

    The kernel has no id for a process of another PID namespace or, on a network disk, of another machine: 0 or less.
    """
    if os.path.realpath(path) in _held:
        return os.getpid()
    try:
        # O_NONBLOCK: a fifo of that name must not hang the tool
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # no process can open it, a broker neither
            return None
        if error.errno in (errno.EACCES, errno.EPERM, errno.ENXIO):
            return _listed_holder(path)
        raise unreadable(error, path, "opened") from error
    try:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else process


def _listed_holder(path: Path) -> int | None:
    """Return the holder of the lock by the kernel's list of locks, for a file that this user cannot open."""
    status = status_of(path)
    if status is None or not is_file(_KERNEL_LOCKS):
        return None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with open(_KERNEL_LOCKS, encoding="ascii") as lines:
        for fields in map(str.split, lines):
            if fields[1] == "POSIX" and fields[3] == "WRITE" and fields[5:7] == [device, "0"]:
                return int(fields[4])
    return None


def users_of(layout: StoreLayout, *, writing: bool = False) -> list[tuple[int, str]]:
    """(process id, file) of other processes with a file of the store open or mapped, as far as /proc shows them; with
    `writing` only of those that can change it so, which a backup or another command that looks cannot.

    A starting broker rewrites files before it takes the lock, so the lock alone does not tell
    (DefaultMessageStore#start).
    """
    roots = {os.path.realpath(directory) + os.sep for directory in (layout.root, *layout.commitlog)}
    found: dict[int, str] = {}
    for name in processes():
        used = _used_file(name, tuple(roots), writing) if is_another(name) else None
        if used is not None:
            found[int(name)] = used
    return sorted(found.items())


def processes() -> list[str]:
    """Return the ids of all processes, as /proc names them; empty without /proc."""
    return [name for name in os.listdir("/proc") if name.isdigit()] if is_directory("/proc") else []


own_workers: set[int] = set()
"""Ids of the processes that work for this one, or that it works for: a command is all of them."""


def is_another(process: str) -> bool:
    """Return whether a process, named by its id, does not belong to this command."""
    return int(process) not in {os.getpid(), *own_workers} and _parent_of(process) not in own_workers


def _parent_of(process: str) -> int | None:
    """Return the id of its parent: two that work for one command know only that one. None where nothing depends on it,
    or for a process that is gone."""
    if not own_workers:
        return None
    try:
        with open(f"/proc/{process}/stat", "rb") as status:
            return int(status.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return None


def opened_files(process: str, roots: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield descriptors that a process has of files below `roots`: the path in /proc, and the file's. OSError where the
    process is gone, or another user's."""
    for descriptor in os.listdir(f"/proc/{process}/fd"):
        opened = f"/proc/{process}/fd/{descriptor}"
        try:
            target = os.readlink(opened)
            # who lists a folder, such as find, uses no file in it
            if not target.startswith(roots) or stat.S_ISDIR(os.stat(opened).st_mode):
                continue
        except OSError:  # it has been closed
            continue
        yield opened, target


def mapped_files(process: str, roots: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield what a process has mapped of files below `roots`: the line of /proc/PID/maps, and the file. OSError as
    above."""
    with open(f"/proc/{process}/maps", "rb") as maps:
        mapped = os.fsdecode(maps.read())
    # most processes map nothing of the store, and some have thousands of lines
    for line in mapped.split("\n") if any(root in mapped for root in roots) else ():
        target = "/" + line.partition("/")[2]
        if target.startswith(roots):
            yield line, target


def _used_file(process: str, roots: tuple[str, ...], writing: bool) -> str | None:
    try:
        for opened, target in opened_files(process, roots):
            with contextlib.suppress(OSError):  # it has been closed
                if not (writing and _reads_only(process, os.path.basename(opened))):
                    return target
        for line, target in mapped_files(process, roots):
            if not (writing and _is_read_only_map(line)):
                return target
    except OSError:  # the process is gone, or another user's
        pass
    return None


def _reads_only(process: str, descriptor: str) -> bool:
    """Whether a descriptor was opened for reading alone."""
    with open(f"/proc/{process}/fdinfo/{descriptor}", encoding="ascii") as fields:
        # should the line be missing, as if it might write
        flags = next((value for name, _, value in (line.partition(":") for line in fields) if name == "flags"), "2")
    return int(flags, 8) & os.O_ACCMODE == os.O_RDONLY


def _is_read_only_map(line: str) -> bool:
    """Whether a line of /proc/PID/maps is of a map through which nothing reaches its file."""
    permissions = line.split(maxsplit=2)[1]
    return not ("w" in permissions and "s" in permissions)


def refuse_server(root: Path) -> None:
    """RefusedError for a store on a server, where stores are read-only."""
    address = told(str(root))
    if address != str(root):
        raise RefusedError(
            "is on a server, where stores are read-only",
            file=root,
            hint=f"copy it to this machine first: rmqctl snapshot -s {shlex.quote(address)} DIR",
        )


def take_lock(layout: StoreLayout) -> StoreLock:
    """The lock, and the certainty that no other process uses the store's files; StoreInUseError otherwise. RefusedError
    if the store belongs to another user, or is on a server."""
    refuse_server(layout.root)
    refuse_other_user(layout)
    users = users_of(layout)
    if users:
        process, file = users[0]
        who = None if users_of(layout, writing=True) else holder_name(process)
        hint = _HINT if who is None else f"{who} only reads: wait until it ends, or stop it; then run the command again"
        raise StoreInUseError(f"process {process} has this file open", file=file, hint=hint)
    return StoreLock(layout.lock)


FILES_COME_IN = (0.1, 0.3, 1.0, 3.0)
"""Seconds between looks at files that a writer may be making: it may wait between opening one and giving it its size,
and makes those of many new queues one by one."""


def is_in_use(layout: StoreLayout) -> bool:
    """Whether a broker or another writer has the store open, as far as its lock and /proc tell."""
    return lock_holder(layout.lock) is not None or bool(users_of(layout, writing=True))
