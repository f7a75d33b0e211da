"""Carries out the operations of a journal: each is read back, everything is flushed, all of it carries one time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.presence import exists, is_directory, is_there
from rmqctl.store.files.reading import pieces_of
from rmqctl.store.files.sparse_copy import Sharing, copy_sparsely
from rmqctl.store.files.trees import flush_tree, remove_any
from rmqctl.store.journal.kept.entry import CHUNK, CLEAR, CREATE, IN_PLACE, INSTALL, RESIZE, SET_TIME, WRITE, Entry
from rmqctl.store.journal.kept.folder import AFTER
from rmqctl.store.journal.kept.moving import coming, move

_ZEROS = bytes(CHUNK)
SINGLE = "single"
"""In the journal's folder: a copy on its way to where a file with several names is to be changed."""


def carry_out(
    folder: Path, entries: list[Entry], moment_ns: int, times: Mapping[Path, int], *, keeps: bool = True
) -> None:
    """Carry out all of `entries`, none of which has been, and none of which changes what a later one moves. Without
    `keeps` what would be moved away is removed.

    Changed and new files and directories get the time `moment_ns`, or theirs in `times`, so that the outcome is
    the same however often it took to get there. WriteFailedError where a write fails or reads back differently.
    """
    touched: dict[Path, None] = {}
    for path in dict.fromkeys(entry.path for entry in entries if entry.kind in IN_PLACE):
        if exists(path):
            make_single(folder, path)
    for entry in entries:
        _one(folder, entry, keeps)
        # at once: a later operation may change the same bytes or move the file away
        _verify(folder, entry)
        if entry.kind in (*IN_PLACE, CREATE):
            touched[entry.path] = None
    for path in touched:
        io.set_modified(path, times.get(path, moment_ns))
        io.flush_file(path)
    for directory in changed_directories(entries):
        io.set_modified(directory, moment_ns)
        io.flush_directory(directory)
    for directory in dict.fromkeys((folder / entry.staged).parent for entry in entries if entry.staged is not None):
        io.flush_directory(directory)


def make_single(folder: Path, path: Path) -> None:
    """Give a file with several names (a snapshot by hard links) bytes of its own: the others keep theirs.

    `folder`: of the journal, where the copy is made; where that is on another disk it is made beside the file, as a
    move would.
    """
    path = Path(os.path.realpath(path))  # the link stays
    if path.stat().st_nlink == 1:
        return
    directory_time = path.parent.stat().st_mtime_ns
    copy = folder / SINGLE
    if path.stat().st_dev != folder.stat().st_dev:
        copy = coming(path)
    if exists(copy):
        io.remove(copy)
    copy_sparsely(path, copy, path.stat().st_size, Sharing.AUTO)
    io.rename(copy, path)
    io.set_modified(path.parent, directory_time)
    io.flush_directory(path.parent)
    io.flush_directory(folder)


def _one(folder: Path, entry: Entry, keeps: bool) -> None:
    path = entry.path
    if entry.kind == WRITE:
        _write(path, entry.offset, _kept_bytes(folder / AFTER, entry.after_at, entry.length))
    elif entry.kind == CLEAR:
        _write(path, entry.offset, _zeros(entry.length))
    elif entry.kind == RESIZE:
        io.truncate(path, entry.new_size)
    elif entry.kind == SET_TIME:
        pass  # with those of all changed files, once their bytes are there
    elif entry.kind == CREATE:
        io.make_directories(path.parent)
        io.create_file(path, entry.new_size)
    else:
        if entry.moved is not None:
            if keeps:
                _keep(folder, path, entry.moved)
            else:
                remove_any(path)
        if entry.staged is not None:
            staged = folder / entry.staged
            flush_tree(staged)
            move(staged, path)
            io.set_modified(path, entry.staged_items[0].mtime_ns)


def _keep(folder: Path, path: Path, place: str) -> None:
    """Move `path` into the journal's folder, and make sure that it is found there after a power cut."""
    target = folder / place
    move(path, target)
    for directory in (target.parent, target.parent.parent, folder):
        io.flush_directory(directory)


def _kept_bytes(blob: Path, at: int, length: int) -> Iterator[bytes]:
    for data in pieces_of(blob, at, length, CHUNK):
        length -= len(data)
        yield data
    if length:
        raise WriteFailedError(f"lacks {length} of the bytes that were put", file=blob)


def _zeros(length: int) -> Iterator[bytes]:
    while length > 0:
        yield _ZEROS[: min(length, CHUNK)]
        length -= CHUNK


def _write(path: Path, offset: int, pieces: Iterable[bytes]) -> None:
    descriptor = io.open_for_writing(path)
    try:
        for piece in pieces:
            io.write_at(descriptor, path, offset, piece)
            offset += len(piece)
    finally:
        os.close(descriptor)


def _verify(folder: Path, entry: Entry) -> None:
    path = entry.path
    if entry.kind == WRITE:
        good = _is_there(path, entry.offset, _kept_bytes(folder / AFTER, entry.after_at, entry.length))
    elif entry.kind == CLEAR:
        good = _is_there(path, entry.offset, _zeros(entry.length))
    elif entry.kind in (RESIZE, CREATE):
        good = path.stat().st_size == entry.new_size
    elif entry.kind == SET_TIME:
        good = path.stat().st_size == entry.size
    else:
        good = is_there(path) == (entry.kind == INSTALL)
    if not good:
        raise WriteFailedError("reads back differently from what was written", file=path)


def _is_there(path: Path, offset: int, pieces: Iterable[bytes]) -> bool:
    for piece in pieces:
        if b"".join(pieces_of(path, offset, len(piece))) != piece:
            return False
        offset += len(piece)
    return True


def changed_directories(entries: list[Entry]) -> list[Path]:
    """Directories whose entries change, or that are new, as far as they exist: the deepest first."""
    found: dict[Path, None] = {}
    for entry in entries:
        if entry.directory is not None:
            found |= dict.fromkeys([*entry.made, entry.directory])
    return sorted((path for path in found if is_directory(path)), key=lambda path: len(path.parts), reverse=True)
