"""Read the records of POP that are not settled: of the revive topic, the timer and kvStore/, and ordered pops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.config_offsets import offset_key, table_in, unread_part
from rmqctl.store.files.layout import is_database
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
)
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.timer.recovered import pending_messages, recover_timer

ReadsNext = Callable[[str, str, int], int | None]
"""What a group (first) reads next in a topic's queue; None where that is not kept."""


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


def load_columns(reader: StoreReader, reads_next: ReadsNext, look: RecordLook | None = None) -> PopColumns:
    """Return all records that are not settled. What is malformed or damaged is reported, and left out. `look` gets each
    record with where it is from. UnreadableError."""
    found = PopColumns()
    for one in revive_messages(reader, reads_next):
        try:
            record = revive_record(one.message.properties().get(names.TAGS), one.message.plain_body())
        except (RecordError, RmqctlError) as error:
            said = f"{one.name} is no checkpoint and no acknowledgement of POP: {error.args[0]}"
            reader.events.damaged(UnusableRecordError(said, physical_offset=one.message.physical_offset))
            continue
        if look is not None and record is not None:
            look(one, record)
        if isinstance(record, PopCheckpoint):
            where = (one.place, one.record_offset, one.message.physical_offset)
            found.add(record, one.revive, where, is_lost=one.is_lost)
        elif record is not None:
            found.add_ack(record, one.revive, one.place, is_lost=one.is_lost)
    for key, entry in kv_entries(reader):
        if isinstance(entry, KvEntry):
            found.add_entry(entry)
            if look is not None:
                look(key, entry)
        else:
            reader.events.damaged(entry)
    return found


def revive_messages(reader: StoreReader, reads_next: ReadsNext) -> Iterator[ReviveMessage]:
    """Yield the messages behind the offsets of the revive group, and those that wait in the timer for its topic."""
    queues = revive_queues(reader.files)
    if not queues:
        return
    for queue in queues:
        # its offset is that of the last record that is settled, where those of other groups are the next to read
        settled = reads_next(REVIVE_GROUP, queue.topic, queue.queue_id)
        begin = max(queue.min_offset(reader.files.log.min_offset), 0 if settled is None else settled + 1)
        yield from _in_topic(reader, queue, begin)
    yield from _in_timer(reader)


def _in_topic(reader: StoreReader, queue: AnyConsumeQueue, begin: int) -> Iterator[ReviveMessage]:
    view = reader.view_without_ext(queue)
    for unit in queue.units(begin, queue.max_offset):
        try:
            yield ReviveMessage(
                view.message_of(unit), (queue.topic, queue.queue_id), unit.queue_offset, unit.queue_offset
            )
        except NotFoundError:  # removed by a cleaner while we looked
            continue
        except CorruptError as error:
            reader.events.damaged(error)


def _in_timer(reader: StoreReader) -> Iterator[ReviveMessage]:
    queue = reader.files.queues.find(TIMER_TOPIC, 0)
    try:
        timer = recover_timer(reader, queue)
    except CorruptError as error:
        reader.events.damaged(error)
        return
    except UnreadableError as error:
        reader.events.damaged(unread_part(error))
        return
    for one in pending_messages(reader, queue, timer).messages:
        if one.topic.startswith(REVIVE_PREFIX):
            try:
                message = reader.lookup(one.physical_offset)
            except NotFoundError:
                continue
            revive = (one.topic, -1 if one.queue_id is None else one.queue_id)
            yield ReviveMessage(message, revive, IN_TIMER, one.queue_offset, one.is_lost)


def kv_entries(reader: StoreReader) -> Iterator[tuple[bytes, KvEntry | CorruptError]]:
    """Yield the entries of kvStore/ with their keys; for one that is malformed the error. Damage of the database is
    reported. UnreadableError."""
    folder = reader.files.root / KV_FOLDER
    if not is_database(folder):
        return
    from rmqctl.store.rocksdb.database import Database

    try:
        for key, value in Database(folder).scan(KV_FAMILY, reader.events.damaged):
            try:
                yield key, kv_entry(value)
            except RecordError as error:
                yield key, UnusableRecordError(f"entry of key {key.hex()} is no record of POP: {error}", file=folder)
    except CorruptError as error:
        reader.events.damaged(error)


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
