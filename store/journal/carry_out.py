"""Carries out the operations of a journal: each is read back, everything is flushed, all of it carries one time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rmqctl.formats.errors import CorruptError, RefusedError, UnreadableError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.io import flush_tree, remove_any
from rmqctl.store.files.outputs import Sharing, copy_sparsely
from rmqctl.store.files.reading import exists, is_directory, is_link, is_there, pieces_of
from rmqctl.store.journal.entry import (
    CHUNK,
    CLEAR,
    CREATE,
    IN_PLACE,
    INSTALL,
    RESIZE,
    SET_TIME,
    WRITE,
    Entry,
    Piece,
    is_same,
    tree_items,
)
from rmqctl.store.journal.folder import AFTER, BEFORE, clear_interrupted, coming, discard, move

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


# Takes a change back: whatever part of it was carried out, or taken back already, the store is as it was before.
#
# Every step looks at what is there, so that it may be interrupted anywhere and begun again. Files first come back to
# their places, the last operation first; then bytes and sizes; then times.


def roll_back(folder: Path, entries: list[Entry]) -> None:
    """Make the store what it was before `entries`; what they installed is in `staged/` again afterwards.

    CorruptError where a kept file is gone; WriteFailedError.
    """
    back: dict[Path, int] = {}
    for entry in reversed(entries):
        if entry.kind == CREATE:
            if is_there(entry.path):
                io.remove(entry.path)
        elif entry.kind not in IN_PLACE:
            _bring_back(folder, entry, back)
    files: dict[Path, list[Entry]] = {}
    for entry in entries:
        if entry.kind in IN_PLACE and entry.size is not None:
            files.setdefault(entry.path, []).append(entry)
    for path, changes in files.items():
        _restore(folder, path, changes)
    _restore_directories(entries, back)


def _bring_back(folder: Path, entry: Entry, back: dict[Path, int]) -> None:
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
        "has come up since the change was interrupted: somebody else wrote to the store",
        file=entry.path,
        hint="move it elsewhere, then run the command again",
    )


def _restore(folder: Path, path: Path, changes: list[Entry]) -> None:
    """Size and bytes of one file that was changed in place, and its time."""
    size, mtime_ns = changes[0].size, changes[0].mtime_ns
    assert size is not None
    assert mtime_ns is not None
    clear_interrupted(Path(os.path.realpath(path)))
    # a snapshot by hard links may have been taken since
    make_single(folder, path)
    if path.stat().st_size != size:
        io.truncate(path, size)
    descriptor = io.open_for_writing(path)
    try:
        for change in changes:
            for offset, data in _old_bytes(change, size, folder / BEFORE):
                if not _stands(path, offset, data):
                    io.write_at(descriptor, path, offset, data)
    finally:
        os.close(descriptor)
    io.set_modified(path, mtime_ns)
    io.flush_file(path)


def _stands(path: Path, offset: int, data: bytes) -> bool:
    """Whether the bytes are there. What cannot be read is written anew, which is what mends a bad sector."""
    try:
        return b"".join(pieces_of(path, offset, len(data))) == data
    except UnreadableError:
        return False


def _old_bytes(change: Entry, size: int, kept: Path) -> Iterator[tuple[int, bytes]]:
    """What stood in the range of one operation: kept pieces, and zeros where nothing had to be kept."""
    end = min(change.offset + change.length, size)
    position = change.offset
    for piece in [*change.before, Piece(max(end, position), 0, 0)]:
        # the part that a file loses by being cut is zeros again by being extended
        while change.kind != RESIZE and position < piece.offset:
            length = min(CHUNK, piece.offset - position)
            yield position, bytes(length)
            position += length
        if piece.length:
            yield piece.offset, b"".join(pieces_of(kept, piece.at, piece.length))
            position = piece.offset + piece.length


def _restore_directories(entries: list[Entry], back: dict[Path, int]) -> None:
    made = {path for entry in entries for path in entry.made}
    for directory in sorted(made, key=lambda path: len(path.parts), reverse=True):
        if is_directory(directory):
            io.remove_directory(directory)
    times = dict(back)
    for entry in entries:
        if entry.directory is not None:
            times.setdefault(entry.directory, entry.directory_mtime_ns)
    for path, mtime_ns in sorted(times.items(), key=lambda item: len(item[0].parts), reverse=True):
        if exists(path):
            io.set_modified(path, mtime_ns)
    for directory in changed_directories(entries):
        io.flush_directory(directory)
