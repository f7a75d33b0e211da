"""What is going to change in a store, as data: planned and counted before anything is touched (law 4). Each operation
knows what a journal has to keep of it, how it is carried out and taken back, and when it is done."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.store.files import io
from rmqctl.store.files.io import flush_tree, remove_any
from rmqctl.store.files.reading import (
    data_extents,
    exists,
    is_directory,
    is_link,
    is_real_directory,
    is_there,
    pieces_of,
)
from rmqctl.store.journal.kept import (
    AFTER,
    CHUNK,
    Blob,
    Spilled,
    TreeItem,
    clear_interrupted,
    discard,
    is_same,
    kept_bytes,
    move,
    reads_back,
    tree_items,
    write_pieces,
    zeros,
)
from rmqctl.store.options import Loss


@dataclass(frozen=True, slots=True)
class Piece:
    """Old bytes: `length` of them, of byte `offset` of the file on, kept at byte `at` of before.bin."""

    offset: int
    at: int
    length: int


@dataclass(slots=True)
class Entry:
    """What a journal holds of one operation: all that is needed to carry it out again and to take it back. `size` and
    `mtime_ns` of `path` are those before the whole change, None where it did not exist.

    `offset`, `length`: the range that is written or cleared; `new_size`: of a file that is resized or created.
    `after_at`: where in after.bin the new bytes are. `moved`, `staged`: places in the journal's folder. `directory` is
    the nearest directory above `path` that existed, `made` those that are made below it. Paths are absolute.
    """

    kind: str
    path: Path
    size: int | None = None
    mtime_ns: int | None = None
    offset: int = 0
    length: int = 0
    new_size: int = 0
    after_at: int = 0
    before: list[Piece] = field(default_factory=list)
    moved: str | None = None
    staged: str | None = None
    moved_items: list[TreeItem] = field(default_factory=list)
    staged_items: list[TreeItem] = field(default_factory=list)
    directory: Path | None = None
    directory_mtime_ns: int = 0
    made: list[Path] = field(default_factory=list)

    @property
    def operation(self) -> type[Operation]:
        """What carries it out, takes it back, and knows whether it is done."""
        return OPERATIONS[self.kind]

    @property
    def is_in_place(self) -> bool:
        """Whether bytes, size or time of a file change where a link to it leads. Else it is the link that goes."""
        return self.operation.IN_PLACE


class Keeping(NamedTuple):
    """Where a journal keeps what the operation with this `number` needs: its `folder`, and the blobs `before` (None:
    nothing is kept) and `after`."""

    number: int
    folder: Path
    before: Blob | None
    after: Blob

    def note_moved(self, entry: Entry) -> None:
        """Note where in the folder its path comes, which is moved away, and all that is there."""
        entry.moved = f"moved/{self.number:06d}/{entry.path.name}"
        entry.moved_items = list(tree_items(entry.path, with_hashes=self.before is not None))

    def images(self, path: Path, offset: int, length: int) -> list[Piece]:
        """Keep the old bytes of a range, holes left out."""
        pieces: list[Piece] = []
        if self.before is None or not exists(path):  # nothing is kept; created earlier in the same plan
            return pieces
        end = min(offset + length, path.stat().st_size)
        for start, stop in data_extents(path, offset, end):
            position = start
            for data in pieces_of(path, start, stop - start, CHUNK):
                pieces.append(Piece(position, self.before.put(data).position, len(data)))
                position += len(data)
        return pieces


class Operation(ABC):
    """One step of a change. Planned it is described and kept; what carries it out and takes it back, now or after a
    crash, goes by the Entry that was kept of it alone. In journals its name is that of the class."""

    __slots__ = ()
    path: Path

    VERB: ClassVar[str]
    IN_PLACE: ClassVar[bool] = False
    KEPT: ClassVar[tuple[str, ...]] = ("directory", "directory_mtime_ns", "made")
    """Fields of an Entry in journal.json, beside those that each has."""

    def describe(self, root: Path) -> dict[str, Any]:
        """An operation that has not been carried out, for people and for `--dry-run --json`: paths relative to the
        store. `bytes`: that are written or cleared, come, or go; None where that is not known."""
        path = str(self.path.relative_to(root)) if self.path.is_relative_to(root) else str(self.path)
        return {"operation": self.VERB, "path": path, "offset": 0} | self.extent()

    @abstractmethod
    def extent(self) -> dict[str, Any]:
        """What `describe` says of bytes."""

    def overwritten(self) -> int:
        """Bytes of an existing file that are overwritten or cleared."""
        return 0

    def gone(self) -> int:
        """Bytes that are there and are not afterwards."""
        return 0

    @abstractmethod
    def keep(self, entry: Entry, keeping: Keeping) -> None:
        """Put what is needed into `keeping`, and note in `entry` where. RefusedError where it cannot be done."""

    @staticmethod
    @abstractmethod
    def apply(entry: Entry, folder: Path, keeps: bool) -> None:
        """Carry it out. `folder`: of the journal; without `keeps` what would be moved there is removed."""

    @staticmethod
    @abstractmethod
    def is_done(entry: Entry, folder: Path) -> bool:
        """Whether what is read back is what it makes."""

    @staticmethod
    def revert(entry: Entry, folder: Path, back: dict[Path, int]) -> None:
        """Take it back, however far it came; times that files are to get go into `back`. What is done in place is
        taken back file by file instead: see `old_bytes`."""
        assert entry.is_in_place

    @staticmethod
    def old_bytes(entry: Entry, size: int, kept: Path) -> Iterator[tuple[int, bytes]]:
        """What stood in its range of a file of `size` bytes: kept pieces, and zeros where nothing had to be kept."""
        end = min(entry.offset + entry.length, size)
        position = entry.offset
        for piece in [*entry.before, Piece(max(end, position), 0, 0)]:
            while position < piece.offset:
                length = min(CHUNK, piece.offset - position)
                yield position, bytes(length)
                position += length
            if piece.length:
                yield piece.offset, b"".join(pieces_of(kept, piece.at, piece.length))
                position = piece.offset + piece.length


class _Range(Operation):
    """Puts new bytes into a range of an existing file."""

    __slots__ = ()
    IN_PLACE = True

    @staticmethod
    @abstractmethod
    def new_bytes(entry: Entry, folder: Path) -> Iterator[bytes]:
        """Return what the range comes to hold."""

    @classmethod
    def apply(cls, entry: Entry, folder: Path, keeps: bool) -> None:
        write_pieces(entry.path, entry.offset, cls.new_bytes(entry, folder))

    @classmethod
    def is_done(cls, entry: Entry, folder: Path) -> bool:
        return reads_back(entry.path, entry.offset, cls.new_bytes(entry, folder))


@dataclass(frozen=True, slots=True)
class WriteRange(_Range):
    """Put `data` at byte `offset` of an existing file."""

    VERB, KEPT = "write", ("offset", "length", "after_at", "before")
    path: Path
    offset: int
    data: bytes | Spilled

    def extent(self) -> dict[str, Any]:
        return {"offset": self.offset, "bytes": len(self.data)}

    def overwritten(self) -> int:
        return len(self.data)

    def gone(self) -> int:
        return min(len(self.data), max(0, _size_at(self.path) - self.offset))

    def keep(self, entry: Entry, keeping: Keeping) -> None:
        spilled = self.data if isinstance(self.data, Spilled) else keeping.after.put(self.data)
        entry.offset, entry.length, entry.after_at = self.offset, len(self.data), spilled.position
        entry.before = keeping.images(self.path, self.offset, entry.length)

    @staticmethod
    def new_bytes(entry: Entry, folder: Path) -> Iterator[bytes]:
        return kept_bytes(folder / AFTER, entry.after_at, entry.length)


@dataclass(frozen=True, slots=True)
class ClearRange(_Range):
    """Put zeros at bytes [offset, offset + length) of an existing file."""

    VERB, KEPT = "clear", ("offset", "length", "before")
    path: Path
    offset: int
    length: int

    def extent(self) -> dict[str, Any]:
        return {"offset": self.offset, "bytes": self.length}

    def overwritten(self) -> int:
        return self.length

    gone = overwritten

    def keep(self, entry: Entry, keeping: Keeping) -> None:
        entry.offset, entry.length = self.offset, self.length
        entry.before = keeping.images(self.path, self.offset, self.length)

    @staticmethod
    def new_bytes(entry: Entry, folder: Path) -> Iterator[bytes]:
        return zeros(entry.length)


@dataclass(frozen=True, slots=True)
class Resize(Operation):
    """Cut or extend (with zeros) a file to `size` bytes."""

    VERB, IN_PLACE, KEPT = "resize", True, ("new_size", "before")
    path: Path
    size: int

    def extent(self) -> dict[str, Any]:
        return {"offset": self.size, "bytes": abs(self.size - _size_at(self.path))}

    def gone(self) -> int:
        return max(0, _size_at(self.path) - self.size)

    def keep(self, entry: Entry, keeping: Keeping) -> None:
        entry.new_size = self.size
        entry.before = keeping.images(self.path, self.size, max(0, (entry.size or 0) - self.size))

    @staticmethod
    def apply(entry: Entry, folder: Path, keeps: bool) -> None:
        io.truncate(entry.path, entry.new_size)

    @staticmethod
    def is_done(entry: Entry, folder: Path) -> bool:
        return entry.path.stat().st_size == entry.new_size

    @staticmethod
    def old_bytes(entry: Entry, size: int, kept: Path) -> Iterator[tuple[int, bytes]]:
        # the part that a file loses by being cut is zeros again by being extended
        for piece in entry.before:
            yield piece.offset, b"".join(pieces_of(kept, piece.at, piece.length))


@dataclass(frozen=True, slots=True)
class SetTime(Operation):
    """Set the modification time of an existing file, in ns; its bytes stay. The time is among those of the journal."""

    VERB, IN_PLACE, KEPT = "set time", True, ("before",)
    path: Path
    mtime_ns: int

    def extent(self) -> dict[str, Any]:
        return {"bytes": 0, "modified_timestamp": self.mtime_ns // 1_000_000}

    def keep(self, entry: Entry, keeping: Keeping) -> None:
        """The time before is `mtime_ns` of the entry."""

    @staticmethod
    def apply(entry: Entry, folder: Path, keeps: bool) -> None:
        """With those of all changed files, once their bytes are there."""

    @staticmethod
    def is_done(entry: Entry, folder: Path) -> bool:
        return entry.path.stat().st_size == entry.size


@dataclass(frozen=True, slots=True)
class CreateFile(Operation):
    """Create a file of `size` zero bytes, with its directories."""

    VERB, KEPT = "create", ("new_size", *Operation.KEPT)
    path: Path
    size: int

    def extent(self) -> dict[str, Any]:
        return {"bytes": self.size}

    def keep(self, entry: Entry, keeping: Keeping) -> None:
        if entry.mtime_ns is not None:
            raise RefusedError("was to be created but exists", file=self.path, hint="run the command again")
        entry.new_size = self.size

    @staticmethod
    def apply(entry: Entry, folder: Path, keeps: bool) -> None:
        io.make_directories(entry.path.parent)
        io.create_file(entry.path, entry.new_size)

    @staticmethod
    def is_done(entry: Entry, folder: Path) -> bool:
        return entry.path.stat().st_size == entry.new_size

    @staticmethod
    def revert(entry: Entry, folder: Path, back: dict[Path, int]) -> None:
        if is_there(entry.path):
            io.remove(entry.path)


@dataclass(frozen=True, slots=True)
class MoveAway(Operation):
    """Take a file or directory out of the store; it is kept in the journal's folder."""

    VERB, KEPT = "move away", (*Operation.KEPT, "moved", "moved_items")
    path: Path

    def extent(self) -> dict[str, Any]:
        return {"bytes": _size_at(self.path)}

    def gone(self) -> int:
        return _size_at(self.path)

    def keep(self, entry: Entry, keeping: Keeping) -> None:
        keeping.note_moved(entry)

    @staticmethod
    def apply(entry: Entry, folder: Path, keeps: bool) -> None:
        if entry.moved is not None and keeps:
            _keep(folder, entry.path, entry.moved)
        elif entry.moved is not None:
            remove_any(entry.path)

    @staticmethod
    def is_done(entry: Entry, folder: Path) -> bool:
        return not is_there(entry.path)

    @staticmethod
    def revert(entry: Entry, folder: Path, back: dict[Path, int]) -> None:
        _bring_back(entry, folder, back)


@dataclass(frozen=True, slots=True)
class Install(Operation):
    """Put a file or directory made beside the store at `path`; what was there is moved away.

    In a plan that is only shown nothing was made: `staged` is `path`, and `size` is what its files will have, None if
    that is not known.
    """

    VERB, KEPT = "install", (*Operation.KEPT, "moved", "moved_items", "staged", "staged_items")
    staged: Path
    path: Path
    size: int | None = None

    def extent(self) -> dict[str, Any]:
        """`replaced_bytes`: of what goes for it."""
        # what is only shown has nothing staged: the place itself stands for it
        size = _size_at(self.staged) if self.staged != self.path else self.size
        return {"bytes": size, "replaced_bytes": _size_at(self.path)}

    def gone(self) -> int:
        return _size_at(self.path)

    def keep(self, entry: Entry, keeping: Keeping) -> None:
        entry.staged = self.staged.relative_to(keeping.folder).as_posix()
        entry.staged_items = list(tree_items(self.staged))
        if entry.mtime_ns is not None:
            keeping.note_moved(entry)

    @staticmethod
    def apply(entry: Entry, folder: Path, keeps: bool) -> None:
        MoveAway.apply(entry, folder, keeps)
        assert entry.staged is not None
        staged = folder / entry.staged
        flush_tree(staged)
        move(staged, entry.path)
        io.set_modified(entry.path, entry.staged_items[0].mtime_ns)

    @staticmethod
    def is_done(entry: Entry, folder: Path) -> bool:
        return is_there(entry.path)

    @staticmethod
    def revert(entry: Entry, folder: Path, back: dict[Path, int]) -> None:
        _bring_back(entry, folder, back)


WRITE, CLEAR, RESIZE = WriteRange.__name__, ClearRange.__name__, Resize.__name__
CREATE, MOVE, INSTALL = CreateFile.__name__, MoveAway.__name__, Install.__name__
OPERATIONS: dict[str, type[Operation]] = {
    WRITE: WriteRange, CLEAR: ClearRange, RESIZE: Resize, SetTime.__name__: SetTime, CREATE: CreateFile,
    MOVE: MoveAway, INSTALL: Install,
}  # fmt: skip


def new_entry(operation: Operation, keeping: Keeping) -> Entry:
    """The entry of an operation, once what it needs is kept. RefusedError for a file that cannot be changed as
    planned."""
    path = operation.path
    entry = Entry(type(operation).__name__, path)
    # bytes are changed where a link leads, while it is the link that is moved
    is_followed = entry.is_in_place and exists(path)
    status = (path.stat() if is_followed else path.lstat()) if is_there(path) else None
    if status is not None:
        entry.size, entry.mtime_ns = status.st_size, status.st_mtime_ns
    operation.keep(entry, keeping)
    if entry.is_in_place:
        _require_owner(path, status)
    else:
        _note_directory(entry)
    return entry


def _require_owner(path: Path, status: os.stat_result | None) -> None:
    """Only the owner can set a file's times, which an undo has to: better to know before anything changes."""
    if status is not None and os.geteuid() not in (0, status.st_uid):
        raise RefusedError(
            "belongs to another user, so its times could not be put back",
            file=path,
            hint="run the command as the user that the broker runs as",
        )


def _note_directory(entry: Entry) -> None:
    directory = entry.path.parent
    while not is_directory(directory):
        entry.made.append(directory)
        directory = directory.parent
    entry.directory, entry.directory_mtime_ns = directory, directory.stat().st_mtime_ns


def _keep(folder: Path, path: Path, place: str) -> None:
    """Move `path` into the journal's folder, and make sure that it is found there after a power cut."""
    target = folder / place
    move(path, target)
    for directory in (target.parent, target.parent.parent, folder):
        io.flush_directory(directory)


def _bring_back(entry: Entry, folder: Path, back: dict[Path, int]) -> None:
    """What was moved to where it was, and what was installed to where it was made."""
    path, staged = entry.path, None if entry.staged is None else folder / entry.staged
    moved = None if entry.moved is None else folder / entry.moved
    for place in (path, staged, moved):
        if place is not None and is_directory(place.parent):
            clear_interrupted(place)
    if is_there(path) and (moved is None or is_there(moved)):
        # something else stands in its place: what was installed, or a copy whose original is still where it came from
        if staged is None or is_there(staged):
            _discard_copy(entry)
        else:
            move(path, staged)
            io.set_modified(staged, entry.staged_items[0].mtime_ns)
            io.flush_directory(staged.parent)
    if moved is None:
        return
    if is_there(moved):
        move(moved, path)
        # first where it is, then where it is no more: a power cut in between must not leave it in neither
        io.flush_directory(path.parent)
        io.flush_directory(moved.parent)
    if not is_there(path):
        raise CorruptError("was moved away and is gone", file=moved)
    if entry.mtime_ns is not None and not is_link(path):
        back[path] = entry.mtime_ns


def _discard_copy(entry: Entry) -> None:
    """Remove what a move to or from another file system left whole in both places."""
    found = [item for item in tree_items(entry.path) if item.size is not None]
    for items in (entry.staged_items, entry.moved_items):
        if is_same(entry.path, found, items):
            discard(entry.path)
            return
    raise RefusedError(
        "appeared after the change was interrupted: another program wrote to the store",
        file=entry.path,
        hint="move it elsewhere, then run the command again",
    )


def _size_at(path: Path) -> int:
    """Bytes of a file, or of all files of a directory; 0 where there is nothing."""
    return sum(file.lstat().st_size for file in _files_at(path))


def _files_at(path: Path) -> Iterator[Path]:
    """The file, or all files of a directory; none where there is nothing."""
    if is_real_directory(path):
        for below in path.iterdir():
            yield from _files_at(below)
    elif is_there(path):
        yield path


@dataclass(slots=True)
class Plan:
    """Operations in the order they are carried out.

    What changes carries the time of the change, but for the files in `times` (mtime in ns): a broker deletes commitlog
    files by their age, the oldest first, so one that looks young would keep all behind it on the disk.
    `messages_gone`: that it takes out of the log; `messages_made`: that are good ones only by it, fillers included;
    `messages_skipped`: that groups have not read and are set behind.
    """

    operations: list[Operation] = field(default_factory=list)
    times: dict[Path, int] = field(default_factory=dict)
    messages_gone: int = 0
    messages_made: int = 0
    messages_skipped: int = 0

    def add(self, operation: Operation) -> None:
        """Add one operation at the end."""
        self.operations.append(operation)
        if isinstance(operation, SetTime):
            self.times[operation.path] = operation.mtime_ns

    def drop(self, operation: Operation) -> None:
        """Remove an operation, if the plan has it: a later one does its work."""
        if operation in self.operations:
            self.operations.remove(operation)

    def add_all(self, other: Plan) -> None:
        """Add all that `other` does."""
        self.operations += other.operations
        self.times |= other.times
        self.messages_gone += other.messages_gone
        self.messages_made += other.messages_made
        self.messages_skipped += other.messages_skipped

    def __bool__(self) -> bool:
        return bool(self.operations)

    def paths(self) -> list[Path]:
        """Every path that changes, once, in order."""
        return list(dict.fromkeys(operation.path for operation in self.operations))

    def changed_bytes(self) -> int:
        """Bytes of existing files that are overwritten or cleared."""
        return sum(operation.overwritten() for operation in self.operations)

    def loss(self, *, keep_undo: bool) -> Loss:
        """What it takes away, before it is carried out; `keep_undo`: a journal keeps what goes."""
        if keep_undo:
            return Loss(self.messages_gone, skipped=self.messages_skipped)
        gone = [(operation.path, operation.gone()) for operation in self.operations]
        files = {file for path, _ in gone for file in _files_at(path)}
        return Loss(self.messages_gone, len(files), sum(size for _, size in gone), self.messages_skipped)


Staging = Callable[[], Path] | None
"""What gives the folder where new files are made; None to plan only."""


def install_config(plan: Plan, staging: Staging, path: Path, data: bytes) -> None:
    """Plan that the config file `path` is to hold `data`, which is written beside the store at once."""
    staged = path
    if staging is not None:
        staged = staging() / "config" / path.name
        io.make_directories(staged.parent)
        io.write_whole(staged, data)
    plan.add(Install(staged, path, len(data)))
