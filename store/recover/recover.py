"""Recovery: ends the log where it is valid and makes queues and index exactly what the log implies (design law 4).

Better than the broker's where that one loses or doubles things: see docs/recovery.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RemovedError, UnreadableError
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.frame import PlannedChange, Terms, changing
from rmqctl.store.journal.log import waits_for_mend
from rmqctl.store.journal.plan import Agree
from rmqctl.store.queues.queue_table import has_rocksdb_queues, rocksdb_error
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
    journal_in: Path | None = None,
    progress: Progress | None = None,
    agree: Agree | None = None,
) -> RecoverReport:
    """Recover the store opened as `files`, which is stale afterwards: open it again.

    `full` lets damage anywhere end the log, not only where a broker would look; without `cut` that is so as well where
    an interrupted change has to be made good. `cut` ends the log at damage even where good messages follow. Without
    `keeps` nothing of what goes is kept, and there is no undo. `agree`: as of Terms.
    RefusedError where a decision is needed; StoreInUseError; UnsupportedError for RocksDB queues.
    """
    terms = Terms(dry_run, keeps, arguments, journal_in, agree)

    def goal(change: PlannedChange) -> Goal:
        # what an interrupted change left is no damage that a broker has lived with
        return Goal(cut, full or (not cut and waits_for_mend(change.files.layout)))

    return recover_with(files, goal, "recover", terms, progress)


def recover_with(
    files: StoreFiles,
    goal: Callable[[PlannedChange], Goal],
    verb: str,
    terms: Terms,
    progress: Progress | None,
) -> RecoverReport:
    """Plan, journal, apply, verify: what `recover` does, for any goal. `goal` is asked under the store's lock, and
    gets the change to plan. It makes good what was interrupted unless it leaves damage in the log."""
    if has_rocksdb_queues(files.layout):
        raise rocksdb_error(files.layout)
    left: list[dict[str, Any]] = []
    with changing(files, verb, terms, lambda head: not left) as change, _naming_rebuild(files.layout):
        recovery = Recovery(change, goal(change))
        report = recovery.plan(progress)
        change.plan = recovery.operations
        report.operations = change.rows()
        left += report.damaged
    report.journal = change.kept_in
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
