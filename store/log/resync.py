"""Where in a commitlog file a walk may begin: a place that the walk from the file's start is certain to pass.

A guess is not enough: a body may hold bytes that look like a message standing exactly there. A good message is a record
of the walk unless another record overlaps it. Each such record, a good frame or a damaged one with a trusted size, has
a head with a magic code and its own physical offset, or is a blank frame. So it is enough that no such head within
`LOOK_BACK` bytes claims the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.layouts import BLANK_MAGIC, FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import MINIMUM_FRAME_SIZE, FrameDamage, StoredMessage
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE, FrameSearch
from rmqctl.store.log.walk import walk_file

LOOK_BACK = 6 * 1024 * 1024
"""Frames up to this size, half as large again as the broker's usual maximum, never hide a decoy; see `splits` for
larger ones."""

_FIRST_SPAN = 64 * 1024
_CACHED = 256 * 1024
_MAGIC_AT = FRAME_HEADS[0].offset("magic_code")
_OFFSET_AT = FRAME_HEADS[0].offset("physical_offset")
_HEAD = _OFFSET_AT + 8
# both message magics begin with the same byte
_MESSAGE_BYTE, _BLANK_BYTE = MESSAGE_MAGIC_V1 >> 24, BLANK_MAGIC >> 24

_Places = NDArray[np.int64]


def sure_start(search: FrameSearch, start_offset: int, position: int, end: int) -> int:
    """The nearest certain record of a file at or before `position`, else 0, where every file's walk begins.

    Positions count from the file's start, which is at physical offset `start_offset`; [0, `end`) of it counts.
    UnreadableError for a file that shrinks.
    """
    return nearest_sure(search, start_offset, position, end, 0) or 0


def nearest_sure(search: FrameSearch, start_offset: int, position: int, end: int, floor: int) -> int | None:
    """Return the nearest certain record of a file in [`floor`, `position`]; None where it has none or begins the file.

    All else as `sure_start`.
    """
    span = _FIRST_SPAN
    while position - floor > span:
        first = position - span
        begin = max(0, first - LOOK_BACK)
        window = search.read(begin, min(position + _HEAD, end) - begin)
        for place in _unclaimed(window, begin, start_offset, end)[::-1].tolist():
            if place < first:
                break
            if place <= position and _is_good(search, place):
                return int(place)
        span *= 8
    return None


def _is_good(search: FrameSearch, place: int) -> bool:
    try:
        search.check(place)
    except FrameDamage:
        return False
    return True


def _unclaimed(window: bytes, begin: int, start_offset: int, end: int) -> _Places:
    """Return heads of messages in the window, which begins at `begin` of the file, that no other head of it
    overlaps."""
    data = np.frombuffer(window, np.uint8)
    places = _possible(data[_MAGIC_AT : len(data) - 3])
    magics = _field(data, places + _MAGIC_AT, ">u4")
    is_message = (magics == MESSAGE_MAGIC_V1) | (magics == MESSAGE_MAGIC_V2)
    known = is_message | (magics == BLANK_MAGIC)
    places, is_message = places[known], is_message[known]
    sizes = _field(data, places, ">i4").astype(np.int64)
    left = end - begin - places
    # a head that is cut off by the end of the window stands too late to be asked for or to claim anything
    whole = places + _HEAD <= len(data)
    stored = _field(data, np.where(whole, places + _OFFSET_AT, 0), ">i8") if len(data) >= 8 else places
    is_here = whole & (stored == start_offset + begin + places)
    possible = (sizes >= MINIMUM_FRAME_SIZE) & (sizes <= np.minimum(left, MAXIMUM_FRAME_SIZE))
    # the walk believes the size of a head too short for its IPv6 hosts before it looks at the physical offset
    is_short = possible & (sizes < FRAME_HEADS[3].size)
    claims = np.where(is_message, possible & (is_here | is_short), sizes == left)
    # no claim counts for more than is looked back, so that a place is judged alike wherever the question comes from
    reached = np.maximum.accumulate(np.where(claims, places + np.minimum(sizes, LOOK_BACK), 0))
    covered = np.zeros(len(places), np.bool_)
    covered[1:] = reached[:-1] > places[1:]
    found: _Places = places[is_message & is_here & possible & ~covered] + begin
    return found


def _possible(data: NDArray[np.uint8]) -> _Places:
    """Where bytes are that a magic code begins with; looked for in pieces that stay in the processor's cache."""
    found = [
        np.flatnonzero((piece == _MESSAGE_BYTE) | (piece == _BLANK_BYTE)) + begin
        for begin in range(0, len(data), _CACHED)
        for piece in (data[begin : begin + _CACHED],)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _field(data: NDArray[np.uint8], places: _Places, kind: str) -> NDArray[Any]:
    """The numbers of a kind that stand at these places."""
    width = np.dtype(kind).itemsize
    gathered = data[places[:, None] + np.arange(width)]
    return np.ascontiguousarray(gathered).view(kind).reshape(-1)


# Find the nearest valid messages before and after a place of the commitlog, with bounded reading
REACH = 64 * 1024 * 1024
"""Bytes of the log that are searched in each direction."""


class Neighbours(NamedTuple):
    """The valid messages around a physical offset; None where [searched_from, searched_to) holds none."""

    before: StoredMessage | None
    after: StoredMessage | None
    searched_from: int
    searched_to: int


def neighbours(log: MappedFileQueue, physical_offset: int, reach: int = REACH) -> Neighbours:
    """Return the last valid message that starts before `physical_offset`, and the first that starts after it.

    At most `reach` bytes of the log are searched on either side, without the zeros at a file's end.
    UnreadableError where a file cannot be read.
    """
    before, searched_from = _before(log, physical_offset, reach)
    after, searched_to = _after(log, physical_offset, before, reach)
    return Neighbours(before, after, searched_from, searched_to)


def _before(log: MappedFileQueue, physical_offset: int, reach: int) -> tuple[StoredMessage | None, int]:
    searched_from, left = physical_offset, reach
    for file in reversed(log.files):
        if file.start_offset >= physical_offset or left <= 0:
            continue
        with file.hold() as held:
            if not held:
                continue
            end = min(file.committed_position, file.size)
            search = FrameSearch(file, end)
            stop = min(physical_offset - file.start_offset, search.nonzero_end)
            floor = max(0, stop - left)
            sure = nearest_sure(search, file.start_offset, max(stop - 1, 0), end, floor)
            begin = floor if sure is None else sure
            last = None
            for message in _messages(file, search, begin, end):
                if message.physical_offset >= physical_offset:
                    break
                last = message
            searched_from = file.start_offset + begin
            if last is not None:
                return last, searched_from
            left -= stop - floor
    return None, searched_from


def _after(
    log: MappedFileQueue, physical_offset: int, before: StoredMessage | None, reach: int
) -> tuple[StoredMessage | None, int]:
    """Go on behind the message before, as what looks like a message inside a frame is not one."""
    start = physical_offset + 1
    if before is not None and before.end > physical_offset:
        start = before.end
    searched_to = physical_offset
    left = reach
    for file in log.files:
        if file.end_offset <= start or left <= 0:
            continue
        with file.hold() as held:
            if not held:
                continue
            begin = max(0, start - file.start_offset)
            end = min(file.committed_position, file.size, begin + left)
            for message in _messages(file, FrameSearch(file, end), begin, end):
                return message, message.end
            searched_to = file.start_offset + end
            left -= end - begin
    return None, searched_to


def _messages(file: MappedFile, search: FrameSearch, begin: int, end: int) -> Iterator[StoredMessage]:
    for record in walk_file(file, search, begin, end, 0, None):
        if isinstance(record, StoredMessage):
            yield record
