"""Where DLedger ends its log when it starts: it follows the heads of entries, and the first wrong one ends the log.

No CRC and no frame counts there (DLedgerMmapFileStore#recover)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.layouts import DLEDGER_ENTRY_HEAD, DLEDGER_INDEX_UNIT, DLEDGER_MAGIC
from rmqctl.formats.message import FrameDamage, decode_message
from rmqctl.store.compare.replicas import (
    CHECKPOINT,
    COMMITTED,
    EntryRows,
    entry_heads,
    index_units,
    is_whole,
    read_small,
)
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.store_files import StoreFiles

_HEAD, _UNIT = DLEDGER_ENTRY_HEAD.dtype(), DLEDGER_INDEX_UNIT.dtype()
_FILE_END = (-1).to_bytes(4, "big", signed=True)
_CHECKED_FILES = 3
_LAST_ENTRIES = 1 << 16


class EntriesEnd(NamedTuple):
    """Where the log ends. `begin`: from here on all entries follow one another; `start`: of the file that DLedger reads
    first; `end`: of the log for DLedger, after entry `last` of term `term`, both -1 without one; `why`: what is wrong
    with the entry after it, "" where none begins.

    `whole_end`, `whole_last`: the same without the last entries whose messages are torn, which DLedger keeps.
    """

    begin: int
    start: int
    end: int
    last: int
    term: int
    why: str
    whole_end: int
    whole_last: int


def log_end(log: MappedFileQueue, index: MappedFileQueue, *, full: bool = False, left: int | None = None) -> EntriesEnd:
    """Return where a DLedger log ends; `full`: read from its first file on, and not from the one that DLedger begins
    with; `left`: its files begin before this offset, None for all. UnreadableError."""
    entries = [file for file in log.files if file.holds_entries]
    first = entries[0].start_offset
    kept = [file for file in entries if left is None or file.start_offset < left] or entries[:1]
    start = first if full else _first_read(log, index, kept)
    found = _read_from(log, first, start)
    if found.end > start or start == first:
        return found
    # what DLedger does not read ends nothing
    later = _read_from(log, start, start)
    return later if later.last >= 0 else found


def lasting_end(log: MappedFileQueue, index: MappedFileQueue, *, full: bool = False) -> EntriesEnd:
    """Return where a DLedger log ends for the starts after it was cut there, too: with fewer files DLedger begins to
    read in an earlier one, in which damage may end the log. UnreadableError."""
    end = log_end(log, index, full=full)
    # where all entries follow one another, it does not matter where DLedger begins
    while end.begin > next(file.start_offset for file in log.files if file.holds_entries):
        after = log_end(log, index, left=end.whole_end)
        if after.whole_end >= end.whole_end:
            break
        end = after
    return end


def _read_from(log: MappedFileQueue, begin: int, start: int) -> EntriesEnd:
    """Return where the log ends for who reads it from `begin` on; `start`: where DLedger would begin."""
    reading = EntryReading(log, begin)
    tail: deque[tuple[int, int, int]] = deque(maxlen=_LAST_ENTRIES)
    for rows in reading.rows():
        last = rows[-_LAST_ENTRIES:]
        tail.extend(zip(*(last[name].tolist() for name in ("pos", "size", "entry_index")), strict=True))
    whole_end, whole_last = reading.position, reading.number
    while tail and not _has_message(log, *tail[-1][:2]):
        whole_end, _, number = tail.pop()
        whole_last = number - 1 if tail else -1
    return EntriesEnd(begin, start, reading.position, reading.number, reading.term, reading.why, whole_end, whole_last)


def _first_read(log: MappedFileQueue, index: MappedFileQueue, entries: list[MappedFile]) -> int:
    """Return the start of the file that DLedger reads first: the third from the end, or an earlier one, whose first
    entry and its unit agree; of the first file without one."""
    for file in reversed(entries[: max(1, len(entries) - _CHECKED_FILES + 1)]):
        data = file.read(0, _HEAD.itemsize)
        if len(data) < _HEAD.itemsize:
            continue
        head = np.frombuffer(data, _HEAD)
        number = int(head["entry_index"][0])
        fits = bool(is_whole(head)[0]) and head["pos"][0] == file.start_offset and number >= 0
        if fits and units_of(head).tobytes() == index_units(index, number, 1).tobytes():
            return file.start_offset
    return entries[0].start_offset


def units_of(heads: EntryRows) -> EntryRows:
    """Return the units that the index should have for entries."""
    units: EntryRows = np.zeros(len(heads), _UNIT)
    for name in ("magic_code", "pos", "size", "entry_index", "term"):
        units[name] = heads[name]
    return units


def _has_message(log: MappedFileQueue, pos: int, size: int) -> bool:
    """Return whether the body of an entry is a whole message, its checksums included."""
    place = pos + _HEAD.itemsize
    frame = log.read(place, size - _HEAD.itemsize)
    try:
        return decode_message(frame, 0, len(frame), place).end == pos + size
    except FrameDamage:
        return False


class EntryReading:
    """One pass over the entries from `position` on, which ends where DLedger ends its log.

    `number` and `term`: of the last entry that was read, -1 without one. `why`: what is wrong with the next one.
    """

    def __init__(self, log: MappedFileQueue, position: int) -> None:
        self._log = log
        self.position = position
        self.number = self.term = -1
        self.why = ""

    def rows(self) -> Iterator[EntryRows]:
        """Yield the heads of entries, in order. UnreadableError."""
        for heads, offsets in entry_heads(self._log, self.position, None):
            rows = heads[heads["pos"] == offsets - _HEAD.itemsize]
            while len(rows := rows[rows["pos"] >= self.position]):
                count = self._following(rows)
                taken = rows[:count] if count else self._next()
                if taken is None:
                    return
                if count:
                    self._take(taken)
                yield taken
        while (one := self._next()) is not None:
            yield one

    def _following(self, rows: EntryRows) -> int:
        """Return how many of `rows` follow one another, from the position on."""
        ends, numbers, terms = (rows[name].astype(np.int64) for name in ("pos", "entry_index", "term"))
        begins = ends.copy()
        ends += rows["size"]
        before = int(numbers[0]) - 1 if self.number < 0 else self.number
        good: NDArray[np.bool_] = is_whole(rows) & (rows["size"] > _HEAD.itemsize) & (numbers >= 0)
        good &= begins == np.concatenate([[self.position], ends[:-1]])
        good &= numbers == np.concatenate([[before], numbers[:-1]]) + 1
        good &= terms >= np.concatenate([[self.term], terms[:-1]])
        return len(rows) if good.all() else int(good.argmin())

    def _next(self) -> EntryRows | None:
        """Take the entry at the position, which may be in the next file, whole message or not; None where the log
        ends."""
        while (file := self._log.find(self.position)) is not None and file.holds_entries:
            data = file.read(self.position - file.start_offset, _HEAD.itemsize)
            if data.startswith(_FILE_END):
                self.position = file.start_offset + self._log.file_size
                continue
            if len(data) < _HEAD.itemsize or not any(data):
                self.why = "the file ends in an entry" if any(data) else ""
                return None
            row: EntryRows = np.frombuffer(data, _HEAD)
            self.why = self._wrong(row, file)
            if self.why:
                return None
            self._take(row)
            return row
        return None

    def _wrong(self, row: EntryRows, file: MappedFile) -> str:
        """Return what is wrong with an entry at the position of `file`; "" for nothing."""
        pos, size, number, term = (int(row[name][0]) for name in ("pos", "size", "entry_index", "term"))
        if pos != self.position:
            return f"the entry has the offset {pos}"
        if row["magic_code"][0] != DLEDGER_MAGIC or not is_whole(row)[0] or size <= _HEAD.itemsize:
            return "magic code or sizes are not those of an entry"
        if pos + size > min(file.end_offset, file.start_offset + self._log.file_size):
            return "the entry is larger than what is left of its file"
        if number < 0 or (self.number >= 0 and number != self.number + 1):
            return f"the entry has the number {number} after {self.number}"
        if term < self.term:
            return f"the entry has the term {term} after {self.term}"
        return ""

    def _take(self, rows: EntryRows) -> None:
        last = rows[-1]
        self.position = int(last["pos"]) + int(last["size"])
        self.number, self.term = int(last["entry_index"]), int(last["term"])


def lost_behind(log: MappedFileQueue, index: MappedFileQueue, end: EntriesEnd) -> tuple[int, int]:
    """Return how many good messages are after the end of the log for DLedger, with their bytes. Entries that a later
    leader has replaced do not count: DLedger clears nothing when it cuts its log. UnreadableError."""
    unit = index_units(index, end.last, 1)[0] if end.last >= 0 else None
    # the term of the last entry may be damaged itself
    is_sure = unit is not None and (int(unit["entry_index"]), int(unit["term"])) == (end.last, end.term)
    messages = size = 0
    for heads, offsets in entry_heads(log, end.end, None):
        older = is_whole(heads) & (heads["pos"] == offsets - _HEAD.itemsize) & (heads["term"] < end.term)
        left = np.ones(len(heads), np.bool_)
        for row in np.flatnonzero(older).tolist() if is_sure else ():
            left[row] = not _is_replaced(index, heads[row : row + 1], end)
        messages += int(left.sum())
        size += int(np.maximum(heads["size"][left].astype(np.int64), 0).sum())
    return messages, size


def _is_replaced(index: MappedFileQueue, head: EntryRows, end: EntriesEnd) -> bool:
    """Return whether an entry of a smaller term than the last one is an old one: another has its number now, or its
    unit is as old as it is."""
    number = int(head["entry_index"][0])
    return 0 <= number <= end.last or index_units(index, number, 1).tobytes() == units_of(head).tobytes()


def committed_end(files: StoreFiles, index: MappedFileQueue, end: EntriesEnd) -> int | None:
    """Return the end of the last entry that a member knows to be committed when it starts; None for one that knows of
    none. Unlike what it shows, that is never what its backup says. UnreadableError."""
    assert files.dledger is not None, "the store has no DLedger log"
    number = read_small(files.dledger.folder.parent / CHECKPOINT, COMMITTED, with_backup=False).number(COMMITTED)
    if number is None or number < 0 or end.last < 0:
        return None
    if number >= end.last:
        return end.end
    unit = index_units(index, number, 1)[0]
    row = np.frombuffer(files.log.read(int(unit["pos"]), _HEAD.itemsize).ljust(_HEAD.itemsize, b"\0"), _HEAD)[0]
    if row["entry_index"] == number and row["pos"] == unit["pos"]:
        return int(row["pos"]) + int(row["size"])
    for heads in EntryReading(files.log, end.begin).rows():
        for row in heads[heads["entry_index"] == number]:
            return int(row["pos"]) + int(row["size"])
    return None
