"""Single messages and units: by key, by physical offset, by place in a queue (QueryMessageProcessor)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import CorruptError, NotFoundError, UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.settings import GROUP_GET_NUMS, TIME_NAMES, TOPIC_PUT_NUMS, Counts
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, ResponseCode, bean, json_answer
from rmqctl.network.remoting.requests import Asked, RequestError
from rmqctl.network.remoting.server import Limits
from rmqctl.store.clean.options import used_percent
from rmqctl.store.queues.consumequeue import Boundary
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.read.reader import messages_with_tag

_TAGS = "T"
_LARGEST_BODY = 15 * 1024 * 1024
_MOST_UNITS = 800


def query_message(broker: Broker, header: headers.QueryMessage, asked: Asked) -> RemotingCommand:
    """Messages of a topic with a key, oldest first. Damage is not absence: it is reported, and without any match it is
    the answer."""
    wanted = broker.settings.default_query_max_num if header.unique_key_query else header.max_num
    limit = min(max(wanted, 1), broker.settings.max_msgs_num_batch)
    begin, end = header.begin_timestamp, header.end_timestamp
    topic, key = header.topic, header.key
    if broker.identity.release.has_tag_queries and header.index_type == _TAGS:
        found = messages_with_tag(broker.reader, topic, key, begin, end, limit)
    else:
        found = broker.reader.indexed(topic, key, begin, end, limit)
    for error in found.damaged:
        broker.tell_once((error.file or "", error.physical_offset or 0), f"in the way of a query by key: {error}")
    if not found.messages:
        if found.damaged:
            raise found.damaged[0]
        raise RequestError(
            ResponseCode.QUERY_NOT_FOUND,
            "can not find message, maybe time range not correct",
            {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"},
        )
    files = broker.files.index.files
    last, until = (files[-1].header.end_timestamp, files[-1].header.end_physical_offset) if files else (0, 0)
    return RemotingCommand(
        ResponseCode.SUCCESS,
        {"indexLastUpdateTimestamp": str(last), "indexLastUpdatePhyoffset": str(until)},
        _frames(broker, sorted(found.messages, key=lambda message: message.physical_offset)),
    )


def _frames(broker: Broker, messages: list[StoredMessage]) -> bytes:
    """Frames back to back as they are stored: as many as fit into an answer."""
    frames: list[bytes] = []
    total = 0
    for message in messages:
        if frames and total + message.total_size > _LARGEST_BODY:
            break
        frames.append(broker.files.log.read(message.physical_offset, message.total_size))
        total += message.total_size
    return b"".join(frames)


def view_message(broker: Broker, header: headers.ViewMessage, asked: Asked) -> RemotingCommand:
    """The message whose frame begins at a physical offset."""
    return RemotingCommand(ResponseCode.SUCCESS, body=frame_at(broker, header.offset))


def frame_at(broker: Broker, offset: int) -> bytes:
    """The frame at a physical offset as it is stored. RequestError without one, or for a damaged one."""
    try:
        message = broker.reader.lookup(offset)
    except NotFoundError as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}: {error.message}"
        ) from error
    except CorruptError as error:
        broker.tell_once((error.file or "", offset), f"asked for by its offset: {error}")
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the message at offset {offset} is damaged: {error}") from error
    return _frames(broker, [message])


def query_consume_queue(broker: Broker, header: headers.QueryConsumeQueue, asked: Asked) -> RemotingCommand:
    """Units of a queue as they are stored."""
    topic, queue_id = header.topic, header.queue_id
    index, count = header.index, header.count
    if index < 0:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"request not invalid, index: {index}, count: {count}")
    queue = broker.queue(topic, queue_id)
    if queue is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    minimum, maximum = broker.bounds(topic, queue_id)
    units: list[dict[str, Any]] = []
    group = header.consumer_group
    subscription, filter_data = _filter_data(broker, group, topic)
    for unit in queue.units(index, index + min(max(count, 0), _MOST_UNITS)):
        units.append(bean(eval=False, physicOffset=unit.physical_offset, physicSize=unit.size, tagsCode=unit.tags_code))
    content = bean(
        filterData=filter_data,
        maxQueueIndex=maximum,
        minQueueIndex=minimum,
        queueData=units,
        subscriptionData=subscription,
    )
    return json_answer(content)


def _filter_data(broker: Broker, group: str | None, topic: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return what a group subscribes of a topic, and the text that represents its compiled filter: SQL has one."""
    if group is None:
        return None, None
    members = broker.clients.consumer_group(group)
    found = None if members is None else members.subscriptions.get(topic)
    return (None, f"{group}@{topic} is not online!") if found is None else (found.bean, "null")


# Offsets of queues and of groups: where a queue begins and ends, where a time lies, where a group is.

_UPPER = "UPPER"
# Long.MAX_VALUE
_NO_OFFSET = (1 << 63) - 1


def _offset(offset: int) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, {"offset": str(offset)})


def get_max_offset(broker: Broker, header: headers.QueueHeader, asked: Asked) -> RemotingCommand:
    """Return the offset of a queue's next message; 0 for an unknown queue."""
    return _offset(broker.bounds(header.topic, header.queue_id)[1])


def get_min_offset(broker: Broker, header: headers.QueueHeader, asked: Asked) -> RemotingCommand:
    """Return the offset of a queue's first message; 0 for an unknown queue."""
    return _offset(broker.bounds(header.topic, header.queue_id)[0])


def search_offset_by_timestamp(broker: Broker, header: headers.SearchOffset, asked: Asked) -> RemotingCommand:
    """The offset of a queue for a store time in ms."""
    topic, queue_id = header.topic, header.queue_id
    timestamp = header.timestamp
    if broker.queue(topic, queue_id) is None:
        return _offset(0)
    boundary: Boundary = "upper" if (header.boundary_type or "").upper() == _UPPER else "lower"
    return _offset(broker.reader.offset_at(topic, queue_id, timestamp, boundary))


def get_earliest_store_time(broker: Broker, header: headers.QueueHeader, asked: Asked) -> RemotingCommand:
    """The store time of a queue's first message; -1 without one."""
    topic, queue_id = header.topic, header.queue_id
    minimum, maximum = broker.bounds(topic, queue_id)
    time = broker.reader.store_time(topic, queue_id, minimum) if minimum < maximum else -1
    return RemotingCommand(ResponseCode.SUCCESS, {"timestamp": str(time)})


def query_consumer_offset(broker: Broker, header: headers.QueryConsumerOffset, asked: Asked) -> RemotingCommand:
    """Where a group is in a queue. A group without an offset there gets an answer that says so, and its own policy
    decides where it begins.

    A broker that writes says 0 in its place as long as the queue's first message is young, as RocketMQ's does
    (ConsumerManageProcessor#queryConsumerOffset): a group that comes late to a new topic misses nothing.
    """
    group, topic = header.consumer_group, header.topic
    queue_id = header.queue_id
    offset = broker.offsets.find(group, topic, queue_id)
    is_of_4 = broker.identity.release.is_of_4
    is_zero_wanted = is_of_4 or header.set_zero_if_not_found
    if offset is None and broker.is_writable and is_zero_wanted and broker.is_young(topic, queue_id):
        offset = 0
    if offset is None and broker.is_writable and is_of_4 and broker.bounds(topic, queue_id)[1] == 0:
        # 4.x looks at the first offset alone, which is 0 where there is no queue
        offset = 0
    if offset is None:
        why = "V3_0_6_SNAPSHOT maybe this group consumer boot first"
        if not is_zero_wanted:
            why = "do not set to zero, maybe this group boot first"
        raise RequestError(ResponseCode.QUERY_NOT_FOUND, f"Not found, {why}")
    return _offset(offset)


def update_consumer_offset(broker: Broker, header: headers.UpdateConsumerOffset, asked: Asked) -> RemotingCommand:
    """A group says where it is: kept in memory, and written by a broker that writes."""
    group, topic = header.consumer_group, header.topic
    queue_id, offset = header.queue_id, header.commit_offset
    # 4.x keeps whatever it is given
    if not broker.identity.release.is_of_4:
        if broker.groups.find(group) is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if broker.topics.find(topic) is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
    if queue_id < 0:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"queueId[{queue_id}] is no queue")
    if broker.offsets.has_reset(group, topic, queue_id):
        # ConsumerManageProcessor#updateConsumerOffset
        return RemotingCommand(ResponseCode.SUCCESS, remark="Offset has been previously reset")
    broker.offsets.commit(group, topic, queue_id, offset)
    return RemotingCommand(ResponseCode.SUCCESS)


def query_correction_offset(broker: Broker, header: headers.QueryCorrectionOffset, asked: Asked) -> RemotingCommand:
    """By queue, the smallest offset that a group has in a topic; the largest number where `compareGroup` is behind
    it. A broker forgets the offsets of `filterGroups` thereby; here they are only left out."""
    topic, compared = header.topic, header.compare_group
    left_out = set(header.filter_groups.split(","))
    smallest: dict[int, int] = {}
    for group in broker.offsets.groups_of(topic):
        for queue_id, offset in broker.offsets.of(group, topic).items() if group not in left_out else ():
            if offset >= broker.bounds(topic, queue_id)[0]:
                smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
    for queue_id, offset in broker.offsets.of(compared, topic).items():
        if smallest.get(queue_id, _NO_OFFSET) > offset:
            smallest[queue_id] = _NO_OFFSET
    return json_answer(bean(correctionOffsets=smallest))


# The broker's state as texts by name, for brokerStatus and clusterList (BrokerRuntimeInfo, StoreStatsService).
#
# Clients take single keys out of it and stumble over a missing one: every key that a 5.3.3 broker gives is there.
# What does not exist here, such as a lock of the page cache, is 0.

_POOLS = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "ack": 100_000}
_ZEROS = "dispatchMaxBuffer pageCacheLockTimeMills startAcceptSendRequestTimeStamp EndTransactionQueueSize".split()
_SINCE_5_0 = ("ackThread", "litePullThread", "timer", "brokerActive")
_SECOND = 1000


def runtime_info(broker: Broker) -> dict[str, str]:
    """All texts by name."""
    table = dict.fromkeys(_ZEROS, "0") | _timer(broker) | _queues(broker) | _counts(broker.counts)
    earliest = store_time_at(broker.files.log, broker.files.log.min_offset)
    table |= {
        "bootTimestamp": str(broker.started_at),
        "runtime": _running_time(broker.running_ms),
        "brokerActive": "true",
        "brokerVersionDesc": broker.identity.release.text,
        "commitLogMinOffset": str(broker.files.log.min_offset),
        "commitLogMaxOffset": str(broker.log_end),
        "earliestMessageTimeStamp": str(-1 if earliest is None else earliest),
        "remainTransientStoreBufferNumbs": str(2**31 - 1),
        "remainHowManyDataToFlush": _readable(broker.unflushed_bytes),
        "dispatchBehindBytes": "0",
    }
    if broker.identity.release.shows_number:
        table["brokerVersion"] = str(broker.identity.release.number)
    if broker.identity.release.is_of_4:
        table = {name: text for name, text in table.items() if not name.startswith(_SINCE_5_0)}
    return table | _disk(broker) | _delays(broker)


def _timer(broker: Broker) -> dict[str, str]:
    figures = broker.timer_figures()
    return {
        "timerReadBehind": str(figures.read_behind),
        "timerOffsetBehind": str(figures.offset_behind),
        "timerCongestNum": str(figures.waiting),
        "timerEnqueueTps": str(figures.enqueue_tps),
        "timerDequeueTps": str(figures.dequeue_tps),
    }


def _queues(broker: Broker) -> dict[str, str]:
    """Requests that wait, by kind. Those of most kinds are answered as they come: none waits, and they do not count
    against a broker's own capacity. Slow ones wait for one thread."""
    sizes = {pool: (0, capacity) for pool, capacity in _POOLS.items()}
    # this request is one of those, and waits no longer
    sizes["query"] = (max(0, broker.slow_requests() - 1), Limits().slow_requests)
    table = {"EndTransactionThreadPoolQueueCapacity": "100000"}
    for pool, (size, capacity) in sizes.items():
        table[f"{pool}ThreadPoolQueueSize"] = str(size)
        table[f"{pool}ThreadPoolQueueCapacity"] = str(capacity)
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return table


def _counts(counts: Counts) -> dict[str, str]:
    """What was put and got since the broker began."""
    puts = counts.puts
    put_now, got_now = counts.totals()
    return counts.rates() | {
        "putMessageTimesTotal": str(puts),
        "putMessageFailedTimes": str(counts.failed_puts),
        "putMessageSizeTotal": str(counts.put_bytes),
        "putMessageAverageSize": str(counts.put_bytes / max(puts, 1)),
        "putMessageEntireTimeMax": str(counts.longest_put),
        "getMessageEntireTimeMax": str(counts.longest_get),
        "putMessageDistributeTime": "".join(
            f"{name}:{count} " for name, count in zip(TIME_NAMES, counts.put_times, strict=True)
        ),
        "putLatency99": f"{counts.put_percentile(0.99):.2f}",
        "putLatency999": f"{counts.put_percentile(0.999):.2f}",
        "msgPutTotalYesterdayMorning": str(counts.put_mornings[0]),
        "msgPutTotalTodayMorning": str(counts.put_mornings[1]),
        "msgPutTotalTodayNow": str(put_now),
        "msgGetTotalYesterdayMorning": str(counts.get_mornings[0]),
        "msgGetTotalTodayMorning": str(counts.get_mornings[1]),
        "msgGetTotalTodayNow": str(got_now),
    }


def _running_time(milliseconds: int) -> str:
    minutes, seconds = divmod(max(milliseconds, 0) // _SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _disk(broker: Broker) -> dict[str, str]:
    """Return the usage of the disks, as ratios of 1; -1.0 if unknown (DefaultMessageStore#getRuntimeInfo)."""
    layout = broker.files.layout
    logs = {directory: _disk_ratio(directory) for directory in layout.commitlog}
    table = {f"commitLogDiskRatio_{directory}": str(ratio) for directory, ratio in logs.items()}
    table["commitLogDiskRatio"] = str(min(logs.values()))
    table["consumeQueueDiskRatio"] = str(_disk_ratio(layout.consumequeue))
    table["commitLogDirCapacity"] = _capacity(layout.commitlog[-1])
    return table


def _disk_ratio(path: Path) -> float:
    percent = used_percent(path)
    return -1.0 if percent is None else percent / 100


def _capacity(path: Path) -> str:
    try:
        disk = os.statvfs(path)
    except OSError:
        return ""
    total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    return f"Total : {_readable(total)}, Free : {_readable(free)}."


def _readable(size: int) -> str:
    """Return a size as RocketMQ prints it (MixAll#humanReadableByteCount)."""
    power = max(0, size.bit_length() - 1) // 10
    return f"{size / (1 << 10 * power):.1f} {' KMGTPE'[power]}iB" if power else f"{size} B"


def _delays(broker: Broker) -> dict[str, str]:
    """By delay level, what is delivered and what there is; nothing where the store's own file is damaged."""
    try:
        content = broker.delay_offsets()
    except (CorruptError, UnreadableError) as error:
        broker.tell_once(("delayOffset.json", 0), f"delivered delay levels are not known: {error}")
        return {}
    levels = content.get("offsetTable") if isinstance(content, dict) else None
    if not isinstance(levels, dict):
        return {}
    return {
        f"scheduleMessageOffset_{level}": f"{offset},{broker.bounds(SCHEDULE_TOPIC, level - 1)[1]}"
        for level, offset in levels.items()
        if isinstance(level, int) and isinstance(offset, int)
    }


# How full the queues are and how far the groups have come: what mqadmin shows of topics and consumers.

_TOPICS_SEPARATOR = ";"


def get_topic_stats(broker: Broker, header: headers.TopicHeader, asked: Asked) -> RemotingCommand:
    """Smallest and next offset of a topic's queues, and when the last message of each was stored."""
    name = header.topic
    topic = broker.topic(name, f"topic[{name}] not exist")
    table: dict[MessageQueue, Any] = {}
    for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
        minimum, maximum = broker.bounds(topic.name, queue_id)
        last = broker.store_time(topic.name, queue_id, maximum - 1) if maximum > 0 else 0
        queue = MessageQueue(broker.identity.name, queue_id, topic.name)
        table[queue] = bean(lastUpdateTimestamp=last, maxOffset=maximum, minOffset=minimum)
    rate = broker.counts.per_second(TOPIC_PUT_NUMS, topic.name, broker.elapsed())
    return json_answer(bean(offsetTable=table, topicPutTps=rate))


def _consume_stats(broker: Broker, group: str, topics: Iterable[str]) -> dict[MessageQueue, dict[str, int]]:
    """By queue, how far `group` is and how far it could be (OffsetWrapper)."""
    table: dict[MessageQueue, dict[str, int]] = {}
    for name in topics:
        topic = broker.topics.find(name)
        for queue_id in range(topic.read_queue_nums if topic is not None else 0):
            consumed = max(0, broker.offsets.find(group, name, queue_id) or 0)
            last = broker.store_time(name, queue_id, consumed - 1) if consumed > 0 else 0
            table[MessageQueue(broker.identity.name, queue_id, name)] = bean(
                brokerOffset=max(0, broker.bounds(name, queue_id)[1]),
                consumerOffset=consumed,
                lastTimestamp=last,
                pullOffset=broker.offsets.pulled(group, name, queue_id),
            )
    return table


def _topics_of(broker: Broker, group: str) -> list[str]:
    """Topics of a group: those with offsets, of a group that is there only those it still subscribes."""
    return [topic for topic in broker.offsets.topics_of(group) if broker.clients.subscribes(group, topic)]


def get_consume_stats(broker: Broker, header: headers.GetConsumeStats, asked: Asked) -> RemotingCommand:
    """How far a group has come, queue by queue."""
    group, topic = header.consumer_group, header.topic
    listed = header.topic_list
    if listed:
        topics = [name for name in listed.split(_TOPICS_SEPARATOR) if name]
    else:
        topics = [topic] if topic else _topics_of(broker, group)
    rate = sum(_consumed_per_second(broker, group, one) for one in topics)
    return json_answer(bean(consumeTps=rate, offsetTable=_consume_stats(broker, group, topics)))


def _consumed_per_second(broker: Broker, group: str, topic: str) -> float:
    return broker.counts.per_second(GROUP_GET_NUMS, f"{topic}@{group}", broker.elapsed())


def view_stats(broker: Broker, header: headers.ViewBrokerStatsData, asked: Asked) -> RemotingCommand:
    """One of the broker's counts over the last minute, hour and day, such as TOPIC_PUT_NUMS of a topic."""
    name, key = header.stats_name, header.stats_key
    found = broker.counts.figures(name, key, broker.elapsed())
    if found is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    minute, hour, day = (bean(avgpt=one.average, sum=one.sum, tps=one.tps) for one in found)
    return json_answer(bean(statsDay=day, statsHour=hour, statsMinute=minute))


def get_broker_consume_stats(broker: Broker, header: headers.GetBrokerConsumeStats, asked: Asked) -> RemotingCommand:
    """The same of all groups, topic by topic. `isOrder`: only topics whose messages are in order."""
    is_order = header.is_order
    groups: list[Any] = []
    behind = in_flight = 0
    for group in sorted({*broker.groups.names(), *broker.offsets.groups()}):
        stats: list[Any] = []
        for topic in _topics_of(broker, group):
            config = broker.topics.find(topic)
            if config is None or (is_order and not config.order):
                continue
            table = _consume_stats(broker, group, [topic])
            behind += sum(one["brokerOffset"] - one["consumerOffset"] for one in table.values())
            in_flight += sum(one["pullOffset"] - one["consumerOffset"] for one in table.values())
            stats.append(bean(consumeTps=_consumed_per_second(broker, group, topic), offsetTable=table))
        groups.append({group: stats})
    content = bean(
        brokerAddr=broker.identity.address(asked.caller),
        consumeStatsList=groups,
        totalDiff=behind,
        totalInflightDiff=in_flight,
    )
    return json_answer(content)


def query_consume_time_span(broker: Broker, header: headers.GroupTopicHeader, asked: Asked) -> RemotingCommand:
    """By queue, the store times of its messages and of the group's last one (ms), and how late the group is."""
    name, group = header.topic, header.group
    topic = broker.topic(name, f"topic[{name}] not exist")
    spans: list[Any] = []
    for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
        minimum, maximum = broker.bounds(topic.name, queue_id)
        consumed = broker.offsets.find(group, topic.name, queue_id) or 0
        earliest = broker.store_time(topic.name, queue_id, minimum)
        current = broker.store_time(topic.name, queue_id, consumed - 1) if consumed > 0 else earliest
        next_time = broker.store_time(topic.name, queue_id, consumed) if consumed < maximum else 0
        latest = broker.store_time(topic.name, queue_id, maximum - 1) if maximum > 0 else 0
        spans.append(
            bean(
                consumeTimeStamp=current,
                consumeTimeStampStr=_local_time(current),
                delayTime=broker.clock() - next_time if next_time > 0 else 0,
                maxTimeStamp=latest,
                maxTimeStampStr=_local_time(latest),
                messageQueue=MessageQueue(broker.identity.name, queue_id, topic.name),
                minTimeStamp=earliest,
                minTimeStampStr=_local_time(earliest),
            )
        )
    return json_answer(bean(consumeTimeSpanSet=spans))


def _local_time(timestamp: int) -> str:
    """UtilAll#formatDate with YYYY_MM_DD_HH_MM_SS_SSS."""
    moment = time.localtime(timestamp // 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', moment)}:{timestamp % 1000:03d}"


def query_who_consumes(broker: Broker, header: headers.TopicHeader, asked: Asked) -> RemotingCommand:
    """Groups that are there and subscribe a topic, and groups that have offsets of it."""
    topic = header.topic
    groups = {*broker.clients.groups_subscribing(topic), *broker.offsets.groups_of(topic)}
    return json_answer(bean(groupList=sorted(groups)))


def query_topics_by_consumer(broker: Broker, header: headers.GroupHeader, asked: Asked) -> RemotingCommand:
    """Topics that a group has offsets of."""
    group = header.group
    topics = sorted(broker.offsets.topics_of(group))
    return json_answer(bean(brokerAddr=broker.identity.address(asked.caller), topicList=topics))
