"""One message at a known place of the log, its checksums aside.

For whoever knows them to be right (a walk has passed the message just now), or wants what a frame with a wrong checksum
says. Whoever serves messages takes `rmqctl.store.read.frames`, which checks all.
"""

from __future__ import annotations

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.message import MINIMUM_FRAME_SIZE, FrameDamage, Reason, StoredMessage, decode_message
from rmqctl.store.commitlog.frame_search import MAXIMUM_FRAME_SIZE
from rmqctl.store.files.mapped_file_queue import MappedFileQueue


def frame_without_crc(
    log: MappedFileQueue, physical_offset: int, size: int | None = None, available: int = MAXIMUM_FRAME_SIZE
) -> tuple[bytes, StoredMessage]:
    """The bytes of the frame that begins at `physical_offset`, and the message in them; FrameDamage where anything but
    its checksums is wrong.

    `size`: of the frame, None to go by its head. It may have `available` bytes at most.
    """
    if size is None:
        size = int.from_bytes(log.read(physical_offset, 4), "big", signed=True)
    if not MINIMUM_FRAME_SIZE <= size <= min(available, MAXIMUM_FRAME_SIZE):
        raise FrameDamage(Reason.SIZE, f"size {size} is that of no message")
    frame = log.read(physical_offset, size)
    if len(frame) < size:
        raise FrameDamage(Reason.SIZE, f"only {len(frame)} bytes are left of {size}")
    return frame, decode_message(frame, 0, size, physical_offset, check_crc=False)


def message_without_crc(
    log: MappedFileQueue, physical_offset: int, size: int | None = None, available: int = MAXIMUM_FRAME_SIZE
) -> StoredMessage:
    """The message of `frame_without_crc`."""
    return frame_without_crc(log, physical_offset, size, available)[1]


def message_if_any(
    log: MappedFileQueue, physical_offset: int, available: int = MAXIMUM_FRAME_SIZE
) -> StoredMessage | None:
    """The message of `frame_without_crc`; None where none begins."""
    try:
        return message_without_crc(log, physical_offset, None, available)
    except FrameDamage:
        return None


def walked_message(log: MappedFileQueue, physical_offset: int, size: int) -> StoredMessage:
    """A good message that was walked over before, read again; UnreadableError if it is not there any more."""
    try:
        return message_without_crc(log, physical_offset, size)
    except FrameDamage as damage:
        file = log.find(physical_offset)
        raise UnreadableError(
            f"has changed while it was read: {damage}",
            file=file.path if file is not None else None,
            physical_offset=physical_offset,
            hint="run the command again when nothing writes to the store",
        ) from damage
