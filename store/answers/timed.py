"""All that waits for its time, levels and then the timer, that by the queue it is for: `rmqctl delays`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmqctl.formats.errors import CorruptError, NotFoundError, UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.wording import counted
from rmqctl.store.answers.config_offsets import Say, unread_part
from rmqctl.store.answers.delays import (
    DAMAGED,
    DELIVERED,
    NOT_DELIVERED,
    PAST_END,
    TIMER,
    UNKNOWN,
    WAITING,
    DelayLevel,
    delay_levels,
    with_lateness,
)
from rmqctl.store.files.presence import exists
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage
from rmqctl.store.timer.pending import WHEEL_MS, PendingTimer, TimedMessage, pending_messages
from rmqctl.store.timer.recovered import RecoveredTimer, recover_timer
from rmqctl.store.timer.timer_state import CHECKPOINT_FILE

_MENDED_BY = "`rmqctl repair --only RMQ-TMR-003`"


def delays(reader: StoreReader, now: int, tell: Say, on_damage: OnDamage) -> Iterator[DelayLevel]:
    """Yield the levels that have a queue, then what waits in the timer. `now` in ms. UnsupportedError for queues in a
    RocksDB."""
    yield from delay_levels(reader, now, tell, on_damage)
    yield from timed(reader, now, tell, on_damage)


def timed(reader: StoreReader, now: int, tell: Say, on_damage: OnDamage) -> Iterator[DelayLevel]:
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
        if isinstance(error, UnreadableError) and error.file != str(path):
            raise
        on_damage(error if isinstance(error, CorruptError) else unread_part(error))
        if queue is not None and is_used:
            begin, end = queue.min_offset(reader.files.log.min_offset), queue.max_offset
            state = "is damaged" if isinstance(error, CorruptError) else "cannot be read"
            detail = f"{path} {state}: what was delivered is not known"
            yield DelayLevel(None, None, UNKNOWN, None, begin, end, None, kind=TIMER, detail=detail)
        return
    taken = timer.checkpoint.last_timer_queue_offset
    if not is_used:
        if taken > 0:
            missing = f"the timer has taken {counted(taken, 'message')}, but its queue has no files"
            detail = f"{missing}: rmqctl rebuild --queues -t {TIMER_TOPIC}"
            yield DelayLevel(None, None, UNKNOWN, taken, None, None, None, kind=TIMER, detail=detail)
        return
    if not timer.has_checkpoint:
        state = "is empty" if exists(path) else "is not there"
        tell(f"{path} {state}: a broker delivers again what it has delivered of the timer's queue")
    for damage in timer.damage:
        on_damage(damage)
    pending = pending_messages(reader, queue, timer, on_damage)
    _say(tell, pending)
    row = DelayLevel(None, None, DELIVERED, taken, timer.queue_begin, timer.queue_end, 0, kind=TIMER)
    yield from _rows(row, timer, pending, now)


def _say(tell: Say, pending: PendingTimer) -> None:
    if pending.recalled:
        tell(f"{counted(pending.recalled, 'message')} of the timer were taken back, and are not among these")
    if pending.old_recalls:
        tell(f"{pending.old_recalls} of these recalls have the form of RocketMQ 5.3.3, which a broker 5.5.0 ignores")
    if pending.twice:
        count = counted(pending.twice, "message")
        tell(f"{count} are on the wheel, and a broker that starts puts them there once more: it delivers them twice")
    if pending.again:
        tell(f"{counted(pending.again, 'message')} were delivered: a broker delivers them again when it starts")


def _rows(row: DelayLevel, timer: RecoveredTimer, pending: PendingTimer, now: int) -> Iterator[DelayLevel]:
    past = timer.checkpoint.last_timer_queue_offset - timer.queue_end
    if past > 0:
        detail = f"{counted(past, 'message')} past the end: a broker goes on at {timer.queue_offset}"
        yield row._replace(state=PAST_END, pending=None, detail=detail)
    by_target: dict[tuple[str, int, bool], list[TimedMessage]] = {}
    for one in pending.messages:
        is_lost = one.is_lost or (one.on_wheel and not one.to_enqueue and one.out < now - WHEEL_MS)
        by_target.setdefault((one.topic, -1 if one.queue_id is None else one.queue_id, is_lost), []).append(one)
    for (_, _, is_lost), messages in sorted(by_target.items(), key=lambda one: (one[0][2], min(m.out for m in one[1]))):
        yield _row_of(row, messages, now, is_lost=is_lost)
    if pending.damaged:
        hidden = f"{counted(pending.damaged, 'message')} of the timer cannot be read, and may wait"
        yield row._replace(state=DAMAGED, pending=None, detail=hidden)
    elif not by_target and past <= 0:
        yield row


def _row_of(row: DelayLevel, messages: list[TimedMessage], now: int, *, is_lost: bool) -> DelayLevel:
    first = min(one.out for one in messages)
    row = row._replace(
        state=WAITING,
        pending=len(messages),
        first_due_timestamp=first,
        last_due_timestamp=max(one.out for one in messages),
        target_topic=messages[0].topic,
        target_queue_id=messages[0].queue_id,
        on_wheel=sum(one.on_wheel for one in messages),
        to_enqueue=sum(one.to_enqueue for one in messages),
    )
    if is_lost:
        return row._replace(state=NOT_DELIVERED, detail=why_lost(messages[0]))
    return with_lateness(row, sum(one.out <= now for one in messages), now)


def why_lost(one: TimedMessage) -> str:
    """Return why no broker delivers a message that waits in the timer."""
    if one.on_wheel:
        return "due more than 7 days ago: a broker that starts now passes over it"
    return f"no slot of the wheel leads to it, and the timer has passed it: no broker delivers it; {_MENDED_BY}"


def waiting_for(reader: StoreReader, is_wanted: Callable[[str], bool], on_damage: OnDamage) -> Iterator[StoredMessage]:
    """Yield the messages that wait in the timer for topics that are wanted, in the order of the timer's queue. Errors
    as of `timed`; none where it is not known what waits."""
    queue: AnyConsumeQueue | None = reader.files.queues.find(TIMER_TOPIC, 0)
    try:
        timer = recover_timer(reader, queue)
    except CorruptError as error:
        on_damage(error)
        return
    except UnreadableError as error:
        on_damage(unread_part(error))
        return
    for one in pending_messages(reader, queue, timer, on_damage).messages:
        if is_wanted(one.topic):
            try:
                yield reader.lookup(one.physical_offset)
            except NotFoundError:  # removed by a cleaner while we looked
                continue
