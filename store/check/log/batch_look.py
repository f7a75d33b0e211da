"""What the check notes of every message beyond the walk's own checks, batch by batch, as arrays."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, parse_property_crc
from rmqctl.formats.compression import decompress, is_plain
from rmqctl.formats.errors import CorruptError, UnsupportedError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.sys_flag import compression_type
from rmqctl.store.columns.batch import Columns, Flags, Int64s, MessageColumns, differences

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
