"""Stored frames of a queue, where its messages are as nearly all are: each checked, and no message made of any."""

from __future__ import annotations

import struct

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, body_crc, parse_property_crc
from rmqctl.formats.layouts import (
    CONSUMEQUEUE_UNIT,
    FRAME_HEAD_44,
    MESSAGE_MAGIC_V1,
    PROPERTIES_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
)
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.frames import end_of_near, window_at

_LONGEST_TOPIC = 0x7F
_LOOKED_AT = (
    "total_size", "magic_code", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "body_length"
)  # fmt: skip
# the head of a frame without the fields that may be anything
_head = struct.Struct(
    ">" + "".join(kind if name in _LOOKED_AT else f"{size}x" for name, kind, _, size in FRAME_HEAD_44.fields)
).unpack_from
_V6 = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6


def usual_frames(
    queue: AnyConsumeQueue, log: MappedFileQueue, offset: int, count: int, most_bytes: int
) -> list[bytes] | None:
    """Frames of the `count` messages from queue offset `offset` on, fewer where the queue ends or, but for the first,
    where they take more than `most_bytes`.

    None where anything is otherwise than for nearly all messages, damage or not: then each is to be looked at for
    itself. Law 3 holds for those that are given, and each belongs to its unit: the plain twin is
    `QueueView.frame_of`.
    """
    if not isinstance(queue, ConsumeQueue) or not queue.topic.isascii():
        return None
    topic = queue.topic.encode()
    slot, data = next(queue.unit_bytes(offset, offset + count), (-1, b""))
    wanted = min(count, queue.max_offset - offset)
    if slot != offset or len(data) != wanted * CONSUMEQUEUE_UNIT.size or len(topic) > _LONGEST_TOPIC:
        return None
    field = TOPIC_LENGTH_V1.struct.pack(len(topic)) + topic
    places = [(physical_offset, size) for physical_offset, size, _ in CONSUMEQUEUE_UNIT.struct.iter_unpack(data)]
    frames: list[bytes] = []
    window, begin, end, total = b"", 0, 0, 0
    for number, (physical_offset, size) in enumerate(places):
        total += size
        if frames and total > most_bytes:
            break
        if not begin <= physical_offset < physical_offset + size <= end:
            begin = physical_offset
            window, _ = window_at(log, begin, end_of_near(places, number))
            end = begin + len(window)
        at = physical_offset - begin
        frame = window[at : at + size]
        expected = (size, MESSAGE_MAGIC_V1, queue.queue_id, offset + number, physical_offset)
        if len(frame) != size or not _is_usual(frame, expected, field):
            return None
        frames.append(frame)
    return frames


def _is_usual(frame: bytes, expected: tuple[int, int, int, int, int], topic: bytes) -> bool:
    """Whether a frame has what is `expected` (size, magic, queue, offsets) and this topic, all of law 3 holds, and it
    has neither an IPv6 address nor a CRC of its own."""
    if len(frame) < FRAME_HEAD_44.size:
        return False
    size, magic, crc, queue_id, queue_offset, physical_offset, sys_flag, body_length = _head(frame)
    body_end = FRAME_HEAD_44.size + body_length
    properties_at = body_end + len(topic) + PROPERTIES_LENGTH.size
    if (
        (size, magic, queue_id, queue_offset, physical_offset) != expected
        or sys_flag & _V6
        or body_length < 0
        or properties_at > size
        or not frame.startswith(topic, body_end)
        or PROPERTIES_LENGTH.unpack_from(frame, properties_at - PROPERTIES_LENGTH.size)[0] != size - properties_at
        or (body_length and body_crc(frame[FRAME_HEAD_44.size : body_end]) != crc)
    ):
        return False
    properties = frame[properties_at:]
    return _is_utf8(properties) and parse_property_crc(properties[-PROPERTY_CRC_SIZE:]) is None


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
