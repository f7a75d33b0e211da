"""A run of good messages as columns: one row a message, arrays that the batch owns and a caller may keep."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_hash, key_hash, tags_code
from rmqctl.formats.layout import Layout
from rmqctl.formats.layouts import (
    FRAME_HEADS,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    SYS_FLAG_INNER_BATCH,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    TRANSACTION_MASK,
)
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import TRANSACTION_COMMIT, TRANSACTION_NONE
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.walk import Blank, Damage, Empty, message_without_crc
from rmqctl.store.native.tables import INTS, LONGS, MAXIMUM_PROBES, Columns, NeedsPlain
from rmqctl.store.native.text import topic_hash
from rmqctl.store.queues import dispatch
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, index_keys

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Flags = NDArray[np.bool_]
_Integer = TypeVar("_Integer", np.int32, np.int64)
_LEAST_LONG, _LARGEST_LONG = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)


def distinct(numbers: NDArray[_Integer]) -> NDArray[_Integer]:
    """Each number once, in order. numpy.unique loads numpy.ma for that, which takes longer than a small look."""
    ordered = numbers if (numbers[1:] >= numbers[:-1]).all() else np.sort(numbers)
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def differences(later: Int64s, earlier: Int64s) -> Int64s:
    """Return `later` minus `earlier`, row by row; what no int64 holds is the end of the range on its side.

    No checksum covers the times of a message: they can be any two numbers.
    """
    plain = later - earlier
    beyond = ((later ^ earlier) & (later ^ plain)) < 0
    return np.where(beyond, np.where(later < 0, _LEAST_LONG, _LARGEST_LONG), plain) if beyond.any() else plain


_LONG_INDEX = dict(zip(LONGS, range(len(LONGS)), strict=True))
_INT_INDEX = dict(zip(INTS, range(len(INTS)), strict=True))


class _Long:
    """A 64-bit column as an attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._group, self._index = name, LONGS[name], _LONG_INDEX[name]

    def __get__(self, batch: MessageColumns, owner: type | None = None) -> Int64s:
        batch.need(self._group, self._name)
        column: Int64s = batch.longs[self._index]
        return column


class _Int:
    """A 32-bit column as an attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._group = name, INTS[name]

    def __get__(self, batch: MessageColumns, owner: type | None = None) -> Int32s:
        batch.need(self._group, self._name)
        return batch.column(self._name)


class MessageColumns:
    """`rows` messages that follow one another without a gap. A column that was not asked for raises LookupError.

    Timestamps in ms. Lengths and positions in bytes; positions count from the start of `window`, which holds at least
    the bodies, properties and host addresses of these messages. All arrays belong to the batch and stay valid.
    """

    __slots__ = ("_key_hash", "_key_row", "asked", "ints", "log", "longs", "rows", "topics", "window")

    physical_offset = _Long()
    queue_offset = _Long()
    born_timestamp = _Long()
    store_timestamp = _Long()
    prepared_transaction_offset = _Long()
    tags_code = _Long()
    """Hash of TAGS, 0 without. See `unit_tags_code` for the value in a unit of the schedule topic."""
    size = _Int()
    queue_id = _Int()
    flag = _Int()
    sys_flag = _Int()
    body_crc = _Int()
    reconsume_times = _Int()
    born_host_port = _Int()
    store_host_port = _Int()
    topic_id = _Int()
    """Index into `topics.names`."""
    delay_level = _Int()
    """The DELAY level of a message of the schedule topic; 0 without and elsewhere."""
    needs_plain = _Int()
    """`NeedsPlain` bits."""
    body_position = _Int()
    body_length = _Int()
    property_position = _Int()
    property_length = _Int()
    born_host_position = _Int()
    """The address has 16 bytes where sys_flag says IPv6, else 4."""
    store_host_position = _Int()
    born_host_start = _Int()
    """The first four bytes of the address as a number, which are all of an IPv4 one."""
    store_host_start = _Int()

    def __init__(
        self,
        log: MappedFileQueue,
        topics: TopicIds,
        asked: Columns,
        longs: Int64s,
        ints: Int32s,
        key_hash: Int32s,
        key_row: Int32s,
        window: Bytes | None,
    ) -> None:
        self.log = log
        self.topics = topics
        self.asked = asked
        self.longs = longs
        self.ints = ints
        self.rows: int = longs.shape[1]
        self._key_hash = key_hash
        self._key_row = key_row
        self.window = window

    def __len__(self) -> int:
        return self.rows

    def need(self, group: Columns, name: str) -> None:
        """LookupError unless `group` was asked for."""
        if group & ~self.asked:
            raise LookupError(f"column {name} was not asked for: add {group.name}")

    def column(self, name: str) -> Int32s:
        """A 32-bit column by name, whether it was asked for or not."""
        column: Int32s = self.ints[_INT_INDEX[name]]
        return column

    def set_keys(self, key_hash: Int32s, key_row: Int32s) -> None:
        """Replace the index entries. `key_row`: the complement of the row (~row) marks the entry of a tag."""
        self._key_hash, self._key_row = key_hash, key_row

    @property
    def key_hash(self) -> Int32s:
        """Hashes of the index entries: those of `dispatch.index_keys`, message by message, that of its tag last."""
        self.need(Columns.KEYS, "key_hash")
        return self._key_hash

    @property
    def key_row(self) -> Int32s:
        """Row of each index entry's message; ascending."""
        self.need(Columns.KEYS, "key_row")
        if self.asked & Columns.TAG_KEYS:
            rows: Int32s = self._key_row ^ (self._key_row >> 31)
            return rows
        return self._key_row

    @property
    def key_is_tag(self) -> Flags:
        """Whether each index entry is that of a tag."""
        self.need(Columns.KEYS, "key_is_tag")
        flags: Flags = self._key_row < 0
        return flags

    @property
    def begin(self) -> int:
        """Physical offset of the first message."""
        return int(self.longs[0, 0])

    @property
    def end(self) -> int:
        """Physical offset behind the last message."""
        return int(self.longs[0, -1]) + int(self.ints[0, -1])

    @property
    def has_queue_slot(self) -> Flags:
        """Whether each message takes a queue slot: prepared and rolled back ones do not."""
        transaction = self.sys_flag & TRANSACTION_MASK
        flags: Flags = (transaction == TRANSACTION_NONE) | (transaction == TRANSACTION_COMMIT)
        return flags

    def unit_tags_code(self, delay_levels: Sequence[int]) -> Int64s:
        """The value in the unit: the tag hash, or the delivery time in ms for a delayed message.

        The vector form of `dispatch.unit_tags_code`. `delay_levels` in ms.
        """
        levels = self.delay_level
        if not levels.any():
            return self.tags_code
        table = np.array([0, *delay_levels] if delay_levels else [0, 1000], dtype=np.int64)
        due = self.store_timestamp + table[np.minimum(levels, len(table) - 1)]
        return np.where(levels > 0, due, self.tags_code)

    def take(self, rows: Int64s | slice | None) -> MessageColumns:
        """These rows as a batch without index entries, its columns no copies for a slice; the batch itself for None."""
        if rows is None:
            return self
        if isinstance(rows, slice):
            longs, ints = self.longs[:, rows], self.ints[:, rows]
        else:  # kernels take whole columns only, which an index does not promise
            longs, ints = self.longs.take(rows, axis=1), self.ints.take(rows, axis=1)
        none = np.empty(0, np.int32)
        asked = self.asked & ~(Columns.KEYS | Columns.TAG_KEYS)
        return MessageColumns(self.log, self.topics, asked, longs, ints, none, none, self.window)

    def body(self, row: int) -> memoryview:
        """The body of a row as stored, not copied."""
        return self._bytes(int(self.body_position[row]), int(self.body_length[row]))

    def property_bytes(self, row: int) -> memoryview:
        """The properties of a row as stored, not copied."""
        return self._bytes(int(self.property_position[row]), int(self.property_length[row]))

    def _bytes(self, position: int, length: int) -> memoryview:
        assert self.window is not None
        return self.window.data[position : position + length]

    def topic(self, row: int) -> str:
        """The topic of a row."""
        return self.topics.names[int(self.topic_id[row])]

    def is_of_topic(self, topic: str) -> Flags:
        """By row whether it is of a topic."""
        of_topic: Flags = self.topic_id == self.topics.find(topic)
        return of_topic

    def message(self, row: int) -> StoredMessage:
        """The row as a message, read again from the log. Its CRC was checked, or not, when the batch was made.

        FrameDamage if the log was changed meanwhile.
        """
        return message_without_crc(self.log, int(self.longs[0, row]), int(self.ints[0, row]))


ColumnRecord = MessageColumns | Blank | Empty | Damage


def start_of(record: ColumnRecord) -> int:
    """Return the physical offset of the record's first byte."""
    return record.begin if isinstance(record, MessageColumns) else record.physical_offset


# The topics met so far, numbered in the order they were met, and the hash table in which the walk looks them up.


class TopicIds:
    """`names[id]` is the topic of that id. May be shared by several walks in several threads."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.seed = int.from_bytes(os.urandom(8)) >> 1
        self._ids: dict[bytes, int] = {}
        self._adding = threading.Lock()
        self.slots: NDArray[np.int32] = np.full(64, -1, np.int32)
        self.entries: NDArray[np.int64] = np.zeros((32, 4), np.int64)
        self.text: NDArray[np.uint8] = np.zeros(1024, np.uint8)
        self._text_used = 0

    def __len__(self) -> int:
        return len(self.names)

    def find(self, topic: str) -> int:
        """Return the id of a topic; -1 for one that was not met."""
        return self._ids.get(topic.encode("utf-8", "surrogatepass"), -1)

    def longer_than(self, size: int) -> Int64s:
        """Return the ids of topics of more bytes."""
        known = len(self.names)
        return np.flatnonzero(self.entries[:known, 1] > size)

    def id_of(self, topic: bytes) -> int:
        """The id of a topic, which must be UTF-8; a new one for a topic not met before."""
        known = self._ids.get(topic)
        if known is not None:
            return known
        with self._adding:
            known = self._ids.get(topic)
            return self._add(topic) if known is None else known

    def _add(self, topic: bytes) -> int:
        number = len(self.names)
        name = topic.decode("utf-8")
        # arrays are replaced as they grow, never resized: a walk may be reading the old ones in another thread
        if number >= len(self.entries):
            self.entries = np.concatenate([self.entries, np.zeros_like(self.entries)])
        used = self._text_used
        if used + len(topic) > len(self.text):
            grown = np.zeros(2 * (used + len(topic)), np.uint8)
            grown[:used] = self.text[:used]
            self.text = grown
        self.text[used : used + len(topic)] = np.frombuffer(topic, np.uint8)
        self._text_used = used + len(topic)
        self.entries[number] = used, len(topic), java_hash(name + "#"), name == SCHEDULE_TOPIC
        self.names.append(name)
        self._ids[topic] = number
        if 2 * (number + 1) > len(self.slots):
            self._grow()
        else:
            self._insert(self.slots, topic, number)
        return number

    def _grow(self) -> None:
        slots: NDArray[np.int32] = np.full(4 * len(self.slots), -1, np.int32)
        for topic, number in self._ids.items():
            self._insert(slots, topic, number)
        self.slots = slots

    def _insert(self, slots: NDArray[np.int32], topic: bytes, number: int) -> None:
        place = topic_hash(self.seed, topic)
        for probe in range(MAXIMUM_PROBES):
            slot = place + probe & len(slots) - 1
            if slots[slot] < 0:
                slots[slot] = number
                return


# Batches of messages that the plain walk decoded one by one, and the few rows of the walk in columns whose properties
# are left to it.

_INTERNAL = NeedsPlain.DELAY | NeedsPlain.KEYS


def batch_of(messages: list[StoredMessage], log: MappedFileQueue, topics: TopicIds, asked: Columns) -> MessageColumns:
    """Messages that follow one another as a batch. Its window holds their frames."""
    longs: dict[str, list[int]] = {}
    ints: dict[str, list[int]] = {}
    for name, group in LONGS.items():
        if not group & ~asked & ~Columns.TAGS:
            longs[name] = [] if name == "tags_code" else [getattr(message, name) for message in messages]
    for name in INTS:
        if name in StoredMessage._fields:
            ints[name] = [getattr(message, name) for message in messages]
    ints["size"] = [message.total_size for message in messages]
    if asked & (Columns.TOPIC | Columns.KEYS):
        ints["topic_id"] = [topics.id_of(message.topic.encode("utf-8")) for message in messages]
    if asked & Columns.TAGS:
        properties = [message.properties() for message in messages]
        longs["tags_code"] = [tags_code(one.get(names.TAGS)) for one in properties]
        ints["delay_level"] = list(map(delay_level, messages, properties))
        ints["needs_plain"] = list(map(needs_plain, messages, properties))
    window = None
    if asked & Columns.BYTES:
        places, window = _window(messages)
        ints |= places
    entries = _keys(messages, asked) if asked & Columns.KEYS else []
    long_table = np.zeros((len(LONGS), len(messages)), np.int64)
    int_table = np.zeros((len(INTS), len(messages)), np.int32)
    for number, name in enumerate(LONGS):
        long_table[number] = longs.get(name) or 0
    for number, name in enumerate(INTS):
        int_table[number] = ints.get(name) or 0
    hashes = np.array([value for value, _ in entries], np.int32)
    rows = np.array([row for _, row in entries], np.int32)
    return MessageColumns(log, topics, asked, long_table, int_table, hashes, rows, window)


def _keys(messages: list[StoredMessage], asked: Columns) -> list[tuple[int, int]]:
    return [entry for row, message in enumerate(messages) for entry in _keys_of(message, row, asked)]


def _keys_of(message: StoredMessage, row: int, asked: Columns) -> list[tuple[int, int]]:
    """Return hash and row of each index entry, ~row for the entry of the tag."""
    keys = index_keys(message)
    entries = [(key_hash(message.topic, key), row) for key in keys]
    if asked & Columns.TAG_KEYS:
        tags = index_keys(message, with_tags=True)[len(keys) :]
        entries += [(key_hash(message.topic, key), ~row) for key in tags]
    return entries


def _window(messages: list[StoredMessage]) -> tuple[dict[str, list[int]], Bytes]:
    places: dict[str, list[int]] = {name: [] for name, group in INTS.items() if group == Columns.BYTES}
    window = bytearray()
    for message in messages:
        head = FRAME_HEADS[message.sys_flag >> 4 & 3]
        frame = _frame(message, head)
        parts = {
            "body": (head.size, len(message.body)),
            "property": (len(frame) - len(message.property_bytes), len(message.property_bytes)),
            "born_host": (head.offset("born_host_ip"), len(message.born_host_ip)),
            "store_host": (head.offset("store_host_ip"), len(message.store_host_ip)),
        }
        for name, (begin, length) in parts.items():
            places[f"{name}_position"].append(len(window) + begin)
            if f"{name}_length" in places:
                places[f"{name}_length"].append(length)
            if f"{name}_start" in places:
                start = frame[begin : begin + min(length, 4)]
                places[f"{name}_start"].append(int.from_bytes(start, "big", signed=True))
        window += frame
    return places, np.frombuffer(bytes(window), np.uint8)


def _frame(message: StoredMessage, head: Layout) -> bytes:
    """Return the bytes of a message's frame: a good frame has nothing that its fields do not say."""
    topic = message.topic.encode("utf-8")
    topic_length = TOPIC_LENGTH_V2 if message.magic_code == MESSAGE_MAGIC_V2 else TOPIC_LENGTH_V1
    parts = (
        head.struct.pack(*message[: StoredMessage._fields.index("body")], len(message.body)),
        message.body,
        # lengths beyond a signed field are stored all the same (Reason.OVERFLOW)
        len(topic).to_bytes(topic_length.size, "big"),
        topic,
        len(message.property_bytes).to_bytes(PROPERTIES_LENGTH.size, "big"),
        message.property_bytes,
    )
    return b"".join(parts)


def delay_level(message: StoredMessage, properties: dict[str, str]) -> int:
    """The level of a message of the schedule topic, as `dispatch.unit_tags_code` reads it; 0 for one below."""
    return max(0, dispatch.delay_level(message.topic, properties))


def needs_plain(message: StoredMessage, properties: dict[str, str]) -> NeedsPlain:
    """What the columns leave open about a message."""
    is_batch = message.sys_flag & SYS_FLAG_INNER_BATCH or names.INNER_NUM in properties
    found = NeedsPlain.INNER_BATCH if is_batch else NeedsPlain.NO
    if names.INNER_MULTI_DISPATCH in properties and names.INNER_MULTI_QUEUE_OFFSET in properties:
        found |= NeedsPlain.MULTI_DISPATCH
    return found


def complete(batch: MessageColumns) -> MessageColumns:
    """The batch with delay levels and keys of the rows that have the internal bits of NeedsPlain, and without these."""
    levels, bits = batch.column("delay_level"), batch.column("needs_plain")
    hashes: list[int] = []
    rows: list[int] = []
    for row in np.flatnonzero(bits & int(_INTERNAL)).tolist():
        message = batch.message(row)
        if bits[row] & NeedsPlain.DELAY:
            levels[row] = delay_level(message, message.properties())
        if bits[row] & NeedsPlain.KEYS:
            entries = _keys_of(message, row, batch.asked)
            hashes += [value for value, _ in entries]
            rows += [place for _, place in entries]
        bits[row] &= ~int(_INTERNAL)
    if rows and batch.asked & Columns.KEYS:
        known = np.where(batch.key_is_tag, ~batch.key_row, batch.key_row)
        all_rows = np.concatenate([known, np.array(rows, np.int32)])
        all_hashes = np.concatenate([batch.key_hash, np.array(hashes, np.int32)])
        order = np.argsort(np.where(all_rows < 0, ~all_rows, all_rows), kind="stable")
        batch.set_keys(all_hashes[order], all_rows[order])
    return batch
