"""Which frames in a piece of the log are good, and as nearly all are.

A frame is good here, and usual, that has what its unit and queue say, the topic asked for, neither an IPv6 address nor
a CRC of its own, and all of law 3. `window`: bytes of the log from physical offset `begin` on; `units`: of consecutive
slots of a queue, as stored; `topic`: with its length before it. Numbers have 64 bits.
"""

from __future__ import annotations

from typing import Any

from rmqctl.formats.checksums import CRC_MASK, PROPERTY_CRC_NAME, PROPERTY_CRC_SIZE
from rmqctl.formats.layouts import (
    CONSUMEQUEUE_UNIT,
    FRAME_HEAD_44,
    MESSAGE_MAGIC_V1,
    PROPERTIES_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)
from rmqctl.formats.properties import MAXIMUM_PROPERTIES_SIZE, PROPERTY_SEPARATOR
from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import crc32, i64, int_at, is_utf8, long_at, part, same, short_at

if not cython.compiled:
    from rmqctl.store.native.memory import crc32, i64, int_at, is_utf8, long_at, part, same, short_at
    from rmqctl.store.native.uncompiled import Bytes

_HEAD, _LENGTH = FRAME_HEAD_44.size, PROPERTIES_LENGTH.size
_SIZE_AT, _MAGIC_AT = FRAME_HEAD_44.offset("total_size"), FRAME_HEAD_44.offset("magic_code")
_CRC_AT, _QUEUE_ID_AT = FRAME_HEAD_44.offset("body_crc"), FRAME_HEAD_44.offset("queue_id")
_QUEUE_OFFSET_AT, _POSITION_AT = FRAME_HEAD_44.offset("queue_offset"), FRAME_HEAD_44.offset("physical_offset")
_SYS_FLAG_AT, _BODY_LENGTH_AT = FRAME_HEAD_44.offset("sys_flag"), FRAME_HEAD_44.offset("body_length")
# with a sign, as it is read
_MAGIC, _V6 = MESSAGE_MAGIC_V1 - (1 << 32), SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_CRC_MASK, _CRC_SIZE, _LONGEST_PROPERTIES = CRC_MASK, PROPERTY_CRC_SIZE, MAXIMUM_PROPERTIES_SIZE
_CRC_FIRST, _PROPERTY_END = PROPERTY_CRC_NAME[0], PROPERTY_SEPARATOR[0]
_UNIT = CONSUMEQUEUE_UNIT.size
_UNIT_PLACE_AT, _UNIT_SIZE_AT = CONSUMEQUEUE_UNIT.offset("physical_offset"), CONSUMEQUEUE_UNIT.offset("size")
_HIGHEST_LONG = (1 << 63) - 1


def good_frames(
    window: bytes, begin: cython.longlong, wanted: list[Any], number: cython.Py_ssize_t, queue_id: cython.longlong,
    topic: bytes,
) -> list[tuple[bytes, bytes]]:  # fmt: skip
    """Frames with their properties, from wanted[number] on, up to the first that is not good or not in the window.
    `wanted`: physical offset, size and queue offset of each."""
    view: Bytes = window
    topic_view: Bytes = topic
    place: cython.Py_ssize_t
    at: cython.Py_ssize_t
    properties_at: cython.Py_ssize_t
    physical_offset: cython.longlong
    size: cython.longlong
    queue_offset: cython.longlong
    found: list[tuple[bytes, bytes]] = []
    if number < 0:
        return found
    for place in range(number, len(wanted)):
        physical_offset, size, queue_offset = wanted[place]
        properties_at = properties_of(view, begin, physical_offset, size, queue_offset, queue_id, topic_view)
        if properties_at == 0:
            break
        at = physical_offset - begin
        found.append((part(window, at, size), part(window, properties_at, at + size - properties_at)))
    return found


def good_run(
    window: bytes, begin: cython.longlong, units: bytes, number: cython.Py_ssize_t, slot: cython.longlong,
    queue_id: cython.longlong, topic: bytes,
) -> tuple[bytes, int]:  # fmt: skip
    """The same from units[number] on, the frames one after the other, and how many they are. `slot`: that of units[0].
    ValueError for a negative number."""
    view: Bytes = window
    topic_view: Bytes = topic
    unit_view: Bytes = units
    count: cython.Py_ssize_t = len(units) // _UNIT
    first: cython.Py_ssize_t = number
    physical_offset: cython.longlong
    size: cython.longlong
    # the frames that were found last, without a gap between them
    run_at: cython.Py_ssize_t = 0
    run_end: cython.Py_ssize_t = 0
    pieces: list[bytes] = []
    if number < 0:
        raise _no_unit()
    while number < count and slot <= _HIGHEST_LONG - number:
        physical_offset = long_at(unit_view, number * _UNIT + _UNIT_PLACE_AT)
        size = int_at(unit_view, number * _UNIT + _UNIT_SIZE_AT)
        if properties_of(view, begin, physical_offset, size, slot + number, queue_id, topic_view) == 0:
            break
        if physical_offset - begin != run_end:
            pieces.append(window[run_at:run_end])
            run_at = physical_offset - begin
        run_end = physical_offset - begin + size
        number += 1
    # what was read without a gap is given as it is: bytes do not copy all of themselves
    pieces.append(window[run_at:run_end])
    return b"".join(pieces) if len(pieces) > 1 else pieces[0], number - first


def next_read(
    units: bytes, number: cython.Py_ssize_t, near: cython.longlong, ahead: cython.longlong
) -> tuple[int, int]:
    """Physical offsets of a read that begins with the frame of units[number]: where that is, and behind the last of
    those that follow, each no more than `near` bytes away and all within `ahead` bytes; or some end before it where a
    unit leads to no frame. ValueError for a unit that there is not."""
    view: Bytes = units
    count: cython.Py_ssize_t = len(units) // _UNIT
    place: cython.longlong
    begin: cython.longlong
    end: cython.longlong
    next_end: cython.longlong
    if number < 0 or number >= count:
        raise _no_unit()
    begin = long_at(view, number * _UNIT + _UNIT_PLACE_AT)
    end = end_of(begin, int_at(view, number * _UNIT + _UNIT_SIZE_AT))
    while end >= 0 and number + 1 < count:
        number += 1
        place = long_at(view, number * _UNIT + _UNIT_PLACE_AT)
        next_end = end_of(place, int_at(view, number * _UNIT + _UNIT_SIZE_AT))
        if place < end or place - end > near or next_end < 0 or next_end - begin > ahead:
            break
        end = next_end
    return begin, end


def fitting(units: bytes, most: cython.longlong) -> int:
    """How many units from the first on have frames of at most `most` bytes together; the first one of any size."""
    view: Bytes = units
    count: cython.Py_ssize_t = len(units) // _UNIT
    place: cython.Py_ssize_t
    fits: cython.Py_ssize_t = 1 if count else 0
    total: cython.longlong = 0
    for place in range(count):
        total += int_at(view, place * _UNIT + _UNIT_SIZE_AT)
        if total <= most:
            fits = place + 1
    return fits


def properties_of(
    view: Bytes, begin: cython.longlong, physical_offset: cython.longlong, size: cython.longlong,
    queue_offset: cython.longlong, queue_id: cython.longlong, topic: Bytes,
) -> cython.Py_ssize_t:  # fmt: skip
    """Where the properties of the frame begin that is wanted, within the window; 0 if it is not there or not usual."""
    at: cython.longlong
    body_size: cython.longlong
    body_at: cython.longlong
    left: cython.longlong
    properties_at: cython.longlong
    if physical_offset < begin or size < _HEAD:
        return 0
    # less than 0 where the distance has no room
    at = i64(cython.cast(cython.ulonglong, physical_offset) - cython.cast(cython.ulonglong, begin))
    if at < 0 or at > len(view) or size > len(view) - at:
        return 0
    body_size = int_at(view, at + _BODY_LENGTH_AT)
    left = size - _HEAD - len(topic) - _LENGTH
    body_at = at + _HEAD
    if (
        body_size < 0
        or body_size > left
        or int_at(view, at + _SIZE_AT) != size
        or int_at(view, at + _MAGIC_AT) != _MAGIC
        or long_at(view, at + _POSITION_AT) != physical_offset
        or long_at(view, at + _QUEUE_OFFSET_AT) != queue_offset
        or int_at(view, at + _QUEUE_ID_AT) != queue_id
        or int_at(view, at + _SYS_FLAG_AT) & _V6
        or not same(view, body_at + body_size, topic, 0, len(topic))
    ):
        return 0
    properties_at = body_at + body_size + len(topic) + _LENGTH
    left -= body_size
    if (
        left > _LONGEST_PROPERTIES
        or short_at(view, properties_at - _LENGTH) != left
        or (body_size and (crc32(view, body_at, body_size) & _CRC_MASK) != int_at(view, at + _CRC_AT))
        or not is_utf8(view, properties_at, left)
        or may_have_crc(view, properties_at, left)
    ):
        return 0
    return properties_at


def may_have_crc(view: Bytes, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Whether properties may end with the CRC of the frame."""
    begin: cython.Py_ssize_t = max(size - _CRC_SIZE, 0)
    # most frames end here: a view of the name takes longer than all else
    if size == 0 or view[at + size - 1] != _PROPERTY_END or view[at + begin] != _CRC_FIRST:
        return False
    name: Bytes = PROPERTY_CRC_NAME
    return size - begin >= len(name) and same(view, at + begin, name, 0, len(name))


def end_of(physical_offset: cython.longlong, size: cython.longlong) -> cython.longlong:
    """Where the frame of a unit ends; -1 where no frame has such a place."""
    if physical_offset < 0 or size < 0 or physical_offset > _HIGHEST_LONG - size:
        return -1
    return physical_offset + size


def _no_unit() -> ValueError:
    return ValueError("there is no such unit")
