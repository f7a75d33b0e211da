"""One recovery as a plan: where the log ends, then everything that queues, index and checkpoint need for that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RefusedError, RemovedError, UnreadableError, counted
from rmqctl.store.answers.config_offsets import KnownNames, QueueLives
from rmqctl.store.compare.lives import AbsentQueues, Lives, LiveSlots
from rmqctl.store.config.epoch_file import is_under_controller
from rmqctl.store.files.layout import StoreLayout, file_name
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue, stranger_error
from rmqctl.store.files.reading import end_of_nonzero, exists, is_directory
from rmqctl.store.journal.journal import PlannedChange, changing
from rmqctl.store.journal.log import waits_for_mend
from rmqctl.store.journal.plan import (
    ClearRange,
    CreateFile,
    Install,
    MoveAway,
    Plan,
    Resize,
    WriteRange,
    install_config,
)
from rmqctl.store.log.columns import ColumnRecord, MessageColumns
from rmqctl.store.log.implied import Digest, Run, route
from rmqctl.store.log.parallel import walk_parallel
from rmqctl.store.log.survey import LogSurvey, new_survey, start_after_clean_stop, start_after_crash, survey_runs
from rmqctl.store.log.walk import Blank, Empty, is_left_over, walk
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.queues.consumequeue import QueueKey
from rmqctl.store.queues.dispatch import FurtherSlots
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_queues, has_units, rocksdb_error
from rmqctl.store.recover.entries import goal_of_entries, plan_entry_index, require_committed
from rmqctl.store.recover.ext_units import plan_empty_ext
from rmqctl.store.recover.followers import plan_followers
from rmqctl.store.recover.index import IndexRecovery, TagRule, tag_rule
from rmqctl.store.recover.queues import Gone, QueuesMend
from rmqctl.store.recover.report import Bridges, Goal, Part, RecoverReport, damage_row, inside_damage
from rmqctl.store.store_files import Checkpoint, StoreFiles, checkpoint_bytes


def refuse_strangers(log: MappedFileQueue) -> None:
    """RefusedError for foreign files among those of the log, UnreadableError if that is unknown."""
    for problem in log.problems:
        if problem.kind in ("stray", "unreadable", "overlap"):
            raise stranger_error(problem, "the commitlog")


def folders_inside(log: MappedFileQueue) -> list[Path]:
    """Directories among the files of the log: 5.x passes over them, 4.x takes them for files of a wrong length."""
    listed = (path for directory in log.directories if is_directory(directory) for path in directory.iterdir())
    return sorted(path for path in listed if is_directory(path))


class Recovery:
    """One recovery: survey, then `operations`, the plan of the goal's parts in the order log, queues, index,
    checkpoint, abort."""

    def __init__(self, change: PlannedChange, goal: Goal) -> None:
        self.files = change.files
        self.log = change.files.log
        self.change = change
        self.goal = goal
        self.bridges = goal.bridges or Bridges()
        self.operations = Plan(list(self.bridges.operations.operations))
        self._lives: dict[QueueKey, Lives] | None = None
        """What later messages have superseded; None before the first look at the log."""
        self._absent_lives: QueueLives = {}

    def plan(self, events: Events) -> RecoverReport:
        """Decide everything; nothing of the store is touched (index files may be staged in the journal)."""
        refuse_strangers(self.log)
        crashed = self.files.has_abort()
        checkpoint = self.files.readable_checkpoint()
        start = 0
        if self.goal.at is not None:
            self.log.truncate(self.goal.at)
        if self.goal.entries is not None:
            start = self.goal.entries.start
        elif not self.goal.full:
            start = start_after_crash(self.log, checkpoint) if crashed else start_after_clean_stop(self.log)
        if not self.log.files:
            return self._without_log(self.goal.cut, crashed)
        while isinstance(planned := self._plan_from(start, events), int):
            start = planned
        return planned

    def _plan_from(self, start: int, events: Events) -> RecoverReport | int:
        """Everything, where damage counts from `start` on; or the offset from which on it has to count."""
        survey = new_survey(self.log, start, tolerant=self.goal.is_tolerant)
        # where fillers will stand nothing is gone: units and entries are what the fillers imply
        is_gone = Gone(self.log.min_offset, survey if self.goal.bridges is None else new_survey(self.log, start))
        queues = None
        if Part.QUEUES in self.goal.parts:
            with_ext = self.log if self.files.config.enable_consume_queue_ext else None
            queues = QueuesMend(self.files.queues, self.files.descriptors, is_gone, self.change.spill, with_ext)
        index = self._index_recovery(is_gone)
        try:
            return self._plan(survey, queues, index, events)
        finally:
            index.close()

    def _plan(
        self, survey: LogSurvey, queues: QueuesMend | None, index: IndexRecovery, events: Events
    ) -> RecoverReport | int:
        crashed = self.files.has_abort()
        checkpoint = self.files.readable_checkpoint()
        unplaceable = 0
        levels = self.files.config.delay_levels_to_write()

        further = FurtherSlots(self.files.queues.find)
        fillers = list(self.bridges.runs)
        absent = self._absent_queues()
        slots = None if queues is None else LiveSlots(queues, self._lives or {}, absent)

        def on_run(run: Run) -> None:
            while fillers and fillers[0].physical_offset < run.physical_offset:
                add(fillers.pop(0))
            add(self.bridges.applied(run))

        def add(run: Run) -> None:
            nonlocal unplaceable
            if slots is not None:
                route(run, self.log, levels, slots, further=further)
            unplaceable += run.unplaceable
            index.add(run)

        with_keys = bool(self.goal.parts & {Part.INDEX, Part.CHECKPOINT})
        digest = Digest(levels, queues=queues is not None, keys=with_keys, tags=True)
        survey_runs(survey, self.log, digest, on_run, events.progress, self.files.config)
        if self.goal.entries is not None:  # what DLedger keeps stays, though brokers may not read it
            survey.end_offset = self.goal.entries.whole_end
        earlier = self._first_that_counts(survey)
        if earlier < survey.start_offset:
            index.discard()
            return earlier
        for run in fillers:  # only a blank frame follows
            add(run)
        if self._finds_one_life(absent) or self._finds_lives(queues):
            index.discard()
            return survey.start_offset
        if survey.has_damage_inside and not self.goal.cut:
            raise inside_damage(survey, self.files.layout.kept, is_full=self.goal.full)
        report = self._report(survey, unplaceable, slots)
        if Part.LOG in self.goal.parts:
            report.truncated_bytes = self._end_log(survey)
            if self.goal.entries is not None:
                plan_entry_index(self.change, self.operations, self.goal.entries)
        if queues is not None:
            self._mend_queues(queues, report)
            if Part.LOG in self.goal.parts:
                is_cut = bool(report.truncated_bytes or report.messages_cut) or self.goal.is_cut
                end, ends = survey.end_offset, queues.ends
                plan_followers(self.change, self.operations, end, ends, is_cut=is_cut, crashed=crashed)
        if Part.INDEX in self.goal.parts:
            report.index_files_rebuilt = self._mend_index(index, survey.start_offset)
        renews = checkpoint is None or self.goal.new_checkpoint or self._is_ahead(checkpoint, survey)
        if self.operations or crashed or renews:
            keeps_abort = crashed and self._lacks_units_in_rocksdb(survey.end_offset)
            if Part.CHECKPOINT in self.goal.parts:
                # after a crash a broker deletes index files that end after this time
                to = survey.last_store_timestamp if keeps_abort else index.full_file_end_timestamp
                self._renew_checkpoint(survey, checkpoint, to)
            if not keeps_abort:
                self._move_abort()
        self._keep_times()
        self.operations.messages_gone = report.messages_cut
        self.operations.messages_made = sum(row["fillers"] for row in report.bridged)
        return report

    def _is_ahead(self, checkpoint: Checkpoint, survey: LogSurvey) -> bool:
        """Return whether the checkpoint of a DLedger member claims what its log has not, which no `repair` puts right
        there."""
        if self.goal.entries is None:
            return False
        times, offsets = checkpoint[:3], checkpoint[3:]
        is_past = max(times) > survey.last_store_timestamp or max(offsets) > survey.end_offset
        return is_past or min(checkpoint) < 0

    def _lacks_units_in_rocksdb(self, end_offset: int) -> bool:
        """Return whether queues in a RocksDB end before the log. Only a start with `abort` dispatches to them what they
        lack; one without it cuts them where the log ends."""
        if not self.files.leaves_queues:
            return False
        database = self.files.queues.database()
        return database is None or database.dispatched_to() < end_offset

    def _absent_queues(self) -> AbsentQueues | None:
        """After a clean stop a broker dispatches nothing again as long as a queue has a unit: queues that a deleted
        topic lacks are not made."""
        table = self.files.queues
        if self.files.has_abort() or not any(has_units(queue) for queue in table.all()):
            return None
        present = {(queue.topic, queue.queue_id) for queue in table.all()}
        return AbsentQueues(present, KnownNames.of(self.files).earlier_life(self._absent_lives))

    def _finds_one_life(self, absent: AbsentQueues | None) -> bool:
        """Whether queues without files go on after messages that were left out, which shows only at the end of the log:
        then these belong to the same life, and all is planned once more."""
        if absent is None or not absent.left_out or self._absent_lives:
            return False
        self._absent_lives = absent.lives
        is_earlier = KnownNames.of(self.files).earlier_life(absent.lives)
        return any(not is_earlier(topic, last) for (topic, _), last in absent.left_out.items())

    def _report(self, survey: LogSurvey, unplaceable: int, slots: LiveSlots | None) -> RecoverReport:
        """What the survey says; what is planned is added to it."""
        report = RecoverReport(
            not self.files.has_abort(),
            file_name(survey.start_offset),
            survey.start_offset,
            survey.end_offset,
            survey.messages,
            dry_run=self.change.is_dry,
        )
        report.damaged = [damage_row(span) for span in survey.tolerated if self.goal.bridges is None]
        report.bridged = self.bridges.rows
        report.left = [str(path) for path in folders_inside(self.log)]
        report.messages_cut = survey.behind_messages if self.goal.at is None else self.goal.messages_cut
        report.unplaceable_messages = unplaceable
        if slots is not None:
            report.slot_conflicts, report.deleted_topic_messages = slots.twice, slots.deleted
        return report

    def _finds_lives(self, queues: QueuesMend | None) -> bool:
        """Whether queue offsets go back, which shows only at the end of the log: then all is planned once more without
        the superseded messages."""
        if queues is None or self._lives is not None:
            return False
        self._lives = queues.lives()
        return bool(self._lives)

    def _first_that_counts(self, survey: LogSurvey) -> int:
        """Where the survey had to begin to count damage: without `abort` the next broker begins to read in the third
        file from the end of what is left, which may be before the files in which a crash or an end counts."""
        if self.goal.is_tolerant:
            return survey.start_offset
        begin = start_after_clean_stop(self.log, survey.end_offset)
        is_damaged = any(begin < span.end for span in survey.tolerated)
        return begin if is_damaged else survey.start_offset

    def _keep_times(self) -> None:
        """Keep the age of commitlog files; a rebuilt one gets that of the next."""
        changed = set(self.operations.paths())
        times = {file.path: file.path.stat().st_mtime_ns for file in self.log.files}
        by_name = sorted(times, key=lambda path: path.name)
        for path in changed:
            if path in times:
                self.operations.times[path] = times[path]
            elif path.parent in self.log.directories and path in self.bridges.paths:
                following = [known for known in by_name if known.name > path.name]
                self.operations.times[path] = times[following[0]]

    def _index_recovery(self, is_gone: Gone) -> IndexRecovery:
        is_wanted = self.files.makes_index_files and Part.INDEX in self.goal.parts
        service, descriptors = self.files.index_to_mend, self.files.descriptors
        tags = tag_rule(service, self.log, self.files.has_tag_entries) if is_wanted else TagRule(False)
        return IndexRecovery(service, descriptors, is_gone, self.change.staging, is_wanted, tags)

    def _end_log(self, survey: LogSurvey) -> int:
        """Plan that the log is empty after the end; return the number of removed bytes other than zeros."""
        removed = 0
        self._move_empty_files()
        # without a file for entries a member would recover its commitlog and begin another log
        firsts = [*self.log.files[:1], *[file for file in self.log.files if file.holds_entries][:1]]
        for file in self.log.files:
            # what is behind the length that a file should have is never the log's
            begin = min(max(0, survey.end_offset - file.start_offset), self.log.file_size)
            stop = end_of_nonzero(self.files.descriptors, file.path, min(begin, file.size), file.size)
            if isinstance(survey.stop, Empty) and is_left_over(file, begin, stop):
                continue
            if file.start_offset >= survey.end_offset and file not in firsts:
                removed += stop
                self.operations.add(MoveAway(file.path))
                continue
            if file.size != self.log.file_size and file.path not in self.bridges.paths:
                is_short = file.size < self.log.file_size
                is_followed = file is not self.log.files[-1] and file.end_offset < survey.end_offset
                # of a member's log nothing is read there at a start
                if is_short and is_followed and self.goal.entries is None:
                    raise RefusedError(
                        f"has {file.size} bytes instead of {self.log.file_size} and messages follow it",
                        file=file.path,
                        hint="no broker starts with it: `--bridge` fills it up, `--full --cut` ends the log there",
                    )
                if not is_short:
                    self._refuse_to_shorten(file, survey)
                self.operations.add(Resize(file.path, self.log.file_size))
            if stop > begin:
                removed += stop - begin
                if begin < self.log.file_size:  # else it goes with the length
                    self.operations.add(ClearRange(file.path, begin, min(stop, self.log.file_size) - begin))
        return removed

    def _refuse_to_shorten(self, file: MappedFile, survey: LogSurvey) -> None:
        """RefusedError where good messages stand behind the length that a file should have: then this is wrong."""
        at = file.start_offset + self.log.file_size
        following = (after.start_offset for after in self.log.files if after.start_offset > file.start_offset)
        end = min(file.end_offset, survey.end_offset, next(following, file.end_offset))
        for span in survey.tolerated:
            if span.physical_offset <= at:
                at = max(at, span.end)
        if at < end:
            raise RefusedError(
                f"has {file.size} bytes instead of {self.log.file_size} and messages follow",
                file=file.path,
                physical_offset=at,
                hint="check mappedFileSizeCommitLog with -c broker.conf: it is not that of the broker that wrote the "
                "file",
            )

    def _move_empty_files(self) -> None:
        """Files of no bytes go, wherever they stand: 4.x does not start with one, 5.x removes only the last of all. But
        one that gets fillers stays."""
        for path in self.log.empty_files().values():
            if path not in self.bridges.paths:
                self.operations.add(MoveAway(path))

    def _mend_queues(self, queues: QueuesMend, report: RecoverReport) -> None:
        queues.finish(self.operations)
        plan_empty_ext(self.files.queues, self.operations)
        report.queues_changed, report.units_added = queues.changed, queues.added
        report.units_removed = queues.removed
        report.slot_conflicts += queues.conflicts

    def _mend_index(self, index: IndexRecovery, start: int) -> int:
        """Plan new index files if the present ones are not complete and sound; returns how many."""
        service = self.files.index_to_mend

        def read_again(on_run: Callable[[Run], None]) -> None:
            again = new_survey(self.log, start, tolerant=self.goal.is_tolerant)
            survey_runs(again, self.log, Digest((), queues=False, tags=True), on_run, config=self.files.config)

        if index.finish(read_again):
            return 0
        present = [*(file.path for file in service.files), *(path for path, _ in service.problems)]
        targets = [self.files.layout.index / name for name in index.names]
        for path in present:
            if path not in targets:
                self.operations.add(MoveAway(path))
        for path, target in zip(index.staged or targets, targets, strict=True):
            self.operations.add(Install(path, target, index.geometry.file_size))
        return len(targets)

    def _renew_checkpoint(self, survey: LogSurvey, checkpoint: Checkpoint | None, index_timestamp: int) -> None:
        """Plan the checkpoint as after a clean stop with everything flushed."""
        wanted = (checkpoint or Checkpoint())._replace(
            physic_msg_timestamp=survey.last_store_timestamp,
            logics_msg_timestamp=survey.last_store_timestamp,
            index_msg_timestamp=index_timestamp,
            confirm_physical_offset=survey.last_message_offset,
            logics_physical_offset=self._logics_offset(survey, checkpoint),
        )
        known = checkpoint or Checkpoint()
        flushed = min(max(known.master_flushed_offset, 0), survey.end_offset)
        wanted = wanted._replace(master_flushed_offset=flushed)
        if self.goal.entries is not None:  # brokers write none for a DLedger log
            confirmed = min(max(known.confirm_physical_offset, 0), max(survey.last_message_offset, 0))
            wanted = wanted._replace(confirm_physical_offset=confirmed)
        elif is_under_controller(self.files.layout):
            # an end there, up to which in-sync replicas have the log; without a controller the last message's place
            confirmed = min(max(known.confirm_physical_offset, self.log.min_offset), survey.end_offset)
            wanted = wanted._replace(confirm_physical_offset=confirmed)
        self._write_checkpoint(checkpoint, wanted)

    def _logics_offset(self, survey: LogSurvey, checkpoint: Checkpoint | None) -> int:
        """Return the start of the last message whose unit is on disk; 0 in a store of an older version."""
        if not self.files.keeps_logics_offset():
            return 0
        last = max(survey.last_message_offset, 0)
        if Part.QUEUES in self.goal.parts:
            return last
        if checkpoint is not None:
            # without the queues in this change their units may be missing up to where they were before
            return min(max(checkpoint.logics_physical_offset, 0), last)
        # as a broker, which takes the last message that it has dispatched
        return min(max(map(_last_place, self.files.queues.all()), default=0), last)

    def _write_checkpoint(self, checkpoint: Checkpoint | None, wanted: Checkpoint) -> None:
        path = self.files.layout.checkpoint
        data = checkpoint_bytes(wanted)
        if self.files.checkpoint_problem() is not None:
            # installing moves away what was there, which a repair may have planned already
            self.change.plan.drop(MoveAway(path))
            install_config(self.operations, self.change.staging, path, data)
            return
        if not exists(path):
            self.operations.add(CreateFile(path, len(data)))
        elif path.stat().st_size != len(data):
            self.operations.add(Resize(path, len(data)))
        if checkpoint != wanted:
            self.operations.add(WriteRange(path, 0, data))

    def _move_abort(self) -> None:
        if Part.LOG in self.goal.parts and self.files.has_abort():
            self.change.plan.drop(MoveAway(self.files.layout.abort))
            self.operations.add(MoveAway(self.files.layout.abort))

    def _without_log(self, cut: bool, crashed: bool) -> RecoverReport:
        """The commitlog is gone. A broker would delete every queue; we ask first and keep them."""
        queues = self.files.queues.all()
        units = sum(queue.max_offset for queue in queues)
        if units and not cut:
            found = "the commitlog files have 0 bytes" if self.log.empty_files() else "there is no commitlog file"
            raise RefusedError(
                f"{found}, but {counted(len(queues), 'queue points', 'queues point')} at {counted(units, 'message')}",
                file=self.files.layout.commitlog[0],
                hint="bring the commitlog back, or give its place with -c broker.conf (storePathCommitLog); "
                "`--cut` starts over with an empty store and keeps the queues beside it",
            )
        report = RecoverReport(not crashed, None, 0, 0, 0, dry_run=self.change.is_dry)
        self._move_empty_files()
        plan_empty_ext(self.files.queues, self.operations)
        # with their topic folders: a broker loads an empty folder as a queue and tidies it up itself
        for topic in dict.fromkeys(queue.directory.parent for queue in queues):
            self.operations.add(MoveAway(topic))
        index = self.files.index_to_mend
        for path in (*(file.path for file in index.files), *(path for path, _ in index.problems)):
            self.operations.add(MoveAway(path))
        report.queues_changed = sum(bool(queue.files.files) for queue in queues)
        report.units_removed = units
        checkpoint = self.files.readable_checkpoint()
        if checkpoint is not None and checkpoint.logics_physical_offset and Part.CHECKPOINT in self.goal.parts:
            # a later crash would take units for written that the new log never had
            begun = checkpoint._replace(confirm_physical_offset=0, logics_physical_offset=0)
            self._write_checkpoint(checkpoint, begun)
        self._move_abort()
        return report


def _last_place(queue: AnyConsumeQueue) -> int:
    """Return the physical offset in the last unit of a queue; 0 without one."""
    unit = queue.unit(queue.max_offset - 1)
    return unit.physical_offset if unit is not None and unit.is_written else 0


# Recovery: ends the log where it is valid and makes queues and index exactly what the log implies (design law 4).
#
# Better than the broker's where that one loses or doubles things: see docs/recovery.md.

__all__ = ["RecoverReport", "recover", "recover_with"]


def recover(
    files: StoreFiles, change: ChangeOptions = ChangeOptions(), *, cut: bool = False, full: bool = False
) -> RecoverReport:
    """Recover the store opened as `files`, which is stale afterwards: open it again.

    `full` lets damage anywhere end the log, not only where a broker would look; without `cut` that is so as well where
    an interrupted change has to be made good. `cut` ends the log at damage even where good messages follow.
    RefusedError where a decision is needed; StoreInUseError; UnsupportedError for RocksDB queues.
    """

    def goal(planned: PlannedChange) -> Goal:
        # what an interrupted change left is no damage that a broker has lived with
        is_full = full or (not cut and waits_for_mend(planned.files.layout))
        if planned.files.dledger is not None:
            return goal_of_entries(planned.files, cut=cut, full=is_full)
        return Goal(cut, is_full)

    return recover_with(files, goal, "recover", change, in_dledger=True)


def recover_with(
    files: StoreFiles,
    goal: Callable[[PlannedChange], Goal],
    verb: str,
    change: ChangeOptions,
    *,
    in_dledger: bool = False,
) -> RecoverReport:
    """Plan, journal, apply, verify: what `recover` does, for any goal. `goal` is asked under the store's lock, and
    gets the change to plan. It makes good what was interrupted unless it leaves damage in the log. `in_dledger`: see
    `changing`."""
    if has_rocksdb_queues(files.layout) and files.dledger is None:
        raise rocksdb_error(files.layout)
    left: list[dict[str, Any]] = []
    with (
        changing(files, verb, change, lambda head: not left, in_dledger=in_dledger) as planned,
        _naming_rebuild(files.layout),
    ):
        recovery = Recovery(planned, goal(planned))
        report = recovery.plan(change.events)
        if not change.below_confirm:
            _require_confirmed(planned.files, report)
            if recovery.goal.entries is not None:
                require_committed(planned.files, recovery.goal.entries, report)
        planned.plan = recovery.operations
        report.operations = planned.rows()
        left += report.damaged
    report.journal = planned.kept_in
    return report


def _require_confirmed(files: StoreFiles, report: RecoverReport) -> None:
    """RefusedError where a log under a controller would be cut before its confirm offset: those messages were
    acknowledged to producers, and in-sync replicas have them."""
    checkpoint = files.readable_checkpoint()
    confirmed = 0 if checkpoint is None else checkpoint.confirm_physical_offset
    if report.truncated_bytes and report.end_offset < confirmed and is_under_controller(files.layout):
        raise RefusedError(
            f"the log would end at {report.end_offset}, before its confirm offset {confirmed}: in-sync replicas have "
            "what would go",
            physical_offset=report.end_offset,
            hint="`rmqctl predict --epochs STORE` compares replicas; start the best one, or cut with --below-confirm",
        )


@contextlib.contextmanager
def _naming_rebuild(layout: StoreLayout) -> Iterator[None]:
    """A queue file that cannot be read is nothing that the log does not know: who does not compare gets past it."""
    try:
        yield
    except RemovedError:
        raise
    except UnreadableError as error:
        places = (layout.consumequeue, layout.batchconsumequeue)
        if error.file is None or not any(Path(error.file).is_relative_to(place) for place in places):
            raise
        raise UnreadableError(
            error.message,
            file=error.file,
            physical_offset=error.physical_offset,
            hint="`rmqctl rebuild --queues` rebuilds the queues from the commitlog without reading them; then run "
            "this command again",
        ) from error


# Ends the commitlog at an offset of the user's choice; queues, index and checkpoint follow.


def truncate(files: StoreFiles, at: int, change: ChangeOptions = ChangeOptions()) -> RecoverReport:
    """End the log of the store opened as `files`, which is stale afterwards, at physical offset `at`, where a record
    must begin or end.

    What follows is cleared or moved away and kept in the journal. Damage before `at` stays.
    RefusedError if `at` is inside a record or outside the log, with the nearest offsets; StoreInUseError;
    UnsupportedError for RocksDB queues.
    """

    def goal(planned: PlannedChange) -> Goal:
        require_boundary(planned.files.log, at)
        return Goal(at=at, messages_cut=count_messages(planned.files.log, at))

    return recover_with(files, goal, "truncate", change)


def require_boundary(log: MappedFileQueue, at: int) -> None:
    """RefusedError, with the nearest possible offsets, unless a record begins or ends at physical offset `at`."""
    if not log.files:
        raise RefusedError("there is no commitlog file", file=log.directories[0], hint="there is nothing to truncate")
    if at < log.min_offset:
        raise RefusedError(
            f"the commitlog begins at {log.min_offset}", physical_offset=at, hint=f"`--at {log.min_offset}` empties it"
        )
    before = [file for file in log.files if file.start_offset <= at]
    reached = before[-1].start_offset
    for record in walk(log, reached):
        if isinstance(record, Empty) and record.physical_offset < at < record.end:
            break
        if record.physical_offset < at < record.end:
            what = "the rest of a file" if isinstance(record, Blank) else "a record"
            raise RefusedError(
                f"inside {what} that begins at {record.physical_offset} and ends at {record.end}",
                physical_offset=at,
                hint=f"`--at {record.physical_offset}` ends the log before it, `--at {record.end}` after it",
            )
        if record.physical_offset >= at:
            return
        reached = record.physical_offset if isinstance(record, Empty) else record.end
    if reached != at:
        raise RefusedError(f"the commitlog ends at {reached}", physical_offset=at, hint="there is nothing to truncate")


def count_messages(log: MappedFileQueue, begin: int) -> int:
    """Good messages from physical offset `begin` on."""

    def counted(records: Iterator[ColumnRecord]) -> int:
        return sum(record.rows for record in records if isinstance(record, MessageColumns))

    return sum(walk_parallel(log, counted, begin))
