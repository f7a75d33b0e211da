"""The walk over the log by runs instead of messages, on columns and both cores, and the survey of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmqctl.store.columns.parallel import walk_parallel
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.survey.log_runs import Digest, Run, RunRecord
from rmqctl.store.survey.log_survey import LogSurvey

PIECE = 32 * 1024 * 1024
"""Bytes of the log of which the implied is held in memory at once, for each thread and twice more."""


def walk_runs(
    log: MappedFileQueue, digest: Digest, begin: int = 0, *, crc_from: int = 0, progress: Progress | None = None
) -> Iterator[RunRecord]:
    """What `walk` yields from physical offset `begin` on, messages as runs."""
    results = walk_parallel(
        log,
        digest.runs,
        begin,
        crc_from=crc_from,
        columns=digest.columns,
        topics=digest.topics,
        progress=progress,
        piece=PIECE,
    )
    for records in results:
        yield from records


def survey_runs(
    survey: LogSurvey,
    log: MappedFileQueue,
    digest: Digest,
    on_run: Callable[[Run], None],
    progress: Progress | None = None,
) -> None:
    """Walk the whole log and fill `survey`; `on_run` gets the messages of its valid part.

    It is called in this thread and in the log's order, after the survey has learned of all damage before the run.
    """
    for record in walk_runs(log, digest, progress=progress):
        if not isinstance(record, Run):
            survey.pass_other(record)
        elif survey.pass_messages(
            record.physical_offset,
            record.end,
            record.messages,
            record.last_message_offset,
            record.last_store_timestamp,
        ):
            on_run(record)
    survey.finish()
