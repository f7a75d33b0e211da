"""Where the messages of gRPC consumers come from, and what becomes of them: POP of the broker, by its requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from rmqctl.formats.checksums import parse_long
from rmqctl.formats.message import StoredMessage, decode_message
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.members import filter_of
from rmqctl.network.broker.pop.records import ORDERED_QUEUE, PopHandle, PopQueueKey, retry_flag
from rmqctl.network.broker.pop.requests import POP_CHECKPOINT, readable, split_frames
from rmqctl.network.broker.pop.service import PopBroker
from rmqctl.network.grpc.clients import GrpcClient
from rmqctl.network.grpc.protocol import Code
from rmqctl.network.grpc.service import GrpcBroker, StatusError, require_success
from rmqctl.network.remoting import headers, pop_headers
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.pop_headers import PopRequest
from rmqctl.store.pop.records import PopKey, pop_retry_topics
from rmqctl.store.read.filter import TAG, MessageFilter

# Receipt handles: what clients give back of a message that they have (ReceiptHandle)
_PARTS = 9


class ReceiptHandle(NamedTuple):
    """What a handle says: that of remoting, and the place of its message in the log."""

    pop: PopHandle
    queue_id: int
    offset: int
    physical_offset: int

    @property
    def text(self) -> str:
        """The handle as clients have it."""
        return f"{self.extra_info} {self.physical_offset}"

    @property
    def extra_info(self) -> str:
        """The handle as requests of remoting have it."""
        return self.pop.text(self.queue_id, self.offset)

    @property
    def expires_at(self) -> int:
        """When the message is visible again (ms)."""
        return self.pop.popped_at + self.pop.invisible

    def real_topic(self, group: str, topic: str) -> str:
        """Return the topic that the message was popped of, which may be one of the group's retries."""
        second, first = pop_retry_topics(group, topic)
        return {"1": first, "2": second}.get(self.pop.retry, topic)


def parse_receipt_handle(text: str) -> ReceiptHandle:
    """Return what a handle says. Raises: StatusError for any other text."""
    parts = text.split(" ")
    numbers = [parse_long(part) for at, part in enumerate(parts) if at not in (4, 5)]
    if len(parts) != _PARTS or None in numbers or parts[4] not in ("0", "1", "2"):
        raise StatusError(Code.INTERNAL_SERVER_ERROR, "receipt handle is not one of this service")
    start, popped_at, invisible, revive_queue, queue_id, offset, physical = (number or 0 for number in numbers)
    pop = PopHandle(start, popped_at, invisible, revive_queue, parts[4], parts[5])
    return ReceiptHandle(pop, queue_id, offset, physical)


def unknown_handle() -> StatusError:
    """Return the refusal of a handle that its group was never given."""
    return StatusError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is of no message that this group was given")


def require_time(handle: ReceiptHandle, now: int) -> None:
    """Raise StatusError for a handle that has expired at `now` (ms)."""
    if handle.expires_at <= now:
        raise StatusError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")


Popped = tuple[StoredMessage, ReceiptHandle]
"""A message that was handed out, and its handle."""
_EMPTY_CODES = (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND)


class Pops(Protocol):
    """Hands messages out for a time. All but `pop` take a handle that `is_outstanding`."""

    async def pop(self, client: GrpcClient, header: pop_headers.PopRequest) -> Sequence[Popped]:
        """Return messages, waiting for some. Raises: StatusError where there are none."""

    def is_outstanding(self, handle: ReceiptHandle, group: str, topic: str) -> bool:
        """Return whether the message of a handle is still to be acknowledged.

        Raises: StatusError for a handle that has expired, or that the group was never given.
        """

    async def acknowledge(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        """A message is done with."""

    async def change(
        self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle, milliseconds: int,
        *, suspend: bool = False,
    ) -> ReceiptHandle:  # fmt: skip
        """Have a message invisible for a time from now on; return its new handle."""

    async def forward(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Move a message to the dead letters of its group."""


def none_found() -> StatusError:
    """Return the answer of a call that has waited in vain."""
    return StatusError(Code.MESSAGE_NOT_FOUND, "no new message")


class StoredPops:
    """POP of a broker that writes: its checkpoints are in the store."""

    def __init__(self, service: GrpcBroker, broker: PopBroker) -> None:
        self._service = service
        self._broker = broker

    async def pop(self, client: GrpcClient, header: pop_headers.PopRequest) -> Sequence[Popped]:
        """See Pops."""
        answer = await self._service.ask(client, RequestCode.POP_MESSAGE, header)
        if answer.code == ResponseCode.POLLING_FULL:
            raise StatusError(Code.TOO_MANY_REQUESTS, "polling full")
        if answer.code in _EMPTY_CODES:
            raise none_found()
        return list(_popped(require_success(answer), self._broker.identity.name))

    def is_outstanding(self, handle: ReceiptHandle, group: str, topic: str) -> bool:
        """See Pops."""
        broker = self._broker
        require_time(handle, broker.clock())
        real = handle.real_topic(group, topic)
        if handle.pop.revive_queue == ORDERED_QUEUE:
            key = PopQueueKey(group, real, handle.queue_id)
            pop = broker.pop.orders.find(key)
            committed = broker.offsets.find(*key)
            if pop is not None and committed is not None and handle.offset < committed:
                return False
            if pop is None or pop.popped_at != handle.pop.popped_at or handle.offset not in pop.offsets:
                raise self._unknown(real, handle)
            return not pop.is_acked(pop.offsets.index(handle.offset))
        found = broker.pop.records.get(
            PopKey(group, real, handle.queue_id, handle.pop.start, handle.pop.popped_at, handle.pop.broker)
        )
        index = None if found is None else found.checkpoint.index_of(handle.offset)
        if found is None or index is None or found.checkpoint.invisible != handle.pop.invisible:
            raise self._unknown(real, handle)
        return not found.acked >> index & 1

    def _unknown(self, topic: str, handle: ReceiptHandle) -> StatusError:
        begin, end = self._broker.bounds(topic, handle.queue_id)
        if not begin <= handle.offset < end:
            return StatusError(Code.INTERNAL_SERVER_ERROR, "the topic has no message there")
        return unknown_handle()

    async def acknowledge(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        """See Pops."""
        header = pop_headers.AckMessage(
            consumer_group=group, topic=handle.real_topic(group, topic), queue_id=handle.queue_id,
            offset=handle.offset, extra_info=handle.extra_info,
        )  # fmt: skip
        require_success(await self._service.ask(client, RequestCode.ACK_MESSAGE, header))

    async def change(
        self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle, milliseconds: int,
        *, suspend: bool = False,
    ) -> ReceiptHandle:  # fmt: skip
        """See Pops."""
        header = pop_headers.ChangeInvisibleTime(
            consumer_group=group, topic=handle.real_topic(group, topic), queue_id=handle.queue_id,
            offset=handle.offset, extra_info=handle.extra_info, invisible_time=milliseconds, suspend=suspend,
        )  # fmt: skip
        answer = require_success(await self._service.ask(client, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header))
        fields = answer.fields
        # its checkpoint is one of its own; of an ordered pop all stay in one
        start = handle.pop.start if handle.pop.revive_queue == ORDERED_QUEUE else handle.offset
        pop = handle.pop._replace(
            start=start, popped_at=int(fields["popTime"]), invisible=int(fields["invisibleTime"]),
            revive_queue=int(fields["reviveQid"]),
        )  # fmt: skip
        return handle._replace(pop=pop)

    async def forward(self, client: GrpcClient, group: str, topic: str, handle: ReceiptHandle) -> None:
        """See Pops. The message is found by its place in its queue alone."""
        real = handle.real_topic(group, topic)
        view = self._broker.view(real, handle.queue_id)
        unit = None if view is None else view.queue.unit(handle.offset)
        if unit is None:
            raise StatusError(Code.INTERNAL_SERVER_ERROR, "the message is gone")
        header = headers.SendMsgBack(
            offset=unit.physical_offset, group=group, delay_level=-1, origin_topic=topic, max_reconsume_times=0
        )
        require_success(await self._service.ask(client, RequestCode.CONSUMER_SEND_MSG_BACK, header))
        await self.acknowledge(client, group, topic, handle)


def _popped(answer: RemotingCommand, broker: str) -> Iterator[tuple[StoredMessage, ReceiptHandle]]:
    """Yield the messages that a pop has handed out, with their handles; those of an ordered one with the number of
    times that they were handed out before."""
    fields, starts, counts = answer.fields, dict[tuple[str, int], int](), dict[str, int]()
    for one in filter(None, fields["startOffsetInfo"].split(";")):
        retry, place, start = one.split(" ")
        starts[retry, int(place)] = int(start)
    for one in filter(None, fields.get("orderCountInfo", "").split(";")):
        _, place, number = one.split(" ")
        counts[place] = int(number)
    popped_at, invisible, revive = (int(fields[name]) for name in ("popTime", "invisibleTime", "reviveQid"))
    position, body = 0, answer.body
    while position < len(body):
        stored = decode_message(body, position, len(body) - position, None)
        position += stored.total_size
        queue_id, offset = stored.queue_id, stored.queue_offset
        own = stored.properties().get(POP_CHECKPOINT)
        if own is not None:
            handle = parse_receipt_handle(f"{own} {stored.physical_offset}")
        else:
            flag = retry_flag(stored.topic)
            pop = PopHandle(starts[flag, queue_id], popped_at, invisible, revive, flag, broker)
            handle = ReceiptHandle(pop, queue_id, offset, stored.physical_offset)
        count = counts.get(f"qo{queue_id}%{offset}")
        yield stored if count is None else stored._replace(reconsume_times=count), handle


# Messages of a store that only reads, handed out for a time: what is in flight is kept in memory.
#
# A group without an offset begins at the first message: nothing else ever comes. What needs a message to be written,
# such as a dead letter, cannot be.

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
