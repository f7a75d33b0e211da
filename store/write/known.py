"""What is looked up for ordinary messages instead of being made for each: topics, names, hosts, the room they go to."""

from __future__ import annotations

from typing import NamedTuple

from formats.hosts import Host
from formats.layouts import (
    FRAME_HEAD_44,
    PROPERTIES_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TRANSACTION_MASK,
)
from store.files.mapped_file import MappedFile
from store.queues.offset_table import NextOffset

# flags that make a message take the whole way
UNUSUAL_FLAGS = TRANSACTION_MASK | SYS_FLAG_INNER_BATCH | SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
# bytes of a frame besides body, topic and properties
OVERHEAD = FRAME_HEAD_44.size + TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size


class KnownTopic(NamedTuple):
    """`field`: the topic with its length before it, as in the frame; `queues`: the next offsets of queues that were put
    to."""

    field: bytes
    queues: dict[int, NextOffset]


class Window(NamedTuple):
    """The room in the current file that ordinary messages may use, for a kernel: what lies before `limit` in `mapped`,
    whose first byte has `start_offset`."""

    file: MappedFile
    mapped: object
    limit: int
    start_offset: int


def packed_host(host: Host | None) -> bytes | None:
    """The eight bytes of an IPv4 host in a frame; None for IPv6, and for what is no host at all."""
    if host is None:
        return None
    try:
        return host.ip + host.port.to_bytes(4, "big", signed=True) if len(host.ip) == 4 else None
    except (AttributeError, OverflowError, TypeError):
        return None
