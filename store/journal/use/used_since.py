"""Whether anybody but the change itself has written to a store since a change of it began.

Between any two steps of ours anyone may have used the store, whether the change is complete or was interrupted, being
made or being taken back. So every file is held against all that our own steps can have left: untouched ones against
their marks, those changed in place against the bytes before and after, those that were moved against where they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from rmqctl.formats.errors import RefusedError, RmqctlError, UnreadableError
from rmqctl.store.files.presence import exists, is_directory, is_file, is_same_time, is_there, status_of
from rmqctl.store.journal.kept.entry import (
    CREATE,
    IN_PLACE,
    INSTALL,
    MOVE,
    RESIZE,
    Entry,
    TreeItem,
    first_changed,
    is_same,
    to_text,
    tree_items,
)
from rmqctl.store.journal.kept.folder import AFTER, APPLIED, BEFORE, Journalled
from rmqctl.store.journal.kept.moving import is_leftover
from rmqctl.store.journal.use.file_bytes import digest_outside, is_as_left, ranges_of, sizes_of
from rmqctl.store.journal.use.marks import Marks, agree, marks_with_lock

_NOTHING = hashlib.sha256().hexdigest()
LATER = "a store can only go back to a state that nobody has built on"


def refuse_used(journal: Journalled, state: dict[str, object]) -> None:
    """RefusedError that names the first file that is not as the change left it; UnreadableError."""
    is_complete = state["state"] == APPLIED
    marks = (state if is_complete else journal.head).get("marks")
    in_place: dict[Path, list[Entry]] = {}
    for entry in journal.entries:
        if entry.kind in (*IN_PLACE, CREATE):
            in_place.setdefault(entry.path, []).append(entry)
    _refuse_marks(journal, marks if isinstance(marks, dict) else {}, is_all=is_complete)
    if is_complete:
        _refuse_changed(journal)
    else:
        _refuse_moved(journal, in_place)
    for path, entries in in_place.items():
        _refuse_bytes(journal, path, entries, is_complete)


def _refuse_marks(journal: Journalled, marks: Marks, *, is_all: bool) -> None:
    """The files that every writer touches; unless `is_all` but for those that the change itself touches."""
    changed = [entry.path for entry in journal.entries]
    found = marks_with_lock(journal.layout)
    lock = journal.layout.lock.name
    if lock not in marks:
        found.pop(lock, None)
    for name in sorted(found.keys() | marks.keys()):
        path = journal.layout.root / name
        now, before = found.get(name), marks.get(name)
        alike = now is not None and before is not None and agree(now, before)
        # of what could not be read at that time, size and time have to do
        if now == before or (alike and len(now or ()) >= len(before or ())):
            continue
        if is_all or not any(path.is_relative_to(top) for top in changed):
            if not is_all and is_leftover(path):
                continue
            if alike:
                # nobody is known to have written to it: what it ends with cannot be told
                raise UnreadableError("cannot be read", file=path, hint="check the disk (dmesg), then try again")
            raise _changed(journal, path)


def _refuse_changed(journal: Journalled) -> None:
    """Sizes, times and folders of everything that a complete change touched."""
    for path, expected in _after(journal).items():
        if isinstance(expected, list):
            found = list(tree_items(path)) if is_there(path) else []
            wrong = first_changed(found, expected)
            if wrong is not None:
                raise _changed(journal, path / wrong)
        elif expected is None:
            if is_there(path):
                raise _changed(journal, path)
        else:
            status = status_of(path)
            time_ns = journal.times.get(path, journal.moment_ns)
            if status is None or status.st_size != expected or not is_same_time(status.st_mtime_ns, time_ns):
                raise _changed(journal, path)


def _after(journal: Journalled) -> dict[Path, int | list[TreeItem] | None]:
    """What every changed path is when the change is complete: a size, a tree, or nothing."""
    after: dict[Path, int | list[TreeItem] | None] = {}
    for entry in journal.entries:
        path = entry.path
        if entry.kind in (MOVE, INSTALL):  # nothing at or below it was changed before
            after[path] = entry.staged_items if entry.kind == INSTALL else None
        elif entry.kind in (CREATE, RESIZE):
            after[path] = entry.new_size
        else:
            known = after.get(path, entry.size)
            after[path] = max(known if isinstance(known, int) else 0, entry.offset + entry.length)
        for above in path.parents:
            if after.get(above, 0) is None:  # taken out, and made anew for this one
                del after[above]
    return after


def _refuse_bytes(journal: Journalled, path: Path, entries: list[Entry], is_complete: bool) -> None:
    """Size and bytes of a file that is changed in place, or made."""
    if not exists(path):
        if entries[0].kind == CREATE and not is_complete:
            return
        raise _changed(journal, path)
    if not is_file(path):
        raise _changed(journal, path)
    size = path.stat().st_size
    outside = journal.head.get("outside", {}).get(to_text(path, journal.layout.root), _NOTHING)
    before, after = journal.folder / BEFORE, journal.folder / AFTER
    if (
        not any(least <= size <= largest for least, largest in sizes_of(entries))
        or digest_outside(path, ranges_of(entries)) != outside
        or not is_as_left(path, entries, before, after, complete=is_complete)
    ):
        raise _changed(journal, path)


def _up(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)


def _refuse_moved(journal: Journalled, in_place: Collection[Path]) -> None:
    """Files and folders that are moved or put in place, wherever an interruption left them."""
    paths = {entry.path for entry in journal.entries}
    for entry in journal.entries:
        if entry.kind in (MOVE, INSTALL) and not _is_somewhere(journal.folder, entry, paths, in_place):
            raise _changed(journal, entry.path)
    above = {parent for path in paths for parent in path.parents}
    for directory in sorted({made for entry in journal.entries for made in entry.made}):
        for found in sorted(directory.rglob("*")) if is_directory(directory) else ():
            if found not in above and paths.isdisjoint(_up(found)) and not any(map(is_leftover, _up(found))):
                raise _changed(journal, found)


def _is_somewhere(folder: Path, entry: Entry, paths: set[Path], in_place: Collection[Path]) -> bool:
    """Whether what was at a path, and what is to come there, are each where one of our steps put them. What other
    operations change below it, `paths` and `in_place`, is theirs."""
    is_kept = entry.moved is None or is_there(folder / entry.moved)
    is_staged = entry.staged is None or is_there(folder / entry.staged)
    path = entry.path
    if not is_there(path):
        return is_kept and is_staged
    found = [(path / item.name, item) for item in tree_items(path) if item.size is not None]
    here = [item for at, item in found if at not in in_place and (at == path or at not in paths)]
    # a move to another file system leaves, for a moment, the same in both places
    if entry.moved is not None and is_staged and is_same(path, here, entry.moved_items):
        return True
    if entry.staged is not None and is_kept and is_same(path, here, entry.staged_items):
        return True
    # a folder that was taken out may be there again, made for what a later operation puts into it, and empty as yet
    is_theirs = len(here) < len(found) or (is_directory(path) and any(path in one.parents for one in paths))
    return is_theirs and is_kept and is_staged and not here


def _changed(journal: Journalled, path: Path) -> RmqctlError:
    return RefusedError(
        f"is not as the change {journal.head.get('id')} left it: a broker or another program has written to the store",
        file=path,
        hint=f"{LATER}; what the change took out is kept in {journal.folder}",
    )
