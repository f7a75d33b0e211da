"""What was read of a log that grows: enough to see that it was cut back since, and up to where it is the same."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue

# what two histories never share is the head of a frame: it has its place, its times, its queue offset and a checksum
_HEAD = FRAME_HEADS[0].size
# all of the newest are remembered, of older ones each so many-th, and of these as many at most
_NEWEST = 1024
_STEP = 256
_MOST_OLDER = 2048
# as many are looked at each time: a shorter message written over a longer one leaves those behind it as they were
_LOOKED_AT = 32


class ReadMark(NamedTuple):
    """A message that was read: the first bytes of its frame, and where that ends."""

    begin: int
    end: int
    head: bytes


class ReadMarks:
    """Marks of the messages that were read, in their order."""

    def __init__(self) -> None:
        self._newest: deque[ReadMark] = deque()
        self._older: list[ReadMark] = []
        self._count = 0

    def add(self, log: MappedFileQueue, message: StoredMessage) -> None:
        """Remember a message that was read just now."""
        head = log.read(message.physical_offset, _HEAD)
        self._newest.append(ReadMark(message.physical_offset, message.end, head))
        if len(self._newest) > _NEWEST:
            mark = self._newest.popleft()
            self._count += 1
            if self._count % _STEP == 0:
                self._older.append(mark)
                if len(self._older) > _MOST_OLDER:
                    del self._older[::2]

    def forget_before(self, offset: int) -> None:
        """What was removed from the beginning of the log says nothing any more."""
        while self._newest and self._newest[0].begin < offset:
            self._newest.popleft()
        if self._older and self._older[0].begin < offset:
            self._older = [mark for mark in self._older if mark.begin >= offset]

    def parted_at(self, log: MappedFileQueue) -> int | None:
        """None as long as the log still has what was read; else the physical offset up to which it is the same as far
        as is remembered, -1 where nothing of it is left. What was read behind that is forgotten."""
        if not self._newest and not self._older:
            return None
        marks = [*self._older, *self._newest]
        if all(_stands(log, mark) for mark in marks[-_LOOKED_AT:]):
            return None
        count = next(number for number, mark in enumerate(marks) if not _stands(log, mark))
        older = len(self._older)
        self._older, self._newest = marks[: min(older, count)], deque(marks[older:count])
        return marks[count - 1].end if count else -1


def _stands(log: MappedFileQueue, mark: ReadMark) -> bool:
    """Whether the log has it still; what a cleaner removed says nothing against that."""
    return log.read(mark.begin, _HEAD) == mark.head or log.was_removed(mark.begin)
