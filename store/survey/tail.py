"""The end of the log, found from its last bytes: for looks that have no time to walk the whole log, and for logs that
somebody writes to meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.store.commitlog.frame_search import FrameSearch
from rmqctl.store.commitlog.walk import Blank, Damage, Empty, walk, walk_file
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.zeros import end_of_nonzero
from rmqctl.store.survey.refused import as_brokers_read

_WINDOW = 1024 * 1024
_GROWTH = 8
# how often, and every so many seconds, a frame that may be half written is looked at
_TRIES = 20
_PAUSE_S = 0.05
SETTLES_IN = 0.01
"""Seconds: a frame is copied into the page cache in far less."""
_LAST_RECORDS = 4 * 1024 * 1024


@dataclass(slots=True)
class Tail:
    """`begin`: the first frame looked at; `end`: behind the last good record. Offsets physical, times in ms.

    `damage`: what stands at `end` if it is no zeros; the first of it where there is more. `inside`: damage before it.
    `timestamp_before_damage`: of the last message before the first damage inside, 0 if there is none.
    """

    begin: int = 0
    end: int = 0
    messages: int = 0
    last_store_timestamp: int = 0
    largest_store_timestamp: int = 0
    timestamp_before_damage: int = 0
    damage: Damage | None = None
    inside: list[Damage] = field(default_factory=list)

    @property
    def is_stale_behind_damage(self) -> bool:
        """Whether what follows the damage was stored before what precedes it."""
        return bool(self.inside) and self.is_left_over(self.timestamp_before_damage)

    def is_left_over(self, timestamp: int) -> bool:
        """Whether the last messages were stored before one of this time that stands before them: they are left over
        from before a truncation, which clears nothing."""
        return self.last_store_timestamp < timestamp

    @property
    def valid_end(self) -> int:
        """Behind the last record that belongs to the log."""
        return self.inside[0].physical_offset if self.is_stale_behind_damage else self.end


def written_bytes(log: MappedFileQueue) -> int:
    """Return the bytes from the start of the log to its last byte that is not zero: what there is to walk."""
    last = log.last_with_data()
    if last is None:
        return 0
    before = sum(file.size for file in log.files if file.start_offset < last.start_offset)
    return before + end_of_nonzero(last.descriptors, last.path, 0, last.size)


def look_at_tail(log: MappedFileQueue, window: int = _WINDOW) -> Tail:
    """Walk about the last `window` bytes of the log, checksums included."""
    file = log.last_with_data()
    if file is None:
        begin = max(log.min_offset, 0)
        return Tail(begin, begin)
    nonzero = end_of_nonzero(file.descriptors, file.path, 0, file.size)
    start = file.start_offset + max(0, nonzero - window)
    tail = Tail(start, start)
    is_found = start == file.start_offset
    for record in as_brokers_read(walk(log, start), log):
        if isinstance(record, Empty) or record.physical_offset >= file.start_offset + file.size:
            break
        if isinstance(record, StoredMessage | Blank):
            if not is_found:
                tail.begin, is_found = record.physical_offset, True
            if tail.damage is not None:
                if not tail.inside:
                    tail.timestamp_before_damage = tail.last_store_timestamp
                tail.inside.append(tail.damage)
                tail.damage = None
            tail.end = record.end
            if isinstance(record, StoredMessage):
                tail.messages += 1
                tail.last_store_timestamp = record.store_timestamp
                tail.largest_store_timestamp = max(tail.largest_store_timestamp, record.store_timestamp)
        elif is_found and tail.damage is None and record.reason is not Reason.SHORT_FILE:
            tail.damage = record
    if is_found:
        return tail
    # no frame began in the last bytes: a message as large as the window, or damage as large
    return look_at_tail(log, window * _GROWTH)


def settled_end(log: MappedFileQueue, pause: Callable[[float], None] = time.sleep) -> int:
    """Physical offset up to which the log of a live store can be judged: behind its last whole message just now.

    A frame that is being written looks damaged for a moment, so damage at the end is looked at again for a second;
    what stays damaged lies before the offset that is returned.
    """
    tail = look_at_tail(log)
    for _ in range(_TRIES):
        if tail.damage is None:
            break
        pause(_PAUSE_S)
        before, tail = tail, look_at_tail(log)
        if tail.damage is not None and tail.damage.physical_offset > before.damage.physical_offset:  # type: ignore[union-attr]
            # the writer went on: all before this frame is whole, and the frame is none of ours
            return tail.end
    return tail.end if tail.damage is None else tail.damage.end


class _Last(NamedTuple):
    """The last good record of a file: positions in the file."""

    begin: int
    end: int
    may_lack_bytes: bool


def end_of_messages(log: MappedFileQueue, begin: int, pause: Callable[[float], None] = time.sleep) -> int:
    """Physical offset behind the last complete message or blank frame; `begin` if there is none behind it.

    Everything before the last file with data is final; a broker makes files of zeros one or two ahead, and goes on
    where it was. In the last one, which is full of zeros from the start, a message may be half written: it and what
    follows it is left for later. Bytes that are no message, with good ones behind them, are damage and final: frames
    are written one after the other. No checksum covers the head, topic and properties of most frames, so the last of
    all counts only if it does not end in zeros where it should not, and is the same after a moment, which `pause` waits
    for. Reads the end of that file only.
    """
    file = last_begun(log)
    if file is None:
        return begin
    first = max(begin - file.start_offset, 0)
    if first >= file.size:
        return begin
    last = _last_record(file, first)
    if last is None:
        return max(begin, file.start_offset)
    seen = file.read(last.begin, last.end - last.begin)
    pause(SETTLES_IN)
    if last.may_lack_bytes or file.read(last.begin, last.end - last.begin) != seen:
        return file.start_offset + last.begin
    return file.start_offset + last.end


def last_begun(log: MappedFileQueue) -> MappedFile | None:
    """The last file that something was written to, by its first bytes: nobody reads a file of zeros to its end each
    time. None if there is none. (AllocateMappedFileService makes files ahead)"""
    for file in reversed(log.files):
        if any(file.read(0, 8)) or any(file.read(0, _WINDOW)):
            return file
    return None


def _last_record(file: MappedFile, first: int) -> _Last | None:
    """The last good record that begins at `first` or behind it; None if there is none."""
    written = end_of_nonzero(file.descriptors, file.path, first, file.size)
    tail = _LAST_RECORDS
    while written > first:
        start = max(first, written - tail)
        last = _last_from(file, start, written)
        if last is not None or start == first:
            return last
        tail *= 4
    return None


def _last_from(file: MappedFile, start: int, written: int) -> _Last | None:
    """The last good record that begins in [start, written)."""
    last: _Last | None = None
    # a frame may end in zeros: it reaches further than what is written
    for record in walk_file(file, FrameSearch(file, file.size), start, file.size, 0, None):
        position = record.physical_offset - file.start_offset
        if position >= written:
            break
        if isinstance(record, StoredMessage | Blank):
            last = _Last(position, record.end - file.start_offset, may_lack_bytes(record))
    return last


def may_lack_bytes(record: StoredMessage | Blank) -> bool:
    """Whether topic or properties end in zeros, as where a writer has not come so far yet."""
    return isinstance(record, StoredMessage) and ("\0" in record.topic or record.property_bytes.endswith(b"\0"))
