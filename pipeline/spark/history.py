"""Positions of streams, where those of a time are, and which history of the log each belongs to: marks of frames before
it that a log must still have to be the same.

A store has no name of its own, and a log that was cut back grows over the same offsets again. What two histories never
share is what was written where they differ: a frame holds its times, its queue offset and its checksum. So a position
keeps the frame before it, and further ones at distances that grow by half from one to the next: the newest tells
whether anything changed, in one small read, and the older ones up to where.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC, FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import FrameDamage, FrameHead, decode_message
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.survey import end_of_messages
from rmqctl.store.read.frames import store_time_at

_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2))
_MAGIC_AT = FRAME_HEADS[0].offset("magic_code")
_HEAD = FRAME_HEADS[0].size
_DIGEST_SIZE = 8
_FIRST_WINDOW = 64 * 1024
# frames are rarely larger than the 4 MiB of the broker's maxMessageSize; damage may be
_LARGEST_WINDOW = 32 * 1024 * 1024
_LARGEST_SAMPLE = 4 * 1024 * 1024
_NEAREST = 4096
_GROWTH = 1.5
# how far from a distance a mark may be to serve for it: neighbours reach as far as one another
_REACH = _GROWTH**0.5

_OFFSET, _BEGIN, _HISTORY, _NOTICE = "physical_offset", "begin", "history", "notice"


class Mark(NamedTuple):
    """The `length` bytes of a frame at physical offset `begin`, and their digest (BLAKE2b, 8 bytes, in hex)."""

    begin: int
    length: int
    digest: str

    @property
    def end(self) -> int:
        """Physical offset behind the frame."""
        return self.begin + self.length


def stands(log: MappedFileQueue, mark: Mark) -> bool:
    """Whether the log has the frame of the mark, byte by byte. Reads that frame."""
    return _digest(log.read(mark.begin, mark.length)) == mark.digest


def mark_before(log: MappedFileQueue, position: int, final: int, most: int = _LARGEST_WINDOW) -> Mark | None:
    """The last good frame that begins before `position` and ends at or before `final`, behind which frames may still be
    changing. None without one in the last `most` bytes of either of the two files there."""
    before = [file for file in log.files if file.start_offset < position]
    for file in before[:-3:-1]:
        found = _last_in(file, position, final, most)
        if found is not None:
            return found
    return None


def _last_in(file: MappedFile, position: int, final: int, most: int) -> Mark | None:
    stop = min(position, file.end_offset) - file.start_offset
    window = min(_FIRST_WINDOW, most)
    looked = stop
    while True:
        start = max(0, stop - window)
        data = file.read(start, looked - start + _MAGIC_AT + 4)
        for at in _places(data, looked - start):
            found = _mark_at(file, start + at, final)
            if found is not None:
                return found
        if not start or window >= most:
            return None
        looked, window = start, window * 8


def _places(data: bytes, end: int) -> Iterator[int]:
    """Where heads of messages may begin in [0, end) of the data, the last one first."""
    while True:
        at = max(data.rfind(magic, 0, end + _MAGIC_AT + 3) for magic in _MAGICS) - _MAGIC_AT
        if at < 0:
            return
        yield at
        end = at


def _mark_at(file: MappedFile, place: int, final: int) -> Mark | None:
    size = int.from_bytes(file.read(place, 4), "big", signed=True)
    begin = file.start_offset + place
    if not 0 < size <= min(final, file.end_offset) - begin:
        return None
    frame = file.read(place, size)
    try:
        decode_message(frame, 0, len(frame), begin)
    except FrameDamage:
        return None
    return Mark(begin, size, _digest(frame))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE).hexdigest()


def marks_for(log: MappedFileQueue, position: int, final: int, known: Sequence[Mark] = ()) -> tuple[Mark, ...]:
    """Marks for `position`, the last one first, from the log as it is and from those `known`, which stand in it.

    `final` as in `mark_before`. A known mark serves as long as it is about as far away as one should be, so
    that few are new when a position moves on by little; each new one takes a read of 64 KiB, or more between large
    messages.
    """
    newest = mark_before(log, position, final)
    found = set() if newest is None else {newest}
    minimum = max(log.min_offset, 0)
    distance = float(_NEAREST)
    while distance < position - minimum:
        near = [mark for mark in known if distance / _REACH < position - mark.begin <= distance * _REACH]
        one = near[0] if near else mark_before(log, position - int(distance), final, _window(distance))
        if one is not None:
            found.add(one)
        distance *= _GROWTH
    return tuple(sorted(found, reverse=True))


def _window(distance: float) -> int:
    return min(max(_FIRST_WINDOW, int(distance)), _LARGEST_SAMPLE)


def behind_blank(log: MappedFileQueue, position: int, final: int) -> int:
    """Return the end of the blank frame that contains `position`, else `position`: files whose messages were all read
    may be removed, so no position may stay in them."""
    mark = mark_before(log, position, final)
    file = log.find(position)
    if mark is None or file is None or mark.end >= position:
        return position
    head = log.read(mark.end, BLANK_FRAME.size)
    if len(head) < BLANK_FRAME.size:
        return position
    size, magic = BLANK_FRAME.unpack_from(head, 0)[:2]
    return file.end_offset if magic == BLANK_MAGIC and mark.end + size == file.end_offset else position


def marks_as_json(marks: Iterable[Mark]) -> dict[str, str]:
    """Marks as an offset of Spark's has them: `{"BEGIN": "LENGTH:DIGEST"}`."""
    return {str(mark.begin): f"{mark.length}:{mark.digest}" for mark in marks}


def marks_from_json(content: object) -> tuple[Mark, ...]:
    """The same back, the last one first; UsageError for anything else."""
    if not isinstance(content, Mapping):
        raise UsageError(f"the history of an offset is {content!r}, not marks of frames")
    found = []
    for begin, text in content.items():
        length, _, digest = str(text).partition(":")
        if not (str(begin).isdigit() and length.isdigit() and digest):
            raise UsageError(f"the history of an offset has a mark {begin!r}: {text!r}")
        found.append(Mark(int(begin), int(length), digest))
    return tuple(sorted(found, reverse=True))


class Position(NamedTuple):
    """All messages that begin before `physical_offset` have been read.

    `marks`: frames before it, the last one first (see `Mark`); None in an offset of older checkpoints, which say
    nothing of them. Where the micro-batch up to this position did not begin where the one before had ended, `begin` is
    where it did, and `notice` says why.
    """

    physical_offset: int
    marks: tuple[Mark, ...] | None = ()
    begin: int | None = None
    notice: str | None = None

    @property
    def next_offset(self) -> int:
        """Where reading goes on. After the last message and not at the position, if a blank frame or damage is between:
        a broker that starts may put messages there."""
        return min(self.physical_offset, self.marks[0].end) if self.marks else self.physical_offset

    def as_json(self) -> dict[str, Any]:
        """What Spark is given."""
        content: dict[str, Any] = {_OFFSET: self.physical_offset}
        if self.begin is not None:
            content[_BEGIN] = self.begin
        if self.notice is not None:
            content[_NOTICE] = self.notice
        if self.marks is not None:
            content[_HISTORY] = marks_as_json(self.marks)
        return content


def position_from_json(content: Mapping[str, Any]) -> Position:
    """What Spark gives back; UsageError where it is of another source."""
    offset, begin = content.get(_OFFSET), content.get(_BEGIN)
    if type(offset) is not int or not (begin is None or type(begin) is int):
        raise UsageError(
            f"the checkpoint holds {dict(content)!r}, which is no position in a commitlog",
            hint="give the query a checkpoint of its own",
        )
    marks = marks_from_json(content[_HISTORY]) if _HISTORY in content else None
    return Position(offset, marks, begin, content.get(_NOTICE))


def offset_since(log: MappedFileQueue, time: int, end: int) -> int:
    """Return the physical offset after the last message before `end` that was stored before `time`, in ms; else the
    log's beginning. Halves the log again and again, so it goes by store times that rise, as they do unless a clock is
    set back."""
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


def offset_behind(log: MappedFileQueue, begin: int, count: int, end: int) -> tuple[int, int]:
    """Physical offset behind `count` messages from `begin` on, at most `end`, and how many of them there are. Goes by
    the heads of frames and reads 64 KiB at a time, of larger messages no more. Where no frame follows another, up to
    the end of that file."""
    wanted = count
    before = mark_before(log, begin, end)
    position = begin if before is None else max(begin, before.end)
    data, data_at = b"", position
    while position < end and count > 0:
        file = log.find(position)
        if file is None:
            following = (one.start_offset for one in log.files if one.start_offset > position)
            position = next(following, end)
            continue
        if position + _HEAD > data_at + len(data):
            data, data_at = log.read(position, _FIRST_WINDOW), position
        size, is_message = _frame(data, position - data_at, position)
        count -= is_message
        position = position + size if size else file.end_offset
    return min(position, end), wanted - count


def _frame(data: bytes, at: int, physical_offset: int) -> tuple[int, bool]:
    """Return the bytes of the frame whose head is byte `at` of the data, and whether it is a message; 0 if invalid."""
    if len(data) - at >= _HEAD and data[at + _MAGIC_AT : at + _MAGIC_AT + 4] in _MAGICS:
        # size and place stand where they do in every head
        head = FrameHead._make(FRAME_HEADS[0].unpack_from(data, at))
        if head.physical_offset == physical_offset and head.total_size > 0:
            return head.total_size, True
    if len(data) - at >= BLANK_FRAME.size:
        size, magic = BLANK_FRAME.unpack_from(data, at)
        if magic == BLANK_MAGIC and size > 0:
            return size, False
    return 0, False


# Whether a log still is the one that a stream has read, and where to go on if it is not.


class StreamLoss(NamedTuple):
    """A log that is not what a query has read, with something of it missing.

    `is_removed`: its beginning was removed before it was read; else it was cut back or replaced. `resume`: the last
    physical offset up to which it certainly is what the query read, or where it begins now. `reason`: a sentence.
    """

    is_removed: bool
    resume: int
    reason: str


def loss_at(log: MappedFileQueue, position: Position) -> StreamLoss | None:
    """What is missing for a query that goes on at `position`; None if nothing is.

    Reads one frame as long as there is a mark whose frame is still in the log. That older files were removed, or new
    ones begun, is no change of history: marks in removed files say nothing any more.
    """
    offset = position.physical_offset
    if not log.files:
        gone = StreamLoss(False, 0, f"the log had been read up to {offset} and has no file now")
        return gone if offset else None
    minimum = max(log.min_offset, 0)
    marks = [mark for mark in position.marks or () if mark.begin >= minimum]
    if marks:
        return None if stands(log, marks[0]) else _parted(log, position, marks)
    if offset < minimum:
        return removed(offset, minimum)
    if offset == minimum:
        return None
    end = end_of_messages(log, minimum)
    if end < offset:
        return StreamLoss(False, minimum, _shorter(offset, end))
    if position.marks == () and mark_before(log, offset, end) is not None:
        # a position has no marks only where nothing stood before it
        return StreamLoss(False, minimum, f"the log began at {offset} and begins at {minimum} now: it is another one")
    return None


def removed(begin: int, end: int) -> StreamLoss:
    """The loss of what stood from physical offset `begin` to `end`."""
    return StreamLoss(True, end, f"messages from {begin} to {end} were removed before the stream had read them")


def _shorter(offset: int, end: int) -> str:
    return f"the log had been read up to {offset}, but ends at {end} now: it was cut back, or is another one"


def _parted(log: MappedFileQueue, position: Position, marks: list[Mark]) -> StreamLoss:
    """The log has not got the frame of the first of `marks` any more."""
    offset, minimum = position.physical_offset, max(log.min_offset, 0)
    common = next((mark for mark in marks[1:] if stands(log, mark)), None)
    end = end_of_messages(log, minimum)
    if common is None:
        return StreamLoss(
            False,
            minimum,
            f"the log had been read up to {offset}, but nothing of that is where it was: it is another log, or was cut "
            f"back to before all that is remembered. It holds {minimum} to {end} now, of which nothing was read",
        )
    return StreamLoss(
        False,
        common.end,
        f"the log had been read up to {offset} and was cut back since: it is the same up to {common.end} at least, "
        f"but not at {marks[0].begin} any more, and ends at {end} now. What the query read behind the cut is gone, and "
        "what was written there since was not read",
    )


# Where a query over several stores stands: a position for each, by the path under which it was read.

ONLY = ""
"""The name of the position of a query over one store, independent of the path."""

_STORES = "stores"


def positions_as_json(positions: Mapping[str, Position]) -> dict[str, Any]:
    """What Spark is given: the position of the only store as it is, those of several below `stores`."""
    if positions.keys() == {ONLY}:
        return positions[ONLY].as_json()
    return {_STORES: {name: position.as_json() for name, position in positions.items()}}


def positions_from_json(content: Mapping[str, Any]) -> dict[str, Position]:
    """The same back; UsageError where it is of another source."""
    stores = content.get(_STORES)
    if stores is None:
        return {ONLY: position_from_json(content)}
    if not isinstance(stores, Mapping) or not all(isinstance(one, Mapping) for one in stores.values()):
        raise UsageError(
            f"the checkpoint holds {dict(content)!r}, which are no positions in stores",
            hint="give the query a checkpoint of its own",
        )
    return {str(name): position_from_json(one) for name, one in stores.items()}
