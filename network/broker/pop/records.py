"""What POP has handed out: handles of messages, their checkpoints in memory, and the records stored of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_int, parse_long
from rmqctl.formats.errors import ExhaustedError, RmqctlError, UsageError, WriteFailedError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.formats.properties import in_java_order
from rmqctl.network.broker.broker import WritableBroker
from rmqctl.network.remoting.codec import ResponseCode
from rmqctl.network.remoting.requests import RequestError
from rmqctl.store.pop.records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    POP_SEPARATORS,
    RETRY_PREFIX,
    REVIVE_PREFIX,
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
