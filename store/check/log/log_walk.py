"""The one walk over the log that feeds everything: runs for the cross checks, damage, and what batches showed."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.store.check.log.batch_look import Look
from rmqctl.store.columns.batch import ColumnRecord, MessageColumns
from rmqctl.store.columns.parallel import walk_parallel
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.survey.log_runs import Digest, RunRecord
from rmqctl.store.survey.refused_rows import split_at_refused
from rmqctl.store.survey.run_survey import PIECE


class Walked(NamedTuple):
    """A piece of the log: its records in order, and what was noted of its messages."""

    records: list[RunRecord]
    look: Look


def walk_range(
    log: MappedFileQueue,
    begin: int,
    end: int | None,
    digest: Digest,
    *,
    is_full: bool = False,
    progress: Progress | None = None,
) -> Iterator[Walked]:
    """Walk [begin, end) of the log, every checksum included; `begin` is where a frame starts. Pieces in order."""
    columns = digest.columns | Look(is_full).columns
    work = functools.partial(walked, digest, is_full)
    return walk_parallel(log, work, begin, end, columns=columns, topics=digest.topics, progress=progress, piece=PIECE)


def walked(digest: Digest, is_full: bool, records: Iterator[ColumnRecord]) -> Walked:
    """The records of a piece, and what was noted of them."""
    look = Look(is_full)

    def looked_at() -> Iterator[ColumnRecord]:
        for record in split_at_refused(records):
            if isinstance(record, MessageColumns):
                look.add(record)
            yield record

    return Walked(digest.runs(looked_at()), look)
