"""What the timer of 5.x does with the messages that wait, once the broker has started."""

from __future__ import annotations

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.formats.wording import counted
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import pending_messages
from rmqctl.store.timer.recovered import recover_timer


def timer_outcome(files: StoreFiles) -> tuple[int, list[str]]:
    """Return how many messages of the timer are never delivered, and what else is to be said of the timer.

    For a log and queues that the start leaves as they are.
    """
    reader = StoreReader(files)
    queue = files.queues.find(TIMER_TOPIC, 0)
    try:
        timer = recover_timer(reader, queue)
    except (CorruptError, UnreadableError) as error:
        return 0, [f"{error}: what the timer has delivered is not known"]
    if not timer.has_files:
        return 0, []
    said: list[str] = []
    taken = timer.checkpoint.last_timer_queue_offset
    if taken > timer.queue_end:
        past = counted(taken - timer.queue_end, "message")
        said.append(f"the timer is {past} past the end of its queue, and goes on at {timer.queue_offset}")
    pending = pending_messages(reader, queue, timer, lambda _: None)
    if pending.lost:
        count = counted(len(pending.lost), "message")
        said.append(f"{count} of the timer are never delivered: it has passed them, and no slot of its wheel has them")
    if pending.foreign:
        said.append(f"{counted(pending.foreign, 'unit')} of the timer log lead to no message of the timer")
    if pending.twice:
        said.append(f"{counted(pending.twice, 'message')} of the timer are delivered twice")
    return len(pending.lost), said
