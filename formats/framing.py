"""Encoding: a message to be put, and the frame that it becomes (MessageExtEncoder)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rmqctl.formats import properties as property_names
from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, body_crc, frame_crc, property_crc_text
from rmqctl.formats.hosts import LOCAL_HOST, Host
from rmqctl.formats.layouts import (
    FRAME_HEADS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from rmqctl.formats.properties import encode_properties

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
"""Those of a message that has none."""


class Message(NamedTuple):
    """A message to be put. `properties` in the order they are stored; `body` in stored form (compressed if the
    sys_flag says so). What is None is filled in by the store.

    `property_bytes` replaces `properties` where the exact stored bytes matter (copies of stored messages).
    """

    topic: str
    body: bytes
    queue_id: int = 0
    flag: int = 0
    properties: Mapping[str, str] = NO_PROPERTIES
    property_bytes: bytes | None = None
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: Host = LOCAL_HOST
    store_timestamp: int | None = None
    store_host: Host | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class FrameParts(NamedTuple):
    """A message made ready for a frame: everything but queue offset, physical offset and store time."""

    head: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    tail: bytes
    body_length: int
    total_size: int
    with_property_crc: bool


def utf16_length(text: str) -> int:
    """Length of `text` as Java counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def prepare_frame(
    message: Message, store_host: Host, born_timestamp: int, *, with_property_crc: bool = False, allow_v2: bool = True
) -> FrameParts:
    """Everything of the frame that does not depend on where and when it is stored (MessageExtEncoder#encode).

    V2 frames are used for topics of more than 127 UTF-16 units if `allow_v2`.
    """
    is_v2 = allow_v2 and utf16_length(message.topic) > 127
    topic = message.topic.encode("utf-8")
    stored = message.property_bytes
    if stored is None:
        names = message.properties
        if with_property_crc and property_names.CRC32 in names:
            names = {name: value for name, value in names.items() if name != property_names.CRC32}
        stored = encode_properties(names)
    if with_property_crc:
        if stored and not stored.endswith(b"\x02"):
            stored += b"\x02"
        # room for the CRC itself, filled in by `frame_bytes`
        stored += bytes(PROPERTY_CRC_SIZE)
    hosts = (1 if message.born_host.is_v6 else 0) + (2 if store_host.is_v6 else 0)
    sys_flag = message.sys_flag & ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6) | hosts << 4
    topic_layout = TOPIC_LENGTH_V2 if is_v2 else TOPIC_LENGTH_V1
    tail = b"".join(
        (
            message.body,
            topic_layout.struct.pack(len(topic)),
            topic,
            PROPERTIES_LENGTH.struct.pack(len(stored)),
            stored,
        )
    )
    return FrameParts(
        hosts,
        MESSAGE_MAGIC_V2 if is_v2 else MESSAGE_MAGIC_V1,
        body_crc(message.body),
        message.queue_id,
        message.flag,
        sys_flag,
        born_timestamp,
        message.born_host,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        tail,
        len(message.body),
        FRAME_HEADS[hosts].size + len(tail),
        with_property_crc,
    )


def frame_bytes(parts: FrameParts, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
    """The finished frame."""
    head = FRAME_HEADS[parts.head].struct.pack(
        parts.total_size,
        parts.magic_code,
        parts.body_crc,
        parts.queue_id,
        parts.flag,
        queue_offset,
        physical_offset,
        parts.sys_flag,
        parts.born_timestamp,
        parts.born_host.ip,
        parts.born_host.port,
        store_timestamp,
        parts.store_host.ip,
        parts.store_host.port,
        parts.reconsume_times,
        parts.prepared_transaction_offset,
        parts.body_length,
    )
    frame = head + parts.tail
    if parts.with_property_crc:
        covered = frame[:-PROPERTY_CRC_SIZE]
        frame = covered + property_crc_text(frame_crc(covered))
    return frame
