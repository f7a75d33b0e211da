"""Undo and resume: bring a store back to before a change, or an interrupted change to its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, RmqctlError, UnreadableError
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import take_lock
from rmqctl.store.files.reading import is_directory, is_file, is_link, is_real_directory, is_there, named
from rmqctl.store.journal.entry import remembered_layout
from rmqctl.store.journal.folder import (
    ABANDONED,
    APPLIED,
    GIVEN_UP,
    GONE,
    JOURNAL,
    MENDED,
    TO_MEND,
    UNDOING,
    UNDONE,
    UNFINISHED,
    Journalled,
    check_kept,
    held,
    is_pointer,
    read_head,
    read_journal,
    read_state,
    remove_if_empty,
    remove_leftover,
    retire,
    tell_begun,
    write_state,
)
from rmqctl.store.journal.journal import begun, carry_out, roll_back
from rmqctl.store.journal.kept import clear_interrupted, first_changed, tree_items
from rmqctl.store.journal.log import (
    DAMAGED,
    FORGOTTEN,
    PERMANENT,
    Change,
    change_in,
    changes,
    find_change,
    is_id,
    known_folders,
    last_standing,
    note,
    read_change,
    refuse_unfinished,
    to_mend_error,
    unfinished,
    unmend,
    way_out,
)
from rmqctl.store.journal.plan import Entry
from rmqctl.store.journal.used import LATER, marks_with_lock, refuse_used
from rmqctl.store.options import ChangeOptions, Loss

_AGAIN = "nothing is lost: run `rmqctl undo` or `rmqctl resume` again when the disk is well"


def undo(layout: StoreLayout, wanted: str | None = None, change: ChangeOptions = ChangeOptions()) -> Change:
    """Take back the last change, or the one with the id `wanted`, which must be the last; byte for byte, times and
    directories included. An interrupted change, or an interrupted undo of one, is taken back as well.

    NotFoundError without one; RefusedError if later changes are applied or the store has been used since; CorruptError
    if the saved data is damaged; StoreInUseError. `dry_run` of `change` only checks that it can be done; `confirm` is
    asked where messages are there only by the change.
    """
    record, folder = _to_undo(layout, wanted)
    if change.dry_run:
        _usable(layout, record, folder, for_redo=False)
        return record
    lock = take_lock(_remembered(layout, record, folder))
    try:
        record, folder = _to_undo(layout, wanted)
        with named(folder), held(folder), _naming_the_way_out(layout, record):
            journal = _usable(layout, record, folder, for_redo=False)
            _ask(change, journal, "messages_made")
            with begun(_AGAIN, layout.root):
                unmend(layout, record.id, int(journal.head["started"]))
                tell_begun(layout, folder, True)
                write_state(folder, UNDOING)
                roll_back(folder, journal.entries)
                write_state(folder, UNDONE)
                tell_begun(layout, folder, False)
    finally:
        lock.release()
    return record._replace(state=UNDONE)


def _to_undo(layout: StoreLayout, wanted: str | None) -> tuple[Change, Path]:
    """The change to take back, and its journal."""
    with named(layout.kept):
        last = last_standing(layout)
        change = last if wanted is None else find_change(layout, wanted)
    if change is None:
        raise NotFoundError("nothing to undo", file=layout.root, hint="`rmqctl log` lists the changes")
    if change.state in (ABANDONED, UNDONE):
        what = "is undone already" if change.state == UNDONE else "was never begun"
        raise RefusedError(f"the change {change.id} {what}", file=layout.root)
    if change.folder is None:
        why = "was made with --no-journal" if change.state == PERMANENT else "cannot be undone any more"
        raise RefusedError(f"the change {change.id} {why}", file=layout.root, hint="`rmqctl log` lists the changes")
    if last is not None and change.id != last.id:
        raise RefusedError(f"the change {last.id} came later", file=layout.root, hint=f"undo that one first: {LATER}")
    if change.state in TO_MEND:
        raise to_mend_error(layout, change)
    if change.state == MENDED:
        raise RefusedError(
            f"the change {change.id} was given up, and the store has been recovered since",
            file=layout.root,
            hint=f"the saved data is in {change.folder}",
        )
    return change, Path(change.folder)


def resume(layout: StoreLayout, change: ChangeOptions = ChangeOptions()) -> Change:
    """Finish the change that was interrupted; an interrupted undo is finished as such.

    First everything is undone, then carried out again, so that its progress does not matter. NotFoundError if nothing
    is unfinished; CorruptError, RefusedError and StoreInUseError as for `undo`. `confirm` is asked where the change
    takes messages away.
    """
    record, folder = _to_resume(layout)
    if change.dry_run:
        _usable(layout, record, folder, for_redo=True)
        return record
    lock = take_lock(_remembered(layout, record, folder))
    try:
        record, folder = _to_resume(layout)
        with named(folder), held(folder), _naming_the_way_out(layout, record):
            journal = _usable(layout, record, folder, for_redo=True)
            _ask(change, journal, "messages_made" if record.state == UNDOING else "messages_gone")
            with begun(_AGAIN, layout.root):
                roll_back(folder, journal.entries)
                if record.state == UNDOING:
                    write_state(folder, UNDONE)
                    tell_begun(layout, folder, False)
                    return record._replace(state=UNDONE)
                for entry in journal.entries:
                    _require_staged(journal, entry)
                carry_out(folder, journal.entries, journal.moment_ns, journal.times)
                write_state(folder, APPLIED, marks=marks_with_lock(journal.layout))
                tell_begun(layout, folder, False)
    finally:
        lock.release()
    return record._replace(state=APPLIED)


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
    """Return the journal of a change after checking that the store was not used since and that the saved data is
    intact."""
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


def _ask(change: ChangeOptions, journal: Journalled, which: str) -> None:
    count = journal.head.get(which)
    if change.confirm is not None and isinstance(count, int) and count > 0:
        change.confirm(Loss(messages=count))


def _require_staged(journal: Journalled, entry: Entry) -> None:
    if entry.staged is None:
        return
    top = journal.folder / entry.staged
    found = list(tree_items(top)) if is_there(top) else []
    if first_changed(found, entry.staged_items) is not None:
        raise CorruptError("is not as it was made", file=top, hint="`rmqctl undo` puts the store back as it was")


# Forgetting what changes kept: their space is free, and the way back is gone.


def forget(layout: StoreLayout, chosen: Iterable[Change]) -> int:
    """Remove what `chosen` changes kept, for good; their lines stay in the history. Returns the bytes freed.

    RefusedError for an unfinished change; StoreInUseError for one that another process is about to end. It may be
    interrupted anywhere: a change is there whole, or not at all; what is left of it goes with the next ones.
    """
    with named(layout.kept):
        return _forgotten(layout, chosen)


def _forgotten(layout: StoreLayout, chosen: Iterable[Change]) -> int:
    freed = 0
    if is_link(layout.kept):
        raise RefusedError("is a link: nothing is removed behind it", file=layout.kept)
    for change in chosen:
        if change.is_unfinished:
            refuse_unfinished(layout)
        if change.folder is None:
            continue
        folder = Path(change.folder)
        with held(folder) if is_file(folder / JOURNAL) else nullcontext():
            # since it was listed somebody may have begun to undo it
            state = change_in(folder).state
            if state in UNFINISHED:
                refuse_unfinished(layout)
            if state in (APPLIED, UNDONE, MENDED):
                row = change._asdict() | {"state": FORGOTTEN if state == APPLIED else state, "started": change.time}
                note(layout, row)
            gone = retire(layout, folder)
        remove_leftover(gone)
        freed += change.kept_bytes
    _remove_leftovers(layout)
    remove_if_empty(layout.kept)
    return freed


def _remove_leftovers(layout: StoreLayout) -> None:
    """What is left of changes that were being forgotten when the process was killed."""
    for name in os.listdir(layout.kept) if is_directory(layout.kept) else ():
        path = layout.kept / name
        if name.endswith(GONE) and is_id(name.removesuffix(GONE)) and (is_pointer(path) or is_real_directory(path)):
            remove_leftover(path)


# Giving up an interrupted change: the way out where it can be neither finished nor taken back.
#
# The store stays as it is, with all that was stored since, and what the change took out or overwrote stays in its
# folder. Until a command that mends has made the store whole by its log, nothing else changes it.

_KEPT = ("id", "verb", "arguments", "started", "paths", "bytes", "version")


def give_up(layout: StoreLayout, change: ChangeOptions = ChangeOptions()) -> Change:
    """Give up the change that was interrupted, or whose state is damaged. NotFoundError without one; RefusedError if it
    is given up already; StoreInUseError."""
    if change.dry_run:
        return change_in(_to_give_up(layout))._replace(state=GIVEN_UP)
    lock = take_lock(layout)
    try:
        folder = _to_give_up(layout)
        with held(folder) if is_file(folder / JOURNAL) else nullcontext():
            _clear_leftovers(layout, folder)
            head = {}
            with suppress(RmqctlError):
                head = read_head(folder)
            write_state(folder, GIVEN_UP, **{name: head[name] for name in _KEPT if name in head})
    finally:
        lock.release()
    return change_in(folder)


def _to_give_up(layout: StoreLayout) -> Path:
    for folder in reversed(known_folders(layout)):
        try:
            state = read_state(folder)["state"]
        except (CorruptError, UnreadableError):
            return folder
        if state in TO_MEND:
            raise to_mend_error(layout, change_in(folder))
        if state in UNFINISHED:
            return folder
    raise NotFoundError("no change was interrupted", file=layout.root, hint="`rmqctl log` lists the changes")


def _clear_leftovers(layout: StoreLayout, folder: Path) -> None:
    """Copies on their way to or from another file system: all of them is in the journal, and in the commitlog a broker
    would stop at them."""
    try:
        journal = read_journal(layout, folder)
    except RmqctlError:  # it does not say where they are
        return
    for entry in journal.entries:
        if is_directory(entry.path.parent):
            clear_interrupted(entry.path)
