"""What a journal keeps: bytes in blobs, files and directories that are moved into its folder, and how they were."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rmqctl.formats.errors import UnreadableError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.io import EarlyFlush, flush_tree, remove_any
from rmqctl.store.files.outputs import Sharing, copy_sparsely
from rmqctl.store.files.reading import is_real_directory, is_same_time, is_there, pieces_of

# A file of byte strings put one behind the other.

CHUNK = 1 << 20
_ZEROS = bytes(CHUNK)
BEFORE, AFTER = "before.bin", "after.bin"
"""In the journal's folder: the bytes that were there, and those that come."""


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
    """Return the part of `data` that is counted without being written."""
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
        """Append `data`; return its position."""
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


def kept_bytes(blob: Path, at: int, length: int) -> Iterator[bytes]:
    """Bytes of a blob, piece by piece. WriteFailedError if they are not there as they were put."""
    for data in pieces_of(blob, at, length, CHUNK):
        length -= len(data)
        yield data
    if length:
        raise WriteFailedError(f"lacks {length} of the bytes that were put", file=blob)


def zeros(length: int) -> Iterator[bytes]:
    """Yield zeros, piece by piece."""
    while length > 0:
        yield _ZEROS[: min(length, CHUNK)]
        length -= CHUNK


def write_pieces(path: Path, offset: int, pieces: Iterable[bytes]) -> None:
    """Write pieces one behind the other from byte `offset` of a file on."""
    descriptor = io.open_for_writing(path)
    try:
        for piece in pieces:
            io.write_at(descriptor, path, offset, piece)
            offset += len(piece)
    finally:
        os.close(descriptor)


def reads_back(path: Path, offset: int, pieces: Iterable[bytes]) -> bool:
    """Whether a file holds the pieces from byte `offset` on."""
    for piece in pieces:
        if b"".join(pieces_of(path, offset, len(piece))) != piece:
            return False
        offset += len(piece)
    return True


# Files and directories as they were before a change.


@dataclass(frozen=True, slots=True)
class TreeItem:
    """One file or directory of a tree. `name`: relative to the tree's top, "." for the top itself. `sha256` of files
    that are moved away; `size` is None for other than regular files. `inode`: of one that is moved away although it
    cannot be read."""

    name: str
    size: int | None
    mtime_ns: int
    sha256: str | None = None
    inode: int | None = None


def tree_items(top: Path, *, with_hashes: bool = False) -> Iterator[TreeItem]:
    """`top` and everything below it, in order of their names; links are not followed."""
    paths = [top, *sorted(top.rglob("*"))] if is_real_directory(top) else [top]
    for path in paths:
        status = path.lstat()
        is_file = stat.S_ISREG(status.st_mode)
        digest, inode = None, None
        if is_file and with_hashes:
            try:
                digest = file_sha256(path)
            except UnreadableError:  # a bad sector: the file can be moved all the same
                inode = status.st_ino
        name = path.relative_to(top).as_posix()
        yield TreeItem(name, status.st_size if is_file else None, status.st_mtime_ns, digest, inode)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hex. UnreadableError."""
    digest = hashlib.sha256()
    for data in pieces_of(path, 0, 1 << 62):
        digest.update(data)
    return digest.hexdigest()


def is_same(top: Path, found: list[TreeItem], expected: list[TreeItem]) -> bool:
    """Whether the files `found` below `top` are those expected: by name, size and time, which a power cut may take back
    in part, or else their hash."""
    known = {item.name: item for item in expected if item.size is not None}
    if known.keys() != {item.name for item in found}:
        return False
    for item in found:
        wanted = known[item.name]
        if item.size != wanted.size:
            return False
        if not is_same_time(item.mtime_ns, wanted.mtime_ns) and (
            wanted.sha256 is None or file_sha256(top / item.name) != wanted.sha256
        ):
            return False
    return True


def first_changed(found: list[TreeItem], expected: list[TreeItem]) -> str | None:
    """Return the name of the first item that differs from the one expected, "." for a tree that lacks one; None where
    both trees are the same. File times are compared as a file system keeps them."""
    known = {item.name: item for item in expected}
    for item in found:
        wanted = known.pop(item.name, None)
        if wanted is None or not is_same_time(item.mtime_ns, wanted.mtime_ns):
            return item.name
        if replace(item, mtime_ns=wanted.mtime_ns) != wanted:
            return item.name
    return "." if known else None


# Moves files and directories, across file systems too, so that a kill leaves all of it in one of the two places.

_MOVING, _GONE = ".rmqctl-moving", ".rmqctl-gone"


def move(source: Path, target: Path) -> None:
    """Move a file or directory, across file systems too; the target must not exist. Folders that are made for it are
    on disk before it leaves its place."""
    io.make_directories(target.parent, flushed=True)
    if io.rename_within(source, target):
        return
    temporary = coming(target)
    # with its holes: most of the last commitlog file is one, and neither disk has room for it
    io.copy_file(source, temporary, lambda one, other: copy_sparsely(one, other, one.stat().st_size, Sharing.AUTO))
    flush_tree(temporary)
    io.rename(temporary, target)
    io.flush_directory(target.parent)
    discard(source)
    io.flush_directory(source.parent)


def coming(path: Path) -> Path:
    """Where the copy of a file or directory is made that is on its way to `path` from another file system."""
    return _beside(path, _MOVING)


def discard(path: Path) -> None:
    """Remove a file or directory, under another name first, which is on disk before anything in it goes: half of a
    directory must not look like all of it."""
    gone = _beside(path, _GONE)
    io.rename(path, gone)
    io.flush_directory(path.parent)
    remove_any(gone)


def is_leftover(path: Path) -> bool:
    """Whether a move that was killed left it: see `clear_interrupted`."""
    return path.name.startswith(".") and path.name.endswith((_MOVING, _GONE))


def clear_interrupted(path: Path) -> None:
    """Remove what a move to or from `path` left beside it when the process was killed."""
    for name in (coming(path), _beside(path, _GONE)):
        if is_there(name):
            remove_any(name)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}{suffix}")
