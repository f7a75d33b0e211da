"""Recovers a DLedger log: where it ends, and the units of its index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqctl.formats.errors import RefusedError, counted
from rmqctl.formats.layouts import DLEDGER_INDEX_UNIT
from rmqctl.store.compare.entries import EntriesEnd, EntryReading, lasting_end, lost_behind, units_of
from rmqctl.store.compare.replicas import INDEX_FILE_SIZE, index_units, member_of, open_index
from rmqctl.store.files.layout import file_name
from rmqctl.store.files.mapped_file_queue import MappedFileQueue, stranger_error
from rmqctl.store.files.reading import end_of_nonzero
from rmqctl.store.journal.journal import PlannedChange
from rmqctl.store.journal.plan import ClearRange, CreateFile, MoveAway, Plan, Resize, WriteRange
from rmqctl.store.recover.report import ALL_PARTS, Goal, Part, RecoverReport
from rmqctl.store.store_files import StoreFiles

_UNIT_SIZE = DLEDGER_INDEX_UNIT.size
_MOST_UNITS = 1 << 16


def _index_of(files: StoreFiles) -> MappedFileQueue:
    assert files.dledger is not None, "the store has no DLedger log"
    return open_index(files.dledger, files.log)


def goal_of_entries(files: StoreFiles, *, cut: bool, full: bool) -> Goal:
    """Return what a recovery does to a DLedger log: it ends where DLedger would end it, or before a torn last message.
    RefusedError where good messages follow that end, unless they are to be `cut`."""
    index = _index_of(files)
    end = lasting_end(files.log, index, full=full)
    messages, size = lost_behind(files.log, index, end)
    if messages and not cut:
        file, why = files.log.find(end.end), end.why or "zeros where an entry should be"
        raise RefusedError(
            f"{why}: DLedger ends its log here, before {counted(messages, 'good message')} ({counted(size, 'byte')})",
            file=None if file is None else file.path,
            physical_offset=end.end,
            hint=f"another member of the group has them: start it first, or `rmqctl salvage {files.root} --to NEW`; "
            "`--cut` ends the log here, as DLedger does",
        )
    # the broker has these cut and completed when it starts
    parts = ALL_PARTS - {Part.QUEUES} if files.leaves_queues else ALL_PARTS
    return Goal(at=end.whole_end, messages_cut=messages, parts=parts, entries=end)


def require_committed(files: StoreFiles, end: EntriesEnd, report: RecoverReport) -> None:
    """RefusedError where a DLedger log would be cut before an entry that the group has committed."""
    committed = member_of(files).committed
    if report.truncated_bytes and committed is not None and end.whole_last < committed:
        raise RefusedError(
            f"the log would end with entry {end.whole_last}, and entry {committed} was committed: other members have "
            "what would go",
            physical_offset=end.whole_end,
            hint="`rmqctl predict --epochs STORE` compares members; start the best one, or cut with --below-confirm",
        )


def plan_entry_index(change: PlannedChange, plan: Plan, end: EntriesEnd) -> None:
    """Plan that the index of a DLedger log has the units of all entries up to `end`, and none after them.

    Units of entries before damage that DLedger does not read stay as they are. UnreadableError; RefusedError for
    foreign files among those of the index.
    """
    index = _index_of(change.files)
    for problem in index.problems:
        if problem.kind not in ("size", "empty", "gap"):
            raise stranger_error(problem, "the index of the DLedger log")
    limit = (end.whole_last + 1) * _UNIT_SIZE
    paths = {file.start_offset: file.path for file in index.files} | index.empty_files()
    sizes = {file.start_offset: file.size for file in index.files}
    for start in sorted(paths):
        if start > limit:
            plan.add(MoveAway(paths.pop(start)))
            continue
        if sizes.get(start, 0) != INDEX_FILE_SIZE:
            plan.add(Resize(paths[start], INDEX_FILE_SIZE))
        begin, size = max(0, limit - start), min(sizes.get(start, 0), INDEX_FILE_SIZE)
        stop = end_of_nonzero(index.descriptors, paths[start], min(begin, size), size)
        if stop > begin:
            plan.add(ClearRange(paths[start], begin, stop - begin))
    for position, data in _wrong_units(change.files.log, index, end):
        start = position // INDEX_FILE_SIZE * INDEX_FILE_SIZE
        if start not in paths:
            paths[start] = index.directories[0] / file_name(start)
            plan.add(CreateFile(paths[start], INDEX_FILE_SIZE))
        plan.add(WriteRange(paths[start], position - start, change.spill(data)))


def _wrong_units(log: MappedFileQueue, index: MappedFileQueue, end: EntriesEnd) -> Iterator[tuple[int, bytes]]:
    """Yield runs of units that differ from their entries: position in the index, and the right bytes. None of them
    crosses the end of a file."""
    for heads in EntryReading(log, end.begin).rows():
        kept = heads[heads["entry_index"] <= end.whole_last]
        for begin in range(0, len(kept), _MOST_UNITS):
            units = units_of(kept[begin : begin + _MOST_UNITS])
            first = int(units["entry_index"][0])
            known = index_units(index, first, len(units))
            wrong = np.flatnonzero(units != known)
            file_ends = (first + wrong) % (INDEX_FILE_SIZE // _UNIT_SIZE) == 0
            for run in np.split(wrong, np.flatnonzero((np.diff(wrong, prepend=-1) > 1) | file_ends)):
                if len(run):
                    yield (first + int(run[0])) * _UNIT_SIZE, units[run[0] : run[-1] + 1].tobytes()
