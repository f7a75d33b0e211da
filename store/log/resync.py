"""Where in a commitlog file a walk may begin: a place that the walk from the file's start is certain to pass.

A guess is not enough: a body may hold bytes that look like a message standing exactly there. A good message is a
record of the walk unless another record reaches over it, and whatever could do that, a good frame or a damaged one of
which the size is believed, has a head with a magic code and its own physical offset, or is a blank frame. So it is
enough that no such head within `LOOK_BACK` bytes claims the place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.layouts import BLANK_MAGIC, FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import MINIMUM_FRAME_SIZE, FrameDamage
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE, FrameSearch

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
    """Heads of messages in the window, which stands at `begin` of the file, that no other head of it reaches over."""
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
