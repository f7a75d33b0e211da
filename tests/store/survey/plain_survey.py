"""The survey of a log said plainly, message by message: what the one by runs must agree with."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.survey import LogSurvey
from rmqctl.store.log.walk import as_brokers_read, walk


def survey_log(survey: LogSurvey, log: MappedFileQueue, on_message: Callable[[StoredMessage], None]) -> None:
    """Walk the whole log and fill `survey`; `on_message` gets every message of its valid part, and may ask the survey
    for the damage passed so far."""
    for record in as_brokers_read(walk(log), log):
        if not isinstance(record, StoredMessage):
            survey.pass_other(record)
        elif survey.pass_messages(
            record.physical_offset, record.end, 1, record.physical_offset, record.store_timestamp
        ):
            on_message(record)
    survey.finish()
