"""Well-formed frames that stand where damage was: fillers, which take a queue slot, and padding, which takes none.

A filler has topic, queue and queue offset of the message that was lost, a body that says so to people, no tags and no
keys, and the property RMQCTL_DAMAGED where there is room for it. Padding is a rolled back transaction of a topic of
ours: RocketMQ puts such frames into no queue and no index (CommitLogDispatcherBuildConsumeQueue#dispatch,
IndexService#buildIndex).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, parse_property_crc
from rmqctl.formats.framing import FrameParts, Message, frame_bytes, prepare_frame
from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import (
    MAXIMUM_PROPERTIES_SIZE,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    encode_properties,
)
from rmqctl.formats.sys_flag import TRANSACTION_ROLLBACK

DAMAGED_PROPERTY = "RMQCTL_DAMAGED"
PADDING_TOPIC = "rmq_sys_rmqctl"
BLANK_SIZE = BLANK_FRAME.size
# below RocketMQ's own limit for a body (maxMessageSize), and little enough to be made in memory
LARGEST_PADDING = 1 << 20
_TEXT = b"rmqctl: the message that stood here was damaged and is lost"
_NOWHERE = {REAL_TOPIC: "RMQ_SYS_TRANS_HALF_TOPIC", REAL_QUEUE_ID: "0"}
# A broker's own services read these topics and need to be told that there is nothing to do: a delayed message for the
# half topic is discarded (ScheduleMessageService); a half message that was checked often enough is given up
# (TransactionalMessageServiceImpl#needDiscard); the timer's enqueue does not go on without a time (TimerMessageStore).
_FOR_SERVICES: dict[str, dict[str, str]] = {
    "SCHEDULE_TOPIC_XXXX": _NOWHERE,
    "RMQ_SYS_TRANS_HALF_TOPIC": {REAL_TOPIC: PADDING_TOPIC, REAL_QUEUE_ID: "0", "TRANSACTION_CHECK_TIMES": "1000000"},
    "rmq_sys_wheel_timer": {REAL_TOPIC: PADDING_TOPIC, REAL_QUEUE_ID: "0", "TIMER_OUT_MS": "1"},
}


class Neighbour(NamedTuple):
    """What fillers take from a good message beside the damage. `store_timestamp` in ms."""

    message: StoredMessage

    @property
    def has_property_crc(self) -> bool:
        """Whether frames of this store end with `__CRC32#`."""
        return parse_property_crc(self.message.property_bytes[-PROPERTY_CRC_SIZE:]) is not None


def filler_frame(
    beside: Neighbour,
    topic: str,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    size: int,
    reason: str,
    more: Mapping[str, str],
    sys_flag: int = 0,
) -> bytes:
    """The frame of exactly `size` bytes, which must be at least `filler_size(beside, topic, more)`. `reason`: of the
    damage; `more`: properties that decide which queues the message is in, as `sys_flag` does."""
    needed = {**_FOR_SERVICES.get(topic, {}), **more}
    properties = {**needed, DAMAGED_PROPERTY: reason}
    room = size - _parts(beside, topic, queue_id, properties, b"", sys_flag).total_size
    if room < 0:
        properties = needed
        room = size - _parts(beside, topic, queue_id, properties, b"", sys_flag).total_size
    assert room >= 0, "no room for a filler"
    body = _TEXT[:room].ljust(room)
    parts = _parts(beside, topic, queue_id, properties, body, sys_flag)
    return frame_bytes(parts, queue_offset, physical_offset, beside.message.store_timestamp)


def filler_size(beside: Neighbour, topic: str, more: Mapping[str, str]) -> int:
    """Bytes that a filler takes at least."""
    return _parts(beside, topic, 0, {**_FOR_SERVICES.get(topic, {}), **more}, b"", 0).total_size


def marked_filler_size(beside: Neighbour, topic: str, reason: str, more: Mapping[str, str]) -> int:
    """Bytes of a filler that has RMQCTL_DAMAGED and its text in full."""
    return filler_size(beside, topic, {**more, DAMAGED_PROPERTY: reason}) + len(_TEXT)


def padding_frame(beside: Neighbour, physical_offset: int, size: int) -> bytes:
    """Padding of exactly `size` bytes, at least `padding_size(beside)`. Where not even its topic has room, as much of
    its name as there is."""
    topic = PADDING_TOPIC[: 1 + size - padding_size(beside)]
    properties = {DAMAGED_PROPERTY: "padding"}
    room = size - _parts(beside, topic, 0, properties, b"", TRANSACTION_ROLLBACK).total_size
    if room < 0:
        properties = {}
        room = size - _parts(beside, topic, 0, properties, b"", TRANSACTION_ROLLBACK).total_size
    assert room >= 0, "no room for padding"
    parts = _parts(beside, topic, 0, properties, bytes(room), TRANSACTION_ROLLBACK)
    return frame_bytes(parts, 0, physical_offset, beside.message.store_timestamp)


def padding_size(beside: Neighbour) -> int:
    """Bytes that padding takes at least: those of the smallest message that there can be."""
    return _parts(beside, PADDING_TOPIC[:1], 0, {}, b"", TRANSACTION_ROLLBACK).total_size


def blank_head(size: int) -> bytes:
    """The first bytes of a blank frame of `size` bytes; the rest may be anything."""
    return BLANK_FRAME.struct.pack(size, BLANK_MAGIC)


def lengthened_frame(message: StoredMessage, more: int) -> bytes | None:
    """`message` with `more` bytes of nothing behind its properties; None if they have no room for it.

    RocketMQ skips empty properties (MessageDecoder#string2messageProperties).
    """
    stored = message.property_bytes
    with_crc = Neighbour(message).has_property_crc
    if with_crc:
        stored = stored[:-PROPERTY_CRC_SIZE]
    stored += PROPERTY_SEPARATOR * more
    if len(stored) + PROPERTY_CRC_SIZE * with_crc > MAXIMUM_PROPERTIES_SIZE:
        return None
    copy = Message(
        topic=message.topic,
        body=message.body,
        queue_id=message.queue_id,
        flag=message.flag,
        property_bytes=stored,
        sys_flag=message.sys_flag,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )
    parts = prepare_frame(copy, message.store_host, message.born_timestamp, with_property_crc=with_crc)
    return frame_bytes(
        parts._replace(body_crc=message.body_crc),
        message.queue_offset,
        message.physical_offset,
        message.store_timestamp,
    )


def _parts(
    beside: Neighbour, topic: str, queue_id: int, properties: Mapping[str, str], body: bytes, sys_flag: int
) -> FrameParts:
    message = Message(
        topic=topic,
        body=body,
        queue_id=queue_id,
        property_bytes=encode_properties(properties),
        sys_flag=sys_flag,
        born_host=beside.message.born_host.as_written,
    )
    timestamp, store_host = beside.message.store_timestamp, beside.message.store_host.as_written
    return prepare_frame(message, store_host, timestamp, with_property_crc=beside.has_property_crc)
