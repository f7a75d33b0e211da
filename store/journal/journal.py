"""The frame of every change, and the journal by which it is carried out and taken back.

What a plan replaces and what it brings is on disk beside the store before its first byte changes.

A journal is a folder `<store>.rmqctl/<time>-<verb>/` with `journal.json` and `state.json` (see journal_folder),
`before.bin` (bytes that were there), `after.bin` (bytes to come), `moved/` (files and directories taken out) and
`staged/` (files made beforehand).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import (
    DiskFullError,
    RmqctlError,
    UnreadableError,
    UsageError,
    WriteFailedError,
    joined_hints,
)
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.io import flush_tree
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.outputs import Sharing, copy_sparsely
from rmqctl.store.files.reading import exists, is_directory, is_file, is_link, named, pieces_of
from rmqctl.store.journal.entry import places_outside, to_json, to_text
from rmqctl.store.journal.folder import (
    APPLIED,
    INTERRUPTED,
    JOURNAL,
    STATE,
    UNDOING,
    UNDONE,
    is_pointer,
    place_for,
    point_to,
    read_state,
    remove_folder,
    remove_if_empty,
    remove_journal,
    tell_begun,
    write_journal,
    write_state,
)
from rmqctl.store.journal.kept import AFTER, BEFORE, Blob, Spilled, clear_interrupted, coming, only_counted
from rmqctl.store.journal.log import (
    VERB,
    end_interrupted,
    folders,
    how_to_end,
    how_to_end_for_good,
    new_head,
    note_permanent,
    refuse_unfinished,
    take_for_change,
)
from rmqctl.store.journal.plan import CREATE, RESIZE, Entry, Install, Keeping, MoveAway, Operation, Plan, new_entry
from rmqctl.store.journal.used import digest_outside, flush_marked, marks_with_lock, name_of, ranges_of
from rmqctl.store.options import ChangeOptions
from rmqctl.store.store_files import StoreFiles, refuse_dledger

# Carries out the operations of a journal: each is read back, everything is flushed, all of it carries one time.

SINGLE = "single"
"""In the journal's folder: a copy on its way to where a file with several names is to be changed."""


def carry_out(
    folder: Path, entries: list[Entry], moment_ns: int, times: Mapping[Path, int], *, keeps: bool = True
) -> None:
    """Carry out all of `entries`, none of which has been, and none of which changes what a later one moves. Without
    `keeps` what would be moved away is removed.

    Changed and new files and directories get the time `moment_ns`, or theirs in `times`, so that the outcome is
    the same however often it took to get there. WriteFailedError where a write fails or reads back differently.
    """
    touched: dict[Path, None] = {}
    for path in dict.fromkeys(entry.path for entry in entries if entry.is_in_place):
        if exists(path):
            make_single(folder, path)
    for entry in entries:
        entry.operation.apply(entry, folder, keeps)
        # at once: a later operation may change the same bytes or move the file away
        if not entry.operation.is_done(entry, folder):
            raise WriteFailedError("reads back differently from what was written", file=entry.path)
        if entry.is_in_place or entry.kind == CREATE:
            touched[entry.path] = None
    for path in touched:
        io.set_modified(path, times.get(path, moment_ns))
        io.flush_file(path)
    for directory in changed_directories(entries):
        io.set_modified(directory, moment_ns)
        io.flush_directory(directory)
    for directory in dict.fromkeys((folder / entry.staged).parent for entry in entries if entry.staged is not None):
        io.flush_directory(directory)


def make_single(folder: Path, path: Path) -> None:
    """Give a file with several names (a snapshot by hard links) bytes of its own: the others keep theirs.

    `folder`: of the journal, where the copy is made; where that is on another disk it is made beside the file, as a
    move would.
    """
    path = Path(os.path.realpath(path))  # the link stays
    if path.stat().st_nlink == 1:
        return
    directory_time = path.parent.stat().st_mtime_ns
    copy = folder / SINGLE
    if path.stat().st_dev != folder.stat().st_dev:
        copy = coming(path)
    if exists(copy):
        io.remove(copy)
    copy_sparsely(path, copy, path.stat().st_size, Sharing.AUTO)
    io.rename(copy, path)
    io.set_modified(path.parent, directory_time)
    io.flush_directory(path.parent)
    io.flush_directory(folder)


def changed_directories(entries: list[Entry]) -> list[Path]:
    """Directories whose entries change, or that are new, as far as they exist: the deepest first."""
    found: dict[Path, None] = {}
    for entry in entries:
        if entry.directory is not None:
            found |= dict.fromkeys([*entry.made, entry.directory])
    return sorted((path for path in found if is_directory(path)), key=lambda path: len(path.parts), reverse=True)


# Takes a change back: whatever part of it was carried out, or taken back already, the store is as it was before.
#
# Every step looks at what is there, so that it may be interrupted anywhere and begun again. Files first come back to
# their places, the last operation first; then bytes and sizes; then times.


def roll_back(folder: Path, entries: list[Entry]) -> None:
    """Make the store what it was before `entries`; what they installed is in `staged/` again afterwards.

    CorruptError where a kept file is gone; WriteFailedError.
    """
    back: dict[Path, int] = {}
    for entry in reversed(entries):
        entry.operation.revert(entry, folder, back)
    files: dict[Path, list[Entry]] = {}
    for entry in entries:
        if entry.is_in_place and entry.size is not None:
            files.setdefault(entry.path, []).append(entry)
    for path, changes in files.items():
        _restore(folder, path, changes)
    _restore_directories(entries, back)


def _restore(folder: Path, path: Path, changes: list[Entry]) -> None:
    """Size and bytes of one file that was changed in place, and its time."""
    size, mtime_ns = changes[0].size, changes[0].mtime_ns
    assert size is not None
    assert mtime_ns is not None
    clear_interrupted(Path(os.path.realpath(path)))
    # a snapshot by hard links may have been taken since
    make_single(folder, path)
    if path.stat().st_size != size:
        io.truncate(path, size)
    descriptor = io.open_for_writing(path)
    try:
        for change in changes:
            for offset, data in change.operation.old_bytes(change, size, folder / BEFORE):
                if not _stands(path, offset, data):
                    io.write_at(descriptor, path, offset, data)
    finally:
        os.close(descriptor)
    io.set_modified(path, mtime_ns)
    io.flush_file(path)


def _stands(path: Path, offset: int, data: bytes) -> bool:
    """Whether the bytes are there. Unreadable bytes are written again, which repairs a bad sector."""
    try:
        return b"".join(pieces_of(path, offset, len(data))) == data
    except UnreadableError:
        return False


def _restore_directories(entries: list[Entry], back: dict[Path, int]) -> None:
    made = {path for entry in entries for path in entry.made}
    for directory in sorted(made, key=lambda path: len(path.parts), reverse=True):
        if is_directory(directory):
            io.remove_directory(directory)
    times = dict(back)
    for entry in entries:
        if entry.directory is not None:
            times.setdefault(entry.directory, entry.directory_mtime_ns)
    for path, mtime_ns in sorted(times.items(), key=lambda item: len(item[0].parts), reverse=True):
        if exists(path):
            io.set_modified(path, mtime_ns)
    for directory in changed_directories(entries):
        io.flush_directory(directory)


# What an error means once a change has begun: the store is between two states, and the error says how to end that.


@contextmanager
def begun(hint: str, root: Path, has_begun: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Any error of reading or writing in the block, which changes the store at `root`, is a WriteFailedError that ends
    with `hint`; where nothing `has_begun` yet an error of reading stays what it is."""
    try:
        yield
    except WriteFailedError as error:
        error.hint = joined_hints(error.hint, hint)
        raise
    except (UnreadableError, OSError) as error:
        if not has_begun():
            raise
        told = error if isinstance(error, UnreadableError) else _named(error, root)
        raise WriteFailedError(told.message, file=told.file, hint=joined_hints(told.hint, hint)) from error


def _named(error: OSError, root: Path) -> UnreadableError:
    return UnreadableError(f"I/O error: {error.strerror or error}", file=error.filename or root)


# Which sizes an interrupted change that kept nothing had chosen: once the old files are gone, only its note tells.

SIZES = "sizes"
"""In the head of a change: sizes by the names of StoreConfig."""


def interrupted_sizes(layout: StoreLayout) -> dict[str, int]:
    """Return sizes by the names of StoreConfig, of the last such change; {} without one."""
    for folder in reversed(folders(layout)):
        try:
            head = read_state(folder)
        except RmqctlError:  # whoever changes the store is told; a size is not to be had from it
            continue
        sizes = head.get(SIZES)
        if head["state"] == INTERRUPTED and isinstance(sizes, dict):
            return {str(name): size for name, size in sizes.items() if isinstance(size, int) and size > 0}
    return {}


def keep_interrupted_sizes(files: StoreFiles) -> None:
    """Make new files as a change that was interrupted and kept nothing had begun to, where the configuration says
    nothing else: before queues and index are changed."""
    known = {name: size for name, size in interrupted_sizes(files.layout).items() if name in StoreConfig._fields}
    missing = {name: size for name, size in known.items() if getattr(files.config, name) is None}
    if missing:
        files.take_sizes(missing)


class Journal:
    """One change of a store. Made empty, so that files can be staged in it before the plan is complete.

    Without `keeps` nothing of the old state is kept: the change cannot be undone, and after a crash in the middle of it
    a command that mends has to be run (`refuse_unfinished` says so).
    """

    def __init__(
        self,
        layout: StoreLayout,
        verb: str,
        arguments: list[str] | None = None,
        *,
        keeps: bool = True,
        sizes: Mapping[str, int] | None = None,
        journal_in: Path | None = None,
    ) -> None:
        """`sizes`: of the files that will be made, see `interrupted_sizes`. `journal_in`: see `place_for`."""
        self.layout = layout
        self.keeps = keeps
        place = place_for(layout, journal_in)
        self._head = new_head(layout, verb, arguments, place)
        self._sizes = dict(sizes or {})
        self._moment_ns = int(self._head["moment_ns"])
        self.folder = place / str(self._head["id"])
        self._is_beside = place == layout.kept
        self._after = Blob(self.folder / AFTER)

    def begin(self) -> None:
        """Take a place on another disk, if that is where the journal is to be: better to know before planning."""
        if not self._is_beside and not is_pointer(self.layout.kept / self.folder.name):
            point_to(self.layout, self.folder)

    @property
    def kept_in(self) -> str | None:
        """The folder for a report; None where nothing is kept."""
        return str(self.folder) if self.keeps else None

    @property
    def staging(self) -> Path:
        """Folder for files that a plan installs."""
        path = self.folder / "staged"
        io.make_directories(path)
        return path

    def spill(self, data: bytes) -> Spilled:
        """Put bytes that a plan is going to write into the journal at once, so that they need not be kept in memory."""
        return self._after.put(data)

    def discard(self) -> None:
        """Remove the journal of a plan that is not carried out."""
        self._after.close()
        if is_directory(self.folder) or is_pointer(self.layout.kept / self.folder.name):
            remove_journal(self.layout, self.folder)
        for kept in dict.fromkeys((self.folder.parent, self.layout.kept)):
            remove_if_empty(kept)

    def apply(self, plan: Plan) -> None:
        """Prepare, carry out, verify. After an error the journal stays `prepared`; Ctrl-C takes the change back.

        UnreadableError or WriteFailedError where nothing had begun; once it had, WriteFailedError with a hint.
        """
        with self.planning():
            self.begin()
            io.make_directories(self.folder)
        if not self.keeps:
            self._apply_for_good(plan)
            return
        with self.planning():
            entries = self._prepare(plan)
        with begun(how_to_end(self.layout), self.layout.root):
            try:
                carry_out(self.folder, entries, self._moment_ns, plan.times)
            except KeyboardInterrupt:
                write_state(self.folder, UNDOING)
                roll_back(self.folder, entries)
                write_state(self.folder, UNDONE)
                tell_begun(self.layout, self.folder, False)
                raise
            write_state(self.folder, APPLIED, marks=marks_with_lock(self.layout))
            tell_begun(self.layout, self.folder, False)

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Where what is done in the block fails, the journal goes: nothing of the store was touched, so nothing is to
        be undone. UnreadableError for what cannot be read."""
        try:
            with named(self.layout.root):
                yield
        except BaseException as error:
            try:
                self.discard()
            except (RmqctlError, OSError):
                if is_file(self.folder / JOURNAL) and isinstance(error, RmqctlError):
                    error.hint = joined_hints(error.hint, how_to_end(self.layout))
            raise

    def _prepare(self, plan: Plan) -> list[Entry]:
        """Write before.bin, after.bin and journal.json; from then on the change is to be finished or taken back."""
        flush_marked(self.layout)
        marks = marks_with_lock(self.layout)
        with Blob(self.folder / BEFORE) as before, self._after as after:
            entries = [
                new_entry(operation, Keeping(number, self.folder, before, after))
                for number, operation in enumerate(_expanded(plan))
            ]
        staged = self.folder / "staged"
        if is_directory(staged):
            flush_tree(staged)
        io.flush_directory(self.folder)
        io.flush_directory(self.folder.parent)
        io.flush_directory(self.folder.parent.parent)
        files = {BEFORE: before.sha256, AFTER: after.sha256}
        head = {**self._head, "files": files, **_extent(plan, entries), **self._surroundings(entries), "marks": marks}
        head["times"] = {to_text(path, self.layout.root): time_ns for path, time_ns in plan.times.items()}
        tell_begun(self.layout, self.folder, True)
        write_journal(self.folder, head, [to_json(entry, self.layout.root) for entry in entries])
        return entries

    def _surroundings(self, entries: list[Entry]) -> dict[str, object]:
        """What an undo has to know of the store: where its commitlog and its links lead, and what stays in files that
        are changed in place."""
        changed: dict[Path, list[Entry]] = {}
        for entry in entries:
            if entry.is_in_place and entry.size is not None:
                changed.setdefault(entry.path, []).append(entry)
        directories = [entry.directory for entry in entries if entry.directory is not None]
        root = self.layout.root
        return {
            "commitlog": [name_of(directory, self.layout) for directory in self.layout.commitlog],
            "places": places_outside(self.layout, directories, changed),
            "outside": {to_text(path, root): digest_outside(path, ranges_of(of)) for path, of in changed.items()},
        }

    def _apply_for_good(self, plan: Plan) -> None:
        with self.planning():
            with self._after as after:
                entries = [
                    new_entry(operation, Keeping(number, self.folder, None, after))
                    for number, operation in enumerate(_expanded(plan))
                ]
            for directory in (self.folder, self.folder.parent, self.folder.parent.parent):
                io.flush_directory(directory)
            head = {**self._head, **_extent(plan, entries)}
        with begun(f"nothing was kept: {how_to_end_for_good(self.layout, head)}", self.layout.root):
            # nothing else tells what the files were like once the old ones are gone
            write_state(self.folder, INTERRUPTED, **head, **{SIZES: self._sizes})
            carry_out(self.folder, entries, self._moment_ns, plan.times, keeps=False)
            note_permanent(self.layout, head)
            remove_folder(self.folder)


def _extent(plan: Plan, entries: list[Entry]) -> dict[str, int]:
    """How much a change changes: paths; bytes that are overwritten, cut off or moved away; messages."""
    cut = sum(entry.size - entry.new_size for entry in entries if entry.kind == RESIZE and entry.size is not None)
    moved = sum(item.size or 0 for entry in entries for item in entry.moved_items)
    return {
        "paths": len(plan.paths()),
        "bytes": plan.changed_bytes() + max(0, cut) + moved,
        "messages_gone": plan.messages_gone,
        "messages_made": plan.messages_made,
    }


def _expanded(plan: Plan) -> list[Operation]:
    """The operations as they are carried out. A folder that is a link to one elsewhere stays one: what is in it is
    exchanged. What is going to be taken out need not be changed before."""
    found: list[Operation] = []
    going: set[Path] = set()
    for operation in reversed(plan.operations):
        path = operation.path
        goes = isinstance(operation, (MoveAway, Install))
        if not goes and not going.isdisjoint((path, *path.parents)):
            continue
        if goes:
            going.add(path)
        if isinstance(operation, Install) and is_link(path) and is_directory(path) and is_directory(operation.staged):
            coming = {path / below.name: below for below in sorted(operation.staged.iterdir(), reverse=True)}
            found += [Install(staged, place) for place, staged in coming.items()]
            found += [MoveAway(below) for below in sorted(path.iterdir(), reverse=True) if below not in coming]
        else:
            found.append(operation)
    return found[::-1]


# The frame of every change that mends a store: lock, journal, plan, apply, end, release; or a dry run of it.

# A store taken in order to change it: first its lock, then a look at its files; nothing seen before that counts.


@contextmanager
def taken(files: StoreFiles, *, mends: bool = False, in_dledger: bool = False) -> Iterator[StoreFiles]:
    """Return the store of `files`, opened again under its lock: another process may have changed or created it since
    `files` was opened. Every change decides and plans by what it gets here.

    StoreInUseError; RefusedError where an interrupted change waits for undo or resume (unless what comes `mends`). An
    OSError of reading in the block is an UnreadableError.
    """
    lock = take_for_change(files.layout, mends=mends, in_dledger=in_dledger)
    try:
        with named(files.root), StoreFiles(files.root, files.config) as now:
            now.is_taken = True
            if mends:
                keep_interrupted_sizes(now)
            yield now
    finally:
        lock.release()


_CLEAN = "`rmqctl clean --crashed` removes expired files even of a store that was not closed cleanly"
_NOTHING_CHANGED = "the store is unchanged"
_DONE = "the change itself is complete: `rmqctl log` lists it, and running the command again ends what is left"
Ends = Callable[[dict[str, Any]], bool]
"""Whether a change ends an interrupted one that kept nothing or was given up, by that one's head."""


@dataclass(slots=True)
class PlannedChange:
    """A change that is being planned. `files`: the store to decide by; `plan`: what is to be done, empty at first.

    `journal` is None in a dry run. `kept_in`: the folder that keeps what went, once the change is done.
    """

    files: StoreFiles
    journal: Journal | None = None
    options: ChangeOptions = ChangeOptions()
    plan: Plan = field(default_factory=Plan)
    kept_in: str | None = None

    @property
    def is_dry(self) -> bool:
        """Whether the plan is only to be shown."""
        return self.journal is None

    def spill(self, data: bytes) -> Spilled:
        """Take bytes that the plan is going to write, so that they need not be kept in memory."""
        return only_counted(data) if self.journal is None else self.journal.spill(data)

    @property
    def staging(self) -> Callable[[], Path] | None:
        """What gives the folder for files that the plan installs; None in a dry run."""
        journal = self.journal
        return None if journal is None else lambda: journal.staging

    def rows(self) -> list[dict[str, Any]]:
        """The plan for a report, before it is carried out."""
        return [operation.describe(self.files.root) for operation in self.plan.operations]


@contextmanager
def changing(
    files: StoreFiles,
    verb: str,
    options: ChangeOptions,
    ends: Ends = lambda head: True,
    *,
    mends: bool = True,
    in_dledger: bool = False,
) -> Iterator[PlannedChange]:
    """A change of the store of `files` (which is stale afterwards) by the command `verb`.

    The block plans with what it gets: the store opened again under its lock, and a plan to fill. Nothing of the store
    is touched in it, and where it fails nothing is left. After it the plan is carried out, and interrupted changes of
    which `ends` says so are over: the store has been mended. A plan of nothing leaves no journal. In a dry run nothing
    is locked, and nothing follows. `mends`: the change repairs the store, in any state that an earlier change left.

    StoreInUseError; RefusedError where another change waits for undo or resume; UnsupportedError for a DLedger store,
    unless the change is made for one (`in_dledger`); UsageError for a change that does not mend and is to keep nothing;
    ValueError for a verb that `log` and `undo` would not find again; and as Journal.apply.
    """
    if VERB.fullmatch(verb) is None:
        raise ValueError(f"{verb!r} is not the name of a verb: {VERB.pattern}")
    if not mends and not options.keep_undo:
        raise UsageError(f"`{verb}` always keeps what it changes", hint="leave out `keep_undo`")
    if options.dry_run:
        with named(files.root):
            if not in_dledger:
                refuse_dledger(files.layout)
            refuse_unfinished(files.layout, mends=mends)
            if mends:
                keep_interrupted_sizes(files)
            yield PlannedChange(files, options=options)
        return
    with taken(files, mends=mends, in_dledger=in_dledger) as store:
        journal = Journal(
            store.layout,
            verb,
            options.command_line,
            keeps=options.keep_undo,
            sizes=store.sizes(),
            journal_in=options.journal_in,
        )
        change = PlannedChange(store, journal, options)
        with _naming_other_disks(journal, options):
            with journal.planning():
                journal.begin()
                yield change
                loss = change.plan.loss(keep_undo=options.keep_undo)
                if options.confirm is not None and any(loss):
                    options.confirm(loss)
            if change.plan:
                # over NFS a file that is removed while it is open stays, and keeps its folder from being removed
                store.close()
                files.close()
                journal.apply(change.plan)
                change.kept_in = journal.kept_in
            else:
                journal.discard()
        with begun(_DONE if change.plan else _NOTHING_CHANGED, store.root):
            end_interrupted(store.layout, ends)


@contextmanager
def _naming_other_disks(journal: Journal, options: ChangeOptions) -> Iterator[None]:
    """Add hints about other disks to an error of a journal without space, after which the store is unchanged."""
    try:
        yield
    except DiskFullError as error:
        if not is_file(journal.folder / JOURNAL) and not is_file(journal.folder / STATE):
            elsewhere = "another DIR" if options.journal_in is not None else "DIR on another disk"
            error.hint = joined_hints(error.hint, f"`--journal` with {elsewhere} keeps there what is removed", _CLEAN)
        raise
