"""What Python and the walk kernel tell each other: places in the kernel's `state`, and how a walk ends."""

from __future__ import annotations

import enum

# how a walk of a window ends
STOPPED = 0
"""No good message starts there, as far as the kernel can tell: the plain walk decides."""
WINDOW_END = 1
"""The next frame is not wholly in the window, or starts at or behind the place to stop at."""
FULL = 2
"""The arrays are."""
NEW_TOPIC = 3
"""The topic of the next message is not in the table: come back with its id as TOPIC_HINT."""

KEYS_OF_A_ROW = 64
"""As many keys of one message the kernel compares with one another; Python does it for messages with more."""
PADDING = 64
"""Spare bytes behind the end of a window: kernels load whole words."""
SCRATCH_SHAPE = (2, KEYS_OF_A_ROW)


class WalkState(enum.IntEnum):
    """Places in `state`, an array of 64-bit integers. Offsets and lengths in bytes."""

    WINDOW = 0
    """Address of the window."""
    LENGTH = 1
    """Bytes in it."""
    STOP = 2
    """Position in the window where no message may start any more."""
    PHYSICAL_OFFSET = 3
    """That of the window's first byte."""
    CRC_FROM = 4
    """Physical offset from which on CRCs are checked."""
    CRC_FUNCTION = 5
    """Address of a C function."""
    ASKED = 6
    """`Columns` bits."""
    TEXT = 7
    """Address of the topic table's text."""
    SEED = 8
    """The topic table's."""
    TOPIC_HINT = 9
    """Id of the first message's topic, -1 if it is to be looked up."""
    POSITION = 10
    """In and out: position in the window."""
    ROW = 11
    """In and out: rows written."""
    KEYS = 12
    """In and out: key entries written."""
    PLAIN_ROWS = 13
    """Counts rows that have NeedsPlain.DELAY or NeedsPlain.KEYS."""
    STAMP = 14
    """Out: the stamp that the kernel was compiled with."""


STATE_SIZE = len(WalkState)
