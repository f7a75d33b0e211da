"""Lines of JSON as rows for a bulk append: the same messages as `message_input` makes of each line by itself."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import LOCAL_HOST, Message, parse_host
from rmqctl.formats.properties import UNIQUE_KEY
from rmqctl.messages.input import NAMED_BY, message_from_line
from rmqctl.messages.json import JSON_ORDER
from rmqctl.network.unique_ids import UniqueIds
from rmqctl.store.log.columns import Int64s
from rmqctl.store.native import json_in
from rmqctl.store.native.json_in import (
    BEGIN,
    END,
    HOSTS,
    ID_AT,
    ID_LENGTH,
    IGNORED,
    LINE,
    MOST_PROPERTIES,
    NUMBER,
    TOPICS,
    LineReader,
)
from rmqctl.store.native.tables import HOST_TABLE, Frame, FrameSpan
from rmqctl.store.native.uncompiled import views
from rmqctl.store.write.bulk.bulk import BulkRows
from rmqctl.store.write.prepare import UNUSUAL_PROPERTIES
from rmqctl.store.write.put import packed_host

_INT, _LONG = (1 << 31) - 1, (1 << 63) - 1
# the column of a number, the least, the most, and whether null means that there is none
_NUMBERS = {
    "queue_id": (Frame.QUEUE_ID, 0, _INT, False),
    "flag": (Frame.FLAG, -_INT - 1, _INT, False),
    "sys_flag": (Frame.SYS_FLAG, -_INT - 1, _INT, False),
    "reconsume_times": (Frame.RECONSUME_TIMES, -_INT - 1, _INT, False),
    "prepared_transaction_offset": (Frame.PREPARED, -_LONG - 1, _LONG, False),
    "born_timestamp": (Frame.BORN_TIMESTAMP, -_LONG - 1, _LONG, True),
    "store_timestamp": (Frame.STORE_TIMESTAMP, -_LONG - 1, _LONG, True),
}
_TEXTS = {
    "topic": (json_in.TEXT, json_in.TOPIC),
    "body": (json_in.TEXT, json_in.BODY),
    "body_base64": (json_in.BASE64, json_in.BODY),
    "born_host": (json_in.TEXT, json_in.BORN_HOST),
    "store_host": (json_in.TEXT, json_in.STORE_HOST),
    "tags": (json_in.TEXT, json_in.TAGS),
    "properties_base64": (json_in.BASE64, json_in.STORED_PROPERTIES),
    "stored_body_base64": (json_in.BASE64, json_in.STORED_BODY),
    "keys": (json_in.KEYS, 0),
    "properties": (json_in.MAP, 0),
    "body_error": (json_in.NULL, 0),
    **dict.fromkeys(NAMED_BY, (json_in.NAMED_BY, 0)),
}
_TEXTS_OF_A_LINE = 7
_NOTES = 4
_ID_ROOM = len(UNIQUE_KEY) + ID_LENGTH + 2
# a host of IPv6, which sends a row to the slow path
_NO_HOST = -1


class LineRows:
    """Messages of some lines. `lines`: by row its line, counted from 0; `errors`: what is wrong with lines that are not
    among them."""

    def __init__(self, text: bytes | memoryview, as_stored: bool, needs_ids: bool) -> None:
        """`text`: less than 2 GiB. With `needs_ids` new messages get unique ids: see `give_ids`."""
        self._text = memoryview(text)
        self._as_stored = as_stored
        self._needs_ids = needs_ids
        given: list[Any] = [*_fields(), as_stored, needs_ids]
        self._reader = LineReader(*given)
        self.errors: dict[int, str] = {}
        topics, hosts = self._read()
        packed = self._packed(hosts)
        # by row: messages that were read plainly, and ids of those that need one
        self._messages: dict[int, Message] = {}
        self._ids: dict[int, str] = {}
        self._needing: list[int] = []
        kept = np.ones(len(self._good), np.bool_)
        for row in np.flatnonzero(self._good == 0).tolist():
            kept[row] = self._read_plainly(row)
        self._kept = np.flatnonzero(kept)
        self.lines: Int64s = self._notes[LINE, self._kept]
        self.rows = self._bulk_rows(topics, packed)

    def give_ids(self, ids: UniqueIds) -> None:
        """Give the new messages, in their order, ids as `UniqueIds.given_to` gives them."""
        has_room = (self._good != 0) & (self._notes[ID_AT] >= 0)
        needing = has_room.copy()
        needing[self._needing] = True
        rows = np.flatnonzero(needing)
        made = ids.take(len(rows))
        is_written = has_room[rows]
        self._reader.write_ids(made[is_written].tobytes())
        plain = zip(rows[~is_written].tolist(), made[~is_written], strict=True)
        self._ids = {row: one.tobytes().decode("ascii") for row, one in plain}

    def _read(self) -> tuple[list[str], list[str]]:
        """Read the lines; their topics and hosts."""
        read = np.frombuffer(self._text, np.uint8)
        size = len(read)
        # several times as fast as counting in bytes, which goes from one to the next
        most = int(np.count_nonzero(read == ord("\n"))) + 1
        columns = np.empty((len(Frame), most), np.int64)
        starts, ends = np.zeros((2, len(FrameSpan), most), np.int64)
        notes, good = np.empty((_NOTES, most), np.int64), np.zeros(most, np.uint8)
        self._bodies, self._properties = np.empty(size, np.uint8), np.empty(size + most * _ID_ROOM, np.uint8)
        told_apart, counts = np.empty((4, 2 * most), np.int64), np.zeros(2, np.int64)
        slots = np.full((2, 1 << (4 * most).bit_length()), -1, np.int32)
        spans = np.empty((2, _TEXTS_OF_A_LINE + MOST_PROPERTIES), np.int64)
        scratch, texts = np.empty((2, size), np.uint8)
        filled = (
            columns, starts, ends, notes, good, self._bodies, self._properties,
            scratch, spans, told_apart, slots, counts, texts,
        )  # fmt: skip
        rows, _ = self._reader.read(self._text, *views(*filled))
        self._columns, self._starts, self._ends, self._notes = columns, starts, ends, notes
        if rows < most:
            self._columns, self._starts, self._ends, self._notes = (
                np.ascontiguousarray(one[:, :rows]) for one in (columns, starts, ends, notes)
            )
        self._good = good[:rows]
        found = []
        for table in (TOPICS, HOSTS):
            places = told_apart[2 * table : 2 * table + 2, : counts[table]].T.tolist()
            found.append([bytes(texts[begin:end]).decode("utf-8") for begin, end in places])
        return found[0], found[1]

    def _packed(self, hosts: list[str]) -> list[bytes]:
        """The packed hosts of the rows, whose numbers are put in their place; rows of hosts that are none are left."""
        packed: list[bytes] = [bytes(8)]
        places: list[int] = []
        for host in hosts:
            try:
                one = packed_host(parse_host(host))
            except UsageError:
                one = None
            places.append(_NO_HOST if one is None else len(packed))
            packed += [] if one is None else [one]
        for column, missing in ((Frame.BORN_HOST, len(packed)), (Frame.STORE_HOST, HOST_TABLE)):
            by_number = np.array([*places, missing], np.int64)
            # what is left has no number; a line without a host has number -1, the last place
            found = by_number[np.where(self._good != 0, self._columns[column], -1)]
            self._good[found == _NO_HOST] = 0
            self._columns[column] = found
        return [*packed, packed_host(LOCAL_HOST) or bytes(8)]

    def _read_plainly(self, row: int) -> bool:
        """Read a line that was left; whether it is a message."""
        self._columns[:, row] = 0
        self._starts[:, row] = self._ends[:, row] = 0
        line = self._line(row)
        if not line.strip():
            return False
        try:
            message, is_new = message_from_line(line, self._as_stored)
        except UsageError as error:
            self.errors[int(self._notes[LINE, row])] = error.message
            return False
        self._messages[row] = message
        if self._needs_ids and is_new and message.property_bytes is None and UNIQUE_KEY not in message.properties:
            self._needing.append(row)
        return True

    def _line(self, row: int) -> bytes:
        """With its line end, which a syntax error may name."""
        return bytes(self._text[int(self._notes[BEGIN, row]) : int(self._notes[END, row]) + 1])

    def _bulk_rows(self, topics: list[str], hosts: list[bytes]) -> BulkRows:
        tables = self._columns, self._starts, self._ends, self._good != 0
        if len(self._kept) < len(self._good):
            tables = (*(one.take(self._kept, axis=1) for one in tables[:3]), tables[3][self._kept])
        bodies, properties = self._bodies.data, self._properties.data
        return BulkRows(
            *tables[:3], bodies, properties, topics or [""], hosts, tables[3], self._message, self._as_stored
        )

    def _message(self, place: int) -> Message:
        row = int(self._kept[place])
        message = self._messages.get(row) or message_from_line(self._line(row), self._as_stored)[0]
        made = self._ids.get(row)
        at = int(self._notes[ID_AT, row])
        if self._good[row] and at >= 0:
            made = self._properties[at : at + ID_LENGTH].tobytes().decode("ascii")
        return message if made is None else message._replace(properties={**message.properties, UNIQUE_KEY: made})


@functools.cache
def _fields() -> tuple[bytes, memoryview, memoryview, memoryview, bytes, memoryview]:
    """What a LineReader asks of fields."""
    limits = np.zeros((3, len(JSON_ORDER)), np.int64)
    fields = np.zeros((2, len(JSON_ORDER)), np.int32)
    for place, name in enumerate(JSON_ORDER):
        if name in _NUMBERS:
            column, *limits[:, place] = _NUMBERS[name]
            fields[:, place] = NUMBER, column
        else:
            fields[:, place] = _TEXTS.get(name, (IGNORED, 0))
    names, special = [name.encode("ascii") for name in JSON_ORDER], sorted(name.encode() for name in UNUSUAL_PROPERTIES)
    return (b"".join(names), _ends(names), *views(fields, limits), b"".join(special), _ends(special))


def _ends(texts: list[bytes]) -> memoryview:
    ends: memoryview
    (ends,) = views(np.cumsum([0, *map(len, texts)], dtype=np.int32))
    return ends
