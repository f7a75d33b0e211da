"""Which client of a group has a queue for itself, as consumers in order want it (RebalanceLockManager)."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.network.remoting.fastjson import MessageQueue

EXPIRED_AFTER_MS = 60_000
"""A lock that is not renewed for so long is free (rocketmq.broker.rebalance.lockMaxLiveTime)."""

_MOST_LOCKS = 100_000


class _Lock(NamedTuple):
    client_id: str
    renewed_at: int


class QueueLocks:
    """Locks by group and queue. Whoever calls says what time it is (ms)."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, MessageQueue], _Lock] = {}

    def lock(self, group: str, queue: MessageQueue, client_id: str, now: int) -> bool:
        """Give the queue to a client, or leave it to the one that has it; whether the client has it now."""
        held = self._locks.get((group, queue))
        if held is not None and held.client_id != client_id and now - held.renewed_at <= EXPIRED_AFTER_MS:
            return False
        if held is None and len(self._locks) >= _MOST_LOCKS:
            return False
        self._locks[group, queue] = _Lock(client_id, now)
        return True

    def unlock(self, group: str, queue: MessageQueue, client_id: str) -> None:
        """Take the queue back from the client that has it."""
        held = self._locks.get((group, queue))
        if held is not None and held.client_id == client_id:
            del self._locks[group, queue]

    def is_held(self, group: str, now: int) -> bool:
        """Whether any client of `group` has a queue for itself."""
        return any(
            other == group and now - held.renewed_at <= EXPIRED_AFTER_MS for (other, _), held in self._locks.items()
        )

    def expire(self, now: int) -> None:
        """Forget locks that nobody renewed."""
        old = [key for key, held in self._locks.items() if now - held.renewed_at > EXPIRED_AFTER_MS]
        for key in old:
            del self._locks[key]
