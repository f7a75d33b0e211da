"""The files of one journal: journal.json, written once and complete, and state.json, which says how far it has come.

journal.json holds the SHA-256 of before.bin, of after.bin, of every file that is moved away, and its own, which counts
as zeros while it is computed. It is there under its name only when everything else is on disk: from then on the change
is `prepared`. state.json appears with the next step and is replaced with every further one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import (
    CorruptError,
    NotFoundError,
    RefusedError,
    RmqctlError,
    StoreInUseError,
    UnreadableError,
    WriteFailedError,
    joined_hints,
    refuse_exhausted,
    unreadable,
)
from rmqctl.store.files import io
from rmqctl.store.files.io import remove_any
from rmqctl.store.files.layout import KEPT, StoreLayout
from rmqctl.store.files.reading import exists, is_directory, is_file, is_real_file, is_same_time, is_there
from rmqctl.store.journal.entry import from_json, reach_of, remembered_layout
from rmqctl.store.journal.kept import AFTER, BEFORE, TreeItem, file_sha256
from rmqctl.store.journal.plan import Entry

# Journals on another disk than their store: a small file beside the store, in the place of the journal's folder, says
# where that is.
#
# It is on disk before anything of the store changes, and as long as the change is not complete it says so itself:
# where the other disk is not there, nobody takes a store that is half changed for a whole one.

# beyond any of ours: what is larger was put there by somebody else
_LARGEST = 1 << 20
_FOLDER, _STORE, _BEGUN = "folder", "store", "begun"


def place_for(layout: StoreLayout, directory: Path | None) -> Path:
    """Where the journals of a store go, in a `directory` of the user's choice; None for beside the store.

    NotFoundError for a missing directory; RefusedError if it is inside the store, whose broker refuses unknown files,
    or if it has another program's file under the journal's name.
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

    One byte is overwritten in place, which needs no space.
    """
    pointer = layout.kept / folder.name
    if folder == pointer or not is_file(pointer):
        return
    io.write_range(pointer, 0, _text(layout, folder, has_begun))
    io.flush_file(pointer)


def is_pointer(path: Path) -> bool:
    """Return whether a journal is elsewhere: a file is then in its place."""
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
            f"the journal of this change is in {folder}, which is missing or belongs to another user",
            file=path,
            hint="mount the disk that holds it, then run the command again",
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
    for a foreign file: only files that this user or root wrote are trusted."""
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


FORMAT = 3
JOURNAL, STATE = "journal.json", "state.json"
ABANDONED, PREPARED, APPLIED, UNDOING, UNDONE = "abandoned", "prepared", "applied", "undoing", "undone"
# of a change that keeps nothing: it has begun, and there is no way back; its folder is gone when it is complete
INTERRUPTED = "interrupted"
# of an interrupted change that is neither to be finished nor taken back: it has to be mended, and then it has been
GIVEN_UP, MENDED = "given-up", "mended"
MENDED_AFTER = "mended_after"
"""Field of a state: the id of the last change there was when the store had been mended."""
UNFINISHED = (PREPARED, UNDOING, INTERRUPTED, GIVEN_UP)
TO_MEND = (INTERRUPTED, GIVEN_UP)
GONE = ".gone"
"""What the name of a folder ends with that is on its way out."""
_NO_HASH = "0" * 64
# beyond any journal of ours: what is larger was put there by somebody else
_LARGEST_JSON = 1 << 28


@dataclass(frozen=True, slots=True)
class Journalled:
    """A journal as it was read. `layout`: the store as it was for the change. `head`: everything of journal.json but
    its operations and times.

    `times`: mtimes in ns of files that do not get `moment_ns`.
    """

    folder: Path
    layout: StoreLayout
    head: dict[str, Any]
    entries: list[Entry]
    times: dict[Path, int]

    @property
    def moment_ns(self) -> int:
        """The time that everything changed carries: that of the change, whenever it was finished."""
        return int(self.head["moment_ns"])


def write_journal(folder: Path, head: dict[str, Any], operations: list[dict[str, Any]]) -> None:
    """Write journal.json; with it the change is prepared."""
    lines = ",\n".join(json.dumps(operation) for operation in operations)
    text = json.dumps({"sha256": _NO_HASH, **head})[:-1] + f', "operations": [\n{lines}\n]}}\n'
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    io.write_whole(folder / JOURNAL, text.replace(_NO_HASH, digest, 1).encode("ascii"))


def write_state(folder: Path, state: str, **more: Any) -> None:
    """Say how far the change has come; durable when this returns."""
    now = time.time_ns() // 1_000_000
    # of a journal that cannot be reached the file that stands in its place says it
    path = folder if is_pointer(folder) else folder / STATE
    io.write_whole(path, json.dumps({**more, "state": state, "time": now}).encode("ascii"))


def remove_folder(folder: Path) -> None:
    """Remove a journal's folder for good, which no pointer leads to."""
    remove_leftover(_set_aside(folder))


def remove_journal(layout: StoreLayout, folder: Path) -> None:
    """Remove a journal for good, with what points to it."""
    remove_leftover(retire(layout, folder))


def retire(layout: StoreLayout, folder: Path) -> Path:
    """Give a journal the name under which it is never taken for a change, and return that name, for `remove_leftover`.

    Of a journal elsewhere it is the pointer that is renamed. The removal itself comes when no file of the journal is
    open any more: over NFS an open file cannot be removed.
    """
    pointer = layout.kept / folder.name
    return _set_aside(pointer if folder != pointer and is_pointer(pointer) else folder)


def _set_aside(old: Path) -> Path:
    gone = old.with_name(old.name + GONE)
    if is_there(gone):
        remove_leftover(gone)
    io.rename(old, gone)
    io.flush_directory(old.parent)
    return gone


def remove_leftover(gone: Path) -> None:
    """Remove what a removal has left that was interrupted: a folder, or what points to one elsewhere, with that. The
    latter stays while the other disk is not there."""
    if is_pointer(gone):
        with suppress(CorruptError):
            folder = said_by(gone, gone.name.removesuffix(GONE))
            if not is_directory(folder.parent.parent):
                return
            if is_reached(folder):
                io.remove_tree(folder)
                io.flush_directory(folder.parent)
            remove_if_empty(folder.parent)
    remove_any(gone)
    io.flush_directory(gone.parent)


def remove_if_empty(kept: Path) -> None:
    """Remove the folder that holds those of changes, unless there is more in it."""
    with suppress(WriteFailedError):
        io.remove_directory(kept)
        io.flush_directory(kept.parent)


def read_state(folder: Path) -> dict[str, Any]:
    """{"state": …, "time": ms, …}; ABANDONED where a command ended before it had decided to change anything. Of an
    INTERRUPTED, GIVEN_UP or MENDED change the head is there as well. CorruptError; UnreadableError where it is on a
    disk that is not there."""
    if is_pointer(folder):
        found = pointed(folder)
        if found.get("state") not in (GIVEN_UP, MENDED):
            target_of(folder)
            raise CorruptError("could not be reached just now", file=folder, hint="run the command again")
        return found
    if not exists(folder / STATE):
        return {"state": PREPARED if is_file(folder / JOURNAL) else ABANDONED, "time": 0}
    found = _object(folder / STATE)
    with_journal = (PREPARED, APPLIED, UNDOING, UNDONE, GIVEN_UP, MENDED)
    known = with_journal if is_file(folder / JOURNAL) else (INTERRUPTED, GIVEN_UP, MENDED)
    if found.get("state") not in known:
        raise CorruptError("says nothing of the change's state", file=folder / STATE, hint=_LOOK)
    return found


_LOOK = "the files that were kept lie beside it in before.bin and moved/"


def read_head(folder: Path) -> dict[str, Any]:
    """journal.json without a look at its hash: for lists."""
    if is_pointer(folder):
        target_of(folder)
    return _object(folder / JOURNAL)


def read_journal(layout: StoreLayout, folder: Path) -> Journalled:
    """The journal, its hash checked. CorruptError where it is not what was written; RefusedError for another format,
    or where it would change anything but this store, or knows it with another commitlog."""
    path = folder / JOURNAL
    text = _read(path)
    head = _object(path)
    digest = str(head.get("sha256"))
    if head.get("format") != FORMAT:
        raise RefusedError(
            f"was written in format {head.get('format')!r}, this version knows {FORMAT}",
            file=path,
            hint=f"use the version that wrote it: {head.get('version', 'unknown')}",
        )
    if hashlib.sha256(text.replace(digest.encode(), _NO_HASH.encode(), 1)).hexdigest() != digest:
        raise CorruptError("has changed since it was written: its SHA-256 is another", file=path, hint=_LOOK)
    rows, times = head.pop("operations", None), head.pop("times", None)
    is_whole = isinstance(rows, list) and isinstance(times, dict) and isinstance(head.get("moment_ns"), int)
    if not is_whole or not all(isinstance(time_ns, int) for time_ns in times.values()):
        raise CorruptError("holds no operations", file=path, hint=_LOOK)
    layout = remembered_layout(layout, path, head)
    reach = reach_of(layout, path, head)
    entries = [from_json(row, reach) for row in rows]
    return Journalled(folder, layout, head, entries, {layout.root / name: time_ns for name, time_ns in times.items()})


_UNTOUCHED = "nothing was changed now; `rmqctl undo` or `rmqctl resume` ends an unfinished change when the disk is well"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """While this process ends or forgets a change, no other one does. StoreInUseError if one is about to.

    The store's own lock is not for this: a broker that runs has it, and what is kept may be removed all the same.
    """
    try:
        descriptor = io.open_for_writing(folder / JOURNAL)  # nothing is written, but over NFS only so it can be locked
    except WriteFailedError as error:
        error.hint = joined_hints(error.hint, _UNTOUCHED)
        raise
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreInUseError(
                "another process undoes, resumes or prunes this change", file=folder, hint="wait until it is done"
            ) from error
        yield
    finally:
        os.close(descriptor)


def check_kept(journal: Journalled, *, for_redo: bool) -> None:
    """CorruptError unless before.bin (`for_redo`: after.bin too) and what was moved away are as they were written."""
    for name in (BEFORE, AFTER) if for_redo else (BEFORE,):
        path = journal.folder / name
        if not is_file(path) or file_sha256(path) != journal.head["files"].get(name):
            raise CorruptError("is not as it was written: its SHA-256 is another", file=path)
    for entry in journal.entries:
        if entry.moved is None or not exists(journal.folder / entry.moved):
            continue
        for item in entry.moved_items:
            if item.sha256 is not None or item.inode is not None:
                _check_moved(journal.folder / entry.moved / item.name, item)


def _check_moved(path: Path, item: TreeItem) -> None:
    """CorruptError unless a file that was moved away is as it was, as far as that can be known: a disk that does not
    give its bytes any more is no reason not to bring the file back."""
    status = path.lstat() if is_file(path) else None
    if status is not None and item.sha256 is not None:
        with suppress(UnreadableError):
            if file_sha256(path) == item.sha256:
                return
            raise CorruptError("was moved away and is not as it was: its SHA-256 is another", file=path)
    if status is None or status.st_size != item.size or not is_same_time(status.st_mtime_ns, item.mtime_ns):
        raise CorruptError("was moved away and is not as it was: its size or time is another", file=path)
    if item.inode is not None and status.st_ino != item.inode:
        raise CorruptError("was moved away and is not as it was: it could not be read, and is another", file=path)


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise CorruptError("is no JSON", file=path, hint=_LOOK) from error
    if not isinstance(found, dict):
        raise CorruptError("is no JSON object", file=path, hint=_LOOK)
    return found


def _read(path: Path) -> bytes:
    try:
        if not is_file(path) or path.stat().st_size > _LARGEST_JSON:
            raise CorruptError("is no file, or larger than any journal", file=path)
        return path.read_bytes()
    except OSError as error:
        raise unreadable(error, path) from error
