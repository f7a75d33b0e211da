"""Whether a message belongs to an earlier life of its queue: the topic was deleted and created again since.

Units of a queue lead to places that rise along the log. So a message before the one that a lower slot of its queue
leads to has no slot any more, as long as that slot is right.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.formats.message import StoredMessage
from rmqctl.store.queues.dispatch import queue_slots
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import QueueUnit

ReadMessage = Callable[[int], StoredMessage | None]
"""Return the message at a physical offset, None where none begins."""


def beginning(queue: AnyConsumeQueue, read: ReadMessage) -> QueueUnit | None:
    """Return the first unit of a queue: messages before its place that have this slot or a later one belong to an
    earlier life of the queue. None if there is none, or if it is not right."""
    first = next((unit for unit in queue.units(0) if unit.is_written), None)
    return first if first is not None and leads_to_its_message(queue, first, read) else None


def superseding(queue: AnyConsumeQueue, queue_offset: int, physical_offset: int, read: ReadMessage) -> int | None:
    """Return the physical offset of the later message because of which the message at `physical_offset` has no slot:
    that of the same slot, or the last one of a queue that ends before it. None if there is none, or if the unit there
    is not right."""
    slot = min(queue_offset, queue.max_offset - 1)
    unit = queue.unit(slot) if slot >= 0 else None
    if unit is None or unit.physical_offset <= physical_offset or not leads_to_its_message(queue, unit, read):
        return None
    return unit.physical_offset


def leads_to_its_message(queue: AnyConsumeQueue, unit: QueueUnit, read: ReadMessage) -> bool:
    """Return whether the message that a unit leads to has the unit's queue and slot."""
    if not unit.is_written:
        return False
    message = read(unit.physical_offset)
    if message is None:
        return False
    slots = queue_slots(message, (), queue.kind == "BatchCQ")
    return any(
        (slot.topic, slot.queue_id, slot.unit.queue_offset) == (queue.topic, queue.queue_id, unit.queue_offset)
        for slot in slots
    )
