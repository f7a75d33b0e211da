"""Messages whose length of topic or properties overflows its signed field: damage for a broker, readable here."""

from __future__ import annotations

from rmqctl.formats.message import FrameDamage, Reason, StoredMessage, decode_message
from rmqctl.store.commitlog.frame_search import MAXIMUM_FRAME_SIZE
from rmqctl.store.commitlog.walk import Damage, walk
from rmqctl.store.files.mapped_file_queue import MappedFileQueue


def overflowed_message(log: MappedFileQueue, damage: Damage) -> StoredMessage | None:
    """Return the message in a damaged span whose lengths hold without their signs, and its CRCs as well; else None."""
    if damage.reason is not Reason.OVERFLOW:
        return None
    size = int.from_bytes(log.read(damage.physical_offset, 4), "big")
    frame = log.read(damage.physical_offset, min(size, MAXIMUM_FRAME_SIZE))
    try:
        return decode_message(frame, 0, len(frame), damage.physical_offset, unsigned=True)
    except FrameDamage:
        return None


def overflowed_at(log: MappedFileQueue, physical_offset: int) -> tuple[StoredMessage, str] | None:
    """Return such a message that begins at an offset, and why no consumer gets it; None where there is none."""
    record = next(walk(log, physical_offset), None)
    if not isinstance(record, Damage) or record.physical_offset != physical_offset:
        return None
    message = overflowed_message(log, record)
    if message is None:
        return None
    why = f"{record.detail}: it gives the message no queue unit, and ends the log before it when it recovers"
    return message, why
