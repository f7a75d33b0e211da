"""Messages of a store that only reads, handed out for a time: what is in flight is kept in memory.

A group without an offset begins at the first message: nothing else ever comes. What needs a message to be written, such
as a dead letter, cannot be.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple

from rmqctl.formats.message import StoredMessage, decode_message
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.members import filter_of
from rmqctl.network.broker.pop.orders import PopQueueKey
from rmqctl.network.broker.pop.records import PopHandle
from rmqctl.network.broker.pop.requests import readable, split_frames
from rmqctl.network.grpc.clients import GrpcClient
from rmqctl.network.grpc.pops import Popped, ReceiptHandle, none_found, require_time, unknown_handle
from rmqctl.network.grpc.protocol import Code
from rmqctl.network.grpc.service import StatusError
from rmqctl.network.remoting.pop_headers import PopRequest
from rmqctl.store.read.filter import TAG, MessageFilter

_MOST_IN_FLIGHT = 100_000
# how often a call that waits looks again for messages whose time is over
_LOOK_SECONDS = 0.5


class _InFlight(NamedTuple):
    """A message that a client has. Times in ms; `attempts`: how often it was handed out before."""

    popped_at: int
    invisible: int
    attempts: int


class ReadOnlyPops:
    """POP of a broker that does not write; see Pops."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._in_flight: dict[PopQueueKey, dict[int, _InFlight]] = {}
        self._count = 0

    # ---- messages go out

    async def pop(self, client: GrpcClient, header: PopRequest) -> Sequence[Popped]:
        """See Pops."""
        topic, _ = readable(self._broker, header, client, "pop")
        wanted, end = filter_of(header.exp_type or "", header.exp or ""), header.born_time + header.poll_time
        count = topic.read_queue_nums
        while True:
            found: list[Popped] = []
            begin = random.randrange(max(1, count))
            for at in range(count):
                key = PopQueueKey(header.consumer_group, topic.name, (begin + at) % count)
                self._pop_queue(key, header, wanted, found)
            left = end - self._broker.clock()
            if found:
                return found
            if left <= 0:
                raise none_found()
            await asyncio.sleep(min(left / 1000, _LOOK_SECONDS))

    def _pop_queue(self, key: PopQueueKey, header: PopRequest, wanted: MessageFilter, found: list[Popped]) -> None:
        now, in_flight = self._broker.clock(), self._in_flight.get(key, {})
        due = [offset for offset, one in in_flight.items() if one.popped_at + one.invisible <= now]
        if header.order and len(due) < len(in_flight):
            return
        for offset in sorted(due)[: header.max_msg_nums - len(found)]:
            self._take(key, header, offset, in_flight[offset].attempts + 1, found)
        left = header.max_msg_nums - len(found)
        if left <= 0 or (header.order and in_flight) or self._count >= _MOST_IN_FLIGHT:
            return
        begin, end = self._broker.bounds(key.topic, key.queue_id)
        offset = max(begin, self._broker.offsets.find(*key) or 0)
        result = self._broker.frames(key.topic, key.queue_id, offset, left, wanted)
        for frame in split_frames(result.frames):
            self._hand_out(key, header, decode_message(frame, 0, len(frame), None), 0, found)
        if offset < end:
            self._broker.offsets.commit(*key, max(offset, result.next_offset))

    def _take(self, key: PopQueueKey, header: PopRequest, offset: int, attempts: int, found: list[Popped]) -> None:
        """Hand a message out again; forget one that cannot be read any more."""
        self._forget(key, offset)
        result = self._broker.frames(key.topic, key.queue_id, offset, 1, filter_of(TAG, "*"))
        for frame in split_frames(result.frames):
            stored = decode_message(frame, 0, len(frame), None)
            if stored.queue_offset == offset:
                self._hand_out(key, header, stored, attempts, found)

    def _hand_out(
        self, key: PopQueueKey, header: PopRequest, stored: StoredMessage, attempts: int, found: list[Popped]
    ) -> None:
        offset, now = stored.queue_offset, self._broker.clock()
        self._in_flight.setdefault(key, {})[offset] = _InFlight(now, header.invisible_time, attempts)
        self._count += 1
        pop = PopHandle(offset, now, header.invisible_time, 0, "0", self._broker.identity.name)
        handle = ReceiptHandle(pop, key.queue_id, offset, stored.physical_offset)
        found.append((stored._replace(reconsume_times=stored.reconsume_times + attempts), handle))

    def _forget(self, key: PopQueueKey, offset: int) -> None:
        in_flight = self._in_flight[key]
        del in_flight[offset]
        self._count -= 1
        if not in_flight:
            del self._in_flight[key]

    # ---- and are done with

    def is_outstanding(self, handle: ReceiptHandle, group: str, topic: str) -> bool:
        """See Pops."""
        require_time(handle, self._broker.clock())
        found = self._in_flight.get(PopQueueKey(group, topic, handle.queue_id), {}).get(handle.offset)
        if found is None and handle.offset < (self._broker.offsets.find(group, topic, handle.queue_id) or 0):
            return False
        if found is None or (found.popped_at, found.invisible) != (handle.pop.popped_at, handle.pop.invisible):
            raise unknown_handle()
        return True

    async def acknowledge(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        """See Pops."""
        self._forget(PopQueueKey(group, topic, handle.queue_id), handle.offset)

    async def change(
        self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle, milliseconds: int,
        *, suspend: bool = False,
    ) -> ReceiptHandle:  # fmt: skip
        """See Pops."""
        in_flight, now = self._in_flight[PopQueueKey(group, topic, handle.queue_id)], self._broker.clock()
        attempts = in_flight[handle.offset].attempts - suspend
        in_flight[handle.offset] = _InFlight(now, milliseconds, attempts)
        return handle._replace(pop=handle.pop._replace(popped_at=now, invisible=milliseconds))

    async def forward(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        """See Pops."""
        raise StatusError(Code.FORBIDDEN, "the broker serves its store for reading only: there are no dead letters")
