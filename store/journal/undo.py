"""Undo and resume: bring a store back to before a change, or an interrupted change to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, RmqctlError, UnreadableError
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import take_lock
from rmqctl.store.files.presence import is_there
from rmqctl.store.files.reading import named
from rmqctl.store.journal.begun import begun
from rmqctl.store.journal.carry_out import carry_out
from rmqctl.store.journal.kept.elsewhere import tell_begun
from rmqctl.store.journal.kept.entry import Entry, first_changed, tree_items
from rmqctl.store.journal.kept.folder import (
    ABANDONED,
    APPLIED,
    JOURNAL,
    MENDED,
    TO_MEND,
    UNDOING,
    UNDONE,
    Journalled,
    check_kept,
    held,
    read_head,
    read_journal,
    read_state,
    write_state,
)
from rmqctl.store.journal.kept.history import PERMANENT
from rmqctl.store.journal.kept.reach import remembered_layout
from rmqctl.store.journal.log import (
    DAMAGED,
    Change,
    changes,
    find_change,
    last_standing,
    read_change,
    to_mend_error,
    unfinished,
    unmend,
    way_out,
)
from rmqctl.store.journal.plan import Agree, Loss
from rmqctl.store.journal.roll_back import roll_back
from rmqctl.store.journal.use.marks import marks_with_lock
from rmqctl.store.journal.use.used_since import LATER, refuse_used

_AGAIN = "nothing is lost: run `rmqctl undo` or `rmqctl resume` again when the disk is well"


def undo(
    layout: StoreLayout, wanted: str | None = None, *, dry_run: bool = False, agree: Agree | None = None
) -> Change:
    """Take back the last change, or the one with the id `wanted`, which must be the last; byte for byte, times and
    directories included. An interrupted change, or an interrupted undo of one, is taken back as well.

    NotFoundError if there is none; RefusedError if later changes stand or the store has been used since; CorruptError
    if what was kept is damaged; StoreInUseError. `agree` is asked where messages are there only by the change.
    """
    change, folder = _to_undo(layout, wanted)
    if dry_run:
        _usable(layout, change, folder, for_redo=False)
        return change
    lock = take_lock(_remembered(layout, change, folder))
    try:
        change, folder = _to_undo(layout, wanted)
        with named(folder), held(folder), _naming_the_way_out(layout, change):
            journal = _usable(layout, change, folder, for_redo=False)
            _ask(agree, journal, "messages_made")
            with begun(_AGAIN, layout.root):
                unmend(layout, change.id, int(journal.head["started"]))
                tell_begun(layout, folder, True)
                write_state(folder, UNDOING)
                roll_back(folder, journal.entries)
                write_state(folder, UNDONE)
                tell_begun(layout, folder, False)
    finally:
        lock.release()
    return change._replace(state=UNDONE)


def _to_undo(layout: StoreLayout, wanted: str | None) -> tuple[Change, Path]:
    """The change to take back, and its journal."""
    with named(layout.kept):
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
        raise RefusedError(f"the change {last.id} came later", file=layout.root, hint=f"undo that one first: {LATER}")
    if change.state in TO_MEND:
        raise to_mend_error(layout, change)
    if change.state == MENDED:
        raise RefusedError(
            f"the change {change.id} was given up, and the store has been made whole since",
            file=layout.root,
            hint=f"what it took out is kept in {change.folder}",
        )
    return change, Path(change.folder)


def resume(layout: StoreLayout, *, dry_run: bool = False, agree: Agree | None = None) -> Change:
    """Finish the change that was interrupted; an interrupted undo is finished as such.

    First everything is taken back, then carried out anew, so that it does not matter how far it had come.
    NotFoundError if nothing is unfinished; CorruptError, RefusedError and StoreInUseError as for `undo`. `agree` is
    asked where the change takes messages away.
    """
    change, folder = _to_resume(layout)
    if dry_run:
        _usable(layout, change, folder, for_redo=True)
        return change
    lock = take_lock(_remembered(layout, change, folder))
    try:
        change, folder = _to_resume(layout)
        with named(folder), held(folder), _naming_the_way_out(layout, change):
            journal = _usable(layout, change, folder, for_redo=True)
            _ask(agree, journal, "messages_made" if change.state == UNDOING else "messages_gone")
            with begun(_AGAIN, layout.root):
                roll_back(folder, journal.entries)
                if change.state == UNDOING:
                    write_state(folder, UNDONE)
                    tell_begun(layout, folder, False)
                    return change._replace(state=UNDONE)
                for entry in journal.entries:
                    _require_staged(journal, entry)
                carry_out(folder, journal.entries, journal.moment_ns, journal.times)
                write_state(folder, APPLIED, marks=marks_with_lock(journal.layout))
                tell_begun(layout, folder, False)
    finally:
        lock.release()
    return change._replace(state=APPLIED)


def _to_resume(layout: StoreLayout) -> tuple[Change, Path]:
    with named(layout.kept):
        found = changes(layout)
    pending = [change for change in found if change.is_unfinished]
    if not pending:
        unfinished(layout)  # raises where that cannot be known
        for damaged in (change for change in found if change.state == DAMAGED):
            raise _damaged_error(layout, damaged)
        raise NotFoundError("no change was interrupted", file=layout.root, hint="`rmqctl log` lists the changes")
    change = pending[-1]
    if change.state in TO_MEND:
        raise to_mend_error(layout, change)
    assert change.folder is not None
    return change, Path(change.folder)


def _damaged_error(layout: StoreLayout, change: Change) -> RmqctlError:
    """For a change whose state could not be read: CorruptError unless that is the disk's fault."""
    assert change.folder is not None
    try:
        read_change(Path(change.folder))
    except UnreadableError as error:
        return error
    except (RmqctlError, TypeError, ValueError):
        return CorruptError("its state cannot be read", file=change.folder, hint=way_out(layout))
    return UnreadableError("could not be read a moment ago", file=change.folder, hint="check the disk (dmesg)")


def _remembered(layout: StoreLayout, change: Change, folder: Path) -> StoreLayout:
    with _naming_the_way_out(layout, change), named(folder):
        return remembered_layout(layout, folder / JOURNAL, read_head(folder))


def _usable(layout: StoreLayout, change: Change, folder: Path, *, for_redo: bool) -> Journalled:
    """The journal of a change, once it is certain that nobody used the store since and that what was kept is whole."""
    with _naming_the_way_out(layout, change), named(folder):
        journal = read_journal(layout, folder)
        check_kept(journal, for_redo=for_redo)
        refuse_used(journal, read_state(folder))
    return journal


@contextmanager
def _naming_the_way_out(layout: StoreLayout, change: Change) -> Iterator[None]:
    """Where an interrupted change can be neither finished nor taken back, everything else waits: say how to end it."""
    try:
        yield
    except (CorruptError, RefusedError, UnreadableError) as error:
        out = way_out(layout)
        if (change.is_unfinished or change.state == DAMAGED) and out not in str(error.hint):
            error.hint = f"{error.hint}; {out}" if error.hint else out
        raise


def _ask(agree: Agree | None, journal: Journalled, which: str) -> None:
    count = journal.head.get(which)
    if agree is not None and isinstance(count, int) and count > 0:
        agree(Loss(messages=count))


def _require_staged(journal: Journalled, entry: Entry) -> None:
    if entry.staged is None:
        return
    top = journal.folder / entry.staged
    found = list(tree_items(top)) if is_there(top) else []
    if first_changed(found, entry.staged_items) is not None:
        raise CorruptError("is not as it was made", file=top, hint="`rmqctl undo` puts the store back as it was")
