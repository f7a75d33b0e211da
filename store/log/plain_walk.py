"""Batches of messages that the plain walk decoded one by one, and the few rows of the walk in columns whose properties
are left to it.
"""

from __future__ import annotations

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import key_hash, tags_code
from rmqctl.formats.layout import Layout
from rmqctl.formats.layouts import (
    FRAME_HEADS,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    SYS_FLAG_INNER_BATCH,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import Bytes, MessageColumns, TopicIds
from rmqctl.store.native.tables import INTS, LONGS, Columns, NeedsPlain
from rmqctl.store.queues import dispatch
from rmqctl.store.queues.dispatch import index_keys

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
