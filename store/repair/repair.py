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
from rmqctl.store.files.blob import only_counted
from rmqctl.store.files.reading import named
from rmqctl.store.journal.interrupted_sizes import keep_interrupted_sizes
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.log import end_interrupted, refuse_unfinished
from rmqctl.store.journal.plan import MoveAway, Operation, Plan, describe
from rmqctl.store.journal.taken import taken
from rmqctl.store.queues.queue_table import has_rocksdb_queues, rocksdb_error
from rmqctl.store.recover.bridge.bridge import plan_bridges
from rmqctl.store.recover.recovery import Recovery
from rmqctl.store.recover.report import Bridges, Goal, RecoverReport
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
    if dry_run:
        with named(files.root):
            refuse_unfinished(files.layout, mends=True)
            keep_interrupted_sizes(files)
            return _Repair(files, None, only).plan(list(check(files, progress=progress)), progress)
    with taken(files, mends=True) as store:
        findings = list(check(store, progress=progress))
        journal = Journal(store.layout, "repair", arguments, keeps=keeps, sizes=store.sizes())
        repairing = _Repair(store, journal, only)
        with journal.planning():
            report = repairing.plan(findings, progress)
        if repairing.operations:
            journal.apply(repairing.operations)
            report.journal = journal.kept_in
        else:
            journal.discard()
        if not repairing.only:
            end_interrupted(store.layout)
    return report


class _Repair:
    """One repair: findings, then the plan in the order strays, recovery, config files."""

    def __init__(self, files: StoreFiles, journal: Journal | None, only: Iterable[str]) -> None:
        self.files = files
        self.journal = journal
        self.only = frozenset(only)
        self.operations = Plan()

    def plan(self, findings: list[Finding], progress: Progress | None) -> RepairReport:
        """Decide everything; nothing of the store is touched."""
        report = RepairReport(dry_run=self.journal is None)
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
        staging = None if self.journal is None else lambda: self.journal.staging  # type: ignore[union-attr]
        for finding in chosen:
            if mend_of(finding) is Mend.CONFIG:
                mend_config(finding, self.operations, staging)
        codes = {finding.code for finding in chosen if mend_of(finding) is Mend.OFFSETS}
        if codes:
            mend_offsets(self.files, codes, self.operations, staging)
        report.mended = dict(sorted(Counter(finding.code for finding in chosen).items()))
        report.operations = [describe(operation, self.files.root) for operation in self.operations.operations]
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
        wanted = mends & RECOVERY
        if not wanted:
            return
        if has_rocksdb_queues(self.files.layout):
            raise rocksdb_error(self.files.layout)
        self._forget(gone)
        spill = only_counted if self.journal is None else self.journal.spill
        bridges: Bridges | None = None
        if any("--bridge" in (finding.fix or "") for finding in chosen):
            bridges = plan_bridges(self.files, spill, progress)
        goal = Goal(bridges=bridges, leave=Mend.LOG not in wanted, new_checkpoint=Mend.CHECKPOINT in wanted)
        recovery = Recovery(self.files, self.journal, goal)
        done = recovery.plan(progress)
        for operation in recovery.operations.operations:
            if Mend.LOG in wanted or self._belongs(operation, wanted):
                self.operations.add(operation)
        self.operations.times |= recovery.operations.times
        self.operations.messages_made += recovery.operations.messages_made
        _copy(done, report)

    def _forget(self, gone: list[Path]) -> None:
        """What is moved away is nothing to refuse any more."""
        log = self.files.log
        log.problems = [problem for problem in log.problems if problem.path not in gone]
        for queue in self.files.queues.all():
            queue.files.problems = [problem for problem in queue.files.problems if problem.path not in gone]

    def _belongs(self, operation: Operation, wanted: set[Mend | None]) -> bool:
        layout = self.files.layout
        places = {
            Mend.QUEUES: (layout.consumequeue, layout.batchconsumequeue, layout.consumequeue_ext),
            Mend.INDEX: (layout.index,),
            Mend.CHECKPOINT: (layout.checkpoint,),
        }
        return any(operation.path.is_relative_to(place) for mend in wanted if mend in places for place in places[mend])


def _copy(done: RecoverReport, report: RepairReport) -> None:
    report.bridged = done.bridged
    report.truncated_bytes = done.truncated_bytes
    report.queues_changed, report.units_added = done.queues_changed, done.units_added
    report.units_removed, report.index_files_rebuilt = done.units_removed, done.index_files_rebuilt
