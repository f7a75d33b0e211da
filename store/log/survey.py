"""Where the valid commitlog ends and what is damaged in it: the one judgement that recovery, rebuild, bridges and the
opening of a store for writing go by. It needs no arrays, for `follow` goes by it too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import LARGEST_HEAD_SIZE, Reason, StoredMessage, frame_head
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.background import sleep
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import end_of_nonzero
from rmqctl.store.log.search import ENTRY_HEAD_SIZE, FrameSearch
from rmqctl.store.log.walk import Blank, Damage, Empty, Progress, Unproved, as_brokers_read, walk, walk_file
from rmqctl.store.read.frames import message_at
from rmqctl.store.store_files import Checkpoint

if TYPE_CHECKING:
    from rmqctl.store.log.implied import Digest, Run

_CHECKED_FILES = 3
_HOLE = "zeros inside the log"
_DEFAULTS = StoreConfig()


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
        """Return whether an offset is in a tolerated damaged span."""
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

    def pass_run(self, run: Run) -> bool:
        """`pass_messages` of a run."""
        last_offset, last_timestamp = run.last_message_offset, run.last_store_timestamp
        return self.pass_messages(run.physical_offset, run.end, run.messages, last_offset, last_timestamp)

    def pass_other(self, record: Blank | Empty | Damage) -> None:
        """The walk came to a record that is no message."""
        # damage, or more zeros, behind zeros: both are holes if anything good follows
        self._close_hole()
        if self.stop is None:
            if isinstance(record, Blank):
                self.end_offset = record.end
            elif isinstance(record, Damage) and self._is_tolerated(record):
                self.tolerated.append(record)
            else:
                self.stop = record
        if self.stop is not None and isinstance(record, Unproved):
            # nothing but its CRC is missing: who cuts there is asked
            self.behind_messages += 1
            self.behind_bytes += record.end - record.physical_offset

    def _close_hole(self) -> None:
        """Report lost data where a record follows zeros, if that record or a later one is good."""
        if isinstance(self.stop, Empty) and self._is_tolerated(self.stop):
            self.tolerated.append(as_damage(self.stop))
            self.stop = None

    def _is_tolerated(self, record: Damage | Empty) -> bool:
        return self.is_tolerant or record.physical_offset < self.start_offset

    def finish(self) -> None:
        """The walk is over."""
        while self.tolerated and self.tolerated[-1].physical_offset >= self.end_offset:
            # nothing good follows the last damage: it is the torn tail, not a span inside the log
            span = self.tolerated.pop()
            self.stop = Empty(span.physical_offset, span.end) if span.detail == _HOLE else span


def new_survey(log: MappedFileQueue, start_offset: int, *, tolerant: bool = False) -> LogSurvey:
    """A survey of a walk from `start_offset`, or the log's beginning, on."""
    return LogSurvey(start_offset, max(log.min_offset, 0), tolerant)


def as_damage(zeros: Empty) -> Damage:
    """Zeros with something good behind them."""
    return Damage(zeros.physical_offset, zeros.end, Reason.MAGIC, _HOLE, "")


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
    head = frame_head(file.read(ENTRY_HEAD_SIZE if file.holds_entries else 0, LARGEST_HEAD_SIZE))
    return head.store_timestamp if head is not None and head.is_message else None


# The end of the log, found from its last bytes: for looks that have no time to walk the whole log, and for logs that
# somebody writes to meanwhile.

_WINDOW = 1024 * 1024
_GROWTH = 8
# how often, and every so many seconds, a frame that may be half written is looked at
_TRIES = 20
_PAUSE_S = 0.05
SETTLES_IN = 0.01
"""Seconds: a frame is copied into the page cache in far less."""
_LAST_RECORDS = 4 * 1024 * 1024


@dataclass(slots=True)
class Tail:
    """`begin`: the first frame looked at; `end`: behind the last good record. Offsets physical, times in ms.

    `damage`: what follows at `end`, unless zeros; the first of several. `inside`: damage before it.
    `timestamp_before_damage`: of the last message before the first damage inside, 0 without one.
    """

    begin: int = 0
    end: int = 0
    messages: int = 0
    last_store_timestamp: int = 0
    largest_store_timestamp: int = 0
    timestamp_before_damage: int = 0
    damage: Damage | None = None
    inside: list[Damage] = field(default_factory=list)

    @property
    def is_stale_behind_damage(self) -> bool:
        """Whether what follows the damage was stored before what precedes it."""
        return bool(self.inside) and self.is_left_over(self.timestamp_before_damage)

    def is_left_over(self, timestamp: int) -> bool:
        """Return whether the last messages are older than an earlier one of this time: they remain from before a
        truncation, which clears nothing."""
        return self.last_store_timestamp < timestamp

    @property
    def valid_end(self) -> int:
        """Behind the last record that belongs to the log."""
        return self.inside[0].physical_offset if self.is_stale_behind_damage else self.end


def written_bytes(log: MappedFileQueue) -> int:
    """Return the bytes from the start of the log to its last byte that is not zero: what there is to walk."""
    last = log.last_with_data()
    if last is None:
        return 0
    before = sum(file.size for file in log.files if file.start_offset < last.start_offset)
    return before + end_of_nonzero(last.descriptors, last.path, 0, last.size)


def look_at_tail(log: MappedFileQueue, window: int = _WINDOW) -> Tail:
    """Walk about the last `window` bytes of the log, checksums included."""
    file = log.last_with_data()
    if file is None:
        begin = max(log.min_offset, 0)
        return Tail(begin, begin)
    nonzero = end_of_nonzero(file.descriptors, file.path, 0, file.size)
    start = file.start_offset + max(0, nonzero - window)
    tail = Tail(start, start)
    is_found = start == file.start_offset
    for record in as_brokers_read(walk(log, start), log):
        if isinstance(record, Empty) or record.physical_offset >= file.start_offset + file.size:
            break
        if isinstance(record, StoredMessage | Blank):
            if not is_found:
                tail.begin, is_found = record.physical_offset, True
            if tail.damage is not None:
                if not tail.inside:
                    tail.timestamp_before_damage = tail.last_store_timestamp
                tail.inside.append(tail.damage)
                tail.damage = None
            tail.end = record.end
            if isinstance(record, StoredMessage):
                tail.messages += 1
                tail.last_store_timestamp = record.store_timestamp
                tail.largest_store_timestamp = max(tail.largest_store_timestamp, record.store_timestamp)
        elif is_found and tail.damage is None and record.reason is not Reason.SHORT_FILE:
            tail.damage = record
    if is_found:
        return tail
    # no frame began in the last bytes: a message as large as the window, or damage as large
    return look_at_tail(log, window * _GROWTH)


def settled_end(log: MappedFileQueue, pause: Callable[[float], None] = sleep) -> int:
    """Physical offset up to which the log of a live store can be judged: behind its last whole message just now.

    A frame that is being written looks damaged for a moment, so damage at the end is read again for a second; permanent
    damage is before the returned offset.
    """
    tail = look_at_tail(log)
    for _ in range(_TRIES):
        if tail.damage is None:
            break
        pause(_PAUSE_S)
        before, tail = tail, look_at_tail(log)
        if tail.damage is not None and tail.damage.physical_offset > before.damage.physical_offset:  # type: ignore[union-attr]
            # the writer went on: all before this frame is whole, and the frame is none of ours
            return tail.end
    return tail.end if tail.damage is None else tail.damage.end


class _Last(NamedTuple):
    """The last good record of a file: positions in the file."""

    begin: int
    end: int
    may_lack_bytes: bool


def end_of_messages(log: MappedFileQueue, begin: int, pause: Callable[[float], None] = sleep) -> int:
    """Return the physical offset after the last complete message or blank frame; `begin` without one.

    Everything before the last file with data is final; a broker makes files of zeros one or two ahead, and goes on
    where it was. In the last one, which is full of zeros from the start, a message may be half written: it and what
    follows it is left for later. Bytes that are no message, with good ones behind them, are damage and final: frames
    are written one after the other. No checksum covers the head, topic and properties of most frames, so the last of
    all counts only if it does not end in zeros where it should not, and is the same after a moment, which `pause` waits
    for. Reads the end of that file only.
    """
    file = last_begun(log)
    if file is None:
        return begin
    first = max(begin - file.start_offset, 0)
    if first >= file.size:
        return begin
    last = _last_record(file, first)
    if last is None:
        return max(begin, file.start_offset)
    seen = file.read(last.begin, last.end - last.begin)
    pause(SETTLES_IN)
    if last.may_lack_bytes or file.read(last.begin, last.end - last.begin) != seen:
        return file.start_offset + last.begin
    return file.start_offset + last.end


def last_begun(log: MappedFileQueue) -> MappedFile | None:
    """Return the last file with data, by its first bytes: files of zeros are not read to their end each time. None
    without one. (AllocateMappedFileService makes files ahead)"""
    for file in reversed(log.files):
        if any(file.read(0, 8)) or any(file.read(0, _WINDOW)):
            return file
    return None


def _last_record(file: MappedFile, first: int) -> _Last | None:
    """Return the last good record that begins at `first` or later; None without one."""
    written = end_of_nonzero(file.descriptors, file.path, first, file.size)
    tail = _LAST_RECORDS
    while written > first:
        start = max(first, written - tail)
        last = _last_from(file, start, written)
        if last is not None or start == first:
            return last
        tail *= 4
    return None


def _last_from(file: MappedFile, start: int, written: int) -> _Last | None:
    """The last good record that begins in [start, written)."""
    last: _Last | None = None
    # a frame may end in zeros: it reaches further than what is written
    for record in walk_file(file, FrameSearch(file, file.size), start, file.size, 0, None):
        position = record.physical_offset - file.start_offset
        if position >= written:
            break
        if isinstance(record, StoredMessage | Blank):
            last = _Last(position, record.end - file.start_offset, may_lack_bytes(record))
    return last


def may_lack_bytes(record: StoredMessage | Blank) -> bool:
    """Whether topic or properties end in zeros, as where a writer has not come so far yet."""
    return isinstance(record, StoredMessage) and ("\0" in record.topic or record.property_bytes.endswith(b"\0"))


# What stretches of the log without a good record are, told by what a walk finds behind them: damage inside the log,
# its torn tail, or the room behind its end, where messages of an older log may stand.

_SETTLING_S = 0.1


class Stale(NamedTuple):
    """Messages from before a truncation in [begin, end) of the log."""

    begin: int
    end: int
    messages: int


@dataclass(slots=True)
class Settled:
    """What stretches turned out to be. `damaged`: all that held no good message of the log, the torn tail with it.

    `inside`: those with good messages behind them, zeros that end damage left out. `torn`: the damaged end of the log
    as one, in which `torn_frames` seem to begin. `stale`: messages of an older log.
    """

    damaged: list[Damage]
    inside: list[Damage | Empty]
    stale: list[Stale]
    torn: Damage | None = None
    torn_frames: int = 0


def doubtful_from(log: MappedFileQueue, tail: Tail) -> int:
    """Physical offset from which on messages behind damage may be of an older log: where the file begins in which the
    log ends."""
    file = log.find(tail.begin)
    return sys.maxsize if file is None else file.start_offset


class Settling:
    """Takes what a walk yields, in its order. `tail`: the end of the log as far as its last bytes show; earlier damage
    is inside the log.

    `valid_end`: behind the last record that belongs to the log. `is_live`: a writer was seen at work.
    """

    def __init__(self, log: MappedFileQueue, tail: Tail, pause: Callable[[float], None] = sleep) -> None:
        self.valid_end = 0
        self.is_live = False
        self._log = log
        self._tail = tail
        self._doubtful_from = doubtful_from(log, tail)
        self._pause = pause
        self._pending: list[Damage | Empty] = []
        self._stale: list[Run] = []
        self._last_timestamp = 0

    def pass_other(self, record: Blank | Empty | Damage) -> None:
        """The walk came to a record that is no message."""
        if isinstance(record, Blank):
            self._advance(record.end)
        else:
            self._pending.append(record)

    def pass_run(self, run: Run) -> Settled | None:
        """The walk came to good messages: what this says of the stretches before them; None where they seem to be of an
        older log."""
        if self._pending and self._is_stale(run):
            self._stale.append(run)
            return None
        settled = self._inside()
        self._advance(run.end)
        self._last_timestamp = run.last_store_timestamp
        return settled

    def finish(self) -> Settled:
        """The walk is over, or goes on somewhere else."""
        if not self._stale and self._pending and self._pending[0].physical_offset < self._tail.end:
            return self._inside()
        pending, self._pending = self._pending, []
        stale, self._stale = self._stale, []
        if pending and not self._is_still_there(pending[0]):
            pending = []
        spans = [span for span in pending if isinstance(span, Damage)]
        # one tail, however many frames of it are damaged
        torn = spans[0]._replace(end=spans[-1].end) if spans else None
        older = [Stale(stale[0].physical_offset, stale[-1].end, sum(run.messages for run in stale))] if stale else []
        return Settled([] if torn is None else [torn], [], older, torn, len(spans))

    def _advance(self, end: int) -> None:
        """The valid log reaches up to here, unless something is in the way."""
        if not self._pending and not self._stale:
            self.valid_end = max(self.valid_end, end)

    def _inside(self) -> Settled:
        """Good messages follow the pending record: it is inside the log."""
        pending, self._pending = self._pending, []
        stale, self._stale = self._stale, []
        damaged = [as_damage(span) if isinstance(span, Empty) else span for span in pending]
        inside = [
            span
            for number, span in enumerate(pending)
            # zeros behind damage, up to the end of the file, belong to it
            if number == 0 or isinstance(span, Damage) or pending[number - 1].end != span.physical_offset
        ]
        for run in stale:
            damaged.append(Damage(run.physical_offset, run.end, Reason.MAGIC, "messages of an older log", ""))
        return Settled(damaged, inside, [Stale(run.physical_offset, run.end, run.messages) for run in stale])

    def _is_still_there(self, span: Damage | Empty) -> bool:
        """Return False if a writer that was not visible was just writing this frame."""
        if isinstance(span, Empty):
            return True
        self._pause(_SETTLING_S)
        for record in as_brokers_read(walk(self._log, span.physical_offset), self._log):
            if isinstance(record, Damage) and record.physical_offset == span.physical_offset:
                return True
            break
        self.is_live = True
        return False

    def _is_stale(self, run: Run) -> bool:
        """Whether messages behind damage are left over from before a truncation, which clears nothing.

        They lie in the file where the log ends, and they and all that follows were stored before what precedes them:
        new messages were written over the first of them later. Queue offsets tell nothing, new ones may have taken any.
        """
        if run.physical_offset < self._doubtful_from:
            return False
        if not self._tail.is_left_over(self._last_timestamp):
            return False
        try:
            return message_at(self._log, run.physical_offset).store_timestamp < self._last_timestamp
        except RmqctlError:
            return False


def survey_runs(
    survey: LogSurvey,
    log: MappedFileQueue,
    digest: Digest,
    on_run: Callable[[Run], None],
    progress: Progress | None = None,
    config: StoreConfig = _DEFAULTS,
) -> None:
    """Walk the whole log and fill `survey`; `on_run` gets the messages of its valid part. `config`: which CRCs count.

    It is called in this thread and in the log's order, after the survey has learned of all damage before the run.
    """
    from rmqctl.store.log.implied import Run, judged_runs

    for record in judged_runs(log, digest, config, progress=progress):
        if not isinstance(record, Run):
            survey.pass_other(record)
        elif survey.pass_run(record):
            on_run(record)
    survey.finish()
