"""The first look of a diff: the same stretch of two commitlogs side by side, their bytes and what each holds."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.checksums import PROPERTY_CRC_NAME, PROPERTY_CRC_SIZE
from rmqctl.formats.layouts import FRAME_HEADS, SYS_FLAG_STORE_HOST_V6
from rmqctl.pipeline.splits import Split, open_split, plan_splits, split_columns
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import Bytes, Flags, Int32s, Int64s, MessageColumns, TopicIds
from rmqctl.store.log.property_columns import Texts
from rmqctl.store.log.walk import Blank, Damage
from rmqctl.store.native.tables import Columns
from rmqctl.store.queues.consumequeue import QueueKey
from rmqctl.store.store_files import StoreFiles

_CHUNK = 4 * 1024 * 1024
LISTED_DAMAGE = 20


class Pair(NamedTuple):
    """The stretch [begin, end) of both logs, physical offsets: a split of each, None of one that has nothing there."""

    begin: int
    end: int
    a: Split | None
    b: Split | None


@dataclass(slots=True)
class Side:
    """What one log holds in a stretch. `end`: physical offset behind its last record but for empty space, None without.

    `topics`: messages and bytes of each. `queues`: the smallest and the largest queue offset. `damage`: the spans.
    """

    end: int | None = None
    messages: int = 0
    bytes: int = 0
    topics: dict[str, tuple[int, int]] = field(default_factory=dict)
    queues: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)

    def add(self, later: Side) -> None:
        """Count what a later stretch holds, too."""
        self.end = later.end if later.end is not None else self.end
        self.messages += later.messages
        self.bytes += later.bytes
        self.damage += later.damage
        for topic, (messages, size) in later.topics.items():
            known = self.topics.get(topic, (0, 0))
            self.topics[topic] = known[0] + messages, known[1] + size
        for queue, (low, high) in later.queues.items():
            bounds = self.queues.get(queue, (low, high))
            self.queues[queue] = min(bounds[0], low), max(bounds[1], high)


class Compared(NamedTuple):
    """`first_difference`: the first physical offset where both logs have a byte, and not the same. `is_same`: all
    messages that start here are the same, byte for byte and place for place. `last_same`: the last message that is."""

    a: Side
    b: Side
    first_difference: int | None
    is_same: bool
    last_same: int | None


def plan_pairs(a: StoreFiles, b: StoreFiles, split_size: int) -> list[Pair]:
    """Stretches of at most about `split_size` bytes that cover both logs, in their order; none spans two files."""
    sides = plan_splits(a, split_size), plan_splits(b, split_size)
    edges = sorted({edge for splits in sides for split in splits for edge in (split.begin, split.end)})
    pairs = []
    for begin, end in itertools.pairwise(edges):
        parts = [_part(splits, begin, end) for splits in sides]
        if any(parts):
            pairs.append(Pair(begin, end, *parts))
    return pairs


def _part(splits: Sequence[Split], begin: int, end: int) -> Split | None:
    """Return the part of the splits in [begin, end), which contains none of their edges."""
    low, high = 0, len(splits)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if splits[middle].end <= begin else (low, middle)
    if low == len(splits) or splits[low].begin > begin:
        return None
    return splits[low]._replace(begin=begin, end=end)


class _Seen:
    """A side with the places of its messages."""

    def __init__(self) -> None:
        self.side = Side()
        self.places: Int64s = np.empty(0, np.int64)
        self.sizes: Int64s = np.empty(0, np.int64)


def compare(pair: Pair) -> Compared:
    """Walk a stretch of both logs, every checksum checked. Damage is reported, never raised."""
    if pair.a is None or pair.b is None:
        seen = [_one_side(split) for split in (pair.a, pair.b)]
        return Compared(seen[0].side, seen[1].side, None, False, None)
    with open_split(pair.a) as files_a, open_split(pair.b) as files_b:
        a, b = _seen(files_a, pair.a), _seen(files_b, pair.b)
        logs = files_a.log, files_b.log
        first = first_difference(*logs, pair.begin, pair.end)
        is_same = np.array_equal(a.places, b.places) and np.array_equal(a.sizes, b.sizes)
        if is_same and len(a.places):
            # the last message may reach into the next stretch
            end = int(a.places[-1] + a.sizes[-1])
            is_same = _frames_are_same(*logs, a, first if first is not None else pair.end, end)
        return Compared(a.side, b.side, first, is_same, _last_same(*logs, a, b))


def _one_side(split: Split | None) -> _Seen:
    if split is None:
        return _Seen()
    with open_split(split) as files:
        return _seen(files, split)


def _seen(files: StoreFiles, split: Split) -> _Seen:
    found, topics = _Seen(), TopicIds()
    side = found.side
    parts: list[tuple[Int64s, Int64s]] = []
    bounds: dict[tuple[int, int], tuple[int, int]] = {}
    sums: dict[int, tuple[int, int]] = {}
    for record in split_columns(files, split, columns=Columns.HEAD | Columns.TOPIC, topics=topics):
        if isinstance(record, MessageColumns):
            parts.append((record.physical_offset.copy(), record.size.astype(np.int64)))
            _add_topics(record, sums)
            _add_bounds(record, bounds)
            side.end = record.end
        elif isinstance(record, Damage):
            side.damage.append(record)
            side.end = record.end
        elif isinstance(record, Blank):
            side.end = record.end
    if parts:
        found.places, found.sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
    side.messages, side.bytes = len(found.places), int(found.sizes.sum())
    side.topics = {topics.names[number]: counted for number, counted in sums.items()}
    side.queues = {(topics.names[topic], queue): limits for (topic, queue), limits in bounds.items()}
    return found


def _add_topics(batch: MessageColumns, sums: dict[int, tuple[int, int]]) -> None:
    numbers, inverse, counts = np.unique(batch.topic_id, return_inverse=True, return_counts=True)
    sizes = np.zeros(len(numbers), np.int64)
    np.add.at(sizes, inverse, batch.size)
    for number, count, size in zip(numbers.tolist(), counts.tolist(), sizes.tolist(), strict=True):
        known = sums.get(number, (0, 0))
        sums[number] = known[0] + count, known[1] + size


def _add_bounds(batch: MessageColumns, bounds: dict[tuple[int, int], tuple[int, int]]) -> None:
    codes, inverse = np.unique(queue_codes(batch), return_inverse=True)
    lows = np.full(len(codes), np.iinfo(np.int64).max)
    highs = np.full(len(codes), np.iinfo(np.int64).min)
    np.minimum.at(lows, inverse, batch.queue_offset)
    np.maximum.at(highs, inverse, batch.queue_offset)
    for code, low, high in zip(codes.tolist(), lows.tolist(), highs.tolist(), strict=True):
        queue = queue_of(code)
        known = bounds.get(queue, (low, high))
        bounds[queue] = min(known[0], low), max(known[1], high)


def queue_codes(batch: MessageColumns) -> Int64s:
    """A number for the queue of each message, by the id of its topic and its queue id."""
    codes: Int64s = (batch.topic_id.astype(np.int64) << 32) | (batch.queue_id.astype(np.int64) & 0xFFFFFFFF)
    return codes


def queue_of(code: int) -> tuple[int, int]:
    """The id of the topic and the queue id, which may be negative, of such a number."""
    return code >> 32, (code & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def first_difference(a: MappedFileQueue, b: MappedFileQueue, begin: int, end: int) -> int | None:
    """The first of the physical offsets [begin, end), which lie in one file of each, where both have a byte and not the
    same."""
    while begin < end:
        mine, theirs = (log.read(begin, min(_CHUNK, end - begin)) for log in (a, b))
        both = min(len(mine), len(theirs))
        if mine[:both] != theirs[:both]:
            bytes_a, bytes_b = (np.frombuffer(data, np.uint8, both) for data in (mine, theirs))
            return begin + int(np.argmax(bytes_a != bytes_b))
        if both < min(_CHUNK, end - begin):
            return None  # one of them ends here
        begin += both
    return None


def _frames_are_same(a: MappedFileQueue, b: MappedFileQueue, seen: _Seen, begin: int, end: int) -> bool:
    """Whether the messages, which stand at the same places of both logs, are the same from `begin` on, up to `end`.

    What differs may lie between messages.
    """
    ends = seen.places + seen.sizes
    while (place := first_difference(a, b, begin, end)) is not None:
        row = int(np.searchsorted(ends, place, side="right"))
        if row == len(ends):
            return True
        if seen.places[row] <= place:
            return False
        begin = int(seen.places[row])
    return True


def _last_same(a: MappedFileQueue, b: MappedFileQueue, seen_a: _Seen, seen_b: _Seen) -> int | None:
    """Return the last message of one log that the other also has at the same place."""
    places, rows_a, rows_b = np.intersect1d(seen_a.places, seen_b.places, assume_unique=True, return_indices=True)
    sizes = seen_a.sizes[rows_a]
    alike = sizes == seen_b.sizes[rows_b]
    pairs = zip(places[alike][::-1].tolist(), sizes[alike][::-1].tolist(), strict=True)
    return next((place for place, size in pairs if a.read(place, size) == b.read(place, size)), None)


# Digests of 128 bits, two numbers each: of texts, of messages as stored, of messages as consumers see them; and sums.
#
# They are equal wherever they are made: plain BLAKE2, nothing of this machine or process goes in.

SIZE = 16
Digests = NDArray[np.uint64]
"""One row of two numbers for each."""

_OFFSET_AT = FRAME_HEADS[0].offset("physical_offset")
_BEHIND_OFFSET = _OFFSET_AT + 8
_HOST_AT = FRAME_HEADS[0].offset("born_host_ip")
_CONTENT = struct.Struct(">iiqii")
# odd, so that no power of them is zero in 64 bits
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_MASK = (1 << 64) - 1


def as_digests(made: Iterable[bytes]) -> Digests:
    """Digests of SIZE bytes as numbers."""
    return np.frombuffer(b"".join(made), "<u8").reshape(-1, 2)


def text_digests(texts: Texts, rows: Int64s) -> Digests:
    """Of some of the texts."""
    data = texts.data.tobytes()
    begins, ends = texts.offsets[rows].tolist(), texts.offsets[rows + 1].tolist()
    return as_digests(
        blake2b(data[begin:end], digest_size=SIZE).digest() for begin, end in zip(begins, ends, strict=True)
    )


def name_digests(ids: Int32s, names: list[str]) -> Digests:
    """Of the name of each id; names are few."""
    used, inverse = np.unique(ids, return_inverse=True)
    made = as_digests(blake2b(names[one].encode(), digest_size=SIZE, person=b"name").digest() for one in used.tolist())
    found: Digests = made[inverse]
    return found


def frame_digests(batch: MessageColumns) -> Digests:
    """Of the frames of a batch with BYTES, but for their physical offset and the `__CRC32#` that covers it."""
    assert batch.window is not None
    window = batch.window.copy()
    starts = batch.born_host_position.astype(np.int64) - _HOST_AT
    for place in range(_OFFSET_AT, _BEHIND_OFFSET):
        window[starts + place] = 0
    ends = starts + batch.size
    ends[_has_property_crc(window, ends)] -= PROPERTY_CRC_SIZE
    data = window.tobytes()
    return as_digests(
        blake2b(data[start:end], digest_size=SIZE).digest()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )


def _has_property_crc(window: Bytes, ends: Int64s) -> Flags:
    """Whether the frames that end there end with a `__CRC32#` property."""
    found = np.ones(len(ends), np.bool_)
    for place, letter in enumerate(PROPERTY_CRC_NAME):
        found &= window[ends - PROPERTY_CRC_SIZE + place] == letter
    return found


def content_digests(batch: MessageColumns) -> Digests:
    """Of what a producer said, of a batch with HEAD and BYTES: properties, flags, born time, body as stored.

    Topic and queue are left out, and all that the broker adds when it stores a message.
    """
    heads = zip(
        batch.flag.tolist(),
        (batch.sys_flag & ~SYS_FLAG_STORE_HOST_V6).tolist(),
        batch.born_timestamp.tolist(),
        batch.reconsume_times.tolist(),
        batch.property_length.tolist(),
        strict=True,
    )
    made = []
    for row, head in enumerate(heads):
        properties = bytes(batch.property_bytes(row))
        length = len(properties)
        if properties[-PROPERTY_CRC_SIZE:].startswith(PROPERTY_CRC_NAME):
            properties = properties[:-PROPERTY_CRC_SIZE]
            length -= PROPERTY_CRC_SIZE
        digest = blake2b(_CONTENT.pack(*head[:-1], length) + properties, digest_size=SIZE)
        digest.update(batch.body(row))
        made.append(digest.digest())
    return as_digests(made)


class Sums:
    """Two digests of many digests: one that does not depend on their order, and one that does.

    Sums of stretches that follow one another can be put together.
    """

    __slots__ = ("count", "in_order", "of_all")

    def __init__(self, count: int = 0, of_all: tuple[int, int] = (0, 0), in_order: tuple[int, int] = (0, 0)) -> None:
        self.count, self.of_all, self.in_order = count, of_all, in_order

    def join(self, later: Sums) -> None:
        """What a later stretch summed up."""
        self.count += later.count
        first, second = (one + more & _MASK for one, more in zip(self.of_all, later.of_all, strict=True))
        self.of_all = first, second
        moved = [
            mine * pow(factor, later.count, 1 << 64) + theirs & _MASK
            for mine, theirs, factor in zip(self.in_order, later.in_order, _FACTORS, strict=True)
        ]
        self.in_order = moved[0], moved[1]

    def marked(self, number: int) -> Sums:
        """The same, with another order-dependent digest for each number."""
        marks = [(number + 1) * factor for factor in reversed(_FACTORS)]
        first, second = (one * (mark | 1) & _MASK for one, mark in zip(self.in_order, marks, strict=True))
        return Sums(self.count, self.of_all, (first, second))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sums) and all(getattr(self, name) == getattr(other, name) for name in Sums.__slots__)

    def __hash__(self) -> int:
        return hash((self.count, self.of_all, self.in_order))


def sums_by_code(codes: Int64s, digests: Digests) -> Iterator[tuple[int, Sums]]:
    """The sums of the digests of each code, in their order. At least one digest."""
    order = np.argsort(codes, kind="stable")
    codes, digests = codes[order], digests[order]
    begins = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)
    ends = np.append(begins[1:], len(codes))
    counts = ends - begins
    behind = np.repeat(ends, counts) - 1 - np.arange(len(codes))
    powers = [_powers(lane, int(counts.max()))[behind] for lane in (0, 1)]
    of_all = np.add.reduceat(digests, begins, axis=0)
    in_order = np.add.reduceat(digests * np.stack(powers, axis=1), begins, axis=0)
    columns = (codes[begins], counts, of_all, in_order)
    for code, count, all_of_them, ordered in zip(*(column.tolist() for column in columns), strict=True):
        yield code, Sums(count, tuple(all_of_them), tuple(ordered))


def _powers(lane: int, count: int) -> NDArray[np.uint64]:
    """The powers 0, 1, … of a lane's factor."""
    length = 1 << max(4, (count - 1).bit_length())
    return _power_table(lane, length)[:count]


@cache
def _power_table(lane: int, length: int) -> NDArray[np.uint64]:
    factors = np.full(length, _FACTORS[lane], np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


def hexadecimal(numbers: tuple[int, int]) -> str:
    """A digest as people compare it."""
    return f"{numbers[0]:016x}{numbers[1]:016x}"
