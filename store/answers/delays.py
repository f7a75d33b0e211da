"""Delayed messages that wait for their time, level by level, and those of the timer: `rmqctl delays`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.hashing import whole_number
from rmqctl.formats.wording import counted, lasting
from rmqctl.store.answers.config_offsets import (
    DELAY_FILE,
    OFFSET_TABLE,
    Say,
    in_one,
    no_unit,
    offsets_of,
    table_in,
)
from rmqctl.store.answers.undispatched import undispatched
from rmqctl.store.config.config_start import why_unknown
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage

DELIVERED = "delivered"
WAITING = "waiting"
BEFORE_BEGINNING = "before-beginning"
PAST_END = "past-end"
DAMAGED = "damaged"
UNKNOWN = "unknown"
OVERDUE = "overdue"
NOT_DELIVERED = "not-delivered"
STUCK = "stuck"
LEVEL = "level"
TIMER = "timer"


class DelayLevel(NamedTuple):
    """One level: the queue `level` - 1 of SCHEDULE_TOPIC_XXXX. `offset`: of the next message to be delivered; `pending`
    counts the messages from there on. The first of them is due at `first_due_timestamp` (ms), for `target_topic` and
    `target_queue_id`. None is what is not known; `detail` says why.

    With `kind` timer, and no `level`: what waits in the timer for one queue. `offset`: the timer has the messages of
    its own queue, from `min_offset` to `max_offset`, up to there; `on_wheel` and `to_enqueue` count which of the
    pending are on its wheel once a broker has recovered it, and which it puts there then. Some may be both."""

    level: int | None
    delay_ms: int | None
    state: str
    offset: int | None
    min_offset: int | None
    max_offset: int | None
    pending: int | None
    first_due_timestamp: int | None = None
    target_topic: str | None = None
    target_queue_id: int | None = None
    last_due_timestamp: int | None = None
    detail: str = ""
    kind: str = LEVEL
    on_wheel: int | None = None
    to_enqueue: int | None = None


def delay_levels(reader: StoreReader, now: int, tell: Say, on_damage: OnDamage) -> Iterator[DelayLevel]:
    """The levels that have a queue. A level that delayOffset.json does not name begins at 0, and none lies outside of
    its queue (ScheduleMessageService#load). UnsupportedError for queues in a RocksDB."""
    files = reader.files
    path = files.layout.config / DELAY_FILE
    table = table_in(path, OFFSET_TABLE, tell, on_damage)
    behind = undispatched(files, on_damage)
    queues = files.queues.of_topics(SCHEDULE_TOPIC.__eq__)
    if table is None and queues:
        tell(f"{why_unknown(path)}: a broker would deliver all that is in the queues")
    offsets = offsets_of(table or {})
    for queue in queues:
        row = _level(reader, queue, offsets.get(queue.queue_id + 1, 0), on_damage)
        new = behind.slots[SCHEDULE_TOPIC, queue.queue_id]
        if new and row.pending is not None:
            detail = in_one(row.detail, f"{counted(new, 'message')} of them in no queue yet")
            state = WAITING if row.state == DELIVERED else row.state
            row = row._replace(state=state, pending=row.pending + new, detail=detail)
        yield with_lateness(row, None, now)


def _level(reader: StoreReader, queue: AnyConsumeQueue, offset: int, on_damage: OnDamage) -> DelayLevel:
    level = queue.queue_id + 1
    delays = reader.files.config.delay_levels()
    begin, end = queue.min_offset(reader.files.log.min_offset), queue.max_offset
    first = min(max(offset, begin), end)
    delay = delays[queue.queue_id] if queue.queue_id < len(delays) else None
    row = DelayLevel(level, delay, DELIVERED if first == end else WAITING, offset, begin, end, end - first)
    if offset > end:
        past = f"{counted(offset - end, 'message')} past the end: a broker goes back to {end}"
        row = row._replace(state=PAST_END, detail=past)
    elif offset < begin:
        expired = f"{counted(begin - offset, 'message')} before the first one that is left"
        row = row._replace(state=BEFORE_BEGINNING, detail=expired)
    if delay is None and row.pending:
        row = row._replace(state=STUCK, detail=in_one(row.detail, unknown_level(len(delays))))
    return _due(reader, queue, row, first, on_damage) if row.pending else row


def unknown_level(levels: int) -> str:
    """Return why no broker delivers the messages of a level beyond these (ScheduleMessageService#start)."""
    return f"messageDelayLevel has {counted(levels, 'level')}: no broker with this configuration delivers it"


def _due(reader: StoreReader, queue: AnyConsumeQueue, row: DelayLevel, first: int, on_damage: OnDamage) -> DelayLevel:
    """`row` with what is due first. The due time stands in the queue itself, in place of a tags code."""
    unit, last = queue.unit(first), queue.unit(queue.max_offset - 1)
    if unit is not None and unit.is_written:
        row = row._replace(first_due_timestamp=unit.tags_code)
    if last is not None and last.is_written:
        row = row._replace(last_due_timestamp=last.tags_code)
    try:
        if unit is None:
            raise no_unit(queue, first)
        properties = reader.view_without_ext(queue).message_of(unit).properties()
    except NotFoundError as error:  # a cleaner has taken it away while we looked
        return row._replace(detail=in_one(row.detail, error.message))
    except CorruptError as error:
        on_damage(error)
        return row._replace(state=DAMAGED, detail=in_one(row.detail, error.message))
    return row._replace(
        target_topic=properties.get(names.REAL_TOPIC),
        target_queue_id=whole_number(properties.get(names.REAL_QUEUE_ID, "")),
    )


def with_lateness(row: DelayLevel, overdue: int | None, now: int) -> DelayLevel:
    """Return `row` as overdue if its first message was due before `now` (ms); `overdue`: how many are, None if that is
    not known."""
    first = row.first_due_timestamp
    if first is None or first > now or row.state != WAITING:
        return row
    late = f"overdue by {lasting(now - first)}"
    some = f"{overdue} of them overdue, the first by {lasting(now - first)}"
    detail = late if overdue is None or overdue == row.pending else some
    return row._replace(state=OVERDUE, detail=in_one(row.detail, detail))
