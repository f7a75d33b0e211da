"""Every check of the log by several threads, and nothing else: what the walk alone takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import ColumnRecord, MessageColumns
from rmqctl.store.log.parallel import walk_parallel
from rmqctl.store.log.walk import Blank, Damage, Empty, Progress
from rmqctl.store.native.tables import Columns


@dataclass(slots=True)
class LogCount:
    """Result of a check of the log: counts of good messages, and every other record, in order."""

    messages: int = 0
    message_bytes: int = 0
    others: list[Blank | Empty | Damage] = field(default_factory=list)


def check_log(log: MappedFileQueue, threads: int = 2, progress: Progress | None = None) -> LogCount:
    """Every check of law 3 for the whole log."""
    check = LogCount()
    for part in walk_parallel(log, _count, threads=threads, columns=Columns.NONE, progress=progress):
        check.messages += part.messages
        check.message_bytes += part.message_bytes
        check.others += part.others
    return check


def _count(records: Iterator[ColumnRecord]) -> LogCount:
    check = LogCount()
    for record in records:
        if isinstance(record, MessageColumns):
            check.messages += record.rows
            check.message_bytes += record.end - record.begin
        else:
            check.others.append(record)
    return check
