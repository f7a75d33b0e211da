"""The changes made to a store: which there were, which one is unfinished, and forgetting what they kept.

Changes that kept nothing (`clean`, `--no-journal`) and changes that were forgotten are lines of `history.jsonl`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from formats.errors import (
    CorruptError,
    NotFoundError,
    RefusedError,
    RmqctlError,
    UnreadableError,
    WriteFailedError,
)
from store.files import io
from store.files.journal_folder import (
    ABANDONED,
    APPLIED,
    FORMAT,
    INTERRUPTED,
    JOURNAL,
    UNDONE,
    UNFINISHED,
    held,
    read_head,
    read_state,
)
from store.files.layout import StoreLayout

HISTORY = "history.jsonl"
_LARGEST_HISTORY = 1 << 26
_ID = re.compile(r"\d{8}T\d{9}Z-[a-z]+")
PERMANENT, FORGOTTEN, DAMAGED = "permanent", "forgotten", "damaged"


class Change(NamedTuple):
    """One change. `state`: prepared, applied, undoing, undone; permanent (nothing was kept), interrupted (the same, not
    complete), forgotten (what was kept has been removed), abandoned (nothing was decided yet), damaged. `time` in ms;
    `kept_bytes` on disk now."""

    id: str
    verb: str
    state: str
    time: int
    paths: int
    bytes: int
    kept_bytes: int
    arguments: list[str]
    version: str
    folder: str | None

    @property
    def is_unfinished(self) -> bool:
        """Whether the store may be half changed."""
        return self.state in UNFINISHED


def changes(layout: StoreLayout) -> list[Change]:
    """All changes, the oldest first."""
    found = [*_history(layout), *(_change(folder) for folder in change_folders(layout))]
    return sorted(found, key=lambda change: (change.id, change.folder is not None))


def last_standing(layout: StoreLayout) -> Change | None:
    """The last change that has not been taken back: what `undo` is about; None if there is none."""
    standing = [change for change in changes(layout) if change.state not in (ABANDONED, UNDONE)]
    return standing[-1] if standing else None


def unfinished_change(layout: StoreLayout) -> str | None:
    """Id of a change that was interrupted, or is under way in another process; None if there is none."""
    for folder in reversed(change_folders(layout)):
        try:
            if read_state(folder)["state"] in UNFINISHED:
                return folder.name
        except CorruptError as error:
            error.hint = f"nobody knows whether this change is complete: look, then `rmqctl log --prune {folder.name}`"
            raise
    return None


def refuse_unfinished(layout: StoreLayout, *, mends: bool = False) -> None:
    """RefusedError if a change of the store was interrupted: nothing else may change it before that one is ended.

    One that kept nothing can only be ended by a command that `mends` the store whatever state it is in.
    """
    pending = unfinished_change(layout)
    if pending is None:
        return
    change = _change(layout.kept / pending)
    if change.state == INTERRUPTED:
        if not mends:
            raise interrupted_error(layout, change)
    else:
        raise RefusedError(
            f"the change {pending} was interrupted",
            file=layout.root,
            hint=f"`rmqctl undo -s {layout.root}` puts the store back as it was before, "
            f"`rmqctl resume -s {layout.root}` finishes it",
        )


def interrupted_error(layout: StoreLayout, change: Change) -> RefusedError:
    """What to say of an interrupted change that kept nothing."""
    return RefusedError(
        f"the change {change.id} was interrupted, and it kept nothing: there is no way back",
        file=layout.root,
        hint=f"run it again (`{shlex.join(['rmqctl', *change.arguments])}`), "
        f"or let `rmqctl recover -s {layout.root}` make the store whole",
    )


def end_interrupted(layout: StoreLayout, which: Callable[[dict[str, Any]], bool] = lambda head: True) -> None:
    """The store has been mended: interrupted changes that kept nothing are over, those of which `which` says
    so by their head (as in journal.json). Only under the store's lock."""
    for folder in change_folders(layout):
        state = read_state(folder)
        if state["state"] == INTERRUPTED and which(state):
            note_permanent(layout, state)
            remove_folder(folder)


def find_change(layout: StoreLayout, wanted: str) -> Change:
    """The change whose id is or begins with `wanted`. NotFoundError; RefusedError if several do."""
    every = changes(layout)
    found = [change for change in every if change.id == wanted] or [c for c in every if c.id.startswith(wanted)]
    if not found:
        raise NotFoundError(f"there is no change {wanted!r}", file=layout.kept, hint="`rmqctl log` lists them")
    if len(found) > 1:
        raise RefusedError(f"{len(found)} changes begin with {wanted!r}", file=layout.kept, hint="write the whole id")
    return found[0]


def new_head(layout: StoreLayout, verb: str, arguments: list[str] | None) -> dict[str, Any]:
    """What is noted of a change that begins now. Its id is `<time>-<verb>`."""
    from importlib.metadata import PackageNotFoundError, version

    moment_ns = time.time_ns()
    moment = moment_ns // 1_000_000
    while (layout.kept / (name := f"{_stamp(moment)}-{verb}")).exists():  # two within one millisecond
        moment += 1
    try:
        ours = version("rmqctl")
    except PackageNotFoundError:  # run from a copy of the source
        ours = "unknown"
    return {
        "format": FORMAT,
        "version": ours,
        "id": name,
        "verb": verb,
        "arguments": arguments or [],
        "store": str(layout.root.resolve()),
        "started": moment,
        "moment_ns": moment_ns,
    }


def _stamp(moment: int) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(moment // 1000)) + f"{moment % 1000:03d}Z"


def note_permanent(layout: StoreLayout, head: dict[str, Any]) -> None:
    """Add a change of which nothing is kept to the history."""
    _append(layout, {**head, "state": PERMANENT})


def forget(layout: StoreLayout, chosen: Iterable[Change]) -> int:
    """Remove what `chosen` changes kept, for good; their lines stay in the history. Returns the bytes freed.

    RefusedError for an unfinished change; StoreInUseError for one that another process is about to end.
    """
    freed = 0
    if layout.kept.is_symlink():
        raise RefusedError("is a link: nothing is removed behind it", file=layout.kept)
    for change in chosen:
        if change.is_unfinished:
            refuse_unfinished(layout)
        if change.folder is None:
            continue
        folder = Path(change.folder)
        with held(folder) if (folder / JOURNAL).is_file() else nullcontext():
            # since it was listed somebody may have begun to undo it
            state = _change(folder).state
            if state in UNFINISHED:
                refuse_unfinished(layout)
            if state in (APPLIED, UNDONE):
                row = change._asdict() | {"state": FORGOTTEN if state == APPLIED else UNDONE, "started": change.time}
                _append(layout, row)
            remove_folder(folder)
        freed += change.kept_bytes
    remove_if_empty(layout.kept)
    return freed


def remove_folder(folder: Path) -> None:
    """Remove the folder of a change, for good."""
    io.remove_tree(folder)
    io.flush_directory(folder.parent)


def remove_if_empty(kept: Path) -> None:
    """Remove the folder that holds those of changes, unless there is more in it."""
    with suppress(WriteFailedError):
        io.remove_directory(kept)
        io.flush_directory(kept.parent)


def change_folders(layout: StoreLayout) -> list[Path]:
    """The folders of all journals, the oldest first. UnreadableError."""
    try:
        names = sorted(os.listdir(layout.kept))
    except FileNotFoundError:
        return []
    except OSError as error:  # whether a change is unfinished cannot be known then
        raise UnreadableError(f"cannot be listed: {error.strerror}", file=layout.kept) from error
    # nothing else is ever looked at, let alone removed
    folders = [layout.kept / name for name in names if _ID.fullmatch(name)]
    return [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]


def _change(folder: Path) -> Change:
    verb = folder.name.partition("-")[2]
    kept = sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))
    try:
        found = read_state(folder)
        state = found["state"]
        head = found if state == INTERRUPTED else read_head(folder) if state != ABANDONED else {}
        return _named(folder.name, verb, state, head, kept, folder)
    except (RmqctlError, TypeError, ValueError):
        return Change(folder.name, verb, DAMAGED, 0, 0, 0, kept, [], "", str(folder))


def _named(name: str, verb: str, state: str, head: dict[str, Any], kept: int, folder: Path | None) -> Change:
    started, paths, size = (int(head.get(key) or 0) for key in ("started", "paths", "bytes"))
    arguments = [str(argument) for argument in head.get("arguments") or ()]
    place = None if folder is None else str(folder)
    return Change(name, verb, state, started, paths, size, kept, arguments, str(head.get("version", "")), place)


def _history(layout: StoreLayout) -> list[Change]:
    path = layout.kept / HISTORY
    if not path.is_file():
        return []
    if path.stat().st_size > _LARGEST_HISTORY:
        raise CorruptError("is larger than any history", file=path, hint="look what it is, then move it away")
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            found.append(_named(str(row["id"]), str(row["verb"]), str(row["state"]), row, 0, None))
        except (ValueError, TypeError, KeyError, RecursionError):  # the last line of a process that was killed
            continue
    return found


def _append(layout: StoreLayout, row: dict[str, Any]) -> None:
    path = layout.kept / HISTORY
    io.make_directories(path.parent, flushed=True)
    is_new = not path.exists()
    # first a newline: the line before may be half of one
    line = "\n" + json.dumps({name: row.get(name) for name in _KEPT_FIELDS}) + "\n"
    descriptor = io.open_for_writing(path, create=True)
    try:
        io.write_at(descriptor, path, os.fstat(descriptor).st_size, line.encode("ascii"))
        io.flush_descriptor(descriptor, path)
    finally:
        os.close(descriptor)
    if is_new:
        io.flush_directory(path.parent)


_KEPT_FIELDS = ("id", "verb", "state", "started", "paths", "bytes", "arguments", "version")
