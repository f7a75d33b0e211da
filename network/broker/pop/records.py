"""What POP has handed out: handles of messages, their checkpoints in memory, and the records stored of them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_int, parse_long
from rmqctl.formats.errors import ExhaustedError, RmqctlError, UsageError, WriteFailedError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.properties import in_java_order
from rmqctl.network.broker.broker import WritableBroker
from rmqctl.network.broker.tables import config_table
from rmqctl.network.remoting.codec import ResponseCode
from rmqctl.network.remoting.requests import RequestError
from rmqctl.store.answers.config_offsets import offset_key
from rmqctl.store.pop.load import order_entries
from rmqctl.store.pop.records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    ORDER_FILE,
    POP_SEPARATORS,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    OrderedPop,
    PopCheckpoint,
    PopKey,
    RecordError,
    revive_record,
)
from rmqctl.store.write.put import PendingPut

ORDERED_QUEUE = 999
"""Revive queue in the handles of ordered pops, which have no record (KeyBuilder.POP_ORDER_REVIVE_QUEUE)."""
_PARTS = 6
_MOST_OUTSTANDING = 1_000_000


def retry_flag(topic: str) -> str:
    """Return what handles say of the kind of a topic (ExtraInfoUtil#getRetry)."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if POP_SEPARATORS[0] in topic else "1"


def original_topic(topic: str, group: str) -> str:
    """Return the topic whose messages a group retries in a topic of POP; any other is its own."""
    for separator in POP_SEPARATORS:
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


class PopHandle(NamedTuple):
    """What a client gives back of a message that it has popped (ExtraInfoUtil). Times in ms."""

    start: int
    popped_at: int
    invisible: int
    revive_queue: int
    retry: str
    broker: str

    def text(self, queue_id: int, queue_offset: int) -> str:
        """Return the handle of one message."""
        return " ".join(map(str, (*self, queue_id, queue_offset)))


def pop_handle(text: str) -> PopHandle:
    """Return what a handle says. Raises: RequestError."""
    parts = text.split(" ")
    numbers = [parse_long(part) for part in parts[:3]] if len(parts) >= _PARTS else []
    revive_queue = parse_int(parts[3]) if numbers else None
    if None in numbers or revive_queue is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "extraInfo is not the handle of a popped message")
    start, popped_at, invisible = (number or 0 for number in numbers)
    return PopHandle(start, popped_at, invisible, revive_queue, parts[4], parts[5])


class Outstanding:
    """A checkpoint that is not settled: its revive queue, and bits of messages that are acknowledged."""

    __slots__ = ("acked", "checkpoint", "revive_queue")

    def __init__(self, checkpoint: PopCheckpoint, revive_queue: int) -> None:
        self.checkpoint = checkpoint
        self.revive_queue = revive_queue
        self.acked = checkpoint.acked

    @property
    def open_count(self) -> int:
        """How many of its messages are not acknowledged."""
        count = len(self.checkpoint.distances)
        return count - (self.acked & (1 << count) - 1).bit_count()


class PopRecords:
    """Stores checkpoints and acknowledgements in the revive topic, and knows the checkpoints that are not settled: what
    a handle says counts only if there is one."""

    def __init__(self, broker: WritableBroker) -> None:
        self._broker = broker
        self.topic = f"{REVIVE_PREFIX}{broker.identity.cluster}"
        self._known: dict[PopKey, Outstanding] = {}
        self._in_flight: Counter[tuple[str, str, int]] = Counter()
        self._turn = 0

    def next_queue(self) -> int:
        """Return the revive queue of the next pop, in turn."""
        self._turn += 1
        return (self._turn - 1) % max(1, self._broker.settings.revive_queue_num)

    # ---- what is known

    def find(self, key: PopKey, offset: int) -> Outstanding | None:
        """Return the checkpoint with this key, if it has handed out a message that is not acknowledged."""
        found = self._known.get(key)
        if found is None:
            found = self._known.get(key._replace(start=offset))
            # handles of kvStore/ name the first message of their pop, of which nothing else is kept
            found = found if found is not None and found.checkpoint.put_again else None
        index = None if found is None else found.checkpoint.index_of(offset)
        return None if index is None or found is None or found.acked >> index & 1 else found

    def get(self, key: PopKey) -> Outstanding | None:
        """Return the checkpoint with this key; None if it is settled, or was never made."""
        return self._known.get(key)

    def settle(self, key: PopKey) -> None:
        """Forget a checkpoint: what was not acknowledged is revived."""
        found = self._known.pop(key, None)
        if found is not None:
            self._count(key, -found.open_count)

    def __len__(self) -> int:
        return len(self._known)

    def in_flight(self, queue: tuple[str, str, int] | None = None) -> int:
        """Return how many messages are in flight, of a queue (group, topic, queue id) or in all."""
        return self._in_flight.total() if queue is None else self._in_flight[queue]

    def take(self, stored: StoredMessage) -> None:
        """Learn of a record that waits in the timer since before this broker began."""
        properties = stored.properties()
        revive_queue = parse_int(properties.get(names.REAL_QUEUE_ID, ""))
        if properties.get(names.REAL_TOPIC) != self.topic or revive_queue is None:
            return
        try:
            record = revive_record(properties.get(names.TAGS), stored.plain_body())
        except (RecordError, RmqctlError):
            return  # delivering it says so
        if isinstance(record, PopCheckpoint):
            self._note(record, revive_queue)
        elif record is not None and record.key in self._known:
            self._set_bits(self._known[record.key], record.offsets)

    def _note(self, checkpoint: PopCheckpoint, revive_queue: int) -> None:
        if len(self._known) < _MOST_OUTSTANDING:
            self.settle(checkpoint.key)
            self._known[checkpoint.key] = found = Outstanding(checkpoint, revive_queue)
            self._count(checkpoint.key, found.open_count)

    def _count(self, key: PopKey, more: int) -> None:
        place = key[:3]
        self._in_flight[place] += more
        if self._in_flight[place] <= 0:
            del self._in_flight[place]

    def _set_bits(self, found: Outstanding, offsets: Sequence[int]) -> None:
        before = found.open_count
        for offset in offsets:
            index = found.checkpoint.index_of(offset)
            found.acked |= 0 if index is None else 1 << index
        self._count(found.checkpoint.key, found.open_count - before)

    # ---- what is stored

    def hand_out(self, checkpoint: PopCheckpoint, revive_queue: int) -> PendingPut | None:
        """Store a checkpoint; None where that cannot be, or there is one like it: then nothing may be handed out."""
        if len(self._known) >= _MOST_OUTSTANDING:
            self._broker.tell_once((self.topic, -1), f"{_MOST_OUTSTANDING} pops are in flight: no message is popped")
            return None
        if checkpoint.key in self._known:
            return None
        put = self.put_checkpoint(checkpoint, revive_queue)
        if put is not None:
            self._note(checkpoint, revive_queue)
        return put

    def put_checkpoint(self, checkpoint: PopCheckpoint, revive_queue: int) -> PendingPut | None:
        """Store a checkpoint without noting it; None where that cannot be."""
        return self._put(CHECKPOINT_TAG, checkpoint.body(), checkpoint.unique_key, checkpoint.deliver_at, revive_queue)

    def acknowledge(self, found: Outstanding, offsets: Sequence[int], *, is_batch: bool) -> PendingPut | None:
        """Store that messages of a checkpoint are acknowledged; None where that cannot be."""
        key = found.checkpoint.key
        put = self._put(
            BATCH_ACK_TAG if is_batch else ACK_TAG,
            key.ack_body(offsets, is_batch=is_batch),
            key.ack_unique_key(offsets, is_batch=is_batch),
            found.checkpoint.deadline,
            found.revive_queue,
        )
        if put is not None:
            self._set_bits(found, offsets)
        return put

    def _put(self, tag: str, body: bytes, unique_key: str, deliver_at: int, queue_id: int) -> PendingPut | None:
        named = {names.TAGS: tag, names.UNIQUE_KEY: unique_key, names.TIMER_PROPERTIES[2]: str(deliver_at)}
        message = Message(self.topic, body, queue_id, properties=in_java_order(named))
        try:
            put = self._broker.put([message])
        except (ExhaustedError, UsageError, WriteFailedError) as error:
            self._broker.tell_once((self.topic, queue_id), f"no record of POP is stored: {error}")
            return None
        result = put.results[0]
        if result.status.is_stored:
            return put
        self._broker.tell_once((self.topic, queue_id), f"no record of POP is stored: {result.status}: {result.detail}")
        return None


# Ordered pops: of each queue the last one, which blocks the queue until its messages are done with or visible again.
#
# (QueueLevelConsumerManager; a pop blocks a queue of one group, and acknowledgements move its offset)

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
