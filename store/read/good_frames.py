"""Which frames in a piece of the log are good, and as nearly all are: in compiled form (frame_checks.c) or plainly."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any
from zlib import crc32

from rmqctl.formats.checksums import CRC_MASK, PROPERTY_CRC_NAME, PROPERTY_CRC_SIZE
from rmqctl.formats.hosts import LOCAL_HOST
from rmqctl.formats.layouts import (
    CONSUMEQUEUE_UNIT,
    FRAME_HEAD_44,
    MESSAGE_MAGIC_V1,
    PROPERTIES_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
)
from rmqctl.formats.message import Message, frame_bytes, prepare_frame
from rmqctl.formats.properties import PROPERTY_SEPARATOR
from rmqctl.store.read.frames import AHEAD, NEAR, end_of_near

WantedFrame = tuple[int, int, int]
"""Physical offset, size, queue offset."""
GoodFrames = Callable[[bytes, int, list[WantedFrame], int, int, bytes], list[tuple[bytes, bytes]]]
"""good_frames(window, begin, wanted, number, queue_id, topic): frames with their properties, from wanted[number] on, up
to the first that is not in `window`, bytes of the log from physical offset `begin` on, or not usual: has what its unit
and queue say, this topic with its length before it, neither an IPv6 address nor a CRC of its own, and all of law 3."""

_SOURCES = ("store/read/frame_checks.c", "formats/layouts.h", "store/compiled/crc32.h")
_LOOKED_AT = (
    "total_size", "magic_code", "body_crc", "queue_id", "queue_offset", "physical_offset", "sys_flag", "body_length"
)  # fmt: skip
# the head of a frame without the fields that may be anything
_head = struct.Struct(
    ">" + "".join(kind if name in _LOOKED_AT else f"{size}x" for name, kind, _, size in FRAME_HEAD_44.fields)
).unpack_from
_properties_length = PROPERTIES_LENGTH.struct.unpack_from
_V6 = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6


@functools.cache
def frame_checks() -> ModuleType | None:
    """The compiled form; None where there is none."""
    # what loads it takes a short command's time
    from rmqctl.store.compiled.extensions import load_extension

    return load_extension("rmqctl.store.read.frame_checks", "checks of frames", _SOURCES, _is_right)[0]


@functools.cache
def crc_address() -> int:
    """What the compiled form takes in the end, of the CRC that it uses."""
    from rmqctl.store.compiled import extensions

    return extensions.crc_address()


@functools.cache
def good_frames() -> GoodFrames:
    """The fastest form there is."""
    module = frame_checks()
    return plain_good_frames if module is None else _of(module)


def plain_good_frames(
    window: bytes, begin: int, wanted: list[WantedFrame], number: int, queue_id: int, topic: bytes
) -> list[tuple[bytes, bytes]]:
    """See GoodFrames; the plain twin of frame_checks.c."""
    found: list[tuple[bytes, bytes]] = []
    for physical_offset, size, queue_offset in wanted[number:]:
        at = physical_offset - begin
        frame_end = at + size
        if at < 0 or size < FRAME_HEAD_44.size or frame_end > len(window):
            break
        total_size, magic, crc, queue, slot, position, sys_flag, body_length = _head(window, at)
        body_at = at + FRAME_HEAD_44.size
        body_end = body_at + body_length
        properties_at = body_end + len(topic) + PROPERTIES_LENGTH.size
        if (
            (total_size, magic, position, slot, queue)
            != (size, MESSAGE_MAGIC_V1, physical_offset, queue_offset, queue_id)
            or sys_flag & _V6
            or body_length < 0
            or properties_at > frame_end
            or not window.startswith(topic, body_end)
            or _properties_length(window, properties_at - PROPERTIES_LENGTH.size)[0] != frame_end - properties_at
            or (body_length and crc32(window[body_at:body_end]) & CRC_MASK != crc)
        ):
            break
        properties = window[properties_at:frame_end]
        if not (properties.isascii() or _is_utf8(properties)) or _may_have_crc(properties):
            break
        found.append((window[at:frame_end], properties))
    return found


def _may_have_crc(properties: bytes) -> bool:
    return properties.endswith(PROPERTY_SEPARATOR) and properties.startswith(PROPERTY_CRC_NAME, -PROPERTY_CRC_SIZE)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _of(module: ModuleType) -> GoodFrames:
    def found(*arguments: object) -> list[tuple[bytes, bytes]]:
        pairs: list[tuple[bytes, bytes]] = module.good_frames(*arguments, address)
        return pairs

    address = crc_address()
    return found


def _is_right(module: ModuleType) -> bool:
    """Whether it finds what the plain form does, tried on two frames of which each bit is another one once."""
    checked = _of(module)
    message, begin = Message("Topic", b"body" * 20, 3, properties={"KEYS": "ä"}), 1000
    window, wanted = b"xx", []
    for queue_offset in (8, 9):
        frame = frame_bytes(prepare_frame(message, LOCAL_HOST, 77), queue_offset, begin + len(window), 77)
        wanted.append((begin + len(window), len(frame), queue_offset))
        window += frame
    topic = TOPIC_LENGTH_V1.struct.pack(len(message.topic)) + message.topic.encode()
    if len(checked(window, begin, wanted, 0, 3, topic)) != 2:
        return False
    for place in range(len(window)):
        changed = bytearray(window)
        changed[place] ^= 1 << place % 8
        tried = (bytes(changed), begin, wanted, 0, 3, topic)
        plain = plain_good_frames(*tried)
        if checked(*tried) != plain or _run(module, *tried) != [frame for frame, _ in plain]:
            return False
    return all(
        checked(window, begin, places, number, queue_id, topic)
        == plain_good_frames(window, begin, places, number, queue_id, topic)
        for places in (wanted, wanted[::-1], [(begin + 1, 91, 8)], [(begin - 1, 91, 8)], [(begin + 2, 1 << 30, 8)])
        for number in range(3)
        for queue_id in (3, 4)
    ) and all(
        module.next_read(_units(places), number, NEAR, AHEAD) == (places[number][0], end_of_near(places, number))
        for places in (wanted, wanted[::-1], [(0, 9, 0), (9 + NEAR, 9, 1), (19 + 2 * NEAR, 9, 2)], [(9, AHEAD, 0)] * 2)
        for number in range(2)
    )


def _run(
    module: ModuleType, window: bytes, begin: int, wanted: list[WantedFrame], number: int, queue_id: int, topic: bytes
) -> Any:
    """What `good_run` finds of consecutive slots."""
    return module.good_run(window, begin, _units(wanted), number, wanted[0][2], queue_id, topic, crc_address())


def _units(wanted: list[WantedFrame]) -> bytes:
    return b"".join(CONSUMEQUEUE_UNIT.struct.pack(one[0], one[1], 0) for one in wanted)
