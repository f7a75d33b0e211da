"""Carries out the operations of a journal: each is read back, everything is flushed, all of it carries one time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rmqctl.formats.errors import UnreadableError, WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.outputs import Sharing, copy_sparsely
from rmqctl.store.files.reading import exists, is_directory, pieces_of
from rmqctl.store.journal.kept import BEFORE, clear_interrupted, coming
from rmqctl.store.journal.plan import CREATE, Entry

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
    for path in dict.fromkeys(entry.path for entry in entries if entry.is_in_place):
        if exists(path):
            make_single(folder, path)
    for entry in entries:
        entry.operation.apply(entry, folder, keeps)
        # at once: a later operation may change the same bytes or move the file away
        if not entry.operation.is_done(entry, folder):
            raise WriteFailedError("reads back differently from what was written", file=entry.path)
        if entry.is_in_place or entry.kind == CREATE:
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
        entry.operation.revert(entry, folder, back)
    files: dict[Path, list[Entry]] = {}
    for entry in entries:
        if entry.is_in_place and entry.size is not None:
            files.setdefault(entry.path, []).append(entry)
    for path, changes in files.items():
        _restore(folder, path, changes)
    _restore_directories(entries, back)


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
            for offset, data in change.operation.old_bytes(change, size, folder / BEFORE):
                if not _stands(path, offset, data):
                    io.write_at(descriptor, path, offset, data)
    finally:
        os.close(descriptor)
    io.set_modified(path, mtime_ns)
    io.flush_file(path)


def _stands(path: Path, offset: int, data: bytes) -> bool:
    """Whether the bytes are there. Unreadable bytes are written again, which repairs a bad sector."""
    try:
        return b"".join(pieces_of(path, offset, len(data))) == data
    except UnreadableError:
        return False


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
