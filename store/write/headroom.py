"""Keeps enough of the disk free that what is in the log can be dispatched to queues and index, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmqctl.store.files import io
from rmqctl.store.files.presence import disk_space

# never given away
_KEPT_FREE = 1024 * 1024
# what a new queue unit or index entry can take: two directories, a block of the file, one of the index's slots
UNIT_COST = 16 * 1024
# the free space is looked up anew after messages of this cost, or of a part of what was free, if that is more
_LOOK_EVERY = 16 * 1024 * 1024
_PART = 8
_LOOK_AT_LEAST_EVERY = 1 << 32
# with less than this, every put waits until everything before it is dispatched
_PLENTY = 256 * 1024 * 1024
# Bytes of queues and index for each byte of messages of queues that are there already, at worst: a unit has 20 bytes
# and a frame at least 91, an index entry 20 and a key with the space behind it at least 2.
_COST_OF_A_BYTE = 11
# what such messages can take besides: all slots of an index file, the rest of a block in each of some thousand queues
_COST_OF_MANY = 64 * 1024 * 1024


class Headroom:
    """A budget of bytes on the disk of the store's root. Queues and index are written after the put has answered, so
    their space must be there before a message is accepted. Another process that fills the disk can still win.

    `wait_for_dispatch` waits until everything up to a physical offset is dispatched. `most_used` (percent): refuse
    puts from there on, as a broker does by diskSpaceWarningLevelRatio; None: never.
    """

    def __init__(self, root: Path, wait_for_dispatch: Callable[[int], None], most_used: int | None = None) -> None:
        self._root = root
        self._wait_for_dispatch = wait_for_dispatch
        self._most_used = most_used
        self._look_every = 0
        self._unlooked = 0
        self._is_scarce = True
        self._settled_offset = 0
        self.is_over_ratio = False

    def settle(self, end_offset: int) -> None:
        """Before the put lock is taken: look at the disk if it is time to, and let the dispatch keep up.

        `end_offset`: the end of the log now. The dispatch is never further behind than the cost of two looks.
        """
        if self._unlooked >= self._look_every:
            self._unlooked = 0
            self._wait_for_dispatch(self._settled_offset)
            self._settled_offset = end_offset
            free = io.free_bytes(self._root)
            self._is_scarce = free < _PLENTY
            self._look_every = min(max(_LOOK_EVERY, free // _PART), _LOOK_AT_LEAST_EVERY)
            self._look_at_ratio()
        if self._is_scarce:
            self._wait_for_dispatch(end_offset)

    def admit(self, cost: int) -> bool:
        """Under the put lock, with the room in the log reserved: whether `cost` more bytes can be dispatched."""
        self._unlooked += cost
        return not self._is_scarce or io.free_bytes(self._root) >= _KEPT_FREE + cost

    def admit_ordinary(self, size: int) -> bool:
        """The same for `size` bytes of messages for queues that exist, which is looked at once for many of them.

        Never where free space is scarce: there each message is to be looked at.
        """
        if self._is_scarce or self._look_every < 4 * _COST_OF_MANY:
            return False
        self._unlooked += size * _COST_OF_A_BYTE
        return True

    def _look_at_ratio(self) -> None:
        if self._most_used is not None:
            used, entire = disk_space(self._root)
            self.is_over_ratio = used * 100 >= self._most_used * entire
