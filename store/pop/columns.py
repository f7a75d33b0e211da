"""What was handed out and what of it is acknowledged, as columns: a million records take some 100 bytes each."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.store.log.columns import Bytes, Flags, Int32s, Int64s, MessageColumns
from rmqctl.store.log.parallel import give_back_memory
from rmqctl.store.log.property_columns import FoundProperties, found_properties
from rmqctl.store.native import json_fields
from rmqctl.store.native.json_fields import FieldReader
from rmqctl.store.native.uncompiled import views
from rmqctl.store.pop import records
from rmqctl.store.pop.records import (
    ACK,
    ACK_TAG,
    BATCH_ACK,
    BATCH_ACK_TAG,
    CHECKPOINT,
    CHECKPOINT_TAG,
    FS,
    IN_TIMER,
    KV,
    MOST_AT_ONCE,
    Acknowledgement,
    Field,
    HandedOut,
    KvEntry,
    PopCheckpoint,
    PopOwner,
    Totals,
)

_ALL_BITS = (1 << 32) - 1
_ANY = np.iinfo(np.int64).max

# how many bits are set in each byte
_BITS = np.array(list(map(int.bit_count, range(256))), np.uint8)
# the messages of a record that leaves no offset out
_REACH = MOST_AT_ONCE + 1
_Longs = np.ndarray[tuple[int], np.dtype[np.int64]]


class PopColumns:
    """Takes records, then matches acknowledgements with checkpoints, and answers."""

    def __init__(self) -> None:
        self.owners: list[PopOwner] = []
        self._number_of: dict[PopOwner, int] = {}
        # of checkpoints, and of entries of kvStore/ as checkpoints of one message
        self._owner, self._count = array("i"), array("B")
        self._start, self._popped, self._invisible = array("q"), array("q"), array("q")
        self._place, self._record, self._physical = array("q"), array("q"), array("q")
        # bits of acknowledged messages
        self._acked = array("I")
        self._flags = array("B")
        # of those that leave offsets out: where their distances begin
        self._gaps: dict[int, int] = {}
        self._distances = array("q")
        # of acknowledgements
        self._ack_owner = array("i")
        self._ack_start, self._ack_popped, self._ack_offset = array("q"), array("q"), array("q")
        self._ack_place, self._ack_lost = array("q"), array("B")
        self.unmatched = 0
        """Acknowledgements of what no checkpoint that is left hands out: a broker drops them."""
        self.early = 0
        """Those that reach the revive topic before their checkpoint, where a broker drops them as well."""
        self.lost_acks = 0
        """Those that the timer never delivers, of checkpoints that it does."""
        self._is_matched = True

    def __len__(self) -> int:
        return len(self._owner)

    def add(self, one: PopCheckpoint, revive: tuple[str, int], where: tuple[int, int, int], *, is_lost: bool) -> None:
        """Take a checkpoint. `revive`: the topic and queue that it is for; `where`: its place, the offset of its
        record in its queue, and in the log."""
        owner = PopOwner(one.group, one.topic, one.queue_id, FS, *revive)
        if one.distances != tuple(range(len(one.distances))):
            self._gaps[len(self._owner)] = len(self._distances)
            self._distances.extend(one.distances)
        self._add(self._number(owner), one.start, len(one.distances), one.popped_at, one.invisible)
        self._acked.append(one.acked & _ALL_BITS)
        self._flags.append(is_lost | one.suspend << 1)
        for column, value in zip((self._place, self._record, self._physical), where, strict=True):
            column.append(value)
        self._is_matched = False

    def add_entry(self, one: KvEntry) -> None:
        """Take an entry of kvStore/."""
        owner = PopOwner(one.group, one.topic, one.queue_id, KV, "", -1)
        self._add(self._number(owner), one.offset, 1, one.popped_at, one.invisible)
        self._acked.append(0)
        self._flags.append(one.suspend << 1)
        for column in (self._place, self._record, self._physical):
            column.append(-1)

    def add_entries(self, found: KvRows) -> None:
        """Take many of them."""
        rows, numbers = len(found.owner), np.array([*map(self._number, found.owners), 0], np.int32)
        none = np.full(rows, -1, np.int64)
        for column, values in (
            (self._owner, numbers[found.owner]),
            (self._count, np.ones(rows, np.uint8)),
            (self._start, found.offset),
            (self._popped, found.popped_at),
            (self._invisible, found.invisible),
            (self._acked, np.zeros(rows, np.uint32)),
            (self._flags, (found.suspend << 1).astype(np.uint8)),
            (self._place, none),
            (self._record, none),
            (self._physical, none),
        ):
            column.frombytes(np.ascontiguousarray(values).data.cast("B"))

    def _add(self, owner: int, start: int, count: int, popped_at: int, invisible: int) -> None:
        self._owner.append(owner)
        self._start.append(start)
        self._count.append(count)
        self._popped.append(popped_at)
        self._invisible.append(invisible)

    def add_ack(self, one: Acknowledgement, revive: tuple[str, int], place: int, *, is_lost: bool) -> None:
        """Take an acknowledgement. `revive` and `place`: as of a checkpoint."""
        number = self._number(PopOwner(one.group, one.topic, one.queue_id, FS, *revive))
        for offset in one.offsets:
            self._ack_owner.append(number)
            self._ack_start.append(one.start)
            self._ack_popped.append(one.popped_at)
            self._ack_offset.append(offset)
            self._ack_place.append(place)
            self._ack_lost.append(is_lost)
        self._is_matched = False

    def add_rows(
        self, found: RecordRows, revives: list[tuple[str, int]], places: Int64s, offsets: Int64s, physical: Int64s,
        is_lost: Flags,
    ) -> None:  # fmt: skip
        """Take the records of a batch. `revives`: the topics and queues that they are for, by the number of whose they
        are; `places`, `offsets` of records in their queue, `physical` ones and `is_lost` by row."""
        numbers = np.zeros(len(found.owners.keys), np.int32)
        rows = np.concatenate([found.checkpoints.rows, found.acks.rows])
        for number in np.flatnonzero(np.bincount(found.owners.number_of[rows], minlength=1)).tolist():
            group, topic, queue_id, revive = found.owners.keys[number]
            numbers[number] = self._number(PopOwner(group, topic, queue_id, FS, *revives[revive]))
        own, base = found.checkpoints, len(self._owner)
        for at, distances in own.gaps.items():
            self._gaps[base + at] = len(self._distances)
            self._distances.extend(distances)
        flags = is_lost[own.rows] | own.suspend << 1
        for column, values in (
            (self._owner, numbers[found.owners.number_of[own.rows]]),
            (self._count, own.number.astype(np.uint8)),
            (self._start, own.start),
            (self._popped, own.popped_at),
            (self._invisible, own.invisible),
            (self._acked, own.acked.astype(np.uint32)),
            (self._flags, flags.astype(np.uint8)),
            (self._place, places[own.rows]),
            (self._record, offsets[own.rows]),
            (self._physical, physical[own.rows]),
        ):
            column.frombytes(np.ascontiguousarray(values).data.cast("B"))
        acks = found.acks
        for column, values in (
            (self._ack_owner, numbers[found.owners.number_of[acks.rows]]),
            (self._ack_start, acks.start),
            (self._ack_popped, acks.popped_at),
            (self._ack_offset, acks.offset),
            (self._ack_place, places[acks.rows]),
            (self._ack_lost, is_lost[acks.rows].astype(np.uint8)),
        ):
            column.frombytes(np.ascontiguousarray(values).data.cast("B"))
        self._is_matched = False

    def _number(self, owner: PopOwner) -> int:
        found = self._number_of.get(owner)
        if found is None:
            found = self._number_of[owner] = len(self.owners)
            self.owners.append(owner)
        return found

    # ---- matching

    def match(self) -> None:
        """Set the bits of acknowledged messages, and leave out checkpoints that are there twice."""
        if self._is_matched:
            return
        self._is_matched = True
        give_back_memory()
        checkpoints = len(self._owner)
        owner = np.concatenate([_ints(self._owner), _ints(self._ack_owner)])
        popped = np.concatenate([_longs(self._popped), _longs(self._ack_popped)])
        start = np.concatenate([_longs(self._start), _longs(self._ack_start)])
        place = np.concatenate([_longs(self._place), _longs(self._ack_place)])
        place[place == IN_TIMER] = _ANY
        is_ack = np.arange(len(owner)) >= checkpoints
        order = np.lexsort((place, is_ack, start, popped, owner))
        begins = np.ones(len(order), bool)
        begins[1:] = np.logical_or.reduce([one[order][1:] != one[order][:-1] for one in (owner, popped, start)])
        # for each record the first one with its key, which is a checkpoint if there is one
        first = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
        acks = np.flatnonzero(is_ack[order] & (first < checkpoints))
        self.unmatched = len(self._ack_owner) - len(acks)
        # of a lost checkpoint nothing comes again: then they say what was done
        is_lost = np.frombuffer(self._ack_lost, np.uint8)[order[acks] - checkpoints].astype(bool)
        is_lost &= np.frombuffer(self._flags, np.uint8)[first[acks]] & 1 == 0
        self.lost_acks = int(np.count_nonzero(is_lost))
        acks = acks[~is_lost]
        in_time = place[order[acks]] >= place[first[acks]]
        self.early = int(np.count_nonzero(~in_time))
        acks = acks[in_time]
        self._set_bits(first[acks], _longs(self._ack_offset)[order[acks] - checkpoints])
        np.frombuffer(self._count, np.uint8)[order[~is_ack[order] & ~begins]] = 0

    def _set_bits(self, rows: _Longs, offsets: _Longs) -> None:
        """Set the bits of these offsets in these checkpoints; what a checkpoint does not hand out has none."""
        bits = offsets - _longs(self._start)[rows]
        for at in np.flatnonzero(np.isin(rows, np.fromiter(self._gaps, np.int64, len(self._gaps)))).tolist():
            distances, distance = self._distances_of(int(rows[at])), int(bits[at])
            bits[at] = distances.index(distance) if distance in distances else -1
        counts = np.frombuffer(self._count, np.uint8)[rows]
        good = (bits >= 0) & (bits < counts)
        self.unmatched += int(np.count_nonzero(~good))
        values = np.left_shift(np.uint32(1), bits[good].astype(np.uint32))
        np.bitwise_or.at(np.frombuffer(self._acked, np.uint32), rows[good], values)

    # ---- answers

    def is_any(self, group: str, topic: str) -> bool:
        """Return whether there is a record of the group in the topic."""
        return any((one.group, one.topic) == (group, topic) for one in self.owners)

    def totals(self, now: int) -> dict[PopOwner, Totals]:
        """Return for each owner how many messages are in which state at `now` (ms)."""
        self.match()
        if not self._owner:
            return {one: Totals() for one in self.owners}
        owner, counts = _ints(self._owner), np.frombuffer(self._count, np.uint8).astype(np.int64)
        acked = self._acked_counts()
        still = counts - acked
        deadline = _longs(self._popped) + _longs(self._invisible)
        is_lost = (np.frombuffer(self._flags, np.uint8) & 1).astype(bool)
        visible = deadline > now
        size = len(self.owners)
        columns = [
            np.bincount(owner, np.where(chosen, values, 0), size).astype(np.int64).tolist()
            for chosen, values in (
                (visible & ~is_lost, still),
                (~visible & ~is_lost, still),
                (counts > 0, acked),
                (is_lost, still),
            )
        ]
        first, last = np.full(size, _ANY), np.full(size, -_ANY)
        waits = still > 0
        np.minimum.at(first, owner[waits], deadline[waits])
        np.maximum.at(last, owner[waits], deadline[waits])
        ends = zip(first.tolist(), last.tolist(), strict=True)
        spans = [(begin, end) if begin != _ANY else (None, None) for begin, end in ends]
        return {one: Totals(*numbers, *span) for one, span, *numbers in zip(self.owners, spans, *columns, strict=True)}

    def count_from(self, offsets: list[int]) -> list[int]:
        """Return for each owner how many of its messages are at the offset of it, or after that."""
        self.match()
        if not self._owner:
            return [0] * len(self.owners)
        owner, counts = _ints(self._owner), np.frombuffer(self._count, np.uint8).astype(np.int64)
        limits = np.asarray(offsets, np.int64)[owner]
        after = np.clip(_longs(self._start) + counts - limits, 0, counts)
        for row in self._gaps:
            after[row] = sum(self._start[row] + one >= limits[row] for one in self._distances_of(row))
        return [int(one) for one in np.bincount(owner, after, len(self.owners))]

    def ends(self) -> list[int]:
        """Return for each owner the offset after the last one handed out, as far as records leave none out."""
        found = np.zeros(len(self.owners), np.int64)
        counts = np.frombuffer(self._count, np.uint8).astype(np.int64) if self._owner else np.empty(0, np.int64)
        np.maximum.at(found, _ints(self._owner), _longs(self._start) + counts)
        return found.tolist()

    def _acked_counts(self) -> _Longs:
        """Return how many messages of each record are acknowledged."""
        counts = np.frombuffer(self._count, np.uint8).astype(np.uint64)
        kept = (np.left_shift(np.uint64(1), counts) - np.uint64(1)).astype(np.uint32)
        by_byte = (np.frombuffer(self._acked, np.uint32) & kept).view(np.uint8).reshape(-1, 4)
        found: _Longs = _BITS[by_byte].sum(axis=1, dtype=np.int64)
        return found

    def messages(self, is_wanted: Callable[[PopOwner], bool]) -> Iterator[HandedOut]:
        """Yield the messages of owners that are wanted, by group, topic, queue and offset of their records."""
        self.match()
        ranks = np.full(len(self.owners) + 1, -1)
        chosen = [number for number, owner in enumerate(self.owners) if is_wanted(owner)]
        places = {place: rank for rank, place in enumerate(sorted({self.owners[number][:3] for number in chosen}))}
        for number in chosen:
            ranks[number] = places[self.owners[number][:3]]
        rank_of = ranks[_ints(self._owner)] if len(self._owner) else np.empty(0, np.int64)
        rows = np.flatnonzero(rank_of >= 0)
        order = rows[np.lexsort((_longs(self._popped)[rows], _longs(self._start)[rows], rank_of[rows]))]
        for row in map(int, order):
            yield from self._of_row(row)

    def of_message(self, group: str, topic: str, queue_id: int, queue_offset: int) -> list[HandedOut]:
        """Return each time that a message was handed out to a group, as far as records are left."""
        self.match()
        place = (group, topic, queue_id)
        numbers = [number for number, one in enumerate(self.owners) if one[:3] == place]
        if not numbers:
            return []
        start = _longs(self._start)
        # a record reaches as far as its distances do, which are bounded nowhere
        near = (start <= queue_offset) & (
            (start > queue_offset - _REACH) | np.isin(np.arange(len(start)), [*self._gaps])
        )
        rows = np.flatnonzero(np.isin(_ints(self._owner), numbers) & near)
        return [one for row in rows.tolist() for one in self._of_row(row) if one.queue_offset == queue_offset]

    def _distances_of(self, row: int) -> Sequence[int]:
        begin = self._gaps.get(row)
        return range(self._count[row]) if begin is None else self._distances[begin : begin + self._count[row]]

    def _of_row(self, row: int) -> Iterator[HandedOut]:
        start, popped = self._start[row], self._popped[row]
        acked, flags = self._acked[row], self._flags[row]
        for at, distance in enumerate(self._distances_of(row)):
            yield HandedOut(
                self.owners[self._owner[row]],
                start + distance,
                start,
                popped,
                popped + self._invisible[row],
                bool(acked >> at & 1),
                bool(flags & 1),
                bool(flags & 2),
                self._place[row],
                self._record[row],
                self._physical[row],
            )


def _longs(column: array[int]) -> _Longs:
    return np.frombuffer(column, np.int64) if len(column) else np.empty(0, np.int64)


def _ints(column: array[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.frombuffer(column, np.int32) if len(column) else np.empty(0, np.int32)


# Records of POP in the bodies of many messages at once: rows of checkpoints and acknowledgements.
#
# Those that are as brokers write them are taken here; every other one is left to `records`, by whose fields these go.

KINDS = {
    records.TEXT: json_fields.NAME,
    records.INT: json_fields.NUMBER,
    records.LONG: json_fields.NUMBER,
    records.OFFSETS: json_fields.LIST,
    records.BOOL: json_fields.FLAG,
    records.NOTE: json_fields.IGNORED,
}
"""How a field of each kind of `records` is read."""
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


class KvRows(NamedTuple):
    """Entries of kvStore/: their fields as of KvEntry. `owners`: by the number that each one has in `owner`."""

    owners: list[PopOwner]
    owner: Int32s
    offset: Int64s
    popped_at: Int64s
    invisible: Int64s
    suspend: Int64s


class RecordRows(NamedTuple):
    """What a batch has. `left`: rows to look at each."""

    owners: Owners
    checkpoints: CheckpointRows
    acks: AckRows
    left: Int64s


class FieldTables:
    """The tables that a reader of fields fills, for one batch after the other. `lists`: how many items a list has."""

    def __init__(self, names: list[str], kinds: list[int], lists: int) -> None:
        ends = np.cumsum([0, *map(len, names)], dtype=np.int32)
        self._reader = FieldReader("".join(names).encode(), *views(ends, np.array(kinds, np.int32)))
        self._at = {name: number for number, name in enumerate(names)}
        self._lists, self._made = lists, 0

    def _grow(self, rows: int) -> None:
        """Make the tables at least `rows` long."""
        if rows <= self._made:
            return
        self._made = rows
        self._values, self._ends = np.zeros((2, len(self._at), rows), np.int64)
        self._items = np.zeros(self._lists * rows, np.int64)
        self._seen = np.zeros(rows, np.int64)
        self._slots = np.empty(1 << (2 * rows).bit_length(), np.int32)
        self._firsts, self._owners = np.zeros((2, rows), np.int32)

    def fill(self, window: Bytes, begins: Int32s, lengths: Int32s, extra: Int64s) -> tuple[Int64s, int]:
        """Read the objects at `begins`; return what each has, and how many owners there are. `extra`: a number of each
        row that says whose it is, too."""
        rows = len(begins)
        self._grow(rows)
        self._slots[:] = -1
        places = views(*map(np.ascontiguousarray, (begins, lengths)), np.ascontiguousarray(extra, np.int64))
        tables = views(self._values, self._ends, self._items, self._seen, self._slots, self._firsts, self._owners)
        count = self._reader.read(*views(window), *places, *tables)
        return self._seen[:rows], count

    def of(self, name: str, rows: int) -> Int64s:
        """Return a field of the rows."""
        found: Int64s = self._values[self._at[name], :rows]
        return found

    def known(self, name: str, seen: Int64s) -> Int64s:
        """Return a field that may be missing, and is 0 then."""
        return np.where(seen >> self._at[name] & 1, self.of(name, len(seen)), 0)

    def text(self, window: Bytes, name: str, row: int) -> str:
        """Return a name."""
        at = self._at[name]
        return window[self._values[at, row] : self._ends[at, row]].tobytes().decode()


class RowReader(FieldTables):
    """Reads the records of batches."""

    def __init__(self) -> None:
        kinds = [_OWN_KINDS.get(field.name, KINDS[field.kind]) for field in _FIELDS]
        super().__init__(_NAMES, [*kinds, *([json_fields.IGNORED] * len(_OLD))], records.MOST_AT_ONCE)

    def read(self, batch: MessageColumns, extra: Int64s) -> RecordRows:
        """Return the records of a batch. `extra`: a number of each row that says whose it is, too."""
        assert batch.window is not None
        rows = len(batch)
        window = np.ascontiguousarray(batch.window)
        seen, count = self.fill(window, batch.body_position, batch.body_length, extra)
        found = found_properties(batch, names.TAGS, records.DELIVER_MS)
        tag = np.zeros(rows, np.int64)
        for number, text in enumerate((CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG), 1):
            tag[found.has_text(names.TAGS, text.encode())] = number
        start, queue_id = self.of("so", rows), self.of("q", rows)
        good = (seen != json_fields.LEFT) & (seen & _OLD_BITS == 0) & (batch.sys_flag & SYS_FLAG_COMPRESSED == 0)
        good &= (start >= 0) & (queue_id >= 0) & (queue_id < 1 << 31)
        good &= _has(seen, _required(CHECKPOINT), tag == 1) & _has(seen, _required(ACK), tag == 2)
        good &= _has(seen, _required(BATCH_ACK), tag == 3)
        good[tag == 1] &= self._is_ordinary(seen, found)[tag == 1]
        chosen = good & (tag > 0)
        owners = Owners(self._owners[:rows].copy(), self._keys(window, count, extra))
        checkpoints, acks = self._checkpoints(np.flatnonzero(chosen & (tag == 1)), seen), self._acks(chosen, tag)
        return RecordRows(owners, checkpoints, acks, np.flatnonzero((tag > 0) & ~chosen))

    def _is_ordinary(self, seen: Int64s, found: FoundProperties) -> Flags:
        """Return which checkpoints are as brokers write them: what `doubts` says nothing of."""
        rows = len(seen)
        count, popped, invisible = (self.of(name, rows) for name in ("n", "pt", "it"))
        begin, length, last = self._distances(seen)
        used = self._items[: max(1, int((begin + length).max(initial=0)))]
        falls = np.zeros(len(used), np.int64)
        np.cumsum(used[1:] <= used[:-1], out=falls[1:])
        has = length > 0
        is_rising = ~has | (falls[np.where(has, begin + length - 1, 0)] == falls[np.where(has, begin, 0)])
        ordinary: Flags = (count >= 0) & (count <= records.MOST_AT_ONCE) & (~has | (length == count)) & is_rising
        ordinary &= (~has | (self._items[np.where(has, begin, 0)] >= 0)) & (invisible >= 0)
        acked = self.known("bm", seen)
        ordinary &= (acked >= -(1 << 31)) & (acked < 1 << 31) & (last < 1 << 62)
        starts, deliver = found.starts[1], found.numbers[1]
        ordinary &= (starts < 0) | (deliver == popped + invisible - records.EARLY_MS) | (deliver == popped)
        return ordinary

    def _distances(self, seen: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return where the distances of each row begin, how many there are, and the last one."""
        begin = self.known("d", seen)
        length = np.where(seen >> _AT["d"] & 1, self._ends[_AT["d"], : len(seen)] - begin, 0)
        return begin, length, self._items[np.maximum(begin + length - 1, 0)]

    def _checkpoints(self, rows: Int64s, seen: Int64s) -> CheckpointRows:
        start, popped, invisible, count = (self.of(name, len(seen))[rows] for name in ("so", "pt", "it", "n"))
        begin, length, last = (column[rows] for column in self._distances(seen))
        gaps = {
            at: self._items[begin[at] : begin[at] + length[at]].tolist()
            for at in np.flatnonzero((length > 0) & (last != length - 1)).tolist()
        }
        acked, suspend = self.known("bm", seen)[rows], self.known("sp", seen)[rows]
        return CheckpointRows(rows, start, popped, invisible, count, acked, suspend, gaps)

    def _acks(self, chosen: Flags, tag: Int64s) -> AckRows:
        single, batched = (np.flatnonzero(chosen & (tag == number)) for number in (2, 3))
        begin = self.of("aol", len(tag))[batched]
        length = self._ends[_AT["aol"], : len(tag)][batched] - begin
        places = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(int(length.sum()))
        rows = np.concatenate([single, np.repeat(batched, length)])
        offsets = np.concatenate([self.of("ao", len(tag))[single], self._items[places]])
        return AckRows(rows, self.of("so", len(tag))[rows], self.of("pt", len(tag))[rows], offsets)

    def _keys(self, window: Bytes, count: int, extra: Int64s) -> list[tuple[str, str, int, int]]:
        rows = self._firsts[:count].tolist()
        return [
            (self.text(window, "c", row), self.text(window, "t", row), int(self.of("q", row + 1)[row]), int(extra[row]))
            for row in rows
        ]


def _has(seen: Int64s, bits: int, wanted: Flags) -> Flags:
    """Return which rows have all fields, of those that are to have them."""
    found: Flags = ~wanted | (seen & bits == bits)
    return found
