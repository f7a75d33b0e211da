"""The next start of a broker whose commitlog is a DLedger log (DLedgerMmapFileStore#recover, DLedgerCommitLog)."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats.errors import counted
from rmqctl.formats.layouts import DLEDGER_INDEX_UNIT
from rmqctl.store.compare.entries import EntriesEnd, log_end, lost_behind
from rmqctl.store.compare.replicas import member_of, open_index
from rmqctl.store.files.layout import file_name
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.predict.broker_log import IndexStart, start_index
from rmqctl.store.predict.compaction import refused_by_compaction
from rmqctl.store.predict.prediction import Prediction, Start, max_before
from rmqctl.store.predict.surroundings import ConfigStart, refused_abort, refused_lock

_LOAD_FAILED = "Load file failed, this usually indicates fatal error, you should check it manually"
_TOO_SMALL = "[MONITOR]The processOffset is too small, you should check it manually before truncating the data from"


class DledgerStart(Start):
    """One start with enableDLegerCommitLog=true: DLedger cuts its log, then the broker its queues. What it dispatches
    then is not followed: no message is lost by that."""

    def _load(self, config: ConfigStart) -> Prediction:
        files, result = self.files, self.result
        assert files.dledger is not None
        index = open_index(files.dledger, files.log)
        result.warnings.append("this is the start of a member of a DLedger group (enableDLegerCommitLog=true)")
        error = (
            _refused(files.log)
            or _refused(index)
            or self.loading.load(self.queues, self.deleted)
            or refused_by_compaction(files, self.release)
        )
        if error is not None:
            return self._finished(error)
        end = log_end(files.log, index)
        begin = max(file.start_offset for file in files.log.files)
        if begin - end.end > files.log.file_size:
            return self._finished(f"{_TOO_SMALL} {end.end}")
        self._end_log(index, end)
        keys = start_index(files.index, files.readable_checkpoint(), not result.was_clean, files.descriptors)
        self._end_queues(end.end)
        self._note_index(keys)
        self._say(end, keys)
        return self._finished(
            (keys.error if self.release.index_counts else None)
            or config.error_after
            or self._refused_levels()
            or refused_lock(files.layout)
            or refused_abort(files.layout, self.release)
            or config.error_registering
        )

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

    def _end_queues(self, end_offset: int) -> None:
        queues = self.queues.by_key
        before = {key: max_before(queue) for key, queue in queues.items()}
        for queue in queues.values():
            queue.recover()
        if self.queues.max_physical() >= end_offset:
            for queue in queues.values():
                queue.truncate(end_offset)
        for queue in queues.values():
            queue.correct_min(self.files.log.min_offset, self.release.trusts_filler)
        self._note_queues(before)

    def _say(self, end: EntriesEnd, index: IndexStart) -> None:
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
        if self.result.was_clean:
            warnings.append(
                "after a clean stop queues are only cut: messages that they lack stay out of them. `rmqctl recover` "
                "completes them"
            )
        elif index.deleted:
            warnings.append(
                "keys of the deleted index files are written again only from the file where dispatch begins, which is "
                "not predicted. `rmqctl recover` keeps all"
            )


def _refused(files: MappedFileQueue) -> str | None:
    """Return what DLedger logs where it ends the process because of a file (MmapFileList#load, #checkSelf)."""
    for problem in files.problems:
        if problem.kind in ("size", "empty", "stray"):
            return f"{_LOAD_FAILED}: {Path(problem.path).name} ({problem.detail})"
        if problem.kind == "gap":
            return f"check data file order failed before recovery: {problem.detail}"
    return None
