"""Ends the commitlog at an offset of the user's choice; queues, index and checkpoint follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import RefusedError
from rmqctl.store.columns.batch import ColumnRecord, MessageColumns
from rmqctl.store.columns.parallel import walk_parallel
from rmqctl.store.commitlog.walk import Blank, Empty, Progress, walk
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.journal.frame import PlannedChange, Terms
from rmqctl.store.journal.plan import Agree
from rmqctl.store.recover.recover import recover_with
from rmqctl.store.recover.report import Goal, RecoverReport
from rmqctl.store.store_files import StoreFiles


def truncate(
    files: StoreFiles,
    at: int,
    *,
    dry_run: bool = False,
    keeps: bool = True,
    arguments: list[str] | None = None,
    journal_in: Path | None = None,
    progress: Progress | None = None,
    agree: Agree | None = None,
) -> RecoverReport:
    """End the log of the store opened as `files`, which is stale afterwards, at physical offset `at`, where a record
    must begin or end.

    What follows is cleared or moved away and kept in the journal (not without `keeps`). Damage before `at` stays.
    `agree`: as of Terms.
    RefusedError if `at` is inside a record or outside the log, with the nearest offsets; StoreInUseError;
    UnsupportedError for RocksDB queues.
    """

    def goal(change: PlannedChange) -> Goal:
        require_boundary(change.files.log, at)
        return Goal(at=at, messages_cut=count_messages(change.files.log, at))

    return recover_with(files, goal, "truncate", Terms(dry_run, keeps, arguments, journal_in, agree), progress)


def require_boundary(log: MappedFileQueue, at: int) -> None:
    """RefusedError, with the nearest possible offsets, unless a record begins or ends at physical offset `at`."""
    if not log.files:
        raise RefusedError("there is no commitlog file", file=log.directories[0], hint="there is nothing to truncate")
    if at < log.min_offset:
        raise RefusedError(
            f"the commitlog begins at {log.min_offset}", physical_offset=at, hint=f"`--at {log.min_offset}` empties it"
        )
    before = [file for file in log.files if file.start_offset <= at]
    reached = before[-1].start_offset
    for record in walk(log, reached):
        if isinstance(record, Empty) and record.physical_offset < at < record.end:
            break
        if record.physical_offset < at < record.end:
            what = "the rest of a file" if isinstance(record, Blank) else "a record"
            raise RefusedError(
                f"inside {what} that begins at {record.physical_offset} and ends at {record.end}",
                physical_offset=at,
                hint=f"`--at {record.physical_offset}` ends the log before it, `--at {record.end}` behind it",
            )
        if record.physical_offset >= at:
            return
        reached = record.physical_offset if isinstance(record, Empty) else record.end
    if reached != at:
        raise RefusedError(f"the commitlog ends at {reached}", physical_offset=at, hint="there is nothing to truncate")


def count_messages(log: MappedFileQueue, begin: int) -> int:
    """Good messages from physical offset `begin` on."""

    def counted(records: Iterator[ColumnRecord]) -> int:
        return sum(record.rows for record in records if isinstance(record, MessageColumns))

    return sum(walk_parallel(log, counted, begin))
