"""Journals on another disk than their store: a small file beside the store, in the place of the journal's folder, says
where that is.

It is on disk before anything of the store changes, and as long as the change is not complete it says so itself: where
the other disk is not there, nobody takes a store that is half changed for a whole one.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import (
    CorruptError,
    NotFoundError,
    RefusedError,
    RmqctlError,
    UnreadableError,
    refuse_exhausted,
)
from rmqctl.store.files import io
from rmqctl.store.files.layout import KEPT, StoreLayout
from rmqctl.store.files.presence import is_directory, is_file, is_real_file, is_there

# beyond any of ours: what is larger was put there by somebody else
_LARGEST = 1 << 20
_FOLDER, _STORE, _BEGUN = "folder", "store", "begun"


def place_for(layout: StoreLayout, directory: Path | None) -> Path:
    """Where the journals of a store go, in a `directory` of the user's choice; None for beside the store.

    NotFoundError where there is no such directory; RefusedError where it is inside the store, whose broker refuses
    what it does not know, or where what it holds under our name is somebody else's.
    """
    if directory is None:
        return layout.kept
    if not is_directory(directory):
        raise NotFoundError("there is no such directory for the journal", file=directory, hint="make it first")
    real = Path(os.path.realpath(directory))
    for top in (layout.root, *layout.commitlog):
        if real.is_relative_to(os.path.realpath(top)):
            raise RefusedError(
                "is inside the store, where no journal may be", file=directory, hint="name a directory elsewhere"
            )
    place = real / layout.kept.name
    if is_there(place) and not _is_own_folder(place):
        raise RefusedError(
            "is a link, no directory, or belongs to another user", file=place, hint="name another directory"
        )
    return place


def point_to(layout: StoreLayout, folder: Path) -> None:
    """Make the journal's `folder` and say beside the store where it is; both are on disk when this returns."""
    io.make_directories(folder)
    for directory in (folder.parent, folder.parent.parent):
        io.flush_directory(directory)
    io.make_directories(layout.kept)
    io.write_whole(layout.kept / folder.name, _text(layout, folder, has_begun=False))
    io.flush_directory(layout.kept.parent)


def tell_begun(layout: StoreLayout, folder: Path, has_begun: bool) -> None:
    """Say of a journal that is elsewhere whether its change may be half done from now on; durable when this returns.

    One byte is overwritten where it stands: that needs no room.
    """
    pointer = layout.kept / folder.name
    if folder == pointer or not is_file(pointer):
        return
    io.write_range(pointer, 0, _text(layout, folder, has_begun))
    io.flush_file(pointer)


def is_pointer(path: Path) -> bool:
    """Whether a journal is elsewhere: what stands in its place is a file."""
    return is_real_file(path)


def folder_of(path: Path) -> Path:
    """The journal's folder: `path` itself, or where that points to. What points to nothing that can be believed stays
    as it is, and `target_of` says why."""
    try:
        return target_of(path) if is_pointer(path) else path
    except RmqctlError:
        return path


def target_of(path: Path) -> Path:
    """Where the journal is to which `path` points. UnreadableError where it is not there; CorruptError where what says
    so is not believed."""
    folder = said_by(path, path.name)
    if not is_reached(folder):
        raise UnreadableError(
            f"the journal of this change is in {folder}, where no directory of this user is",
            file=path,
            hint="bring back the disk that holds it (is it mounted?), then run the command again",
        )
    return folder


def said_by(path: Path, name: str) -> Path:
    """Where the file `path` says that the journal of the change `name` is, whether it is there or not. CorruptError
    where that is not believed."""
    found = pointed(path)
    text = found.get(_FOLDER)
    if not isinstance(text, str) or "\0" in text or not os.path.isabs(text) or Path(text).name != name:
        raise CorruptError("does not say where the journal of this change is", file=path)
    # beside another store, or under another name, it was copied: what the journal keeps is not this store's
    if f"{found.get(_STORE)}{KEPT}" != str(path.parent):
        raise CorruptError(f"leads to what a change of another store kept, {found.get(_STORE)}", file=path)
    return Path(text)


def pointed(path: Path) -> dict[str, Any]:
    """What the file says: {"begun": …, "folder": …, "store": …}, or a state that was written in its place. CorruptError
    where it is none of ours: only what this user or root wrote is believed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        refuse_exhausted(error, path)
        raise CorruptError(f"cannot be read: {error.strerror}", file=path) from error
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise CorruptError("is no file that says where a journal is", file=path)
        if status.st_uid not in (0, os.geteuid()):
            raise CorruptError("belongs to another user, so where it leads is not believed", file=path)
        data = opened.read(_LARGEST)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError("is no JSON", file=path) from error
    if not isinstance(found, dict):
        raise CorruptError("is no JSON object", file=path)
    return found


def is_known_complete(path: Path) -> bool:
    """Whether `path` points to a journal that cannot be reached, but says that the store is not half changed."""
    try:
        return is_pointer(path) and pointed(path).get(_BEGUN) == 0
    except CorruptError:
        return False


def is_reached(folder: Path) -> bool:
    """Whether a journal's folder is there, and this user's or root's."""
    return _is_own_folder(folder.parent) and _is_own_folder(folder)


def _is_own_folder(path: Path) -> bool:
    """Whether a directory is this user's or root's, and no link."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid in (0, os.geteuid())


def _text(layout: StoreLayout, folder: Path, has_begun: bool) -> bytes:
    found = {_BEGUN: int(has_begun), _FOLDER: str(folder), _STORE: os.path.realpath(layout.root)}
    return json.dumps(found).encode("ascii") + b"\n"
