"""Pulling messages, and waiting for some (PullMessageProcessor). Frames leave as they lie in the commitlog."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.members import ACTIVELY, filter_of, refuse_disabled_filter
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, ResponseCode
from rmqctl.network.remoting.headers import PullMessage
from rmqctl.network.remoting.requests import FAQ, Asked, Caller, Reply, RequestError, Suspended
from rmqctl.network.topic_config import PERM_READ, TopicConfig
from rmqctl.store.read.filter import TAG, MessageFilter
from rmqctl.store.read.get import GetResult
from rmqctl.store.status import GetStatus

_SIZE = struct.Struct(">i")
# PullSysFlag
_COMMIT_OFFSET = 1
_SUSPEND = 2
_SUBSCRIPTION = 4
_LONGEST_WAIT_MS = 30_000
_BROADCASTING = "BROADCASTING"

# an enum says its name and number by code of Python's
_FOUND, _FOUND_REMARK = int(ResponseCode.SUCCESS), GetStatus.FOUND.name
_CODES = {
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


# statuses of which a slave corrects no offset
_CORRECTED = (
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.NO_MESSAGE_IN_QUEUE,
)
# statuses of pulls that looked at units of the queue
_LOOKED_AT = (
    GetStatus.FOUND,
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.MESSAGE_WAS_REMOVING,
    GetStatus.OFFSET_FOUND_NULL,
)


def pull_message(broker: Broker, header: PullMessage, asked: Asked) -> Reply:
    """Messages from an offset on. Where there are none yet the answer waits, if the client bears that."""
    group, topic_name = header.consumer_group, header.topic
    queue_id, flags = header.queue_id, header.sys_flag
    if broker.is_writable and not broker.settings.broker_permission & PERM_READ:
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.identity.name}] pulling message is forbidden",
            {"forbiddenType": "1"},
        )
    if asked.request.code == RequestCode.LITE_PULL_MESSAGE and not broker.settings.lite_pull_message_enable:
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.identity.reachable_host(asked.caller)}] for lite pull consumer is forbidden",
            {"forbiddenType": "1"},
        )
    settings = broker.group(group)
    if settings["consumeEnable"] is False:
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}", {"forbiddenType": "2"}
        )
    topic = _readable_topic(broker, topic_name, queue_id, asked.caller)
    message_filter = _subscribed(broker, header, group, settings, flags)
    if broker.settings.reject_pull_consumer_enable:
        _refuse_pull_consumer(broker, group, asked.caller)
    pull = _Pull(
        group,
        topic_name,
        queue_id,
        header.queue_offset,
        min(max(header.max_msg_nums, 1), broker.files.config.max_transfer_count_on_message_in_memory),
        message_filter,
    )
    result = _read(broker, pull)
    if flags & _COMMIT_OFFSET:
        committed = header.commit_offset
        broker.offsets.commit(group, topic_name, queue_id, committed)
    # a hole in the queue says where it goes on: nothing is to be waited for there
    if flags & _SUSPEND and result.next_offset == pull.offset and _finds_nothing(result, pull.offset):
        wait = min(max(header.suspend_timeout_millis, 0), _LONGEST_WAIT_MS)
        if not broker.settings.long_polling_enable:
            wait = min(broker.settings.short_polling_time_mills, _LONGEST_WAIT_MS)
        news = _News(broker, topic_name, queue_id, result.max_offset, message_filter)
        return Suspended(
            wait / 1000,
            ((topic_name, queue_id),),
            lambda: _answer(broker, topic, settings, _read(broker, pull), pull),
            news.have_come,
        )
    return _answer(broker, topic, settings, result, pull)


class _Pull(NamedTuple):
    """What a client asks for."""

    group: str
    topic: str
    queue_id: int
    offset: int
    limit: int
    message_filter: MessageFilter


class _News:
    """Whether a queue has got messages that a pull waits for; each is looked at once."""

    def __init__(self, broker: Broker, topic: str, queue_id: int, end: int, message_filter: MessageFilter) -> None:
        self._broker = broker
        self._topic = topic
        self._queue_id = queue_id
        self._end = end
        self._message_filter = message_filter

    def have_come(self) -> bool:
        begin, self._end = self._end, self._broker.bounds(self._topic, self._queue_id)[1]
        # what is not a step forward is news of another kind: a queue that was removed, or made anew
        if self._end < begin:
            return True
        return self._broker.has_match(self._topic, self._queue_id, begin, self._end, self._message_filter)


def _readable_topic(broker: Broker, name: str, queue_id: int, caller: Caller) -> TopicConfig:
    topic = broker.topic(name)
    if not topic.is_readable:
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"the topic[{name}] pulling message is forbidden", {"forbiddenType": "3"}
        )
    if not 0 <= queue_id < topic.read_queue_nums:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic:[{name}] topicConfig.readQueueNums:[{topic.read_queue_nums}] "
            f"consumer:[/{caller.remote}]",
        )
    return topic


def _refuse_pull_consumer(broker: Broker, group: str, caller: Caller) -> None:
    """RequestError for who is no member of a group of push consumers (rejectPullConsumerEnable)."""
    members = broker.clients.consumer_group(group)
    if members is None or members.consume_type == ACTIVELY or caller not in members.channels:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's group info not exist, or the pull consumer is rejected by server.\n{FAQ}",
        )


def _subscribed(
    broker: Broker, header: PullMessage, group: str, settings: dict[str, object], flags: int
) -> MessageFilter:
    """What the client wants: it says so in the request, or said so with its last heartbeat."""
    topic = header.topic
    if flags & _SUBSCRIPTION:
        expression, kind = header.subscription or "", header.expression_type or TAG
        broker.clients.pulls_with(group, topic, broker.elapsed())
    else:
        members = broker.clients.consumer_group(group)
        if members is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist\n{FAQ}")
        if members.message_model == _BROADCASTING and settings["consumeBroadcastEnable"] is False:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] can not consume by broadcast way",
                {"forbiddenType": "4"},
            )
        if broker.groups.is_forbidden(group, topic, PERM_READ):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] is forbidden for topic[{topic}]",
                {"forbiddenType": "5"},
            )
        subscription = members.subscriptions.get(topic)
        if subscription is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist\n{FAQ}")
        if subscription.version < header.sub_version:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        expression, kind = subscription.expression, subscription.expression_type
        if kind != TAG:
            _require_filter(kind, expression)
    refuse_disabled_filter(broker.settings, kind)
    try:
        return filter_of(kind, expression)
    except UsageError as error:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
        ) from error


def _require_filter(kind: str, expression: str) -> None:
    """Raise RequestError where the broker could make no filter of what a heartbeat said (ConsumerFilterManager)."""
    try:
        filter_of(kind, expression)
    except UsageError as error:
        raise RequestError(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        ) from error


def _read(broker: Broker, pull: _Pull) -> GetResult:
    group, topic, queue_id, offset, limit, message_filter = pull
    reset = broker.offsets.take_reset(group, topic, queue_id)
    if reset is not None:
        return GetResult(GetStatus.OFFSET_RESET, reset, *broker.bounds(topic, queue_id))
    result = broker.frames(topic, queue_id, offset, limit, message_filter)
    pieces = result.frames
    is_system = broker.is_system_topic(topic)
    broker.counts.got(group, topic, sum(map(_messages_in, pieces)), sum(map(len, pieces)), is_system=is_system)
    broker.offsets.note_pull(group, topic, queue_id, result.next_offset)
    settings = broker.settings
    if settings.disable_consume_if_consumer_read_slowly and settings.disk_fall_recorded:
        broker.bytes_behind[queue_id, topic, group] = _bytes_behind(broker, result, pull)
    return result


def _messages_in(piece: bytes) -> int:
    """Return the number of frames that a piece of the log consists of; each begins with its size."""
    count = position = 0
    while position < len(piece):
        position += _SIZE.unpack_from(piece, position)[0]
        count += 1
    return count


def _answer(
    broker: Broker, topic: TopicConfig, settings: dict[str, Any], result: GetResult, pull: _Pull
) -> RemotingCommand:
    is_found = result.status is GetStatus.FOUND
    code = _FOUND if is_found else _code(result, pull.offset)
    if broker.files.config.is_slave and not broker.settings.offset_check_in_slave and not is_found:
        # a slave may lack what its master has: it sends nobody elsewhere (nextOffsetCorrection)
        if result.status in _CORRECTED:
            result = replace(result, next_offset=pull.offset)
        code = ResponseCode.PULL_RETRY_IMMEDIATELY if code == ResponseCode.PULL_OFFSET_MOVED else code
    return RemotingCommand(
        code,
        {
            "suggestWhichBrokerId": str(_suggested(broker, settings, result, pull)),
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
            "topicSysFlag": str(topic.sys_flag),
            "groupSysFlag": str(settings["groupSysFlag"]),
        },
        b"".join(result.frames),
        _FOUND_REMARK if is_found else result.status.name,
    )


def _suggested(broker: Broker, settings: dict[str, Any], result: GetResult, pull: _Pull) -> int:
    """Return the id of the broker to pull from next: with slaveReadEnable that which the group's settings name, for
    messages that are in memory and for older ones (composeResponseHeader)."""
    if not broker.settings.slave_read_enable:
        return broker.identity.broker_id
    # as old as that it is not in memory (isSuggestPullingFromSlave)
    is_slow = _bytes_behind(broker, result, pull) > broker.settings.bytes_in_memory
    return int(settings["whichBrokerWhenConsumeSlowly" if is_slow else "brokerId"])


def _bytes_behind(broker: Broker, result: GetResult, pull: _Pull) -> int:
    """Return the bytes of the log from the last message that was looked at on; 0 where none was."""
    if result.status not in _LOOKED_AT:
        return 0
    queue = broker.queue(pull.topic, pull.queue_id)
    unit = None if queue is None else queue.unit(result.next_offset - 1)
    last = 0 if unit is None else unit.physical_offset
    return broker.log_end - last


def _finds_nothing(result: GetResult, offset: int) -> bool:
    return result.status is not GetStatus.FOUND and _code(result, offset) == ResponseCode.PULL_NOT_FOUND


def _code(result: GetResult, offset: int) -> int:
    if result.status is GetStatus.NO_MESSAGE_IN_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]
