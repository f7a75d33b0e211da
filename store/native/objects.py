"""How compiled modules reach into Python's objects: fields of named tuples, bytes and texts.

This is the plain form; objects.pxd is what compiled modules take into themselves. Nothing here runs code of an object's
own, and every place is compared with the length.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from rmqctl.store.native.memory import check_range
from rmqctl.store.native.uncompiled import WritableBytes

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
