"""Undo and resume: bring a store back to before a change, or an interrupted change to its end."""

from __future__ import annotations

import os
from pathlib import Path

from formats.errors import CorruptError, NotFoundError, RefusedError, RmqctlError
from store.files.begun import begun
from store.files.carry_out import carry_out
from store.files.journal_entry import CREATE, IN_PLACE, INSTALL, MOVE, RESIZE, Entry, Item, tree_items
from store.files.journal_folder import (
    ABANDONED,
    APPLIED,
    INTERRUPTED,
    PREPARED,
    UNDOING,
    UNDONE,
    Journalled,
    Marks,
    check_kept,
    held,
    marks_of,
    read_journal,
    read_state,
    write_state,
)
from store.files.journal_log import PERMANENT, Change, changes, find_change, interrupted_error, last_standing
from store.files.layout import StoreLayout
from store.files.lock import take_lock
from store.files.moving import is_leftover
from store.files.reading import named
from store.files.roll_back import roll_back

_AGAIN = "nothing is lost: run `rmqctl undo` or `rmqctl resume` again when the disk is well"
_LATER = "a store can only go back to a state that nobody has built on"


def undo(layout: StoreLayout, wanted: str | None = None, *, dry_run: bool = False) -> Change:
    """Take back the last change, or the one with the id `wanted`, which must be the last; byte for byte, times and
    directories included. An interrupted change, or an interrupted undo of one, is taken back as well.

    NotFoundError if there is none; RefusedError if later changes stand or the store has changed since; CorruptError if
    what was kept is damaged; StoreInUseError.
    """
    if dry_run:
        change, folder = _to_undo(layout, wanted)
        _undoable(layout, folder)
        return change
    lock = take_lock(layout)
    try:
        change, folder = _to_undo(layout, wanted)
        with named(folder), held(folder):
            journal = _undoable(layout, folder)
            with begun(_AGAIN, layout.root):
                write_state(folder, UNDOING)
                roll_back(folder, journal.entries)
                write_state(folder, UNDONE)
    finally:
        lock.release()
    return change._replace(state=UNDONE)


def _to_undo(layout: StoreLayout, wanted: str | None) -> tuple[Change, Path]:
    """The change to take back, and its journal."""
    last = last_standing(layout)
    change = last if wanted is None else find_change(layout, wanted)
    if change is None:
        raise NotFoundError("there is no change to undo", file=layout.root, hint="`rmqctl log` lists the changes")
    if change.state in (ABANDONED, UNDONE):
        what = "is undone already" if change.state == UNDONE else "was never begun"
        raise RefusedError(f"the change {change.id} {what}", file=layout.root)
    if change.folder is None:
        why = "was made without keeping anything" if change.state == PERMANENT else "cannot be undone any more"
        raise RefusedError(f"the change {change.id} {why}", file=layout.root, hint="`rmqctl log` lists the changes")
    if last is not None and change.id != last.id:
        raise RefusedError(f"the change {last.id} came later", file=layout.root, hint=f"undo that one first: {_LATER}")
    if change.state == INTERRUPTED:
        raise interrupted_error(layout, change)
    return change, Path(change.folder)


def _undoable(layout: StoreLayout, folder: Path) -> Journalled:
    """The journal of a change, once it is certain that it can be taken back."""
    journal = read_journal(layout, folder)
    state = read_state(folder)
    check_kept(journal, for_redo=False)
    if state["state"] == APPLIED:
        _refuse_changed(layout, journal, state)
    elif state["state"] == PREPARED:
        _refuse_marks(layout, journal, journal.head.get("marks") or {})
    return journal


def resume(layout: StoreLayout, *, dry_run: bool = False) -> Change:
    """Finish the change that was interrupted; an interrupted undo is finished as such.

    First everything is taken back, then carried out anew, so that it does not matter how far it had come.
    NotFoundError if nothing is unfinished; CorruptError, RefusedError and StoreInUseError as for `undo`.
    """
    if dry_run:
        change, folder = _to_resume(layout)
        _resumable(layout, change, folder)
        return change
    lock = take_lock(layout)
    try:
        change, folder = _to_resume(layout)
        with named(folder), held(folder):
            journal = _resumable(layout, change, folder)
            with begun(_AGAIN, layout.root):
                roll_back(folder, journal.entries)
                if change.state == UNDOING:
                    write_state(folder, UNDONE)
                    return change._replace(state=UNDONE)
                for entry in journal.entries:
                    _require_staged(journal, entry)
                carry_out(folder, journal.entries, journal.moment_ns, journal.times)
                write_state(folder, APPLIED, marks=marks_of(layout))
    finally:
        lock.release()
    return change._replace(state=APPLIED)


def _to_resume(layout: StoreLayout) -> tuple[Change, Path]:
    pending = [change for change in changes(layout) if change.is_unfinished]
    if not pending:
        raise NotFoundError("no change was interrupted", file=layout.root, hint="`rmqctl log` lists the changes")
    change = pending[-1]
    if change.state == INTERRUPTED:
        raise interrupted_error(layout, change)
    assert change.folder is not None
    return change, Path(change.folder)


def _resumable(layout: StoreLayout, change: Change, folder: Path) -> Journalled:
    journal = read_journal(layout, folder)
    check_kept(journal, for_redo=True)
    if change.state == PREPARED:
        _refuse_marks(layout, journal, journal.head.get("marks") or {})
    return journal


def _require_staged(journal: Journalled, entry: Entry) -> None:
    if entry.staged is None:
        return
    top = journal.folder / entry.staged
    found = list(tree_items(top)) if os.path.lexists(top) else []
    if found != entry.staged_items:
        raise CorruptError("is not as it was made", file=top, hint="`rmqctl undo` puts the store back as it was")


def _refuse_changed(layout: StoreLayout, journal: Journalled, state: dict[str, object]) -> None:
    """RefusedError that names the first file that is not as the change left it."""
    marks = state.get("marks")
    _refuse_marks(layout, journal, marks if isinstance(marks, dict) else {}, is_all=True)
    for path, expected in _after(journal).items():
        if isinstance(expected, list):
            found = list(tree_items(path)) if os.path.lexists(path) else []
            wrong = next((item for item in found if item not in expected), None)
            if wrong is not None or len(found) != len(expected):
                raise _changed(journal, path / wrong.name if wrong is not None else path)
        elif expected is None:
            if os.path.lexists(path):
                raise _changed(journal, path)
        else:
            status = path.lstat() if os.path.lexists(path) else None
            time_ns = journal.times.get(path, journal.moment_ns)
            if status is None or (status.st_size, status.st_mtime_ns) != (expected, time_ns):
                raise _changed(journal, path)


def _after(journal: Journalled) -> dict[Path, int | list[Item] | None]:
    """What every changed path is when the change is complete: a size, a tree, or nothing."""
    after: dict[Path, int | list[Item] | None] = {}
    for entry in journal.entries:
        path = entry.path
        if entry.kind in (MOVE, INSTALL):
            for below in [known for known in after if known.is_relative_to(path)]:
                del after[below]
            after[path] = entry.staged_items if entry.kind == INSTALL else None
        elif entry.kind in (CREATE, RESIZE):
            after[path] = entry.new_size
        elif entry.kind in IN_PLACE:
            known = after.get(path, entry.size)
            after[path] = max(known if isinstance(known, int) else 0, entry.offset + entry.length)
        for above in path.parents:
            if after.get(above, 0) is None:  # taken out, and made anew for this one
                del after[above]
    return after


def _refuse_marks(layout: StoreLayout, journal: Journalled, marks: Marks, *, is_all: bool = False) -> None:
    """RefusedError if the files that every writer touches are not as noted; unless `is_all` those that the change
    itself touches may be anything."""
    changed = [entry.path for entry in journal.entries]
    found = marks_of(layout)
    for name in sorted(found.keys() | marks.keys()):
        path = layout.root / name
        if found.get(name) == marks.get(name):
            continue
        if is_all or not any(path.is_relative_to(top) or path == top for top in changed):
            if not is_all and is_leftover(path):
                continue
            raise _changed(journal, path)


def _changed(journal: Journalled, path: Path) -> RmqctlError:
    return RefusedError(
        f"is not as the change {journal.head.get('id')} left it: a broker or another program has written to the store",
        file=path,
        hint=f"{_LATER}; what the change took out is kept in {journal.folder}",
    )
