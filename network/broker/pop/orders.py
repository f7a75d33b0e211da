"""Ordered pops: of each queue the last one, which blocks the queue until its messages are done with or visible again.

(QueueLevelConsumerManager; a pop blocks a queue of one group, and acknowledgements move its offset)
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

from rmqctl.network.broker.broker import WritableBroker
from rmqctl.network.broker.tables import config_table
from rmqctl.store.answers.config_offsets import offset_key
from rmqctl.store.pop.load import order_entries
from rmqctl.store.pop.records import ORDER_FILE, OrderedPop

_TABLE = "table"
# what nobody has consumed for so long is forgotten
_KEPT_MS = 24 * 3_600_000
# a kill forgets acknowledgements since then, and their messages come again
_SAVE_MS = 1000
_MOST_QUEUES = 100_000


class PopQueueKey(NamedTuple):
    """A group and a queue that it pops."""

    group: str
    topic: str
    queue_id: int


class OrderedPops:
    """The last ordered pop by group and queue, kept in consumerOrderInfo.json."""

    def __init__(self, broker: WritableBroker) -> None:
        """CorruptError and UnreadableError for a damaged file, which would be lost otherwise."""
        found = config_table(broker.files, ORDER_FILE, _TABLE, broker.tell, "", is_written=True)
        self._broker = broker
        self._pops: dict[PopQueueKey, OrderedPop] = {}
        for name, queue_id, entry in order_entries(found.rows):
            owner = offset_key(name)
            if owner is None or queue_id is None or not isinstance(entry, OrderedPop):
                broker.tell(f"{ORDER_FILE}: {name} queue {queue_id} is not an ordered pop and is left out")
            else:
                self._pops[PopQueueKey(owner.group, owner.topic, queue_id)] = entry
        self._free: list[tuple[int, str, int]] = []
        self._has_changed = False
        self._saved_at = broker.elapsed()

    def find(self, key: PopQueueKey) -> OrderedPop | None:
        """Return the last pop of a queue; None where none is kept."""
        return self._pops.get(key)

    def is_blocked(self, key: PopQueueKey, attempt_id: str | None, now: int) -> bool:
        """Return whether messages of the last pop are neither acknowledged nor visible again at `now` (ms); who comes
        with the attempt that popped them is let through."""
        pop = self._pops.get(key)
        if pop is None or (pop.attempt_id is not None and pop.attempt_id == attempt_id):
            return False
        return any(until > now and not pop.is_acked(at) for at, until in enumerate(pop.until))

    def pop(
        self, key: PopQueueKey, offsets: Sequence[int], attempt_id: str | None, popped_at: int, invisible: int
    ) -> dict[int, int]:
        """Note a pop of messages; how often each of them was handed out before, by offset, as far as it was."""
        before, found = self._pops.get(key), dict[int, int]()
        if before is not None:
            counts = dict(zip(before.offsets, before.consumed, strict=True))
            if before.attempt_id is not None and before.attempt_id == attempt_id:
                found = {offset: count for offset, count in counts.items() if count}
            else:
                found = {offset: counts[offset] + 1 for offset in offsets if offset in counts}
        elif len(self._pops) >= _MOST_QUEUES:
            self._forget(popped_at)
        until = (popped_at + invisible,) * len(offsets)
        consumed = tuple(found.get(offset, 0) for offset in offsets)
        self._note(key, OrderedPop(tuple(offsets), 0, popped_at, until, consumed, attempt_id, invisible, popped_at))
        return found

    def acknowledge(self, key: PopQueueKey, offset: int, popped_at: int) -> int | None:
        """Note that a message is done with; the offset of the group then. None where its pop is not the last one, or
        has not handed it out."""
        pop = self._pops.get(key)
        if pop is None or pop.popped_at != popped_at or offset not in pop.offsets:
            return None
        pop = pop._replace(acked=pop.acked | 1 << pop.offsets.index(offset))
        self._note(key, pop)
        return pop.next_offset

    def change(self, key: PopQueueKey, offset: int, popped_at: int, until: int) -> bool:
        """Have a message of the last pop invisible until then (ms); whether there is one."""
        pop = self._pops.get(key)
        if pop is None or pop.popped_at != popped_at or offset not in pop.offsets:
            return False
        at = pop.offsets.index(offset)
        self._note(key, pop._replace(until=(*pop.until[:at], until, *pop.until[at + 1 :])))
        return True

    def clear(self, key: PopQueueKey) -> None:
        """Forget the last pop of a queue, whose group was set to an offset."""
        self._has_changed |= self._pops.pop(key, None) is not None

    def _note(self, key: PopQueueKey, pop: OrderedPop) -> None:
        self._pops[key] = pop
        self._has_changed = True
        ends = [until for at, until in enumerate(pop.until) if not pop.is_acked(at)]
        if ends:
            heapq.heappush(self._free, (max(ends), key.topic, key.queue_id))

    def step(self, now: int) -> None:
        """Wake who waits for queues that are free at `now` (ms); save from time to time."""
        free: set[tuple[str, int]] = set()
        while self._free and self._free[0][0] <= now:
            free.add(heapq.heappop(self._free)[1:])
        if free and self._broker.settings.enable_notify_after_pop_order_lock_release:
            self._broker.wake(free)
        if self._has_changed and self._broker.elapsed() - self._saved_at >= _SAVE_MS:
            self.save()

    def save(self) -> None:
        """Have the pops written."""
        if self._has_changed:
            self._saved_at, self._has_changed = self._broker.elapsed(), False
            self._forget(self._broker.clock())
            self._broker.saver.save(ORDER_FILE, self._content)

    def _forget(self, now: int) -> None:
        """Forget pops of what is gone, or long past (#autoClean)."""
        topics, groups = self._broker.topics, self._broker.groups
        for key, pop in list(self._pops.items()):
            topic = topics.find(key.topic)
            is_there = topic is not None and key.queue_id < topic.read_queue_nums
            if not is_there or groups.find(key.group) is None or now - pop.noted_at > _KEPT_MS:
                del self._pops[key]

    def _content(self) -> dict[str, Any]:
        table: dict[str, dict[int, Any]] = {}
        for (group, topic, queue_id), pop in sorted(dict(self._pops).items()):
            table.setdefault(f"{topic}@{group}", {})[queue_id] = pop.entry()
        if not self._broker.identity.release.has_lite_topics:
            return {_TABLE: table}
        return {"orderInfoCount": len(table), "orderedConsumptionLevel": "QUEUE", _TABLE: table}
