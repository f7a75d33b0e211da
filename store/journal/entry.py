"""One operation of a journal, with all that is needed to carry it out again and to take it back; its form in JSON."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, RefusedError, RmqctlError, UnreadableError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, is_file_name
from rmqctl.store.files.reading import (
    data_extents,
    exists,
    is_directory,
    is_file,
    is_real_directory,
    is_same_time,
    is_there,
    named,
    pieces_of,
)
from rmqctl.store.journal.plan import (
    Blob,
    ClearRange,
    CreateFile,
    Install,
    MoveAway,
    Operation,
    Resize,
    SetTime,
    Spilled,
    WriteRange,
)

# Which files a journal may change: those of its store, and what the store's links and its configuration lead to.
#
# A journal may have been written by anyone, so where it leads out of the store's own directory it is believed only if
# it was written by this user, or root, for the store that stands here now.


@dataclass(frozen=True, slots=True)
class Reach:
    """What the journal `journal` of the store at `root` may change.

    `logs`: directories of the commitlog. `places`: where links out of the store led when the change was made, as real
    paths: directories, and single files.
    """

    journal: Path
    root: Path
    logs: tuple[Path, ...]
    places: tuple[Path, ...] = ()

    def holds(self, path: Path, *, is_directory: bool = False, is_moved: bool = False) -> bool:
        """Whether `path` may be changed; of a directory only the time is. What is moved is a link itself, and not what
        it leads to."""
        tops = (self.root, *self.logs)
        # the directory above a commitlog that stands elsewhere gets its time back too, but nothing else is done to it
        if not any(path.is_relative_to(top) or (is_directory and top.is_relative_to(path)) for top in tops):
            return False
        if is_directory or path in self.logs or (path.parent in self.logs and is_file_name(path.name)):
            return True
        real = Path(os.path.realpath(path.parent)) / path.name if is_moved else Path(os.path.realpath(path))
        return any(real.is_relative_to(top) for top in (Path(os.path.realpath(self.root)), *self.places))


def places_outside(layout: StoreLayout, directories: Iterable[Path], files: Iterable[Path]) -> list[str]:
    """The real paths of those that are not below the real path of the store: `directories` in which something comes
    or goes, and `files` whose bytes change."""
    root = os.path.realpath(layout.root)
    found = {os.path.realpath(path) for path in (*directories, *files)}
    return sorted(place for place in found if not Path(place).is_relative_to(root))


def reach_of(layout: StoreLayout, journal: Path, head: dict[str, Any]) -> Reach:
    """What a journal may change that has this `head`."""
    places = head.get("places") if is_believed(layout, journal, head) else ()
    logs = tuple(Path(os.path.abspath(directory)) for directory in layout.commitlog)
    return Reach(journal, layout.root, (*layout.commitlog, *logs), tuple(Path(str(place)) for place in places or ()))


def is_believed(layout: StoreLayout, journal: Path, head: dict[str, Any]) -> bool:
    """Whether a journal may lead out of the store's directory: written by this user or root, and for this very store,
    as a copy of a store has links to what is the other one's."""
    return _owner(journal) in (0, os.geteuid()) and head.get("store") == os.path.realpath(layout.root)


def _owner(path: Path) -> int:
    with named(path):
        return path.lstat().st_uid


def remembered_layout(layout: StoreLayout, journal: Path, head: dict[str, Any]) -> StoreLayout:
    """The store as the change of this journal knew it: with the commitlog where it was then.

    RefusedError where the configuration says something else, or where that has to be named by a configuration.
    """
    noted = head.get("commitlog")
    if not isinstance(noted, list) or not all(isinstance(text, str) and "\0" not in text for text in noted):
        return layout
    logs = tuple(layout.root / text for text in noted)
    if not logs or _real(logs) == _real(layout.commitlog):
        return layout
    is_default = layout.commitlog == (layout.root / "commitlog",)
    if is_default and is_believed(layout, journal, head):
        return StoreLayout(layout.root, logs)
    where = ", ".join(str(path) for path in logs)
    raise RefusedError(
        f"the change was made with the commitlog in {where}",
        file=journal,
        hint="name the broker.conf that says so with -c (storePathCommitLog)"
        if is_default
        else "the configuration says something else: use the one that the change was made with",
    )


def _real(paths: Iterable[Path]) -> set[str]:
    return {os.path.realpath(path) for path in paths}


CHUNK = 1 << 20
WRITE, CLEAR, RESIZE = WriteRange.__name__, ClearRange.__name__, Resize.__name__
CREATE, MOVE, INSTALL = CreateFile.__name__, MoveAway.__name__, Install.__name__
SET_TIME = SetTime.__name__
IN_PLACE = (WRITE, CLEAR, RESIZE, SET_TIME)


@dataclass(frozen=True, slots=True)
class Piece:
    """Old bytes: `length` of them, of byte `offset` of the file on, kept at byte `at` of before.bin."""

    offset: int
    at: int
    length: int


@dataclass(frozen=True, slots=True)
class TreeItem:
    """One file or directory of a tree. `name`: relative to the tree's top, "." for the top itself. `sha256` of files
    that are moved away; `size` is None for anything that is no regular file. `inode`: of one that is moved away
    although it cannot be read."""

    name: str
    size: int | None
    mtime_ns: int
    sha256: str | None = None
    inode: int | None = None


@dataclass(slots=True)
class Entry:
    """One operation. `size` and `mtime_ns` of `path` are those before the whole change, None where it did not exist.

    `offset`, `length`: the range that is written or cleared; `new_size`: of a file that is resized or created.
    `after_at`: where in after.bin the new bytes are. `moved`, `staged`: places in the journal's folder. `directory` is
    the nearest directory above `path` that existed, `made` those that are made below it. Paths are absolute.
    """

    kind: str
    path: Path
    size: int | None = None
    mtime_ns: int | None = None
    offset: int = 0
    length: int = 0
    new_size: int = 0
    after_at: int = 0
    before: list[Piece] = field(default_factory=list)
    moved: str | None = None
    staged: str | None = None
    moved_items: list[TreeItem] = field(default_factory=list)
    staged_items: list[TreeItem] = field(default_factory=list)
    directory: Path | None = None
    directory_mtime_ns: int = 0
    made: list[Path] = field(default_factory=list)


def new_entry(number: int, operation: Operation, folder: Path, before: Blob | None, after: Blob) -> Entry:
    """The entry of the operation with that `number`; what it needs is put into `before` (None: nothing is kept) and
    `after`. RefusedError for a file that cannot be changed as planned."""
    path = operation.path
    entry = Entry(type(operation).__name__, path)
    # bytes are changed where a link leads, while it is the link that is moved
    is_followed = entry.kind in IN_PLACE and exists(path)
    status = (path.stat() if is_followed else path.lstat()) if is_there(path) else None
    if status is not None:
        entry.size, entry.mtime_ns = status.st_size, status.st_mtime_ns
    match operation:
        case WriteRange():
            spilled = operation.data if isinstance(operation.data, Spilled) else after.put(operation.data)
            entry.offset, entry.length, entry.after_at = operation.offset, len(operation.data), spilled.position
            entry.before = _images(path, operation.offset, entry.length, before)
        case ClearRange():
            entry.offset, entry.length = operation.offset, operation.length
            entry.before = _images(path, operation.offset, operation.length, before)
        case Resize():
            entry.new_size = operation.size
            entry.before = _images(path, operation.size, max(0, (entry.size or 0) - operation.size), before)
        case SetTime():
            pass  # the time is among those of the journal, the one before is mtime_ns
        case CreateFile():
            if status is not None:
                raise RefusedError("was to be created but exists", file=path, hint="run the command again")
            entry.new_size = operation.size
        case MoveAway():
            entry.moved = f"moved/{number:06d}/{path.name}"
        case _:  # Install
            entry.staged = operation.staged.relative_to(folder).as_posix()
            entry.staged_items = list(tree_items(operation.staged))
            entry.moved = None if status is None else f"moved/{number:06d}/{path.name}"
    if entry.kind in IN_PLACE:
        _require_owner(path, status)
    else:
        _note_directory(entry)
        if entry.moved is not None:
            entry.moved_items = list(tree_items(path, with_hashes=before is not None))
    return entry


def _require_owner(path: Path, status: os.stat_result | None) -> None:
    """Only the owner can set a file's times, which an undo has to: better to know before anything changes."""
    if status is not None and os.geteuid() not in (0, status.st_uid):
        raise RefusedError(
            "belongs to another user, so its times could not be put back",
            file=path,
            hint="run the command as the user that the broker runs as",
        )


def _note_directory(entry: Entry) -> None:
    directory = entry.path.parent
    while not is_directory(directory):
        entry.made.append(directory)
        directory = directory.parent
    entry.directory, entry.directory_mtime_ns = directory, directory.stat().st_mtime_ns


def _images(path: Path, offset: int, length: int, blob: Blob | None) -> list[Piece]:
    """Old bytes of a range, holes left out."""
    pieces: list[Piece] = []
    if blob is None or not exists(path):  # nothing is kept; created earlier in the same plan
        return pieces
    end = min(offset + length, path.stat().st_size)
    for start, stop in data_extents(path, offset, end):
        position = start
        for data in pieces_of(path, start, stop - start, CHUNK):
            pieces.append(Piece(position, blob.put(data).position, len(data)))
            position += len(data)
    return pieces


def tree_items(top: Path, *, with_hashes: bool = False) -> Iterator[TreeItem]:
    """`top` and everything below it, in order of their names; links are not followed."""
    paths = [top, *sorted(top.rglob("*"))] if is_real_directory(top) else [top]
    for path in paths:
        status = path.lstat()
        is_file = stat.S_ISREG(status.st_mode)
        digest, inode = None, None
        if is_file and with_hashes:
            try:
                digest = file_sha256(path)
            except UnreadableError:  # a bad sector: the file can be moved all the same
                inode = status.st_ino
        name = path.relative_to(top).as_posix()
        yield TreeItem(name, status.st_size if is_file else None, status.st_mtime_ns, digest, inode)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hex. UnreadableError."""
    digest = hashlib.sha256()
    for data in pieces_of(path, 0, 1 << 62):
        digest.update(data)
    return digest.hexdigest()


def is_same(top: Path, found: list[TreeItem], expected: list[TreeItem]) -> bool:
    """Whether the files `found` below `top` are those expected: by name, size and time, which a power cut may take back
    in part, or else their hash."""
    known = {item.name: item for item in expected if item.size is not None}
    if known.keys() != {item.name for item in found}:
        return False
    for item in found:
        wanted = known[item.name]
        if item.size != wanted.size:
            return False
        if not is_same_time(item.mtime_ns, wanted.mtime_ns) and (
            wanted.sha256 is None or file_sha256(top / item.name) != wanted.sha256
        ):
            return False
    return True


def first_changed(found: list[TreeItem], expected: list[TreeItem]) -> str | None:
    """Return the name of the first item that differs from the one expected, "." for a tree that lacks one; None where
    both trees are the same. File times are compared as a file system keeps them."""
    known = {item.name: item for item in expected}
    for item in found:
        wanted = known.pop(item.name, None)
        if wanted is None or not is_same_time(item.mtime_ns, wanted.mtime_ns):
            return item.name
        if replace(item, mtime_ns=wanted.mtime_ns) != wanted:
            return item.name
    return "." if known else None


def to_json(entry: Entry, root: Path) -> dict[str, Any]:
    """The entry for journal.json: only what its kind needs; paths below the store's root relative to it."""
    found: dict[str, Any] = {"kind": entry.kind, "path": to_text(entry.path, root)}
    found |= {"size": entry.size, "mtime_ns": entry.mtime_ns}
    if entry.kind in (WRITE, CLEAR):
        found |= {"offset": entry.offset, "length": entry.length}
    if entry.kind == WRITE:
        found["after_at"] = entry.after_at
    if entry.kind in (RESIZE, CREATE):
        found["new_size"] = entry.new_size
    if entry.kind in IN_PLACE:
        found["before"] = [[piece.offset, piece.at, piece.length] for piece in entry.before]
    else:
        assert entry.directory is not None
        found |= {"directory": to_text(entry.directory, root), "directory_mtime_ns": entry.directory_mtime_ns}
        found["made"] = [to_text(path, root) for path in entry.made]
    if entry.kind in (MOVE, INSTALL):
        found["moved"] = entry.moved
        found["moved_items"] = [_item_row(item) for item in entry.moved_items]
    if entry.kind == INSTALL:
        found["staged"] = entry.staged
        found["staged_items"] = [_item_row(item) for item in entry.staged_items]
    return found


def _item_row(item: TreeItem) -> list[Any]:
    row = [item.name, item.size, item.mtime_ns, item.sha256]
    return row if item.inode is None else [*row, item.inode]


def to_text(path: Path, root: Path) -> str:
    """A path as journal.json has it."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else os.path.abspath(path)


def from_json(row: dict[str, Any], reach: Reach) -> Entry:
    """The entry that `row` describes. CorruptError if it makes no sense, RefusedError if it would change something
    out of `reach`: a journal may have been written by anyone."""
    try:
        kind = _one_of(row["kind"])
        entry = Entry(
            kind,
            _to_path(row["path"], reach, is_moved=kind in (MOVE, INSTALL)),
            None if row["size"] is None else _natural(row["size"]),
            None if row["mtime_ns"] is None else int(row["mtime_ns"]),
            offset=_natural(row.get("offset", 0)),
            length=_natural(row.get("length", 0)),
            new_size=_natural(row.get("new_size", 0)),
            after_at=_natural(row.get("after_at", 0)),
        )
        entry.before = [Piece(*map(_natural, piece)) for piece in row.get("before", ())]
        entry.moved = _inside(row.get("moved"), "moved")
        entry.staged = _inside(row.get("staged"), "staged")
        entry.moved_items = [TreeItem(*item) for item in row.get("moved_items", ())]
        entry.staged_items = [TreeItem(*item) for item in row.get("staged_items", ())]
        if "directory" in row:
            entry.directory = _to_path(row["directory"], reach, is_directory=True)
            entry.directory_mtime_ns = int(row["directory_mtime_ns"])
            entry.made = [_to_path(text, reach) for text in row["made"]]
        if entry.kind == INSTALL and entry.staged is None:
            raise ValueError("nothing is staged")
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"an operation of the journal makes no sense: {error}", file=reach.journal) from error
    return entry


def _one_of(kind: object) -> str:
    if kind not in (*IN_PLACE, CREATE, MOVE, INSTALL):
        raise ValueError("of no known kind")
    return str(kind)


def _natural(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("a size or offset is none")
    return value


def _inside(text: object, place: str) -> str | None:
    if text is None:
        return None
    parts = PurePosixPath(str(text)).parts
    if len(parts) < 2 or parts[0] != place or ".." in parts or "\0" in str(text):
        raise ValueError(f"not a place in {place}/")
    return str(text)


def _to_path(text: object, reach: Reach, *, is_directory: bool = False, is_moved: bool = False) -> Path:
    if not isinstance(text, str) or "\0" in text or ".." in PurePosixPath(text).parts:
        raise ValueError("not a path")
    path = reach.root / text
    if path == reach.root and not is_directory:
        raise ValueError("the store itself")
    if reach.holds(path, is_directory=is_directory, is_moved=is_moved):
        return path
    raise RefusedError(
        f"the journal would change {text!r}, which is no part of this store",
        file=reach.journal,
        hint="if the commitlog stands elsewhere, name the broker.conf with -c (storePathCommitLog); where links lead "
        "elsewhere, the user who made the change can take it back as long as they are as they were",
    )


# The messages that rmqctl itself stored: lines of `stored.jsonl`, for `rmqctl log`. None of it can be undone.

STORED = "stored"
"""State of such a line in `rmqctl log`."""
_FILE = "stored.jsonl"
_LARGEST = 1 << 20
"""Bytes from which on the older half of the lines is dropped."""


class Stored(NamedTuple):
    """Messages stored by one command: `time` in ms, [begin, end) physical offsets."""

    verb: str
    arguments: list[str]
    time: int
    begin: int
    end: int


def note_stored(layout: StoreLayout, verb: str, arguments: list[str], begin: int, end: int) -> None:
    """Add a line, unless nothing was stored. Raises: WriteFailedError."""
    if end <= begin:
        return
    path = layout.kept / _FILE
    io.make_directories(path.parent)
    row = Stored(verb, arguments, time.time_ns() // 1_000_000, begin, end)
    lines = [*_lines(layout), json.dumps(row._asdict())]
    if sum(map(len, lines)) > _LARGEST:
        lines = lines[len(lines) // 2 :]
    io.write_whole(path, ("\n".join(lines) + "\n").encode("ascii"))


def stored(layout: StoreLayout) -> list[Stored]:
    """Return what was stored, the oldest first; lines that do not parse are left out."""
    found = []
    for line in _lines(layout):
        with suppress(ValueError, TypeError, KeyError):
            row: dict[str, Any] = json.loads(line)
            arguments = [str(one) for one in row["arguments"]]
            numbers = int(row["time"]), int(row["begin"]), int(row["end"])
            found.append(Stored(str(row["verb"]), arguments, *numbers))
    return found


def _lines(layout: StoreLayout) -> list[str]:
    path = layout.kept / _FILE
    try:
        if not is_file(path) or os.stat(path).st_size > 2 * _LARGEST:
            return []
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except (OSError, RmqctlError):
        return []
