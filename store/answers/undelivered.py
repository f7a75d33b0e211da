"""Find delayed messages that a broker passed without delivering them: `rmqctl delays --undelivered`.

A delivery stores the message again in its topic (ScheduleMessageService#messageTimeUp, TimerMessageStore#convert), with
its unique key, birth time and number of retries. A message before the offset of its level, or one that was due before
the timer's time, without such a copy later in the log was not delivered.
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
from rmqctl.store.answers.delays import LEVEL, NOT_DELIVERED, TIMER, UNKNOWN
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.config.config_start import why_unknown
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.read.message_filter import Criteria
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage, Selection
from rmqctl.store.read.topic_filter import TopicFilter, is_pattern
from rmqctl.store.timer.timer_state import read_timer_checkpoint
from rmqctl.store.timer.waiting import due_time

_Identity = tuple[str, str | None, int, int, int]


class UndeliveredMessage(NamedTuple):
    """A delayed message that its level or the timer (no `level`) passed, without a copy in `target_topic`.

    `state`: not-delivered, or unknown where damage later in the log may hide the copy. `queue_offset` counts in the
    queue of the level or the timer. Timestamps in ms; `due_timestamp` is the one that the broker went by.
    """

    level: int | None
    queue_offset: int
    physical_offset: int
    state: str
    due_timestamp: int
    target_topic: str | None
    target_queue_id: int | None
    unique_key: str | None
    keys: str | None
    store_timestamp: int
    kind: str = LEVEL


def undelivered(
    reader: StoreReader, tell: Say, on_damage: OnDamage, progress: Progress | None = None
) -> Iterator[UndeliveredMessage]:
    """Yield the messages before the offsets in config/delayOffset.json without a delivered copy, level by level, then
    those of the timer that were due before the time in config/timercheck.

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
    """Yield the messages that their level or the timer has passed."""
    files = reader.files
    path = files.layout.config / DELAY_FILE
    queues = files.queues.of_topics(SCHEDULE_TOPIC.__eq__)
    table = table_in(path, OFFSET_TABLE, tell, on_damage)
    if table is None and queues:
        on_damage(UncertainError(f"{why_unknown(path)}: no message of a level is known to be passed"))
    offsets = offsets_of(table or {})
    for queue in sorted(queues, key=lambda one: one.queue_id):
        level = queue.queue_id + 1
        for unit, message in _messages(reader, queue, offsets.get(level, 0), on_damage):
            row = _row(unit, message, unit.tags_code)._replace(level=level)
            yield row, _identity(message, row.target_topic or "")
    yield from _passed_by_timer(reader, on_damage)


def _messages(
    reader: StoreReader, queue: AnyConsumeQueue, end: int, on_damage: OnDamage
) -> Iterator[tuple[QueueUnit, StoredMessage]]:
    """Yield the messages of a queue before `end` that can be read."""
    view = reader.view_without_ext(queue)
    for unit in queue.units(queue.min_offset(reader.files.log.min_offset), min(end, queue.max_offset)):
        try:
            yield unit, view.message_of(unit)
        except NotFoundError:  # removed by a cleaner meanwhile
            continue
        except CorruptError as error:
            on_damage(error)


def _row(unit: QueueUnit, message: StoredMessage, due: int) -> UndeliveredMessage:
    properties = message.properties()
    return UndeliveredMessage(
        None,
        unit.queue_offset,
        unit.physical_offset,
        NOT_DELIVERED,
        due,
        properties.get(names.REAL_TOPIC),
        whole_number(properties.get(names.REAL_QUEUE_ID, "")),
        properties.get(names.UNIQUE_KEY),
        properties.get(names.KEYS),
        message.store_timestamp,
    )


def _passed_by_timer(reader: StoreReader, on_damage: OnDamage) -> Iterator[tuple[UndeliveredMessage, _Identity]]:
    """Yield the messages that the timer has on its wheel or had, and that were due before the time it has come to.

    Without those that were taken back, and those that were stored once more because they waited for long.
    """
    queue = reader.files.queues.find(TIMER_TOPIC, 0)
    if queue is None:
        return
    try:
        checkpoint = read_timer_checkpoint(reader.files.layout.config, empty_as_missing=True)
    except CorruptError as error:
        on_damage(error)
        return
    found: dict[tuple[str, int], list[tuple[UndeliveredMessage, _Identity]]] = {}
    taken_back: set[tuple[str, int]] = set()
    for unit, message in _messages(reader, queue, checkpoint.last_timer_queue_offset, on_damage):
        properties = message.properties()
        out = due_time(properties.get(names.TIMER_OUT_MS, ""))
        target = properties.get(names.REAL_TOPIC)
        if out is None or target is None or out >= checkpoint.last_read_time_ms:
            continue
        if names.TIMER_DELETE_UNIQUE_KEY in properties:
            taken_back.add((properties[names.TIMER_DELETE_UNIQUE_KEY], out))
            continue
        same = found.setdefault((properties.get(names.UNIQUE_KEY, ""), out), [])
        if same and names.TIMER_ROLL_TIMES in properties:
            same.pop()
        same.append((_row(unit, message, out)._replace(kind=TIMER), _identity(message, target)))
    for (key, out), same in found.items():
        for row, identity in same:
            if not taken_back & {(key, out), (f"{row.target_topic}+{key}", out)}:
                yield row, identity


def _identity(message: StoredMessage, topic: str) -> _Identity:
    """Return what a message and its delivered copy have in common."""
    key = message.properties().get(names.UNIQUE_KEY)
    body = message.body_crc if key is None else 0
    return topic, key, message.born_timestamp, message.reconsume_times, body
