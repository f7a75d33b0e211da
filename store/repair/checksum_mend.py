"""The mend of a body checksum that was stored as 0: the right one in its place, nothing else of the message changes."""

from __future__ import annotations

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, body_crc, frame_crc, parse_property_crc, property_crc_text
from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import FrameDamage
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.commitlog.one_message import frame_without_crc
from rmqctl.store.journal.plan import Plan, WriteRange
from rmqctl.store.store_files import StoreFiles


def mend_checksum(files: StoreFiles, finding: Finding, plan: Plan) -> None:
    """Plan the mend of one RMQ-LOG-021. RefusedError where the frame is no longer what was found.

    A `__CRC32#` property covers the checksum of the body, so it is written anew as well; it has to be right before.
    """
    offset = finding.physical_offset
    assert offset is not None
    file = files.log.find(offset)
    if file is None:
        raise RefusedError("has gone since it was checked", file=finding.file, hint="run the command again")
    try:
        stored, message = frame_without_crc(files.log, offset)
    except FrameDamage as damage:
        raise RefusedError(
            f"no message stands there: {damage.detail}",
            file=file.path,
            physical_offset=offset,
            hint="run `rmqctl check` again",
        ) from damage
    frame = bytearray(stored)
    place = FRAME_HEADS[0].offset("body_crc")
    covering = parse_property_crc(bytes(frame[-PROPERTY_CRC_SIZE:]))
    if covering is not None and covering != frame_crc(frame[:-PROPERTY_CRC_SIZE]):
        raise RefusedError(
            "the checksum of the whole frame is wrong as well, so the message is not known to be whole",
            file=file.path,
            physical_offset=offset,
            hint="`rmqctl recover --bridge` puts filler in its place",
        )
    frame[place : place + 4] = body_crc(message.body).to_bytes(4, "big")
    position = offset - file.start_offset
    plan.add(WriteRange(file.path, position + place, bytes(frame[place : place + 4])))
    if covering is not None:
        text = property_crc_text(frame_crc(frame[:-PROPERTY_CRC_SIZE]))
        plan.add(WriteRange(file.path, position + len(frame) - len(text), text))
    # brokers delete commitlog files by age: it must not look younger than it is
    plan.times[file.path] = file.path.stat().st_mtime_ns
