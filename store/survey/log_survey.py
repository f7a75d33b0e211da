"""Where the valid commitlog ends and what is damaged in it: the one judgement that recovery, rebuild, bridges and the
opening of a store for writing go by. It needs no arrays: a short log is opened before they could be loaded."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqctl.formats.message import LARGEST_HEAD_SIZE, Reason, StoredMessage, frame_head
from rmqctl.store.checkpoint import Checkpoint
from rmqctl.store.commitlog.walk import Blank, Damage, Empty
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue

_CHECKED_FILES = 3


@dataclass(slots=True)
class LogSurvey:
    """What a walk over the log finds; the walk tells it every record, in order, and that it is over. Offsets physical.

    From `start_offset` on the first damage ends the valid log. Damage before it is noted and passed over: a broker
    would not look there. A survey that `is_tolerant` passes over damage everywhere.

    `stop`: the record that ends the valid log, None if it ends with a whole file. `behind_messages` and
    `behind_bytes`: good messages after it. `tolerated`: damage that was passed over.
    """

    start_offset: int
    end_offset: int
    is_tolerant: bool = False
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

    def pass_messages(self, begin: int, end: int, messages: int, last_offset: int, last_timestamp: int) -> bool:
        """The walk came to `messages` good ones at [begin, end): whether they belong to the valid log. `last_offset`
        and `last_timestamp` (ms): of the last one."""
        self._close_hole()
        if self.stop is not None:
            self.behind_messages += messages
            self.behind_bytes += end - begin
            return False
        self.messages += messages
        self.end_offset = end
        self.last_message_offset = last_offset
        self.last_store_timestamp = last_timestamp
        return True

    def pass_message(self, message: StoredMessage) -> bool:
        """`pass_messages` of one."""
        offset = message.physical_offset
        return self.pass_messages(offset, message.end, 1, offset, message.store_timestamp)

    def pass_other(self, record: Blank | Empty | Damage) -> None:
        """The walk came to a record that is no message."""
        # damage, or more zeros, behind zeros: both are holes if anything good follows
        self._close_hole()
        if self.stop is not None:
            return
        if isinstance(record, Blank):
            self.end_offset = record.end
        elif isinstance(record, Damage) and self._is_tolerated(record):
            self.tolerated.append(record)
        else:
            self.stop = record

    def _close_hole(self) -> None:
        """A record follows zeros: whatever stood there is gone, if that record or a later one is good."""
        if isinstance(self.stop, Empty) and self._is_tolerated(self.stop):
            self.tolerated.append(as_damage(self.stop))
            self.stop = None

    def _is_tolerated(self, record: Damage | Empty) -> bool:
        return self.is_tolerant or record.physical_offset < self.start_offset

    def finish(self) -> None:
        """The walk is over."""
        while self.tolerated and self.tolerated[-1].physical_offset >= self.end_offset:
            # nothing good follows the last damage: it is the torn tail, not a span inside the log
            self.stop = self.tolerated.pop()


def new_survey(log: MappedFileQueue, start_offset: int, *, tolerant: bool = False) -> LogSurvey:
    """A survey of a walk from `start_offset`, or the log's beginning, on."""
    return LogSurvey(start_offset, max(log.min_offset, 0), tolerant)


def as_damage(zeros: Empty) -> Damage:
    """Zeros with something good behind them."""
    return Damage(zeros.physical_offset, zeros.end, Reason.MAGIC, "zeros inside the log", "")


def files_with_data(log: MappedFileQueue) -> list[MappedFile]:
    """Files that begin with something: a file pre-allocated by a broker that crashed is all zeros."""
    return [file for file in log.files if any(file.read(0, 8))]


def start_after_clean_stop(log: MappedFileQueue, end_offset: int | None = None) -> int:
    """Start of the third file from the end: the files whose bodies are checked after a clean stop. `end_offset`: where
    the log is going to end, if not with its last file.

    Of a log without messages it is where the log begins, which is not 0 once files have expired.
    """
    left = [file for file in files_with_data(log) if end_offset is None or file.start_offset < end_offset]
    files = left[-_CHECKED_FILES:] or log.files
    return files[0].start_offset if files else 0


def start_after_crash(log: MappedFileQueue, checkpoint: Checkpoint | None) -> int:
    """Start of the newest file whose first message the checkpoint covers, else of the first file.

    RocketMQ 5.5 goes by logics_physical_offset, earlier versions, and 5.5 without it, by times.
    (CommitLog#isMappedFileMatchedRecover)
    """
    covered = checkpoint.min_timestamp if checkpoint is not None else 0
    dispatched = checkpoint.logics_physical_offset if checkpoint is not None else 0
    for file in reversed(log.files):
        timestamp = _first_store_timestamp(file)
        if timestamp is None or timestamp <= 0:
            continue
        if (file.start_offset <= dispatched) if dispatched > 0 else (timestamp <= covered):
            return file.start_offset
    return log.files[0].start_offset if log.files else 0


def _first_store_timestamp(file: MappedFile) -> int | None:
    head = frame_head(file.read(0, LARGEST_HEAD_SIZE))
    return head.store_timestamp if head is not None and head.is_message else None
