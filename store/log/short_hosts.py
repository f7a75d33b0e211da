"""Frames whose flag says IPv6 of a host that takes 4 bytes in them.

A broker with an IPv4 address that stores a message of one with IPv6 again (it was sent back, or is put back as a
transaction) keeps the flag of the store host and writes its own address. The frame's size counts 16 bytes for it: 12
of no meaning end the frame. Brokers read the body from the wrong place, and end the log there when they recover.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, frame_crc, parse_property_crc
from rmqctl.formats.errors import counted
from rmqctl.formats.layouts import FRAME_HEADS, SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6
from rmqctl.formats.message import MINIMUM_FRAME_SIZE, FrameDamage, StoredMessage, decode_message
from rmqctl.store.log.search import FrameSearch

_FLAG = slice(FRAME_HEADS[0].offset("sys_flag"), FRAME_HEADS[0].offset("sys_flag") + 4)
_UNUSED = 12
# larger ones are not read again
_LARGEST = 16 * 1024 * 1024
_NAMED = 3
_LONGEST_NAME = 80
_SIDES = {
    SYS_FLAG_STORE_HOST_V6: "store host",
    SYS_FLAG_BORN_HOST_V6: "born host",
    SYS_FLAG_STORE_HOST_V6 | SYS_FLAG_BORN_HOST_V6: "store host and the born host",
}


def short_host_detail(search: FrameSearch, span: tuple[int, int], end: int, start: int) -> str:
    """Return what is wrong with the frames of a damaged span, if the first of them has such a host; empty where it is
    another damage. The file begins at physical offset `start` of the log and is read up to `end`."""
    count, side, first = 0, "", []
    for wrong, message in _found(search, span, end, start):
        count += 1
        side = side or _SIDES[wrong]
        if count <= _NAMED:
            first.append(_named(message))
    if not count:
        return ""
    named = "; ".join(first)
    return (
        f"flagged as IPv6, the {side} takes 4 bytes: a broker with IPv4 stored what one with IPv6 had; "
        f"but for that {counted(count, 'message')} can be read: {named}"
    )


def _found(search: FrameSearch, span: tuple[int, int], end: int, start: int) -> Iterator[tuple[int, StoredMessage]]:
    position, stop = span
    # the bytes of no meaning may be zeros, which do not count to the last span of a file
    limit = min(stop + 2 * _UNUSED, end) if stop == search.nonzero_end else stop
    while position < stop and limit - position >= MINIMUM_FRAME_SIZE:
        size = int.from_bytes(search.read(position, 4), "big", signed=True)
        if not MINIMUM_FRAME_SIZE + _UNUSED <= size <= min(limit - position, _LARGEST):
            return
        one = _read_short(search.read(position, size), start + position)
        if one is None:
            return
        yield one
        position += size


def _read_short(frame: bytes, physical_offset: int) -> tuple[int, StoredMessage] | None:
    """The message, and the flags of its hosts that are wrong; None unless all else is right, the CRCs as well."""
    expected = parse_property_crc(frame[-PROPERTY_CRC_SIZE:])
    if expected is not None and frame_crc(memoryview(frame)[:-PROPERTY_CRC_SIZE]) != expected:
        return None
    flag = int.from_bytes(frame[_FLAG], "big")
    for wrong in _SIDES:
        if flag & wrong != wrong:
            continue
        size = len(frame) - _UNUSED * wrong.bit_count()
        plain = bytearray(frame[:size])
        plain[:4] = size.to_bytes(4, "big")
        plain[_FLAG] = (flag & ~wrong).to_bytes(4, "big")
        try:
            return wrong, decode_message(plain, 0, size, physical_offset)
        except FrameDamage:
            continue
    return None


def _named(message: StoredMessage) -> str:
    properties = message.properties()
    topic = properties.get(names.REAL_TOPIC, message.topic)
    key = properties.get(names.UNIQUE_KEY) or properties.get(names.KEYS)
    return f"topic {_plain(topic)}, key {_plain(key)}" if key else f"topic {_plain(topic)}"


def _plain(text: str) -> str:
    """Text of the store as one may print it."""
    return "".join(one if one.isprintable() else "?" for one in text[:_LONGEST_NAME])
