"""One entry of a consume queue, and how its tags code is to be read (docs/formats.md)."""

from __future__ import annotations

from typing import NamedTuple

# ConsumeQueue#fillPreBlank: what stands in slots before the first message of a queue that began later
PLACEHOLDER_SIZE = 0x7FFFFFFF
# ConsumeQueueExt: a tags code at or below this is the address of an ext unit
MAXIMUM_EXT_ADDRESS = -0x80000001
_EXT_ADDRESS_BASE = -(1 << 63)

QueueKey = tuple[str, int]
"""Topic and queue id."""


class QueueUnit(NamedTuple):
    """A slot of a queue. `batch_size` is 1 but for inner batches, whose `queue_offset` is that of the first message.

    `store_timestamp` (ms) and `compacted_offset` stand in batch units only; 0 and -1 elsewhere.
    """

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int = 0
    batch_size: int = 1
    compacted_offset: int = -1

    @property
    def is_written(self) -> bool:
        """Whether the slot points at something: neither zeros nor a placeholder."""
        return self.physical_offset >= 0 and 0 < self.size < PLACEHOLDER_SIZE

    @property
    def is_placeholder(self) -> bool:
        """Whether the slot only keeps the place of a message that was never in this queue's files."""
        return self.size == PLACEHOLDER_SIZE and self.physical_offset == 0

    @property
    def is_nonsense(self) -> bool:
        """Whether the slot holds what nobody writes: no message, no placeholder, and not the zeros of an empty slot."""
        is_empty = self.physical_offset == 0 and self.size == 0
        return not (self.is_written or self.is_placeholder or is_empty)

    @property
    def end(self) -> int:
        """Physical offset behind the message."""
        return self.physical_offset + self.size

    @property
    def next_queue_offset(self) -> int:
        """Queue offset behind this unit."""
        return self.queue_offset + self.batch_size


def ext_offset(tags_code: int) -> int | None:
    """Byte offset in the ext queue that `tags_code` addresses, None if it is a plain code."""
    return tags_code - _EXT_ADDRESS_BASE if tags_code <= MAXIMUM_EXT_ADDRESS else None


def ext_address(offset: int) -> int:
    """The tags code that addresses byte `offset` of the ext queue."""
    return offset + _EXT_ADDRESS_BASE
