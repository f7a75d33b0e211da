"""Recovery: ends the log where it is valid and makes queues and index exactly what the log implies (design law 4).

Better than the broker's where that one loses or doubles things: see docs/recovery.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqctl.formats.errors import RemovedError, UnreadableError
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files.blob import only_counted
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import named
from rmqctl.store.journal.interrupted_sizes import keep_interrupted_sizes
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.log import end_interrupted, refuse_unfinished
from rmqctl.store.journal.taken import taken
from rmqctl.store.journal.undo import Agree
from rmqctl.store.queues.queue_table import has_rocksdb_queues, rocksdb_error
from rmqctl.store.recover.mend.queue_files import Spill
from rmqctl.store.recover.recovery import Recovery
from rmqctl.store.recover.report import Goal, RecoverReport
from rmqctl.store.store_files import StoreFiles

__all__ = ["RecoverReport", "recover", "recover_with"]


def recover(
    files: StoreFiles,
    *,
    cut: bool = False,
    full: bool = False,
    dry_run: bool = False,
    keeps: bool = True,
    arguments: list[str] | None = None,
    progress: Progress | None = None,
    agree: Agree | None = None,
) -> RecoverReport:
    """Recover the store opened as `files`, which is stale afterwards: open it again.

    `full` lets damage anywhere end the log, not only where a broker would look. `cut` ends the log at damage even where
    good messages follow. Without `keeps` nothing of what goes is kept, and there is no undo. `agree` is asked, under
    the store's lock and before anything changes, where messages are going to be taken away.
    RefusedError where a decision is needed; StoreInUseError; UnsupportedError for RocksDB queues.
    """
    return recover_with(files, lambda *_: Goal(cut, full), "recover", dry_run, keeps, arguments, progress, agree)


def recover_with(
    files: StoreFiles,
    goal: Callable[[StoreFiles, Spill], Goal],
    verb: str,
    dry_run: bool,
    keeps: bool,
    arguments: list[str] | None,
    progress: Progress | None,
    agree: Agree | None = None,
) -> RecoverReport:
    """Plan, journal, apply, verify: what `recover` does, for any goal. `goal` is called when the store is locked; it
    gets the store to look at, and what takes the bytes of its plan."""
    if has_rocksdb_queues(files.layout):
        raise rocksdb_error(files.layout)
    if dry_run:
        with named(files.root), _naming_rebuild(files.layout):
            refuse_unfinished(files.layout, mends=True)
            keep_interrupted_sizes(files)
            return Recovery(files, None, goal(files, only_counted)).plan(progress)
    with taken(files, mends=True) as store:
        journal = Journal(store.layout, verb, arguments, keeps=keeps, sizes=store.sizes())
        with _naming_rebuild(store.layout), journal.planning():
            recovery = Recovery(store, journal, goal(store, journal.spill))
            report = recovery.plan(progress)
            if agree is not None and report.messages_cut:
                agree(report.messages_cut)
        if recovery.operations:
            journal.apply(recovery.operations)
            report.journal = journal.kept_in
        else:
            journal.discard()
        end_interrupted(store.layout)
    return report


@contextlib.contextmanager
def _naming_rebuild(layout: StoreLayout) -> Iterator[None]:
    """A queue file that cannot be read is nothing that the log does not know: who does not compare gets past it."""
    try:
        yield
    except RemovedError:
        raise
    except UnreadableError as error:
        places = (layout.consumequeue, layout.batchconsumequeue)
        if error.file is None or not any(Path(error.file).is_relative_to(place) for place in places):
            raise
        raise UnreadableError(
            error.message,
            file=error.file,
            physical_offset=error.physical_offset,
            hint="`rmqctl rebuild --queues` makes the queues anew from the commitlog without reading them; then run "
            "this again",
        ) from error
