"""THE walker of the commitlog: it yields every message, blank frame, empty span and damaged span, in order.

Recovery, rebuild, `cat`, `dump` and the checks are policies over this one walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from formats.layouts import BLANK_FRAME, BLANK_MAGIC, FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from formats.message import FrameDamage, Reason, StoredMessage, decode_message
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue
from store.files.reading import end_of_nonzero, first_nonzero

_WINDOW = 4 * 1024 * 1024
# Far above any maxMessageSize in use; a size beyond it is damage and is never read into memory.
MAXIMUM_FRAME_SIZE = 256 * 1024 * 1024
_MAGIC_BYTES = tuple(magic.to_bytes(4, "big") for magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, BLANK_MAGIC))
_MAGIC_OFFSET = BLANK_FRAME.offset("magic_code")


class Blank(NamedTuple):
    """The frame that fills a file to its end."""

    physical_offset: int
    size: int


class Empty(NamedTuple):
    """Zeros up to the end of a file: never written, or cleared."""

    physical_offset: int
    end: int


class Damage(NamedTuple):
    """Bytes [physical_offset, end) that are no good record. `detail` is for people; may hold no text of the store."""

    physical_offset: int
    end: int
    reason: Reason
    detail: str
    file: str


Record = StoredMessage | Blank | Empty | Damage
Progress = Callable[[int], None]


def walk(
    log: MappedFileQueue, begin: int = 0, *, crc_from: int = 0, progress: Progress | None = None
) -> Iterator[Record]:
    """All records from physical offset `begin` (a frame's start, or any offset to find the next frame from) on.

    Bodies are checked against their CRC from offset `crc_from` on. `progress` is told the bytes passed.
    After damage the walk goes on at the next place where a frame passes every check of law 3 including its CRC.
    """
    expected: int | None = None
    for file in log.files:
        if file.end_offset <= begin and file is not log.files[-1]:
            continue
        if expected is not None and file.start_offset > expected:
            yield Damage(expected, file.start_offset, Reason.GAP, "a commitlog file is missing", str(file.path))
        position = max(0, begin - file.start_offset)
        yield from _walk_file(file, position, log.file_size, crc_from - file.start_offset, progress)
        expected = file.start_offset + log.file_size


def _walk_file(
    file: MappedFile, position: int, file_size: int, crc_from: int, progress: Progress | None
) -> Iterator[Record]:
    """Records of one file from `position` on; `crc_from` relative to the file."""
    end = min(file.committed_position, file.size)
    window = b""
    window_start = position
    reported = position
    while position < end:
        at = position - window_start
        if (at + FRAME_HEADS[3].size > len(window) and window_start + len(window) < end) or not window:
            if progress is not None:
                progress(position - reported)
                reported = position
            window, window_start, at = file.read(position, _WINDOW), position, 0
            if not window:
                break
        size = int.from_bytes(window[at : at + 4], "big", signed=True)
        if at + size > len(window) and size <= min(end - position, MAXIMUM_FRAME_SIZE):
            window, window_start, at = file.read(position, max(size, _WINDOW)), position, 0
        try:
            record = _record(file, window, at, end - position, position, position >= crc_from)
        except FrameDamage as damage:
            record = _damage(file, position, end, size, damage)
        yield record
        position = _end_of(record) - file.start_offset
    if progress is not None:
        progress(max(0, end - reported))
    if file.size < file_size and position >= end:
        missing = file.start_offset + file_size
        yield Damage(file.end_offset, missing, Reason.SHORT_FILE, "the file is cut short", str(file.path))


def _end_of(record: Record) -> int:
    if isinstance(record, Blank):
        return record.physical_offset + record.size
    return record.end


def _record(
    file: MappedFile, window: bytes, at: int, available: int, position: int, check_crc: bool
) -> StoredMessage | Blank | Empty:
    physical_offset = file.start_offset + position
    if available >= BLANK_FRAME.size:
        size, magic = BLANK_FRAME.unpack_from(window, at)
        if magic == BLANK_MAGIC:
            if size != available:
                raise FrameDamage(Reason.BLANK_SIZE, f"a blank frame of {size} bytes with {available} bytes left")
            return Blank(physical_offset, size)
        if size > MAXIMUM_FRAME_SIZE:
            raise FrameDamage(Reason.SIZE, f"size {size} is beyond any message")
        empty = size == 0 and magic == 0
    else:
        empty = not any(window[at:])
    if empty and first_nonzero(file._descriptors, file.path, position, position + available) is None:
        return Empty(physical_offset, physical_offset + available)
    return decode_message(window, at, available, physical_offset, check_crc)


def _damage(file: MappedFile, position: int, end: int, size: int, damage: FrameDamage) -> Damage:
    """The damaged span at `position`, up to the next good record of the file or to where only zeros follow."""
    start = file.start_offset
    stop = None
    if damage.reason in _SIZE_IS_LIKELY and 0 < size <= end - position:
        # the frame itself is framed well: what follows it is more likely right than a decoy inside its body
        stop = position + size if _is_good(file, position + size, end) else None
    if stop is None:
        stop = next_good(file, position + 1, end)
    if stop is None:
        stop = max(end_of_nonzero(file._descriptors, file.path, position, end), position + 1)
    return Damage(start + position, start + stop, damage.reason, damage.detail, str(file.path))


_SIZE_IS_LIKELY = (Reason.BODY_CRC, Reason.PROPERTY_CRC, Reason.TOPIC, Reason.PROPERTIES, Reason.LENGTHS)


def _is_good(file: MappedFile, position: int, end: int) -> bool:
    """Whether a good message, a blank frame or the empty rest of the file starts at `position`."""
    if position >= end:
        return position == end
    head = file.read(position, FRAME_HEADS[3].size)
    size = int.from_bytes(head[:4], "big", signed=True)
    window = file.read(position, size) if len(head) < size <= min(end - position, MAXIMUM_FRAME_SIZE) else head
    try:
        _record(file, window, 0, end - position, position, True)
    except FrameDamage:
        return False
    return True


def next_good(file: MappedFile, position: int, end: int) -> int | None:
    """Position of the next message or blank frame of the file at or behind `position`, None if there is none.

    A candidate is a magic code; it counts if the whole frame passes law 3, its own physical offset included.
    """
    overlap = _MAGIC_OFFSET + 4 - 1
    while position < end:
        window = file.read(position, _WINDOW)
        if not window:
            return None
        for candidate in sorted(_magics(window)):
            if _is_good(file, position + candidate, end):
                return position + candidate
        if len(window) <= overlap:
            return None
        position += len(window) - overlap
    return None


def _magics(window: bytes) -> Iterator[int]:
    """Where in `window` frames would start by their magic codes."""
    for magic in _MAGIC_BYTES:
        found = window.find(magic, _MAGIC_OFFSET)
        while found >= 0:
            yield found - _MAGIC_OFFSET
            found = window.find(magic, found + 1)
