"""Files that appear under their names only when they are complete: written beside them, flushed, then renamed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import RefusedError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_directory, is_there
from rmqctl.store.files.trees import flush_tree
from rmqctl.store.outputs.output_place import check_output_place, is_vacant
from rmqctl.store.outputs.staging import clear_left_behind, in_work, staged_directory, staging_of

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

    RefusedError if there is something of that name already that is no empty directory, or if it lies among the files
    of a store.
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
