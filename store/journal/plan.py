"""What is going to change in a store, as data: planned and counted before anything is touched (law 4)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.early_flush import EarlyFlush
from rmqctl.store.files.reading import is_real_directory, is_there, pieces_of
from rmqctl.store.options import Loss

# A file of byte strings put one behind the other, for what a journal has to keep.


@dataclass(frozen=True, slots=True)
class Spilled:
    """Bytes that stand in a file until they are needed: `length` of them at byte `position`.

    Without a `path` only their number is known.
    """

    path: Path | None
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def load(self) -> bytes:
        """The bytes. WriteFailedError if they are not there as they were put; UnreadableError."""
        data = b""
        if self.path is not None:
            data = b"".join(pieces_of(self.path, self.position, self.length))
        if len(data) < self.length:
            raise WriteFailedError(f"lacks {self.length - len(data)} of the bytes that were put", file=self.path)
        return data


def only_counted(data: bytes) -> Spilled:
    """What is left of `data` where nobody is going to write it."""
    return Spilled(None, 0, len(data))


class Blob:
    """Opened with the first `put` or by `with`; `finish` flushes it, `close` does not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._digest = hashlib.sha256()
        self._descriptor = -1
        self._flush: EarlyFlush | None = None

    def _open(self) -> None:
        if self._descriptor < 0:
            io.make_directories(self.path.parent)
            self._descriptor = io.open_for_writing(self.path, create=True)
            self._flush = EarlyFlush(self._descriptor, self.path)

    def put(self, data: bytes) -> Spilled:
        """Append `data`; returns where it lies."""
        self._open()
        assert self._flush is not None
        io.write_at(self._descriptor, self.path, self._position, data)
        self._digest.update(data)
        place = Spilled(self.path, self._position, len(data))
        self._position += len(data)
        self._flush.wrote(len(data))
        return place

    @property
    def sha256(self) -> str:
        """Of everything that was put, in hex."""
        return self._digest.hexdigest()

    def finish(self) -> None:
        """Bring everything to disk and close."""
        self._open()
        assert self._flush is not None
        try:
            self._flush.finish()
            io.flush_descriptor(self._descriptor, self.path)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            assert self._flush is not None
            self._flush.close()
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Blob:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()


@dataclass(frozen=True, slots=True)
class WriteRange:
    """Put `data` at byte `offset` of an existing file."""

    path: Path
    offset: int
    data: bytes | Spilled


@dataclass(frozen=True, slots=True)
class ClearRange:
    """Put zeros at bytes [offset, offset + length) of an existing file."""

    path: Path
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Cut or extend (with zeros) a file to `size` bytes."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class CreateFile:
    """Create a file of `size` zero bytes, with its directories."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class MoveAway:
    """Take a file or directory out of the store; it is kept in the journal's folder."""

    path: Path


@dataclass(frozen=True, slots=True)
class Install:
    """Put a file or directory made beside the store at `path`; what was there is moved away.

    In a plan that is only shown nothing was made: `staged` is `path`, and `size` is what its files will have, None if
    that is not known.
    """

    staged: Path
    path: Path
    size: int | None = None


@dataclass(frozen=True, slots=True)
class SetTime:
    """Set the modification time of an existing file, in ns; its bytes stay."""

    path: Path
    mtime_ns: int


Operation = WriteRange | ClearRange | Resize | CreateFile | MoveAway | Install | SetTime


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
        total = 0
        for operation in self.operations:
            if isinstance(operation, WriteRange):
                total += len(operation.data)
            elif isinstance(operation, ClearRange):
                total += operation.length
        return total

    def loss(self, *, keep_undo: bool) -> Loss:
        """What it takes away, before it is carried out; `keep_undo`: a journal keeps what goes."""
        if keep_undo:
            return Loss(self.messages_gone, skipped=self.messages_skipped)
        gone = [(operation.path, _gone_bytes(operation)) for operation in self.operations]
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


def _gone_bytes(operation: Operation) -> int:
    """Bytes that were there and are not afterwards."""
    match operation:
        case WriteRange():
            return min(len(operation.data), max(0, _size_at(operation.path) - operation.offset))
        case ClearRange():
            return operation.length
        case Resize():
            return max(0, _size_at(operation.path) - operation.size)
        case CreateFile() | SetTime():
            return 0
        case _:  # MoveAway, Install
            return _size_at(operation.path)


def describe(operation: Operation, root: Path) -> dict[str, Any]:
    """One operation that has not been carried out, for people and for `--dry-run --json`: paths relative to the store.

    `bytes`: that are written or cleared, come, or go; None where that is not known. `replaced_bytes`: of what goes for
    something that is installed.
    """
    path = str(operation.path.relative_to(root)) if operation.path.is_relative_to(root) else str(operation.path)
    match operation:
        case WriteRange():
            return {"operation": "write", "path": path, "offset": operation.offset, "bytes": len(operation.data)}
        case ClearRange():
            return {"operation": "clear", "path": path, "offset": operation.offset, "bytes": operation.length}
        case Resize():
            changed = abs(operation.size - _size_at(operation.path))
            return {"operation": "resize", "path": path, "offset": operation.size, "bytes": changed}
        case CreateFile():
            return {"operation": "create", "path": path, "offset": 0, "bytes": operation.size}
        case SetTime():
            return {
                "operation": "set time",
                "path": path,
                "offset": 0,
                "bytes": 0,
                "modified_timestamp": operation.mtime_ns // 1_000_000,
            }
        case MoveAway():
            return {"operation": "move away", "path": path, "offset": 0, "bytes": _size_at(operation.path)}
        case _:  # Install
            # what is only shown has nothing staged: the place itself stands for it
            is_made = operation.staged != operation.path
            size = _size_at(operation.staged) if is_made else operation.size
            replaced = _size_at(operation.path)
            return {"operation": "install", "path": path, "offset": 0, "bytes": size, "replaced_bytes": replaced}


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
