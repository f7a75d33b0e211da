"""The next queue offset of every queue, as a put assigns them (QueueOffsetOperator, spec/write-path.md 4)."""

from __future__ import annotations

from collections.abc import Iterable

from store.queues.queue_table import AnyConsumeQueue

QueueKey = tuple[str, int]


class OffsetTable:
    """Next offset by (topic, queue id); 0 for a queue that never had a message. LMQ queues are in here too, with id 0.

    Not safe by itself: it is used under the put lock only.
    """

    def __init__(self) -> None:
        self._next: dict[QueueKey, int] = {}

    def load(self, queues: Iterable[AnyConsumeQueue]) -> None:
        """Take the ends of `queues` as they are on disk (ConsumeQueueStore#recoverOffsetTable)."""
        for queue in queues:
            self._next[(queue.topic, queue.queue_id)] = queue.max_offset

    def next_offset(self, key: QueueKey) -> int:
        """The offset the queue's next message gets."""
        return self._next.get(key, 0)

    def advance(self, key: QueueKey, count: int) -> None:
        """Count `count` messages that are in the log now."""
        self._next[key] = self._next.get(key, 0) + count
