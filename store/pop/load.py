"""Read the records of POP that are not settled: of the revive topic, the timer and kvStore/, and ordered pops."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.config_offsets import offset_key, table_in, unread_part
from rmqctl.store.files.layout import is_database
from rmqctl.store.log.column_walk import columns_at
from rmqctl.store.log.columns import Flags, Int64s, MessageColumns, TopicIds
from rmqctl.store.native.tables import Columns
from rmqctl.store.pop.columns import PopColumns
from rmqctl.store.pop.records import (
    IN_TIMER,
    KV_FAMILY,
    KV_FOLDER,
    ORDER_FILE,
    REVIVE_GROUP,
    REVIVE_PREFIX,
    Acknowledgement,
    KvEntry,
    OrderedPop,
    PopCheckpoint,
    RecordError,
    kv_entry,
    ordered_pop,
    revive_queues,
    revive_record,
    timer_queue,
)
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.timer.pending import PendingTimer, UnitRows, in_order, pending_messages, units_of, ways_of
from rmqctl.store.timer.recovered import recover_timer

ReadsNext = Callable[[str, str, int], int | None]
"""What a group (first) reads next in a topic's queue; None where that is not kept."""
TakeTimer = Callable[[], PendingTimer | None]


_LOW_WORD = (1 << 32) - 1
_ENTRIES_AT_ONCE = 8192
# what RowReader reads
_NEEDS = Columns.HEAD | Columns.TOPIC | Columns.BYTES


class ReviveMessage(NamedTuple):
    """A message with a record. `revive`: the topic and queue that it is for; `place`: in the revive topic, or IN_TIMER;
    `is_lost`: the timer never delivers it."""

    message: StoredMessage
    revive: tuple[str, int]
    place: int
    record_offset: int
    is_lost: bool = False

    @property
    def name(self) -> str:
        """Its topic, queue and queue offset."""
        queue_id = 0 if self.place == IN_TIMER else self.revive[1]
        return f"{self.message.topic} {queue_id} {self.record_offset}"


class UnusableRecordError(CorruptError):
    """A record of POP that a broker passes over."""


RecordLook = Callable[[ReviveMessage | bytes, PopCheckpoint | Acknowledgement | KvEntry], None]


class ReviveBatch(NamedTuple):
    """Messages with records, as columns: `revives` are the topics and queues that they are for, `revive` the number of
    each one's; the others as of ReviveMessage."""

    batch: MessageColumns
    revives: list[tuple[str, int]]
    revive: Int64s
    place: Int64s
    record_offset: Int64s
    is_lost: Flags

    def message(self, row: int) -> ReviveMessage:
        """Return one of them. FrameDamage if the log was changed meanwhile."""
        where = (self.revives[int(self.revive[row])], int(self.place[row]), int(self.record_offset[row]))
        return ReviveMessage(self.batch.message(row), *where, bool(self.is_lost[row]))


def load_columns(
    reader: StoreReader,
    reads_next: ReadsNext,
    look: RecordLook | None = None,
    *,
    sees_all: bool = False,
    now: int | None = None,
    timer: TakeTimer = lambda: None,
) -> PopColumns:
    """Return all records that are not settled. What is malformed or damaged is reported, and left out. `look` gets each
    record that is not as brokers write it, with where it is from; with `sees_all` every one. `now` (ms): the timer has
    lost what a broker that starts then passes over. `timer` gives what waits in it, where that was read already.
    UnreadableError."""
    found, rows = PopColumns(), None
    for one in _revived(reader, reads_next, now, timer):
        if isinstance(one, ReviveMessage):
            _add(found, reader, one, look)
            continue
        left: Iterable[int] = range(len(one.batch))
        if not sees_all:
            from rmqctl.store.pop.columns import RowReader

            rows = rows or RowReader()
            read = rows.read(one.batch, one.revive)
            found.add_rows(read, one.revives, one.place, one.record_offset, one.batch.physical_offset, one.is_lost)
            left = read.left.tolist()
        for row in left:
            try:
                message = one.message(row)
            except CorruptError as error:
                reader.events.damaged(error)
            else:
                _add(found, reader, message, look)
    _add_entries(found, reader, look, sees_all=sees_all)
    return found


def _add(found: PopColumns, reader: StoreReader, one: ReviveMessage, look: RecordLook | None) -> None:
    try:
        record = revive_record(one.message.properties().get(names.TAGS), one.message.plain_body())
    except (RecordError, RmqctlError) as error:
        said = f"{one.name} is no checkpoint and no acknowledgement of POP: {error.args[0]}"
        reader.events.damaged(UnusableRecordError(said, physical_offset=one.message.physical_offset))
        return
    if look is not None and record is not None:
        look(one, record)
    if isinstance(record, PopCheckpoint):
        where = (one.place, one.record_offset, one.message.physical_offset)
        found.add(record, one.revive, where, is_lost=one.is_lost)
    elif record is not None:
        found.add_ack(record, one.revive, one.place, is_lost=one.is_lost)


def revive_messages(reader: StoreReader, reads_next: ReadsNext) -> Iterator[ReviveMessage]:
    """Yield the messages behind the offsets of the revive group, and those that wait in the timer for its topic."""
    for one in _revived(reader, reads_next):
        if isinstance(one, ReviveMessage):
            yield one
        else:
            yield from map(one.message, range(len(one.batch)))


def _revived(
    reader: StoreReader, reads_next: ReadsNext, now: int | None = None, taken: TakeTimer = lambda: None
) -> Iterator[ReviveBatch | ReviveMessage]:
    """Yield these, as many at once as are as usual."""
    queues, timer = revive_queues(reader.files), timer_queue(reader.files)
    if queues:
        yield from _in_topics(reader, queues, reads_next)
    if timer is not None:
        yield from _in_timer(reader, timer, now, taken)


def _in_topics(
    reader: StoreReader, queues: list[AnyConsumeQueue], reads_next: ReadsNext
) -> Iterator[ReviveBatch | ReviveMessage]:
    """Yield the messages of these queues in the order of the log, in which they alternate."""
    topics, revives, streams = TopicIds(), [(queue.topic, queue.queue_id) for queue in queues], []
    for queue in queues:
        # its offset is that of the last record that is settled, where those of other groups are the next to read
        settled = reads_next(REVIVE_GROUP, queue.topic, queue.queue_id)
        begin = max(queue.min_offset(reader.files.log.min_offset), 0 if settled is None else settled + 1)
        streams.append(units_of(queue, begin, queue.max_offset))
    of_queues = np.array([queue.queue_id for queue in queues], np.int64)
    for number, units in _in_log_order(streams):
        offsets = units["queue_offset"].copy()
        places = units["physical_offset"].copy(), units["size"].astype(np.int64)
        for part, batch in columns_at(reader.files.log, *places, topics, _NEEDS):
            alone: Iterable[int] = range(part.start, part.stop)
            if batch is not None:
                at, of = offsets[part], number[part]
                fits = (batch.queue_id == of_queues[of]) & (batch.queue_offset == at)
                for one in set(of.tolist()):
                    fits &= (of != one) | batch.is_of_topic(revives[one][0])
                chosen, at = batch if fits.all() else batch.take(np.flatnonzero(fits)), at[fits]
                yield ReviveBatch(chosen, revives, of[fits], at, at, np.zeros(len(at), np.bool_))
                alone = (part.start + np.flatnonzero(~fits)).tolist()
            for row in alone:
                unit, one = QueueUnit(*units[row].tolist()), int(number[row])
                try:
                    message = reader.view_without_ext(queues[one]).message_of(unit)
                    yield ReviveMessage(message, revives[one], unit.queue_offset, unit.queue_offset)
                except NotFoundError:  # removed by a cleaner while we looked
                    continue
                except CorruptError as error:
                    reader.events.damaged(error)


def _in_log_order(streams: list[Iterator[UnitRows]]) -> Iterator[tuple[Int64s, UnitRows]]:
    """Yield the units of all streams with their numbers by physical offset, some at a time."""
    held: dict[int, UnitRows] = {}
    left = dict(enumerate(streams))
    while True:
        for number in [number for number in left if number not in held]:
            units = next(left[number], None)
            if units is None:
                del left[number]
            else:
                held[number] = units[np.argsort(units["physical_offset"], kind="stable")]
        if not held:
            return
        bound = min(int(units["physical_offset"][-1]) for units in held.values())
        taken = {}
        for number, units in list(held.items()):
            end = int(np.searchsorted(units["physical_offset"], bound, side="right"))
            taken[number], held[number] = units[:end], units[end:]
            if end == len(units):
                del held[number]
        joined = np.concatenate(list(taken.values()))
        order = np.argsort(joined["physical_offset"], kind="stable")
        yield np.repeat(np.array(list(taken), np.int64), list(map(len, taken.values())))[order], joined[order]


def _in_timer(
    reader: StoreReader, queue: AnyConsumeQueue, now: int | None, taken: TakeTimer
) -> Iterator[ReviveBatch | ReviveMessage]:
    pending = taken()
    if pending is None:
        try:
            timer = recover_timer(reader, queue)
        except CorruptError as error:
            reader.events.damaged(error)
            return
        except UnreadableError as error:
            reader.events.damaged(unread_part(error))
            return
        pending = pending_messages(reader, queue, timer)
        del timer
    rows = in_order(pending.of_topics(lambda topic: topic.startswith(REVIVE_PREFIX)), "physical_offset")
    keys = rows["topic"].astype(np.int64) << 32 | rows["queue_id"] + 1
    known, number = np.unique(keys, return_inverse=True)
    revives = [(pending.topics[key >> 32], (key & _LOW_WORD) - 1) for key in known.tolist()]
    never = ways_of(rows) == 0 if now is None else pending.is_passed(now, rows)
    record_offsets = rows["queue_offset"].copy()
    places, sizes = rows["physical_offset"].copy(), rows["size"].astype(np.int64)
    del pending, rows
    for part, batch in columns_at(reader.files.log, places, sizes, TopicIds(), _NEEDS):
        offsets, is_lost = record_offsets[part], never[part]
        if batch is not None:
            at = np.full(len(batch), IN_TIMER, np.int64)
            yield ReviveBatch(batch, revives, number[part], at, offsets, is_lost)
            continue
        for place, one, offset, lost in zip(places[part], number[part], offsets, is_lost, strict=True):
            with contextlib.suppress(NotFoundError):
                message = reader.lookup(int(place))
                yield ReviveMessage(message, revives[int(one)], IN_TIMER, int(offset), bool(lost))


def _add_entries(found: PopColumns, reader: StoreReader, look: RecordLook | None, *, sees_all: bool) -> None:
    from rmqctl.store.pop.entries import KvReader

    entries, keys, values = KvReader(), list[bytes](), list[bytes]()

    def taken() -> None:
        left: Iterable[int] = range(len(keys))
        if not sees_all and keys:
            rows, left = entries.read(keys, values)
            found.add_entries(rows)
        for row in left:
            entry = _entry(reader, keys[row], values[row])
            if isinstance(entry, CorruptError):
                reader.events.damaged(entry)
                continue
            found.add_entry(entry)
            if look is not None:
                look(keys[row], entry)
        keys.clear()
        values.clear()

    def damaged(error: CorruptError) -> None:
        taken()
        reader.events.damaged(error)

    for key, value in _stored_entries(reader, damaged):
        keys.append(key)
        values.append(value)
        if len(keys) == _ENTRIES_AT_ONCE:
            taken()
    taken()


def kv_entries(reader: StoreReader) -> Iterator[tuple[bytes, KvEntry | CorruptError]]:
    """Yield the entries of kvStore/ with their keys; for one that is malformed the error. Damage of the database is
    reported. UnreadableError."""
    for key, value in _stored_entries(reader, reader.events.damaged):
        yield key, _entry(reader, key, value)


def _entry(reader: StoreReader, key: bytes, value: bytes) -> KvEntry | CorruptError:
    try:
        return kv_entry(value)
    except RecordError as error:
        folder = reader.files.root / KV_FOLDER
        return UnusableRecordError(f"entry of key {key.hex()} is no record of POP: {error}", file=folder)


def _stored_entries(reader: StoreReader, damaged: Callable[[CorruptError], None]) -> Iterator[tuple[bytes, bytes]]:
    folder = reader.files.root / KV_FOLDER
    if not is_database(folder):
        return
    from rmqctl.store.rocksdb.database import Database

    try:
        yield from Database(folder).scan(KV_FAMILY, damaged)
    except CorruptError as error:
        damaged(error)


def load_ordered(reader: StoreReader) -> dict[tuple[str, str, int], OrderedPop]:
    """Return the last ordered pop of each group, topic and queue. What is malformed is reported."""
    path = reader.files.layout.config / ORDER_FILE
    table = table_in(path, "table", reader.events._replace(note=None)) or {}
    found: dict[tuple[str, str, int], OrderedPop] = {}
    for name, queue_id, entry in order_entries(table):
        owner = offset_key(name)
        if owner is None or queue_id is None or isinstance(entry, RecordError):
            said = f"{name} queue {queue_id} is no ordered pop" + (
                f": {entry}" if isinstance(entry, RecordError) else ""
            )
            reader.events.damaged(UnusableRecordError(said, file=path))
        else:
            found[owner.group, owner.topic, queue_id] = entry
    return found


def order_entries(table: Mapping[Any, Any]) -> Iterator[tuple[str, int | None, OrderedPop | RecordError]]:
    """Yield what a table of consumerOrderInfo.json has of each `topic@group` and queue."""
    for name, by_queue in table.items():
        if not isinstance(by_queue, Mapping):
            yield str(name), None, RecordError("not an object")
            continue
        for queue_id, entry in by_queue.items():
            try:
                number = int(queue_id)
            except ValueError:
                yield str(name), None, RecordError(f"{queue_id!r} is not a queue")
                continue
            try:
                yield str(name), number, ordered_pop(entry)
            except RecordError as error:
                yield str(name), number, error
