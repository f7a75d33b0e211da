"""A queue of files of equal size, named by their start offsets: one commitlog, or one consumequeue."""

from __future__ import annotations

import contextlib
import stat
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import RefusedError, RemovedError, counted, unreadable
from rmqctl.store.files import io
from rmqctl.store.files import reading as presence
from rmqctl.store.files.background import patiently
from rmqctl.store.files.layout import LARGEST_OFFSET, file_name, is_file_name
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.reading import Descriptors, end_of_nonzero, is_link, no_answer

# a cleaner removes files one after the other: how often a directory is listed until it held still
_LISTINGS = 5


class FileProblem(NamedTuple):
    """Something a broker would stop at or trip over: `kind` is stray, size, empty, gap, overlap or unreadable."""

    kind: str
    path: Path
    detail: str


def stranger_error(problem: FileProblem, where: str) -> RefusedError:
    """What is raised for a file that is in the way of a change of `where`."""
    return RefusedError(
        f"does not belong into {where}: {problem.detail}",
        file=problem.path,
        hint="a broker does not start with it: move it elsewhere, then run the command again",
    )


class MappedFileQueue:
    """Files in order of their start offsets. `file_size` is the configured size, else that of most of the files.

    Another process may add files at the end and remove the oldest ones while they are read here. Files behind the known
    end are looked for when they are asked for. Files that turn out to be gone leave the list; where the queue begins
    behind them then, `was_removed` says so, and that is no damage. Files that are gone from the middle are.
    """

    def __init__(self, directories: Iterable[Path], file_size: int | None, descriptors: Descriptors) -> None:
        self.directories = tuple(directories)
        self.descriptors = descriptors
        self.files: list[MappedFile] = []
        self.problems: list[FileProblem] = []
        self.file_size = file_size or 0
        self.is_shared = True
        """Whether another process may add and remove files. Who has the store open for writing sets it False."""
        self.entry_directories: frozenset[Path] = frozenset()
        """Those of `directories` that hold a DLedger log."""
        self._removed_before = -1
        self._changing = threading.Lock()

    def load(self) -> None:
        """List the directories. Damage is collected in `problems`, never raised; nothing is changed. UnreadableError
        where the disk does not say what is there."""
        self.take(self._list(self.problems))

    def take(self, listed: Iterable[tuple[Path, int]]) -> None:
        """Take files with their sizes from a listing."""
        found = _in_order(listed)
        if not self.file_size and found:
            sizes = Counter(size for _, size in found if size)
            self.file_size = max(sizes, key=lambda size: (sizes[size], size), default=0)
        for path, size in found:
            if size == 0:
                self.problems.append(FileProblem("empty", path, "the file is empty"))
                continue
            if size != self.file_size:
                self.problems.append(FileProblem("size", path, f"{counted(size, 'byte')} instead of {self.file_size}"))
            self.files.append(self._file(path, size))
        for before, after in zip(self.files, self.files[1:], strict=False):
            expected = before.start_offset + self.file_size
            if after.start_offset != expected:
                kind = "gap" if after.start_offset > expected else "overlap"
                detail = f"begins at {after.start_offset}, the file before it should end at {expected}"
                # a commitlog file among those of a DLedger log is in the way, not the other one
                is_in_the_way = kind == "overlap" and after.holds_entries > before.holds_entries
                self.problems.append(FileProblem(kind, before.path if is_in_the_way else after.path, detail))

    def _file(self, path: Path, size: int) -> MappedFile:
        file = MappedFile(path, int(path.name), size, self.descriptors, self._look_for_removed)
        file.holds_entries = path.parent in self.entry_directories
        return file

    def _list(self, problems: list[FileProblem]) -> list[tuple[Path, int]]:
        """Files with their sizes, in order. Listed again if some were removed meanwhile: others may be, too."""
        for _ in range(_LISTINGS):
            noted: list[FileProblem] = []
            found, is_whole = self._list_once(noted)
            if is_whole:
                break
        problems += noted
        return _in_order(found)

    def _list_once(self, problems: list[FileProblem]) -> tuple[list[tuple[Path, int]], bool]:
        found: list[tuple[Path, int]] = []
        is_whole = True
        for directory in self.directories:
            try:
                paths = patiently(lambda at=directory: list(at.iterdir()))  # type: ignore[misc]
            except FileNotFoundError:
                continue
            except OSError as error:
                raise unreadable(error, directory, "listed") from error
            for path in paths:
                name = path.name
                try:
                    status = path.stat()
                except OSError as error:
                    if is_link(path):
                        problems.append(FileProblem("unreadable", path, str(error.strerror)))
                    elif isinstance(error, FileNotFoundError):
                        is_whole = False
                    else:  # without it the queue would seem to end, or to begin, where it does not
                        raise no_answer(error, path) from error
                    continue
                if stat.S_ISDIR(status.st_mode):
                    continue
                if not stat.S_ISREG(status.st_mode):
                    problems.append(FileProblem("stray", path, "not a regular file"))
                elif not is_file_name(name):
                    problems.append(FileProblem("stray", path, "the name is not an offset of 20 digits"))
                elif int(name) > LARGEST_OFFSET - status.st_size:
                    problems.append(FileProblem("stray", path, "it ends behind the largest offset there is"))
                else:
                    found.append((path, status.st_size))
        return found, is_whole

    @property
    def min_offset(self) -> int:
        """Start of the first file that is not on its way out; -1 without files."""
        for file in self.files:
            if file.reference.available:
                return file.start_offset
        return -1 if not self.files else self.files[-1].end_offset

    @property
    def max_offset(self) -> int:
        """Readable end of the last file; 0 without files."""
        return self.files[-1].start_offset + self.files[-1].committed_position if self.files else 0

    def last_with_data(self) -> MappedFile | None:
        """Return the last file that is not all zeros, as a preallocated one is; None without one."""
        for file in reversed(self.files):
            if any(file.read(0, 8)) or end_of_nonzero(file.descriptors, file.path, 0, file.size):
                return file
        return None

    def written_end(self) -> int:
        """Return the offset after the last byte that is not zero."""
        last = self.last_with_data()
        if last is None:
            return max(self.min_offset, 0)
        return last.start_offset + end_of_nonzero(last.descriptors, last.path, 0, last.size)

    def empty_files(self) -> dict[int, Path]:
        """Return files of no bytes, by their start offsets: their writer was killed before it set their size."""
        return {int(problem.path.name): problem.path for problem in self.problems if problem.kind == "empty"}

    def empty_between(self, begin: int, end: int) -> list[Path]:
        """The files of no bytes that would hold some of the bytes [begin, end), in order."""
        size = self.file_size or LARGEST_OFFSET
        return [path for start, path in sorted(self.empty_files().items()) if begin < start + size and start < end]

    def was_removed(self, offset: int) -> bool:
        """Whether the file that held `offset` was there and has been removed, or is on its way out, because the queue
        begins behind it now: what a cleaner does, and no damage."""
        if offset < self._removed_before:
            return True
        file = self._find(offset)
        return file is not None and not file.reference.available

    def begins_behind(self, offset: int) -> bool:
        """List the directories again and return the same, after a file was missing in the middle."""
        self._look_for_removed()
        return self.was_removed(offset)

    def look_again(self) -> None:
        """Take in what another process added and removed since."""
        self._look_for_removed()
        self._look_for_added()

    def _look_for_removed(self) -> None:
        """Leave out what is gone from the directories."""
        if not self.is_shared:
            return
        listed = [path for path, size in self._list([]) if size]
        with self._changing:
            known = set(listed)
            kept = [file for file in self.files if file.path in known]
            gone = [file for file in self.files if file.path not in known]
            # a queue without any file was not cleaned: the last one always stays
            if not gone or not listed:
                return
            first = min(int(listed[0].name), *(file.start_offset for file in kept)) if kept else int(listed[0].name)
            is_cleaned = gone[0].start_offset < first
            if is_cleaned:
                self._removed_before = max(self._removed_before, first)
            self.files = kept
        for file in gone:
            self.descriptors.forget_unless_pinned(file.path)
        if is_cleaned:
            self.descriptors.note_removed(gone[0].path.parent)

    def _look_for_added(self) -> bool:
        """Take in files that follow the last one by now; whether there were any."""
        if not self.is_shared or not self.file_size:
            return False
        added: list[MappedFile] = []
        with self._changing:
            # all known files may have been removed by now
            end = self.files[-1].start_offset + self.file_size if self.files else self._removed_before
            while end >= 0 and (file := self._file_at(end)) is not None:
                added.append(file)
                end += self.file_size
            self.files = [*self.files, *added]
        return bool(added)

    def _file_at(self, start_offset: int) -> MappedFile | None:
        for directory in self.directories:
            path = directory / file_name(start_offset)
            with contextlib.suppress(OSError):
                status = path.stat()
                # whoever creates it gives it its size last
                if stat.S_ISREG(status.st_mode) and status.st_size == self.file_size:
                    return self._file(path, status.st_size)
        return None

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that holds `offset`, None if no listing has one."""
        file = self._find(offset)
        if file is None and self.is_shared and offset >= self._known_end() and self._look_for_added():
            file = self._find(offset)
        return file

    def _known_end(self) -> int:
        files = self.files
        return files[-1].end_offset if files else 0

    def _find(self, offset: int) -> MappedFile | None:
        files = self.files
        # most is read from the last file, or the only one
        if files and offset >= files[-1].start_offset:
            return files[-1] if offset < files[-1].end_offset else None
        position = bisect_right(files, offset, key=lambda file: file.start_offset) - 1
        if position < 0:
            return None
        file = files[position]
        return file if offset < file.end_offset else None

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` readable bytes from `offset`, all of one file; empty where nothing is readable, or not any
        more."""
        file = self.find(offset)
        if file is None:
            return b""
        try:
            return file.read(offset - file.start_offset, length)
        except RemovedError:
            if not self.was_removed(offset):
                raise
            return b""

    def path_of(self, start_offset: int) -> Path:
        """Where the file of `start_offset` is to be created. With several directories they take turns.

        (MultiPathMappedFileQueue)
        """
        candidates = sorted(self.directories)
        return candidates[start_offset // self.file_size % len(candidates)] / file_name(start_offset)

    def create_file(self, start_offset: int) -> MappedFile:
        """A new last file, empty and sparse."""
        path = self.path_of(start_offset)
        io.make_directories(path.parent)
        io.create_file(path, self.file_size)
        return self.add_file(path, start_offset)

    def add_file(self, path: Path, start_offset: int) -> MappedFile:
        """Take an existing file of zeros as the new last file."""
        file = self._file(path, self.file_size)
        file.set_positions(0)
        with self._changing:
            self.files = [*self.files, file]
        return file

    def forget(self, gone: Collection[Path]) -> None:
        """Take removed files out of the list. The list is replaced, never changed: a reader may iterate over it."""
        if gone:
            with self._changing:
                kept = [file for file in self.files if file.path not in gone]
                if kept and self.files[0].path in gone:
                    self._removed_before = kept[0].start_offset
                self.files = kept

    def truncate(self, offset: int) -> None:
        """Set the positions of the file that holds `offset`; later files must be gone already."""
        for file in self.files:
            if file.end_offset > offset:
                file.set_positions(max(0, offset - file.start_offset))

    def close(self) -> None:
        """Unmap all files."""
        for file in self.files:
            file.close()


def _in_order(listed: Iterable[tuple[Path, int]]) -> list[tuple[Path, int]]:
    """Files by name, which is by offset. Most queues of a store with many have one."""
    found = list(listed)
    return sorted(found, key=lambda item: item[0].name) if len(found) > 1 else found


# Creates the next files of the commitlog before they are needed (AllocateMappedFileService).

_AHEAD = 2
"""The next file and the next but one."""


class Allocator:
    """Hands out new empty files of `log`, made ahead by a thread of their own where `is_ahead`.

    Two files are made ahead, in order, once they are asked for; unlike RocketMQ, which asks when it begins a file, a
    writer asks when half of its file is used. A file that was not taken is removed by `close`; a kill leaves it, all
    zeros. At no moment is there a file without the one before it: a log with a gap would be damaged.
    `flush_names` brings the names of the log's files to disk: a power cut that took an earlier one and left that of the
    new file would leave a log without its beginning. `warm` prepares a new file, in the thread that makes it.
    """

    def __init__(
        self,
        log: MappedFileQueue,
        is_ahead: bool,
        flush_names: Callable[[], None],
        warm: Callable[[MappedFile], None] | None = None,
    ) -> None:
        self._log = log
        self._is_ahead = is_ahead
        self._flush_names = flush_names
        self._warm = warm
        self._condition = threading.Condition()
        self._asked: int | None = None
        self._wanted: list[int] = []
        """Start offsets of files to make, in order; the first one may be in the making."""
        self._ready: dict[int, MappedFile] = {}
        """Files by their start offset, in order."""
        self._is_closing = False
        self._thread: threading.Thread | None = None

    @property
    def is_warming(self) -> bool:
        """Whether new files are prepared, all of their pages at once."""
        return self._warm is not None

    def ask(self, start_offset: int) -> None:
        """Begin to make the file that starts at `start_offset` and the one after it, unless they were asked for."""
        if not self._is_ahead or self._asked == start_offset:
            return
        with self._condition:
            if self._is_closing:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="rmqctl-allocate", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return  # no thread can be started: `take` makes the file
                self._thread = thread
            self._asked = start_offset
            for offset in range(start_offset, start_offset + _AHEAD * self._log.file_size, self._log.file_size):
                if offset not in self._ready and offset not in self._wanted:
                    self._wanted.append(offset)
            self._condition.notify_all()

    def take(self, start_offset: int) -> MappedFile:
        """Return the empty file that starts at `start_offset`, made now if it is not there; not in the log's list yet.

        WriteFailedError if it cannot be created.
        """
        with self._condition:
            self._condition.wait_for(lambda: start_offset not in self._wanted)
            ready = self._ready.pop(start_offset, None)
        if ready is not None:
            return ready
        self._remove_ready()
        return self._create(start_offset)

    def give_back(self, file: MappedFile) -> None:
        """Remove a file that was taken and is not needed after all, and first those that were made to follow it. What
        cannot be removed now can be taken again."""
        with self._condition:
            self._ready = {file.start_offset: file, **self._ready}
        self._remove_ready()

    def _remove_ready(self) -> None:
        """Remove the files that were not taken, the last one first."""
        with self._condition:
            del self._wanted[1:]
            self._condition.wait_for(lambda: not self._wanted or self._thread is None)
            self._asked = None
            while self._ready:
                start_offset, file = next(reversed(self._ready.items()))
                file.close()
                io.remove(file.path)
                del self._ready[start_offset]
                io.flush_directory(file.path.parent)

    def _create(self, start_offset: int) -> MappedFile:
        path = self._log.path_of(start_offset)
        io.make_directories(path.parent, flushed=True)
        self._flush_names()
        io.create_file(path, self._log.file_size)
        file = MappedFile(path, start_offset, self._log.file_size, self._log.descriptors)
        file.set_positions(0)
        if self._warm is not None:
            try:
                self._warm(file)
            except BaseException:
                file.close()
                io.remove(file.path)
                raise
        return file

    def _flush_name_before(self, start_offset: int) -> None:
        """Flush the name of the file before, which may have been made or taken and is not in the log's list yet."""
        if start_offset >= self._log.file_size:
            before = self._log.path_of(start_offset - self._log.file_size)
            if presence.is_there(before):
                io.flush_directory(before.parent)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._is_closing or self._wanted)
                if self._is_closing:
                    self._wanted.clear()
                    self._condition.notify_all()
                    return
                start_offset = self._wanted[0]
            try:
                self._flush_name_before(start_offset)
                file: MappedFile | None = self._create(start_offset)
            except BaseException:  # noqa: BLE001 - `take` waits for it: it tries again, and tells
                file = None
            with self._condition:
                if file is None:
                    self._wanted.clear()
                    self._asked = None
                else:
                    self._wanted.pop(0)
                    self._ready[start_offset] = file
                self._condition.notify_all()

    def close(self) -> None:
        """Stop, and remove the files that were not taken."""
        with self._condition:
            self._is_closing = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._remove_ready()
