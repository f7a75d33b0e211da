"""The changes made to a store: which there were, and which one is unfinished.

Those that kept nothing (`clean`, `--no-journal`) and those that were forgotten are lines of the history.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import (
    CorruptError,
    NotFoundError,
    RefusedError,
    RmqctlError,
    UnreadableError,
    joined_hints,
    unreadable,
)
from rmqctl.formats.notebook import as_html
from rmqctl.store.files import io
from rmqctl.store.files.io import tree_on_disk_bytes
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import StoreLock, take_lock
from rmqctl.store.files.reading import exists, is_file, is_real_directory, no_answer
from rmqctl.store.journal.folder import (
    ABANDONED,
    FORMAT,
    GIVEN_UP,
    INTERRUPTED,
    MENDED,
    MENDED_AFTER,
    TO_MEND,
    UNDONE,
    UNFINISHED,
    folder_of,
    is_known_complete,
    is_pointer,
    read_head,
    read_state,
    remove_folder,
    write_state,
)
from rmqctl.store.status import version
from rmqctl.store.store_files import refuse_dledger

# The history of a store's changes that keep nothing, or nothing any more: lines of `history.jsonl`.

HISTORY = "history.jsonl"
PERMANENT, FORGOTTEN = "permanent", "forgotten"
_LARGEST_HISTORY = 1 << 26
_KEPT_FIELDS = ("id", "verb", "state", "started", "paths", "bytes", "arguments", "version")


def history(layout: StoreLayout) -> list[dict[str, Any]]:
    """The lines, the oldest first, those that are none left out; of several with one id the last. CorruptError."""
    path = layout.kept / HISTORY
    if not is_file(path):
        return []
    if path.stat().st_size > _LARGEST_HISTORY:
        raise CorruptError("is larger than any history", file=path, hint="look what it is, then move it away")
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            found[str(row["id"])] = {**row, "verb": str(row["verb"]), "state": str(row["state"])}
        except (ValueError, TypeError, KeyError, RecursionError):  # the last line of a process that was killed
            continue
    return list(found.values())


def note(layout: StoreLayout, row: dict[str, Any]) -> None:
    """Add a line; durable when this returns."""
    path = layout.kept / HISTORY
    io.make_directories(path.parent)
    # first a newline: the line before may be half of one
    line = "\n" + json.dumps({name: row.get(name) for name in _KEPT_FIELDS}) + "\n"
    descriptor = io.open_for_writing(path, create=True)
    try:
        io.write_at(descriptor, path, _size_of(descriptor, path), line.encode("ascii"))
        io.flush_descriptor(descriptor, path)
    finally:
        os.close(descriptor)
    for directory in (path.parent, path.parent.parent):
        io.flush_directory(directory)


def _size_of(descriptor: int, path: Path) -> int:
    try:
        return os.fstat(descriptor).st_size
    except OSError as error:
        raise no_answer(error, path) from error


def note_permanent(layout: StoreLayout, head: dict[str, Any]) -> None:
    """Add a change of which nothing is kept."""
    note(layout, {**head, "state": PERMANENT})


VERB = re.compile("[a-z]+")
"""Names of the verbs that journals can be of."""
_ID = re.compile(rf"\d{{8}}T\d{{9}}Z-{VERB.pattern}")  # time-verb
DAMAGED = "damaged"


class Change(NamedTuple):
    """One change. `state`: prepared, applied, undoing, undone; permanent (nothing was kept), interrupted (the same, not
    complete), forgotten (what was kept has been removed), given-up (interrupted, and neither to be finished nor taken
    back), mended (the same, and the store has been made whole since), abandoned (nothing was decided yet), damaged.
    `time` in ms; `kept_bytes` on disk now; `messages_gone`: that it took out of the log."""

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
    messages_gone: int = 0

    def _repr_html_(self) -> str:
        return as_html(self)

    @property
    def is_unfinished(self) -> bool:
        """Whether the store may be half changed."""
        return self.state in UNFINISHED


def changes(layout: StoreLayout) -> list[Change]:
    """All changes, the oldest first."""
    found = {}
    for row in history(layout):
        with suppress(TypeError, ValueError):
            found[str(row["id"])] = _named(str(row["id"]), row["verb"], row["state"], row, 0, None)
    # of one that was about to be forgotten everything is there as long as its folder is
    found |= {folder.name: change_in(folder) for folder in folders(layout)}
    return sorted(found.values(), key=lambda change: change.id)


def last_standing(layout: StoreLayout) -> Change | None:
    """Return the last change that was not undone, which `undo` takes; None without one."""
    standing = [change for change in changes(layout) if change.state not in (ABANDONED, UNDONE)]
    return standing[-1] if standing else None


def unfinished_change(layout: StoreLayout) -> str | None:
    """Return the id of a change that was interrupted, or is running in another process; None without one."""
    return next((folder.name for folder, _ in unfinished(layout)), None)


def unfinished(layout: StoreLayout) -> list[tuple[Path, dict[str, Any]]]:
    """The folders of all such changes and their states, the last first. CorruptError where a state is damaged,
    UnreadableError where it is on a disk that is not there."""
    found = []
    for folder in reversed(known_folders(layout)):
        try:
            state = read_state(folder)
        except (CorruptError, UnreadableError) as error:
            known = error.hint if is_pointer(folder) else None
            error.hint = joined_hints(known, f"whether this change is complete is unknown; {way_out(layout)}")
            raise
        if state["state"] in UNFINISHED:
            found.append((folder, state))
    return found


def refuse_unfinished(layout: StoreLayout, *, mends: bool = False) -> None:
    """RefusedError if a change of the store was interrupted: nothing else may change it before that one is ended.

    One that kept nothing, or was given up, can only be ended by a command that `mends` the store in any state.
    """
    for folder, state in unfinished(layout):
        if state["state"] not in TO_MEND:
            raise RefusedError(f"the change {folder.name} was interrupted", file=layout.root, hint=how_to_end(layout))
        if not mends:
            raise to_mend_error(layout, change_in(folder))


def take_for_change(layout: StoreLayout, *, mends: bool = False, in_dledger: bool = False) -> StoreLock:
    """The store's lock. StoreInUseError; RefusedError where the store is another user's, or an interrupted change waits
    for undo or resume, or, unless what comes `mends` the store, for that. UnsupportedError for a DLedger store, unless
    what comes changes it as one (`in_dledger`)."""
    if not in_dledger:
        refuse_dledger(layout)
    lock = take_lock(layout)
    try:
        # under the lock: a change that is under way in another process is not an interrupted one
        refuse_unfinished(layout, mends=mends)
    except BaseException:
        lock.release()
        raise
    return lock


def how_to_end(layout: StoreLayout) -> str:
    """What to do about an interrupted change of which everything was kept."""
    where = f"-s {shlex.quote(str(layout.root))}"
    return f"`rmqctl undo {where}` puts the store back as it was before, `rmqctl resume {where}` finishes the change"


def way_out(layout: StoreLayout) -> str:
    """What to do where an interrupted change can be neither finished nor taken back."""
    where = f"-s {shlex.quote(str(layout.root))}"
    return (
        f"`rmqctl undo --give-up {where}` leaves the store as it is and keeps the saved data; then "
        f"`rmqctl recover {where}` recovers it from its log, with all messages stored since"
    )


def to_mend_error(layout: StoreLayout, change: Change) -> RefusedError:
    """What to say of a change that can only be ended by mending the store."""
    if change.state == GIVEN_UP:
        return RefusedError(
            f"the change {change.id} was interrupted and given up: the store needs recovery",
            file=layout.root,
            hint=f"run `rmqctl recover -s {shlex.quote(str(layout.root))}`; the saved data is in {change.folder}",
        )
    assert change.folder is not None
    return RefusedError(
        f"the change {change.id} was interrupted and kept nothing: it cannot be undone",
        file=layout.root,
        hint=how_to_end_for_good(layout, read_state(Path(change.folder))),
    )


def how_to_end_for_good(layout: StoreLayout, head: dict[str, Any]) -> str:
    """What to do about an interrupted change that kept nothing, by its head. Anyone may have stored messages since: one
    that takes messages away is not to be run again, because it would take these too."""
    mend = f"`rmqctl recover -s {shlex.quote(str(layout.root))}`"
    if head.get("verb") == "truncate" or head.get("messages_gone"):
        return (
            f"run {mend}: it keeps what is left, and all messages stored since; the same "
            "command again would delete those too"
        )
    again = f" (`{shlex.join(['rmqctl', *head['arguments']])}`)" if head.get("arguments") else ""
    return f"run it again{again}, or run {mend}"


def waits_for_mend(layout: StoreLayout) -> bool:
    """Whether a change was interrupted that kept nothing, or was given up: damage of its own may be anywhere."""
    return any(state["state"] in TO_MEND for _, state in unfinished(layout))


def end_interrupted(layout: StoreLayout, which: Callable[[dict[str, Any]], bool] = lambda head: True) -> None:
    """The store has been mended: interrupted changes that kept nothing, or were given up, are over, those of which
    `which` says so by their head (as in journal.json). Only under the store's lock."""
    for folder, state in unfinished(layout):
        if state["state"] == INTERRUPTED and which(state):
            note_permanent(layout, state)
            remove_folder(folder)
        elif state["state"] == GIVEN_UP and which(state):
            write_state(folder, **{**state, "state": MENDED, MENDED_AFTER: max(_ids(layout))})


def unmend(layout: StoreLayout, undone: str, started: int) -> None:
    """Mark changes as given up again that the change with the id `undone`, begun at `started`, has mended: it is about
    to be undone. Call only under the store's lock."""
    for folder in known_folders(layout):
        state = read_state(folder)
        if state["state"] != MENDED:
            continue
        # states of older versions have a time only
        is_of_it = state[MENDED_AFTER] >= undone if MENDED_AFTER in state else state["time"] >= started
        if is_of_it:
            write_state(folder, **{**state, "state": GIVEN_UP})


def find_change(layout: StoreLayout, wanted: str) -> Change:
    """The change whose id is or begins with `wanted`. NotFoundError; RefusedError if several do."""
    every = changes(layout)
    found = [change for change in every if change.id == wanted] or [c for c in every if c.id.startswith(wanted)]
    if not found:
        raise NotFoundError(f"there is no change {wanted!r}", file=layout.kept, hint="`rmqctl log` lists them")
    if len(found) > 1:
        raise RefusedError(f"{len(found)} changes begin with {wanted!r}", file=layout.kept, hint="write the whole id")
    return found[0]


def new_head(layout: StoreLayout, verb: str, arguments: list[str] | None, place: Path | None = None) -> dict[str, Any]:
    """Return the head of a change that begins now. Its id is `<time>-<verb>`, unique beside the store and in `place`.

    Ids give the order of changes. The time in an id is therefore later than that in every id of the store, even where
    the clock was set back; `started` is the time by the clock.
    """
    moment_ns = time.time_ns()
    now = moment_ns // 1_000_000
    sequence = max(now, _latest(layout) + 1)
    places = (layout.kept, place or layout.kept)
    while any(exists(one / f"{stamp(sequence)}-{verb}") for one in places):
        sequence += 1
    return {
        "format": FORMAT,
        "version": version(),
        "id": f"{stamp(sequence)}-{verb}",
        "verb": verb,
        "arguments": arguments or [],
        "store": str(layout.root.resolve()),
        "started": now,
        "moment_ns": moment_ns,
    }


def _ids(layout: StoreLayout) -> set[str]:
    """Return the ids of all changes, those that the history names included."""
    listed = (str(row["id"]) for row in history(layout))
    return {*(folder.name for folder in folders(layout)), *filter(is_id, listed)}


def _latest(layout: StoreLayout) -> int:
    """Return the latest time in an id, in ms; 0 without any change."""
    return max((id_time(name) for name in _ids(layout)), default=0)


def stamp(moment: int) -> str:
    """Return a time in ms as ids begin with it."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(moment // 1000)) + f"{moment % 1000:03d}Z"


def id_time(name: str) -> int:
    """Return the time in an id, in ms; 0 where it is not a date."""
    seconds, milliseconds = name[:15], name[15:18]
    try:
        return calendar.timegm(time.strptime(seconds, "%Y%m%dT%H%M%S")) * 1000 + int(milliseconds)
    except ValueError:
        return 0


def is_id(name: str) -> bool:
    """Return whether a change can have this id."""
    return _ID.fullmatch(name) is not None


def folders(layout: StoreLayout) -> list[Path]:
    """The folders of all changes that have one, the oldest first; a file for one that cannot be reached (see
    `elsewhere`)."""
    try:
        names = sorted(os.listdir(layout.kept))
    except FileNotFoundError:
        return []
    except OSError as error:  # whether a change is unfinished cannot be known then
        raise unreadable(error, layout.kept, "listed") from error
    # nothing else is ever looked at, let alone removed
    found = [layout.kept / name for name in names if is_id(name)]
    return [folder_of(path) for path in found if is_pointer(path) or is_real_directory(path)]


def known_folders(layout: StoreLayout) -> list[Path]:
    """The same without those on a disk that is not there, where it is known that the store is not half changed."""
    return [folder for folder in folders(layout) if not is_known_complete(folder)]


def change_in(folder: Path) -> Change:
    """The change whose journal is in this folder, as it is now."""
    try:
        return read_change(folder)
    except (RmqctlError, TypeError, ValueError):
        kept = tree_on_disk_bytes(folder)
        return Change(folder.name, _verb_of(folder), DAMAGED, 0, 0, 0, kept, [], "", str(folder))


def read_change(folder: Path) -> Change:
    """The same; RmqctlError, TypeError or ValueError if its journal does not say."""
    found = read_state(folder)
    state = found["state"]
    head = found if state in (*TO_MEND, MENDED) else read_head(folder) if state != ABANDONED else {}
    return _named(folder.name, _verb_of(folder), state, head, tree_on_disk_bytes(folder), folder)


def _verb_of(folder: Path) -> str:
    return folder.name.partition("-")[2]


def _named(name: str, verb: str, state: str, head: dict[str, Any], kept: int, folder: Path | None) -> Change:
    started, paths, size = (int(head.get(key) or 0) for key in ("started", "paths", "bytes"))
    arguments = [str(argument) for argument in head.get("arguments") or ()]
    place = None if folder is None else str(folder)
    gone = int(head.get("messages_gone") or 0)
    return Change(name, verb, state, started, paths, size, kept, arguments, str(head.get("version", "")), place, gone)
