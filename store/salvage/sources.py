"""What a salvage reads: the files behind the paths given, each opened for reading by position only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import NotAStoreError, RefusedError, UnreadableError, UsageError, refuse_exhausted
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import LARGEST_OFFSET, is_file_name
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.outputs import check_output_place
from rmqctl.store.files.reading import Descriptors, end_of_nonzero, is_directory, is_real_directory, is_there
from rmqctl.store.store_files import dledger_log, is_of_dledger

# What a salvage reads: the files behind the paths given, each opened for reading by position only.


class Source(NamedTuple):
    """One file of `size` bytes. `expected_base`: what its name says about the physical offset of its first byte."""

    path: Path
    size: int
    expected_base: int | None

    def mapped(self, descriptors: Descriptors) -> MappedFile:
        """The file for walks; its start offset is to be set to the base of a run."""
        file = MappedFile(self.path, self.expected_base or 0, self.size, descriptors)
        file.holds_entries = is_of_dledger(self.path)
        return file

    @property
    def data_size(self) -> int:
        """Bytes up to the last one that is not zero."""
        with Descriptors() as descriptors:
            return end_of_nonzero(descriptors, self.path, 0, self.size)


def find_sources(paths: Sequence[Path], config: StoreConfig) -> list[Source]:
    """The files to read, each once. Of a store its commitlog, wherever `config` has it; of any other directory all
    regular files below it, links aside; a file or block device as it is.

    NotAStoreError for a path that is not there, UnreadableError, UsageError where nothing is left to read.
    """
    found: dict[str, Source] = {}
    for path in paths:
        for file in _files(path, config):
            source = _source(file)
            if source.size:
                found.setdefault(os.path.realpath(file), source)
    if not found:
        raise UsageError("there is no file to read", file=paths[0] if paths else None)
    return list(found.values())


def _files(path: Path, config: StoreConfig) -> Iterator[Path]:
    if not is_there(path):
        hint = "name stores, folders, files or block devices that are there"
        raise NotAStoreError("there is no such file or directory", file=path, hint=hint)
    if not is_directory(path):
        yield path
        return
    layout = config.layout(path)
    dledger = dledger_log(layout)
    directories = [*layout.commitlog, *([] if dledger is None else [dledger.folder])]
    if any(is_directory(directory) for directory in directories):
        for directory in filter(is_directory, directories):
            yield from _below(directory)
    else:
        yield from _below(path)


def _below(directory: Path) -> Iterator[Path]:
    """Regular files, by name; no link is followed."""

    def failed(error: OSError) -> None:
        raise UnreadableError(f"cannot be listed: {error.strerror}", file=error.filename) from error

    for folder, names, files in os.walk(directory, onerror=failed):
        names.sort()
        for name in sorted(files):
            path = Path(folder) / name
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def _source(path: Path) -> Source:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        refuse_exhausted(error, path)
        raise UnreadableError(f"cannot be opened: {error.strerror}", file=path) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
            raise UnreadableError("is neither a file nor a block device", file=path)
        size = os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)
    is_named = is_file_name(path.name) and int(path.name) <= LARGEST_OFFSET - size
    return Source(path, size, int(path.name) if is_named else None)


def check_target(target: Path, sources: Sequence[Path], files: Sequence[Source]) -> None:
    """RefusedError unless `target` is new or empty, is neither inside a source nor contains one, and is not among the
    files of a store: a broker stumbles over a directory in its commitlog."""
    # files that somebody collected in a folder are salvaged beside them
    check_output_place(target, beside_loose_files=True)
    real = Path(os.path.realpath(target))
    for above in real.parents:
        if is_directory(above / "commitlog"):
            raise RefusedError(f"is inside the store {above}", file=target, hint="name a directory elsewhere")
    for path in [*sources, *(source.path for source in files)]:
        source = Path(os.path.realpath(path))
        if real == source or real.is_relative_to(source) or source.is_relative_to(real):
            raise RefusedError(
                f"{target} and {path} lie in one another: nothing is ever written into what is read",
                file=target,
                hint="name another directory",
            )
    if is_there(target) and (not is_real_directory(target) or any(target.iterdir())):
        raise RefusedError("exists already", file=target, hint="name a new directory")
