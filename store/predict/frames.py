"""How a broker judges the bytes at a place of the log: laxer than law 3 (CommitLog#checkMessageAndReturnSize).

It does not compare the physical offset with the place, checks no UTF-8 and no frame checksum. 4.9 takes a blank frame
of any size, as it goes by the magic alone; 5.x wants it to fit into its file. Lengths in a frame are bounded by what is
left of the file, and compared with its size when all is read. But numbers in properties that do not parse end the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

from rmqctl.formats.checksums import CRC_MASK
from rmqctl.formats.layouts import (
    BLANK_FRAME,
    BLANK_MAGIC,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)
from rmqctl.formats.message import LARGEST_HEAD_SIZE, StoredMessage, frame_head
from rmqctl.store.commitlog.frame_search import MAXIMUM_FRAME_SIZE
from rmqctl.store.predict.rules import Rules
from rmqctl.store.survey.refused import unreadable_number


class FrameVerdict(NamedTuple):
    """`message`: a frame that is taken. Else `is_blank`: on to the next file. Else `size`: of a frame whose lengths do
    not add up ("half message"), -1 for anything else that ends the log. `why` is for people."""

    message: StoredMessage | None = None
    is_blank: bool = False
    size: int = -1
    why: str = ""


def judge(
    read: Callable[[int, int], bytes], position: int, end: int, rules: Rules, check_crc: bool, reads_body: bool = True
) -> FrameVerdict:
    """What the broker makes of the bytes at `position` of a file of which [0, end) counts.

    `read` gives the bytes at a position; lengths are checked against what is left before anything is read. A body that
    is not read (`reads_body`: not by the dispatcher) has no bound but the file's end.
    """
    left = end - position
    if left <= 4:
        return FrameVerdict(why="the file is over, and no blank frame leads to the next one")
    head = read(position, min(left, LARGEST_HEAD_SIZE))
    size = int.from_bytes(head[:4], "big", signed=True)
    if len(head) < BLANK_FRAME.size or (rules.compares_room and left < size):
        return FrameVerdict(why=f"size {size} is more than the {left} bytes that are left")
    magic = int.from_bytes(head[4:8], "big")
    if magic == BLANK_MAGIC:
        return FrameVerdict(is_blank=True)
    if magic != MESSAGE_MAGIC_V1 and not (rules.reads_v2 and magic == MESSAGE_MAGIC_V2):
        return FrameVerdict(why=f"found a illegal magic code 0x{magic:x}")
    said = frame_head(head)
    if said is None or size < 0:
        return FrameVerdict(why=f"size {size} cannot be read")
    body_end = said.size + max(0, said.body_length)
    topic_layout = TOPIC_LENGTH_V2 if magic == MESSAGE_MAGIC_V2 else TOPIC_LENGTH_V1
    if body_end + topic_layout.size > left or (reads_body and said.body_length > size):
        return FrameVerdict(why=f"body length {said.body_length} does not fit")
    if reads_body and size > MAXIMUM_FRAME_SIZE:
        return FrameVerdict(why=f"size {size} cannot be read")
    body = read(position + said.size, body_end - said.size) if reads_body else b""
    if check_crc and body and zlib.crc32(body) & CRC_MASK != said.body_crc:
        return FrameVerdict(why="CRC check failed")
    (topic_length,) = topic_layout.unpack_from(read(position + body_end, topic_layout.size), 0)
    topic_begin = body_end + topic_layout.size
    topic_end = topic_begin + topic_length
    if not 0 <= topic_length <= size or topic_end + PROPERTIES_LENGTH.size > left:
        return FrameVerdict(why=f"topic length {topic_length} does not fit")
    (property_length,) = PROPERTIES_LENGTH.unpack_from(read(position + topic_end, PROPERTIES_LENGTH.size), 0)
    property_length = max(0, property_length)
    property_end = topic_end + PROPERTIES_LENGTH.size + property_length
    if property_length > size or property_end > left:
        return FrameVerdict(why=f"length {property_length} of the properties does not fit")
    if property_end != size:
        return FrameVerdict(size=size, why="found a half message")
    topic = read(position + topic_begin, topic_length).decode("utf-8", "replace")
    property_bytes = (
        read(position + property_end - property_length, property_length).decode("utf-8", "replace").encode()
    )
    message = StoredMessage._make((*said[:-1], body, topic, property_bytes))
    why = unreadable_number(message, knows_batches=rules.knows_batches)
    return FrameVerdict(why=why) if why else FrameVerdict(message=message, size=size)
