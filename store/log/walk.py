"""THE walker of the commitlog: it yields every message, blank frame, empty span and damaged span, in order.

Recovery, rebuild, `cat`, `dump` and the checks are policies over this one walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_int, parse_long, parse_short
from rmqctl.formats.errors import RmqctlError, UnreadableError, told
from rmqctl.formats.layouts import BLANK_FRAME, FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import MINIMUM_FRAME_SIZE, FrameDamage, Reason, StoredMessage, decode_message
from rmqctl.store.files.layout import file_name
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE, FrameSearch, blank_size, entry_head_size
from rmqctl.store.log.short_hosts import short_host_detail
from rmqctl.store.options import Events, say
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC

# Recognise what a broker with writeWithoutMmap=true leaves after the end of the log: no damage, and no message.
#
# It writes messages from buffers that it uses again, rounded up to whole pages. So the rest of the last page holds
# pieces of earlier messages, after a clean stop too (DefaultMappedFile#appendMessagesInner, RocketMQ 5.4 and later).

_PAGE = 4096
_PIECE = 12
_MOST_PIECES = 16
_SEARCHED = 64 * 1024 * 1024


def is_left_over(file: MappedFile, begin: int, stop: int) -> bool:
    """Return whether the bytes [begin, stop) of `file`, after which only zeros follow, are such pieces.

    They end with the page in which the log ends, do not begin like a message of this place, and at least half of some
    samples stand in earlier messages. Whether `begin` is the end of the log is for the caller to know.
    """
    if begin % _PAGE == 0 or not begin < stop <= -(-begin // _PAGE) * _PAGE:
        return False
    data = file.read(begin, stop - begin)
    if not any(data[:_PIECE]) or _begins_like_a_message(data, file.start_offset + begin):
        return False
    places = range(0, max(len(data) - _PIECE, 0) + 1, max(_PIECE, len(data) // _MOST_PIECES))
    pieces = [data[at : at + _PIECE] for at in places]
    missing = len(pieces) // 2
    for earlier in _before(file, begin):
        pieces = [piece for piece in pieces if piece not in earlier]
        if len(pieces) <= missing:
            return True
    return False


def _begins_like_a_message(data: bytes, physical_offset: int) -> bool:
    if len(data) < FRAME_HEADS[0].size:
        return False
    fields = FRAME_HEADS[0].unpack_from(data, 0)
    return fields[1] in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) and fields[6] == physical_offset


def _before(file: MappedFile, begin: int) -> Iterator[bytes]:
    """Yield the bytes before a place of the log: of its file, then of the file before."""
    length = min(begin, _SEARCHED)
    yield file.read(begin - length, length)
    previous = file.path.with_name(file_name(file.start_offset - file.size)) if file.start_offset >= file.size else None
    if previous is not None and length < _SEARCHED:
        rest = min(file.size, _SEARCHED - length)
        try:
            yield file.descriptors.read(previous, file.size - rest, rest)
        except RmqctlError:
            return


__all__ = ["MAXIMUM_FRAME_SIZE", "Blank", "Damage", "Empty", "Progress", "Record", "walk", "walk_file", "walk_files"]

_WINDOW = 4 * 1024 * 1024


class Blank(NamedTuple):
    """The frame that fills a file to its end."""

    physical_offset: int
    size: int

    @property
    def end(self) -> int:
        """Physical offset behind the frame."""
        return self.physical_offset + self.size


class Empty(NamedTuple):
    """Zeros up to the end of a file: never written, or cleared. They may begin with leftovers (left_over.py)."""

    physical_offset: int
    end: int


class Damage(NamedTuple):
    """Bytes [physical_offset, end) that are no good record. `detail` is for people; store text in it is printable."""

    physical_offset: int
    end: int
    reason: Reason
    detail: str
    file: str

    def __reduce__(self) -> tuple[type[Damage], tuple[int, int, Reason, str, str]]:
        """For another process, which knows a store on a server by its address only."""
        return Damage, (self.physical_offset, self.end, self.reason, self.detail, told(self.file))


class Unproved(Damage):
    """A whole message without a CRC that the configuration asks for."""


Record = StoredMessage | Blank | Empty | Damage
Progress = Callable[[int], None]
_Found = TypeVar("_Found")


def walk(
    log: MappedFileQueue, begin: int = 0, *, crc_from: int = 0, progress: Progress | None = None
) -> Iterator[Record]:
    """All records from physical offset `begin` (a frame's start, or any offset to find the next frame from) on.

    Together they cover every byte up to the end of the last file, once. Bodies are checked against their CRC from
    offset `crc_from` on. `progress` gets the bytes passed, without zeros at the end of a file. After damage the walk
    goes on at the next place where a frame passes every check of law 3 including its CRC. UnreadableError for a file
    that shrinks while it is read.
    """

    def one_file(file: MappedFile, begin: int, end: int) -> Iterator[Record]:
        return walk_file(file, FrameSearch(file, end), begin, end, crc_from - file.start_offset, progress)

    return walk_files(log, begin, one_file)


def walk_files(
    log: MappedFileQueue, begin: int, one_file: Callable[[MappedFile, int, int], Iterator[_Found]]
) -> Iterator[_Found | Damage]:
    """What `one_file` finds in the files from physical offset `begin` on, and the damage between and behind them.

    `one_file` gets a file, which is held meanwhile, and the bytes [begin, end) of it that count.
    """
    reached: int | None = None
    for file, end in _with_ends(log):
        file_end = max(file.start_offset + log.file_size, file.start_offset + end)
        if file_end <= begin:
            reached = file_end
            continue
        with file.hold() as held:
            gap = file.start_offset if reached is None else max(reached, begin)
            if gap < file.start_offset and not log.begins_behind(gap):
                yield _gap(log, gap, file)
            if not held:
                reached = file_end
                yield from missing_file(log, file, begin, file_end)
                continue
            start = max(0, begin - file.start_offset)
            yield from one_file(file, start, end)
            if end < log.file_size and end == file.size:
                cut = max(file.end_offset, begin)
                yield Damage(cut, file_end, Reason.SHORT_FILE, "the file is cut short", str(file.path))
        reached = file_end


def _gap(log: MappedFileQueue, begin: int, behind: MappedFile) -> Damage:
    """Bytes of the log from `begin` to the file `behind` them, which no file holds. A file of no bytes may stand there:
    it is damaged, not missing."""
    end = behind.start_offset
    if empty := log.empty_between(begin, end):
        return Damage(begin, end, Reason.GAP, "a commitlog file has no bytes", str(empty[0]))
    return Damage(begin, end, Reason.GAP, "a commitlog file is missing", str(behind.path))


def missing_file(log: MappedFileQueue, file: MappedFile, begin: int, end: int) -> Iterator[Damage]:
    """What to say of bytes [begin, end) of the log in a file that could not be held: nothing where the log begins
    behind it by now, which is a cleaner's work; else they are damage."""
    if not log.was_removed(file.start_offset):
        at = max(begin, file.start_offset)
        yield Damage(at, end, Reason.GAP, "a commitlog file is missing", str(file.path))


def _with_ends(log: MappedFileQueue) -> Iterator[tuple[MappedFile, int]]:
    """Yield files with the bytes of each that count: a part that overlaps the next file is there once more."""
    files = log.files
    for number, file in enumerate(files, start=1):
        end = min(file.committed_position, file.size)
        if number < len(files) and files[number].start_offset > file.start_offset:
            end = min(end, files[number].start_offset - file.start_offset)
        yield file, end


def walk_file(
    file: MappedFile,
    search: FrameSearch,
    position: int,
    end: int,
    crc_from: int,
    progress: Progress | None,
    window_size: int | None = None,
) -> Iterator[Record]:
    """Records of the bytes [position, end) of one file; `crc_from` relative to the file.

    `window_size`: bytes to read at once; few for a caller that takes the first record only.
    """
    window_size = window_size or _WINDOW
    record: Record
    window = b""
    window_start = reported = position
    data_end = end
    while position < end:
        at = position - window_start
        if not window or (at + FRAME_HEADS[3].size > len(window) and window_start + len(window) < end):
            if progress is not None:
                progress(position - reported)
                reported = position
            window = search.read(position, min(window_size, end - position))
            window_start, at = position, 0
        head = window[at : at + BLANK_FRAME.size]
        if not any(head) and position < search.nonzero_end and any(search.read(position, len(head))):
            window = b""  # a writer has put a frame here since the window was read
            continue
        size = int.from_bytes(head[:4], "big", signed=True)
        try:
            if file.holds_entries:
                passed = entry_head_size(window, at, end - position, file.start_offset + position)
                if passed:
                    position += passed
                    continue
            is_blank = blank_size(head, 0, file.holds_entries) is not None
            if len(window) - at < size <= min(end - position, MAXIMUM_FRAME_SIZE) and not is_blank:
                # large frames are checked before they are read into memory
                search.check(position, position >= crc_from)
                window = search.read(position, min(max(size, window_size), end - position))
                window_start, at = position, 0
            record = _record(file, search, window, at, end, position, position >= crc_from)
        except FrameDamage as damage:
            record = _damage(file, search, position, end, size, damage)
        yield record
        if isinstance(record, Empty):
            data_end = position
        position = record.end - file.start_offset
    if progress is not None:
        progress(max(0, data_end - reported))


def _record(
    file: MappedFile, search: FrameSearch, window: bytes, at: int, end: int, position: int, check_crc: bool
) -> StoredMessage | Blank | Empty:
    physical_offset = file.start_offset + position
    available = end - position
    if not any(window[at : at + BLANK_FRAME.size]) and position >= search.nonzero_end:
        return Empty(physical_offset, physical_offset + available)
    if available >= BLANK_FRAME.size:
        blank = blank_size(window, at, file.holds_entries)
        if blank is not None:
            if blank != available:
                raise FrameDamage(Reason.BLANK_SIZE, f"a blank frame of {blank} bytes with {available} bytes left")
            return Blank(physical_offset, blank)
        size = int.from_bytes(window[at : at + 4], "big", signed=True)
        if size > MAXIMUM_FRAME_SIZE:
            raise FrameDamage(Reason.SIZE, f"size {size} is beyond any message")
    return decode_message(window, at, available, physical_offset, check_crc)


def _damage(
    file: MappedFile, search: FrameSearch, position: int, end: int, size: int, damage: FrameDamage
) -> Damage | Empty:
    """The damaged span at `position`, up to the next good record of the file or to where only zeros follow; Empty for
    leftovers, which are no damage."""
    start = file.start_offset
    stop = None
    if damage.reason in _SIZE_IS_LIKELY and 0 < size <= end - position and search.is_framed(position + size):
        # the frame itself is framed well: what follows it is more likely right than a decoy inside its body
        stop = position + size
    if stop is None:
        stop = search.next_good(position + 1)
    if stop is None:
        stop = max(search.nonzero_end, position + 1)
        if is_left_over(file, position, stop):
            return Empty(start + position, start + end)
    detail = damage.detail
    if damage.reason is Reason.LENGTHS:
        detail = short_host_detail(search, (position, stop), end, start) or detail
    return Damage(start + position, start + stop, damage.reason, detail, str(file.path))


_SIZE_IS_LIKELY = (
    Reason.BODY_CRC,
    Reason.PROPERTY_CRC,
    Reason.TOPIC,
    Reason.PROPERTIES,
    Reason.LENGTHS,
    Reason.OVERFLOW,
)


# One message at a known place of the log, its checksums aside.
#
# For whoever knows them to be right (a walk has passed the message just now), or wants what a frame with a wrong
# checksum says. Whoever serves messages takes `rmqctl.store.read.frames`, which checks all.


def frame_without_crc(
    log: MappedFileQueue, physical_offset: int, size: int | None = None, available: int = MAXIMUM_FRAME_SIZE
) -> tuple[bytes, StoredMessage]:
    """The bytes of the frame that begins at `physical_offset`, and the message in them; FrameDamage where anything but
    its checksums is wrong.

    `size`: of the frame, None to go by its head. It may have `available` bytes at most.
    """
    if size is None:
        size = int.from_bytes(log.read(physical_offset, 4), "big", signed=True)
    if not MINIMUM_FRAME_SIZE <= size <= min(available, MAXIMUM_FRAME_SIZE):
        raise FrameDamage(Reason.SIZE, f"size {size} is that of no message")
    frame = log.read(physical_offset, size)
    if len(frame) < size:
        raise FrameDamage(Reason.SIZE, f"only {len(frame)} bytes are left of {size}")
    return frame, decode_message(frame, 0, size, physical_offset, check_crc=False)


def message_without_crc(
    log: MappedFileQueue, physical_offset: int, size: int | None = None, available: int = MAXIMUM_FRAME_SIZE
) -> StoredMessage:
    """The message of `frame_without_crc`."""
    return frame_without_crc(log, physical_offset, size, available)[1]


def message_if_any(
    log: MappedFileQueue, physical_offset: int, available: int = MAXIMUM_FRAME_SIZE
) -> StoredMessage | None:
    """The message of `frame_without_crc`; None where none begins."""
    try:
        return message_without_crc(log, physical_offset, None, available)
    except FrameDamage:
        return None


def walked_message(log: MappedFileQueue, physical_offset: int, size: int) -> StoredMessage:
    """A good message that was walked over before, read again; UnreadableError if it is not there any more."""
    try:
        return message_without_crc(log, physical_offset, size)
    except FrameDamage as damage:
        file = log.find(physical_offset)
        raise UnreadableError(
            f"has changed while it was read: {damage}",
            file=file.path if file is not None else None,
            physical_offset=physical_offset,
            hint="run the command again when nothing writes to the store",
        ) from damage


# Messages whose length of topic or properties overflows its signed field: damage for a broker, readable here.


def overflowed_message(log: MappedFileQueue, damage: Damage) -> StoredMessage | None:
    """Return the message in a damaged span whose lengths hold without their signs, and its CRCs as well; else None."""
    if damage.reason is not Reason.OVERFLOW:
        return None
    size = int.from_bytes(log.read(damage.physical_offset, 4), "big")
    frame = log.read(damage.physical_offset, min(size, MAXIMUM_FRAME_SIZE))
    try:
        return decode_message(frame, 0, len(frame), damage.physical_offset, unsigned=True)
    except FrameDamage:
        return None


def overflowed_at(log: MappedFileQueue, physical_offset: int) -> tuple[StoredMessage, str] | None:
    """Return such a message that begins at an offset, and why no consumer gets it; None without one."""
    record = next(walk(log, physical_offset), None)
    if not isinstance(record, Damage) or record.physical_offset != physical_offset:
        return None
    message = overflowed_message(log, record)
    if message is None:
        return None
    why = f"{record.detail}: it gives the message no queue unit, and ends the log before it when it recovers"
    return message, why


# Good messages at which a broker ends its log, the one place of the rule (CommitLog#checkMessageAndReturnSize):
# a number in their properties does not parse. Recovery of 4.9.8, 5.3.3 and 5.5.0 ends the log before such a message.
# A running broker passes over it without a unit.


_BATCH = names.INNER_NUM.encode()


def unreadable_number(message: StoredMessage, *, knows_batches: bool = True) -> str:
    """Return which number in the properties makes a broker end its log at a good message; empty if none does.

    `knows_batches`: the broker reads inner batches, as 5.x does.
    """
    if message.topic != SCHEDULE_TOPIC and _BATCH not in message.property_bytes:
        return ""
    properties = message.properties()
    level = properties.get(names.DELAY)
    if message.topic == SCHEDULE_TOPIC and level is not None and parse_int(level) is None:
        return f"delay level {level!r} is not a number"
    if knows_batches and names.INNER_NUM in properties and names.INNER_BASE in properties:
        count, base = properties[names.INNER_NUM], properties[names.INNER_BASE]
        if parse_short(count) is None or parse_long(base) is None:
            return f"inner batch of {count!r} at {base!r} is not a number"
    return ""


def refused_span(message: StoredMessage, log: MappedFileQueue) -> Damage | None:
    """Return the message as the damage that it is for a broker; None for one that brokers read."""
    if not unreadable_number(message):
        return None
    file = log.find(message.physical_offset)
    what = "the delay level" if message.topic == SCHEDULE_TOPIC else "the count or the base of the inner batch"
    detail = f"{what} is not a number: a broker ends its log before this message"
    path = str(file.path) if file is not None else str(log.directories[0])
    return Damage(message.physical_offset, message.end, Reason.NUMBER, detail, path)


def as_brokers_read(records: Iterable[Record], log: MappedFileQueue) -> Iterator[Record]:
    """Yield the records of a walk with refused messages as damage."""
    for record in records:
        refused = refused_span(record, log) if isinstance(record, StoredMessage) else None
        yield record if refused is None else refused


# What a cleaner removes from under a reader: found where a walk over the log jumps, and said.

OnRemoved = Callable[[int, int], None]
"""Takes the physical offsets [begin, end) that were removed before they were read."""


class _Span(Protocol):
    """A record of the walk: bytes [physical_offset, end) or [begin, end) of the log."""

    @property
    def end(self) -> int: ...


_Spanning = TypeVar("_Spanning", bound=_Span)


class RemovedMeanwhile:
    """Compare the spans that a walk passes with one another: what is between two of them was removed by a cleaner, as
    a walk yields everything else, damage included."""

    def __init__(self, log: MappedFileQueue, begin: int, end: int | None, on_removed: OnRemoved) -> None:
        """Begin before the walk does. `begin` and `end` are physical offsets."""
        first = log.files[0].start_offset if log.files else begin
        self._log = log
        self._reached = max(begin, first)
        self._end = end
        self._on_removed = on_removed

    def pass_over(self, begin: int, end: int) -> None:
        """Note that the walk has yielded the bytes [begin, end)."""
        self._say(begin)
        self._reached = max(self._reached, end)

    def finish(self) -> None:
        """Note that the walk is over."""
        if self._log.was_removed(self._reached):
            self._say(self._log.min_offset)

    def _say(self, begin: int) -> None:
        begin = begin if self._end is None else min(begin, self._end)
        if begin > self._reached:
            file = self._log.find(self._reached)
            if file is None or not file.holds_entries:  # else heads of entries, which no walk yields
                self._on_removed(self._reached, begin)
            self._reached = begin


def say_removed(
    log: MappedFileQueue,
    records: Iterator[_Spanning],
    begin: int,
    end: int | None,
    on_removed: OnRemoved,
    start_of: Callable[[_Spanning], int],
) -> Iterator[_Spanning]:
    """Yield the records of a walk over [begin, end), and give what was removed meanwhile to `on_removed`.
    `start_of`: a record's first byte."""
    removed = RemovedMeanwhile(log, begin, end, on_removed)
    with log.descriptors.exact_about_removed():
        for record in records:
            removed.pass_over(start_of(record), record.end)
            yield record
        removed.finish()


def in_sentences(events: Events) -> OnRemoved:
    """Return what says a sentence for each span. Where nothing takes notes it is a warning of the logger
    `rmqctl.store`, or a notice of the command line."""

    def on_removed(begin: int, end: int) -> None:
        (events.note or say)(
            f"messages of physical offsets {begin} to {end - 1} were removed by a cleaner before they were read"
        )

    return on_removed


def removed_units(topic: str, queue_id: int, queue_offsets: range) -> str:
    """Return the sentence about messages of a queue that were removed before they were read."""
    first, last = queue_offsets[0], queue_offsets[-1]
    return f"messages {first} to {last} of {topic!r} queue {queue_id} were removed by a cleaner before they were read"
