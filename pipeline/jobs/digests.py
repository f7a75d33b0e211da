"""Digests of 128 bits, two numbers each: of texts, of messages as stored, of messages as consumers see them; and sums.

They are equal wherever they are made: plain BLAKE2, nothing of this machine or process goes in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.checksums import PROPERTY_CRC_NAME, PROPERTY_CRC_SIZE
from rmqctl.formats.layouts import FRAME_HEADS, SYS_FLAG_STORE_HOST_V6
from rmqctl.store.columns.batch import Bytes, Flags, Int32s, Int64s, MessageColumns
from rmqctl.store.scan.arrays import Texts

SIZE = 16
Digests = NDArray[np.uint64]
"""One row of two numbers for each."""

_OFFSET_AT = FRAME_HEADS[0].offset("physical_offset")
_BEHIND_OFFSET = _OFFSET_AT + 8
_HOST_AT = FRAME_HEADS[0].offset("born_host_ip")
_CONTENT = struct.Struct(">iiqii")
# odd, so that no power of them is zero in 64 bits
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_MASK = (1 << 64) - 1


def as_digests(made: Iterable[bytes]) -> Digests:
    """Digests of SIZE bytes as numbers."""
    return np.frombuffer(b"".join(made), "<u8").reshape(-1, 2)


def text_digests(texts: Texts, rows: Int64s) -> Digests:
    """Of some of the texts."""
    data = texts.data.tobytes()
    begins, ends = texts.offsets[rows].tolist(), texts.offsets[rows + 1].tolist()
    return as_digests(
        blake2b(data[begin:end], digest_size=SIZE).digest() for begin, end in zip(begins, ends, strict=True)
    )


def name_digests(ids: Int32s, names: list[str]) -> Digests:
    """Of the name of each id; names are few."""
    used, inverse = np.unique(ids, return_inverse=True)
    made = as_digests(blake2b(names[one].encode(), digest_size=SIZE, person=b"name").digest() for one in used.tolist())
    found: Digests = made[inverse]
    return found


def frame_digests(batch: MessageColumns) -> Digests:
    """Of the frames of a batch with BYTES, but for their physical offset and the `__CRC32#` that covers it."""
    assert batch.window is not None
    window = batch.window.copy()
    starts = batch.born_host_position.astype(np.int64) - _HOST_AT
    for place in range(_OFFSET_AT, _BEHIND_OFFSET):
        window[starts + place] = 0
    ends = starts + batch.size
    ends[_has_property_crc(window, ends)] -= PROPERTY_CRC_SIZE
    data = window.tobytes()
    return as_digests(
        blake2b(data[start:end], digest_size=SIZE).digest()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )


def _has_property_crc(window: Bytes, ends: Int64s) -> Flags:
    """Whether the frames that end there end with a `__CRC32#` property."""
    found = np.ones(len(ends), np.bool_)
    for place, letter in enumerate(PROPERTY_CRC_NAME):
        found &= window[ends - PROPERTY_CRC_SIZE + place] == letter
    return found


def content_digests(batch: MessageColumns) -> Digests:
    """Of what a producer said, of a batch with HEAD and BYTES: properties, flags, born time, body as stored.

    Topic and queue are left out, and all that the broker adds when it stores a message.
    """
    heads = zip(
        batch.flag.tolist(),
        (batch.sys_flag & ~SYS_FLAG_STORE_HOST_V6).tolist(),
        batch.born_timestamp.tolist(),
        batch.reconsume_times.tolist(),
        batch.property_length.tolist(),
        strict=True,
    )
    made = []
    for row, head in enumerate(heads):
        properties = bytes(batch.property_bytes(row))
        length = len(properties)
        if properties[-PROPERTY_CRC_SIZE:].startswith(PROPERTY_CRC_NAME):
            properties = properties[:-PROPERTY_CRC_SIZE]
            length -= PROPERTY_CRC_SIZE
        digest = blake2b(_CONTENT.pack(*head[:-1], length) + properties, digest_size=SIZE)
        digest.update(batch.body(row))
        made.append(digest.digest())
    return as_digests(made)


class Sums:
    """Two digests of many digests: one that does not depend on their order, and one that does.

    Sums of stretches that follow one another can be put together.
    """

    __slots__ = ("count", "in_order", "of_all")

    def __init__(self) -> None:
        self.count = 0
        self.of_all = (0, 0)
        self.in_order = (0, 0)

    def add(self, digests: Digests) -> None:
        """More digests, in their order."""
        more = Sums()
        more.count = len(digests)
        first, second = (int(one) for one in digests.sum(axis=0, dtype=np.uint64))
        more.of_all = first, second
        placed = [digests[:, lane] * _powers(lane, len(digests))[::-1] for lane in (0, 1)]
        more.in_order = int(placed[0].sum(dtype=np.uint64)), int(placed[1].sum(dtype=np.uint64))
        self.join(more)

    def join(self, later: Sums) -> None:
        """What a later stretch summed up."""
        self.count += later.count
        first, second = (one + more & _MASK for one, more in zip(self.of_all, later.of_all, strict=True))
        self.of_all = first, second
        moved = [
            mine * pow(factor, later.count, 1 << 64) + theirs & _MASK
            for mine, theirs, factor in zip(self.in_order, later.in_order, _FACTORS, strict=True)
        ]
        self.in_order = moved[0], moved[1]

    def marked(self, number: int) -> Sums:
        """The same, with another order-dependent digest for each number."""
        copy = Sums()
        copy.count, copy.of_all = self.count, self.of_all
        marks = [(number + 1) * factor for factor in reversed(_FACTORS)]
        first, second = (one * (mark | 1) & _MASK for one, mark in zip(self.in_order, marks, strict=True))
        copy.in_order = first, second
        return copy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sums) and all(getattr(self, name) == getattr(other, name) for name in Sums.__slots__)

    def __hash__(self) -> int:
        return hash((self.count, self.of_all, self.in_order))


def _powers(lane: int, count: int) -> NDArray[np.uint64]:
    """The powers 0, 1, … of a lane's factor."""
    length = 1 << max(4, (count - 1).bit_length())
    return _power_table(lane, length)[:count]


@cache
def _power_table(lane: int, length: int) -> NDArray[np.uint64]:
    factors = np.full(length, _FACTORS[lane], np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


def hexadecimal(numbers: tuple[int, int]) -> str:
    """A digest as people compare it."""
    return f"{numbers[0]:016x}{numbers[1]:016x}"
