"""Where the messages of a log that may still be growing end: behind the last one that is complete. And where those of a
time begin."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from rmqctl.formats.message import StoredMessage
from rmqctl.pipeline.source.history import mark_before
from rmqctl.store.commitlog.frame_search import FrameSearch
from rmqctl.store.commitlog.walk import Blank, walk_file
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import end_of_nonzero
from rmqctl.store.read.frames import store_time_at

_TAIL = 4 * 1024 * 1024
# seconds: a frame is copied into the page cache in far less
_SETTLES_IN = 0.01


class _Last(NamedTuple):
    """The last good record of a file: positions in the file."""

    begin: int
    end: int
    may_lack_bytes: bool


def end_of_messages(log: MappedFileQueue, begin: int, pause: Callable[[float], None] = time.sleep) -> int:
    """Physical offset behind the last complete message or blank frame; `begin` if there is none behind it.

    Everything before the last file is final. In the last one, which is full of zeros from the start, a message may be
    half written: it and what follows it is left for later. Bytes that are no message, with good ones behind them, are
    damage and final: frames are written one after the other. No checksum covers the head, topic and properties of most
    frames, so the last of all counts only if it does not end in zeros where it should not, and is the same after a
    moment, which `pause` waits for. Reads the end of the last file only.
    """
    if not log.files:
        return begin
    file = log.files[-1]
    first = max(begin - file.start_offset, 0)
    if first >= file.size:
        return begin
    last = _last_record(file, first)
    if last is None:
        return max(begin, file.start_offset)
    seen = file.read(last.begin, last.end - last.begin)
    pause(_SETTLES_IN)
    if last.may_lack_bytes or file.read(last.begin, last.end - last.begin) != seen:
        return file.start_offset + last.begin
    return file.start_offset + last.end


def offset_since(log: MappedFileQueue, time: int, end: int) -> int:
    """Physical offset behind the last message before `end` that was stored before `time`, in ms; the log's beginning if
    there is none. Halves the log again and again, so it goes by store times that rise, as they do unless a clock is set
    back."""
    low, high = max(log.min_offset, 0), end
    while low < high:
        middle = (low + high + 1) // 2
        found = mark_before(log, middle, end)
        if found is None or found.begin < low:
            low = middle
            continue
        stored = store_time_at(log, found.begin)
        if stored is None or stored < time:
            low = max(middle, min(found.end, high))
        else:
            high = found.begin
    return low


def _last_record(file: MappedFile, first: int) -> _Last | None:
    """The last good record that begins at `first` or behind it; None if there is none."""
    written = end_of_nonzero(file.descriptors, file.path, first, file.size)
    tail = _TAIL
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
            last = _Last(position, record.end - file.start_offset, _may_lack_bytes(record))
    return last


def _may_lack_bytes(record: StoredMessage | Blank) -> bool:
    """Whether topic or properties end in zeros, as where a writer has not come so far yet."""
    return isinstance(record, StoredMessage) and ("\0" in record.topic or record.property_bytes.endswith(b"\0"))
