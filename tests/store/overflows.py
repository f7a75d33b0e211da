"""Frames with a length of topic or properties that overflows its signed field, made byte by byte."""

from __future__ import annotations

from rmqctl.formats.layouts import MESSAGE_MAGIC_V2
from tests.store.logs import frame


def overflowed(
    physical_offset: int, properties: bytes, body: bytes = b"the body", *, topic: bytes = b"T", v2: bool = False
) -> bytes:
    """A frame whose size, CRCs and unsigned lengths agree, although a broker reads a length as negative."""
    head = bytearray(frame(physical_offset, body, queue_offset=1)[: -len(b"\1T\0\0")])
    head += len(topic).to_bytes(2 if v2 else 1, "big") + topic + len(properties).to_bytes(2, "big") + properties
    head[:4] = len(head).to_bytes(4, "big")
    if v2:
        head[4:8] = MESSAGE_MAGIC_V2.to_bytes(4, "big")
    return bytes(head)


def long_properties(size: int) -> bytes:
    """Properties of `size` bytes: a key, and a value K that fills the rest."""
    begin = b"KEYS\1k1\2K\1"
    return begin.ljust(size - 1, b"v") + b"\2"
