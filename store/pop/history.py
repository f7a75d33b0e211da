"""Why POP handed a message out again: settled records of the revive topic, as far as they have not expired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, format_time
from rmqctl.store.pop.records import (
    Acknowledgement,
    PopCheckpoint,
    RecordError,
    revive_queues,
    revive_record,
)
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.reader import StoreReader

FIRST_POP_TIME = "1ST_POP_TIME"
"""Property of a copy that revive made: when the message was first handed out (ms)."""
# revive looks at a checkpoint for the last time some seconds after its deadline, and at most one round later
_SLACK_MS = 30_000
_MOST_RECORDS = 200_000


class Handed(NamedTuple):
    """A message and the group that it was handed out to."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


def why_again(reader: StoreReader, handed: Handed, since: int, until: int, waiting: Sequence[int] = ()) -> str:
    """Return why revive made a copy of a message at `until`, by the records that were delivered since `since` (ms).

    `waiting`: when the message was handed out by records that are not settled.
    """
    checkpoints: list[PopCheckpoint] = []
    acks: list[Acknowledgement] = []
    for record in _records(reader, since, until):
        if (record.group, record.topic, record.queue_id) != handed[:3]:
            continue
        if isinstance(record, Acknowledgement):
            if handed.queue_offset in record.offsets:
                acks.append(record)
        elif handed.queue_offset - record.start in record.distances:
            checkpoints.append(record)
    due = [one for one in checkpoints if one.deadline <= until]
    if not due:
        return "it was not acknowledged in time (its checkpoint is not left)"
    last = max(due, key=lambda one: one.popped_at)
    key = (last.start, last.popped_at)
    over = format_time(last.deadline)
    if any((ack.start, ack.popped_at) == key for ack in acks):
        return f"its invisible time was over at {over}, and its acknowledgement came too late"
    before = (*waiting, *(one.popped_at for one in checkpoints), *(ack.popped_at for ack in acks))
    if len(last.distances) == 1 and min(before) < last.popped_at:
        changed = format_time(last.popped_at)
        return f"a client changed its invisible time at {changed} to end at {over}, and did not acknowledge it by then"
    return (
        f"its invisible time was over at {over} without an acknowledgement (handed out {format_time(last.popped_at)})"
    )


def _records(reader: StoreReader, since: int, until: int) -> Iterator[PopCheckpoint | Acknowledgement]:
    """Yield the records that the revive topic got meanwhile; not those that are damaged."""
    for queue in revive_queues(reader.files):
        yield from _of_queue(reader, queue, since, until)


def _of_queue(
    reader: StoreReader, queue: AnyConsumeQueue, since: int, until: int
) -> Iterator[PopCheckpoint | Acknowledgement]:
    try:
        begin = reader.offset_at(queue.topic, queue.queue_id, since)
    except RmqctlError:
        begin = queue.min_offset(reader.files.log.min_offset)
    view = reader.view_without_ext(queue)
    for unit in queue.units(begin, min(queue.max_offset, begin + _MOST_RECORDS)):
        try:
            message = view.message_of(unit)
            if message.store_timestamp > until + _SLACK_MS:
                return
            record = revive_record(message.properties().get(names.TAGS), message.plain_body())
        except (CorruptError, NotFoundError, RecordError):
            continue
        if record is not None:
            yield record
