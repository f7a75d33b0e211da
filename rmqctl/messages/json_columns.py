"""Columns of a walk as lines of JSON: the same text as `message_json` makes of each message by itself."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import StoredMessage, decode_message, unread_body_error
from rmqctl.messages.json import message_json
from rmqctl.output.output import json_line
from rmqctl.output.table import UNSAFE_RANGES, visible_json
from rmqctl.store.log.columns import MessageColumns, TopicIds
from rmqctl.store.native import json_out
from rmqctl.store.native.json_out import DONE, FULL, IN_WINDOW, LEFT, NUMBER, NUMBERS, UNPACKED, JsonLineWriter
from rmqctl.store.native.properties import FOUND_ROWS, MOST_PROPERTIES
from rmqctl.store.native.tables import Columns
from rmqctl.store.native.uncompiled import views
from rmqctl.store.scan.chosen import Bodies, unpacked_parts

# Bodies are unpacked until they are this many bytes, then other lines begin: a bomb fills no memory.
_UNPACKED_BYTES = 32 * 1024 * 1024
_HEAD, _TOPIC, _BYTES = Columns.HEAD, Columns.TOPIC, Columns.BYTES
# what a field is, and what of the walk it is made from
_FIELDS = {
    "msg_id": (json_out.MSG_ID, _HEAD | _BYTES),
    "unique_key": (json_out.UNIQUE_KEY, _BYTES),
    "topic": (json_out.TOPIC, _TOPIC),
    "store_time": (json_out.STORE_TIME, _HEAD),
    "born_time": (json_out.BORN_TIME, _HEAD),
    "store_host": (json_out.STORE_HOST, _HEAD | _BYTES),
    "born_host": (json_out.BORN_HOST, _HEAD | _BYTES),
    "transaction": (json_out.TRANSACTION, _HEAD),
    "compression": (json_out.COMPRESSION, _HEAD),
    "crc_ok": (json_out.CRC_OK, Columns.NONE),
    "tags": (json_out.TAGS, _BYTES),
    "keys": (json_out.KEYS, _BYTES),
    "properties": (json_out.PROPERTIES, _BYTES),
    "properties_base64": (json_out.STORED_PROPERTIES, _BYTES),
    "body_size": (json_out.BODY_SIZE, _BYTES),
    "body": (json_out.BODY, _BYTES),
    "body_base64": (json_out.BINARY_BODY, _BYTES),
    "stored_body_base64": (json_out.STORED_BODY, _BYTES),
}
_OF_BODIES = frozenset(("body", "body_base64", "body_size", "body_error"))
# only rows that are left to message_json have it
_ERROR = "body_error"
# a line is longer than its frame: names, times, an id
_LINE = 1024


class JsonLines(NamedTuple):
    """Lines of a number of messages, and what to report of bodies among them, by row."""

    text: memoryview
    rows: int
    damage: list[tuple[int, CorruptError]]

    def first(self, count: int) -> JsonLines:
        """The first lines only."""
        if count >= self.rows:
            return self
        ends = np.flatnonzero(np.frombuffer(self.text, np.uint8) == ord("\n"))
        end = int(ends[count - 1]) + 1 if count else 0
        return JsonLines(self.text[:end], count, [(row, error) for row, error in self.damage if row < count])


class JsonColumns:
    """Makes lines with certain fields of the columns of a walk, for `scanned`. `needs`: what the walk has to give."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: fields of `message_json`, none of them twice."""
        self._names = tuple(names)
        made = [name for name in names if name != _ERROR]
        self.needs_bodies = not _OF_BODIES.isdisjoint(names)
        self.needs = _HEAD | _BYTES
        fields = np.zeros((2, len(made)), np.int32)
        for place, name in enumerate(made):
            fields[:, place], needs = _field(name)
            self.needs |= needs
        texts = [f', "{name}": '.encode("ascii") for name in made]
        (self._fields,) = views(fields)
        self._texts = b"".join(texts)
        (self._ends,) = views(np.cumsum([0, *map(len, texts)], dtype=np.int32))
        self._topics: tuple[TopicIds | None, int, bytes, memoryview] = (None, 0, b"", memoryview(b""))

    def batches(self, batch: MessageColumns) -> Iterator[JsonLines]:
        """The messages as lines, in order."""
        for part, plain in unpacked_parts(batch, _UNPACKED_BYTES, needs_bodies=self.needs_bodies):
            yield JsonLines(self._lines(part, plain), part.rows, _damage(part, plain))

    def _lines(self, batch: MessageColumns, plain: Bodies | None) -> memoryview:
        writer = self._writer(batch, plain)
        room = batch.rows * _LINE + 2 * (int(batch.column("property_length").sum()) + int(batch.body_length.sum()))
        target = np.empty(room if plain is None else room + 2 * len(plain.unpacked), np.uint8)
        row, used, status = 0, 0, FULL
        while True:
            (view,) = views(target)
            status, row, used = writer.write(view, row, used)
            if status == DONE:
                return target[:used].data
            line = b"" if status == FULL else self._line(batch, row)
            if status == FULL or len(line) > len(target) - used:
                target = np.concatenate((target[:used], np.empty(2 * len(target) + len(line), np.uint8)))
            if line:
                target[used : used + len(line)] = np.frombuffer(line, np.uint8)
                row, used = row + 1, used + len(line)

    def _line(self, batch: MessageColumns, row: int) -> bytes:
        """A row that the writer leaves to us."""
        record = message_json(_message(batch, row), stored_body=True)
        return json_line({name: record[name] for name in self._names if name in record}).encode("utf-8")

    def _writer(self, batch: MessageColumns, plain: Bodies | None) -> JsonLineWriter:
        assert batch.window is not None
        places = np.empty((3, batch.rows), np.int64)
        if plain is None:
            places[:] = IN_WINDOW
        else:
            places[:] = plain.positions, plain.lengths, np.where(plain.is_unpacked, UNPACKED, IN_WINDOW)
            places[2, list(plain.errors)] = LEFT
        topics, ends = self._topic_texts(batch.topics)
        unpacked = np.empty(0, np.uint8) if plain is None else plain.unpacked
        found = np.zeros((FOUND_ROWS, MOST_PROPERTIES), np.int64)
        longs, ints = np.ascontiguousarray(batch.longs), np.ascontiguousarray(batch.ints)
        given: list[Any] = [self._fields, self._texts, self._ends, _unsafe_points()]
        given += [*views(found, batch.window, longs, ints), topics, ends, *views(places, unpacked)]
        return JsonLineWriter(*given)

    def _topic_texts(self, topics: TopicIds) -> tuple[bytes, memoryview]:
        """The topics met so far as JSON has them, and where each one ends."""
        of, count, texts, ends = self._topics
        if of is not topics or count != len(topics):
            names = topics.names[: len(topics)]
            made = [visible_json(json.dumps(name, ensure_ascii=False)).encode("utf-8") for name in names]
            texts, (ends,) = b"".join(made), views(np.cumsum([0, *map(len, made)], dtype=np.int32))
            self._topics = topics, len(names), texts, ends
        return texts, ends


def _message(batch: MessageColumns, row: int) -> StoredMessage:
    assert batch.window is not None
    size = int(batch.size[row])
    begin = int(batch.property_position[row] + batch.property_length[row]) - size
    place = int(batch.physical_offset[row])
    return decode_message(batch.window[begin : begin + size].data, 0, size, place, check_crc=False)


def _damage(batch: MessageColumns, plain: Bodies | None) -> list[tuple[int, CorruptError]]:
    if plain is None or not plain.errors:
        return []
    rows = [row for row in sorted(plain.errors) if batch.body_length[row]]
    found = ((row, unread_body_error(_message(batch, row))) for row in rows)
    return [(row, error) for row, error in found if error is not None]


def _field(name: str) -> tuple[tuple[int, int], Columns]:
    if name in _FIELDS:
        kind, needs = _FIELDS[name]
        return (kind, 0), needs
    is_long, column = NUMBERS[name]
    return (NUMBER, -1 - column if is_long else column), Columns.HEAD


@functools.cache
def _unsafe_points() -> bytes:
    """By code point: whether a terminal would obey or hide it."""
    table = bytearray(sys.maxunicode + 1)
    for first, last in UNSAFE_RANGES:
        table[first : last + 1] = b"\1" * (last + 1 - first)
    return bytes(table)
