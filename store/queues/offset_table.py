"""The next queue offset of every queue, as a put assigns them (QueueOffsetOperator)."""

from __future__ import annotations

from collections.abc import Iterable

from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import QueueKey


class NextOffset:
    """The offset that a queue's next message gets."""

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        self.value = value


class OffsetTable:
    """Next offset by (topic, queue id); 0 for a queue that never had a message. LMQ queues are in here too, with id 0.

    Not safe by itself: it is used under the put lock only.
    """

    def __init__(self) -> None:
        self._next: dict[QueueKey, NextOffset] = {}

    def load(self, queues: Iterable[AnyConsumeQueue]) -> None:
        """Take the ends of `queues` as they are on disk (ConsumeQueueStore#recoverOffsetTable)."""
        for queue in queues:
            self.entry((queue.topic, queue.queue_id)).value = queue.max_offset

    def entry(self, key: QueueKey) -> NextOffset:
        """The place where the queue's next offset stands; stays the same one for good."""
        return self._next.setdefault(key, NextOffset())

    def next_offset(self, key: QueueKey) -> int:
        """The offset the queue's next message gets."""
        found = self._next.get(key)
        return 0 if found is None else found.value

    def advance(self, key: QueueKey, count: int) -> None:
        """Count `count` messages that are in the log now."""
        self.entry(key).value += count
