"""To whom new files of a store belong: to whom its commitlog does, or the broker could not write to them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import RefusedError, UnreadableError
from rmqctl.store.files.layout import StoreLayout, holds_log_files, is_file_name, looks_like_store
from rmqctl.store.files.presence import is_directory

_KEPT = ".rmqctl"


class Ownership(NamedTuple):
    """User and group ids, and the permissions that files and directories have."""

    user: int
    group: int
    file_mode: int
    directory_mode: int


def ownership_of(directory: Path) -> Ownership:
    """That of a store, or of a directory with files of a log in it: its commitlog says it, its newest file first."""
    log = next(
        (path for path in (directory / "commitlog", directory / "consumequeue") if is_directory(path)), directory
    )
    status = owner = log.stat()
    file_mode = stat.S_IMODE(status.st_mode) & 0o666
    with os.scandir(log) as entries:
        names = [entry.name for entry in entries if is_file_name(entry.name) and entry.is_file(follow_symlinks=False)]
    if names:
        owner = (log / max(names)).stat()
        file_mode = stat.S_IMODE(owner.st_mode) & 0o666
    return Ownership(owner.st_uid, owner.st_gid, file_mode, stat.S_IMODE(status.st_mode))


def of_one(status: os.stat_result) -> Ownership:
    """That of a single file or directory."""
    mode = stat.S_IMODE(status.st_mode)
    return Ownership(status.st_uid, status.st_gid, mode, mode)


def inherited(path: Path) -> Ownership | None:
    """What a new file or directory at `path` gets from the store that it is made in or, as a journal, beside; None for
    places outside of every store, and for users who can give nothing away."""
    if os.geteuid() != 0:
        return None
    try:
        if holds_log_files(path.parent):
            return ownership_of(path.parent)
        for above in path.absolute().parents:
            if looks_like_store(above):
                return ownership_of(above)
        for part in (path.absolute(), *path.absolute().parents):
            store = part.with_name(part.name.removesuffix(_KEPT)) if part.name.endswith(_KEPT) else None
            if store is not None and store.name and looks_like_store(store):
                return ownership_of(store)
    except OSError:  # the store is going away or may not be looked at: then its owner is not known
        return None
    return None


def refuse_other_user(layout: StoreLayout) -> None:
    """RefusedError where the store is another user's and this one is not root: what it made the broker could neither
    write to nor remove."""
    user = os.geteuid()
    if user == 0:
        return
    try:
        if is_directory(layout.commitlog[0]):
            place = layout.commitlog[0]
        elif looks_like_store(layout.root):
            place = layout.root
        else:  # about to become a store
            return
        owner = ownership_of(place).user
    except (OSError, UnreadableError):
        return
    if owner != user:
        raise RefusedError(
            f"the store belongs to the user with id {owner}, and new files would belong to {user}",
            file=layout.root,
            hint="run the command as the user that the broker runs as, or as root",
        )
