"""Dead letters of consumer groups, in the %DLQ% topics: `rmqctl dlq list`."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError
from rmqctl.formats.layouts import TRANSACTION_MASK
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.notebook import as_html
from rmqctl.formats.properties import in_java_order
from rmqctl.store.answers.config_offsets import in_one
from rmqctl.store.answers.undispatched import CHECK_TIMES, IMMUNITY, PRODUCER_GROUP, undispatched
from rmqctl.store.options import Events
from rmqctl.store.pop.records import RETRY_PREFIX
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import Criteria, TopicFilter
from rmqctl.store.read.get import QueueView
from rmqctl.store.read.query import NotIndexedError
from rmqctl.store.read.reader import StoreReader

DLQ_PREFIX = "%DLQ%"
DEAD = "dead"
DAMAGED = "damaged"
# the second of each pair is what the gRPC proxy writes
ORIGIN_TOPIC = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
ORIGIN_ID = ("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID")


class DeadLetter(NamedTuple):
    """A dead letter of `group`. `origin_topic` and `origin_id`: the message that it was first, by its topic and the
    broker's offset id; `unique_key` is the same on both. `attempts`: how often it was consumed in vain, the last time
    just before `last_attempt_timestamp` (ms). None is what the message does not say, or what cannot be read."""

    group: str
    queue_id: int
    queue_offset: int
    state: str
    origin_topic: str | None = None
    origin_id: str | None = None
    unique_key: str | None = None
    keys: str | None = None
    attempts: int | None = None
    born_timestamp: int | None = None
    last_attempt_timestamp: int | None = None
    physical_offset: int | None = None
    detail: str = ""

    def _repr_html_(self) -> str:
        return as_html(self)


def dead_letters(reader: StoreReader, group: str | None, topic: str | None) -> Iterator[DeadLetter]:
    """Those of all groups, or of `group`; with `topic` those that came from there and those too that cannot be read. By
    group and queue offset. (AbstractSendMessageProcessor#consumerSendMsgBack). UnsupportedError for queues in a
    RocksDB."""

    def is_wanted(name: str) -> bool:
        return name.startswith(DLQ_PREFIX) and group in (None, name.removeprefix(DLQ_PREFIX))

    behind = undispatched(reader.files, reader.events, TopicFilter((DLQ_PREFIX + (group or "*"),)))
    for queue in reader.files.queues.of_topics(is_wanted):
        owner = queue.topic.removeprefix(DLQ_PREFIX)
        for row in _letters(reader.view_without_ext(queue), queue, owner, reader.events):
            if topic is None or row.state == DAMAGED or row.origin_topic == topic:
                yield row
    for message in behind.messages:
        if is_wanted(message.topic):
            row = _letter(message, message.topic.removeprefix(DLQ_PREFIX), message.queue_offset)
            if topic in (None, row.origin_topic):
                yield row._replace(detail="in no queue yet")


def _letters(view: QueueView, queue: AnyConsumeQueue, group: str, events: Events) -> Iterator[DeadLetter]:
    for unit in queue.units(queue.min_offset(view.log.min_offset), queue.max_offset):
        try:
            message = view.message_of(unit)
        except NotFoundError:
            continue  # removed by a cleaner while we looked
        except CorruptError as error:
            events.damaged(error)
            yield DeadLetter(group, queue.queue_id, unit.queue_offset, DAMAGED, detail=error.message)
            continue
        yield _letter(message, group, unit.queue_offset)


def _letter(message: StoredMessage, group: str, queue_offset: int) -> DeadLetter:
    properties = message.properties()
    return DeadLetter(
        group,
        message.queue_id,
        queue_offset,
        DEAD,
        said_first(properties, ORIGIN_TOPIC),
        said_first(properties, ORIGIN_ID),
        properties.get(names.UNIQUE_KEY),
        properties.get(names.KEYS),
        message.reconsume_times,
        message.born_timestamp,
        message.store_timestamp,
        message.physical_offset,
    )


def said_first(properties: Mapping[str, str], either: Sequence[str]) -> str | None:
    """What the first of these properties says that is there."""
    return next((properties[name] for name in either if name in properties), None)


# Dead letters as messages that their group is to get once more: `rmqctl dlq redrive`. Nothing is stored here.

MARK = "RMQCTL_REDRIVEN"
"""Property of a message that was a dead letter: the offset id of that one, by which a second redrive notices it."""
# what was said of the way that the message had behind it, which would be taken for that of the new one
_OF_THE_WAY = {
    names.DELAY,
    names.REAL_TOPIC,
    names.REAL_QUEUE_ID,
    names.CRC32,
    names.INNER_NUM,
    names.INNER_BASE,
    names.INNER_MULTI_DISPATCH,
    names.INNER_MULTI_QUEUE_OFFSET,
    PRODUCER_GROUP,
    CHECK_TIMES,
    IMMUNITY,
    "TRAN_MSG",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "__transactionId__",
    "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES",
    "CONSUME_START_TIME",
    "POP_CK",
    "POP_CK_OFFSET",
    "1ST_POP_TIME",
}
_TIMER_PREFIX = "TIMER_"
# retries of a message have its key, too
_MOST_COPIES = 1000

READY = "ready"
REDRIVEN = "redriven"
UNPLACED = "unplaced"


class Into(enum.StrEnum):
    """Where dead letters go: to the retry topic, which the group alone consumes, or to the topic that they came from,
    where every group gets them."""

    RETRY = "retry"
    ORIGIN = "origin"


class DeadChoice(NamedTuple):
    """Which dead letters: `begin` to `end` (ms, both included): when they were given up; `key`: one of their keys or
    their unique key; queue offsets of the %DLQ% topic from `offset` on, before `to_offset`; at most `limit` that
    are ready to be put, the oldest first."""

    begin: int | None = None
    end: int | None = None
    key: str | None = None
    offset: int = 0
    to_offset: int | None = None
    limit: int | None = None


class Redrive(NamedTuple):
    """One dead letter and what becomes of it. `state`: ready to be put as `message`; redriven before, as the message at
    `earlier_offset` (physical); unplaced, because the original topic is unknown; or damaged. `queue_offset` and
    `physical_offset` are those of the dead letter, `topic` and `queue_id` where it goes."""

    group: str
    queue_offset: int
    state: str
    topic: str | None = None
    queue_id: int | None = None
    origin_topic: str | None = None
    unique_key: str | None = None
    keys: str | None = None
    physical_offset: int | None = None
    earlier_offset: int | None = None
    detail: str = ""
    message: Message | None = None
    dead: StoredMessage | None = None

    def _repr_html_(self) -> str:
        return as_html(self)

    @property
    def is_ready(self) -> bool:
        """Whether it is to be put."""
        return self.state == READY


def redrives(
    reader: StoreReader, group: str, choice: DeadChoice, into: Into, *, again: bool = False
) -> Iterator[Redrive]:
    """The chosen dead letters of `group`, oldest first, those too that were redriven before, which are `ready` as well
    with `again`.

    A message keeps its body, keys, unique key, born time and host. Its count of retries starts at 0. In the retry topic
    RETRY_TOPIC tells the client what topic to show (DefaultMQPushConsumerImpl#resetRetryAndNamespace), and
    ORIGIN_MESSAGE_ID leads back to the first one as before; into the topic it came from it goes as a producer sends it.

    NotFoundError for a group without a %DLQ% topic; UnsupportedError for queues in a RocksDB.
    """
    if not group:
        raise UsageError("a group has a name")
    queues = reader.queues(DLQ_PREFIX + group)
    places = _Places(reader)
    seen = _Seen(reader)
    ready = 0
    for offset, dead, damage in _chosen(reader, queues, choice):
        if choice.limit is not None and ready >= choice.limit:
            return
        if dead is None:
            yield Redrive(group, offset, DAMAGED, detail=damage)
            continue
        row = _redrive(group, offset, dead, into, places, seen, again)
        ready += row.is_ready
        yield row


def _chosen(
    reader: StoreReader, queues: list[AnyConsumeQueue], choice: DeadChoice
) -> Iterator[tuple[int, StoredMessage | None, str]]:
    criteria = Criteria(key=choice.key, begin_time=choice.begin, end_time=choice.end)
    for queue in queues:
        view = reader.view_without_ext(queue)
        begin = max(queue.min_offset(view.log.min_offset), choice.offset)
        end = queue.max_offset if choice.to_offset is None else min(queue.max_offset, choice.to_offset)
        for unit in queue.units(begin, end):
            try:
                dead = view.message_of(unit)
            except NotFoundError:
                continue  # removed by a cleaner while we looked
            except CorruptError as error:
                reader.events.damaged(error)
                # it cannot say whether it is meant, unless by its place
                if choice.key is None and choice.begin is choice.end is None:
                    yield unit.queue_offset, None, error.message
                continue
            if criteria.matches(dead):
                yield unit.queue_offset, dead, ""
            for unsure in criteria.unsure_errors():
                reader.events.damaged(unsure)


def _redrive(
    group: str, offset: int, dead: StoredMessage, into: Into, places: _Places, seen: _Seen, again: bool
) -> Redrive:
    properties = dead.properties()
    origin, unique_key = said_first(properties, ORIGIN_TOPIC), properties.get(names.UNIQUE_KEY)
    row = Redrive(group, offset, READY, origin_topic=origin, unique_key=unique_key)
    row = row._replace(keys=properties.get(names.KEYS), physical_offset=dead.physical_offset, dead=dead)
    if into is Into.ORIGIN and origin is None:
        return row._replace(state=UNPLACED, detail="it does not say what topic it came from")
    topic = RETRY_PREFIX + group if into is Into.RETRY or origin is None else origin
    queue_id = 0 if into is Into.RETRY else places.queue_of(topic, said_first(properties, ORIGIN_ID))
    earlier, unknown = seen.earlier(topic, unique_key, dead.message_id)
    detail = in_one(None if origin else "it does not say what topic it came from: clients see the retry topic", unknown)
    row = row._replace(topic=topic, queue_id=queue_id, detail=detail, earlier_offset=earlier)
    if earlier is not None and not again:
        return row._replace(state=REDRIVEN)
    message = _message(dead, topic, queue_id, into, origin)
    return row._replace(message=message)


def _message(dead: StoredMessage, topic: str, queue_id: int, into: Into, origin: str | None) -> Message:
    before = dead.properties()
    kept = {
        name: value
        for name, value in before.items()
        if name not in (*_OF_THE_WAY, *ORIGIN_TOPIC, *ORIGIN_ID) and not name.startswith(_TIMER_PREFIX)
    }
    first_id = said_first(before, ORIGIN_ID)
    if into is Into.RETRY:
        kept |= {ORIGIN_TOPIC[0]: origin} if origin is not None else {}
        kept |= {ORIGIN_ID[0]: first_id} if first_id is not None else {}
    kept[MARK] = dead.message_id
    return Message(
        topic,
        dead.body,
        queue_id,
        dead.flag,
        in_java_order(kept),
        sys_flag=dead.sys_flag & ~TRANSACTION_MASK,
        born_timestamp=dead.born_timestamp,
        born_host=dead.born_host,
    )


class _Places:
    """Queues of the topics that dead letters came from."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._turns: dict[str, Iterator[int]] = {}

    def queue_of(self, topic: str, origin_id: str | None) -> int:
        """The queue in which the message was first, as far as it can be seen; else those of the topic in turn."""
        if origin_id is not None:
            try:
                first = self._reader.find(origin_id).messages
            except (NotFoundError, CorruptError, UsageError):
                first = []
            if first and first[0].topic == topic:
                return first[0].queue_id
        if topic not in self._turns:
            ids = [queue.queue_id for queue in self._reader.files.queues.of_topics(topic.__eq__)]
            self._turns[topic] = itertools.cycle(ids or [0])
        return next(self._turns[topic])


class _Seen:
    """Messages that were dead letters before, found by their unique key through the index."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    def earlier(self, topic: str, unique_key: str | None, dead_id: str) -> tuple[int | None, str | None]:
        """Physical offset of the message that this dead letter was made before; and why that is not known."""
        if unique_key is None:
            return None, "it has no unique key: whether it was redriven before is not known"
        try:
            found = self._reader.indexed(topic, unique_key, limit=_MOST_COPIES)
        except NotIndexedError:
            return None, "there is no index: whether it was redriven before is not known"
        for message in found.messages:
            if message.properties().get(MARK) == dead_id:
                return message.physical_offset, None
        if found.damaged:
            return None, "the index is damaged: whether it was redriven before is not known"
        return None, None
