"""What a damaged span of the log is: inside the log, a torn tail, or something old behind its end."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats.checksums import body_crc
from rmqctl.formats.layouts import FRAME_HEADS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqctl.formats.message import FrameDamage, Reason, StoredMessage, decode_message
from rmqctl.formats.wording import counted
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.log.affected import AffectedMessages
from rmqctl.store.commitlog.frame_search import MAXIMUM_FRAME_SIZE
from rmqctl.store.commitlog.overflow import overflowed_message
from rmqctl.store.commitlog.walk import Damage, Empty
from rmqctl.store.files.mapped_file_queue import MappedFileQueue

_INSIDE = {
    Reason.SIZE: "RMQ-LOG-001",
    Reason.MAGIC: "RMQ-LOG-002",
    Reason.POSITION: "RMQ-LOG-003",
    Reason.LENGTHS: "RMQ-LOG-004",
    Reason.OVERFLOW: "RMQ-LOG-030",
    Reason.NUMBER: "RMQ-LOG-033",
    Reason.BODY_CRC: "RMQ-LOG-005",
    Reason.PROPERTY_CRC: "RMQ-LOG-006",
    Reason.TOPIC: "RMQ-LOG-007",
    Reason.PROPERTIES: "RMQ-LOG-008",
    Reason.BLANK_SIZE: "RMQ-LOG-009",
}
# messages that only brokers cannot read, at the end of the log
_WHOLE = {Reason.OVERFLOW: "RMQ-LOG-031", Reason.NUMBER: "RMQ-LOG-034"}
_LARGEST_LOOK = 16 * 1024 * 1024
_HEAD_SIZE = FRAME_HEADS[3].size


class DamageFindings:
    """Makes findings of damaged spans; reads the bytes again to say what can still be said of them."""

    def __init__(self, log: MappedFileQueue, affected: AffectedMessages) -> None:
        self._log = log
        self._affected = affected

    def inside(self, span: Damage | Empty) -> Finding:
        """Good messages follow the span."""
        messages = self._affected.count(span.physical_offset, span.end)
        if isinstance(span, Empty):
            text = f"zeros up to offset {span.end}, and messages behind them"
            return self._finding("RMQ-LOG-010", span, text, messages, True)
        message = self._message(span)
        code = _INSIDE[span.reason]
        if span.reason is Reason.OVERFLOW and message is None:
            code = _INSIDE[Reason.LENGTHS]
        data_lost: bool | None = span.reason is not Reason.BLANK_SIZE and code not in ("RMQ-LOG-030", "RMQ-LOG-033")
        expected: str | int | None = None
        found: str | int | None = None
        if span.reason is Reason.POSITION and message is not None:
            expected, found, data_lost = span.physical_offset, message.physical_offset, None
        elif span.reason is Reason.BODY_CRC and message is not None:
            expected, found = message.body_crc, body_crc(message.body)
            if message.body_crc == 0:
                code, data_lost = "RMQ-LOG-021", False
        if message is not None and message.total_size == span.end - span.physical_offset:
            messages = 1
        return self._finding(code, span, span.detail, messages, data_lost, message, expected, found)

    def tail(self, span: Damage, frames: int = 1) -> Finding:
        """Nothing good follows the span, in which so many frames seem to begin."""
        message = self._message(span)
        if span.reason is Reason.POSITION and message is not None:
            text = f"a message that gives offset {message.physical_offset} stands behind the end of the log"
            expected, found = span.physical_offset, message.physical_offset
            return self._finding("RMQ-LOG-014", span, text, None, False, message, expected, found)
        if span.reason in _WHOLE and message is not None:
            return self._finding(_WHOLE[span.reason], span, span.detail, 1, False, message)
        units = self._affected.count(span.physical_offset, span.end)
        if units or self._begins_like_a_frame(span):
            return self._finding("RMQ-LOG-011", span, span.detail, max(units or 0, frames), True, message)
        text = f"{counted(span.end - span.physical_offset, 'byte')} of no message: {span.detail}"
        return self._finding("RMQ-LOG-012", span, text, 0, False)

    def stale(self, begin: int, end: int, messages: int | None, *, log_end: int) -> Finding:
        """Messages from before a truncation stand in [begin, end), behind `log_end`, where the log ends."""
        file = self._log.find(begin)
        older = (
            "older messages stand"
            if not messages
            else counted(messages, "older message stands", "older messages stand")
        )
        return Finding(
            "RMQ-LOG-013",
            f"{older} behind the end of the log",
            None if file is None else file.path,
            begin,
            expected=log_end,
            found=begin,
            bytes=end - begin,
            messages=messages,
        )

    def _finding(
        self,
        code: str,
        span: Damage | Empty,
        text: str,
        messages: int | None,
        data_lost: bool | None,
        message: StoredMessage | None = None,
        expected: str | int | None = None,
        found: str | int | None = None,
    ) -> Finding:
        file = self._log.find(span.physical_offset)
        # what stands in another place belongs to another queue too
        is_named = message is not None and message.physical_offset == span.physical_offset
        return Finding(
            code,
            text,
            file.path if file is not None else Path(span.file) if isinstance(span, Damage) else None,
            span.physical_offset,
            message.topic if message is not None and is_named else None,
            message.queue_id if message is not None and is_named else None,
            expected,
            found,
            bytes=span.end - span.physical_offset,
            messages=messages,
            data_lost=data_lost,
        )

    def _message(self, span: Damage) -> StoredMessage | None:
        """Return the message if only a checksum, the place, the sign of a length or a number is wrong."""
        if span.reason is Reason.OVERFLOW:
            return overflowed_message(self._log, span)
        if span.reason not in (Reason.BODY_CRC, Reason.PROPERTY_CRC, Reason.POSITION, Reason.NUMBER):
            return None
        head = self._log.read(span.physical_offset, 4)
        size = int.from_bytes(head, "big", signed=True)
        if not 0 < size <= min(_LARGEST_LOOK, MAXIMUM_FRAME_SIZE):
            return None
        frame = self._log.read(span.physical_offset, size)
        try:
            return decode_message(frame, 0, len(frame), None, check_crc=span.reason is Reason.POSITION)
        except FrameDamage:
            return None

    def _begins_like_a_frame(self, span: Damage) -> bool:
        """Whether a message was begun here: magic and physical offset are right."""
        head = self._log.read(span.physical_offset, _HEAD_SIZE)
        if len(head) < FRAME_HEADS[0].size:
            return False
        fields = FRAME_HEADS[0].unpack_from(head, 0)
        return fields[1] in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) and fields[6] == span.physical_offset
