"""Giving up an interrupted change: the way out where it can be neither finished nor taken back.

The store stays as it is, with all that was stored since, and what the change took out or overwrote stays in its folder.
Until a command that mends has made the store whole by its log, nothing else changes it.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UnreadableError
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import take_lock
from rmqctl.store.files.presence import is_directory, is_file
from rmqctl.store.journal.kept.folder import (
    GIVEN_UP,
    JOURNAL,
    TO_MEND,
    UNFINISHED,
    held,
    read_head,
    read_journal,
    read_state,
    write_state,
)
from rmqctl.store.journal.kept.moving import clear_interrupted
from rmqctl.store.journal.log import Change, change_in, known_folders, to_mend_error

_KEPT = ("id", "verb", "arguments", "started", "paths", "bytes", "version")


def give_up(layout: StoreLayout, *, dry_run: bool = False) -> Change:
    """Give up the change that was interrupted, or whose state is damaged. NotFoundError if there is none; RefusedError
    if it is given up already; StoreInUseError."""
    if dry_run:
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
