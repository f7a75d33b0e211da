"""Classification of a damaged span of the log: inside the log, a torn tail, or old data after its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, body_crc, parse_property_crc
from rmqctl.formats.compression import decompress, is_plain
from rmqctl.formats.errors import CorruptError, RmqctlError, UnsupportedError, counted, lasting
from rmqctl.formats.layouts import FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, SYS_FLAG_COMPRESSED
from rmqctl.formats.message import FrameDamage, Reason, StoredMessage, decode_message
from rmqctl.formats.properties import CRC32, compression_name, compression_type
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import Flags, Int64s, MessageColumns, differences
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE
from rmqctl.store.log.walk import Damage, Empty, overflowed_message
from rmqctl.store.native.tables import Columns
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.read.frames import message_at
from rmqctl.store.store_files import StoreFiles

# How many messages a stretch of the log held, by the queue units that point into it.

# a unit is read for each step of a search in each queue: beyond this many queues it is left
_MOST_READS = 200_000
_STEPS = 40


class AffectedMessages:
    """Counts units by physical offset. Units are in the order of the log, so two searches a queue find them."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._reads_left = _MOST_READS
        self._queues: list[ConsumeQueue] | None = None

    def count(self, begin: int, end: int) -> int | None:
        """Units that point into [begin, end) of the log; None if that would take too long, or nothing can be known."""
        if self._queues is None:
            self._queues = self._simple_queues()
        self._reads_left -= _STEPS * len(self._queues)
        if not self._queues or self._reads_left < 0:
            return None
        return sum(_first_slot(queue, end) - _first_slot(queue, begin) for queue in self._queues)

    def _simple_queues(self) -> list[ConsumeQueue]:
        try:
            queues = self._files.queues.all()
        except CorruptError:
            return []
        return [queue for queue in queues if isinstance(queue, ConsumeQueue)]


def _first_slot(queue: ConsumeQueue, physical_offset: int) -> int:
    """The first slot whose unit points at or behind an offset; unwritten slots count as before it."""
    low, high = queue.first_slot, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        unit = queue.unit(middle)
        if unit is None or not unit.is_written or unit.physical_offset < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low


_INSIDE = {
    Reason.SIZE: "RMQ-LOG-001",
    Reason.MAGIC: "RMQ-LOG-002",
    Reason.POSITION: "RMQ-LOG-003",
    Reason.LENGTHS: "RMQ-LOG-004",
    Reason.OVERFLOW: "RMQ-LOG-030",
    Reason.NUMBER: "RMQ-LOG-033",
    Reason.BODY_CRC: "RMQ-LOG-005",
    Reason.PROPERTY_CRC: "RMQ-LOG-006",
    Reason.TOPIC: "RMQ-LOG-007",
    Reason.PROPERTIES: "RMQ-LOG-008",
    Reason.BLANK_SIZE: "RMQ-LOG-009",
    Reason.ENTRY: "RMQ-DLG-001",
}
# messages that only brokers cannot read, at the end of the log
_WHOLE = {Reason.OVERFLOW: "RMQ-LOG-031", Reason.NUMBER: "RMQ-LOG-034"}
_LARGEST_LOOK = 16 * 1024 * 1024
_HEAD_SIZE = FRAME_HEADS[3].size


class DamageFindings:
    """Makes findings of damaged spans; reads the bytes again to say what can still be said of them."""

    def __init__(self, log: MappedFileQueue, affected: AffectedMessages) -> None:
        self._log = log
        self._affected = affected

    def inside(self, span: Damage | Empty) -> Finding:
        """Good messages follow the span."""
        messages = self._affected.count(span.physical_offset, span.end)
        if isinstance(span, Empty):
            text = f"zeros up to offset {span.end}, and messages behind them"
            return self._finding("RMQ-LOG-010", span, text, messages, True)
        message = self._message(span)
        code = _INSIDE[span.reason]
        if span.reason is Reason.OVERFLOW and message is None:
            code = _INSIDE[Reason.LENGTHS]
        data_lost: bool | None = span.reason is not Reason.BLANK_SIZE and code not in ("RMQ-LOG-030", "RMQ-LOG-033")
        if span.reason is Reason.ENTRY:
            data_lost = None if messages is None else messages > 0
        expected: str | int | None = None
        found: str | int | None = None
        if span.reason is Reason.POSITION and message is not None:
            expected, found, data_lost = span.physical_offset, message.physical_offset, None
        elif span.reason is Reason.BODY_CRC and message is not None:
            expected, found = message.body_crc, body_crc(message.body)
            if message.body_crc == 0:
                code, data_lost = "RMQ-LOG-021", False
        if message is not None and message.total_size == span.end - span.physical_offset:
            messages = 1
        return self._finding(code, span, span.detail, messages, data_lost, message, expected, found)

    def tail(self, span: Damage, frames: int = 1) -> Finding:
        """Nothing good follows the span, in which `heads` frames seem to begin."""
        message = self._message(span)
        if span.reason is Reason.POSITION and message is not None:
            text = f"a message that gives offset {message.physical_offset} follows the end of the log"
            expected, found = span.physical_offset, message.physical_offset
            return self._finding("RMQ-LOG-014", span, text, None, False, message, expected, found)
        if span.reason in _WHOLE and message is not None:
            return self._finding(_WHOLE[span.reason], span, span.detail, 1, False, message)
        units = self._affected.count(span.physical_offset, span.end)
        if units or self._begins_like_a_frame(span):
            return self._finding("RMQ-LOG-011", span, span.detail, max(units or 0, frames), True, message)
        text = f"{counted(span.end - span.physical_offset, 'byte')} of no message: {span.detail}"
        return self._finding("RMQ-LOG-012", span, text, 0, False)

    def stale(self, begin: int, end: int, messages: int | None, *, log_end: int) -> Finding:
        """Messages from before a truncation stand in [begin, end), behind `log_end`, where the log ends."""
        file = self._log.find(begin)
        older = "older messages" if not messages else counted(messages, "older message", "older messages")
        return Finding(
            "RMQ-LOG-013",
            f"{older} after the end of the log",
            None if file is None else file.path,
            begin,
            expected=log_end,
            found=begin,
            bytes=end - begin,
            messages=messages,
        )

    def _finding(
        self,
        code: str,
        span: Damage | Empty,
        text: str,
        messages: int | None,
        data_lost: bool | None,
        message: StoredMessage | None = None,
        expected: str | int | None = None,
        found: str | int | None = None,
    ) -> Finding:
        file = self._log.find(span.physical_offset)
        # what stands in another place belongs to another queue too
        is_named = message is not None and message.physical_offset == span.physical_offset
        return Finding(
            code,
            text,
            file.path if file is not None else Path(span.file) if isinstance(span, Damage) else None,
            span.physical_offset,
            message.topic if message is not None and is_named else None,
            message.queue_id if message is not None and is_named else None,
            expected,
            found,
            bytes=span.end - span.physical_offset,
            messages=messages,
            data_lost=data_lost,
        )

    def _message(self, span: Damage) -> StoredMessage | None:
        """Return the message if only a checksum, the place, the sign of a length or a number is wrong."""
        if span.reason is Reason.OVERFLOW:
            return overflowed_message(self._log, span)
        if span.reason not in (Reason.BODY_CRC, Reason.PROPERTY_CRC, Reason.POSITION, Reason.NUMBER):
            return None
        head = self._log.read(span.physical_offset, 4)
        size = int.from_bytes(head, "big", signed=True)
        if not 0 < size <= min(_LARGEST_LOOK, MAXIMUM_FRAME_SIZE):
            return None
        frame = self._log.read(span.physical_offset, size)
        try:
            return decode_message(frame, 0, len(frame), None, check_crc=span.reason is Reason.POSITION)
        except FrameDamage:
            return None

    def _begins_like_a_frame(self, span: Damage) -> bool:
        """Whether a message was begun here: magic and physical offset are right."""
        head = self._log.read(span.physical_offset, _HEAD_SIZE)
        if len(head) < FRAME_HEADS[0].size:
            return False
        fields = FRAME_HEADS[0].unpack_from(head, 0)
        return fields[1] in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) and fields[6] == span.physical_offset


# What the check notes of every message beyond the walk's own checks, batch by batch, as arrays.

# more places of one kind are counted, not listed
MOST_PLACES = 100
# a clock that is this much off is worth a word; ms
CLOCK_TOLERANCE_MS = 60_000
PRODUCER_TOLERANCE_MS = 300_000
# what a compressed stream is known by: a magic number, or the head of zlib
_LONGEST_MARK = 4


@dataclass(slots=True)
class Occurrences:
    """Physical offsets of messages that have something in common: all are counted, the first ones listed."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, offsets: Int64s) -> None:
        """More of them."""
        self.count += len(offsets)
        self.first += offsets[: MOST_PLACES - len(self.first)].tolist()

    def join(self, later: Occurrences) -> None:
        """Those of a later part of the log."""
        self.count += later.count
        self.first += later.first[: MOST_PLACES - len(self.first)]


@dataclass(slots=True)
class Look:
    """What was noted. Times in ms. `jumps`: messages stored earlier than the one before them.

    `unpackable`: flagged as compressed, but does not unpack; without `is_full` only where the body begins no stream.
    `uncovered`: messages without a checksum over head, topic and properties; counted only with `is_full`, as are
    `zero_texts` (a property string that begins or ends with a zero byte) and `zero_crcs` (body checksum 0, and right).
    """

    is_full: bool = False
    messages: int = 0
    bytes: int = 0
    first_physical_offset: int = 0
    first_store_timestamp: int = 0
    last_store_timestamp: int = 0
    largest_store_timestamp: int = 0
    largest_jump: int = 0
    largest_born_ahead: int = 0
    jumps: Occurrences = field(default_factory=Occurrences)
    future: Occurrences = field(default_factory=Occurrences)
    born_ahead: Occurrences = field(default_factory=Occurrences)
    zero_texts: Occurrences = field(default_factory=Occurrences)
    zero_crcs: Occurrences = field(default_factory=Occurrences)
    unpackable: Occurrences = field(default_factory=Occurrences)
    uncovered: int = 0
    packed: int = 0
    """Compressed bodies that begin a stream and were not unpacked: without `is_full` none is."""
    topics: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    """Messages of each topic, by its number."""

    @property
    def columns(self) -> Columns:
        """The columns that `add` needs."""
        return Columns.HEAD | Columns.TOPIC | Columns.BYTES

    def add(self, batch: MessageColumns) -> None:
        """Note the messages of a batch, which follow those noted so far."""
        times, offsets = batch.store_timestamp, batch.physical_offset
        if not self.messages:
            self.first_physical_offset, self.first_store_timestamp = int(offsets[0]), int(times[0])
        else:
            self._note_jump(int(times[0]), int(offsets[0]))
        back = times[1:] < times[:-1]
        if back.any():
            self.jumps.add(offsets[1:][back])
            self.largest_jump = max(self.largest_jump, int(differences(times[:-1], times[1:]).max()))
        latest = int(times.max())
        now = time.time_ns() // 1_000_000 + CLOCK_TOLERANCE_MS
        if latest > now:
            self.future.add(offsets[times > now])
        ahead = differences(batch.born_timestamp, times)
        if int(ahead.max()) > PRODUCER_TOLERANCE_MS:
            self.born_ahead.add(offsets[ahead > PRODUCER_TOLERANCE_MS])
            self.largest_born_ahead = max(self.largest_born_ahead, int(ahead.max()))
        self.messages += batch.rows
        self.bytes += batch.end - batch.begin
        self.topics = _sum(self.topics, np.bincount(batch.topic_id))
        self.last_store_timestamp = int(times[-1])
        self.largest_store_timestamp = max(self.largest_store_timestamp, latest)
        if self.is_full:
            self._look_closely(batch)
        else:
            self._look_at_flags(batch)

    def join(self, later: Look) -> None:
        """Add what was noted of a later part of the log."""
        if not later.messages:
            return
        if self.messages:
            self._note_jump(later.first_store_timestamp, later.first_physical_offset)
        else:
            self.first_store_timestamp = later.first_store_timestamp
            self.first_physical_offset = later.first_physical_offset
        self.messages += later.messages
        self.bytes += later.bytes
        self.uncovered += later.uncovered
        self.packed += later.packed
        self.topics = _sum(self.topics, later.topics)
        self.last_store_timestamp = later.last_store_timestamp
        for name in ("largest_store_timestamp", "largest_jump", "largest_born_ahead"):
            setattr(self, name, max(getattr(self, name), getattr(later, name)))
        for name in ("jumps", "future", "born_ahead", "zero_texts", "zero_crcs", "unpackable"):
            getattr(self, name).join(getattr(later, name))

    def _note_jump(self, timestamp: int, physical_offset: int) -> None:
        if timestamp < self.last_store_timestamp:
            self.jumps.add(np.array([physical_offset], np.int64))
            self.largest_jump = max(self.largest_jump, self.last_store_timestamp - timestamp)

    def _look_at_flags(self, batch: MessageColumns) -> None:
        """Note bodies that are flagged as compressed and begin no stream; the others are not unpacked here."""
        window = batch.window
        assert window is not None
        rows = np.flatnonzero((batch.sys_flag & SYS_FLAG_COMPRESSED != 0) & (batch.body_length > 1))
        heads = window[batch.body_position[rows]].astype(np.int64) << 8 | window[batch.body_position[rows] + 1]
        is_zlib = (heads & 0x8F00 == 0x0800) & (heads % 31 == 0)
        for row in rows[~is_zlib].tolist():
            if is_plain(bytes(batch.body(row)[:_LONGEST_MARK])):
                self.unpackable.add(batch.physical_offset[row : row + 1])
                self.packed -= 1
        self.packed += len(rows)

    def _look_closely(self, batch: MessageColumns) -> None:
        offsets, window = batch.physical_offset, batch.window
        assert window is not None
        begin, length = batch.property_position, batch.property_length
        has_text = np.flatnonzero(length > 0)
        first, last = begin[has_text], begin[has_text] + length[has_text] - 1
        zero = (window[first] == 0) | (window[last] == 0)
        self.zero_texts.add(offsets[has_text[zero]])
        self.zero_crcs.add(offsets[(batch.body_crc == 0) & (batch.body_length > 0)])
        self.uncovered += batch.rows - int(np.count_nonzero(_has_property_crc(batch)))
        for row in np.flatnonzero(batch.sys_flag & 1).tolist():
            if not _unpacks(batch, row):
                self.unpackable.add(offsets[row : row + 1])


def _sum(some: Int64s, others: Int64s) -> Int64s:
    if len(some) < len(others):
        some, others = others, some
    total = some.copy()
    total[: len(others)] += others
    return total


def _has_property_crc(batch: MessageColumns) -> Flags:
    """Rows whose properties end with `__CRC32#`."""
    found = np.zeros(batch.rows, np.bool_)
    long_enough = np.flatnonzero(batch.property_length >= PROPERTY_CRC_SIZE)
    window = batch.window
    assert window is not None
    ends = (batch.property_position + batch.property_length)[long_enough]
    candidates = long_enough[window[ends - PROPERTY_CRC_SIZE] == ord("_")]
    for row in candidates.tolist():
        found[row] = parse_property_crc(bytes(batch.property_bytes(row)[-PROPERTY_CRC_SIZE:])) is not None
    return found


def _unpacks(batch: MessageColumns, row: int) -> bool:
    kind = compression_type(int(batch.sys_flag[row]))
    if kind is None:
        return True
    try:
        decompress(bytes(batch.body(row)), kind)
    except (CorruptError, UnsupportedError):  # or a kind of compression that does not exist
        return False
    return True


# Findings about messages that are well formed: clocks, checksums that cover nothing, topics that are no names.

_LONGEST_DIRECTORY = 255


def message_findings(log: MappedFileQueue, look: Look, last_message_offset: int) -> Iterator[Finding]:
    """What the look at every message says; the last message is looked at closely in any case."""
    zero = look.zero_texts.first or _torn_text(log, last_message_offset)
    for physical_offset in zero:
        yield _at(log, "RMQ-LOG-016", "topic or properties of the message are zeros", physical_offset, 1, True)
    for physical_offset in look.unpackable.first:
        yield _unpackable(log, physical_offset)
    if look.uncovered:
        yield Finding(
            "RMQ-LOG-017",
            f"{look.uncovered} of {counted(look.messages, 'message has', 'messages have')} no __CRC32#",
            messages=look.uncovered,
        )
    if look.zero_crcs.count:
        text = f"{counted(look.zero_crcs.count, 'message has', 'messages have')} a body checksum of 0 that is right"
        yield _of_places(log, "RMQ-LOG-022", text, look.zero_crcs)
    yield from _clocks(log, look)


def _clocks(log: MappedFileQueue, look: Look) -> Iterator[Finding]:
    if look.future.count:
        text = f"{counted(look.future.count, 'message has', 'messages have')} a store time that is still to come"
        yield _of_places(log, "RMQ-TIME-003", text, look.future)
    if look.jumps.count:
        text = f"the store time falls {counted(look.jumps.count, 'time')}, by {lasting(look.largest_jump)} at most"
        yield _of_places(log, "RMQ-TIME-004", text, look.jumps, found=-look.largest_jump)
    if look.born_ahead.count:
        text = (
            counted(look.born_ahead.count, "message was born", "messages were born")
            + f" up to {lasting(look.largest_born_ahead)} later than stored"
        )
        yield _of_places(log, "RMQ-TIME-005", text, look.born_ahead, found=look.largest_born_ahead)


def topic_findings(messages: dict[str, int]) -> Iterator[Finding]:
    """Topics, with the messages of each, that cannot be directories."""
    for topic, count in messages.items():
        if is_safe_topic(topic):
            continue
        if set(topic) == {"\0"}:
            yield Finding("RMQ-LOG-016", "the topic is zeros", topic=topic, messages=count, data_lost=True)
        elif "\0" in topic or "/" in topic or topic in (".", ".."):
            text = f"{counted(count, 'message')} of a topic that is no name of a directory"
            yield Finding("RMQ-LOG-018", text, topic=topic, messages=count)
        else:
            size = len(topic.encode("utf-8", "surrogatepass"))
            text = f"{counted(count, 'message')} of a topic of {size} bytes, more than {_LONGEST_DIRECTORY}"
            yield Finding("RMQ-LOG-019", text, topic=topic, expected=_LONGEST_DIRECTORY, found=size, messages=count)


def _torn_text(log: MappedFileQueue, physical_offset: int) -> list[int]:
    """The last message's offset if its properties were never written: a tear there shows in no checksum."""
    if physical_offset < 0:
        return []
    try:
        properties = message_at(log, physical_offset).property_bytes
    except RmqctlError:
        return []
    return [physical_offset] if properties and 0 in (properties[0], properties[-1]) else []


def _unpackable(log: MappedFileQueue, physical_offset: int) -> Finding:
    """A body that does not unpack: stored plain under a wrong flag, or a stream that is damaged."""
    why = ""
    try:
        message = message_at(log, physical_offset)
        if is_plain(message.body):
            name = compression_name(message.sys_flag)
            text = f"the flag says that the body is compressed ({name}), but it is stored plain; its CRC holds"
            finding = _at(log, "RMQ-LOG-032", text, physical_offset, 1, False)
            if CRC32 in message.properties():
                text += "; __CRC32# covers the flag"
                finding = replace(finding, message=text, fix="")
            return finding
        message.plain_body()
    except RmqctlError as error:
        why = f": {error.message}"
    return _at(log, "RMQ-LOG-020", f"the compressed body does not unpack{why}", physical_offset, 1, None)


def _at(
    log: MappedFileQueue, code: str, text: str, physical_offset: int, messages: int, data_lost: bool | None
) -> Finding:
    file = log.find(physical_offset)
    topic, queue_id = None, None
    try:
        message = message_at(log, physical_offset)
        topic, queue_id = message.topic, message.queue_id
    except RmqctlError:
        pass
    path = None if file is None else file.path
    return Finding(code, text, path, physical_offset, topic, queue_id, messages=messages, data_lost=data_lost)


def _of_places(log: MappedFileQueue, code: str, text: str, places: Occurrences, found: int | None = None) -> Finding:
    """One finding for many messages, at the place of the first."""
    file = log.find(places.first[0])
    path = None if file is None else file.path
    return Finding(code, text, path, places.first[0], found=found, messages=places.count)
