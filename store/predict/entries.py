"""The next start of a broker whose commitlog is a DLedger log (DLedgerMmapFileStore#recover, DLedgerCommitLog)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rmqctl.formats.errors import counted
from rmqctl.formats.layouts import DLEDGER_ENTRY_HEAD, DLEDGER_INDEX_UNIT, MESSAGE_MAGIC_V1
from rmqctl.formats.message import LARGEST_HEAD_SIZE, StoredMessage, frame_head
from rmqctl.store.compare.entries import EntriesEnd, committed_end, log_end, lost_behind
from rmqctl.store.compare.replicas import member_of, open_index
from rmqctl.store.files.layout import file_name
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.implied import Run
from rmqctl.store.predict.broker_log import (
    BrokerReading,
    IndexStart,
    LogPlace,
    load_files,
    lost_entries,
    start_index,
)
from rmqctl.store.predict.broker_queues import SimulatedDispatch
from rmqctl.store.predict.compaction import refused_by_compaction
from rmqctl.store.predict.prediction import Prediction, Start, max_before
from rmqctl.store.predict.surroundings import ConfigStart, refused_abort, refused_lock, said_beyond
from rmqctl.store.queues.dispatch import FurtherSlots
from rmqctl.store.store_files import Checkpoint

_LOAD_FAILED = "Load file failed, this usually indicates fatal error, you should check it manually"
_TOO_SMALL = "[MONITOR]The processOffset is too small, you should check it manually before truncating the data from"


class EntriesReading(BrokerReading):
    """Reads the entries of a member. `frames`: of the last file that it read."""

    def __init__(self, log: MappedFileQueue, start: Start, taker: SimulatedDispatch) -> None:
        config = start.files.config
        super().__init__(
            log, start.release, start.walked, start.events, checks_crc=config.check_crc_on_recover, checks_place=False
        )
        self._taker = taker
        self.frames = 0

    def take_run(self, run: Run) -> None:
        """Dispatch messages."""
        self.frames += run.messages
        self._taker.take_run(run)

    def take_message(self, message: StoredMessage) -> None:
        """Dispatch a message that only the broker takes."""
        self.frames += 1
        self._taker.take_message(message)

    def recover(self, number: int) -> LogPlace:
        """Read from the file of this number on, each to its end on disk: DLedger clears nothing where it cuts."""
        files = self._log.files
        while True:
            self.frames = 0
            goes_on, position = self._read_file(files[number], 0, self, False)
            if not goes_on or number + 1 == len(files):
                return LogPlace(number, position)
            number += 1


class DledgerStart(Start):
    """One start with enableDLegerCommitLog=true: DLedger cuts its log, the broker its queues, and messages are
    dispatched as far as a member does it, which becomes the leader or hears from one."""

    def _load(self, config: ConfigStart) -> Prediction:
        files, result = self.files, self.result
        assert files.dledger is not None
        index = open_index(files.dledger, files.log)
        result.warnings.append("this is the start of a member of a DLedger group (enableDLegerCommitLog=true)")
        earlier = load_files(files.layout.commitlog, files.log.file_size, self.release)
        self.deleted += earlier.deleted
        error = (
            earlier.error
            or self._load_queues()
            or refused_by_compaction(files, self.release)
            or _refused(files.log, files.dledger.folder)
            or _refused(index)
        )
        if error is not None:
            return self._finished(error)
        end = log_end(files.log, index)
        begin = max(file.start_offset for file in files.log.files)
        if begin - end.end > files.log.file_size:
            return self._finished(f"{_TOO_SMALL} {end.end}")
        self._end_log(index, end)
        keys = start_index(files.index, files.readable_checkpoint(), not result.was_clean, files.descriptors)
        self._follow(index, end, keys)
        self._say(end)
        return self._finished(
            self._waits
            or (keys.error if self.release.index_counts else None)
            or config.error_after
            or self._refused_levels()
            or refused_lock(files.layout)
            or refused_abort(files.layout, self.release)
            or config.error_registering
        )

    def _load_queues(self) -> str | None:
        """Load the queues; returns why the broker does not start, if so."""
        return self.loading.load(self.queues, self.deleted)

    def _follow(self, index: MappedFileQueue, end: EntriesEnd, keys: IndexStart) -> None:
        """Note what becomes of the queues."""
        before = {key: max_before(queue) for key, queue in self.queues.by_key.items()}
        for queue in self.queues.by_key.values():
            queue.recover()
        self._dispatch(index, end, keys)
        for queue in self.queues.by_key.values():
            queue.correct_min(self.files.log.min_offset, self.release.trusts_filler)
        self._note_queues(before)
        self._note_topics()

    def _log_to(self, end: int, *, is_cut: bool = True) -> MappedFileQueue:
        """Return the files of the log that begin before `end` or there, as the broker has them when it is cut there."""
        known = self.files.log
        log = MappedFileQueue(known.directories, known.file_size, known.descriptors)
        log.is_shared = False
        assert self.files.dledger is not None
        for file in known.files:
            # of commitlog files from there on nothing is read
            is_known = file.holds_entries or file.start_offset < self.files.dledger.begin
            if is_known and file.start_offset <= end:
                one = MappedFile(file.path, file.start_offset, file.size, known.descriptors)
                one.holds_entries = file.holds_entries
                log.files.append(one)
        if is_cut:
            log.truncate(end)
        return log

    def _dispatch(self, index: MappedFileQueue, end: EntriesEnd, keys: IndexStart) -> None:
        """What recovery cuts and dispatches (DLedgerCommitLog#dledgerRecoverNormally, #dledgerRecoverAbnormally; 4.x
        has the first alone), and the service that goes on then (ReputMessageService)."""
        files, log = self.files, self._log_to(end.end)
        dispatch = SimulatedDispatch(
            self.queues,
            log,
            self.release,
            self.levels,
            self.loading.batch_topics,
            FurtherSlots(files.queues.find),
            has_light_queues=files.config.fills_light_queues,
        )
        committed = committed_end(files, index, end) or 0
        begin, stop = log.max_offset, 0
        if self.result.was_clean or self.release.catches_up:
            if self.queues.max_physical() >= end.end:
                self._truncate(end.end)
        else:
            begin, stop = self._recover(end, dispatch)
        goes_on = self._goes_on(log, committed)
        if self.release.catches_up:
            goes_on = max(self.queues.max_physical(), log.min_offset, 0)
            if goes_on < committed:
                part = self._log_to(committed)
                self._catch_up(part, EntriesReading(part, self, dispatch), dispatch)
                goes_on = max(goes_on, committed)
        EntriesReading(log, self, dispatch).catch_up(goes_on, dispatch)
        self._note_keys(keys, log.min_offset, begin, stop, goes_on)
        self._note_unqueued(log, dispatch)
        if self.queues.max_physical() > end.end:
            self.result.warnings.append(said_beyond(self.queues.max_physical(), end.end))
        self._note_lacking()

    def _goes_on(self, log: MappedFileQueue, committed: int) -> int:
        """Return where 5.x goes on dispatching once it has started: where nothing is committed with the first entry."""
        return committed or next(file.start_offset for file in log.files if file.holds_entries)

    def _note_keys(self, keys: IndexStart, log_begin: int, begin: int, stop: int, goes_on: int) -> None:
        """Note what the index loses where [begin, stop) and what follows `goes_on` are dispatched."""
        self._note_index(keys)
        begins = min(begin, goes_on)
        lost = partial(lost_entries, self.files.index, keys.deleted)
        self.result.index_entries_lost = lost(log_begin, begins) + lost(max(begins, stop), goes_on)
        kept = [file.header for file in self.files.index.files if file.path not in keys.deleted]
        last = max((header.end_physical_offset for header in kept if header.index_count > 1), default=-1)
        # IndexService#buildIndex passes over messages before the last indexed one, and not over that
        if self.files.config.message_index_enable and (begin <= last < stop or last >= goes_on):
            self.result.warnings.append(
                f"keys of the message at {last} are put into the index once more: `rmqctl rebuild --index` after this "
                "start removes the repeats"
            )

    def _note_lacking(self, *, in_rocksdb: bool = False) -> None:
        if not self.result.messages_unqueued or not self.result.was_clean:
            return
        self.result.warnings.append(
            "after a clean stop only entries after the committed one are dispatched: messages that queues lack before "
            "it stay out of them. `rmqctl recover` completes them"
            if not in_rocksdb
            else "after a clean stop only entries after the committed one are dispatched: messages that queues in "
            "RocksDB lack before it stay out of them. With an empty file `abort` the start dispatches all entries"
        )

    def _recover(self, end: EntriesEnd, dispatch: SimulatedDispatch) -> tuple[int, int]:
        """Recovery after a crash. Returns from where to where it dispatches."""
        reached, checkpoint = self.queues.max_physical(), self.files.readable_checkpoint() or Checkpoint()
        if self.release.starts_by_frames:
            reached = checkpoint.logics_physical_offset
        begin, stop, counted_to = self._read_entries(end, dispatch)
        if reached >= counted_to:
            self._truncate(counted_to)
            self.result.warnings.append(
                f"queues are cut at {counted_to}, before the end of what was dispatched: after a crash the broker "
                "counts entries of the last file without their heads. `rmqctl recover` keeps all units"
            )
        return begin, stop

    def _read_entries(self, end: EntriesEnd, dispatch: SimulatedDispatch) -> tuple[int, int, int]:
        """Read all entries that a recovery after a crash dispatches. Returns where that begins, where it ends, and
        where it ends for the broker."""
        log = self._log_to(end.end, is_cut=False)
        log.files = [file for file in log.files if file.holds_entries]
        first = next((number for number in reversed(range(len(log.files))) if self._is_matched(log, number)), 0)
        reading = EntriesReading(log, self, dispatch)
        place = reading.recover(first)
        stop = log.files[place.file].start_offset + place.position
        return log.files[first].start_offset, stop, stop - reading.frames * DLEDGER_ENTRY_HEAD.size

    def _is_matched(self, log: MappedFileQueue, number: int) -> bool:
        """DLedgerCommitLog#isMmapFileMatchedRecover."""
        head = frame_head(log.files[number].read(DLEDGER_ENTRY_HEAD.size, LARGEST_HEAD_SIZE))
        if head is None or head.magic_code != MESSAGE_MAGIC_V1 or head.store_timestamp == 0:
            return False
        config, checkpoint = self.files.config, self.files.readable_checkpoint() or Checkpoint()
        covers_index = config.message_index_enable and config.message_index_safe
        if not self.release.starts_by_frames:
            return head.store_timestamp <= (
                checkpoint.min_timestamp_index if covers_index else checkpoint.min_timestamp
            )
        if covers_index and head.store_timestamp > checkpoint.index_msg_timestamp:
            return False
        if checkpoint.logics_physical_offset > 0:
            return head.physical_offset <= checkpoint.logics_physical_offset
        return head.store_timestamp <= checkpoint.logics_msg_timestamp

    def _truncate(self, offset: int) -> None:
        for queue in self.queues.by_key.values():
            queue.truncate(offset)

    def _end_log(self, index: MappedFileQueue, end: EntriesEnd) -> None:
        """Note where the log and its index end, and what goes with that."""
        log, result = self.files.log, self.result
        result.start_file, result.start_offset = file_name(end.start), end.start
        result.end_offset = end.end
        result.messages_lost, result.bytes_lost = lost_behind(log, index, end)
        file = log.find(end.end)
        if end.why and file is not None:
            result.end_reason = f"Recover data file to the end of {file.path}"
        # of zeros it keeps only the file in which the log ends, too
        self.deleted += [one.path for one in log.files if one.start_offset > end.end]
        limit = (end.last + 1) * DLEDGER_INDEX_UNIT.size
        self.deleted += [one.path for one in index.files if one.start_offset > limit]

    def _say(self, end: EntriesEnd) -> None:
        warnings = self.result.warnings
        if end.why:
            warnings.append(f"DLedger ends its log after entry {end.last}: {end.why}")
        if end.whole_last < end.last:
            torn = counted(end.last - end.whole_last, "entry", "entries")
            warnings.append(
                f"{torn} at the end of the log: torn messages, which DLedger keeps and no consumer gets. `rmqctl "
                "recover` cuts them"
            )
        committed = member_of(self.files).committed
        if committed is not None and committed > end.last:
            warnings.append(f"entry {committed} was committed, and the log ends with entry {end.last}")


def _refused(files: MappedFileQueue, folder: Path | None = None) -> str | None:
    """Return what DLedger logs where it ends the process because of a file (MmapFileList#load, #checkSelf), of those in
    `folder` where one is given."""
    first = next((file.path for file in files.files if file.holds_entries), None)
    for problem in files.problems:
        if folder is not None and (problem.path.parent != folder or (problem.kind == "gap" and problem.path == first)):
            continue
        if problem.kind in ("size", "empty", "stray"):
            return f"{_LOAD_FAILED}: {Path(problem.path).name} ({problem.detail})"
        if problem.kind == "gap":
            return f"check data file order failed before recovery: {problem.detail}"
    return None
