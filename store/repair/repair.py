"""`repair`: what `check` finds, mended through one plan and one journal."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RefusedError, UsageError
from rmqctl.store.check.catalogue.catalogue import CATALOGUE
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.check import check
from rmqctl.store.check.cross import Level
from rmqctl.store.check.state.config_files import ConfigFiles
from rmqctl.store.check.state.offsets import OffsetCheck
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.journal.frame import PlannedChange, Terms, changing
from rmqctl.store.journal.plan import Agree, MoveAway
from rmqctl.store.recover.bridge.bridge import plan_bridges
from rmqctl.store.recover.recovery import Recovery
from rmqctl.store.recover.report import ALL_PARTS, Bridges, Goal, Part, RecoverReport
from rmqctl.store.recover.truncate import count_messages
from rmqctl.store.repair.config_text import rewrite_config
from rmqctl.store.repair.followers import mend_epochs, mend_timer
from rmqctl.store.repair.mends import mend_checksum, mend_config, mend_flag, mend_offsets, set_times
from rmqctl.store.repair.moved_away import consequences
from rmqctl.store.repair.purge import plan_queue_removal
from rmqctl.store.store_files import StoreFiles


class Mend(enum.Enum):
    """A way to mend findings. The first kinds are parts of one recovery."""

    LOG = "log"
    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    MOVE_AWAY = "move away"
    CONFIG = "config"
    OFFSETS = "offsets"
    CHECKSUM = "checksum"
    FLAG = "flag"
    TIMER = "timer"
    EPOCHS = "epochs"
    REWRITE = "rewrite"
    TIMES = "times"
    TOPIC = "topic"
    OLD_TAIL = "old tail"


RECOVERY = {
    Mend.LOG: Part.LOG,
    Mend.QUEUES: Part.QUEUES,
    Mend.INDEX: Part.INDEX,
    Mend.CHECKPOINT: Part.CHECKPOINT,
}
"""The mends that one recovery makes, and which of its parts each is."""
_BY_CODE = {
    "RMQ-FILE-001": Mend.MOVE_AWAY,
    "RMQ-FILE-007": Mend.MOVE_AWAY,
    "RMQ-FILE-009": Mend.MOVE_AWAY,
    "RMQ-FILE-012": Mend.MOVE_AWAY,
    "RMQ-FILE-013": Mend.QUEUES,
    "RMQ-FILE-014": Mend.QUEUES,
    "RMQ-FILE-015": Mend.QUEUES,
    "RMQ-LOG-013": Mend.OLD_TAIL,
    "RMQ-LOG-015": Mend.OLD_TAIL,
    "RMQ-LOG-021": Mend.CHECKSUM,
    "RMQ-LOG-032": Mend.FLAG,
    "RMQ-CFG-001": Mend.CONFIG,
    "RMQ-CFG-002": Mend.REWRITE,
    "RMQ-CFG-003": Mend.CONFIG,
    "RMQ-CFG-004": Mend.CONFIG,
    "RMQ-CFG-006": Mend.TOPIC,
    "RMQ-CFG-021": Mend.REWRITE,
    "RMQ-OFF-001": Mend.OFFSETS,
    "RMQ-OFF-003": Mend.OFFSETS,
    "RMQ-OFF-007": Mend.OFFSETS,
    "RMQ-TMR-001": Mend.TIMER,
    "RMQ-TMR-002": Mend.TIMER,
    "RMQ-TMR-003": Mend.TIMER,
    "RMQ-TMR-004": Mend.TIMER,
    "RMQ-TMR-005": Mend.TIMER,
    "RMQ-TIME-001": Mend.TIMES,
    "RMQ-TIME-002": Mend.TIMES,
    "RMQ-EPO-001": Mend.EPOCHS,
    "RMQ-EPO-002": Mend.EPOCHS,
    "RMQ-EPO-003": Mend.EPOCHS,
    "RMQ-EPO-004": Mend.OLD_TAIL,
}
_BY_FAMILY = {"CQ": Mend.QUEUES, "IDX": Mend.INDEX, "CKPT": Mend.CHECKPOINT}
# mends that set an offset to the end of its queue
_SET_BY_THE_END = frozenset({"RMQ-OFF-001", "RMQ-OFF-003"})
_SEEN_BY_A_FULL_CHECK = frozenset({"RMQ-LOG-032"})
_RECOVERING = ("rmqctl recover", "rmqctl rebuild", "rmqctl repair")


def mend_of(finding: Finding) -> Mend | None:
    """The mend for a finding, None where a person has to decide or another command is for it."""
    known = _BY_CODE.get(finding.code)
    if known in (Mend.REWRITE, Mend.TIMER, Mend.FLAG, Mend.OLD_TAIL) and finding.fix is None:
        return None  # nothing of the file is known; a checksum covers the flag; or newer messages follow the old ones
    if known is not None:
        return known
    if finding.fix is None or not finding.fix.startswith(_RECOVERING) or "--cut" in finding.fix:
        return None
    # what lies in the log decides what queues and index have to hold, so it takes them along
    return Mend.LOG if "--bridge" in finding.fix else _BY_FAMILY.get(finding.kind.family, Mend.LOG)


def _changes_an_end(finding: Finding) -> bool:
    """Return whether the fix of a finding may change where the log or a queue ends."""
    is_mended = mend_of(finding) in (Mend.LOG, Mend.QUEUES, Mend.OLD_TAIL) or "--cut" in (finding.fix or "")
    return finding.severity.is_alarm and is_mended


def may_make_queues(only: Iterable[str]) -> bool:
    """Whether mending these codes (none: all) can make queue files anew."""
    known = [_BY_CODE.get(code) or _BY_FAMILY.get(code.split("-")[1], Mend.LOG) for code in only if code in CATALOGUE]
    # what lies in the log decides what all else has to hold
    return not known or bool({Mend.QUEUES, Mend.LOG, Mend.OLD_TAIL} & set(known))


def is_chosen(finding: Finding, only: Iterable[str]) -> bool:
    """Return whether a finding is to be mended.

    Offsets of consumers, the text of a config file, queues of an unknown topic, whole messages after the end of the log
    and the mtimes of files, by which a broker deletes them, are a decision: their codes have to be named.
    """
    chosen = frozenset(only)
    if chosen:
        return finding.code in chosen
    return mend_of(finding) not in (None, Mend.OFFSETS, Mend.REWRITE, Mend.TIMES, Mend.TOPIC, Mend.OLD_TAIL)


@dataclass(slots=True)
class RepairReport:
    """What was mended, or with `dry_run` would be: findings by code; and the findings that are left, alarms only.

    `bridged`: as in RecoverReport. `operations` is the plan, `journal` the folder that keeps what went. `notes`: what a
    broker does without the files that are moved away.
    """

    mended: dict[str, int] = field(default_factory=dict)
    left: list[dict[str, Any]] = field(default_factory=list)
    bridged: list[dict[str, Any]] = field(default_factory=list)
    truncated_bytes: int = 0
    queues_changed: int = 0
    units_added: int = 0
    units_removed: int = 0
    index_files_rebuilt: int = 0
    journal: str | None = None
    dry_run: bool = False
    operations: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def repair(
    files: StoreFiles,
    *,
    only: Iterable[str] = (),
    dry_run: bool = False,
    keeps: bool = True,
    arguments: list[str] | None = None,
    journal_in: Path | None = None,
    progress: Progress | None = None,
    agree: Agree | None = None,
) -> RepairReport:
    """Check the store opened as `files`, which is stale afterwards, and mend what is found; with `only`
    findings of these codes.

    Damage inside the log is bridged, a torn tail cut. UsageError for a code that is none; RefusedError where a decision
    is needed; StoreInUseError; UnsupportedError for findings about queues in a RocksDB.
    """
    unknown = sorted(set(only) - set(CATALOGUE))
    if unknown:
        raise UsageError(f"{unknown[0]} is no code of a finding", hint="docs/findings.md lists them")
    chosen = frozenset(only)
    terms = Terms(dry_run, keeps, arguments, journal_in, agree)
    left: list[dict[str, Any]] = []

    def ends(_head: dict[str, Any]) -> bool:
        # with `only` some findings are left, and what is left may be what an interrupted change has done
        return not chosen and not left

    with changing(files, "repair", terms, ends) as change:
        level = Level.FULL if chosen & _SEEN_BY_A_FULL_CHECK else Level.DEFAULT
        findings = list(check(change.files, level, progress=progress))
        _refuse_doubtful(findings, chosen)
        report = _Repair(change, chosen).plan(findings, progress)
        left += report.left
        report.operations = change.rows()
    report.journal = change.kept_in
    if report.queues_changed and not dry_run and any(finding.code == "RMQ-OFF-030" for finding in findings):
        with StoreFiles(files.root, files.config) as now:
            offsets = OffsetCheck(now, ConfigFiles(now.layout.config)).findings()
            report.left += [finding.row() for finding in offsets if finding.severity.is_alarm]
    return report


def _refuse_doubtful(findings: list[Finding], only: frozenset[str]) -> None:
    """RefusedError where offsets are to be set by the end of a queue that has findings of its own."""
    doubtful = next((finding for finding in findings if finding.code == "RMQ-OFF-030"), None)
    if doubtful is not None and only & _SET_BY_THE_END:
        raise RefusedError(
            doubtful.message,
            file=doubtful.file,
            hint="recover the queues first (`rmqctl recover`), then `rmqctl check` judges the offsets again",
        )


class _Repair:
    """One repair: findings, then the plan in the order strays, recovery, config files."""

    def __init__(self, change: PlannedChange, only: frozenset[str]) -> None:
        self.files = change.files
        self.change = change
        self.only = only
        self.operations = change.plan

    def plan(self, findings: list[Finding], progress: Progress | None) -> RepairReport:
        """Decide everything; nothing of the store is touched."""
        report = RepairReport(dry_run=self.change.is_dry)
        chosen: list[Finding] = []
        # a recovery would put filler in the place of messages that only need their checksum: that is for the next run
        is_first = any(mend_of(one) is Mend.CHECKSUM and is_chosen(one, self.only) for one in findings)
        # where the log ends at the old messages, what is wrong before them is for the next run
        is_first |= any(mend_of(one) is Mend.OLD_TAIL and is_chosen(one, self.only) for one in findings)
        # the timer and the epochs follow the log and the queues: they are for the next run
        waits_for_recovery = any(map(_changes_an_end, findings))
        for finding in findings:
            mend = mend_of(finding)
            # without a log nothing says what anything else has to hold
            is_possible = mend is not None and (mend not in RECOVERY or (bool(self.files.log.files) and not is_first))
            is_possible &= not (waits_for_recovery and mend in (Mend.TIMER, Mend.EPOCHS))
            if is_possible and is_chosen(finding, self.only):
                chosen.append(finding)
            elif finding.severity.is_alarm:
                report.left.append(finding.row())
        mends = {mend_of(finding) for finding in chosen}
        gone = dict.fromkeys(
            finding.file for finding in chosen if mend_of(finding) is Mend.MOVE_AWAY and finding.file is not None
        )
        for path in gone:
            self.operations.add(MoveAway(path))
        report.notes += consequences(self.files, gone)
        old_tails = [finding for finding in chosen if mend_of(finding) is Mend.OLD_TAIL]
        if old_tails:
            self._end_log(old_tails, list(gone), report, progress)
        else:
            self._recover(chosen, mends, list(gone), report, progress)
        for finding in chosen:
            if mend_of(finding) is Mend.CHECKSUM:
                mend_checksum(self.files, finding, self.operations)
                self.operations.messages_made += 1
            elif mend_of(finding) is Mend.FLAG:
                mend_flag(self.files, finding, self.operations)
        staging = self.change.staging
        self._mend_config(chosen)
        if Mend.TIMER in mends:
            mend_timer(self.files, self.operations)
        epochs = [finding for finding in chosen if mend_of(finding) is Mend.EPOCHS]
        if epochs:
            mend_epochs(epochs, self.operations, staging)
        codes = {finding.code for finding in chosen if mend_of(finding) is Mend.OFFSETS}
        if codes:
            mend_offsets(self.files, codes, self.operations, staging)
        times = {finding.code for finding in chosen if mend_of(finding) is Mend.TIMES}
        if times:
            set_times(self.files, times, self.operations)
        report.mended = dict(sorted(Counter(finding.code for finding in chosen).items()))
        return report

    def _mend_config(self, chosen: list[Finding]) -> None:
        """Plan config files, and the queues of topics that they do not name."""
        for finding in chosen:
            mend = mend_of(finding)
            if mend is Mend.CONFIG:
                mend_config(finding, self.operations, self.change.staging)
            elif mend is Mend.REWRITE:
                rewrite_config(self.files, finding, self.operations, self.change.staging)
            elif mend is Mend.TOPIC and finding.topic is not None:
                plan_queue_removal(self.files.layout, finding.topic, self.operations)

    def _recover(
        self,
        chosen: list[Finding],
        mends: set[Mend | None],
        gone: list[Path],
        report: RepairReport,
        progress: Progress | None,
    ) -> None:
        """The part of the plan that one recovery makes, as far as it is wanted."""
        # without a stray file a store may need nothing else; but its recovery must not stumble over it
        parts = frozenset(RECOVERY[mend] for mend in mends if mend in RECOVERY)
        if not parts:
            return
        self._forget(gone)
        bridges: Bridges | None = None
        if any("--bridge" in (finding.fix or "") for finding in chosen):
            bridges = plan_bridges(self.files, self.change.spill, progress)
        # what lies in the log decides what all else has to hold
        leave, new_checkpoint = Part.LOG not in parts, Part.CHECKPOINT in parts
        goal = Goal(bridges=bridges, leave=leave, new_checkpoint=new_checkpoint, parts=parts if leave else ALL_PARTS)
        recovery = Recovery(self.change, goal)
        _copy(recovery.plan(progress), report)
        self.operations.add_all(recovery.operations)

    def _end_log(
        self, old_tails: list[Finding], gone: list[Path], report: RepairReport, progress: Progress | None
    ) -> None:
        """Plan that the log ends before the first of the old messages; what follows the log is cut with it."""
        self._forget(gone)
        at = min(_end_before(finding) for finding in old_tails)
        recovery = Recovery(self.change, Goal(at=at, messages_cut=count_messages(self.files.log, at)))
        _copy(recovery.plan(progress), report)
        self.operations.add_all(recovery.operations)

    def _forget(self, gone: list[Path]) -> None:
        """What is moved away is nothing to refuse any more. UnsupportedError for queues in a RocksDB."""
        log = self.files.log
        log.problems = [problem for problem in log.problems if problem.path not in gone]
        for queue in self.files.queues.all():
            queue.files.problems = [problem for problem in queue.files.problems if problem.path not in gone]


def _end_before(finding: Finding) -> int:
    """Return where the log ends without the old messages of a finding: where damage comes before them, before that."""
    end = finding.expected if finding.code == "RMQ-LOG-013" else finding.physical_offset
    assert isinstance(end, int)
    return end


def _copy(done: RecoverReport, report: RepairReport) -> None:
    report.bridged = done.bridged
    report.truncated_bytes = done.truncated_bytes
    report.queues_changed, report.units_added = done.queues_changed, done.units_added
    report.units_removed, report.index_files_rebuilt = done.units_removed, done.index_files_rebuilt
