"""The messages in the body of a batch, as clients encode them (MessageDecoder#encodeMessage)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError

# total size, magic, crc, flag, body length; then the body, int16 and the properties
_HEAD = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")


class BatchItem(NamedTuple):
    """One message of a batch. `property_bytes` in stored form."""

    flag: int
    body: bytes
    property_bytes: bytes


def batch_items(body: bytes) -> list[BatchItem]:
    """All messages of a batch; CorruptError where its lengths do not add up, or there are none."""
    items: list[BatchItem] = []
    position = 0
    while position < len(body):
        left = len(body) - position
        if left < _HEAD.size:
            raise CorruptError("the batch ends inside the head of a message")
        size, _, _, flag, length = _HEAD.unpack_from(body, position)
        if not _HEAD.size + _LENGTH.size <= size <= left or not 0 <= length <= size - _HEAD.size - _LENGTH.size:
            raise CorruptError(f"a message of {size} bytes with a body of {length} does not fit into the {left} left")
        body_at = position + _HEAD.size
        properties_at = body_at + length + _LENGTH.size
        (count,) = _LENGTH.unpack_from(body, body_at + length)
        if count < 0 or properties_at + count != position + size:
            raise CorruptError(f"properties of {count} bytes do not fill a message of {size}")
        items.append(BatchItem(flag, body[body_at : body_at + length], body[properties_at : properties_at + count]))
        position += size
    if not items:
        raise CorruptError("the batch has no message")
    return items
