"""What mqadmin changes: topics, groups, offsets (AdminBrokerProcessor)."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from rmqctl.formats.errors import CorruptError, RefusedError, UnreadableError, UsageError
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.query import runtime_info
from rmqctl.network.broker.settings import is_changeable, is_cleaning
from rmqctl.network.broker.tables import NO_VERSION, is_system_topic
from rmqctl.network.config_defaults import broker_defaults, rocketmq_home
from rmqctl.network.ha.master import IN_SYNC_BYTES
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    bean,
    fastjson,
    json_answer,
    objects,
    parse_body,
    text_of,
)
from rmqctl.network.remoting.headers import Header, request
from rmqctl.network.remoting.requests import Asked, Promised, Reply, RequestError
from rmqctl.network.topic_config import TopicConfig, topic_from_bean
from rmqctl.store.config.config import parse_properties
from rmqctl.store.config.config_files import (
    MOST_QUEUES,
    ROCKSDB_TOPICS,
    SYSTEM_TOPICS,
    brokers_group_problem,
    read_config,
    topic_problem,
)
from rmqctl.store.config.config_tables import (
    BATCH_QUEUES,
    MESSAGE_TYPE,
    QUEUE_TYPE,
    changed_attributes,
    group_attributes,
    parsed_change,
    topic_attributes,
)
from rmqctl.store.config.releases import DEFAULT_RELEASE
from rmqctl.store.pop.records import pop_retry_topics
from rmqctl.store.queues.dispatch import TIMER_TOPIC

_MOST_PERM = 7
_MIXED = "MIXED"
_FOR_ALL_QUEUES = -1
# AdminBrokerProcessor#initConfigBlackList
_BLACK_LIST = ("brokerConfigPath", "rocketmqHome", "configBlackList")


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Answer with the words in which a change of attributes is refused; RequestError."""
    try:
        yield
    except RefusedError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, error.message) from error


def _when_written(done: Future[None]) -> Reply:
    return Promised(done, lambda: RemotingCommand(ResponseCode.SUCCESS))


def _own_topic(broker: MasterBroker, name: str, *, deletes: bool = False) -> str:
    """A topic that may be created or deleted; RequestError."""
    problem = topic_problem(name, broker.identity.release, deletes=deletes)
    is_checked = broker.settings.validate_system_topic_when_update_topic
    if problem is None and is_checked and is_system_topic(name, broker.identity.cluster, broker.identity.name):
        problem = f"The topic[{name}] is conflict with system topic."
    if problem is not None:
        raise RequestError(ResponseCode.INVALID_PARAMETER, problem)
    return name


def update_and_create_topic(broker: MasterBroker, header: headers.CreateTopic, asked: Asked) -> Reply:
    """Have a topic as the request says, a new one or one that is there."""
    name = _own_topic(broker, header.topic)
    readable = header.read_queue_nums
    writable = header.write_queue_nums
    perm = header.perm
    if not 0 <= readable <= MOST_QUEUES or not 0 <= writable <= MOST_QUEUES or not 0 <= perm <= _MOST_PERM:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER, f"{readable} and {writable} queues with perm {perm} are no topic's"
        )
    with _refusing():
        # 4.x has none
        said = "" if broker.identity.release.is_of_4 else header.attributes
        change = parsed_change(said)
    topic = TopicConfig(
        name,
        readable,
        writable,
        perm,
        header.topic_filter_type or "SINGLE_TAG",
        header.topic_sys_flag,
        header.order,
        change,
    )
    broker.topics.put(_with_attributes(broker, topic))
    return _when_written(broker.save_topics())


def _with_attributes(broker: MasterBroker, topic: TopicConfig) -> TopicConfig:
    """Return a topic with the attributes it has after its own, which are changes."""
    known, change = broker.topics.find(topic.name), dict(topic.attributes)
    if change.get(f"+{MESSAGE_TYPE}") == _MIXED and not broker.settings.enable_mixed_message_type:
        raise RequestError(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
    table = topic_attributes(broker.identity.release)
    with _refusing():
        attributes = changed_attributes(None if known is None else known.attributes, change, table)
    if f"+{QUEUE_TYPE}" in change and attributes[QUEUE_TYPE] == BATCH_QUEUES:
        raise RequestError(ResponseCode.INVALID_PARAMETER, "topics of batch queues are not created here")
    return topic._replace(attributes=attributes)


def update_and_create_topics(broker: MasterBroker, header: Header, asked: Asked) -> Reply:
    """Have several topics, all of them or none (CreateTopicListRequestBody)."""
    topics = []
    for one in objects(parse_body(asked.request.body).get("topicConfigList")):
        topic = topic_from_bean(_own_topic(broker, text_of(one, "topicName")), one)
        if max(topic.read_queue_nums, topic.write_queue_nums) > MOST_QUEUES or not 0 <= topic.perm <= _MOST_PERM:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"{topic.name} has more queues or perm than a topic can")
        topics.append(_with_attributes(broker, topic))
    for topic in topics:
        broker.topics.put(topic)
    return _when_written(broker.save_topics())


def delete_topic(broker: MasterBroker, header: headers.TopicHeader, asked: Asked) -> Reply:
    """Forget a topic and the offsets that groups have of it. What was sent to it stays in log and queues, which have to
    agree with each other."""
    name = _own_topic(broker, header.topic, deletes=True)
    names = [name]
    if broker.settings.clear_retry_topic_when_delete_topic and not broker.identity.release.is_of_4:
        retries = [one for group in broker.offsets.groups_of(name) for one in pop_retry_topics(group, name)]
        names += [one for one in retries if broker.topics.find(one) is not None]
    for one in names:
        broker.topics.remove(one, broker.log_end)
        broker.offsets.remove(topic=one)
    return _when_written(broker.save_topics())


def update_group(broker: MasterBroker, header: Header, asked: Asked) -> Reply:
    """Have a group with these settings."""
    return _put_groups(broker, [parse_body(asked.request.body)])


def update_groups(broker: MasterBroker, header: Header, asked: Asked) -> Reply:
    """Have several groups, all of them or none (SubscriptionGroupList)."""
    return _put_groups(broker, objects(parse_body(asked.request.body).get("groupConfigList")))


def _put_groups(broker: MasterBroker, groups: list[dict[str, Any]]) -> Reply:
    for settings in groups:
        problem = brokers_group_problem(text_of(settings, "groupName"), broker.identity.release)
        if problem is not None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, problem)
    changed = [{**settings, "attributes": _group_attributes(broker, settings)} for settings in groups]
    for settings in changed:
        broker.groups.put(text_of(settings, "groupName"), settings)
    return _when_written(broker.save_groups())


def _group_attributes(broker: MasterBroker, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a group after those of a request, which are changes."""
    change, known = settings.get("attributes"), broker.groups.find(text_of(settings, "groupName"))
    has = None if known is None else known.get("attributes") or {}
    wanted = change if isinstance(change, dict) else {}
    with _refusing():
        return changed_attributes(has, wanted, group_attributes(broker.identity.release))


def delete_group(broker: MasterBroker, header: headers.DeleteGroup, asked: Asked) -> Reply:
    """Remove a group, with its offsets if that is asked for."""
    name = header.group_name
    broker.groups.remove(name)
    if header.clean_offset or header.remove_offset:
        broker.offsets.remove(group=name)
    return _when_written(broker.save_groups())


def reset_offset(broker: MasterBroker, header: headers.ResetOffset, asked: Asked) -> RemotingCommand:
    """Set a group to a time or an offset in a topic (AdminBrokerProcessor#resetOffset): its next pulls begin there."""
    name, group = header.topic, header.group
    if broker.identity.release.is_of_4 or not broker.settings.use_server_side_reset_offset:
        _refuse_as_4(broker, name, group, header.timestamp)
    topic = broker.topic(name, f"Topic {name} does not exist")
    timestamp, only = header.timestamp, header.queue_id
    given = header.offset
    if broker.groups.find(group) is None:
        raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
    queue_ids = range(topic.read_queue_nums) if only == _FOR_ALL_QUEUES else [only]
    table: dict[MessageQueue, Any] = {}
    for queue_id in queue_ids:
        first, end = broker.bounds(topic.name, queue_id)
        offset = given
        if given < 0:
            found = end if timestamp < 0 or first == end else broker.reader.offset_at(topic.name, queue_id, timestamp)
            current = broker.offsets.find(group, topic.name, queue_id)
            is_forward = current is not None and found > current
            offset = current if is_forward and not header.is_force and current is not None else found
        elif not first <= given <= end:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"queue {queue_id} of {topic.name} goes from {first} to {end}, not to {given}",
            )
        table[MessageQueue(broker.identity.name, queue_id, topic.name)] = offset
        broker.offsets.reset(group, topic.name, queue_id, offset)
    body = fastjson(bean(offsetTable=table))
    _tell_members(broker, topic.name, group)
    return RemotingCommand(ResponseCode.SUCCESS, body=body)


def _refuse_as_4(broker: MasterBroker, topic: str, group: str, timestamp: int) -> None:
    """4.x, and 5.x without useServerSideResetOffset, have the members of a group set their offsets: mqadmin sets those
    of a group without members itself where it is answered so (Broker2Client#resetOffset)."""
    found = broker.topics.find(topic)
    if found is None:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
        )
    if any(broker.offsets.find(group, topic, queue_id) is None for queue_id in range(found.write_queue_nums)):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
    if broker.clients.consumer_group(group) is None:
        raise RequestError(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}",
        )


def clone_offsets(broker: MasterBroker, header: headers.CloneGroupOffset, asked: Asked) -> RemotingCommand:
    """Have a group be where another one is, in one topic or in all that this one has offsets of. Topics that a group
    which is there does not subscribe any more are left out, unless it is said to be offline."""
    source, target = header.src_group, header.dest_group
    only, is_offline = header.topic, header.offline
    members = None if is_offline else broker.clients.consumer_group(source)
    broker.group(target)
    for topic in [only] if only else broker.offsets.topics_of(source):
        if broker.topics.find(topic) is None or (members is not None and topic not in members.subscriptions):
            continue
        for queue_id, offset in broker.offsets.of(source, topic).items():
            broker.offsets.commit(target, topic, queue_id, offset)
    return RemotingCommand(ResponseCode.SUCCESS)


def update_broker_config(broker: MasterBroker, header: Header, asked: Asked) -> RemotingCommand:
    """Go by other settings, all that are named or none. They are kept until the broker ends: broker.conf belongs to its
    author."""
    try:
        properties = parse_properties(bytes(asked.request.body))
        for key in properties:
            _refuse_to_change(broker, key)
        broker.change_settings(properties)
    except UsageError as error:
        raise RequestError(ResponseCode.INVALID_PARAMETER, error.message) from error
    said = ", ".join(f"{key}={value}" for key, value in properties.items())
    if said:
        broker.tell(f"{asked.caller.remote} has changed settings, until this broker ends: {said}")
    return RemotingCommand(ResponseCode.SUCCESS)


def _refuse_to_change(broker: MasterBroker, key: str) -> None:
    if key in (*_BLACK_LIST, *broker.settings.config_black_list.split(";")):
        raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    if not is_changeable(key):
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"{key} cannot be changed while the broker runs: docs/network.md names what can be; nothing was changed",
        )
    if is_cleaning(key) and not broker.store.is_cleaning:
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"{key} has no effect: this broker removes no files, `serve --clean` would"
        )


def _tell_members(broker: MasterBroker, topic: str, group: str) -> None:
    """Have the members share out the queues again, which lets them pull at once."""
    members = broker.clients.consumer_group(group)
    command = request(
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, headers.ConsumerGroupHeader(consumer_group=group), oneway=True
    )
    for caller in list(members.channels) if members is not None else ():
        caller.send(command)


# What the broker is configured with: topics, groups, offsets, itself; and what state it is in.

# TopicValidator: since 5.0
_CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
_REVIVE_PREFIX = "rmq_sys_"


def get_topic_config(broker: Broker, header: headers.TopicHeader, asked: Asked) -> RemotingCommand:
    """One topic."""
    name = header.topic
    topic = broker.topics.find(name)
    if topic is None:
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
    return json_answer(topic.as_bean())


def get_all_topic_config(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """All topics."""
    content = bean(
        dataVersion=broker.topics.data_version,
        mappingDataVersion=NO_VERSION,
        topicConfigTable={topic.name: topic.as_bean() for topic in broker.topics.all()},
        topicQueueMappingDetailMap={},
        topicQueueMappingInfoMap={},
    )
    return _all(content, broker, "totalTopicNum", len(content["topicConfigTable"]))


def _all(content: dict[str, Any], broker: Broker, name: str, count: int) -> RemotingCommand:
    """Answer with a whole table; clients of 5.5.0 ask for more until they have as many rows as `name` says."""
    answer = json_answer(content)
    return answer._replace(fields={name: str(count)}) if broker.identity.release.has_lite_topics else answer


def get_group_config(broker: Broker, header: headers.GroupHeader, asked: Asked) -> RemotingCommand:
    """Return one group, created if allowed: a broker does so for any client."""
    try:
        return json_answer(broker.group(header.group))
    except RequestError as error:
        if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            error.remark = "No group in this broker"
        raise


def get_all_group_config(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """All groups."""
    content = bean(
        dataVersion=broker.groups.data_version,
        forbiddenTable=broker.groups.forbidden(),
        subscriptionGroupTable=broker.groups.all(),
    )
    return _all(content, broker, "totalGroupNum", len(content["subscriptionGroupTable"]))


def get_all_consumer_offset(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Offsets of all groups, as they are now."""
    offsets = broker.offsets
    topics = {group: offsets.topics_of(group) for group in sorted(offsets.groups())}
    content = bean(dataVersion=offsets.data_version, groupTopicMap=topics, offsetTable=offsets.as_table())
    if broker.identity.release.has_lite_topics:
        content["pullOffsetTable"] = offsets.pulled_table()
    return json_answer(content)


def get_all_delay_offset(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """How far the delay levels have been delivered: now, or as the store has it."""
    if isinstance(broker, MasterBroker):
        return json_answer(broker.delays.table())
    try:
        content = read_config(broker.files.layout.config / "delayOffset.json")
    except (CorruptError, UnreadableError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
    return json_answer(content if isinstance(content, dict) else bean(dataVersion=NO_VERSION, offsetTable={}))


def get_broker_config(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Every key of the version that is named, with the value that counts here, else with RocketMQ's default."""
    identity = broker.identity
    defaults = broker_defaults(identity.release)
    in_force = {**_in_force(broker.files.config._asdict()), **_in_force(broker.settings._asdict())}
    properties = {
        **defaults,
        **{key: value for key, value in in_force.items() if key in defaults},
        **_sizes(broker),
        "brokerIP1": identity.reachable_host(asked.caller),
        "brokerIP2": identity.reachable_host(asked.caller),
        "rocketmqHome": rocketmq_home(),
        **broker.properties,
        "brokerClusterName": identity.cluster,
        "brokerName": identity.name,
        "brokerId": str(identity.broker_id),
        "listenPort": str(identity.port),
        # 0: no slaves are served
        "haListenPort": str(identity.ha_port or 0),
        # 4.x listens at all addresses
        **({"bindAddress": identity.host} if identity.release.message_types else {}),
        **({"namesrvAddr": broker.name_servers} if broker.name_servers else {}),
        "storePathRootDir": os.fspath(broker.files.root),
        # those for reading only have a key of their own
        "storePathCommitLog": broker.files.config.store_path_commit_log or os.fspath(broker.files.layout.commitlog[0]),
    }
    text = "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
    version = json.dumps(NO_VERSION, separators=(",", ":"))
    return RemotingCommand(ResponseCode.SUCCESS, {"version": version}, text.encode("utf-8", "backslashreplace"))


def _in_force(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values by their keys of a broker.conf."""
    found: dict[str, str] = {}
    for name, value in values.items():
        first, *others = name.split("_")
        if isinstance(value, str | int | float):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found[first + "".join(map(str.capitalize, others))] = text
    return found


def _sizes(broker: Broker) -> dict[str, str]:
    """Sizes of the store's files by their keys."""
    sizes = broker.files.sizes()
    found = {
        "mappedFileSizeCommitLog": broker.files.log.file_size,
        "mappedFileSizeConsumeQueue": sizes["mapped_file_size_consume_queue"],
        "maxHashSlotNum": sizes["max_hash_slot_num"],
        "maxIndexNum": sizes["max_index_num"],
    }
    return {key: str(size) for key, size in found.items() if size}


def get_system_topics(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Topics that the broker has for itself."""
    identity = broker.identity
    is_own = partial(is_system_topic, cluster=identity.cluster, broker_name=identity.name)
    names = {*SYSTEM_TOPICS, *(topic.name for topic in broker.topics.all() if is_own(topic.name))}
    if identity.release.is_of_4:
        # what a broker of 5.x has left
        names = {name for name in names if name != _CHECKPOINT_TOPIC and not name.startswith(_REVIVE_PREFIX)}
    if not identity.release.has_lite_topics:
        names.difference_update(ROCKSDB_TOPICS)
    if not broker.files.config.timer_wheel_enable:
        names.discard(TIMER_TOPIC)
    return json_answer(bean(topicList=sorted(names)))


def get_runtime_info(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """The broker's state as texts by name."""
    table = runtime_info(broker)
    if asked.request.version < DEFAULT_RELEASE.number or broker.identity.release.is_of_4:
        # spelled so before 5.0: mqadmin of 4.9 stumbles over a missing one
        table["getTransferedTps"] = table["getTransferredTps"]
    if broker.identity.release.is_of_4:
        del table["getTransferredTps"]
    return json_answer(bean(table=table))


def get_ha_status(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """The slaves that are here, and how far each has come."""
    client = bean(
        lastReadTimestamp=0, lastWriteTimestamp=0, masterFlushOffset=0, maxOffset=0, transferredByteInSecond=0
    )
    end = broker.log_end
    slaves = [
        bean(
            addr=slave.remote,
            diff=end - slave.acknowledged,
            inSync=end - slave.acknowledged < IN_SYNC_BYTES,
            slaveAckOffset=slave.acknowledged,
            transferFromWhere=slave.next_offset,
            transferredByteInSecond=slave.bytes_per_second(),
        )
        for slave in broker.slaves.all()
    ]
    content = bean(
        haClientRuntimeInfo=client,
        haConnectionInfo=slaves,
        inSyncSlaveNums=broker.slaves.keeping_up(end),
        master=True,
        masterCommitLogMaxOffset=end,
    )
    return json_answer(content)


def exchange_ha_info(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Where slaves find the log (AdminBrokerProcessor#exchangeBrokerHaInfo)."""
    address = broker.identity.ha_address(asked.caller)
    if address is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "no slaves are served here: --ha-listen HOST:PORT would")
    answer = {
        "masterHaAddress": address,
        "masterAddress": broker.identity.address(asked.caller),
        "masterFlushOffset": str(broker.log_end),
    }
    return RemotingCommand(ResponseCode.SUCCESS, answer)
