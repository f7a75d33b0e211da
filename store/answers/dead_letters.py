"""Messages that consumer groups gave up, in the %DLQ% topics: `rmqctl dlq list`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.undispatched import undispatched
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.get import QueueView
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage

DLQ_PREFIX = "%DLQ%"
RETRY_PREFIX = "%RETRY%"
POP_SEPARATORS = ("+", "_")
"""What stands between group and topic in the name of a retry topic of POP, in its second version and in its first."""
DEAD = "dead"
DAMAGED = "damaged"
# the second of each pair is what the gRPC proxy writes
ORIGIN_TOPIC = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
ORIGIN_ID = ("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID")


class DeadLetter(NamedTuple):
    """One message that `group` gave up. `origin_topic` and `origin_id`: the message that it was first, by its topic and
    the broker's offset id; `unique_key` is the same on both. `attempts`: how often it was consumed in vain, the last
    time just before `last_attempt_timestamp` (ms). None is what the message does not say, or what cannot be read."""

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


def dead_letters(
    reader: StoreReader, group: str | None, topic: str | None, on_damage: OnDamage
) -> Iterator[DeadLetter]:
    """Those of all groups, or of `group`; with `topic` those that came from there and those too that cannot be read. By
    group and queue offset. (AbstractSendMessageProcessor#consumerSendMsgBack). UnsupportedError for queues in a
    RocksDB."""

    def is_wanted(name: str) -> bool:
        return name.startswith(DLQ_PREFIX) and group in (None, name.removeprefix(DLQ_PREFIX))

    behind = undispatched(reader.files, on_damage)
    for queue in reader.files.queues.of_topics(is_wanted):
        owner = queue.topic.removeprefix(DLQ_PREFIX)
        for row in _letters(reader.view_without_ext(queue), queue, owner, on_damage):
            if topic is None or row.state == DAMAGED or row.origin_topic == topic:
                yield row
    for message in behind.messages:
        if is_wanted(message.topic):
            row = _letter(message, message.topic.removeprefix(DLQ_PREFIX), message.queue_offset)
            if topic in (None, row.origin_topic):
                yield row._replace(detail="in no queue yet")


def _letters(view: QueueView, queue: AnyConsumeQueue, group: str, on_damage: OnDamage) -> Iterator[DeadLetter]:
    for unit in queue.units(queue.min_offset(view.log.min_offset), queue.max_offset):
        try:
            message = view.message_of(unit)
        except NotFoundError:
            continue  # removed by a cleaner while we looked
        except CorruptError as error:
            on_damage(error)
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


def pop_retry_topics(group: str, topic: str = "") -> tuple[str, ...]:
    """The retry topics of a group that consumes `topic` by POP: one for each topic (KeyBuilder#buildPopRetryTopic).
    Without a topic, what the names of all of them begin with."""
    return tuple(f"{RETRY_PREFIX}{group}{separator}{topic}" for separator in POP_SEPARATORS)


def said_first(properties: Mapping[str, str], either: Sequence[str]) -> str | None:
    """What the first of these properties says that is there."""
    return next((properties[name] for name in either if name in properties), None)
