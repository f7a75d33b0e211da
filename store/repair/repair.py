"""`repair`: what `check` finds, mended through one plan and one journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import UsageError
from rmqctl.store.check.catalogue.catalogue import CATALOGUE
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.check import check
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.journal.frame import PlannedChange, Terms, changing
from rmqctl.store.journal.plan import MoveAway
from rmqctl.store.queues.queue_table import has_rocksdb_queues, rocksdb_error
from rmqctl.store.recover.bridge.bridge import plan_bridges
from rmqctl.store.recover.recovery import Recovery
from rmqctl.store.recover.report import ALL_PARTS, Bridges, Goal, Part, RecoverReport
from rmqctl.store.repair.checksum_mend import mend_checksum
from rmqctl.store.repair.config_mends import mend_config, mend_offsets
from rmqctl.store.repair.mends import RECOVERY, Mend, is_chosen, mend_of
from rmqctl.store.store_files import StoreFiles


@dataclass(slots=True)
class RepairReport:
    """What was mended, or with `dry_run` would be: findings by code; and the findings that are left, alarms only.

    `bridged`: as in RecoverReport. `operations` is the plan, `journal` the folder that keeps what went.
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


def repair(
    files: StoreFiles,
    *,
    only: Iterable[str] = (),
    dry_run: bool = False,
    keeps: bool = True,
    arguments: list[str] | None = None,
    journal_in: Path | None = None,
    progress: Progress | None = None,
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
    # with `only` some findings are left: then no interrupted change is made good by this one
    with changing(files, "repair", Terms(dry_run, keeps, arguments, journal_in), lambda head: not chosen) as change:
        findings = list(check(change.files, progress=progress))
        report = _Repair(change, chosen).plan(findings, progress)
        report.operations = change.rows()
    report.journal = change.kept_in
    return report


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
        for finding in findings:
            mend = mend_of(finding)
            # without a log nothing says what anything else has to hold
            is_possible = mend is not None and (mend not in RECOVERY or (bool(self.files.log.files) and not is_first))
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
        self._recover(chosen, mends, list(gone), report, progress)
        for finding in chosen:
            if mend_of(finding) is Mend.CHECKSUM:
                mend_checksum(self.files, finding, self.operations)
                self.operations.messages_made += 1
        staging = self.change.staging
        for finding in chosen:
            if mend_of(finding) is Mend.CONFIG:
                mend_config(finding, self.operations, staging)
        codes = {finding.code for finding in chosen if mend_of(finding) is Mend.OFFSETS}
        if codes:
            mend_offsets(self.files, codes, self.operations, staging)
        report.mended = dict(sorted(Counter(finding.code for finding in chosen).items()))
        return report

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
        if has_rocksdb_queues(self.files.layout):
            raise rocksdb_error(self.files.layout)
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

    def _forget(self, gone: list[Path]) -> None:
        """What is moved away is nothing to refuse any more."""
        log = self.files.log
        log.problems = [problem for problem in log.problems if problem.path not in gone]
        for queue in self.files.queues.all():
            queue.files.problems = [problem for problem in queue.files.problems if problem.path not in gone]


def _copy(done: RecoverReport, report: RepairReport) -> None:
    report.bridged = done.bridged
    report.truncated_bytes = done.truncated_bytes
    report.queues_changed, report.units_added = done.queues_changed, done.units_added
    report.units_removed, report.index_files_rebuilt = done.units_removed, done.index_files_rebuilt
