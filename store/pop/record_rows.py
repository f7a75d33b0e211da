"""Records of POP in the bodies of many messages at once: rows of checkpoints and acknowledgements.

Those that are as brokers write them are taken here; every other one is left to `records`, by whose fields these go.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.store.log.columns import Bytes, Flags, Int32s, Int64s, MessageColumns
from rmqctl.store.native import json_fields
from rmqctl.store.native.json_fields import FieldReader
from rmqctl.store.native.uncompiled import views
from rmqctl.store.pop import records
from rmqctl.store.pop.records import ACK, ACK_TAG, BATCH_ACK, BATCH_ACK_TAG, CHECKPOINT, CHECKPOINT_TAG, Field

_KINDS = {
    records.TEXT: json_fields.NAME,
    records.INT: json_fields.NUMBER,
    records.LONG: json_fields.NUMBER,
    records.OFFSETS: json_fields.LIST,
    records.BOOL: json_fields.FLAG,
    records.NOTE: json_fields.IGNORED,
}
# whose a record is says its queue as well
_OWN_KINDS = {"q": json_fields.OWNER_NUMBER}
_FIELDS = sorted(
    {field.name: field for field in (*CHECKPOINT, *ACK, *BATCH_ACK)}.values(), key=lambda field: field.name
)
# a record that has one of these is left
_OLD = [
    field.old_name
    for field in _FIELDS
    if field.old_name is not None and not field.is_required and field.kind != records.NOTE
]
_NAMES = [*(field.name for field in _FIELDS), *_OLD]
_AT = {name: number for number, name in enumerate(_NAMES)}
_OLD_BITS = sum(1 << _AT[name] for name in _OLD)


def _required(fields: tuple[Field, ...]) -> int:
    return sum(1 << _AT[field.name] for field in fields if field.is_required)


class Owners(NamedTuple):
    """Whose records these are: group, topic, queue and a number that came with each row, by the number of the owner."""

    number_of: Int32s
    keys: list[tuple[str, str, int, int]]


class CheckpointRows(NamedTuple):
    """Checkpoints: the rows of the messages that they are in and their fields, as of PopCheckpoint. `gaps`: the
    distances of those that leave offsets out."""

    rows: Int64s
    start: Int64s
    popped_at: Int64s
    invisible: Int64s
    number: Int64s
    acked: Int64s
    suspend: Int64s
    gaps: dict[int, list[int]]


class AckRows(NamedTuple):
    """Acknowledgements, one for each message: likewise."""

    rows: Int64s
    start: Int64s
    popped_at: Int64s
    offset: Int64s


class RecordRows(NamedTuple):
    """What a batch has. `left`: rows to look at each."""

    owners: Owners
    checkpoints: CheckpointRows
    acks: AckRows
    left: Int64s


class RowReader:
    """Reads the records of batches."""

    def __init__(self) -> None:
        text = "".join(_NAMES).encode()
        ends = np.cumsum([0, *map(len, _NAMES)], dtype=np.int32)
        kinds = [_OWN_KINDS.get(field.name, _KINDS[field.kind]) for field in _FIELDS]
        self._reader = FieldReader(
            text, *views(ends, np.array([*kinds, *([json_fields.IGNORED] * len(_OLD))], np.int32))
        )
        self._made = 0

    def _grow(self, rows: int) -> None:
        """Make the tables at least `rows` long; they are used for one batch after the other."""
        if rows <= self._made:
            return
        self._made = rows
        self._values, self._ends = np.zeros((2, len(_NAMES), rows), np.int64)
        self._items = np.zeros(records.MOST_AT_ONCE * rows, np.int64)
        self._seen, self._number = np.zeros((2, rows), np.int64)
        self._slots = np.empty(1 << (2 * rows).bit_length(), np.int32)
        self._firsts, self._owners, self._begin, self._end = np.zeros((4, rows), np.int32)

    def read(self, batch: MessageColumns, extra: Int64s) -> RecordRows:
        """Return the records of a batch. `extra`: a number of each row that says whose it is, too."""
        assert batch.window is not None
        rows = len(batch)
        self._grow(rows)
        self._slots[:] = -1
        window = np.ascontiguousarray(batch.window)
        (text,) = views(window)
        bodies = views(*map(np.ascontiguousarray, (batch.body_position, batch.body_length)))
        tables = views(self._values, self._ends, self._items, self._seen, self._slots, self._firsts, self._owners)
        count = self._reader.read(text, *bodies, *views(np.ascontiguousarray(extra, np.int64)), *tables)
        tag = self._tags(window, batch)
        seen = self._seen[:rows]
        start, queue_id = self._of("so", rows), self._of("q", rows)
        good = (seen != json_fields.LEFT) & (seen & _OLD_BITS == 0) & (batch.sys_flag & SYS_FLAG_COMPRESSED == 0)
        good &= (start >= 0) & (queue_id >= 0) & (queue_id < 1 << 31)
        good &= _has(seen, _required(CHECKPOINT), tag == 1) & _has(seen, _required(ACK), tag == 2)
        good &= _has(seen, _required(BATCH_ACK), tag == 3)
        good[tag == 1] &= self._is_ordinary(seen, batch)[tag == 1]
        chosen = good & (tag > 0)
        owners = Owners(self._owners[:rows].copy(), self._keys(window, count, extra))
        checkpoints, acks = self._checkpoints(np.flatnonzero(chosen & (tag == 1)), seen), self._acks(chosen, tag)
        return RecordRows(owners, checkpoints, acks, np.flatnonzero((tag > 0) & ~chosen))

    def _of(self, name: str, rows: int) -> Int64s:
        found: Int64s = self._values[_AT[name], :rows]
        return found

    def _tags(self, window: Bytes, batch: MessageColumns) -> Int64s:
        """Return which kind of record each message has by its tag, 0 for none."""
        self._property(window, batch, names.TAGS)
        begin, length = self._begin[: len(batch)], (self._end - self._begin)[: len(batch)]
        found = np.zeros(len(batch), np.int64)
        for number, tag in enumerate((CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG), 1):
            rows = np.flatnonzero((length == len(tag)) & (begin >= 0))
            here = window[begin[rows][:, None] + np.arange(len(tag))] == np.frombuffer(tag.encode(), np.uint8)
            found[rows[here.all(axis=1)]] = number
        return found

    def _property(self, window: Bytes, batch: MessageColumns, name: str) -> None:
        places = map(np.ascontiguousarray, (batch.property_position, batch.property_length))
        found: list[Any] = [*views(window, *places), name.encode(), *views(self._begin, self._end, self._number)]
        self._reader.properties(*found)

    def _is_ordinary(self, seen: Int64s, batch: MessageColumns) -> Flags:
        """Return which checkpoints are as brokers write them: what `doubts` says nothing of."""
        rows = len(seen)
        count, popped, invisible = (self._of(name, rows) for name in ("n", "pt", "it"))
        begin, length, last = self._distances(seen)
        used = self._items[: max(1, int((begin + length).max(initial=0)))]
        falls = np.zeros(len(used), np.int64)
        np.cumsum(used[1:] <= used[:-1], out=falls[1:])
        has = length > 0
        is_rising = ~has | (falls[np.where(has, begin + length - 1, 0)] == falls[np.where(has, begin, 0)])
        ordinary: Flags = (count >= 0) & (count <= records.MOST_AT_ONCE) & (~has | (length == count)) & is_rising
        ordinary &= (~has | (self._items[np.where(has, begin, 0)] >= 0)) & (invisible >= 0)
        acked = self._known("bm", seen)
        ordinary &= (acked >= -(1 << 31)) & (acked < 1 << 31) & (last < 1 << 62)
        self._property(batch.window if batch.window is not None else np.empty(0, np.uint8), batch, records.DELIVER_MS)
        deliver = self._number[:rows]
        ordinary &= (self._begin[:rows] < 0) | (deliver == popped + invisible - records.EARLY_MS) | (deliver == popped)
        return ordinary

    def _known(self, name: str, seen: Int64s) -> Int64s:
        """Return a field that may be missing, and is 0 then."""
        return np.where(seen >> _AT[name] & 1, self._of(name, len(seen)), 0)

    def _distances(self, seen: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return where the distances of each row begin, how many there are, and the last one."""
        begin = self._known("d", seen)
        length = np.where(seen >> _AT["d"] & 1, self._ends[_AT["d"], : len(seen)] - begin, 0)
        return begin, length, self._items[np.maximum(begin + length - 1, 0)]

    def _checkpoints(self, rows: Int64s, seen: Int64s) -> CheckpointRows:
        start, popped, invisible, count = (self._of(name, len(seen))[rows] for name in ("so", "pt", "it", "n"))
        begin, length, last = (column[rows] for column in self._distances(seen))
        gaps = {
            at: self._items[begin[at] : begin[at] + length[at]].tolist()
            for at in np.flatnonzero((length > 0) & (last != length - 1)).tolist()
        }
        acked, suspend = self._known("bm", seen)[rows], self._known("sp", seen)[rows]
        return CheckpointRows(rows, start, popped, invisible, count, acked, suspend, gaps)

    def _acks(self, chosen: Flags, tag: Int64s) -> AckRows:
        single, batched = (np.flatnonzero(chosen & (tag == number)) for number in (2, 3))
        begin = self._of("aol", len(tag))[batched]
        length = self._ends[_AT["aol"], : len(tag)][batched] - begin
        places = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(int(length.sum()))
        rows = np.concatenate([single, np.repeat(batched, length)])
        offsets = np.concatenate([self._of("ao", len(tag))[single], self._items[places]])
        return AckRows(rows, self._of("so", len(tag))[rows], self._of("pt", len(tag))[rows], offsets)

    def _keys(self, window: Bytes, count: int, extra: Int64s) -> list[tuple[str, str, int, int]]:
        found, data = [], window.data
        for row in self._firsts[:count].tolist():
            group, topic = (
                bytes(data[self._values[_AT[name], row] : self._ends[_AT[name], row]]).decode() for name in ("c", "t")
            )
            found.append((group, topic, int(self._values[_AT["q"], row]), int(extra[row])))
        return found


def _has(seen: Int64s, bits: int, wanted: Flags) -> Flags:
    """Return which rows have all fields, of those that are to have them."""
    found: Flags = ~wanted | (seen & bits == bits)
    return found
