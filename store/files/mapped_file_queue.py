"""A queue of files of equal size, named by their start offsets: one commitlog, or one consumequeue."""

from __future__ import annotations

import os
import stat
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from formats.errors import UnreadableError
from formats.wording import counted
from store.files import io
from store.files.layout import LARGEST_OFFSET, file_name, is_file_name
from store.files.mapped_file import MappedFile
from store.files.reading import Descriptors


class FileProblem(NamedTuple):
    """Something a broker would stop at or trip over: `kind` is stray, size, empty, gap, overlap or unreadable."""

    kind: str
    path: Path
    detail: str


class MappedFileQueue:
    """Files in order of their start offsets. `file_size` is the configured size, else that of most of the files."""

    def __init__(self, directories: Iterable[Path], file_size: int | None, descriptors: Descriptors) -> None:
        self.directories = tuple(directories)
        self.descriptors = descriptors
        self.files: list[MappedFile] = []
        self.problems: list[FileProblem] = []
        self.file_size = file_size or 0
        self._changing = threading.Lock()

    def load(self) -> None:
        """List the directories. Damage is collected in `problems`, never raised; nothing is changed."""
        self.take(self._list())

    def take(self, listed: Iterable[tuple[Path, int]]) -> None:
        """Take files with their sizes, as somebody listed them."""
        found = sorted(listed, key=lambda item: item[0].name)
        if not self.file_size and found:
            sizes = Counter(size for _, size in found if size)
            self.file_size = max(sizes, key=lambda size: (sizes[size], size), default=0)
        for path, size in found:
            if size == 0:
                self.problems.append(FileProblem("empty", path, "the file is empty"))
                continue
            if size != self.file_size:
                self.problems.append(FileProblem("size", path, f"{counted(size, 'byte')} instead of {self.file_size}"))
            self.files.append(MappedFile(path, int(path.name), size, self.descriptors))
        for before, after in zip(self.files, self.files[1:], strict=False):
            expected = before.start_offset + self.file_size
            if after.start_offset != expected:
                kind = "gap" if after.start_offset > expected else "overlap"
                detail = f"begins at {after.start_offset}, the file before it should end at {expected}"
                self.problems.append(FileProblem(kind, after.path, detail))

    def _list(self) -> list[tuple[Path, int]]:
        found: list[tuple[Path, int]] = []
        for directory in self.directories:
            try:
                names = os.listdir(directory)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise UnreadableError(f"cannot be listed: {error.strerror}", file=directory) from error
            for name in names:
                path = directory / name
                try:
                    status = path.stat()
                except OSError as error:
                    self.problems.append(FileProblem("unreadable", path, str(error.strerror)))
                    continue
                if stat.S_ISDIR(status.st_mode):
                    continue
                if not stat.S_ISREG(status.st_mode):
                    self.problems.append(FileProblem("stray", path, "not a regular file"))
                elif not is_file_name(name):
                    self.problems.append(FileProblem("stray", path, "the name is not an offset of 20 digits"))
                elif int(name) > LARGEST_OFFSET - status.st_size:
                    self.problems.append(FileProblem("stray", path, "it ends behind the largest offset there is"))
                else:
                    found.append((path, status.st_size))
        return found

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

    def empty_files(self) -> dict[int, Path]:
        """Files of no bytes, by their start offsets: whoever created them was killed before they got their size."""
        return {int(problem.path.name): problem.path for problem in self.problems if problem.kind == "empty"}

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds `offset`, None where there is none."""
        files = self.files
        position = bisect_right(files, offset, key=lambda file: file.start_offset) - 1
        if position < 0:
            return None
        file = files[position]
        return file if offset < file.end_offset else None

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` readable bytes from `offset`, all of one file; empty where nothing is readable."""
        file = self.find(offset)
        return file.read(offset - file.start_offset, length) if file is not None else b""

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
        file = MappedFile(path, start_offset, self.file_size, self.descriptors)
        file.set_positions(0)
        with self._changing:
            self.files = [*self.files, file]
        return file

    def forget(self, gone: Collection[Path]) -> None:
        """Take removed files out of the list. The list is replaced, never changed: somebody may be reading along it."""
        if gone:
            with self._changing:
                self.files = [file for file in self.files if file.path not in gone]

    def truncate(self, offset: int) -> None:
        """Set the positions of the file that holds `offset`; later files must be gone already."""
        for file in self.files:
            if file.end_offset > offset:
                file.set_positions(max(0, offset - file.start_offset))

    def close(self) -> None:
        """Unmap all files."""
        for file in self.files:
            file.close()
