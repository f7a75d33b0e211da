"""The frame of every change that mends a store: lock, journal, plan, apply, end, release; or a dry run of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import DiskFullError, UsageError, joined_hints
from rmqctl.store.files.reading import is_file, named
from rmqctl.store.journal.folder import JOURNAL, STATE
from rmqctl.store.journal.journal import Journal, begun, keep_interrupted_sizes
from rmqctl.store.journal.kept import Spilled, only_counted
from rmqctl.store.journal.log import VERB, end_interrupted, refuse_unfinished, take_for_change
from rmqctl.store.journal.plan import Plan
from rmqctl.store.options import ChangeOptions
from rmqctl.store.store_files import StoreFiles, refuse_dledger

# A store taken in order to change it: first its lock, then a look at its files; nothing seen before that counts.


@contextmanager
def taken(files: StoreFiles, *, mends: bool = False) -> Iterator[StoreFiles]:
    """Return the store of `files`, opened again under its lock: another process may have changed or created it since
    `files` was opened. Every change decides and plans by what it gets here.

    StoreInUseError; RefusedError where an interrupted change waits for undo or resume (unless what comes `mends`). An
    OSError of reading in the block is an UnreadableError.
    """
    lock = take_for_change(files.layout, mends=mends)
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
    files: StoreFiles, verb: str, options: ChangeOptions, ends: Ends = lambda head: True, *, mends: bool = True
) -> Iterator[PlannedChange]:
    """A change of the store of `files` (which is stale afterwards) by the command `verb`.

    The block plans with what it gets: the store opened again under its lock, and a plan to fill. Nothing of the store
    is touched in it, and where it fails nothing is left. After it the plan is carried out, and interrupted changes of
    which `ends` says so are over: the store has been mended. A plan of nothing leaves no journal. In a dry run nothing
    is locked, and nothing follows. `mends`: the change repairs the store, in any state that an earlier change left.

    StoreInUseError; RefusedError where another change waits for undo or resume; UnsupportedError for a DLedger store;
    UsageError for a change that does not mend and is to keep nothing; ValueError for a verb that `log` and `undo` would
    not find again; and as Journal.apply.
    """
    if VERB.fullmatch(verb) is None:
        raise ValueError(f"{verb!r} is not the name of a verb: {VERB.pattern}")
    if not mends and not options.keep_undo:
        raise UsageError(f"`{verb}` always keeps what it changes", hint="leave out `keep_undo`")
    if options.dry_run:
        with named(files.root):
            refuse_dledger(files.layout)
            refuse_unfinished(files.layout, mends=mends)
            if mends:
                keep_interrupted_sizes(files)
            yield PlannedChange(files, options=options)
        return
    with taken(files, mends=mends) as store:
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
