"""The walk on several cores: one file a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from store.columns.batch import ColumnRecord, Columns, MessageColumns
from store.columns.topics import TopicTable
from store.columns.walk import walk_columns
from store.commitlog.walk import Blank, Damage, Empty, Progress
from store.files.mapped_file_queue import MappedFileQueue

_Result = TypeVar("_Result")


@dataclass(slots=True)
class LogCheck:
    """What a check of the log found: counts of good messages, and every record that is none, in order."""

    messages: int = 0
    message_bytes: int = 0
    others: list[Blank | Empty | Damage] = field(default_factory=list)


def walk_parallel(
    log: MappedFileQueue,
    work: Callable[[Iterator[ColumnRecord]], _Result],
    begin: int = 0,
    *,
    threads: int = 2,
    crc_from: int = 0,
    columns: Columns = Columns.DISPATCH,
    topics: TopicTable | None = None,
    progress: Progress | None = None,
) -> Iterator[_Result]:
    """`work` over the records of each file, several files at a time; the results in the order of the files.

    `work` runs in a thread of its own and gets what `walk_columns` yields for one file, the damage before and behind
    it included. Topics are numbered by one shared table.
    """
    yield work(walk_columns(log, begin, crc_from=crc_from, columns=columns, topics=topics, progress=progress))


def check_log(log: MappedFileQueue, threads: int = 2, progress: Progress | None = None) -> LogCheck:
    """Every check of law 3 for the whole log."""
    check = LogCheck()
    for part in walk_parallel(log, _count, threads=threads, columns=Columns.NONE, progress=progress):
        check.messages += part.messages
        check.message_bytes += part.message_bytes
        check.others += part.others
    return check


def _count(records: Iterator[ColumnRecord]) -> LogCheck:
    check = LogCheck()
    for record in records:
        if isinstance(record, MessageColumns):
            check.messages += record.rows
            check.message_bytes += record.end - record.begin
        else:
            check.others.append(record)
    return check
