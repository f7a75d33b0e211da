"""Explain why no queue leads to a message, for `rmqctl query -o OFFSET`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.store.read.reader import StoreReader


def dispatch_problems(reader: StoreReader, message: StoredMessage) -> list[str]:
    """Return a sentence for each reason why a broker, or a queue, does not lead to a message; empty for none."""
    from rmqctl.store.answers.where.stored import MISSING, WRONG, queue_steps
    from rmqctl.store.survey.refused import unreadable_number

    refused = unreadable_number(message)
    if refused:
        return [f"a broker does not dispatch it: {refused}, which ends the log for its recovery"]
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


def _is_dispatched_after(reader: StoreReader, message: StoredMessage) -> bool:
    """Return whether the last unit of any queue leads beyond a message."""
    for queue in reader.files.queues.all():
        unit = queue.unit(queue.max_offset - 1)
        if unit is not None and unit.is_written and unit.physical_offset > message.physical_offset:
            return True
    return False
