"""Recovery: ends the log where it is valid and makes queues and index exactly what the log implies (design law 4).

Better than the broker's where that one loses or doubles things: see docs/recovery.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from formats.errors import RefusedError
from store.checkpoint import Checkpoint, checkpoint_bytes
from store.commitlog.walk import Damage, Progress
from store.files.blob import only_counted
from store.files.journal import Journal
from store.files.layout import file_name
from store.files.lock import take_lock
from store.files.plan import ClearRange, CreateFile, Install, MoveAway, Plan, Resize, WriteRange, describe
from store.files.reading import end_of_nonzero
from store.log_runs import Digest, Run, route
from store.log_survey import LogSurvey, new_survey, start_after_clean_stop, start_after_crash
from store.mend.gone import Gone
from store.mend.index_mend import IndexRecovery
from store.mend.queues import QueuesMend
from store.queues.queue_table import has_rocksdb_queues, rocksdb_error
from store.run_survey import survey_runs
from store.store_files import StoreFiles


@dataclass(slots=True)
class RecoverReport:
    """What recovery did, or with `dry_run` would do. Offsets physical; `journal` is the folder that keeps what went.

    `damaged` lists spans before `start_offset` that are left as they are. `operations` is the plan.
    """

    was_clean: bool
    start_file: str | None
    start_offset: int
    end_offset: int
    messages: int
    truncated_bytes: int = 0
    messages_cut: int = 0
    queues_changed: int = 0
    units_added: int = 0
    units_removed: int = 0
    slot_conflicts: int = 0
    unplaceable_messages: int = 0
    index_files_rebuilt: int = 0
    journal: str | None = None
    dry_run: bool = False
    damaged: list[dict[str, Any]] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)


def recover(
    files: StoreFiles,
    *,
    cut: bool = False,
    full: bool = False,
    dry_run: bool = False,
    arguments: list[str] | None = None,
    progress: Progress | None = None,
) -> RecoverReport:
    """Recover the store opened as `files`, which is stale afterwards: open it again.

    `full` lets damage anywhere end the log, not only where a broker would look. `cut` ends the log at damage even where
    good messages follow. RefusedError where a decision is needed; StoreInUseError; UnsupportedError for RocksDB queues.
    """
    if has_rocksdb_queues(files.layout):
        raise rocksdb_error(files.layout)
    if dry_run:
        return _Recovery(files, None).plan(cut, full, progress)
    lock = take_lock(files.layout)
    journal = Journal(files.layout, "recover", arguments)
    try:
        recovery = _Recovery(files, journal)
        try:
            report = recovery.plan(cut, full, progress)
        except BaseException:  # refused, interrupted: nothing of the store was touched, so nothing is to be undone
            journal.discard()
            raise
        if recovery.operations:
            journal.apply(recovery.operations)
            report.journal = str(journal.folder)
        else:
            journal.discard()
    finally:
        lock.release()
    return report


class _Recovery:
    """One recovery: survey, then the plan in the order log, queues, index, checkpoint, abort."""

    def __init__(self, files: StoreFiles, journal: Journal | None) -> None:
        self.files = files
        self.log = files.log
        self.journal = journal
        self.operations = Plan()

    def plan(self, cut: bool, full: bool, progress: Progress | None) -> RecoverReport:
        """Decide everything; nothing of the store is touched (index files may be staged in the journal)."""
        self._refuse_strangers()
        crashed = self.files.has_abort()
        checkpoint = self.files.checkpoint()
        start = 0
        if not full:
            start = start_after_crash(self.log, checkpoint) if crashed else start_after_clean_stop(self.log)
        if not self.log.files:
            return self._without_log(cut, crashed)
        survey = new_survey(self.log, start)
        is_gone = Gone(self.log.min_offset, survey)
        spill = only_counted if self.journal is None else self.journal.spill
        queues = QueuesMend(self.files.queues, self.files.descriptors, is_gone, spill)
        index = self._index_recovery(is_gone)
        try:
            return self._plan(survey, queues, index, cut, progress)
        finally:
            index.close()

    def _plan(
        self,
        survey: LogSurvey,
        queues: QueuesMend,
        index: IndexRecovery,
        cut: bool,
        progress: Progress | None,
    ) -> RecoverReport:
        crashed = self.files.has_abort()
        checkpoint = self.files.checkpoint()
        unplaceable = 0
        levels = self.files.config.delay_levels()

        def on_run(run: Run) -> None:
            nonlocal unplaceable
            route(run, self.log, levels, queues)
            unplaceable += run.unplaceable
            index.add(run)

        survey_runs(survey, self.log, Digest(levels), on_run, progress=progress)
        if survey.has_damage_inside and not cut:
            raise _inside_damage(survey, self.files.layout.kept)
        report = RecoverReport(
            not crashed,
            file_name(survey.start_offset),
            survey.start_offset,
            survey.end_offset,
            survey.messages,
            dry_run=self.journal is None,
        )
        report.damaged = [_damage_row(span) for span in survey.tolerated]
        report.messages_cut = survey.behind_messages
        report.truncated_bytes = self._end_log(survey)
        queues.finish(self.operations)
        report.queues_changed, report.units_added = queues.changed, queues.added
        report.units_removed, report.slot_conflicts = queues.removed, queues.conflicts
        report.unplaceable_messages = unplaceable
        report.index_files_rebuilt = self._mend_index(index, survey.start_offset)
        if self.operations or crashed or checkpoint is None:
            self._finish(survey, checkpoint, index.full_file_end_timestamp, crashed)
        report.operations = [describe(operation, self.files.root) for operation in self.operations.operations]
        return report

    def _index_recovery(self, is_gone: Gone) -> IndexRecovery:
        journal = self.journal
        directory = None if journal is None else lambda: journal.staging
        is_wanted = self.files.config.message_index_enable
        return IndexRecovery(self.files.index, self.files.descriptors, is_gone, directory, is_wanted)

    def _refuse_strangers(self) -> None:
        for problem in self.log.problems:
            if problem.kind in ("stray", "unreadable", "overlap"):
                raise RefusedError(
                    f"does not belong into the commitlog: {problem.detail}",
                    file=problem.path,
                    hint="a broker does not start with it: move it elsewhere, then run `rmqctl recover` again",
                )

    def _end_log(self, survey: LogSurvey) -> int:
        """Plan that nothing stands behind the end; returns the bytes (other than zeros) that go."""
        removed = 0
        for problem in self.log.problems:
            if problem.kind == "empty":
                self.operations.add(MoveAway(problem.path))
        for file in self.log.files:
            begin = max(0, survey.end_offset - file.start_offset)
            stop = end_of_nonzero(self.files.descriptors, file.path, min(begin, file.size), file.size)
            if file.start_offset >= survey.end_offset and survey.end_offset > self.log.files[0].start_offset:
                removed += stop
                self.operations.add(MoveAway(file.path))
                continue
            if file.size != self.log.file_size:
                if file is not self.log.files[-1] and file.end_offset < survey.end_offset:
                    raise RefusedError(
                        f"has {file.size} bytes instead of {self.log.file_size} and messages follow it",
                        file=file.path,
                        hint="a broker does not start with it; `--full --cut` ends the log there",
                    )
                self.operations.add(Resize(file.path, self.log.file_size))
            if stop > begin and file.end_offset > survey.end_offset:
                removed += stop - begin
                self.operations.add(ClearRange(file.path, begin, stop - begin))
        return removed

    def _mend_index(self, index: IndexRecovery, start: int) -> int:
        """Plan new index files if the present ones are not complete and sound; returns how many."""
        service = self.files.index

        def read_again(on_run: Callable[[Run], None]) -> None:
            survey_runs(new_survey(self.log, start), self.log, Digest((), queues=False), on_run)

        if index.finish(read_again):
            return 0
        present = [*(file.path for file in service.files), *(path for path, _ in service.problems)]
        targets = [self.files.layout.index / path.name for path in index.staged]
        for path in present:
            if path not in targets:
                self.operations.add(MoveAway(path))
        for path, target in zip(index.staged, targets, strict=True):
            self.operations.add(Install(path, target))
        return index.file_count

    def _finish(self, survey: LogSurvey, checkpoint: Checkpoint | None, index_timestamp: int, crashed: bool) -> None:
        """Checkpoint as after a clean stop with everything flushed; no abort file."""
        wanted = (checkpoint or Checkpoint())._replace(
            physic_msg_timestamp=survey.last_store_timestamp,
            logics_msg_timestamp=survey.last_store_timestamp,
            index_msg_timestamp=index_timestamp,
            confirm_physical_offset=survey.last_message_offset,
        )
        path = self.files.layout.checkpoint
        data = checkpoint_bytes(wanted)
        if not path.exists():
            self.operations.add(CreateFile(path, len(data)))
        elif path.stat().st_size != len(data):
            self.operations.add(Resize(path, len(data)))
        if checkpoint != wanted:
            self.operations.add(WriteRange(path, 0, data))
        if crashed:
            self.operations.add(MoveAway(self.files.layout.abort))

    def _without_log(self, cut: bool, crashed: bool) -> RecoverReport:
        """The commitlog is gone. A broker would delete every queue; we ask first and keep them."""
        queues = self.files.queues.all()
        units = sum(queue.max_offset for queue in queues)
        if units and not cut:
            raise RefusedError(
                f"there is no commitlog file, but {len(queues)} queues point at {units} messages",
                file=self.files.layout.commitlog[0],
                hint="bring the commitlog back, or give its place with -c broker.conf (storePathCommitLog); "
                "`--cut` starts over with an empty store and keeps the queues beside it",
            )
        report = RecoverReport(not crashed, None, 0, 0, 0, dry_run=self.journal is None)
        # with their topic folders: a broker loads an empty folder as a queue and tidies it up itself
        for topic in dict.fromkeys(queue.directory.parent for queue in queues):
            self.operations.add(MoveAway(topic))
        for index_file in self.files.index.files:
            self.operations.add(MoveAway(index_file.path))
        report.queues_changed = sum(bool(queue.files.files) for queue in queues)
        report.units_removed = units
        if crashed:
            self.operations.add(MoveAway(self.files.layout.abort))
        report.operations = [describe(operation, self.files.root) for operation in self.operations.operations]
        return report


def _damage_row(span: Damage) -> dict[str, Any]:
    return {
        "file": span.file,
        "physical_offset": span.physical_offset,
        "end_offset": span.end,
        "reason": str(span.reason),
        "message": span.detail,
    }


def _inside_damage(survey: LogSurvey, kept: Path) -> RefusedError:
    stop = survey.stop
    if isinstance(stop, Damage):
        what, file = f"damage ({stop.reason}: {stop.detail})", stop.file
    else:
        what, file = "zeros where a message should be", None
    return RefusedError(
        f"{what} with {survey.behind_messages} good messages ({survey.behind_bytes} bytes) behind it",
        file=file,
        physical_offset=stop.physical_offset if stop is not None else survey.end_offset,
        hint=f"`rmqctl recover --cut` ends the log here, as a broker would, and keeps what it cuts off in {kept}; "
        "until then every message stays readable by `cat` and `query`",
    )
