"""Carries out a plan: what it replaces and what it brings is on disk beside the store before its first byte changes.

A journal is a folder `<store>.rmqctl/<time>-<verb>/` with `journal.json` and `state.json` (see journal_folder),
`before.bin` (bytes that were there), `after.bin` (bytes to come), `moved/` (files and directories taken out) and
`staged/` (files made beforehand).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rmqctl.formats.errors import RmqctlError, UnreadableError, WriteFailedError, joined_hints
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.io import flush_tree
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import is_directory, is_file, is_link, named
from rmqctl.store.journal.carry_out import carry_out, roll_back
from rmqctl.store.journal.entry import places_outside, to_json, to_text
from rmqctl.store.journal.folder import (
    APPLIED,
    INTERRUPTED,
    JOURNAL,
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
from rmqctl.store.journal.kept import AFTER, BEFORE, Blob, Spilled
from rmqctl.store.journal.log import folders, how_to_end, how_to_end_for_good, new_head, note_permanent
from rmqctl.store.journal.plan import (
    RESIZE,
    Entry,
    Install,
    Keeping,
    MoveAway,
    Operation,
    Plan,
    new_entry,
)
from rmqctl.store.journal.used import digest_outside, flush_marked, marks_with_lock, name_of, ranges_of
from rmqctl.store.store_files import StoreFiles

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
