"""What the timer of 5.x does with the messages that wait, once the broker has started."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import CorruptError, UnreadableError, counted, lasting
from rmqctl.store.config.releases import Release
from rmqctl.store.options import UNHEARD
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import pending_messages
from rmqctl.store.timer.recovered import RecoveredTimer, recover_timer
from rmqctl.store.timer.wheel import PRECISION_MS, timer_counts


class TimerOutcome(NamedTuple):
    """What the timer does after a start. `stuck`: messages that are never delivered; `passed_over`: those of them that
    are due for longer than the wheel reaches, 7 days by default; `repeated`: those that are delivered again or twice.
    `is_reset`: how far the timer was is lost, and it begins at the start of its queue."""

    stuck: int = 0
    repeated: int = 0
    is_reset: bool = False
    said: tuple[str, ...] = ()
    passed_over: int = 0


def timer_outcome(files: StoreFiles, release: Release) -> TimerOutcome:
    """Return what the timer of `release` does with a log and queues that the start leaves as they are."""
    reader = StoreReader(files, UNHEARD)
    queue = files.queues.find(TIMER_TOPIC, 0)
    is_used = queue is not None and queue.max_offset > 0
    try:
        timer = recover_timer(
            reader,
            queue,
            reads_snapshots=None if release.reads_wheel_snapshots else False,
            reads_rocksdb=release.makes_rocksdb_store,
        )
    except CorruptError as error:
        text = f"{error}: a broker takes the missing bytes for zeros, and delivers messages again or never"
        return TimerOutcome(is_reset=is_used, said=(text,))
    except UnreadableError as error:
        return TimerOutcome(is_reset=is_used, said=(f"{error}: what the timer has delivered is not known",))
    if not timer.has_run or (not timer.has_files and timer.queue_end <= timer.queue_begin):
        return TimerOutcome()
    said: list[str] = []
    is_reset = not timer.has_checkpoint and timer.queue_end > timer.queue_begin
    if is_reset:
        said.append("timercheck is missing or empty: the timer begins again at the start of its queue")
    if timer.storage is not None:
        said.append("the timer is in rocksdbstore/: a broker needs timerRocksDBEnable=true to deliver from there")
    if files.config.timer_precision_ms is None and timer.precision != PRECISION_MS:
        wide = f"the wheel has slots of {timer.precision} ms"
        said.append(f"{wide}: a broker without timerPrecisionMs={timer.precision} never delivers some of its messages")
    taken = timer.taken
    if taken > timer.queue_end:
        past = counted(taken - timer.queue_end, "message")
        said.append(f"the timer is {past} past the end of its queue, and goes on at {timer.queue_offset}")
    pending = pending_messages(reader, queue, timer)
    lost, twice = len(pending.lost), len(pending.twice)
    if lost:
        count = counted(lost, "message")
        said.append(f"{count} of the timer are never delivered: it has passed them, and no slot of its wheel has them")
    now = time.time_ns() // 1_000_000
    old = int(np.count_nonzero(pending.is_passed(now))) - lost
    if old:
        why = f"due more than {lasting(pending.reach_ms)} before this start"
        never = f"{counted(old, 'message')} of the timer are never delivered: {why}"
        said.append(f"{never}; `rmqctl rebuild --timer` makes them due at once")
    if pending.again:
        said.append(f"{counted(pending.again, 'message')} that the timer has delivered are delivered again")
    ahead = _never_due(timer)
    if ahead:
        never = f"{counted(ahead, 'message')} of the timer are never delivered"
        said.append(f"{never}: timercheck names a time that has not come")
    if pending.foreign:
        said.append(f"{counted(pending.foreign, 'unit')} of the timer log lead to no message of the timer")
    if twice:
        said.append(f"{counted(twice, 'message')} of the timer are delivered twice")
    if len(pending) and timer_counts(files.layout.config) is None:
        said.append("timermetrics and its backup are missing or damaged: the timer's counts by topic begin at 0")
    return TimerOutcome(lost + old + ahead, pending.again + twice, is_reset, tuple(said), old)


def timer_off(files: StoreFiles, why: str) -> TimerOutcome:
    """Return what a start without a timer means, which `why` says: what waits in the timer stays there."""
    reader = StoreReader(files, UNHEARD)
    queue = files.queues.find(TIMER_TOPIC, 0)
    try:
        timer = recover_timer(reader, queue)
        waiting = len(pending_messages(reader, queue, timer)) if timer.has_files else 0
    except (CorruptError, UnreadableError) as error:
        return TimerOutcome(said=(f"{error}: how many messages wait in the timer, which does not run, is not known",))
    if not waiting:
        return TimerOutcome()
    text = f"{counted(waiting, 'message')} of the timer are never delivered{why}"
    return TimerOutcome(waiting, said=(text,))


def _never_due(timer: RecoveredTimer) -> int:
    """Return how many units are due after the checkpoint was written, and before the time up to which it says that all
    is delivered."""
    if not timer.is_read_ahead or timer.checkpoint_written_ms is None:
        return 0
    return int(np.count_nonzero(timer.due >= timer.checkpoint_written_ms))
