"""Delayed messages that wait for their time, level by level, and those of the timer: `rmqctl delays`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError, UncertainError, UnreadableError, counted, lasting
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.notebook import as_html
from rmqctl.store.answers.config_offsets import (
    DELAY_FILE,
    OFFSET_TABLE,
    in_one,
    no_unit,
    offsets_of,
    table_in,
    unread_part,
)
from rmqctl.store.answers.undispatched import undispatched
from rmqctl.store.config.config_files import why_unknown
from rmqctl.store.files.reading import exists
from rmqctl.store.log.columns import Int64s
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import Criteria, TopicFilter, is_pattern
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.timer.pending import PendingTimer, TimedRows, pending_messages
from rmqctl.store.timer.recovered import RecoveredTimer, due_time, recover_timer
from rmqctl.store.timer.wheel import CHECKPOINT_FILE, LOG_FOLDER, WHEEL_FILE, read_timer_checkpoint

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

    def _repr_html_(self) -> str:
        return as_html(self)


def delay_levels(reader: StoreReader, now: int) -> Iterator[DelayLevel]:
    """The levels that have a queue. A level that delayOffset.json does not name begins at 0, and none is outside its
    queue (ScheduleMessageService#load). UnsupportedError for queues in a RocksDB."""
    files = reader.files
    path = files.layout.config / DELAY_FILE
    table = table_in(path, OFFSET_TABLE, reader.events)
    behind = undispatched(files, reader.events, TopicFilter((SCHEDULE_TOPIC,)))
    queues = files.queues.of_topics(SCHEDULE_TOPIC.__eq__)
    if table is None and queues:
        reader.events.noted(f"{why_unknown(path)}: without it a broker delivers all that is in the queues")
    offsets = offsets_of(table or {})
    for queue in queues:
        row = _level(reader, queue, offsets.get(queue.queue_id + 1, 0))
        new = behind.slots[SCHEDULE_TOPIC, queue.queue_id]
        if new and row.pending is not None:
            detail = in_one(row.detail, f"{counted(new, 'message')} of them in no queue yet")
            state = WAITING if row.state == DELIVERED else row.state
            row = row._replace(state=state, pending=row.pending + new, detail=detail)
        yield with_lateness(row, None, now)


def _level(reader: StoreReader, queue: AnyConsumeQueue, offset: int) -> DelayLevel:
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
    return _due(reader, queue, row, first) if row.pending else row


def unknown_level(levels: int) -> str:
    """Return why no broker delivers the messages of a level beyond these (ScheduleMessageService#start)."""
    return f"messageDelayLevel has {counted(levels, 'level')}: no broker with this configuration delivers it"


def _due(reader: StoreReader, queue: AnyConsumeQueue, row: DelayLevel, first: int) -> DelayLevel:
    """`row` with what is due first. The queue holds the due time in place of a tags code."""
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
        reader.events.damaged(error)
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


# All that waits for its time, levels and then the timer, that by the queue it is for: `rmqctl delays`.

_MENDED_BY = "`rmqctl repair --only RMQ-TMR-003`"


def delays(reader: StoreReader, now: int) -> Iterator[DelayLevel]:
    """Yield the levels that have a queue, then what waits in the timer. `now` in ms. UnsupportedError for queues in a
    RocksDB."""
    yield from delay_levels(reader, now)
    yield from timed(reader, now)


def timed(reader: StoreReader, now: int) -> Iterator[DelayLevel]:
    """Yield a row for each queue that messages wait for, the one that is due first at the top.

    What waits is what the wheel holds once a broker has recovered it, and what that puts there then. One row without a
    target where nothing waits, where damage hides how much, where the timer is past the end of its queue, or where
    nothing is known; none where the timer was never used. UnsupportedError, UnreadableError.
    """
    queue = reader.files.queues.find(TIMER_TOPIC, 0)
    path = reader.files.layout.config / CHECKPOINT_FILE
    is_used = queue is not None and queue.max_offset > 0
    try:
        timer = recover_timer(reader, queue)
    except (CorruptError, UnreadableError) as error:
        if isinstance(error, UnreadableError) and not _is_of_timer(reader, error):
            raise
        reader.events.damaged(error if isinstance(error, CorruptError) else unread_part(error))
        if queue is not None and is_used:
            begin, end = queue.min_offset(reader.files.log.min_offset), queue.max_offset
            state = "is damaged" if isinstance(error, CorruptError) else "cannot be read"
            detail = f"{error.file or path} {state}: what was delivered is not known"
            yield DelayLevel(None, None, UNKNOWN, None, begin, end, None, kind=TIMER, detail=detail)
        return
    taken = timer.taken
    if not is_used:
        if taken > 0:
            missing = f"the timer has taken {counted(taken, 'message')}, but its queue has no files"
            detail = f"{missing}: rmqctl rebuild --queues -t {TIMER_TOPIC}"
            yield DelayLevel(None, None, UNKNOWN, taken, None, None, None, kind=TIMER, detail=detail)
        return
    if not timer.has_checkpoint:
        state = "is empty" if exists(path) else "is not there"
        reader.events.noted(f"{path} {state}: a broker delivers again what it has delivered of the timer's queue")
    for damage in timer.damage:
        reader.events.damaged(damage)
    pending = pending_messages(reader, queue, timer)
    _say(reader.events, pending)
    row = DelayLevel(None, None, DELIVERED, taken, timer.queue_begin, timer.queue_end, 0, kind=TIMER)
    yield from _rows(row, timer, pending, now)


def _is_of_timer(reader: StoreReader, error: UnreadableError) -> bool:
    """Return whether a file of the timer cannot be read: the levels can be, all the same."""
    layout = reader.files.layout
    names = (layout.config / CHECKPOINT_FILE, layout.root / WHEEL_FILE, layout.root / LOG_FOLDER)
    return any(str(error.file).startswith(str(name)) for name in names)


def _say(events: Events, pending: PendingTimer) -> None:
    if pending.recalled:
        events.noted(f"{counted(pending.recalled, 'message')} of the timer were taken back, and are not among these")
    if pending.old_recalls:
        events.noted(
            f"{pending.old_recalls} of these recalls have the form of RocketMQ 5.3.3, which a broker 5.5.0 ignores"
        )
    if twice := len(pending.twice):
        count = counted(twice, "message")
        events.noted(
            f"{count} are on the wheel, and a broker that starts puts them there once more: it delivers them twice"
        )
    if pending.again:
        events.noted(f"{counted(pending.again, 'message')} were delivered: a broker delivers them again when it starts")


def _rows(row: DelayLevel, timer: RecoveredTimer, pending: PendingTimer, now: int) -> Iterator[DelayLevel]:
    past = timer.taken - timer.queue_end
    if past > 0:
        detail = f"{counted(past, 'message')} past the end: a broker goes on at {timer.queue_offset}"
        yield row._replace(state=PAST_END, pending=None, detail=detail)
    found = [
        _row_of(row, pending, rows, now, is_lost=is_lost)
        for is_passed in (pending.is_passed(now),)
        for is_lost in (False, True)
        for rows in _by_target(pending.rows, np.flatnonzero(is_passed == is_lost))
    ]
    yield from sorted(found, key=lambda one: (one.state == NOT_DELIVERED, one.first_due_timestamp, one.target_topic))
    if pending.damaged:
        hidden = f"{counted(pending.damaged, 'message')} of the timer cannot be read, and may wait"
        yield row._replace(state=DAMAGED, pending=None, detail=hidden)
    elif not found and past <= 0:
        yield row


def _by_target(rows: TimedRows, chosen: Int64s) -> Iterator[TimedRows]:
    """Yield those of the chosen rows that wait for each queue, a copy of one queue at a time."""
    topics, queues = rows["topic"][chosen], rows["queue_id"][chosen]
    order = np.lexsort((queues, topics))
    changes = (np.diff(topics[order]) != 0) | (np.diff(queues[order]) != 0)
    yield from (rows[chosen[part]] for part in np.split(order, np.flatnonzero(changes) + 1) if len(part))


def _row_of(row: DelayLevel, pending: PendingTimer, rows: TimedRows, now: int, *, is_lost: bool) -> DelayLevel:
    queue_id = int(rows["queue_id"][0])
    row = row._replace(
        state=WAITING,
        pending=len(rows),
        first_due_timestamp=int(rows["out"].min()),
        last_due_timestamp=int(rows["out"].max()),
        target_topic=pending.topics[rows["topic"][0]],
        target_queue_id=None if queue_id < 0 else queue_id,
        on_wheel=int(np.count_nonzero(rows["on_wheel"])),
        to_enqueue=int(np.count_nonzero(rows["to_enqueue"])),
    )
    if is_lost:
        return row._replace(state=NOT_DELIVERED, detail=why_lost(pending, on_wheel=bool(rows["on_wheel"][0])))
    return with_lateness(row, int(np.count_nonzero(rows["out"] <= now)), now)


def why_lost(pending: PendingTimer, *, on_wheel: bool) -> str:
    """Return why no broker delivers a message that waits in the timer."""
    if on_wheel:
        passes = "a broker that starts now passes over it; `rmqctl rebuild --timer` makes it due at once"
        return f"due more than {lasting(pending.reach_ms)} ago: {passes}"
    return f"no slot of the wheel leads to it, and the timer has passed it: no broker delivers it; {_MENDED_BY}"


def due(reader: StoreReader, now: int) -> Iterator[UndeliveredMessage]:
    """Yield the messages that wait for their time, of levels and of the timer, in the order in which they are due.

    `now` in ms. Messages that cannot be read, and a timer of which it is not known what waits, are reported as damage.
    UnsupportedError for queues in a RocksDB.
    """
    files = reader.files
    undispatched(files, reader.events, TopicFilter((SCHEDULE_TOPIC,)))
    offsets = offsets_of(table_in(files.layout.config / DELAY_FILE, OFFSET_TABLE, reader.events) or {})
    levels = len(files.config.delay_levels())
    queues = {queue.queue_id: queue for queue in files.queues.of_topics(SCHEDULE_TOPIC.__eq__)}
    parts = [
        np.array(
            [
                (unit.tags_code, queue_id, unit.queue_offset, unit.physical_offset, queue_id >= levels)
                for unit in queue.units(
                    min(max(offsets.get(queue_id + 1, 0), queue.min_offset(files.log.min_offset)), queue.max_offset)
                )
                if unit.is_written
            ],
            _DUE,
        )
        for queue_id, queue in queues.items()
    ]
    timer = _waiting_in_timer(reader)
    in_timer = np.zeros(len(timer), _DUE)
    for name in ("out", "queue_offset", "physical_offset"):
        in_timer[name] = timer.rows[name]
    in_timer["queue"], in_timer["is_stuck"] = -1, timer.is_passed(now)
    waiting = np.concatenate([*parts, in_timer])
    waiting = waiting[np.lexsort((waiting["queue_offset"], waiting["queue"], waiting["out"]))]
    for out, queue_id, queue_offset, physical_offset, is_stuck in chain.from_iterable(
        waiting[begin : begin + _CHUNK].tolist() for begin in range(0, len(waiting), _CHUNK)
    ):
        try:
            message = reader.lookup(physical_offset)
        except NotFoundError:  # removed by a cleaner meanwhile
            continue
        except CorruptError as error:
            reader.events.damaged(error)
            continue
        state = (
            NOT_DELIVERED if is_stuck and queue_id < 0 else STUCK if is_stuck else OVERDUE if out <= now else WAITING
        )
        row = _row(queue_offset, message, out)._replace(state=state)
        yield row._replace(kind=TIMER) if queue_id < 0 else row._replace(level=queue_id + 1)


# a message that waits: `queue` of its level, -1 for the timer; `is_stuck`: no broker delivers it
_DUE = np.dtype(
    [("out", "i8"), ("queue", "i4"), ("queue_offset", "i8"), ("physical_offset", "i8"), ("is_stuck", np.bool_)]
)
_CHUNK = 16_384


def _waiting_in_timer(reader: StoreReader) -> PendingTimer:
    """Return what waits in the timer; nothing where that is not known."""
    queue: AnyConsumeQueue | None = reader.files.queues.find(TIMER_TOPIC, 0)
    try:
        timer = recover_timer(reader, queue)
    except CorruptError as error:
        reader.events.damaged(error)
        return PendingTimer()
    except UnreadableError as error:
        reader.events.damaged(unread_part(error))
        return PendingTimer()
    return pending_messages(reader, queue, timer)


# Find delayed messages that a broker passed without delivering them: `rmqctl delays --undelivered`.
#
# A delivery stores the message again in its topic (ScheduleMessageService#messageTimeUp, TimerMessageStore#convert),
# with its unique key, birth time and number of retries. A message before the offset of its level, or one that was due
# before the timer's time, without such a copy later in the log was not delivered.

_Identity = tuple[str, str | None, int, int, int]


class UndeliveredMessage(NamedTuple):
    """A delayed message that its level or the timer (no `level`) passed, without a copy in `target_topic`; or one that
    waits (`due`).

    `state`: not-delivered, or unknown where damage later in the log may hide the copy, or another broker have it; as in
    the rows of `delays` of one that waits. `queue_offset` counts in the
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


def undelivered(reader: StoreReader) -> Iterator[UndeliveredMessage]:
    """Yield the messages before the offsets in config/delayOffset.json without a delivered copy, level by level, then
    those of the timer that were due before the time in config/timercheck.

    Raises: UnsupportedError for queues in a RocksDB.
    """
    yield from _without_copy(reader, _passed(reader))


def levels_delivered(reader: StoreReader, begins: Mapping[int, int] | None = None) -> dict[int, int]:
    """Return, by delay level, the slot of its first message without a delivered copy, or its queue's end.

    `begins`: the levels that are asked for, and the slots to begin at; None for all from their first slots on.
    """
    queues = reader.files.queues.of_topics(SCHEDULE_TOPIC.__eq__)
    ends = {queue.queue_id + 1: queue.max_offset for queue in queues}
    if begins is not None:
        queues = [queue for queue in queues if queue.queue_id + 1 in begins]
        last = [one.store_timestamp for one in reader.last_messages(Selection(Criteria()), 1)]
        # no copy is stored before it is due, and none after the last message
        ends = {
            queue.queue_id + 1: _due_by(queue, begins[queue.queue_id + 1], max(last, default=0)) for queue in queues
        }
    found = ends
    for row in _without_copy(reader, _of_levels(reader, queues, ends, begins or {})):
        if row.level is not None and row.queue_offset < found[row.level]:
            found = {**found, row.level: row.queue_offset}
    return found


def _due_by(queue: AnyConsumeQueue, begin: int, time_ms: int) -> int:
    """Return the first slot from `begin` on whose message is due after a time, or the queue's end. A unit of a level
    has the time in place of a tags code."""
    units = queue.units(begin, queue.max_offset)
    return next((unit.queue_offset for unit in units if unit.tags_code > time_ms), queue.max_offset)


def _without_copy(
    reader: StoreReader, rows: Iterable[tuple[UndeliveredMessage, _Identity]]
) -> Iterator[UndeliveredMessage]:
    waiting: dict[_Identity, deque[int]] = {}
    passed: dict[int, UndeliveredMessage] = {}
    for row, identity in rows:
        waiting.setdefault(identity, deque()).append(row.physical_offset)
        passed[row.physical_offset] = row
    if not passed:
        return
    last_damage = -1

    def note(error: CorruptError) -> None:
        nonlocal last_damage
        at = error.physical_offset
        last_damage = max(last_damage, reader.files.log.max_offset if at is None else at)
        reader.events.damaged(error)

    targets = sorted({row.target_topic for row in passed.values() if row.target_topic is not None})
    # a damaged topic may look like a pattern
    topics = TopicFilter(() if any(map(is_pattern, targets)) else targets)
    chosen = Selection(Criteria(topics), begin=min(passed))
    for message in reader.telling(reader.events._replace(damage=note)).messages(chosen):
        same = waiting.get(_identity(message, message.topic))
        if same and same[0] < message.physical_offset:
            passed.pop(same.popleft(), None)
    for row in passed.values():
        is_unknown = last_damage > row.physical_offset or reader.files.config.escapes
        yield row._replace(state=UNKNOWN) if is_unknown else row


def _passed(reader: StoreReader) -> Iterator[tuple[UndeliveredMessage, _Identity]]:
    """Yield the messages that their level or the timer has passed."""
    files = reader.files
    undispatched(files, reader.events, TopicFilter((SCHEDULE_TOPIC,)))
    path = files.layout.config / DELAY_FILE
    queues = files.queues.of_topics(SCHEDULE_TOPIC.__eq__)
    table = table_in(path, OFFSET_TABLE, reader.events)
    if table is None and queues:
        reader.events.damaged(UncertainError(f"{why_unknown(path)}: no message of a level is known to be passed"))
    yield from _of_levels(reader, queues, offsets_of(table or {}))
    yield from _passed_by_timer(reader)


def _of_levels(
    reader: StoreReader,
    queues: Iterable[AnyConsumeQueue],
    offsets: Mapping[int, int],
    begins: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[tuple[UndeliveredMessage, _Identity]]:
    """Yield the messages of each level before its offset, from the slot in `begins` on."""
    for queue in sorted(queues, key=lambda one: one.queue_id):
        level = queue.queue_id + 1
        for unit, message in _messages(reader, queue, offsets.get(level, 0), begins.get(level, 0)):
            row = _row(unit.queue_offset, message, unit.tags_code)._replace(level=level)
            yield row, _identity(message, row.target_topic or "")


def _messages(
    reader: StoreReader, queue: AnyConsumeQueue, end: int, begin: int = 0
) -> Iterator[tuple[QueueUnit, StoredMessage]]:
    """Yield the messages of a queue in the slots [begin, end) that can be read."""
    view = reader.view_without_ext(queue)
    first = max(begin, queue.min_offset(reader.files.log.min_offset))
    for unit in queue.units(first, min(end, queue.max_offset)):
        try:
            yield unit, view.message_of(unit)
        except NotFoundError:  # removed by a cleaner meanwhile
            continue
        except CorruptError as error:
            reader.events.damaged(error)


def _row(queue_offset: int, message: StoredMessage, out: int) -> UndeliveredMessage:
    properties = message.properties()
    return UndeliveredMessage(
        None,
        queue_offset,
        message.physical_offset,
        NOT_DELIVERED,
        out,
        properties.get(names.REAL_TOPIC),
        whole_number(properties.get(names.REAL_QUEUE_ID, "")),
        properties.get(names.UNIQUE_KEY),
        properties.get(names.KEYS),
        message.store_timestamp,
    )


def _passed_by_timer(reader: StoreReader) -> Iterator[tuple[UndeliveredMessage, _Identity]]:
    """Yield the messages that the timer has on its wheel or had, and that were due before the time it has come to.

    Without those that were taken back, and those that were stored once more because they waited for long.
    """
    queue = reader.files.queues.find(TIMER_TOPIC, 0)
    if queue is None:
        return
    try:
        checkpoint = read_timer_checkpoint(reader.files.layout.config, empty_as_missing=True)
    except CorruptError as error:
        reader.events.damaged(error)
        return
    found: dict[tuple[str, int], list[tuple[UndeliveredMessage, _Identity]]] = {}
    taken_back: set[tuple[str, int]] = set()
    for unit, message in _messages(reader, queue, checkpoint.last_timer_queue_offset):
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
        same.append((_row(unit.queue_offset, message, out)._replace(kind=TIMER), _identity(message, target)))
    for (key, out), same in found.items():
        for row, identity in same:
            if not taken_back & {(key, out), (f"{row.target_topic}+{key}", out)}:
                yield row, identity


def _identity(message: StoredMessage, topic: str) -> _Identity:
    """Return what a message and its delivered copy have in common."""
    key = message.properties().get(names.UNIQUE_KEY)
    body = message.body_crc if key is None else 0
    return topic, key, message.born_timestamp, message.reconsume_times, body
