"""Copies of compacted topics against themselves and the commitlog, and a DLedger log: a lost copy is not a lost
message."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqctl.formats.errors import CorruptError, UnreadableError, counted
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import Level, LogSeen
from rmqctl.store.compare.replicas import (
    INDEX_FILE_SIZE,
    DledgerMember,
    EntryRows,
    entry_heads,
    index_units,
    is_whole,
    member_of,
    open_index,
    read_small,
)
from rmqctl.store.files.layout import is_file_name
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import is_directory, listed
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.read.compacted import (
    COMPACTION,
    POSITIONS,
    UNKNOWN,
    CompactedQueue,
    compacted_queues,
    copied_queues,
    positions,
)
from rmqctl.store.store_files import DledgerLog, StoreFiles


def compaction_findings(files: StoreFiles, seen: LogSeen, events: Events = UNHEARD) -> Iterator[Finding]:
    """Yield what is wrong with the copies below compaction/. `progress` gets the bytes of messages. UnreadableError."""
    try:
        known = positions(files.layout)
    except CorruptError as error:
        path = files.layout.root / COMPACTION / POSITIONS
        yield Finding("RMQ-CMP-002", error.message, path, data_lost=False)
        known = {}
    # a broker that compacts makes the folder; without it this one may not (enableCompaction)
    if not is_directory(files.layout.root / COMPACTION):
        return
    try:
        places = copied_queues(files)
    except (CorruptError, UnreadableError):  # topics.json has findings of its own
        places = compacted_queues(files.layout)
    for place in places:
        yield from _findings(CompactedQueue(files, *place, known.get(place, UNKNOWN)), seen, events)


def _findings(copy: CompactedQueue, seen: LogSeen, events: Events) -> Iterator[Finding]:
    for folder in (copy.logs, copy.queues):
        for name in listed(folder):
            if not is_file_name(name) and not is_directory(folder / name):
                text = f"{name} is left of a compaction that was cut off"
                yield _finding(copy, "RMQ-CMP-001", text, folder / name)
    differ = sorted(set(copy.log_names) ^ set(copy.queue_names))
    if differ:
        text = f"{differ[0]} is a file of only one of compactionLog and compactionCq"
        yield _finding(copy, "RMQ-CMP-001", text, copy.logs / differ[0])
    known = []
    for one in copy.messages():
        events.passed(max(one.unit.size, 0))
        logged, problem = copy.in_log(one.unit.queue_offset), one.problem
        if one.stored is not None and logged is not None and logged.at(one.unit.physical_offset) != one.stored.frame:
            problem = "it differs from the same message of the commitlog"
        if problem:
            where = "the commitlog has it" if logged is not None else "the commitlog has it no more"
            text = f"message {one.unit.queue_offset}: {problem}; {where}"
            yield _finding(copy, "RMQ-CMP-002", text, copy.logs / one.name, one.unit, data_lost=logged is None)
        known.append(one._replace(stored=None))
    if not seen.is_live:
        # the last file was never compacted: where the position is lost, that much is known
        offsets = {one.unit.queue_offset for one in known}
        lacking = copy.lacking(max(copy.uncompacted(known), min(offsets)) if known else 0, offsets)
        if lacking:
            text = f"the copy lacks {counted(len(lacking), 'message')} of the queue, from offset {lacking[0]} on"
            yield dataclasses.replace(_finding(copy, "RMQ-CMP-003", text, copy.queues), messages=len(lacking))


def _finding(
    copy: CompactedQueue, code: str, text: str, path: Path, unit: QueueUnit | None = None, *, data_lost: bool = False
) -> Finding:
    offset, messages = (None, None) if unit is None else (unit.physical_offset, 1)
    return Finding(code, text, path, offset, copy.topic, copy.queue_id, messages=messages, data_lost=data_lost)


# A DLedger log against itself: heads of entries, terms, its index, and what its small files say.

_MOST_UNITS = 1 << 16


def dledger_findings(files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
    """Yield what is wrong with a store's DLedger log besides its messages. UnreadableError."""
    dledger = files.dledger
    if dledger is None:
        return
    index = open_index(dledger, files.log)
    yield from _index_files(index)
    if seen.level is not Level.QUICK:
        yield from _Entries(files, dledger, index).findings(seen)
    yield from _state(dledger, member_of(files), seen)


def _index_files(index: MappedFileQueue) -> Iterator[Finding]:
    for problem in index.problems:
        if problem.kind in ("size", "empty"):
            text = f"{problem.detail}: DLedger does not start with it"
            yield Finding("RMQ-DLG-004", text, problem.path, expected=INDEX_FILE_SIZE, data_lost=False)


@dataclass(slots=True)
class _Place:
    """The first place where something is wrong, and at how many entries it is."""

    code: str
    text: str
    path: Path | None
    offset: int
    expected: int | None
    found: int | None
    count: int = 0

    def finding(self) -> Finding:
        more = f" (and {counted(self.count - 1, 'more entry', 'more entries')})" if self.count > 1 else ""
        return Finding(
            self.code,
            self.text + more,
            self.path,
            self.offset,
            expected=self.expected,
            found=self.found,
            data_lost=False,
        )


class _Entries:
    """One pass over the heads of all entries; each kind of fault is reported where it begins."""

    def __init__(self, files: StoreFiles, dledger: DledgerLog, index: MappedFileQueue) -> None:
        self._log = files.log
        self._dledger = dledger
        self._index = index
        self._before: np.void | None = None
        self._places: dict[str, _Place] = {}

    def findings(self, seen: LogSeen) -> Iterator[Finding]:
        begin = max(self._dledger.begin, seen.log_begin)
        for heads, offsets in entry_heads(self._log, begin, seen.log_end):
            # the walk over the log reports the others
            good = heads[is_whole(heads) & (heads["pos"] == offsets - heads.itemsize)]
            for start in range(0, len(good), _MOST_UNITS):
                self._take(good[start : start + _MOST_UNITS])
        for place in self._places.values():
            yield place.finding()

    def _take(self, heads: EntryRows) -> None:
        known = heads if self._before is None else np.concatenate([np.array([self._before], heads.dtype), heads])
        self._before = heads[-1]
        numbers, terms = known["entry_index"].astype(np.int64), known["term"].astype(np.int64)
        ends = known["pos"].astype(np.int64) + known["size"]
        # what is between two others, damage or an entry without a message, has a number of its own
        follows = known["pos"][1:] == ends[:-1]
        steps = np.where(follows, numbers[1:] == numbers[:-1] + 1, numbers[1:] > numbers[:-1])
        for row in np.flatnonzero(~steps)[:1].tolist():
            self._note("RMQ-DLG-002", "the number of the entry does not follow", known, row + 1, "entry_index", row, 1)
        for row in np.flatnonzero(terms[1:] < terms[:-1])[:1].tolist():
            self._note("RMQ-DLG-002", "the term of the entry falls", known, row + 1, "term", row)
        self._compare(heads)

    def _note(self, code: str, text: str, rows: EntryRows, row: int, field: str, before: int, step: int = 0) -> None:
        pos = int(rows[row]["pos"])
        file = self._log.find(pos)
        place = _Place(code, text, None if file is None else file.path, pos, None, int(rows[row][field]))
        place.expected = int(rows[before][field]) + step
        self._places.setdefault(code + field, place).count += 1

    def _compare(self, heads: EntryRows) -> None:
        """Compare entries with the units of the index, which DLedger reads from its last files on."""
        numbers = heads["entry_index"].astype(np.int64)
        first, last = int(numbers.min()), int(numbers.max())
        if first < 0 or last - first > 4 * _MOST_UNITS:
            return  # numbers that do not follow are a finding of their own
        units = index_units(self._index, first, last - first + 1)[numbers - first]
        same = np.ones(len(heads), np.bool_)
        for name in ("magic_code", "pos", "size", "entry_index", "term"):
            same &= units[name] == heads[name]
        wrong = np.flatnonzero(~same)
        if not len(wrong):
            return
        head = heads[wrong[0]]
        number = int(head["entry_index"])
        file = self._index.find(number * units.itemsize)
        is_zero = not units[wrong[0]]["magic_code"]
        what = "has no unit" if is_zero else "has a unit that differs from it"
        place = _Place(
            "RMQ-DLG-003",
            f"entry {number} {what}",
            self._dledger.folder.parent / "index" if file is None else file.path,
            number * units.itemsize,
            int(head["pos"]),
            int(units[wrong[0]]["pos"]),
        )
        self._places.setdefault(place.code, place).count += len(wrong)


def _state(dledger: DledgerLog, member: DledgerMember, seen: LogSeen) -> Iterator[Finding]:
    folder = dledger.folder.parent
    for name, key in (("checkpoint", "committedIndex"), ("currterm", "currTerm")):
        small = read_small(folder / name, key)
        if small.problem is not None:
            yield Finding("RMQ-DLG-005", small.problem, small.path, data_lost=False)
    if member.last is None or seen.is_live:
        return
    if member.committed is not None and member.committed > member.last:
        lost = member.committed - member.last
        text = f"entry {member.committed} was committed, and the log ends with entry {member.last}"
        yield Finding(
            "RMQ-DLG-006", text, folder / "checkpoint", expected=member.committed, found=member.last, messages=lost,
            data_lost=True,
        )  # fmt: skip
    if member.uncommitted:
        text = (
            f"{counted(member.uncommitted, 'entry follows', 'entries follow')} the committed entry {member.committed}"
        )
        yield Finding("RMQ-DLG-007", text, folder / "checkpoint", messages=member.uncommitted, data_lost=False)
    if member.term is not None and member.last_term is not None and member.term < member.last_term:
        text = f"term {member.term}, and the last entry is of term {member.last_term}"
        yield Finding(
            "RMQ-DLG-005", text, folder / "currterm", expected=member.last_term, found=member.term, data_lost=False
        )
