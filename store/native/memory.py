"""How compiled modules read and write integers in bytes, big-endian as RocketMQ stores them, and the CRC of a range.

Also how they reach into Python's objects: fields of named tuples, bytes and texts. This is the plain form; memory.pxd
is what compiled modules take into themselves. Every place is compared with the length, and nothing here runs code of an
object's own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Any

from rmqctl.store.native.text import hash_of, topic_hash_of
from rmqctl.store.native.uncompiled import Bytes, WritableBytes

_get_short, _get_int, _get_long = Struct(">h").unpack_from, Struct(">i").unpack_from, Struct(">q").unpack_from
_get_little_long = Struct("<q").unpack_from
_put_short, _put_int, _put_long = Struct(">H").pack_into, Struct(">I").pack_into, Struct(">Q").pack_into


def out_of_range(at: int) -> None:
    """Raise IndexError."""
    raise IndexError(at)


def check_range(view: Bytes, at: int, length: int) -> None:
    """IndexError where a range is not within a view."""
    if at < 0 or length < 0 or at > len(view) - length:
        raise IndexError(at)


def short_at(view: Bytes, at: int) -> int:
    """The short at a place."""
    if at < 0 or at > len(view) - 2:
        raise IndexError(at)
    found: int = _get_short(view, at)[0]
    return found


def int_at(view: Bytes, at: int) -> int:
    """The int at a place."""
    if at < 0 or at > len(view) - 4:
        raise IndexError(at)
    found: int = _get_int(view, at)[0]
    return found


def long_at(view: Bytes, at: int) -> int:
    """The long at a place."""
    if at < 0 or at > len(view) - 8:
        raise IndexError(at)
    found: int = _get_long(view, at)[0]
    return found


def little_long_at(view: Bytes, at: int) -> int:
    """The long at a place, little-endian as RocksDB stores it."""
    if at < 0 or at > len(view) - 8:
        raise IndexError(at)
    found: int = _get_little_long(view, at)[0]
    return found


def set_short(view: WritableBytes, at: int, value: int) -> None:
    """Write the low 16 bits of a value."""
    if at < 0 or at > len(view) - 2:
        raise IndexError(at)
    _put_short(view, at, value & 0xFFFF)


def set_int(view: WritableBytes, at: int, value: int) -> None:
    """Write the low 32 bits of a value."""
    if at < 0 or at > len(view) - 4:
        raise IndexError(at)
    _put_int(view, at, value & 0xFFFFFFFF)


def set_long(view: WritableBytes, at: int, value: int) -> None:
    """Write the low 64 bits of a value."""
    if at < 0 or at > len(view) - 8:
        raise IndexError(at)
    _put_long(view, at, value & 0xFFFFFFFFFFFFFFFF)


get_int, get_long, get_little_long, put_int, put_long = int_at, long_at, little_long_at, set_int, set_long
"""The same where the caller has shown that the whole field is within the view: the compiled form compares nothing."""


def i32(value: int) -> int:
    """The low 32 bits, as Java's cast to int."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def u32(value: int) -> int:
    """The low 32 bits, without a sign."""
    return value & 0xFFFFFFFF


def i64(value: int) -> int:
    """The low 64 bits, as Java's long."""
    return (value + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def copy(target: WritableBytes, to: int, source: Bytes, at: int, length: int) -> None:
    """Copy a range of one view into another one; they do not overlap."""
    check_range(target, to, length)
    check_range(source, at, length)
    target[to : to + length] = source[at : at + length]


def same(view: Bytes, at: int, other: Bytes, begin: int, length: int) -> bool:
    """Whether two ranges hold the same bytes."""
    check_range(view, at, length)
    check_range(other, begin, length)
    return view[at : at + length] == other[begin : begin + length]


def find(view: Bytes, at: int, end: int, byte: int) -> int:
    """Where a byte is first in a range; `end` where it is not."""
    check_range(view, at, end - at)
    place = bytes(view[at:end]).find(byte)
    return end if place < 0 else at + place


def crc32(view: Bytes, at: int, length: int) -> int:
    """CRC-32 of a range as zlib gives it."""
    check_range(view, at, length)
    return zlib.crc32(view[at : at + length])


def is_utf8(view: Bytes, at: int, length: int) -> bool:
    """Whether a range is UTF-8 as Python takes it."""
    check_range(view, at, length)
    try:
        str(view[at : at + length], "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def hash_on(state: int, view: Bytes, at: int, length: int) -> int:
    """String.hashCode, an int, continued from `state` over a range of which is known that it is UTF-8."""
    check_range(view, at, length)
    return hash_of(state, bytes(view[at : at + length]), length)


def topic_hash(seed: int, view: Bytes, at: int, length: int) -> int:
    """Where the search for the topic of a range begins."""
    check_range(view, at, length)
    return topic_hash_of(seed, bytes(view[at : at + length]), length)


item: Callable[[Any, int], Any] = tuple.__getitem__
"""item(fields, place): one field of a tuple."""
crc_of_bytes: Callable[[bytes], int] = zlib.crc32
"""crc_of_bytes(data): the CRC-32 of all of `data`."""


def copy_bytes(target: WritableBytes, to: int, data: bytes) -> None:
    """Copy all of `data` to a place."""
    end = to + len(data)
    if to < 0 or end > len(target):
        raise IndexError(to)
    target[to:end] = data


def copy_text(target: WritableBytes, to: int, text: str, end: int) -> int:
    """Copy the UTF-8 form of a text to a place, and return its length. ValueError for half a surrogate pair and for a
    text with the byte `end`."""
    data = text.encode("utf-8")
    if end in data:
        raise ValueError("a text holds what ends it")
    copy_bytes(target, to, data)
    return len(data)


def fence() -> None:
    """Have other processors see what was written so far before what is written from now on."""


def part(data: bytes, at: int, length: int) -> bytes:
    """Return a range of bytes."""
    check_range(data, at, length)
    return data[at : at + length]


def bytes_at(view: Bytes, at: int, length: int) -> bytes:
    """Return a range of a view."""
    check_range(view, at, length)
    return bytes(view[at : at + length])
