"""Where the valid commitlog ends and what is damaged in it: the one policy recovery and rebuild share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rmqctl.formats.layouts import FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.store.checkpoint import Checkpoint
from rmqctl.store.commitlog.walk import Blank, Damage, Empty, Progress, walk
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue

_CHECKED_FILES = 3


@dataclass(slots=True)
class LogSurvey:
    """What a walk over the log found. Offsets are physical.

    `stop`: the record that ends the valid log, None if it ends with a whole file. `behind_messages` and
    `behind_bytes`: good messages after it. `tolerated`: damage before `start_offset`, which is left as it is.
    """

    start_offset: int
    end_offset: int
    messages: int = 0
    last_message_offset: int = 0
    last_store_timestamp: int = 0
    stop: Damage | Empty | None = None
    behind_messages: int = 0
    behind_bytes: int = 0
    tolerated: list[Damage] = field(default_factory=list)

    @property
    def has_damage_inside(self) -> bool:
        """Whether good messages lie behind the place where the valid log ends."""
        return self.behind_messages > 0

    def is_in_damage(self, physical_offset: int) -> bool:
        """Whether an offset lies in a tolerated damaged span."""
        return any(span.physical_offset <= physical_offset < span.end for span in self.tolerated)


def survey_log(
    survey: LogSurvey,
    log: MappedFileQueue,
    on_message: Callable[[StoredMessage], None],
    *,
    tolerant: bool = False,
    progress: Progress | None = None,
) -> None:
    """Walk the whole log and fill `survey`; `on_message` gets every message of its valid part, and may ask the
    survey for the damage passed so far.

    From `survey.start_offset` on the first damage ends the valid log. Damage before it is noted and passed over: a
    broker would not look there. `tolerant` passes over damage everywhere.
    """
    for record in walk(log, progress=progress):
        if not isinstance(record, StoredMessage):
            pass_other(survey, record, tolerant)
        elif pass_messages(
            survey, record.physical_offset, record.end, 1, record.physical_offset, record.store_timestamp, tolerant
        ):
            on_message(record)
    end_survey(survey)


def pass_messages(
    survey: LogSurvey, begin: int, end: int, messages: int, last_offset: int, last_timestamp: int, tolerant: bool
) -> bool:
    """The walk came to `messages` good ones at [begin, end): whether they belong to the valid log."""
    _close_hole(survey, tolerant)
    if survey.stop is not None:
        survey.behind_messages += messages
        survey.behind_bytes += end - begin
        return False
    survey.messages += messages
    survey.end_offset = end
    survey.last_message_offset = last_offset
    survey.last_store_timestamp = last_timestamp
    return True


def pass_other(survey: LogSurvey, record: Blank | Empty | Damage, tolerant: bool) -> None:
    """The walk came to a record that is no message."""
    if isinstance(record, Blank):
        _close_hole(survey, tolerant)
        if survey.stop is None:
            survey.end_offset = record.end
        return
    # damage, or more zeros, behind zeros: both are holes if anything good follows
    _close_hole(survey, tolerant)
    if survey.stop is not None:
        return
    if isinstance(record, Damage) and (tolerant or record.physical_offset < survey.start_offset):
        survey.tolerated.append(record)
    else:
        survey.stop = record


def _close_hole(survey: LogSurvey, tolerant: bool) -> None:
    """A record follows zeros: whatever stood there is gone, if that record or a later one is good."""
    hole = survey.stop
    if isinstance(hole, Empty) and (tolerant or hole.physical_offset < survey.start_offset):
        survey.tolerated.append(Damage(hole.physical_offset, hole.end, Reason.MAGIC, "zeros inside the log", ""))
        survey.stop = None


def end_survey(survey: LogSurvey) -> None:
    """The walk is over."""
    while survey.tolerated and survey.tolerated[-1].physical_offset >= survey.end_offset:
        # nothing good follows the last damage: it is the torn tail, not a span inside the log
        survey.stop = survey.tolerated.pop()


def new_survey(log: MappedFileQueue, start_offset: int) -> LogSurvey:
    """A survey still to be made."""
    return LogSurvey(start_offset, max(log.min_offset, 0))


def files_with_data(log: MappedFileQueue) -> list[MappedFile]:
    """Files that begin with something: a file pre-allocated by a broker that crashed is all zeros."""
    return [file for file in log.files if any(file.read(0, 8))]


def start_after_clean_stop(log: MappedFileQueue) -> int:
    """Start of the third file from the end: the files whose bodies are checked after a clean stop."""
    files = files_with_data(log)
    return files[-_CHECKED_FILES:][0].start_offset if files else 0


def start_after_crash(log: MappedFileQueue, checkpoint: Checkpoint | None) -> int:
    """Start of the newest file whose first message the checkpoint covers, else of the first file.

    (CommitLog#isMappedFileMatchedRecover)
    """
    covered = checkpoint.min_timestamp if checkpoint is not None else 0
    for file in reversed(log.files):
        timestamp = _first_store_timestamp(file)
        if timestamp is not None and 0 < timestamp <= covered:
            return file.start_offset
    return log.files[0].start_offset if log.files else 0


def _first_store_timestamp(file: MappedFile) -> int | None:
    head = file.read(0, FRAME_HEADS[3].size)
    if len(head) < FRAME_HEADS[3].size:
        return None
    fields = FRAME_HEADS[0].unpack_from(head, 0)
    if fields[1] not in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2):
        return None
    layout = FRAME_HEADS[fields[7] >> 4 & 3]
    return int(layout.unpack_from(head, 0)[11])
