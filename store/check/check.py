"""`check`: everything that is wrong with a store, found by looking at it. Order of the looks, and what was covered."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import UnreadableError
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.catalogue.kind import Severity
from rmqctl.store.check.cross import Level
from rmqctl.store.check.pass_over import Pass
from rmqctl.store.check.ranges import Subset
from rmqctl.store.check.scrub import SAVED_EVERY_S, ScrubState, load_state, save_state
from rmqctl.store.check.summary import CheckSummary
from rmqctl.store.check.walker import InProcess, Walker
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files.presence import exists
from rmqctl.store.store_files import StoreFiles

_RESTARTS = 3


class CheckRun:
    """One check, carried out while its findings are taken: `for finding in run`, then `run.summary`."""

    def __init__(
        self,
        files: StoreFiles,
        level: Level,
        subset: Subset | None,
        max_duration: float | None,
        resume: Path | None,
        fail_fast: bool,
        progress: Progress | None,
        walker: Walker | None = None,
    ) -> None:
        self._files = files
        self._walker = walker if walker is not None else InProcess()
        self._level = level
        self._subset = subset
        self._deadline = None if max_duration is None else time.monotonic() + max_duration
        self._resume = resume
        self._fail_fast = fail_fast
        self._progress = progress
        named = None if subset is None else str(subset)
        self.summary = CheckSummary(str(level), str(files.root), subset=named)
        # findings told already, should a pass have to begin anew, or follow another one
        self._told: set[int] = set()
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
            yield finding
            if self._fail_fast and finding.severity.is_alarm:
                self.summary.stopped_by, self.summary.complete = "fail_fast", False
                break
        self.summary.codes = dict(sorted(codes.items()))
        self.summary.duration_ms = int((time.monotonic() - begun) * 1000)

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
        """The findings of one pass; begun anew where files went away while they were looked at."""
        for attempt in range(_RESTARTS):
            one = Pass(self._files, self._level, self._subset, begin, deadline, self._progress, self._walker)
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


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending ranges, neighbours as one."""
    made: list[tuple[int, int]] = []
    for begin, end in ranges:
        if made and made[-1][1] == begin:
            made[-1] = made[-1][0], end
        else:
            made.append((begin, end))
    return made


def check(
    files: StoreFiles,
    level: Level | str = Level.DEFAULT,
    *,
    subset: Subset | None = None,
    max_duration: float | None = None,
    resume: Path | None = None,
    fail_fast: bool = False,
    progress: Progress | None = None,
    walker: Walker | None = None,
) -> CheckRun:
    """Check the store opened as `files`; nothing of it changes. Iterate over the result, then look at its `summary`.

    `subset`: walk only this share of the commitlog's files. `max_duration` (s): stop at the end of a commitlog file
    once the time is over. `resume`: a file beside the store that says where the last check stopped, and is written
    every minute and at the end of this one. `fail_fast`: stop at the first error or warning. `progress` is told the
    bytes passed.
    `walker`: who walks the log, this process if nobody else.
    """
    return CheckRun(files, Level(level), subset, max_duration, resume, fail_fast, progress, walker)
