"""Good messages at which a broker ends its log: a number in their properties does not parse.

The one place of the rule (CommitLog#checkMessageAndReturnSize). Recovery of 4.9.8, 5.3.3 and 5.5.0 ends the log before
such a message. A running broker passes over it without a unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_int, parse_long, parse_short
from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.walk import Damage, Record
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC

_BATCH = names.INNER_NUM.encode()


def unreadable_number(message: StoredMessage, *, knows_batches: bool = True) -> str:
    """Return which number in the properties makes a broker end its log at a good message; empty if none does.

    `knows_batches`: the broker reads inner batches, as 5.x does.
    """
    if message.topic != SCHEDULE_TOPIC and _BATCH not in message.property_bytes:
        return ""
    properties = message.properties()
    level = properties.get(names.DELAY)
    if message.topic == SCHEDULE_TOPIC and level is not None and parse_int(level) is None:
        return f"delay level {level!r} is not a number"
    if knows_batches and names.INNER_NUM in properties and names.INNER_BASE in properties:
        count, base = properties[names.INNER_NUM], properties[names.INNER_BASE]
        if parse_short(count) is None or parse_long(base) is None:
            return f"inner batch of {count!r} at {base!r} is not a number"
    return ""


def refused_span(message: StoredMessage, log: MappedFileQueue) -> Damage | None:
    """Return the message as the damage that it is for a broker; None for one that brokers read."""
    if not unreadable_number(message):
        return None
    file = log.find(message.physical_offset)
    what = "the delay level" if message.topic == SCHEDULE_TOPIC else "the count or the base of the inner batch"
    detail = f"{what} is not a number: a broker ends its log before this message"
    path = str(file.path) if file is not None else str(log.directories[0])
    return Damage(message.physical_offset, message.end, Reason.NUMBER, detail, path)


def as_brokers_read(records: Iterable[Record], log: MappedFileQueue) -> Iterator[Record]:
    """Yield the records of a walk with refused messages as damage."""
    for record in records:
        refused = refused_span(record, log) if isinstance(record, StoredMessage) else None
        yield record if refused is None else refused
