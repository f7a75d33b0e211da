"""Find the nearest valid messages before and after a place of the commitlog, with bounded reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.resync import nearest_sure
from rmqctl.store.log.search import FrameSearch
from rmqctl.store.log.walk import walk_file

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
