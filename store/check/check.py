"""`check`: everything that is wrong with a store, found by looking at it. Order of the looks, and what was covered."""

from __future__ import annotations

import functools
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypedDict

from rmqctl.formats.errors import UnreadableError, UnsupportedError, UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.notebook import as_html
from rmqctl.store.check.catalogue import Finding, Severity
from rmqctl.store.check.config import ConfigFiles, OffsetCheck, QueueDoubts, account_findings
from rmqctl.store.check.copies import compaction_findings, dledger_findings
from rmqctl.store.check.cross import (
    SAVED_EVERY_S,
    CheckSummary,
    CrossCheck,
    FileRange,
    Level,
    LogSeen,
    ScrubState,
    Subset,
    file_ranges,
    joined_ranges,
    load_state,
    save_state,
)
from rmqctl.store.check.deliveries import pop_findings, timer_findings
from rmqctl.store.check.index import IndexCheck
from rmqctl.store.check.log import LogCheck, OldMessages, Walked, log_file_findings, walk_range
from rmqctl.store.check.log_findings import AffectedMessages, DamageFindings, Look, message_findings, topic_findings
from rmqctl.store.check.queue_findings import QueueCheck
from rmqctl.store.check.rocksdb import are_queues_readable, both_kinds, database_findings, storage_findings
from rmqctl.store.check.state import (
    epoch_findings,
    queue_file_findings,
    small_file_findings,
    state_findings,
    unfinished_changes,
    without_wrong_geometry,
)
from rmqctl.store.check.tiered import tiered_findings
from rmqctl.store.compare.index import IndexSurvey
from rmqctl.store.config.epoch_file import broker_epochs
from rmqctl.store.files.background import sleep
from rmqctl.store.files.lock import FILES_COME_IN, is_in_use
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.reading import exists, removed_error, status_of
from rmqctl.store.log.implied import Digest
from rmqctl.store.log.parallel import give_back_memory
from rmqctl.store.log.survey import Settling, Tail, doubtful_from, look_at_tail, settled_end
from rmqctl.store.log.walk import Damage, Empty, Progress, walk
from rmqctl.store.options import Events
from rmqctl.store.queues.queue_table import has_rocksdb_queues
from rmqctl.store.store_files import StoreFiles, is_of_dledger

_IN_DLEDGER = "rmqctl recover"
"""What mends a store with a DLedger log."""
_KEPT_IN_DLEDGER = ["recover"], ["rebuild"], ["rebuild", "--index"]
_CHECKPOINT_AHEAD = ("RMQ-CKPT-003", "RMQ-CKPT-005", "RMQ-CKPT-006", "RMQ-CKPT-030")

# How a check walks the log and feeds its cross checks: in this process, or however a caller does it instead.


class WalkOrder(NamedTuple):
    """What is the same for all stretches of a pass.

    `digest` numbers the topics. `is_full`: as at Level.FULL. `doubtful_from`: see `survey/settling.py`. `progress` gets
    the bytes passed.
    """

    digest: Digest
    is_full: bool
    doubtful_from: int
    progress: Progress | None


class Walker(Protocol):
    """What a pass over a store asks for. First `cross_checks`, then `walk` for each stretch, in order."""

    def cross_checks(self, files: StoreFiles, level: Level, is_live: bool) -> list[CrossCheck]:
        """The cross checks, which understand the runs that `walk` gives."""

    def walk(self, files: StoreFiles, begin: int, end: int, order: WalkOrder) -> Iterator[Walked]:
        """[begin, end) of the log in pieces, in order; `begin` is where a frame starts.

        Runs of several files may be merged if only blanks separate them, no message is older than the one before it,
        and all of them begin before `order.doubtful_from`.
        """


class InProcess:
    """The walk over both cores of this machine, each run compared as it comes."""

    def cross_checks(self, files: StoreFiles, level: Level, is_live: bool) -> list[CrossCheck]:
        """See Walker."""
        return cross_checks(files, is_live=is_live)

    def walk(self, files: StoreFiles, begin: int, end: int, order: WalkOrder) -> Iterator[Walked]:
        """See Walker."""
        return walk_range(files.log, begin, end, order.digest, is_full=order.is_full, events=Events(order.progress))


def cross_checks(
    files: StoreFiles, survey: IndexSurvey | None = None, *, is_live: bool, error: UnreadableError | None = None
) -> list[CrossCheck]:
    """The checks that a store has; `survey` and `error`: see IndexCheck."""
    checks: list[CrossCheck] = [IndexCheck(files, survey, is_live=is_live, error=error)]
    return [QueueCheck(files), *checks] if are_queues_readable(files) else checks


# One pass over a store: every look in its order, the log walked once for all of them.

_PAUSES_FOR_ALL = 2
_NEW_S = 60


def _is_new(path: Path) -> bool:
    """Return whether a file was made or written so lately that its writer may not be done with it."""
    status = status_of(path)
    return status is None or abs(time.time() - status.st_mtime) < _NEW_S


class Pass:
    """`findings` once, then `describe`. `begin`: physical offset to begin with; `deadline`: of the monotonic clock."""

    def __init__(
        self,
        files: StoreFiles,
        level: Level,
        subset: Subset | None,
        begin: int | None,
        deadline: float | None,
        events: Events,
        walker: Walker,
    ) -> None:
        self._given = self._files = files
        self._walker = walker
        self._level = level
        self._subset = subset
        self._begin = begin
        self._deadline = deadline
        self._events = events
        self._look = Look(level is Level.FULL)
        self._seen = LogSeen(level=level)
        self._doubts = QueueDoubts(files, is_quick=level is Level.QUICK)
        self._next_offset: int | None = None
        self._is_complete = True
        self._has_log = False

    def findings(self) -> Iterator[Finding]:
        """Everything that is found."""
        in_dledger = self._given.dledger is not None  # other changes are refused there
        for finding in self._findings():
            self._doubts.note(finding)
            is_of_length = finding.code == "RMQ-FILE-002" and not is_of_dledger(finding.file or self._files.root)
            fix = _IN_DLEDGER if is_of_length or finding.code in _CHECKPOINT_AHEAD else ""
            is_kept = not in_dledger or (finding.fix or "").split()[1:] in _KEPT_IN_DLEDGER
            yield finding if is_kept else replace(finding, fix=fix)

    def _findings(self) -> Iterator[Finding]:
        # first what others may bring forward meanwhile: it must not look ahead of what is read later
        layout = self._files.layout
        self._seen.is_live = self._is_in_use()
        checkpoint, has_abort = self._files.readable_checkpoint(), self._files.has_abort()
        configs = ConfigFiles(layout.config, is_slave=self._files.config.is_slave)
        files, wrong_geometry = without_wrong_geometry(self._files)
        self._files = files
        yield from wrong_geometry
        if not self._seen.is_live:
            yield from unfinished_changes(layout)
        yield from self._guarded(small_file_findings(layout))
        yield from configs.findings()
        yield from self._guarded(account_findings(layout.config, configs))
        of_databases = database_findings(layout, is_quick=self._level is Level.QUICK, is_live=self._seen.is_live)
        yield from self._guarded(of_databases)
        yield from self._file_findings()
        files = self._files
        affected = AffectedMessages(files)
        self._has_log = bool(files.log.files)
        if self._has_log:
            yield from self._guarded(self._log(DamageFindings(files.log, affected)))
        largest = self._look.largest_store_timestamp
        yield from self._guarded(state_findings(files, self._seen, checkpoint, has_abort, largest))
        if self._has_log:
            yield from self._guarded(dledger_findings(files, self._seen))
            if self._level is not Level.QUICK:
                yield from self._guarded(compaction_findings(files, self._seen, self._events))
                yield from self._guarded(tiered_findings(files, self._seen, self._events))
            give_back_memory()
            yield from self._guarded(timer_findings(files, self._seen, self._doubts))
            give_back_memory()
            yield from self._guarded(pop_findings(files, self._seen, self._doubts))
            yield from self._guarded(epoch_findings(files, self._seen))
        if not self._seen.is_live and self._level is not Level.QUICK:
            yield from self._guarded(both_kinds(self._files, self._seen))
        if self._has_log:
            yield from self._guarded(storage_findings(self._files, self._seen))
        if self._has_log or not has_rocksdb_queues(layout):
            yield from self._guarded(OffsetCheck(files, configs, self._doubts, self._seen.begun_again).findings())

    def _is_in_use(self) -> bool:
        """Return whether another process may write meanwhile: not if this one holds the lock in order to repair."""
        return not self._given.is_taken and is_in_use(self._given.layout)

    def _is_live_now(self) -> bool:
        """Return whether a writer has come since this check began, or was there: what is found may be its doing."""
        self._seen.is_live = self._seen.is_live or self._is_in_use()
        return self._seen.is_live

    def _file_findings(self) -> Iterator[Finding]:
        """What names and sizes say. A writer creates files while they are listed: only problems that persist are
        reported then."""
        told: list[Finding] = []
        known: set[tuple[str, Path | None]] | None = None
        for attempt, pause in enumerate((*FILES_COME_IN, None)):
            of_log = log_file_findings(self._files, AffectedMessages(self._files))
            told = [*self._guarded(of_log), *self._guarded(queue_file_findings(self._files))]
            told = [one for one in told if known is None or not one.severity.is_alarm or (one.code, one.file) in known]
            known = {(one.code, one.file) for one in told if one.severity.is_alarm}
            if not known or pause is None or not self._is_live_now():
                break
            if attempt >= _PAUSES_FOR_ALL and not any(path is not None and _is_new(path) for _, path in known):
                break
            sleep(pause)
            self._files = StoreFiles(self._files.root, self._files.config)
        yield from told

    def _log(self, damages: DamageFindings) -> Iterator[Finding]:
        log, seen = self._files.log, self._seen
        seen.log_begin = max(log.min_offset, 0)
        tail = look_at_tail(log)
        limit = settled_end(log) if seen.is_live else None
        seen.log_end = tail.valid_end if limit is None else limit
        self._look.largest_store_timestamp = tail.largest_store_timestamp
        if self._level is Level.QUICK:
            yield from self._heads(damages, tail.begin)
            if tail.is_stale_behind_damage:
                yield damages.tail(tail.inside[0])
                yield damages.stale(tail.inside[0].end, tail.end, None, log_end=tail.valid_end)
            else:
                yield from map(damages.inside, tail.inside)
            if tail.damage is not None and not seen.is_live:
                yield damages.tail(tail.damage)
            for cross in self._walker.cross_checks(self._files, self._level, seen.is_live):
                yield from cross.finish(seen)
            return
        yield from self._walk(damages, tail, limit)

    def _heads(self, damages: DamageFindings, end: int) -> Iterator[Finding]:
        """The first frame of every file that begins before `end`."""
        for file in self._files.log.files:
            if file.start_offset >= end:
                break
            record = self._first_record(file)
            if isinstance(record, Damage | Empty):
                yield damages.inside(record)

    def _first_record(self, file: MappedFile) -> object:
        return next(walk(self._files.log, file.start_offset), None)

    def _walk(self, damages: DamageFindings, tail: Tail, limit: int | None) -> Iterator[Finding]:
        files, seen = self._files, self._seen
        digest = Digest(files.config.delay_levels(), tags=True)
        cross = self._walker.cross_checks(files, self._level, seen.is_live)
        is_whole = self._subset is None and self._begin is None and self._deadline is None
        if is_whole:
            # what the walk finds is more exact
            seen.log_end = seen.log_begin
        epochs, is_queued = broker_epochs(files.layout), functools.partial(_is_queued, files)
        old = OldMessages(files.log, tail, epochs, is_queued)
        log_check = LogCheck(seen, cross, damages, Settling(files.log, tail), old, self._unreadable)
        is_full = self._level is Level.FULL
        order = WalkOrder(digest, is_full, doubtful_from(files.log, tail), self._events.progress)
        yield from self._stretches(log_check, order, limit)
        seen.log_end = max(seen.log_end, limit or 0)
        # a broker may have started meanwhile
        self._is_live_now()
        self._look.join(log_check.look)
        names = digest.topics.names
        counts = self._look.topics.tolist()
        yield from topic_findings(dict(zip(names, counts, strict=False)))
        yield from message_findings(files.log, self._look, log_check.last_message_offset)
        self._refuse_moved()
        for one in log_check.cross:
            yield from self._guarded(one.finish(seen))

    def _refuse_moved(self) -> None:
        """RemovedError where the log begins further on than when the pass began: what queues and index say of messages
        that are gone by now would count as wrong."""
        log, begin = self._files.log, self._seen.log_begin
        if log.files and log.begins_behind(begin):
            raise removed_error(log.path_of(begin))

    def _stretches(self, log_check: LogCheck, order: WalkOrder, limit: int | None) -> Iterator[Finding]:
        """Walk what is to be walked. A file that cannot be read is reported and skipped."""
        files, seen = self._files, self._seen
        ranges = file_ranges(files.log, self._subset, self._begin)
        waiting = deque(ranges if self._deadline is not None else joined_ranges(ranges))
        while waiting:
            stretch = waiting.popleft()
            # one file at least, or a short time would never bring it forward
            if seen.ranges and self._deadline is not None and time.monotonic() > self._deadline:
                self._next_offset = stretch.start
                break
            end = stretch.end if limit is None else min(stretch.end, limit)
            try:
                for walked in self._walker.walk(files, stretch.start, end, order):
                    yield from log_check.take(walked)
            except UnreadableError as error:
                file = next((file for file in files.log.files if str(file.path) == error.file), None)
                if file is None:
                    raise
                yield self._unreadable(error)
                end, behind = file.start_offset, file.start_offset + files.log.file_size
                if behind < stretch.end:
                    waiting.appendleft(FileRange(behind, behind, stretch.end))
            yield from log_check.end_range()
            if end > stretch.begin:
                seen.ranges.append((stretch.begin, end))

    def _guarded(self, findings: Iterator[Finding]) -> Iterator[Finding]:
        """A look that comes to a file that cannot be read ends there; the others are not kept from theirs."""
        try:
            yield from findings
        except UnreadableError as error:
            yield self._unreadable(error)

    def _unreadable(self, error: UnreadableError) -> Finding:
        """Raises `error` itself if the file is gone: the pass then starts again."""
        if error.file is None or not exists(error.file):
            raise error
        self._is_complete = False
        return Finding("RMQ-FILE-006", error.message, Path(error.file), error.physical_offset, data_lost=None)

    def close(self) -> None:
        """Close files that were opened again on the way."""
        if self._files is not self._given:
            self._files.close()

    def describe(self, summary: CheckSummary) -> None:
        """Say what was covered."""
        seen, look = self._seen, self._look
        summary.files = len(self._files.log.files)
        summary.log_begin, summary.log_end = seen.log_begin, seen.log_end
        summary.ranges = seen.ranges
        summary.messages, summary.bytes = look.messages, look.bytes
        summary.uncovered_messages = look.uncovered if self._level is Level.FULL else None
        summary.bodies_not_unpacked = look.packed
        summary.queues_checked = summary.index_checked = self._has_log
        summary.live = seen.is_live
        if not self._is_complete:
            summary.complete, summary.stopped_by = False, "unreadable"
        if self._next_offset is not None:
            summary.complete, summary.stopped_by = False, "max_duration"
            summary.next_offset = self._next_offset


_RESTARTS = 3
# shown in notebooks
_KEPT_FINDINGS = 50


class CheckRun:
    """One check, carried out while its findings are taken: `for finding in run`, then `run.summary`.

    A notebook shows the summary, and the first findings that were taken.
    """

    _repr_html_ = as_html

    def __init__(
        self,
        files: StoreFiles,
        level: Level,
        subset: Subset | None,
        max_duration: float | None,
        resume: Path | None,
        fail_fast: bool,
        events: Events,
        walker: Walker | None = None,
    ) -> None:
        self._files = files
        self._walker = walker if walker is not None else InProcess()
        self._level = level
        self._subset = subset
        self._deadline = None if max_duration is None else time.monotonic() + max_duration
        self._resume = resume
        self._fail_fast = fail_fast
        self._events = events
        named = None if subset is None else str(subset)
        self.summary = CheckSummary(str(level), str(files.root), subset=named)
        # findings told already, should a pass have to begin anew, or follow another one
        self._told: set[int] = set()
        self._first: list[Finding] = []
        self.saved_offset: int | None = None
        """Physical offset that the next check with the same state goes on from, also if this one is interrupted."""

    def __iter__(self) -> Iterator[Finding]:
        """The findings as they are made. UnreadableError where a file cannot be read at all."""
        begun = time.monotonic()
        state = None if self._resume is None else load_state(self._resume, str(self._level), self.summary.subset)
        codes: Counter[str] = Counter()
        for finding in self._restarted(None, self._deadline) if state is None else self._bit_by_bit(state):
            if hash(finding) in self._told:
                continue
            self._told.add(hash(finding))
            self._count(finding, codes)
            if len(self._first) < _KEPT_FINDINGS:
                self._first.append(finding)
            yield finding
            if self._fail_fast and finding.severity.is_alarm:
                self.summary.stopped_by, self.summary.complete = "fail_fast", False
                break
        self.summary.codes = dict(sorted(codes.items()))
        self.summary.duration_ms = int((time.monotonic() - begun) * 1000)

    def notebook_fields(self) -> dict[str, object]:
        """What a notebook shows of it."""
        return {"summary": self.summary.row(), "findings": self._first}

    def _bit_by_bit(self, state: ScrubState) -> Iterator[Finding]:
        """Passes of a minute, one after the other. What a pass covered is finished and saved before the next one: an
        interruption costs the last one at most, and no finding of what counts as checked."""
        summary = self.summary
        self.saved_offset = begin = state.next_offset
        if begin is None:
            state = state._replace(alarms=0, pass_started=time.time_ns() // 1_000_000)
        ranges, messages, size, uncovered, packed, is_readable = list(summary.ranges), 0, 0, 0, 0, True
        while True:
            self._begin_pass()
            pause = time.monotonic() + SAVED_EVERY_S
            yield from self._restarted(begin, pause if self._deadline is None else min(pause, self._deadline))
            ranges = _joined([*ranges, *summary.ranges])
            messages, size = messages + summary.messages, size + summary.bytes
            uncovered += summary.uncovered_messages or 0
            packed += summary.bodies_not_unpacked
            summary.bodies_not_unpacked = packed
            is_readable &= summary.stopped_by != "unreadable"
            summary.ranges, summary.messages, summary.bytes = ranges, messages, size
            if summary.uncovered_messages is not None:
                summary.uncovered_messages = uncovered
            if not is_readable and summary.complete:
                summary.complete, summary.stopped_by = False, "unreadable"
            self._save(state)
            begin = summary.next_offset
            if begin is None or (self._deadline is not None and time.monotonic() > self._deadline):
                return

    def _begin_pass(self) -> None:
        self.summary.complete, self.summary.stopped_by, self.summary.next_offset = True, None, None

    def _save(self, state: ScrubState) -> None:
        """Say in the file of the state how far the check came; `state`: as it was at the beginning."""
        if self._resume is not None:
            summary = self.summary
            passes, alarms = state.passes + summary.complete, state.alarms + summary.alarms
            save_state(self._resume, state._replace(next_offset=summary.next_offset, passes=passes, alarms=alarms))
        self.saved_offset = self.summary.next_offset

    def _restarted(self, begin: int | None, deadline: float | None) -> Iterator[Finding]:
        """Yield the findings of one pass; restart it when files disappear meanwhile."""
        for attempt in range(_RESTARTS):
            one = Pass(self._files, self._level, self._subset, begin, deadline, self._events, self._walker)
            try:
                yield from one.findings()
            except UnreadableError as error:
                if attempt + 1 == _RESTARTS or error.file is None or exists(error.file):
                    raise
                self._files = StoreFiles(self._files.root, self._files.config)
                continue
            finally:
                one.describe(self.summary)
                one.close()
            return

    def _count(self, finding: Finding, codes: Counter[str]) -> None:
        codes[finding.code] += 1
        self.summary.errors += finding.severity is Severity.ERROR
        self.summary.warnings += finding.severity is Severity.WARNING
        self.summary.notices += finding.severity is Severity.NOTICE
        self.summary.data_lost |= finding.data_lost is True
        if finding.may_lose is not None:
            self.summary.perhaps_lost = True
            if finding.may_lose not in self.summary.perhaps:
                self.summary.perhaps.append(finding.may_lose)
        if finding.loses is not None and finding.loses not in self.summary.lost:
            self.summary.lost.append(finding.loses)


def _is_queued(files: StoreFiles, message: StoredMessage) -> bool:
    """Return whether the message's own slot leads to it."""
    try:
        queue = files.queues.find(message.topic, message.queue_id)
    except (UnsupportedError, UsageError):
        return False
    unit = queue.unit(message.queue_offset) if queue is not None and message.queue_offset >= 0 else None
    return unit is not None and unit.is_written and unit.physical_offset == message.physical_offset


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending ranges, neighbours as one."""
    made: list[tuple[int, int]] = []
    for begin, end in ranges:
        if made and made[-1][1] == begin:
            made[-1] = made[-1][0], end
        else:
            made.append((begin, end))
    return made


class CheckOptions(TypedDict, total=False):
    """How far a check goes; see `check`."""

    subset: Subset | None
    max_duration: float | None
    resume: Path | None
    fail_fast: bool


def check(
    files: StoreFiles,
    level: Level | str = Level.DEFAULT,
    *,
    subset: Subset | None = None,
    max_duration: float | None = None,
    resume: Path | None = None,
    fail_fast: bool = False,
    events: Events = Events(),
    walker: Walker | None = None,
) -> CheckRun:
    """Check the store opened as `files`; nothing of it changes. Iterate over the result, then look at its `summary`.

    `subset`: walk only this share of the commitlog's files. `max_duration` (s): stop at the end of a commitlog file
    once the time is over. `resume`: a file beside the store that says where the last check stopped, and is written
    every minute and at the end of this one. `fail_fast`: stop at the first error or warning. `progress` gets the bytes
    passed. `walker`: walks the log, by default in this process.
    """
    return CheckRun(files, Level(level), subset, max_duration, resume, fail_fast, events, walker)
