"""The operations of a journal as JSON, which files they may change, and what rmqctl itself stored."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, RefusedError, RmqctlError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, is_file_name
from rmqctl.store.files.reading import is_file, named
from rmqctl.store.journal.kept import TreeItem
from rmqctl.store.journal.plan import INSTALL, MOVE, OPERATIONS, Entry, Piece

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


def to_json(entry: Entry, root: Path) -> dict[str, Any]:
    """The entry for journal.json: only what its kind needs; paths below the store's root relative to it."""
    fields = {
        "offset": entry.offset,
        "length": entry.length,
        "after_at": entry.after_at,
        "new_size": entry.new_size,
        "before": [[piece.offset, piece.at, piece.length] for piece in entry.before],
        "directory": None if entry.directory is None else to_text(entry.directory, root),
        "directory_mtime_ns": entry.directory_mtime_ns,
        "made": [to_text(path, root) for path in entry.made],
        "moved": entry.moved,
        "moved_items": [_item_row(item) for item in entry.moved_items],
        "staged": entry.staged,
        "staged_items": [_item_row(item) for item in entry.staged_items],
    }
    found = {"kind": entry.kind, "path": to_text(entry.path, root), "size": entry.size, "mtime_ns": entry.mtime_ns}
    return found | {name: fields[name] for name in entry.operation.KEPT}


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
    if kind not in OPERATIONS:
        raise ValueError("of no known kind")
    return str(kind)


def _natural(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("not a size or offset")
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
        f"the journal would change {text!r}, which is not part of this store",
        file=reach.journal,
        hint="if the commitlog is elsewhere, give the broker.conf with -c (storePathCommitLog); if links lead "
        "elsewhere, the user who made the change can undo it while the links are unchanged",
    )


# The messages that rmqctl itself stored: lines of `stored.jsonl`, for `rmqctl log`. None of it can be undone.

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
