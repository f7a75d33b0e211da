"""Records what happens to the files below a folder: entries of directories, sectors of files, times, and flushes.

Nothing of it is taken from the product's word. Whenever store/files/io.py tells of a change, and before and after every
fsync, all that lies below the folder is compared with what lay there before. So stores through a map are found, by
whatever code, and an operation that does more than its name says. What happens between two such moments has no order
of its own: all new names come first, parents before what is in them, and names that go come last.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.store.files.durable import hooked

SECTOR = 512
NEVER = 1 << 60
DONE = "done"
"""A note of the work: a step has returned."""
TOP = 0
"""The number of the folder that is recorded; every file and directory below has a number, whatever it is called."""


class Entry(NamedTuple):
    """One entry of a directory: the number of what bears the name then, None if nothing does."""

    directory: int
    name: str
    node: int | None


class Names(NamedTuple):
    """Entries that change at once: two for a renaming, the new name first; else one."""

    entries: tuple[Entry, ...]


class Data(NamedTuple):
    """A file gets a size, and sectors other bytes (short ones end in zeros)."""

    node: int
    size: int
    sectors: dict[int, bytes]


class Time(NamedTuple):
    """A file or directory gets a time of its last change, in ns."""

    node: int
    modified_ns: int


class Synced(NamedTuple):
    """A flush of a file or directory has returned: all events before `begin` are on disk, but for times if only the
    data was asked for."""

    node: int
    begin: int
    with_time: bool


class Note(NamedTuple):
    """The work says that it got so far: something is acknowledged, or a step done."""

    said: object


Event = Names | Data | Time | Synced | Note


class Recording:
    """`events`: in order, those of what lay there before the work first, `begun` of them. `told`: for each what the
    product was about to do when it was found. `directories`: the numbers that are directories."""

    def __init__(self, top: Path) -> None:
        self.events: list[Event] = []
        self.told: list[str] = []
        self.directories = {TOP}
        self._top = top
        self._lock = threading.RLock()
        self._by_inode: dict[int, int] = {}
        self._names: dict[tuple[int, str], int] = {}
        self._content: dict[int, bytes] = {}
        self._times: dict[int, int] = {}
        self._count = TOP
        self._last = ""
        self._look("the beginning")
        self.begun = len(self.events)

    def __getstate__(self) -> dict[str, object]:
        """What is asked of a recording that is over."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def note(self, said: object) -> None:
        """For the work: this is so from now on."""
        with self._lock:
            self._look("a note")
            self._add(Note(said))

    def finish(self) -> None:
        """Find what the last change has done."""
        with self._lock:
            self._look("the end")

    def observe(self, operation: str, path: str, _offset: int = 0, _length: int = 0) -> None:
        """For io.observer: called before every change."""
        with self._lock:
            self._look(f"{operation} {os.path.relpath(path, self._top)}")

    def fsync(self, descriptor: int, how: Callable[[int], None]) -> None:
        """Covers what was done before it began, once it has returned. It is not carried out: nobody cuts the power of
        this machine."""
        status = os.fstat(descriptor)
        with self._lock:
            self._look("fsync")
            node = self._by_inode.get(status.st_ino)
            begin = len(self.events)
        with self._lock:
            self._look("the end of an fsync")
            if node is not None:
                self._add(Synced(node, begin, how.__name__ != "fdatasync"))

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self.told.append(self._last)

    def _look(self, now: str) -> None:
        """Find what has changed."""
        names: dict[tuple[int, str], int] = {}
        content: dict[int, bytes] = {}
        times: dict[int, int] = {}
        inodes = {self._top.stat().st_ino: TOP}
        self._scan(str(self._top), TOP, names, content, times, inodes)
        for event in self._changed_names(names):
            self._add(event)
        for node, data in content.items():
            before = self._content.get(node, b"")
            if data != before:
                self._add(Data(node, len(data), dict(_changed_sectors(before, data))))
        for node, modified_ns in times.items():
            if self._times.get(node) != modified_ns:
                self._add(Time(node, modified_ns))
        self._names, self._content, self._times, self._by_inode = names, content, times, inodes
        self._last = now

    def _scan(
        self,
        folder: str,
        number: int,
        names: dict[tuple[int, str], int],
        content: dict[int, bytes],
        times: dict[int, int],
        inodes: dict[int, int],
    ) -> None:
        for found in sorted(os.scandir(folder), key=lambda one: one.name):
            try:
                status = found.stat(follow_symlinks=False)
                is_directory = found.is_dir(follow_symlinks=False)
                data = b"" if is_directory else Path(found.path).read_bytes()
            except FileNotFoundError:  # another thread was faster
                continue
            node = inodes.get(status.st_ino, self._by_inode.get(status.st_ino))
            if node is None or (node in self.directories) != is_directory:
                self._count = node = self._count + 1
                if is_directory:
                    self.directories.add(node)
            inodes[status.st_ino] = names[number, found.name] = node
            times[node] = status.st_mtime_ns
            if is_directory:
                self._scan(found.path, node, names, content, times, inodes)
            else:
                content[node] = data

    def _changed_names(self, names: dict[tuple[int, str], int]) -> Iterator[Names]:
        gone = {key: node for key, node in self._names.items() if key not in names}
        moved = {node: key for key, node in gone.items()}
        for key, node in names.items():
            if self._names.get(key) == node:
                continue
            source = moved.get(node)
            if source is None:
                yield Names((Entry(*key, node),))
            else:
                del gone[source]
                yield Names((Entry(*key, node), Entry(*source, None)))
        for key in reversed(gone):
            yield Names((Entry(*key, None),))


def _changed_sectors(before: bytes, after: bytes) -> Iterator[tuple[int, bytes]]:
    for begin in range(0, max(len(before), len(after)), SECTOR):
        new = after[begin : begin + SECTOR]
        if before[begin : begin + SECTOR].rstrip(b"\0") != new.rstrip(b"\0"):
            yield begin // SECTOR, new


@contextmanager
def recorded(top: Path) -> Iterator[Recording]:
    """Everything that happens below `top` while the block runs."""
    recording = Recording(top)
    with hooked(recording.observe, recording.fsync):
        yield recording
    recording.finish()
