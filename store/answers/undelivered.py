"""Find delayed messages that a broker passed without delivering them: `rmqctl delays --undelivered`.

A delivery stores the message again in its topic (ScheduleMessageService#messageTimeUp), with its unique key, birth time
and number of retries. A message before the offset of its level without such a copy later in the log was not delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, UncertainError
from rmqctl.formats.hashing import whole_number
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.config_offsets import DELAY_FILE, OFFSET_TABLE, Say, offsets_of, table_in
from rmqctl.store.answers.delays import NOT_DELIVERED, UNKNOWN
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.config.config_start import why_unknown
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.read.message_filter import Criteria
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage, Selection
from rmqctl.store.read.topic_filter import TopicFilter, is_pattern

_Identity = tuple[str, str | None, int, int, int]


class UndeliveredMessage(NamedTuple):
    """A delayed message that its level passed, without a copy in `target_topic`.

    `state`: not-delivered, or unknown where damage later in the log may hide the copy. `queue_offset` counts in the
    queue of the level. Timestamps in ms; `due_timestamp` is the one that the broker went by.
    """

    level: int
    queue_offset: int
    physical_offset: int
    state: str
    due_timestamp: int
    target_topic: str | None
    target_queue_id: int | None
    unique_key: str | None
    keys: str | None
    store_timestamp: int


def undelivered(
    reader: StoreReader, tell: Say, on_damage: OnDamage, progress: Progress | None = None
) -> Iterator[UndeliveredMessage]:
    """Yield the messages before the offsets in config/delayOffset.json without a delivered copy, level by level.

    Raises: UnsupportedError for queues in a RocksDB.
    """
    waiting: dict[_Identity, deque[int]] = {}
    passed: dict[int, UndeliveredMessage] = {}
    for row, identity in _passed(reader, tell, on_damage):
        waiting.setdefault(identity, deque()).append(row.physical_offset)
        passed[row.physical_offset] = row
    if not passed:
        return
    last_damage = -1

    def note(error: CorruptError) -> None:
        nonlocal last_damage
        at = error.physical_offset
        last_damage = max(last_damage, reader.files.log.max_offset if at is None else at)
        on_damage(error)

    targets = sorted({row.target_topic for row in passed.values() if row.target_topic is not None})
    # a damaged topic may look like a pattern
    topics = TopicFilter(() if any(map(is_pattern, targets)) else targets)
    chosen = Selection(Criteria(topics=topics), begin=min(passed))
    for message in reader.messages(chosen, on_damage=note, progress=progress, tell=tell):
        same = waiting.get(_identity(message, message.topic))
        if same and same[0] < message.physical_offset:
            passed.pop(same.popleft(), None)
    for row in passed.values():
        yield row._replace(state=UNKNOWN) if last_damage > row.physical_offset else row


def _passed(reader: StoreReader, tell: Say, on_damage: OnDamage) -> Iterator[tuple[UndeliveredMessage, _Identity]]:
    """Yield the messages that lie before the offset of their level."""
    files = reader.files
    path = files.layout.config / DELAY_FILE
    queues = files.queues.of_topics(SCHEDULE_TOPIC.__eq__)
    table = table_in(path, OFFSET_TABLE, tell, on_damage)
    if table is None:
        if queues:
            on_damage(UncertainError(f"{why_unknown(path)}: no message is known to be passed"))
        return
    offsets = offsets_of(table)
    for queue in sorted(queues, key=lambda one: one.queue_id):
        level = queue.queue_id + 1
        view = reader.view_without_ext(queue)
        end = min(offsets.get(level, 0), queue.max_offset)
        for unit in queue.units(queue.min_offset(files.log.min_offset), end):
            try:
                message = view.message_of(unit)
            except NotFoundError:  # removed by a cleaner meanwhile
                continue
            except CorruptError as error:
                on_damage(error)
                continue
            properties = message.properties()
            target = properties.get(names.REAL_TOPIC)
            row = UndeliveredMessage(
                level,
                unit.queue_offset,
                unit.physical_offset,
                NOT_DELIVERED,
                unit.tags_code,
                target,
                whole_number(properties.get(names.REAL_QUEUE_ID, "")),
                properties.get(names.UNIQUE_KEY),
                properties.get(names.KEYS),
                message.store_timestamp,
            )
            yield row, _identity(message, target or "")


def _identity(message: StoredMessage, topic: str) -> _Identity:
    """Return what a message and its delivered copy have in common."""
    key = message.properties().get(names.UNIQUE_KEY)
    body = message.body_crc if key is None else 0
    return topic, key, message.born_timestamp, message.reconsume_times, body
