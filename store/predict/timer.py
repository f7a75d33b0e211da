"""What the timer of 5.x does with the messages that wait, once the broker has started."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.formats.wording import counted
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import pending_messages
from rmqctl.store.timer.recovered import RecoveredTimer, recover_timer


class TimerOutcome(NamedTuple):
    """What the timer does after a start. `stuck`: messages that are never delivered; `repeated`: those that are
    delivered again or twice. `is_reset`: how far the timer was is lost, and it begins at the start of its queue."""

    stuck: int = 0
    repeated: int = 0
    is_reset: bool = False
    said: tuple[str, ...] = ()


def timer_outcome(files: StoreFiles) -> TimerOutcome:
    """Return what the timer does with a log and queues that the start leaves as they are."""
    reader = StoreReader(files)
    queue = files.queues.find(TIMER_TOPIC, 0)
    try:
        timer = recover_timer(reader, queue)
    except CorruptError as error:
        is_used = queue is not None and queue.max_offset > 0
        text = f"{error}: a broker takes the missing bytes for zeros, and delivers messages again or never"
        return TimerOutcome(is_reset=is_used, said=(text,))
    except UnreadableError as error:
        return TimerOutcome(said=(f"{error}: what the timer has delivered is not known",))
    if not timer.has_files:
        return TimerOutcome()
    said: list[str] = []
    is_reset = not timer.has_checkpoint and timer.queue_end > timer.queue_begin
    if is_reset:
        said.append("timercheck is missing or empty: the timer begins again at the start of its queue")
    taken = timer.checkpoint.last_timer_queue_offset
    if taken > timer.queue_end:
        past = counted(taken - timer.queue_end, "message")
        said.append(f"the timer is {past} past the end of its queue, and goes on at {timer.queue_offset}")
    pending = pending_messages(reader, queue, timer, lambda _: None)
    if pending.lost:
        count = counted(len(pending.lost), "message")
        said.append(f"{count} of the timer are never delivered: it has passed them, and no slot of its wheel has them")
    if pending.again:
        said.append(f"{counted(pending.again, 'message')} that the timer has delivered are delivered again")
    ahead = _never_due(timer)
    if ahead:
        never = f"{counted(ahead, 'message')} of the timer are never delivered"
        said.append(f"{never}: timercheck names a time that has not come")
    if pending.foreign:
        said.append(f"{counted(pending.foreign, 'unit')} of the timer log lead to no message of the timer")
    if pending.twice:
        said.append(f"{counted(pending.twice, 'message')} of the timer are delivered twice")
    return TimerOutcome(len(pending.lost) + ahead, pending.again + pending.twice, is_reset, tuple(said))


def timer_off(files: StoreFiles) -> TimerOutcome:
    """Return what a start with timerWheelEnable=false means: the timer is not loaded, and what waits in it stays."""
    reader = StoreReader(files)
    queue = files.queues.find(TIMER_TOPIC, 0)
    try:
        timer = recover_timer(reader, queue)
        waiting = len(pending_messages(reader, queue, timer, lambda _: None).messages) if timer.has_files else 0
    except (CorruptError, UnreadableError) as error:
        return TimerOutcome(said=(f"{error}: how many messages wait in the timer, which is off, is not known",))
    if not waiting:
        return TimerOutcome()
    text = f"{counted(waiting, 'message')} of the timer are never delivered while timerWheelEnable is false"
    return TimerOutcome(waiting, said=(text,))


def _never_due(timer: RecoveredTimer) -> int:
    """Return how many units are due after the checkpoint was written, and before the time up to which it says that all
    is delivered."""
    if not timer.is_read_ahead or timer.checkpoint_written_ms is None:
        return 0
    return int(np.count_nonzero(timer.due >= timer.checkpoint_written_ms))
