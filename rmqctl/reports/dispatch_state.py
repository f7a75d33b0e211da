"""Explain why no queue leads to a message, for `rmqctl query -o OFFSET`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import RmqctlError, format_time
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.properties import INNER_MULTI_DISPATCH
from rmqctl.store.files.layout import file_name, is_file_name, is_safe_topic, topic_directory
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.store.read.reader import StoreReader
    from rmqctl.store.store_files import StoreFiles


def dispatch_problems(reader: StoreReader, message: StoredMessage) -> list[str]:
    """Return a sentence for each reason why a broker, or a queue, does not lead to a message; empty for none."""
    from rmqctl.store.log.walk import unreadable_number

    refused = unreadable_number(message)
    if refused:
        return [f"a broker does not dispatch it: {refused}, which ends the log for its recovery"]
    if _is_led_to(reader, message):
        return []
    from rmqctl.store.answers.evidence import MISSING, WRONG, queue_steps

    steps = [step for step in queue_steps(reader, message) if step.state in (MISSING, WRONG)]
    found = [step.detail for step in steps]
    if any(step.state == WRONG for step in steps):
        found.append("a broker passes over a message whose slot is taken, and goes on")
    elif found and not _is_dispatched_after(reader, message):
        found.append("no queue leads to a later message: dispatch ended before this one, or stays at it")
    elif found:
        found.append("queues lead to later messages: dispatch passed this one, or its unit was lost since")
    if any(step.topic is not None and step.queue_id is not None for step in steps):
        found.append(
            "`rmqctl check` says which queues are concerned, `rmqctl recover` or `rebuild --queues` adds units"
        )
    return found


def _is_led_to(reader: StoreReader, message: StoredMessage) -> bool:
    """Return whether the message's own slot leads to it, with two looks and one read: a disk may be slow, and the size
    of queue files is not needed for it. False where that is not certain."""
    if not is_safe_topic(message.topic) or message.queue_offset < 0 or message.topic == SCHEDULE_TOPIC:
        return False
    if INNER_MULTI_DISPATCH in message.properties():
        return False  # it has further slots
    layout = reader.files.layout
    folder = topic_directory(layout.consumequeue, message.topic) / str(message.queue_id)
    position = message.queue_offset * CONSUMEQUEUE_UNIT.size
    try:
        starts = [int(name) for name in os.listdir(folder) if is_file_name(name)]
        start = max((one for one in starts if one <= position), default=None)
        if start is None:
            return False
        unit = reader.files.descriptors.read(folder / file_name(start), position - start, CONSUMEQUEUE_UNIT.size)
    except (OSError, RmqctlError):
        return False
    if len(unit) < CONSUMEQUEUE_UNIT.size:
        return False
    physical_offset, size, _ = CONSUMEQUEUE_UNIT.struct.unpack(unit)
    return bool(physical_offset == message.physical_offset and size == message.total_size)


def _is_dispatched_after(reader: StoreReader, message: StoredMessage) -> bool:
    """Return whether the last unit of any queue leads beyond a message."""
    for queue in reader.files.queues.all():
        unit = queue.unit(queue.max_offset - 1)
        if unit is not None and unit.is_written and unit.physical_offset > message.physical_offset:
            return True
    return False


# Name the valid messages around a place of the commitlog that holds none.


def add_nearest(error: RmqctlError, files: StoreFiles) -> RmqctlError:
    """Add to an error at a physical offset which valid messages are nearest; as it is where that cannot be read."""
    if error.physical_offset is None or error.physical_offset < 0:
        return error
    from rmqctl.store.log.resync import REACH, neighbours

    try:
        found = neighbours(files.log, error.physical_offset)
    except RmqctlError as unread:
        error.notes = (f"the nearest messages are not known: {unread}",)
        return error
    error.details = {
        "nearest_before": _place(found.before),
        "nearest_after": _place(found.after),
        "searched_from": found.searched_from,
        "searched_to": found.searched_to,
    }
    limit = f"at most {REACH >> 20} MiB on each side"
    error.notes = (
        _line("before", found.before, f"none from offset {found.searched_from} on ({limit})"),
        _line("after", found.after, f"none up to offset {found.searched_to} ({limit})"),
    )
    return error


def _place(message: StoredMessage | None) -> dict[str, Any] | None:
    if message is None:
        return None
    return {
        "physical_offset": message.physical_offset,
        "size": message.total_size,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "store_timestamp": message.store_timestamp,
    }


def _line(side: str, message: StoredMessage | None, missing: str) -> str:
    if message is None:
        return f"nearest valid message {side}: {missing}"
    place = f"{message.topic} queue {message.queue_id} offset {message.queue_offset}"
    return (
        f"nearest valid message {side}: {message.physical_offset} "
        f"({place}, stored {format_time(message.store_timestamp)})"
    )
