"""The columns that frames are written from, as numbers that kernels and Python share."""

from __future__ import annotations

import enum


class Frame(enum.IntEnum):
    """Rows of a table of 64-bit integers with a column for each frame. Times in ms, sizes in bytes."""

    SIZE = 0
    QUEUE_ID = 1
    FLAG = 2
    SYS_FLAG = 3
    QUEUE_OFFSET = 4
    BORN_TIMESTAMP = 5
    BORN_HOST = 6
    """Number of the host."""
    RECONSUME_TIMES = 7
    PREPARED = 8
    TOPIC = 9
    """Number of the topic."""
    STORE_TIMESTAMP = 10
    STORE_HOST = 11
    """Number of the host; HOST_TABLE for the store's own."""


class FrameSpan(enum.IntEnum):
    """Rows of the tables of where bytes begin and end."""

    BODY = 0
    PROPERTIES = 1


HOST_TABLE = 0
"""Where the store's own host stands among the packed hosts; all others follow it."""
