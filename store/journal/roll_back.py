"""Takes a change back: whatever part of it was carried out, or taken back already, the store is as it was before.

Every step looks at what is there, so that it may be interrupted anywhere and begun again. Files first come back to
their places, the last operation first; then bytes and sizes; then times.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import CorruptError, RefusedError, UnreadableError
from rmqctl.store.files import io
from rmqctl.store.files.presence import exists, is_directory, is_link, is_there
from rmqctl.store.files.reading import pieces_of
from rmqctl.store.journal.carry_out import changed_directories, make_single
from rmqctl.store.journal.kept.entry import CHUNK, CREATE, IN_PLACE, RESIZE, Entry, Piece, is_same, tree_items
from rmqctl.store.journal.kept.folder import BEFORE
from rmqctl.store.journal.kept.moving import clear_interrupted, discard, move


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
