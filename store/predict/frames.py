"""How a broker judges the bytes at a place of the log: laxer than law 3 (CommitLog#checkMessageAndReturnSize).

It does not compare the physical offset with the place, checks no UTF-8 and no frame checksum, and takes a blank frame
of any size. But numbers in properties that do not parse end the log for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import CRC_MASK
from rmqctl.formats.layouts import (
    BLANK_FRAME,
    BLANK_MAGIC,
    FRAME_HEADS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from rmqctl.formats.message import StoredMessage
from rmqctl.store.commitlog.frame_search import MAXIMUM_FRAME_SIZE
from rmqctl.store.predict.loading import parse_long
from rmqctl.store.predict.rules import Rules
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC


class Verdict(NamedTuple):
    """`message`: a frame that is taken. Else `is_blank`: on to the next file. Else `size`: of a frame whose lengths do
    not add up ("half message"), -1 for anything else that ends the log. `why` is for people."""

    message: StoredMessage | None = None
    is_blank: bool = False
    size: int = -1
    why: str = ""


def judge(read: Callable[[int, int], bytes], position: int, end: int, rules: Rules, check_crc: bool) -> Verdict:
    """What the broker makes of the bytes at `position` of a file of which [0, end) counts.

    `read` gives the bytes at a position; lengths are checked against what is left before anything is read.
    """
    left = end - position
    if left <= 4:
        return Verdict(why="the file is over, and no blank frame leads to the next one")
    head = read(position, min(left, FRAME_HEADS[3].size))
    size = int.from_bytes(head[:4], "big", signed=True)
    if left < size or len(head) < BLANK_FRAME.size:
        return Verdict(why=f"size {size} is more than the {left} bytes that are left")
    magic = int.from_bytes(head[4:8], "big")
    if magic == BLANK_MAGIC:
        return Verdict(is_blank=True)
    if magic != MESSAGE_MAGIC_V1 and not (rules.reads_v2 and magic == MESSAGE_MAGIC_V2):
        return Verdict(why=f"found a illegal magic code 0x{magic:x}")
    hosts = int.from_bytes(head[36:40], "big") >> 4 & 3
    layout = FRAME_HEADS[hosts]
    if not layout.size <= min(len(head), size) or size > MAXIMUM_FRAME_SIZE:
        return Verdict(why=f"size {size} cannot be read")
    fields = layout.unpack_from(head, 0)
    frame = read(position, size)
    body_length = max(0, fields[16])
    body_end = layout.size + body_length
    topic_layout = TOPIC_LENGTH_V2 if magic == MESSAGE_MAGIC_V2 else TOPIC_LENGTH_V1
    # a broker reads on into the next frame here; what it finds there does not add up, or ends the log as well
    if body_end + topic_layout.size > size:
        return Verdict(why=f"body length {fields[16]} does not fit")
    if check_crc and body_length and zlib.crc32(frame[layout.size : body_end]) & CRC_MASK != fields[2]:
        return Verdict(why="CRC check failed")
    (topic_length,) = topic_layout.unpack_from(frame, body_end)
    topic_end = body_end + topic_layout.size + topic_length
    if topic_length < 0 or topic_end + PROPERTIES_LENGTH.size > size:
        return Verdict(why=f"topic length {topic_length} does not fit")
    (property_length,) = PROPERTIES_LENGTH.unpack_from(frame, topic_end)
    property_length = max(0, property_length)
    property_end = topic_end + PROPERTIES_LENGTH.size + property_length
    if property_end != size:
        return Verdict(size=size, why="found a half message")
    topic = frame[body_end + topic_layout.size : topic_end].decode("utf-8", "replace")
    property_bytes = frame[topic_end + PROPERTIES_LENGTH.size : size].decode("utf-8", "replace").encode()
    body = frame[layout.size : body_end]
    message = StoredMessage._make((*fields[:16], body, topic, property_bytes))
    why = unreadable_number(message, rules)
    return Verdict(why=why) if why else Verdict(message=message, size=size)


def unreadable_number(message: StoredMessage, rules: Rules) -> str:
    """Which number in the properties makes the broker end its log at a message that is good; empty if none does."""
    properties = message.properties()
    level = properties.get(names.DELAY)
    if message.topic == SCHEDULE_TOPIC and level is not None and parse_long(level, 32) is None:
        return f"delay level {level!r} is no number"
    if rules.knows_batches and names.INNER_NUM in properties and names.INNER_BASE in properties:
        count, base = properties[names.INNER_NUM], properties[names.INNER_BASE]
        if parse_long(count, 16) is None or parse_long(base) is None:
            return f"inner batch of {count!r} at {base!r} is no number"
    return ""
