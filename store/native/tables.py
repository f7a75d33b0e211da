"""The tables that compiled code fills and reads: their columns, and what else it and its callers tell each other."""

from __future__ import annotations

import enum


class Columns(enum.IntFlag):
    """Groups of columns to ask for. Physical offset and size are always there; what is not asked for costs nothing."""

    NONE = 0
    HEAD = 1
    """The numbers of the frame's head."""
    TOPIC = 2
    """`topic_id`."""
    TAGS = 4
    """`tags_code`, `delay_level` and `needs_plain`: with HEAD and TOPIC all that a consume queue needs."""
    KEYS = 8
    """`key_hash` and `key_row`: the entries of the key index."""
    BYTES = 16
    """Where body, properties and hosts lie in `window`. Batches are then no longer than a window."""
    TAG_KEYS = 32
    """With KEYS: also the entries of tags, which RocketMQ writes since 5.4; `key_is_tag`."""
    DISPATCH = HEAD | TOPIC | TAGS | KEYS
    ALL = DISPATCH | BYTES


class NeedsPlain(enum.IntFlag):
    """Why the columns do not say all about a row: take `MessageColumns.message(row)` for what they leave open."""

    NO = 0
    MULTI_DISPATCH = 1
    """It has slots in further queues (`INNER_MULTI_DISPATCH`)."""
    INNER_BATCH = 2
    """It is an inner batch, with several queue offsets and a unit of 46 bytes, or has the property INNER_NUM of one."""
    DELAY = 4
    """Inside this package only: the level has to be read by Python."""
    KEYS = 8
    """Inside this package only: more keys than the walk compares."""


# The 64-bit and the 32-bit columns in the order of their tables; the walk takes its row numbers from here.
LONGS: dict[str, Columns] = {
    "physical_offset": Columns.NONE,
    "queue_offset": Columns.HEAD,
    "born_timestamp": Columns.HEAD,
    "store_timestamp": Columns.HEAD,
    "prepared_transaction_offset": Columns.HEAD,
    "tags_code": Columns.TAGS,
}
INTS: dict[str, Columns] = {
    "size": Columns.NONE,
    "queue_id": Columns.HEAD,
    "flag": Columns.HEAD,
    "sys_flag": Columns.HEAD,
    "body_crc": Columns.HEAD,
    "reconsume_times": Columns.HEAD,
    "born_host_port": Columns.HEAD,
    "store_host_port": Columns.HEAD,
    "topic_id": Columns.TOPIC,
    "delay_level": Columns.TAGS,
    "needs_plain": Columns.TAGS,
    "body_position": Columns.BYTES,
    "body_length": Columns.BYTES,
    "property_position": Columns.BYTES,
    "property_length": Columns.BYTES,
    "born_host_position": Columns.BYTES,
    "store_host_position": Columns.BYTES,
    "born_host_start": Columns.BYTES,
    "store_host_start": Columns.BYTES,
}


# The table of topics in which the walk looks them up.

MAXIMUM_PROBES = 16
"""The walk gives up after this many slots, and Python's own dictionary answers: names made to collide cost no more."""
# the columns of `entries`: where the topic stands in `text`, the key hash behind `topic#`, and whether it is the
# schedule topic
TEXT_BEGIN, TEXT_LENGTH, KEY_STATE, IS_SCHEDULE = range(4)


# The columns that frames are written from, as numbers that kernels and Python share.


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
"""Index of the store's own host among the packed hosts; all others follow it."""


# How the walk of a window ends.

STOPPED = 0
"""No good message starts there, as far as the columns can tell: the plain walk decides."""
WINDOW_END = 1
"""The next frame is not wholly in the window, or starts at or behind the place to stop at."""
FULL = 2
"""The arrays are."""
NEW_TOPIC = 3
"""The topic of the next message is not in the table: come back with its id as `topic_hint`."""

KEYS_OF_A_ROW = 64
"""As many keys of one message the walk compares with one another; Python does it for messages with more."""
