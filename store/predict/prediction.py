"""The start of a broker in the order of its own steps: load, queues, index, commitlog, dispatch (docs/recovery.md)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import CorruptError, counted
from rmqctl.formats.notebook import as_html
from rmqctl.store.answers.config_offsets import KnownNames
from rmqctl.store.answers.delays import levels_delivered
from rmqctl.store.config.config import is_delay_table
from rmqctl.store.config.epoch_file import is_under_controller
from rmqctl.store.config.releases import Release
from rmqctl.store.files.layout import is_database
from rmqctl.store.files.lock import holder_name
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.index.index_service import holds_rocksdb_data
from rmqctl.store.options import Events
from rmqctl.store.predict.both_queues import outcome_beside, queues_beside, refused_combination, refused_light_queues
from rmqctl.store.predict.broker_log import (
    BrokerReading,
    IndexStart,
    LogPlace,
    RecoveryStart,
    load_files,
    lost_entries,
    start_index,
)
from rmqctl.store.predict.broker_queues import QueueLoading, SimulatedDispatch, SimulatedQueue, SimulatedQueues
from rmqctl.store.predict.compaction import refused_by_compaction
from rmqctl.store.predict.counting import count_behind, count_unqueued
from rmqctl.store.predict.rules import not_predicted
from rmqctl.store.predict.surroundings import (
    SETTING,
    ConfigStart,
    end_without_duplicates,
    epoch_problem,
    not_mapped,
    permission_problems,
    recovery_work,
    refused_abort,
    refused_before_loading,
    refused_by_timer,
    refused_lock,
    said_beyond,
    said_of_first,
    start_of_config,
)
from rmqctl.store.predict.timer import timer_off, timer_outcome
from rmqctl.store.predict.walked import WalkedLog
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC, FurtherSlots
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.rocksdb.message_storage import MessageStorage
from rmqctl.store.store_files import Checkpoint, StoreFiles

NO_LOGICS_OFFSET = (
    "the store was not closed cleanly, and the checkpoint has no logicsPhysicalOffset: 5.5.0 goes by a time that can "
    "be ahead of the queues, without the 3 seconds that older versions keep from it. Run `rmqctl recover` first, or, "
    "if an older version wrote the store, start it once with that"
)


@dataclass(slots=True)
class Prediction:
    """What a start will do. Offsets are physical, paths relative to the store where they lie in it.

    `loads`: whether the broker comes up; `error`: in its own words why not. `start_file`, `start_offset`: where its
    recovery begins to read; `end_offset`, `end_reason`: where the log ends for it; None where it does not come so far.
    `messages_lost` and `bytes_lost`: good messages behind that end. `messages_unqueued`: messages left in the log that
    no queue leads to; `unqueued`: a row for each queue that they belong to, see `Unqueued`. `queues_changed`: a row for
    each, see `_row`. `index_entries_lost`: those of deleted index files that are not written again. `topics_returned`:
    topics whose queues hold messages after the start although topics.json does not name them, with the units that the
    start adds. `config`: a row for each config file that is not loaded as it was written (see `ConfigStep`).
    `messages_stuck`: delayed messages that are never delivered, of levels that messageDelayLevel no longer has or of a
    timer that has passed them; `messages_passed_over`: those of them that the timer holds, and that are due for more
    than 7 days. `messages_repeated`: delayed messages that are delivered again. `timer_reset`: how
    far the timer was is lost. `recovery`: what the start reads and about how long that takes (see `RecoveryWork`), None
    where it does not come so far. `harmful_setting`: the setting of broker.conf that makes recovery cut good messages,
    as it is written there. `warnings`: what else is going to happen.
    """

    _repr_html_ = as_html

    broker: str
    loads: bool = True
    error: str | None = None
    was_clean: bool = True
    start_file: str | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    end_reason: str | None = None
    messages_lost: int = 0
    bytes_lost: int = 0
    messages_unqueued: int = 0
    unqueued: list[dict[str, Any]] = field(default_factory=list)
    files_deleted: list[str] = field(default_factory=list)
    queues_changed: list[dict[str, Any]] = field(default_factory=list)
    index_files_deleted: list[str] = field(default_factory=list)
    index_entries_lost: int = 0
    topics_returned: list[dict[str, Any]] = field(default_factory=list)
    config: list[dict[str, Any]] = field(default_factory=list)
    messages_stuck: int = 0
    messages_passed_over: int = 0
    messages_repeated: int = 0
    timer_reset: bool = False
    recovery: dict[str, Any] | None = None
    harmful_setting: str | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def is_harmful(self) -> bool:
        """Return whether the broker does not start, or loses data for good."""
        dropped = any(row["units_dropped"] or row["units_misplaced"] for row in self.queues_changed)
        lost = self.messages_lost or self.messages_unqueued or self.index_entries_lost or dropped
        return not self.loads or bool(lost or self.messages_stuck or self.timer_reset or self.config_lost)

    @property
    def config_lost(self) -> bool:
        """Whether something that a config file held is not loaded."""
        return any(row["is_harmful"] for row in self.config)


class Start:
    """One start, in memory: `queues` are the broker's after `run`."""

    def __init__(
        self,
        files: StoreFiles,
        release: Release,
        batch_topics: Iterable[str] | None,
        events: Events,
        walked: WalkedLog | None = None,
    ) -> None:
        """`walked`: of this store, for the starts of other versions."""
        self.files = files
        self.release = release
        self.events = events
        self.names = KnownNames.of(files)
        self.levels = files.config.delay_levels()
        self.walked = walked or WalkedLog()
        self.walked.use(self.levels)
        self.walked.use_queues(files)
        self.loading = QueueLoading(files, release, batch_topics, self.walked.listed)
        table = files.queues
        sizes = table.consumequeue_file_size(), table.batch_file_size()
        self.queues = SimulatedQueues(files.layout, sizes, files.descriptors, self.walked.units)
        self.result = Prediction(release.name, was_clean=not files.has_abort())
        self.deleted: list[Path] = []
        self._queue_files = 0
        # what a broker logs that comes to no end of its start
        self._waits: str | None = None

    def run(self) -> Prediction:
        """Go through the start once."""
        config = start_of_config(self.files.layout, self.files.config, self.release.name)
        self.result.config = [step.row() for step in config.steps]
        self.result.warnings += [step.detail for step in config.steps]
        if self.walked.permissions is None:
            self.walked.permissions = permission_problems(self.files.layout)
        denied, warnings = self.walked.permissions
        self.result.warnings += warnings
        unread = self.files.checkpoint_problem()
        if unread is not None:
            self.result.warnings.append(f"checkpoint: {unread}; what follows is predicted as if it were missing")
        if is_under_controller(self.files.layout):
            self.result.warnings.append(
                "the store is of a broker with enableControllerMode=true, whose recovery ends at the confirmed offset: "
                "this prediction is for a start without it"
            )
            self.result.warnings += epoch_problem(self.files.layout)
        refused = refused_combination(self.files.layout, self.files.config, self.release)
        error = config.error or refused_before_loading(self.files.layout) or denied or refused
        return self._finished(error) if error is not None else self._load(config)

    def _load(self, config: ConfigStart) -> Prediction:
        """The store, and what is loaded after it."""
        log = self._load_log()
        error = (
            self.result.error
            or self.loading.load(self.queues, self.deleted)
            or refused_by_compaction(self.files, self.release)
        )
        not_loaded = not_mapped(self.files.layout.checkpoint)
        if error is None and not_loaded is not None:
            error = f"load exception: {not_loaded}"
        if error is not None:
            return self._finished(error)
        queues = self.queues.by_key.values()
        self._queue_files = sum(len(queue.files) for queue in queues)
        before = {key: max_before(queue) for key, queue in self.queues.by_key.items()}
        for queue in queues:
            queue.recover()
        index = start_index(
            self.files.index, self.files.readable_checkpoint(), not self.result.was_clean, self.files.descriptors
        )
        start = self._start_of_recovery(log)
        if start.error is not None:
            self._note_index(index)
            return self._finished(start.error)
        if log.files:
            self._recover_log(log, start)
        else:
            self._without_log()
        for queue in queues:
            queue.correct_min(log.min_offset, self.release.trusts_filler)
        self._note_queues(before)
        self._note_index(index)
        self._note_topics()
        self._count_stuck(config.delay_offsets or {})
        if config.delay_offsets is not None:
            try:
                self._count_repeated(config.delay_offsets)
            except CorruptError as error:
                self.result.warnings.append(f"how many delayed messages come again is not known: {error}")
        self._note_timer()
        beside = outcome_beside(self.files.config, start, self.queues.by_key.values())
        self.result.warnings += beside.warnings
        self.result.messages_stuck += beside.unread
        return self._finished(
            self._waits
            or (index.error if self.release.index_counts else None)
            or refused_by_timer(self.files.layout, self.files.config, self.release)
            or config.error_after
            or self._refused_levels()
            or refused_lock(self.files.layout)
            or beside.error
            # written last, once the store has started
            or refused_abort(self.files.layout, self.release)
            or config.error_registering
        )

    def _refused_levels(self) -> str | None:
        """ScheduleMessageService#parseDelayLevel."""
        levels = self.files.config.message_delay_level
        return None if is_delay_table(levels) else f"parseDelayLevel exception; levelString String = {levels}"

    @property
    def _delivers_nothing(self) -> bool:
        """A slave delivers no delayed message, unless it acts as master and may put messages elsewhere (5.x)."""
        config = self.files.config
        return config.is_slave and (self.release.is_of_4 or not config.escapes)

    def _count_stuck(self, offsets: dict[int, int]) -> None:
        """A broker looks at the queues of levels that it has, and at no other; a slave at none."""
        if self._delivers_nothing or not is_delay_table(self.files.config.message_delay_level):
            return
        for (topic, queue_id, _), queue in sorted(self.queues.by_key.items()):
            if topic == SCHEDULE_TOPIC and queue_id >= len(self.levels):
                begin = max(offsets.get(queue_id + 1, 0), queue.min_offset)
                stuck = max(0, queue.max_offset - begin)
                self.result.messages_stuck += stuck
                if stuck:
                    self.result.warnings.append(
                        f"{counted(stuck, 'message')} of delay level {queue_id + 1} are never delivered: "
                        f"messageDelayLevel has {counted(len(self.levels), 'level')}"
                    )

    def _count_repeated(self, offsets: dict[int, int]) -> None:
        """A level without an offset begins at its first message, though a broker delivered some before. A broker writes
        the offsets every 10 s: one that was killed has delivered messages after them. A slave delivers nothing."""
        if self._delivers_nothing:
            return
        now = time.time_ns() // 1_000_000
        begins: dict[int, int] = {}
        for (topic, queue_id, _), queue in sorted(self.queues.by_key.items()):
            if topic != SCHEDULE_TOPIC or queue_id >= len(self.levels):
                continue
            begin = max(queue.min_offset, offsets.get(queue_id + 1, 0))
            stored = self.files.queues.find(topic, queue_id)
            first = None if stored is None or begin >= stored.max_offset else stored.unit(begin)
            # none is delivered before the first is due
            if first is not None and first.tags_code <= now:
                begins[queue_id + 1] = begin
        if not begins or self.result.messages_lost:
            return
        # damage before the first one that is read makes the answer of a level without an offset uncertain
        asked = {level: begin if level in offsets else 0 for level, begin in begins.items()}
        delivered = levels_delivered(StoreReader(self.files), asked)
        for level, begin in begins.items():
            again = delivered.get(level, 0) - begin
            if again > 0:
                self.result.messages_repeated += again
                known = offsets.get(level)
                if known is None:
                    text = (
                        f"{counted(again, 'message')} of delay level {level} are delivered again: "
                        "delayOffset.json has no offset of it"
                    )
                else:
                    text = (
                        f"{counted(again, 'message')} of delay level {level} are delivered again: "
                        f"delayOffset.json says {known}"
                    )
                self.result.warnings.append(text)

    def _note_timer(self) -> None:
        """What the timer does, where the start leaves the log and the timer's queue as they are. On a slave it delivers
        nothing, and how far it is comes from the master."""
        if self._delivers_nothing:
            return
        result = self.result
        changed = result.messages_lost or any(row["topic"] == TIMER_TOPIC for row in result.queues_changed)
        if self.files.log.files and not changed:
            why = None if self.files.config.timer_wheel_enable else " while timerWheelEnable is false"
            why = f": {self.release.name} has no timer" if self.release.is_of_4 else why
            timer = timer_outcome(self.files, self.release) if why is None else timer_off(self.files, why)
            result.messages_stuck += timer.stuck
            result.messages_passed_over = timer.passed_over
            result.messages_repeated += timer.repeated
            result.timer_reset = timer.is_reset
            result.warnings += timer.said

    def _load_log(self) -> MappedFileQueue:
        """Return the commitlog as the broker has it after loading; the result then holds a failure."""
        log = self.files.log
        loaded = load_files(log.directories, log.file_size, self.release)
        self.result.error = loaded.error
        self.deleted += loaded.deleted
        mapped = MappedFileQueue(log.directories, log.file_size, log.descriptors)
        mapped.is_shared = False
        mapped.files = [MappedFile(path, start, log.file_size, log.descriptors) for start, path in loaded.files]
        self.result.warnings += [
            f"the log has no file for [{before.end_offset}, {after.start_offset}): the broker logs `[BUG]The "
            "mappedFile queue's data is damaged`, and hands out nothing where queue units point there"
            for before, after in itertools.pairwise(mapped.files)
            if before.end_offset < after.start_offset and loaded.error is None
        ]
        return mapped

    def _recover_log(self, log: MappedFileQueue, start: RecoveryStart) -> None:
        """CommitLog#recoverNormally and #recoverAbnormally, and what is dispatched then."""
        release, result = self.release, self.result
        reached = self.queues.max_physical()
        begin, limit = LogPlace(start.file, start.position), start.said_of_limit
        result.start_file, result.start_offset = log.files[begin.file].path.name, log.files[begin.file].start_offset
        config = self.files.config
        reading = BrokerReading(
            log,
            release,
            self.walked,
            self.events,
            checks_crc=config.check_crc_on_recover,
            checks_place=release.starts_by_frames
            and config.check_commit_log_offset_on_recover
            and not self._recovers_cleanly,
        )
        dispatch = SimulatedDispatch(
            self.queues,
            log,
            release,
            self.levels,
            self.loading.batch_topics,
            FurtherSlots(self.files.queues.find),
            has_light_queues=config.fills_light_queues,
        )
        taker = dispatch if release.dispatches_clean or not self._recovers_cleanly else _Nobody()
        dispatch.floor = start.dispatched_to(reached) if self._recovers_cleanly else None
        if config.duplication_enable:
            end, why = end_without_duplicates(log, begin, release, checks_crc=config.check_crc_on_recover)
        else:
            end = reading.read(begin, taker)
            why = reading.why_it_ended
        end_offset = log.files[end.file].start_offset + end.position
        self._note_recovery(log, begin, end)
        result.end_offset, result.end_reason = end_offset, why or None
        result.messages_lost, result.bytes_lost = count_behind(self.files.log, end_offset)
        result.harmful_setting = f"{SETTING}=true" if config.duplication_enable and result.messages_lost else None
        if (self.queues.max_physical() if release.cuts_by_dispatched else reached) >= end_offset:
            for queue in self.queues.by_key.values():
                queue.truncate(end_offset)
        self._truncate_log(log, end_offset)
        if release.catches_up:
            dispatch.floor = None
            self._catch_up(log, reading, dispatch)
        self._note_unqueued(log, dispatch)
        if result.messages_unqueued and limit is not None:
            result.warnings.append(limit)

    def _note_unqueued(self, log: MappedFileQueue, dispatch: SimulatedDispatch) -> None:
        """Note what of the log no queue leads to after the start."""
        result = self.result
        if dispatch.unplaceable:
            result.warnings.append(
                counted(
                    dispatch.unplaceable,
                    "message has a topic that cannot be a directory name",
                    "messages have topics that cannot be directory names",
                )
                + ": a broker that cannot make such a queue tries for 30 seconds, and takes no message any more; one "
                "that can makes it elsewhere"
            )
        unqueued = count_unqueued(log, self.queues, dispatch, self.walked, self.levels, self.names)
        result.messages_unqueued, result.unqueued = unqueued.messages, unqueued.queues
        if unqueued.damaged:
            places = counted(len(unqueued.damaged), "damaged place")
            result.warnings.append(
                f"this start does not notice {places} of the log, at offset {unqueued.damaged[0]}"
                f"{'' if len(unqueued.damaged) == 1 else ' and behind it'}: `rmqctl check` says what is there"
            )

    def _note_recovery(self, log: MappedFileQueue, begin: LogPlace, end: LogPlace) -> None:
        """Note what is read from `begin` to `end`, and that queue files are opened before."""
        whole = sum(file.size for file in log.files[begin.file : end.file]) - begin.position
        work = recovery_work(whole + end.position, end.file - begin.file + 1, self._queue_files)
        self.result.recovery = work._asdict()

    @property
    def _recovers_cleanly(self) -> bool:
        """4.x recovers every log that is not yet of DLedger as after a clean stop (DLedgerCommitLog#recover)."""
        is_first = self.files.config.enable_dleger_commit_log and self.release.is_of_4
        return self.result.was_clean or is_first

    def _start_of_recovery(self, log: MappedFileQueue) -> RecoveryStart:
        """Where the recovery of `log` begins. Notes what follows from that."""
        checkpoint = self.files.readable_checkpoint() or Checkpoint()
        queues_end = self.queues.max_physical() if self._recovers_cleanly else None
        if self.release.makes_rocksdb_store:
            self.result.warnings += self._of_rocksdb_store()
        in_rocksdb = self._reached_in_rocksdb()
        beside = queues_beside(self.files.layout, self.files.config, self.release)
        start = RecoveryStart(log, self.release, self.files.config, checkpoint, queues_end, in_rocksdb, beside)
        if start.goes_by_a_time:
            self.result.warnings.append(NO_LOGICS_OFFSET)
        return start

    def _reached_in_rocksdb(self) -> tuple[int | None, ...]:
        """Return the last message that index and transactions have in `rocksdbstore/`, of those that are switched on.

        Raises: UnsupportedError for a damaged one: what a broker makes of it is not known.
        """
        config, folder = self.files.config, self.files.layout.message_storage
        if not self.release.makes_rocksdb_store or not (config.index_rocksdb_enable or config.trans_rocksdb_enable):
            return ()
        try:
            stored = MessageStorage(folder) if is_database(folder) else None
            return tuple(
                None if stored is None else reached(stored)
                for is_on, reached in (
                    (config.index_rocksdb_enable, MessageStorage.indexed_to),
                    (config.trans_rocksdb_enable, MessageStorage.transactions_to),
                )
                if is_on
            )
        except CorruptError as error:
            raise not_predicted(
                "indexRocksDBEnable or transRocksDBEnable", f"rocksdbstore/ is damaged: {error}"
            ) from error

    def _of_rocksdb_store(self) -> Iterator[str]:
        """What a start of 5.4 or later has to do with `rocksdbstore/`, which it opens in any case."""
        layout = self.files.layout
        if not is_database(layout.message_storage):
            yield f"this start makes rocksdbstore/, a RocksDB that {self.release.name} opens in every store"
        elif holds_rocksdb_data(layout):
            config = self.files.config
            if not (config.index_rocksdb_enable or config.trans_rocksdb_enable):
                yield "rocksdbstore/ holds data: with indexRocksDBEnable or transRocksDBEnable recovery goes by it, too"

    def _truncate_log(self, log: MappedFileQueue, end_offset: int) -> None:
        """MappedFileQueue#truncateDirtyFiles: remove files past the end, set the positions of the last one."""
        kept = []
        for file in log.files:
            if file.start_offset > end_offset:
                self.deleted.append(file.path)
                continue
            kept.append(file)
            if file.end_offset > end_offset:
                file.set_positions(end_offset % log.file_size)
        log.files = kept
        if self.files.config.enable_dleger_commit_log:
            self.result.warnings.append(said_of_first(kept[-1].start_offset + log.file_size, end_offset))

    def _catch_up(self, log: MappedFileQueue, reading: BrokerReading, dispatch: SimulatedDispatch) -> None:
        """4.x dispatches from the end of the queues on, once it has started (DefaultMessageStore#start)."""
        begin = max(self.queues.max_physical(), log.min_offset, 0)
        if begin > log.max_offset:
            self.result.warnings.append(said_beyond(begin, log.max_offset))
        reached = reading.catch_up(begin, dispatch)
        if reached < log.max_offset:
            # it asks every second whether its dispatch has come to the end of the log, which it never does
            self._waits = (
                "Try to finish doing reput the messages fall behind during the starting, "
                f"reputOffset={reached} maxOffset={log.max_offset} behind={log.max_offset - reached}"
            )
            self.result.warnings.append(
                f"the log has nothing at {reached}, where its dispatch goes on, and ends at {log.max_offset}: the "
                "broker logs this every second and never comes up; `rmqctl recover` fixes it, or says what to decide"
            )

    def _without_log(self) -> None:
        """The log is gone: the broker deletes every queue."""
        self.result.end_offset = 0
        for queue in self.queues.by_key.values():
            queue.destroy()

    def _note_queues(self, before: dict[tuple[str, int, bool], int]) -> None:
        queues = sorted(self.queues.by_key.items())
        present = {queue.path_of(place) if path is None else path for _, queue in queues for place, path in queue.files}
        # one of no bytes goes when it is loaded, and may be made again
        self.deleted = [path for path in self.deleted if path not in present]
        for key, queue in queues:
            gone = [path for path in queue.deleted if path not in present]
            self.deleted += gone
            row = _row(queue, before.get(key, 0), [self._relative(path) for path in gone])
            if any(row[name] for name in _CHANGES) or row["max_before"] != row["max_after"]:
                self.result.queues_changed.append(row)

    def _note_topics(self) -> None:
        """Note topics that topics.json does not name and whose queues hold messages after the start. On a slave only
        those that were removed: it gets topics.json from its master, later than messages."""
        is_slave = self.files.config.is_slave
        found: dict[str, dict[str, Any]] = {}
        for (topic, _, _), queue in sorted(self.queues.by_key.items()):
            messages = queue.max_offset - queue.min_offset
            is_unconfigured = not is_slave and self.names.is_unconfigured(topic)
            if messages > 0 and (is_unconfigured or self.names.is_removed(topic)):
                row = found.setdefault(topic, {"topic": topic, "queues": 0, "messages": 0, "units_added": 0})
                row["queues"] += 1
                row["messages"] += messages
                row["units_added"] += queue.units_added
        self.result.topics_returned = list(found.values())

    def _note_index(self, index: IndexStart) -> None:
        result = self.result
        result.index_files_deleted = [self._relative(path) for path in index.deleted]
        log = self.files.log
        start = log.max_offset if result.start_offset is None else result.start_offset
        result.index_entries_lost = lost_entries(self.files.index, index.deleted, log.min_offset, start)
        result.warnings += [
            f"{self._relative(path)} has not the configured length: it is extended, its keys are not found any more"
            for path in index.resized
        ]

    def _finished(self, error: str | None) -> Prediction:
        result = self.result
        holder = self.files.lock_holder()
        if error is None and holder is not None:
            error = "Lock failed,MQ already started"
            who = holder_name(holder)
            result.warnings.append(f"{who} holds the lock; a broker takes it last, after all of the above")
        refused = refused_light_queues(self.files.layout, self.files.config, self.release)
        if error is None and refused is not None:
            error = refused
            result.warnings.append("with rocksdbCQDoubleWriteEnable=true 5.5.0 needs combineCQUseRocksdbForLmq=true")
        result.error, result.loads = error, error is None
        result.files_deleted = sorted(self._relative(path) for path in dict.fromkeys(self.deleted))
        return result

    def _relative(self, path: Path) -> str:
        root = self.files.root
        return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


class _Nobody:
    """What is read is not dispatched."""

    def take_run(self, run: object) -> None:
        """Nothing."""

    def take_message(self, message: object) -> None:
        """Nothing."""


_CHANGES = ("units_dropped", "units_added", "units_misplaced", "files_deleted")


def _row(queue: SimulatedQueue, before: int, gone: list[str]) -> dict[str, Any]:
    """A queue in the result. Units are counted as they stand in the files, filler aside; `max_before` is the end of
    what is in the files, `min_after` and `max_after` are the queue offsets that the broker will serve."""
    lowest = queue.end if queue.lowest_end is None else queue.lowest_end
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "max_before": before,
        "min_after": queue.min_offset,
        "max_after": queue.max_offset,
        "units_dropped": max(0, before - lowest) if queue.on_disk and not queue.is_batch else 0,
        "units_added": queue.units_added,
        "units_misplaced": queue.units_misplaced,
        "files_deleted": gone,
    }


def max_before(queue: SimulatedQueue) -> int:
    """Return the queue offset behind the last unit that is in the files, before anything is cut."""
    for number in range(len(queue.files) - 1, -1, -1):
        units = queue.units_of(number)
        written = units["size"].nonzero()[0]
        if len(written):
            last = units[int(written[-1])]
            if queue.is_batch:
                return int(last["base_queue_offset"]) + int(last["batch_size"])
            return queue.files[number][0] + int(written[-1]) + 1
    return queue.files[0][0] if queue.files else 0
