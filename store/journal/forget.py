"""Forgetting what changes kept: their space is free, and the way back is gone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from rmqctl.formats.errors import RefusedError
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_directory, is_file, is_link, is_real_directory
from rmqctl.store.files.reading import named
from rmqctl.store.journal.kept.elsewhere import is_pointer
from rmqctl.store.journal.kept.folder import (
    APPLIED,
    GONE,
    JOURNAL,
    MENDED,
    UNDONE,
    UNFINISHED,
    held,
    remove_if_empty,
    remove_leftover,
    retire,
)
from rmqctl.store.journal.kept.history import FORGOTTEN, note
from rmqctl.store.journal.log import Change, change_in, is_id, refuse_unfinished


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
