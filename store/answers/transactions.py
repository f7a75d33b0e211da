"""Transactional messages that have neither been committed nor rolled back: `rmqctl halves`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_long, whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError, counted
from rmqctl.formats.layouts import TRANSACTION_MASK
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.notebook import as_html
from rmqctl.formats.properties import TRANSACTION_COMMIT
from rmqctl.store.answers.config_offsets import CONSUMER_FILE, consumer_table, offset_key, offsets_of
from rmqctl.store.answers.undispatched import (
    CHECK_TIMES,
    GIVEN_UP_TOPIC,
    GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    PRODUCER_GROUP,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    ended_offsets,
    undispatched,
)
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.options import Events
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import TopicFilter
from rmqctl.store.read.get import QueueView
from rmqctl.store.read.query import NotIndexedError
from rmqctl.store.read.reader import StoreReader

PENDING = "pending"
EXPIRED = "expired"
COMMITTED = "committed"
ENDED = "ended"
UNKNOWN = "unknown"
DAMAGED = "damaged"
_TOPICS = {HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC}


class HalfMessage(NamedTuple):
    """A half message without an end. `age_ms`: since it was born; `checks`: how often its producers were asked for its
    end. None is what is not known; `detail` says why.

    `queue_offset` is that in RMQ_SYS_TRANS_HALF_TOPIC, by which an end names it, or in `half_topic`.
    """

    queue_id: int
    queue_offset: int
    state: str
    age_ms: int | None = None
    checks: int | None = None
    producer_group: str | None = None
    target_topic: str | None = None
    target_queue_id: int | None = None
    unique_key: str | None = None
    physical_offset: int | None = None
    born_timestamp: int | None = None
    store_timestamp: int | None = None
    detail: str = ""
    half_topic: str = HALF_TOPIC

    def _repr_html_(self) -> str:
        return as_html(self)


class _Ends(NamedTuple):
    """Queue offsets of half messages that have an end; `unreadable`: op messages that may end others."""

    offsets: set[int]
    unreadable: int


def unresolved_halves(reader: StoreReader, now: int) -> Iterator[HalfMessage]:
    """Half messages without an end at `now` (ms), the oldest place first (TransactionalMessageServiceImpl#check).

    Looked at are those from the offset on up to which the broker has dealt with all. Of these an op message may name
    the end; a later copy of the same unique key takes a message's place, because a producer who is asked makes one; and
    the broker gives up what it asked for too often. UnsupportedError for queues in a RocksDB.
    """
    starts = _starts(reader)
    behind = undispatched(reader.files, reader.events, TopicFilter(_TOPICS))
    queues = reader.files.queues.of_topics(_TOPICS.__contains__)
    ops = {queue.queue_id: queue for queue in queues if queue.topic == OP_TOPIC}
    given_up: set[str] | None = None
    for queue in queues:
        if queue.topic != HALF_TOPIC:
            continue
        view = reader.view_without_ext(queue)
        op_queue = ops.get(queue.queue_id)
        op_view = None if op_queue is None else reader.view_without_ext(op_queue)
        begin, op_begin = _begins(view, op_view, starts, reader.events)
        ends = _ends(op_view, op_begin, reader.events)
        for mark in behind.of(OP_TOPIC):
            if mark.queue_id == queue.queue_id:
                ends.offsets.update(ended_offsets(mark.body))
        lost = _LostEnds(reader, op_view)
        found = list(_candidates(view, begin, ends, reader.events))
        new = [half for half in behind.of(HALF_TOPIC) if half.queue_id == queue.queue_id]
        found += [(half.queue_offset, half, "") for half in new if half.queue_offset not in ends.offsets]
        if found and given_up is None:
            given_up = _unique_keys(reader, queues)
        last = {message.properties().get(names.UNIQUE_KEY): offset for offset, message, _ in found if message}
        for offset, message, why in found:
            if message is None:
                yield HalfMessage(queue.queue_id, offset, DAMAGED, detail=why)
                continue
            key = message.properties().get(names.UNIQUE_KEY)
            if key is not None and (last[key] != offset or key in (given_up or ())):
                continue
            yield _as_long_kept(lost.told(_half(message, now, ends)), reader.files.config)
    yield from _in_rocksdb(reader, queues, now)


def _in_rocksdb(reader: StoreReader, queues: list[AnyConsumeQueue], now: int) -> Iterator[HalfMessage]:
    """The half messages that `rocksdbstore/` leads to (transRocksDBEnable), and those that the next start takes in
    there: of what comes after the last one it has, marks end some (TransMessageRocksDBStore#buildTransIndex)."""
    halves, ops = (
        next((queue for queue in queues if queue.topic == topic), None)
        for topic in (ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)
    )
    rows: dict[int, int] = {}
    reached, why = -1, ""
    try:
        storage = reader.files.message_storage
        if storage is not None:
            rows = {one.physical_offset: one.checks for one in storage.transactions(reader.events.damaged)}
            taken = storage.transactions_to(reader.events.damaged)
            reached = -1 if taken is None else taken
    except CorruptError as error:
        why = f"which of them are open is not known: {error.message}"
        if halves is not None:
            reader.events.damaged(error)
    ended, unreadable = set[int](), 0
    for _, op, _ in _later(reader, ops, reached):
        offset = None if op is None else parse_long(op.properties().get(names.TRANS_OFFSET, ""))
        unreadable += op is None
        ended.update([] if offset is None else [offset])
    found: list[tuple[int, StoredMessage | None, str]] = []
    for place in sorted(rows.keys() - ended):
        try:
            half = reader.lookup(place)
            found.append((half.queue_offset, half, ""))
        except NotFoundError:  # it has expired, and the broker drops it
            continue
        except CorruptError as error:
            reader.events.damaged(error)
            found.append((-1, None, error.message))
    found += _later(reader, halves, reached)
    ends, lost = _Ends(set(), unreadable), _LostEnds(reader, None)
    for offset, message, problem in found:
        if message is None:
            yield HalfMessage(0, offset, DAMAGED, detail=problem, half_topic=ROCKSDB_HALF_TOPIC)
        elif message.topic == ROCKSDB_HALF_TOPIC and message.physical_offset not in ended:
            checks = rows.get(message.physical_offset, 0)
            one = _half(message, now, ends)._replace(half_topic=ROCKSDB_HALF_TOPIC, checks=checks)
            yield one._replace(state=UNKNOWN, detail=why, checks=None) if why else lost.told(one)


def _later(
    reader: StoreReader, queue: AnyConsumeQueue | None, reached: int
) -> Iterator[tuple[int, StoredMessage | None, str]]:
    """Queue offset and message of what a queue has after a physical offset; without the message what is in its way."""
    if queue is not None:
        begin = queue.min_offset(reader.files.log.min_offset)
        first = next(
            (one.queue_offset for one in queue.units(begin) if one.physical_offset > reached), queue.max_offset
        )
        yield from _candidates(reader.view_without_ext(queue), first, _Ends(set(), 0), reader.events)


class _LostEnds:
    """Ends of half messages that are open all the same: the mark is lost, or was put after the half message had been
    copied, which the broker does not notice. They are found by the unique key, through the index."""

    def __init__(self, reader: StoreReader, ops: QueueView | None) -> None:
        self._reader = reader
        self._ops = ops
        self._is_indexed = True
        self._ended: _Ends | None = None

    def told(self, half: HalfMessage) -> HalfMessage:
        """`half`: committed where its target topic holds a committed message with its unique key, ended where a mark
        names an earlier copy of it."""
        if half.unique_key is None or half.target_topic is None or not self._is_indexed:
            return half
        try:
            found = self._reader.indexed(half.target_topic, half.unique_key)
            copies = self._reader.indexed(HALF_TOPIC, half.unique_key) if half.checks else None
        except NotIndexedError:
            self._is_indexed = False
            self._reader.events.noted(
                "there is no index: whether one of these has an end that the broker does not know is not known"
            )
            return half
        for error in (*found.damaged, *(copies.damaged if copies is not None else ())):
            self._reader.events.damaged(error)
        for message in found.messages:
            is_same = message.properties().get(names.UNIQUE_KEY) == half.unique_key
            if is_same and message.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
                detail = f"committed at offset {message.physical_offset}, which the broker does not know: it asks again"
                return half._replace(state=COMMITTED, detail=detail)
        if copies is None:
            return half
        ends = self._all_ends()
        for copy in copies.messages:
            if copy.queue_id == half.queue_id and copy.queue_offset in ends.offsets:
                detail = f"its copy {copy.queue_offset} has an end, which the broker does not know: it asks again"
                return half._replace(state=ENDED, detail=detail)
        return half._replace(state=UNKNOWN, detail=_unreadable(ends)) if ends.unreadable else half

    def _all_ends(self) -> _Ends:
        """What any mark that is left names, however old."""
        if self._ended is None:
            begin = 0 if self._ops is None else self._ops.queue.min_offset(self._ops.log.min_offset)
            self._ended = _ends(self._ops, begin, self._reader.events)
        return self._ended


def _starts(reader: StoreReader) -> dict[tuple[str, int], int]:
    """By topic and queue, up to where the broker has dealt with all."""
    kept = consumer_table(reader.files.layout.config, reader.files.config, reader.events)
    starts: dict[tuple[str, int], int] = {}
    for key, table in (kept.table or {}).items():
        owner = offset_key(key)
        if owner is not None and owner.group == GROUP and not owner.is_broadcast and isinstance(table, dict):
            starts |= {(owner.topic, queue_id): offset for queue_id, offset in offsets_of(table).items()}
    return starts


def _begins(
    view: QueueView, ops: QueueView | None, starts: dict[tuple[str, int], int], events: Events
) -> tuple[int, int]:
    """Where to begin in a half queue and in its op queue. Both offsets go together: ends before the one are of half
    messages before the other. If one is missing or past its queue, both queues are read whole, with a note."""
    views = [view] if ops is None else [view, ops]
    begins = [one.queue.min_offset(one.log.min_offset) for one in views]
    known = [starts.get((one.queue.topic, one.queue.queue_id)) for one in views]
    for one, start in zip(views, known, strict=True):
        if start is not None and start > one.queue.max_offset:
            where = f"{CONSUMER_FILE}: offset {start} of {GROUP} in {one.queue.topic}"
            events.noted(f"{where} is past the end {one.queue.max_offset}: all half messages are checked")
            known = [None]
    if None not in known:
        begins = [max(begin, start or 0) for begin, start in zip(begins, known, strict=True)]
    return begins[0], begins[-1]


def _ends(view: QueueView | None, begin: int, events: Events) -> _Ends:
    if view is None:
        return _Ends(set(), 0)
    offsets: set[int] = set()
    unreadable = 0
    for unit in view.queue.units(begin, view.queue.max_offset):
        try:
            offsets.update(ended_offsets(view.message_of(unit).body))
        except NotFoundError:
            continue  # removed by a cleaner while we looked
        except CorruptError as error:
            unreadable += 1
            events.damaged(error)
    return _Ends(offsets, unreadable)


def _candidates(
    view: QueueView, begin: int, ends: _Ends, events: Events
) -> Iterator[tuple[int, StoredMessage | None, str]]:
    """Queue offset and message of the half messages that no op message ends; without the message what is in its way."""
    for unit in view.queue.units(begin, view.queue.max_offset):
        if unit.queue_offset in ends.offsets:
            continue
        try:
            yield unit.queue_offset, view.message_of(unit), ""
        except NotFoundError:
            continue
        except CorruptError as error:
            events.damaged(error)
            yield unit.queue_offset, None, error.message


def _unique_keys(reader: StoreReader, queues: list[AnyConsumeQueue]) -> set[str]:
    """Unique keys of what the broker has given up."""
    keys: set[str] = set()
    for queue in queues:
        if queue.topic == GIVEN_UP_TOPIC:
            for _, message, _ in _candidates(reader.view_without_ext(queue), 0, _Ends(set(), 0), reader.events):
                if message is not None:
                    keys.add(message.properties().get(names.UNIQUE_KEY, ""))
    return keys


def _unreadable(ends: _Ends) -> str:
    return f"{ends.unreadable} of the messages that name ends cannot be read" if ends.unreadable else ""


_USUAL_CHECKS = 15


def why_given_up(age_ms: int, checks: int | None, config: StoreConfig) -> str | None:
    """Return why a broker gives up a half message of this age at its next check, and asks no producer; None if it does
    not (TransactionalMessageServiceImpl#needDiscard, #needSkip)."""
    known = config.transaction_check_max
    transaction_check_max = _USUAL_CHECKS if known is None else known
    # who has asked more often than is usual has another setting, which is not known here
    if checks and (checks == transaction_check_max or (known is not None and checks > known)):
        return f"asked {counted(checks, 'time')}, of at most {transaction_check_max} (transactionCheckMax)"
    if age_ms > config.file_reserved_time * 3_600_000:
        return f"older than fileReservedTime, {config.file_reserved_time} hours"
    return None


def _as_long_kept(half: HalfMessage, config: StoreConfig) -> HalfMessage:
    if half.state != PENDING or half.age_ms is None:
        return half
    why = why_given_up(half.age_ms, half.checks, config)
    return half if why is None else half._replace(state=EXPIRED, detail=f"{why}: no producer is asked any more")


def _half(message: StoredMessage, now: int, ends: _Ends) -> HalfMessage:
    properties = message.properties()
    return HalfMessage(
        message.queue_id,
        message.queue_offset,
        UNKNOWN if ends.unreadable else PENDING,
        now - message.born_timestamp,
        whole_number(properties.get(CHECK_TIMES, "0")),
        properties.get(PRODUCER_GROUP),
        properties.get(names.REAL_TOPIC),
        whole_number(properties.get(names.REAL_QUEUE_ID, "")),
        properties.get(names.UNIQUE_KEY),
        message.physical_offset,
        message.born_timestamp,
        message.store_timestamp,
        _unreadable(ends),
    )
