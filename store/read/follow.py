"""Follow a log that another process writes to: each message once, over rolls, cleaning and restarts of its broker.

Nothing is asked of the broker, and nothing but the log is looked at: from the place that was reached on, frame by
frame. What may still be half written is left for later.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from rmqctl.formats.errors import NotAStoreError, RemovedError
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.store.files.background import sleep
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import exists, is_directory
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE, FrameSearch, blank_size
from rmqctl.store.log.survey import SETTLES_IN, end_of_messages, may_lack_bytes
from rmqctl.store.log.walk import Blank, Damage, walk
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.query import damage_error
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection

# What was read of a log that grows: enough to see that it was cut back since, and up to where it is the same.

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


INTERVAL = 0.2
"""Seconds between two looks at a log that has nothing new."""
_MOST = 512
# messages before the place where it begins: enough to see that the log was cut back
_REMEMBERED = 32
# for so long, in seconds, a frame may look damaged because its writer is at it
_PATIENCE = 1.0
# and so often what stays damaged is looked at for good messages behind it
_LOOK_BEHIND_EVERY = 5.0


class LogFollower:
    """Reads a log from physical offset `begin` on as it grows. `position` is how far it has come."""

    def __init__(
        self,
        log: MappedFileQueue,
        criteria: Criteria,
        begin: int,
        events: Events,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reported is damage with good messages behind it, and what may be meant; a note says
        where messages were removed before they were read, where the log is not what was read of it any more,
        or where it has no files."""
        self.position = begin
        self._log = log
        self._criteria = criteria
        self._events = events
        self._clock = clock
        self._marks = ReadMarks()
        self._stuck_at = -1
        self._stuck_since = 0.0
        self._next_look = 0.0
        self._has_told_waiting = False

    def new(self, pause: Callable[[float], None] = sleep) -> list[StoredMessage] | None:
        """The next messages that are meant, perhaps none of those that were read; None where nothing new is there.

        NotAStoreError where all of the log's directories are gone; UnreadableError.
        """
        # nothing stays open in between: see Descriptors.let_go
        self._log.descriptors.let_go()
        try:
            return self._new(pause)
        except RemovedError:
            return None  # since the directory was listed: the next look knows
        finally:
            self._log.descriptors.let_go()

    def _new(self, pause: Callable[[float], None]) -> list[StoredMessage] | None:
        log = self._log
        self._look_again()
        # where every file is gone the log still has those that it knew
        if not log.files or not exists(log.files[-1].path):
            self._tell_once_that_it_waits()
            return None
        self._has_told_waiting = False
        begin = self.position
        self._find_place()
        read = self._whole_frames(pause)
        for message in read:
            self._marks.add(log, message)
        if self.position == begin:
            return None
        found = [message for message in read if self._criteria.matches(message)]
        for error in self._criteria.unsure_errors():
            self._events.damaged(error)
        return found

    def remember(self, messages: Iterable[StoredMessage]) -> None:
        """Messages before the position that were read already."""
        for message in messages:
            self._marks.add(self._log, message)

    def _look_again(self) -> None:
        log = self._log
        if not any(is_directory(directory) for directory in log.directories) and log.files:
            raise NotAStoreError(
                "the commitlog is gone", file=log.directories[0], hint="was the store moved or removed?"
            )
        if log.files:
            log.look_again()
        else:
            log.problems.clear()
            log.load()  # nobody knows the size of the files before there is one

    def _tell_once_that_it_waits(self) -> None:
        """A log without files was lost, or is not begun: the caller has to know."""
        if self._has_told_waiting:
            return
        self._has_told_waiting = True
        directory = self._log.directories[0]
        lacks = "has no file" if is_directory(directory) else "is not there"
        begins = "until a broker begins a log there"
        if self.position > 0:
            begins = f"until there are files again; it was read up to {self.position}"
        self._events.noted(f"the commitlog {directory} {lacks}: waiting {begins}")

    def _find_place(self) -> None:
        """Go on where the log begins if it begins later by now, and where it parted from what was read if it did."""
        log = self._log
        minimum = max(log.min_offset, 0)
        self._marks.forget_before(minimum)
        parted = self._marks.parted_at(log)
        if parted is not None:
            place = max(parted, minimum)
            what = f"it is the same up to {parted}" if parted >= 0 else "nothing of it is as it was: it is another log"
            self._events.noted(
                f"the log was read up to {self.position} and was cut back since: {what}; going on at {place}"
            )
            self.position = place
        elif self.position < minimum:
            self._events.noted(f"offsets {self.position} to {minimum} were removed before they were read")
            self.position = minimum

    def _whole_frames(self, pause: Callable[[float], None]) -> list[StoredMessage]:
        """The messages from the position on, without a last one that may be half written."""
        read: list[StoredMessage] = []
        while len(read) < _MOST:
            record = self._record()
            if record is None:
                break
            if isinstance(record, StoredMessage):
                read.append(record)
            self.position = record.end
        if len(read) == _MOST or not read or read[-1].end < self.position:
            return read
        # no checksum covers the head, topic and properties of most frames
        last = read[-1]
        before = self._log.read(last.physical_offset, last.total_size)
        pause(SETTLES_IN)
        after = self._log.read(last.physical_offset, last.total_size)
        if after and (before != after or self._may_still_grow(last)):
            self.position = read.pop().physical_offset
        return read

    def _may_still_grow(self, message: StoredMessage) -> bool:
        return may_lack_bytes(message) and not self._is_stuck(message.physical_offset)

    def _record(self) -> StoredMessage | Blank | None:
        """Return the record at the position, or the next good one after damage; None before one is complete."""
        log, position = self._log, self.position
        file = log.find(position)
        if file is not None and file.holds_entries:
            position += FrameSearch(file, file.size).entry_head(position - file.start_offset)
        head = log.read(position, 8)
        if not any(head):
            return self._behind(position) if self._is_followed(position) else None
        if file is None:
            return None
        size = int.from_bytes(head[:4], "big", signed=True)
        left = file.end_offset - position
        if blank_size(head, 0, file.holds_entries) == left:
            return Blank(position, left)
        try:
            frame = log.read(position, size) if 0 < size <= min(left, MAXIMUM_FRAME_SIZE) else head
            return decode_message(frame, 0, left, position)
        except FrameDamage:
            return self._behind(position) if self._is_stuck(position) else None

    def _is_followed(self, position: int) -> bool:
        """Whether a later file has messages, so that nothing will come here any more."""
        later = (file for file in reversed(self._log.files) if file.start_offset > position)
        return any(any(file.read(0, 8)) for file in later)

    def _is_stuck(self, position: int) -> bool:
        """Whether it has looked so for a while now."""
        now = self._clock()
        if self._stuck_at != position:
            self._stuck_at, self._stuck_since, self._next_look = position, now, now + _PATIENCE
        return now - self._stuck_since >= _PATIENCE

    def _behind(self, position: int) -> StoredMessage | Blank | None:
        """Return the first good record after damage or zeros; damage before it is reported once there is one."""
        now = self._clock()
        if self._stuck_at == position and now < self._next_look:
            return None
        self._stuck_at, self._next_look = position, now + _LOOK_BEHIND_EVERY
        damages: list[Damage] = []
        for record in walk(self._log, position):
            if isinstance(record, StoredMessage | Blank):
                for damage in damages:
                    self._events.damaged(damage_error(damage))
                return record
            if isinstance(record, Damage):
                damages.append(record)
        return None


def follow(
    reader: StoreReader, criteria: Criteria, begin: int | None, pause: Callable[[float], None] = sleep
) -> Generator[list[StoredMessage], None, None]:
    """Lists of messages as they come, for ever, from physical offset `begin` on; None: from the end that the log has
    now. Nothing but `pause` waits. Errors as of LogFollower.new."""
    log = reader.files.log
    if begin is None:
        begin = end_of_messages(log, max(log.min_offset, 0))
    log.descriptors.on_removed = None  # the follower tells it where that matters: before it was read
    follower = LogFollower(log, criteria, begin, reader.events)
    before = Selection(end=begin)
    follower.remember(reader.telling(UNHEARD).last_messages(before, _REMEMBERED) if begin else [])
    while True:
        messages = follower.new(pause)
        if messages:
            yield messages
        elif messages is None:
            pause(INTERVAL)
