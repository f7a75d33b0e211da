"""Files that appear under their names only when they are complete: written beside them, flushed, then renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from formats.errors import RefusedError
from store.files import io
from store.files.moving import flush_tree

_BUFFER = 1 << 20


class OutputFile:
    """A new file to write to, byte after byte. What libraries ask of a file object is here too; `close` flushes
    nothing onto the disk: `finish` does. WriteFailedError for I/O errors, DiskFullError among them."""

    def __init__(self, path: Path) -> None:
        """Creates `path`, which must not exist."""
        self.path = path
        self.size = 0
        self._buffer = bytearray()
        io.create_file(path, 0)
        self._descriptor: int | None = io.open_for_writing(path)
        self._is_abandoned = False

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
        io.flush_descriptor(descriptor, self.path)
        os.close(descriptor)
        self._descriptor = None

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
        io.write_at(self._opened(), self.path, self.size, view)
        self.size += len(view)

    def _opened(self) -> int:
        if self._descriptor is None:
            raise AssertionError("written to after it was closed")
        return self._descriptor


def staging_of(path: Path) -> Path:
    """Where `path` is made before it gets its name: beside it, so that a rename is all that is left to do."""
    return path.with_name(f".{path.name}.rmqctl-{os.getpid()}")


@contextlib.contextmanager
def new_file(path: Path, overwrite: bool = False) -> Iterator[OutputFile]:
    """A file that gets the name `path` when the block ends well, and leaves nothing behind when it does not.

    RefusedError if there is one already and `overwrite` does not allow to replace it.
    """
    if path.is_dir():
        raise RefusedError("is a directory", file=path, hint="name a file, or ask for a partitioned export")
    if os.path.lexists(path) and not overwrite:
        raise RefusedError("exists already", file=path, hint="choose another name, or allow it with --overwrite")
    io.make_directories(path.parent, flushed=True)
    staging = staging_of(path)
    _forget(staging)
    try:
        output = OutputFile(staging)
        try:
            yield output
            output.finish()
        finally:
            output.abandon()
        io.rename(staging, path)
    except BaseException:
        _forget(staging)
        raise
    io.flush_directory(path.parent)


class NewDirectory:
    """A directory that gets its name when the block ends well: `with NewDirectory(path) as staging: ...`.

    RefusedError if there is something of that name already that is no empty directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._staging = staging_of(path)

    def __enter__(self) -> Path:
        path = self._path
        if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
            raise RefusedError("exists already", file=path, hint="a partitioned export needs a directory of its own")
        _forget(self._staging)
        io.make_directories(self._staging, flushed=True)
        return self._staging

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            _forget(self._staging)
            return
        try:
            flush_tree(self._staging)
            io.rename(self._staging, self._path)
        except BaseException:
            _forget(self._staging)
            raise
        io.flush_directory(self._path.parent)


def _forget(staging: Path) -> None:
    """Remove what an export left that was killed, or is given up."""
    if staging.is_dir() and not staging.is_symlink():
        io.remove_tree(staging)
    elif os.path.lexists(staging):
        io.remove(staging)
