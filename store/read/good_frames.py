"""Which frames in a piece of the log are good, and as nearly all are: in compiled form (frame_checks.c) or plainly."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import NamedTuple
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


class FrameChecks(NamedTuple):
    """All that is done with many frames at once, in one form. `window`: bytes of the log from physical offset `begin`
    on; `units`: of consecutive slots of a queue, as stored; `topic`: with its length before it.

    A frame is good here, and usual, that has what its unit and queue say, this topic, neither an IPv6 address nor a CRC
    of its own, and all of law 3.
    """

    good_frames: Callable[[bytes, int, list[WantedFrame], int, int, bytes], list[tuple[bytes, bytes]]]
    """good_frames(window, begin, wanted, number, queue_id, topic): frames with their properties, from wanted[number]
    on, up to the first that is not good or not in the window. As the others, it takes numbers of 64 bits."""
    good_run: Callable[[bytes, int, bytes, int, int, int, bytes], tuple[bytes, int]]
    """good_run(window, begin, units, number, slot, queue_id, topic): the same from units[number] on, the frames one
    after the other, and how many they are. `slot`: that of units[0]. ValueError for a negative number."""
    next_read: Callable[[bytes, int], tuple[int, int]]
    """next_read(units, number): physical offsets of a read that begins with the frame of units[number]: where that is
    and `end_of_near`, or some end before it where a unit leads to no frame. ValueError for a unit that there is not."""
    fitting: Callable[[bytes, int], int]
    """fitting(units, most): how many units from the first on have frames that take no more than `most` bytes; the first
    whatever its size."""


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
def frame_checks() -> FrameChecks:
    """The fastest form there is."""
    # what loads it takes a short command's time
    from rmqctl.store.compiled.extensions import load_extension

    module = load_extension("rmqctl.store.read.frame_checks", "checks of frames", _SOURCES, _is_right)[0]
    return PLAIN if module is None else compiled_checks(module)


def compiled_checks(module: ModuleType) -> FrameChecks:
    """The form of frame_checks.c, with the CRC that is there."""
    from rmqctl.store.compiled.extensions import crc_address

    return FrameChecks(
        functools.partial(module.good_frames, crc_address()),
        functools.partial(module.good_run, crc_address()),
        functools.partial(module.next_read, NEAR, AHEAD),
        module.fitting,
    )


def plain_good_frames(
    window: bytes, begin: int, wanted: list[WantedFrame], number: int, queue_id: int, topic: bytes
) -> list[tuple[bytes, bytes]]:
    """See FrameChecks; all that is called plain here is the twin of frame_checks.c."""
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


def plain_good_run(
    window: bytes, begin: int, units: bytes, number: int, slot: int, queue_id: int, topic: bytes
) -> tuple[bytes, int]:
    """See FrameChecks."""
    if number < 0:
        raise _no_unit()
    wanted: list[WantedFrame] = [
        (physical_offset, size, slot + place) for place, (physical_offset, size, _) in enumerate(_each(units))
    ]
    found = plain_good_frames(window, begin, wanted, number, queue_id, topic)
    return b"".join(frame for frame, _ in found), len(found)


def plain_next_read(units: bytes, number: int) -> tuple[int, int]:
    """See FrameChecks."""
    places = list(_each(units))
    if not 0 <= number < len(places):
        raise _no_unit()
    return places[number][0], end_of_near(places, number)


def plain_fitting(units: bytes, most: int) -> int:
    """See FrameChecks."""
    sizes = [size for _, size, _ in _each(units)]
    while len(sizes) > 1 and sum(sizes) > most:
        sizes.pop()
    return len(sizes)


def _no_unit() -> ValueError:
    return ValueError("there is no such unit")


def _each(units: bytes) -> Iterator[tuple[int, ...]]:
    return CONSUMEQUEUE_UNIT.struct.iter_unpack(units)


PLAIN = FrameChecks(plain_good_frames, plain_good_run, plain_next_read, plain_fitting)


def _may_have_crc(properties: bytes) -> bool:
    return properties.endswith(PROPERTY_SEPARATOR) and properties.startswith(PROPERTY_CRC_NAME, -PROPERTY_CRC_SIZE)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_right(module: ModuleType) -> bool:
    """Whether it finds what the plain form does, tried on two frames of which each bit is another one once."""
    checks = compiled_checks(module)
    message, begin = Message("Topic", b"body" * 20, 3, properties={"KEYS": "ä"}), 1000
    window, wanted = b"xx", []
    for queue_offset in (8, 9):
        frame = frame_bytes(prepare_frame(message, LOCAL_HOST, 77), queue_offset, begin + len(window), 77)
        wanted.append((begin + len(window), len(frame), queue_offset))
        window += frame
    topic = TOPIC_LENGTH_V1.struct.pack(len(message.topic)) + message.topic.encode()
    if checks.good_run(window, begin, _units(wanted), 0, 8, 3, topic) != (window[2:], 2):
        return False
    for place in range(len(window)):
        changed = bytearray(window)
        changed[place] ^= 1 << place % 8
        if not _is_same(checks, bytes(changed), begin, wanted, 0, 3, topic):
            return False
    return all(
        _is_same(checks, window, begin, places, number, queue_id, topic)
        for places in (wanted, wanted[::-1], [(begin + 1, 91, 8)], [(begin - 1, 91, 8)], [(begin + 2, 1 << 30, 8)])
        for number in range(3)
        for queue_id in (3, 4)
    ) and all(
        checks.next_read(_units(places), number) == plain_next_read(_units(places), number)
        and all(checks.fitting(_units(places), most) == plain_fitting(_units(places), most) for most in _sums(places))
        for places in (wanted, wanted[::-1], *_at_the_limits())
        for number in range(len(places))
    )


def _at_the_limits() -> Iterator[list[WantedFrame]]:
    """Frames that one read still reaches, and those that it does not reach any more."""
    for beyond in range(2):
        yield [(0, 9, 0), (9 + NEAR + beyond, 9, 1)]
        yield [(9, 9, 0), (18, AHEAD - 9 + beyond, 1)]


def _sums(places: list[WantedFrame]) -> Iterator[int]:
    """Bytes that frames take, from the first on, and one less each."""
    total = 0
    for _, size, _ in places:
        total += size
        yield from (total - 1, total)


def _is_same(
    checks: FrameChecks,
    window: bytes,
    begin: int,
    wanted: list[WantedFrame],
    number: int,
    queue_id: int,
    topic: bytes,
) -> bool:
    """Whether it finds the same frames, by whichever function."""
    tried, run = (window, begin, wanted, number, queue_id, topic), (window, begin, _units(wanted), number)
    return checks.good_frames(*tried) == plain_good_frames(*tried) and checks.good_run(
        *run, wanted[0][2], queue_id, topic
    ) == plain_good_run(*run, wanted[0][2], queue_id, topic)


def _units(wanted: list[WantedFrame]) -> bytes:
    return b"".join(CONSUMEQUEUE_UNIT.struct.pack(one[0], one[1], 0) for one in wanted)
