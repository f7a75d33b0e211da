"""The survey of the log by runs instead of messages: what `log_survey.survey_log` finds, on columns and both cores."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.store.columns.parallel import walk_parallel
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.survey.log_runs import Digest, Run
from rmqctl.store.survey.log_survey import LogSurvey, end_survey, pass_messages, pass_other

# bytes of the log of which the implied is held in memory at once, for each thread and twice more
_PIECE = 32 * 1024 * 1024


def survey_runs(
    survey: LogSurvey,
    log: MappedFileQueue,
    digest: Digest,
    on_run: Callable[[Run], None],
    *,
    tolerant: bool = False,
    progress: Progress | None = None,
) -> None:
    """Walk the whole log and fill `survey`; `on_run` gets the messages of its valid part.

    It is called in this thread and in the log's order, after the survey has learned of all damage before the run.
    Everything else is as in `survey_log`.
    """
    results = walk_parallel(
        log, digest.runs, columns=digest.columns, topics=digest.topics, progress=progress, piece=_PIECE
    )
    for records in results:
        for record in records:
            if not isinstance(record, Run):
                pass_other(survey, record, tolerant)
            elif pass_messages(
                survey,
                record.physical_offset,
                record.end,
                record.messages,
                record.last_message_offset,
                record.last_store_timestamp,
                tolerant,
            ):
                on_run(record)
    end_survey(survey)
