"""Clients are done with popped messages, or want them for longer (AckMessageProcessor, ChangeInvisibleTimeProcessor).

A handle counts only where the broker has handed out what it says: one that is forged, or settled already, changes
nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any

from rmqctl.formats.message import Message
from rmqctl.network.broker.pop.records import ORDERED_QUEUE, Outstanding, PopHandle, PopQueueKey, pop_handle
from rmqctl.network.broker.pop.service import PopBroker, refusing_with
from rmqctl.network.remoting.codec import RemotingCommand, ResponseCode, objects, parse_body, text_of
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.pop_headers import AckMessage, ChangeInvisibleTime
from rmqctl.network.remoting.requests import Asked, Reply, RequestError
from rmqctl.store.pop.records import PopCheckpoint, PopKey, RecordError, number, pop_retry_topics
from rmqctl.store.write.put import PendingPut

_DONE = RemotingCommand(ResponseCode.SUCCESS)
# messages that a pop by kvStore/ looks through, by maxFilterMessageSize: their checkpoints are one by one
_REACH = 4096


def _require_message(broker: PopBroker, header: AckMessage, asked: Asked, end_may_be: int) -> None:
    """Raise RequestError for a message that no queue has; `end_may_be`: how far beyond the end is let through."""
    topic = broker.topic(header.topic)
    if not 0 <= header.queue_id < topic.read_queue_nums:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"queueId[{header.queue_id}] is illegal, topic:[{topic.name}] topicConfig.readQueueNums:"
            f"[{topic.read_queue_nums}] consumer:[/{asked.caller.remote}]",
        )
    if header.lite_topic:
        raise RequestError(ResponseCode.INVALID_PARAMETER, "lite topics are not supported")
    begin, end = broker.bounds(topic.name, header.queue_id)
    if not begin <= header.offset < end + end_may_be:
        raise RequestError(
            ResponseCode.NO_MESSAGE,
            f"offset is illegal, key:{topic.name}@{header.queue_id}, commit:{header.offset}, store:{begin}~{end}",
        )


def _key(header: AckMessage, handle: PopHandle) -> PopKey:
    return PopKey(header.consumer_group, header.topic, header.queue_id, handle.start, handle.popped_at, handle.broker)


def _when_durable(broker: PopBroker, puts: Sequence[PendingPut], answer: RemotingCommand) -> Reply:
    last = max(puts, key=lambda put: put.durable_at, default=None)
    if last is None or not broker.is_waited_for(last):
        return answer
    return broker.when_durable([Message(broker.pop.records.topic, b"")], last, lambda _: answer)


def _not_stored() -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, "it is not stored: try again")


def ack_message(broker: PopBroker, header: AckMessage, asked: Asked) -> Reply:
    """One message is done with."""
    _require_message(broker, header, asked, 1)
    handle = pop_handle(header.extra_info)
    if handle.revive_queue == ORDERED_QUEUE:
        key = PopQueueKey(header.consumer_group, header.topic, header.queue_id)
        return _ack_ordered(broker, key, header.offset, handle.popped_at, asked)
    found = broker.pop.records.find(_key(header, handle), header.offset)
    if found is None:
        return _DONE
    put = broker.pop.records.acknowledge(found, [header.offset], is_batch=False)
    if put is None:
        raise _not_stored()
    return _when_durable(broker, [put], _DONE)


def _ack_ordered(broker: PopBroker, key: PopQueueKey, offset: int, popped_at: int, asked: Asked) -> RemotingCommand:
    """A message of an ordered pop is done with: the group is at the first one that is not."""
    offsets, orders = broker.offsets, broker.pop.orders
    committed = offsets.find(*key)
    pop = orders.find(key)
    if (committed is not None and offset < committed) or pop is None or pop.popped_at != popped_at:
        return _DONE
    reached = orders.acknowledge(key, offset, popped_at)
    if reached is None:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"offset is illegal, key:{key.topic}@{key.group}@{key.queue_id}, old:{committed}, commit:{offset}, "
            f"next:-1, /{asked.caller.remote}",
        )
    if not offsets.has_reset(*key):
        offsets.commit(*key, reached)
    if not orders.is_blocked(key, None, broker.clock()):
        broker.wake([(key.topic, key.queue_id)])
    return _DONE


def batch_ack_message(broker: PopBroker, header: Header, asked: Asked) -> Reply:
    """Messages of several pops are done with."""
    content = parse_body(asked.request.body) if asked.request.body else {}
    acks = objects(content.get("acks"))
    if not acks:
        return RemotingCommand(ResponseCode.NO_MESSAGE)
    broker_name = text_of(content, "brokerName")
    puts: list[PendingPut] = []
    for one in acks:
        try:
            _ack_many(broker, broker_name, one, asked, puts.append)
        except RecordError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"acks: {error}") from error
    return _when_durable(broker, puts, _DONE)


def _ack_many(
    broker: PopBroker, broker_name: str, one: dict[str, Any], asked: Asked, stored: Callable[[PendingPut], None]
) -> None:
    """Acknowledge what one entry of a batch names: messages of one pop of one queue, by bits (BatchAck)."""
    group = text_of(one, "c") or text_of(one, "consumerGroup")
    topic = text_of(one, "t") or text_of(one, "topic")
    retry = str(one.get("r") or one.get("retry") or "0")
    second, first = pop_retry_topics(group, topic)
    topic = {"0": topic, "1": first, "2": second}.get(retry, "")
    if not topic:
        raise RecordError("r is not 0, 1 or 2")
    start, popped_at = _number(one, "so", "startOffset"), _number(one, "pt", "popTime")
    queue_id, revive_queue = _number(one, "q", "queueId"), _number(one, "rq", "reviveQueueId")
    bits = _bits(one)
    begin, end = broker.bounds(topic, queue_id) if 0 <= queue_id < 1 << 31 else (0, 0)
    is_there = range(begin, end + 1)
    if revive_queue == ORDERED_QUEUE:
        place = PopQueueKey(group, topic, queue_id)
        pop = broker.pop.orders.find(place)
        for offset in () if pop is None else pop.offsets:
            if _has(bits, offset - start) and offset in is_there:
                _ack_ordered(broker, place, offset, popped_at, asked)
        return
    records, key = broker.pop.records, PopKey(group, topic, queue_id, start, popped_at, broker_name)
    found = records.get(key)
    distances = range(min(len(bits) * 8, _REACH)) if found is None else found.checkpoint.distances
    wanted: dict[PopKey, tuple[Outstanding, list[int]]] = {}
    for offset in (start + distance for distance in distances if _has(bits, distance)):
        own = records.find(key, offset) if offset in is_there else None
        if own is not None:
            wanted.setdefault(own.checkpoint.key, (own, []))[1].append(offset)
    for own, offsets in wanted.values():
        put = records.acknowledge(own, offsets, is_batch=True)
        if put is None:
            raise _not_stored()
        stored(put)


def _number(one: dict[str, Any], name: str, old_name: str) -> int:
    return number(name, one.get(name, one.get(old_name, 0)))


def _bits(one: dict[str, Any]) -> bytes:
    """Return which messages are meant: bit n of the bytes is the message at the start plus n."""
    try:
        return base64.b64decode(text_of(one, "b") or text_of(one, "bitSet"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RecordError("b is not base 64") from error


def _has(bits: bytes, at: int) -> bool:
    return 0 <= at < len(bits) * 8 and bool(bits[at >> 3] >> (at & 7) & 1)


@refusing_with(popTime="0", invisibleTime="0", reviveQid="0")
def change_invisible_time(broker: PopBroker, header: ChangeInvisibleTime, asked: Asked) -> Reply:
    """Have a message invisible for a time from now on: by a checkpoint of its own, before the old one is acknowledged
    for it. Its handle is another one then."""
    _require_message(broker, header, asked, 0)
    handle, now = pop_handle(header.extra_info), broker.clock()
    longest = broker.files.config.timer_max_delay_sec * 1000
    if not 0 <= header.invisible_time <= longest:
        raise RequestError(ResponseCode.INVALID_PARAMETER, f"invisibleTime is not between 0 and {longest} ms")
    if handle.revive_queue == ORDERED_QUEUE:
        return _change_ordered(broker, header, handle, now)
    records = broker.pop.records
    found = records.find(_key(header, handle), header.offset)
    if found is None:
        raise RequestError(ResponseCode.NO_MESSAGE, "the handle is of no message in flight")
    own = PopCheckpoint(
        header.consumer_group, header.topic, header.queue_id, header.offset, now, handle.broker,
        header.invisible_time, (0,), suspend=header.suspend,
    )  # fmt: skip
    put = records.hand_out(own, found.revive_queue)
    old = None if put is None else records.acknowledge(found, [header.offset], is_batch=False)
    if put is None:
        raise _not_stored()
    answer = _changed(now, header.invisible_time, found.revive_queue)
    # without the acknowledgement it comes again when its old time is over, too: better twice than never
    return _when_durable(broker, [put] if old is None else [put, old], answer)


def _change_ordered(broker: PopBroker, header: ChangeInvisibleTime, handle: PopHandle, now: int) -> RemotingCommand:
    key = PopQueueKey(header.consumer_group, header.topic, header.queue_id)
    committed = broker.offsets.find(*key)
    if committed is not None and header.offset < committed:
        return _changed(0, 0, 0)
    until = now + header.invisible_time
    broker.pop.orders.change(key, header.offset, handle.popped_at, until)
    return _changed(handle.popped_at, until - handle.popped_at, ORDERED_QUEUE)


def _changed(popped_at: int, invisible: int, revive_queue: int) -> RemotingCommand:
    fields = {"popTime": str(popped_at), "invisibleTime": str(invisible), "reviveQid": str(revive_queue)}
    return RemotingCommand(ResponseCode.SUCCESS, fields)
