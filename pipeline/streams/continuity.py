"""Whether a log still is the one that a stream has read, and where to go on if it is not."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.pipeline.streams.history import Mark, Position, mark_before, stands
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.survey.tail import end_of_messages


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
