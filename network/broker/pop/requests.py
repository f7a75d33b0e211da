"""Popping messages, and waiting for some (PopMessageProcessor); whether there are any (NotificationProcessor), and
who is to pop which queues (QueryAssignmentProcessor).

A pop hands messages out for a time, and the group goes on behind them at once. What is not acknowledged by then comes
again. Of an unordered pop a checkpoint is stored before anything leaves; an ordered one blocks its queues meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rmqctl.formats.errors import CorruptError, UnreadableError, UsageError
from rmqctl.formats.message import Message, decode_message, frame_bytes, prepare_frame
from rmqctl.network.broker.broker import Broker, WritableBroker
from rmqctl.network.broker.members import filter_of
from rmqctl.network.broker.pop.records import ORDERED_QUEUE, PopHandle, PopQueueKey, retry_flag
from rmqctl.network.broker.pop.service import PopBroker, Waiter, refusing_with
from rmqctl.network.clients.membership import BROADCASTING, CLUSTERING, Allocate, averagely, by_circle
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    ResponseCode,
    bean,
    integer_of,
    json_answer,
    parse_body,
    text_of,
)
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.pop_headers import Notification, PeekMessage, PopQueue, PopRequest
from rmqctl.network.remoting.requests import ANY_QUEUE, Asked, Caller, Promised, Reply, RequestError, Suspended
from rmqctl.network.topic_config import PERM_READ, TopicConfig
from rmqctl.store.config.config_files import read_config
from rmqctl.store.pop.records import MOST_AT_ONCE, RETRY_PREFIX, PopCheckpoint, pop_retry_topics
from rmqctl.store.read.filter import TAG, MessageFilter
from rmqctl.store.status import GetStatus
from rmqctl.store.write.put import PendingPut

_SIZE = struct.Struct(">i")
_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_AT = 20
POP_CHECKPOINT = "POP_CK"
# a request that comes so much later than it may wait is of a client that waits no longer (isTimeoutTooMuch)
_TOO_LATE_MS = 500
_ALMOST_OVER_MS = 50
_FROM_FIRST = 0
_LONGEST_MS = 1 << 60
_ANY_NUMBER = 1 << 60
_MOVED = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL)
_PASSED_OVER = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.OFFSET_FOUND_NULL, GetStatus.MESSAGE_WAS_REMOVING)
_PRIORITY = "PRIORITY"
_ALL = filter_of(TAG, "*")


# What requests name, refused in RocketMQ's order and with its codes.


def readable(broker: Broker, header: PopQueue, caller: Caller, what: str) -> tuple[TopicConfig, dict[str, Any]]:
    """Return the topic and the settings of the group. Raises: RequestError."""
    if not broker.settings.broker_permission & PERM_READ:
        host = broker.identity.reachable_host(caller)
        raise RequestError(ResponseCode.NO_PERMISSION, f"the broker[{host}] {what} message is forbidden")
    topic = broker.topic(header.topic)
    if not topic.is_readable:
        raise RequestError(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] peeking message is forbidden")
    if header.queue_id >= topic.read_queue_nums:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{header.queue_id}] is illegal, topic:[{topic.name}] topicConfig.readQueueNums:"
            f"[{topic.read_queue_nums}] consumer:[/{caller.remote}]",
        )
    group = broker.group(header.consumer_group)
    if group["consumeEnable"] is False:
        raise RequestError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}")
    return topic, group


def _filter(header: Notification) -> MessageFilter:
    try:
        return filter_of(header.exp_type or TAG, header.exp or "*")
    except UsageError as error:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
        ) from error


def _retry_topics(broker: PopBroker, group: str, topic: str) -> list[TopicConfig]:
    """Return the topics that revive puts messages of a group into, the version that it writes first."""
    second, first = pop_retry_topics(group, topic)
    ordered: tuple[str, ...] = (first, second)
    if broker.files.config.enable_retry_topic_v2:
        ordered = (second, first) if broker.settings.retrieve_message_from_pop_retry_topic_v1 else (second,)
    return [found for found in map(broker.topics.find, ordered) if found is not None]


def _queues(
    broker: PopBroker, topic: TopicConfig, header: PopQueue, begin: int, *, is_retry: bool = False
) -> Iterator[int]:
    """Yield the queues to look into, from `begin` on downwards, or upwards without priorityOrderAsc."""
    count = topic.read_queue_nums
    if header.queue_id >= 0 and not is_retry:
        yield header.queue_id
    else:
        is_down = broker.settings.priority_order_asc
        yield from (((count - 1 - at if is_down else at) + begin) % count for at in range(count))


def _offset(broker: PopBroker, group: str, topic: str, queue_id: int) -> int:
    """Return what a group pops next of a queue; its first message where it has no offset."""
    found = broker.offsets.find(group, topic, queue_id)
    return broker.bounds(topic, queue_id)[0] if found is None else found


def split_frames(pieces: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the frames that pieces of the log consist of."""
    for piece in pieces:
        position = 0
        while position < len(piece):
            size = _SIZE.unpack_from(piece, position)[0]
            yield piece[position : position + size]
            position += size


class _Wait:
    """A pop, or a question whether one would find something, that may wait for messages."""

    FILTERS_SINCE_5_0 = False

    def __init__(self, broker: PopBroker, header: Notification, asked: Asked, what: str) -> None:
        self.broker, self.pop, self.header = broker, broker.pop, header
        self.group = header.consumer_group
        self.topic, self.settings = readable(broker, header, asked.caller, what)
        is_filtered = broker.identity.release.has_tag_queries and broker.settings.use_message_filter_for_notification
        self.filter = _filter(header) if self.FILTERS_SINCE_5_0 or is_filtered else _ALL
        born = header.born_time or broker.clock()
        self._end = born + header.poll_time

    def is_blocked(self, topic: str, queue_id: int) -> bool:
        """Return whether an ordered pop keeps a queue."""
        key = PopQueueKey(self.group, topic, queue_id)
        return self.header.order and self.pop.orders.is_blocked(key, self.header.attempt_id, self.broker.clock())

    def retries(self) -> list[TopicConfig]:
        """Return the topics that are looked into beside the one that is named."""
        return [] if self.header.order else _retry_topics(self.broker, self.group, self.topic.name)

    def has_messages(self) -> bool:
        """Return whether a queue has messages that nothing keeps back."""
        places = [(self.topic.name, queue_id) for queue_id in _queues(self.broker, self.topic, self.header, 0)]
        places += [(one.name, queue_id) for one in self.retries() for queue_id in range(one.read_queue_nums)]
        return any(self._has_match(*place) for place in places)

    def _has_match(self, topic: str, queue_id: int) -> bool:
        offset, end = _offset(self.broker, self.group, topic, queue_id), self.broker.bounds(topic, queue_id)[1]
        if end <= offset or self.is_blocked(topic, queue_id):
            return False
        if end - offset >= self.broker.settings.max_message_filter_num_for_notification or self.filter.is_all:
            return True
        return self.broker.has_match(topic, queue_id, offset, end, self.filter)

    def suspended(self, answer: Callable[[], Reply], *, soon: bool = False) -> Suspended | ResponseCode:
        """Return that it waits; the code for a wait that is over, or one too many. `soon`: there are messages that it
        has not looked at."""
        header, pop, now = self.header, self.pop, self.broker.clock()
        waiter: Waiter = (header.topic, self.group, max(header.queue_id, ANY_QUEUE))
        if header.poll_time <= 0:
            return ResponseCode.POLLING_TIMEOUT
        if not pop.may_wait(waiter):
            return ResponseCode.POLLING_FULL
        if now > self._end - _ALMOST_OVER_MS:
            return ResponseCode.POLLING_TIMEOUT
        retries = () if header.order else pop_retry_topics(self.group, header.topic)
        keys = ((header.topic, max(header.queue_id, ANY_QUEUE)), *((name, ANY_QUEUE) for name in retries))
        pop.wait(waiter)
        seconds = 0 if soon else min(self._end - now, _LONGEST_MS) / 1000
        return Suspended(seconds, keys, answer, self.has_messages, lambda: pop.end_wait(waiter))


class _Pop(_Wait):
    """One pop, from the request to the answer."""

    FILTERS_SINCE_5_0 = True

    header: PopRequest

    def _begin_anew(self) -> None:
        self._now = self.broker.clock()
        self._frames: list[bytes] = []
        self._starts: list[str] = []
        self._offsets: list[str] = []
        self._counts: list[str] = []
        self._rest = 0
        self._put: PendingPut | None = None
        self._revive_queue = ORDERED_QUEUE if self.header.order else self.pop.records.next_queue()

    def answer(self) -> Reply:
        """Return what is found; that it waits where that is nothing."""
        self._begin_anew()
        draw, settings = self.pop.draw(), self.broker.settings
        attributes = self.topic.attributes
        is_priority = attributes.get("message.type") == _PRIORITY and not self.header.order
        share = settings.pop_from_retry_probability_for_priority if is_priority else settings.pop_from_retry_probability
        begin = 0 if is_priority else draw
        if draw < share:
            self._pop_retries(begin)
        for queue_id in _queues(self.broker, self.topic, self.header, begin):
            self._pop_queue(self.topic.name, queue_id)
        if draw >= share:
            self._pop_retries(begin)
        if self._frames:
            return self._when_durable()
        waits = self.suspended(self.answer, soon=self._rest > 0)
        return self._answer(waits) if isinstance(waits, ResponseCode) else waits

    def _pop_retries(self, begin: int) -> None:
        for topic in self.retries():
            for queue_id in _queues(self.broker, topic, self.header, begin, is_retry=True):
                self._pop_queue(topic.name, queue_id)

    def _pop_queue(self, topic: str, queue_id: int) -> None:
        broker, header, group = self.broker, self.header, self.group
        settings = broker.settings
        most = settings.pop_inflight_message_threshold if settings.enable_pop_message_threshold else _ANY_NUMBER
        if not header.order and self.pop.records.in_flight((group, topic, queue_id)) > most:
            self._rest += max(0, broker.bounds(topic, queue_id)[1] - _offset(broker, group, topic, queue_id))
            return
        offset = self._begin_of(topic, queue_id)
        if self.is_blocked(topic, queue_id):
            return
        left = min(header.max_msg_nums, MOST_AT_ONCE) - len(self._frames)
        if left <= 0:
            self._rest += max(0, broker.bounds(topic, queue_id)[1] - offset)
            return
        result = broker.frames(topic, queue_id, offset, left, self.filter)
        if result.status in _MOVED:
            offset = result.next_offset
            broker.offsets.commit(group, topic, queue_id, offset)
            result = broker.frames(topic, queue_id, offset, left, self.filter)
        frames = list(split_frames(result.frames))
        if frames:
            offsets = [_QUEUE_OFFSET.unpack_from(frame, _QUEUE_OFFSET_AT)[0] for frame in frames]
            is_system = broker.is_system_topic(topic)
            broker.counts.got(group, topic, len(frames), sum(map(len, frames)), is_system=is_system)
            if header.order:
                self._keep_ordered(topic, queue_id, offset, offsets)
            elif not self._keep(topic, queue_id, offset, offsets):
                self._rest += len(frames)
                return
            else:
                broker.offsets.commit(group, topic, queue_id, result.next_offset)
            flag = retry_flag(topic)
            self._starts.append(f"{flag} {queue_id} {offset}")
            self._offsets.append(f"{flag} {queue_id} {','.join(map(str, offsets))}")
            self._take(topic, offset, frames)
        elif result.status in _PASSED_OVER:
            broker.offsets.commit(group, topic, queue_id, result.next_offset)
        self._rest += max(0, result.max_offset - result.next_offset)

    def _begin_of(self, topic: str, queue_id: int) -> int:
        """Return the offset to pop from: where the group was set to, where it is, or where one without offset begins
        (getInitOffset)."""
        broker, group = self.broker, self.group
        reset = broker.offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            self.pop.orders.clear(PopQueueKey(group, topic, queue_id))
            broker.offsets.commit(group, topic, queue_id, reset)
            return reset
        found = broker.offsets.find(group, topic, queue_id)
        if found is not None:
            return found
        offset, end = broker.bounds(topic, queue_id)
        if self.header.init_mode != _FROM_FIRST and topic == self.topic.name:
            is_young = broker.settings.init_pop_offset_by_check_msg_in_mem and broker.is_young(topic, queue_id)
            offset = 0 if is_young else max(0, end - 1)
        broker.offsets.commit(group, topic, queue_id, offset)
        return offset

    def _keep(self, topic: str, queue_id: int, start: int, offsets: Sequence[int]) -> bool:
        """Store the checkpoint of messages; whether they may be handed out."""
        distances = tuple(offset - start for offset in offsets)
        checkpoint = PopCheckpoint(
            self.group, topic, queue_id, start, self._now, self.broker.identity.name, self.header.invisible_time,
            distances,
        )  # fmt: skip
        put = self.pop.records.hand_out(checkpoint, self._revive_queue)
        if put is not None and (self._put is None or put.durable_at >= self._put.durable_at):
            self._put = put
        return put is not None

    def _keep_ordered(self, topic: str, queue_id: int, start: int, offsets: Sequence[int]) -> None:
        key, flag = PopQueueKey(self.group, topic, queue_id), retry_flag(topic)
        invisible = self.header.invisible_time
        counts = self.pop.orders.pop(key, offsets, self.header.attempt_id, self._now, invisible)
        self._counts += [f"{flag} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
        # clients before 5.1 ask for the least by the queue
        least = min(counts.values()) if len(counts) == len(offsets) else 0
        self._counts.append(f"{flag} {queue_id} {least}")
        self.broker.offsets.commit(self.group, topic, queue_id, start)

    def _take(self, topic: str, start: int, frames: Sequence[bytes]) -> None:
        if topic == self.topic.name or self.broker.settings.pop_response_return_actual_retry_topic:
            self._frames += frames
            return
        handle = PopHandle(
            start, self._now, self.header.invisible_time, self._revive_queue, retry_flag(topic),
            self.broker.identity.name,
        )  # fmt: skip
        self._frames += [self._as_original(frame, handle) for frame in frames]

    def _as_original(self, frame: bytes, handle: PopHandle) -> bytes:
        """Return a message of a retry topic as one of its first topic, with its handle."""
        stored = decode_message(frame, 0, len(frame), None)
        properties = {POP_CHECKPOINT: handle.text(stored.queue_id, stored.queue_offset)} | stored.properties()
        message = Message(
            self.topic.name, stored.body, stored.queue_id, stored.flag, properties, None, stored.sys_flag,
            stored.born_timestamp, stored.born_host, None, None, stored.reconsume_times,
            stored.prepared_transaction_offset,
        )  # fmt: skip
        parts = prepare_frame(message, stored.store_host, stored.born_timestamp, allow_v2=False)
        return frame_bytes(parts, stored.queue_offset, stored.physical_offset, stored.store_timestamp)

    def _when_durable(self) -> Reply:
        put, answer = self._put, self._answer(ResponseCode.SUCCESS)
        if put is None or not self.broker.is_waited_for(put):
            return answer
        # what is late is handed out all the same: its checkpoint is in the log
        return self.broker.when_durable([Message(self.pop.records.topic, b"")], put, lambda _: answer)

    def _answer(self, code: ResponseCode) -> RemotingCommand:
        is_found = code == ResponseCode.SUCCESS
        fields = {
            "popTime": str(self._now),
            "invisibleTime": str(self.header.invisible_time),
            "reviveQid": str(self._revive_queue),
            "restNum": str(self._rest),
            "startOffsetInfo": ";".join(self._starts),
            "msgOffsetInfo": ";".join(self._offsets),
        }
        if self.header.order:
            fields["orderCountInfo"] = ";".join(self._counts)
        status = GetStatus.FOUND if is_found else GetStatus.NO_MESSAGE_IN_QUEUE
        return RemotingCommand(code, fields, b"".join(self._frames), status.name)


@refusing_with(popTime="0", invisibleTime="0", reviveQid="0", restNum="0")
def pop_message(broker: PopBroker, header: PopRequest, asked: Asked) -> Reply:
    """Hand messages out for a time. Where there are none the answer waits, if the client bears that."""
    host, now = broker.identity.reachable_host(asked.caller), broker.clock()
    if now > (header.born_time or now) + header.poll_time + _TOO_LATE_MS:
        raise RequestError(ResponseCode.POLLING_TIMEOUT, f"the broker[{host}] pop message is timeout too much")
    if header.max_msg_nums > MOST_AT_ONCE:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER, f"the broker[{host}] pop message's num is greater than {MOST_AT_ONCE}"
        )
    if not broker.files.config.timer_wheel_enable:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"the broker[{host}] pop message is forbidden because timerWheelEnable is false"
        )
    longest = _LONGEST_MS if header.order else broker.files.config.timer_max_delay_sec * 1000
    if not 0 <= header.invisible_time <= longest:
        raise RequestError(ResponseCode.INVALID_PARAMETER, f"invisibleTime is not between 0 and {longest} ms")
    return _Pop(broker, header, asked, "pop").answer()


@refusing_with(hasMsg="false", pollingFull="false")
def notification(broker: PopBroker, header: Notification, asked: Asked) -> Reply:
    """Say whether a pop would find messages; where it would not the answer waits, if the client bears that."""
    wait = _Wait(broker, header, asked, "peeking")

    def answer() -> Reply:
        if wait.has_messages():
            return said(has_messages=True)
        waits = wait.suspended(answer)
        return said(code=waits) if isinstance(waits, ResponseCode) else waits

    def said(*, has_messages: bool = False, code: ResponseCode = ResponseCode.SUCCESS) -> RemotingCommand:
        is_full = code == ResponseCode.POLLING_FULL
        fields = {"hasMsg": str(has_messages).lower(), "pollingFull": str(is_full).lower()}
        return RemotingCommand(ResponseCode.SUCCESS, fields)

    return answer()


@refusing_with(pollingNum="0")
def polling_info(broker: PopBroker, header: PopQueue, asked: Asked) -> RemotingCommand:
    """Say how many pops wait for a queue."""
    readable(broker, header, asked.caller, "peeking")
    waiter: Waiter = (header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE))
    return RemotingCommand(ResponseCode.SUCCESS, {"pollingNum": str(broker.pop.waiting.get(waiter, 0))})


@refusing_with(popTime="0", invisibleTime="0", reviveQid="0", restNum="0")
def peek_message(broker: PopBroker, header: PeekMessage, asked: Asked) -> RemotingCommand:
    """Give messages that a pop would find, and leave them where they are."""
    topic, _ = readable(broker, header, asked.caller, "peeking")
    group, most = header.consumer_group, min(header.max_msg_nums, MOST_AT_ONCE)
    begin, found, rest = broker.pop.draw(), list[bytes](), 0
    places = [(topic.name, queue_id) for queue_id in _queues(broker, topic, header, begin)]
    retries = _retry_topics(broker, group, topic.name)
    places += [
        (one.name, queue_id) for one in retries for queue_id in _queues(broker, one, header, begin, is_retry=True)
    ]
    for name, queue_id in places:
        offset = _offset(broker, group, name, queue_id)
        rest += broker.bounds(name, queue_id)[1] - offset
        if len(found) < most:
            result = broker.frames(name, queue_id, offset, most - len(found), _ALL)
            if result.status in _MOVED:
                result = broker.frames(name, queue_id, result.next_offset, most - len(found), _ALL)
            found += split_frames(result.frames)
    code, status = ResponseCode.SUCCESS, GetStatus.FOUND
    if not found:
        code, status = ResponseCode.PULL_NOT_FOUND, GetStatus.NO_MESSAGE_IN_QUEUE
    fields = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": str(rest)}
    return RemotingCommand(code, fields, b"".join(found), status.name)


# How groups get the messages of a topic, and which queues each member is to ask (QueryAssignmentProcessor).

_FILE, _TABLE = "messageRequestMode.json", "messageRequestModeMap"
_PULL, _POP = "PULL", "POP"
_STRATEGIES: dict[str, Allocate] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
_Modes = dict[str, dict[str, Any]]


def _modes(broker: Broker) -> _Modes:
    """Return by topic and group what was set. Raises: RequestError for a damaged file."""
    if isinstance(broker, WritableBroker) and broker.request_modes is not None:
        return broker.request_modes
    try:
        content = read_config(broker.files.layout.config / _FILE)
    except (CorruptError, UnreadableError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
    table = content.get(_TABLE) if isinstance(content, dict) else None
    found = {str(topic): groups for topic, groups in (table or {}).items() if isinstance(groups, dict)}
    if isinstance(broker, WritableBroker):
        broker.request_modes = found
    return found


def get_all_request_mode(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """How groups get messages, as it was set: slaves of 5.x ask."""
    return json_answer({_TABLE: _modes(broker)})


def set_request_mode(broker: WritableBroker, header: Header, asked: Asked) -> Reply:
    """Set how a group gets the messages of a topic."""
    content = parse_body(asked.request.body)
    topic, group = text_of(content, "topic"), text_of(content, "consumerGroup")
    if topic.startswith(RETRY_PREFIX):
        raise RequestError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
    if broker.topics.find(topic) is None:
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    try:
        broker.group(group)
    except RequestError as error:
        raise RequestError(error.code, "subscription group does not exist") from error
    mode = text_of(content, "mode") or _PULL
    if mode not in (_PULL, _POP):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"mode {mode} is not known")
    known, count = _modes(broker), integer_of(content, "popShareQueueNum")
    entry = bean(consumerGroup=group, mode=mode, popShareQueueNum=count, topic=topic)
    broker.request_modes = modes = {**known, topic: {**known.get(topic, {}), group: entry}}
    written = broker.saver.save(_FILE, lambda: {_TABLE: broker.request_modes or modes})
    return Promised(written, lambda: RemotingCommand(ResponseCode.SUCCESS))


def query_assignment(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Answer which queues of a topic a member of a group is to ask, and how; no list where that is not known."""
    content = parse_body(asked.request.body)
    topic, model = text_of(content, "topic"), text_of(content, "messageModel")
    mode, shared = _mode(broker, topic, text_of(content, "consumerGroup"))
    queues = broker.queues_of(topic)
    if queues is not None and model == CLUSTERING and broker.settings.server_load_balancer_enable:
        queues = _share(broker, content, queues, None if mode == _PULL else shared)
    elif model not in (CLUSTERING, BROADCASTING):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"messageModel {model!r} is not known")
    found = None if queues is None else [bean(messageQueue=queue, mode=mode) for queue in dict.fromkeys(queues)]
    return json_answer(bean(messageQueueAssignments=found))


def _mode(broker: Broker, topic: str, group: str) -> tuple[str, int]:
    """Return how a group gets messages, and of how many members each asks the queues of too when it pops. Where
    nothing is written, all pull."""
    if not broker.is_writable:
        return _PULL, 0
    entry = _modes(broker).get(topic, {}).get(group)
    if isinstance(entry, dict):
        return text_of(entry, "mode") or _PULL, integer_of(entry, "popShareQueueNum")
    if topic.startswith(RETRY_PREFIX):
        return _PULL, 0
    return broker.settings.default_message_request_mode, broker.settings.default_pop_share_queue_num


def _share(
    broker: Broker, content: dict[str, Any], queues: list[MessageQueue], shared: int | None
) -> list[MessageQueue] | None:
    """Return the share of one client; None where the group, the strategy or the client is not known. `shared`: as of
    `_mode`, None for a client that pulls."""
    group = broker.clients.consumer_group(text_of(content, "consumerGroup"))
    allocate = _STRATEGIES.get(text_of(content, "strategyName"))
    client_id = text_of(content, "clientId")
    if group is None or allocate is None or not client_id or not queues:
        return None
    members = sorted({channel.client_id for channel in list(group.channels.values())})
    queues = sorted(queues)
    if shared is None:
        return allocate(queues, members, client_id)
    if shared <= 0 or shared >= len(members) - 1:
        return [queue._replace(queue_id=ANY_QUEUE) for queue in queues]
    if client_id not in members:
        return []
    at = members.index(client_id)
    if len(members) > len(queues):
        return [queues[at % len(queues)]]
    others = [members[(at + step) % len(members)] for step in range(shared + 1)]
    return [queue for other in others for queue in allocate(queues, members, other)]
