"""What the broker is configured with: topics, groups, offsets, itself; and what state it is in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.runtime_info import runtime_info
from rmqctl.network.broker.tables.config_table import NO_VERSION
from rmqctl.network.broker.tables.topics import is_system_topic
from rmqctl.network.config_defaults import broker_defaults, rocketmq_home
from rmqctl.network.ha.slaves import IN_SYNC_BYTES
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import bean, fastjson
from rmqctl.network.remoting.services import Caller, RequestError, Service
from rmqctl.store.config.config_files import read_config
from rmqctl.store.config.topic_names import ROCKSDB_TOPICS, SYSTEM_TOPICS
from rmqctl.store.config.versions import DEFAULT_RELEASE
from rmqctl.store.queues.dispatch import TIMER_TOPIC

# TopicValidator: since 5.0
_CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
_REVIVE_PREFIX = "rmq_sys_"


def _body(content: Any) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


def get_topic_config(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """One topic."""
    name = fields.text(request, "topic")
    topic = broker.topics.find(name)
    if topic is None:
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
    return _body(topic.as_bean())


def get_all_topic_config(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
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
    answer = _body(content)
    return answer._replace(fields={name: str(count)}) if broker.identity.release.has_lite_topics else answer


def get_group_config(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """One group, which is created if that may be: a broker does so for whoever asks."""
    try:
        return _body(broker.group(fields.text(request, "group")))
    except RequestError as error:
        if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            error.remark = "No group in this broker"
        raise


def get_all_group_config(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """All groups."""
    content = bean(
        dataVersion=broker.groups.data_version,
        forbiddenTable=broker.groups.forbidden(),
        subscriptionGroupTable=broker.groups.all(),
    )
    return _all(content, broker, "totalGroupNum", len(content["subscriptionGroupTable"]))


def get_all_consumer_offset(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Offsets of all groups, as they are now."""
    offsets = broker.offsets
    topics = {group: offsets.topics_of(group) for group in sorted(offsets.groups())}
    content = bean(dataVersion=offsets.data_version, groupTopicMap=topics, offsetTable=offsets.as_table())
    if broker.identity.release.has_lite_topics:
        content["pullOffsetTable"] = offsets.pulled_table()
    return _body(content)


def get_all_delay_offset(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """How far the delay levels have been delivered, as the store has it."""
    try:
        content = read_config(broker.files.layout.config / "delayOffset.json")
    except (CorruptError, UnreadableError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
    return _body(content if isinstance(content, dict) else bean(dataVersion=NO_VERSION, offsetTable={}))


def get_all_request_mode(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Which groups pop, as the store has it: slaves of 5.x ask."""
    try:
        content = read_config(broker.files.layout.config / "messageRequestMode.json")
    except (CorruptError, UnreadableError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
    return _body(content if isinstance(content, dict) else bean(messageRequestModeMap={}))


def get_broker_config(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Every key of the version that is named, with the value that counts here, else with RocketMQ's default."""
    identity = broker.identity
    defaults = broker_defaults(identity.release)
    in_force = {**_in_force(broker.files.config._asdict()), **_in_force(broker.settings._asdict())}
    properties = {
        **defaults,
        **{key: value for key, value in in_force.items() if key in defaults},
        **_sizes(broker),
        "brokerIP1": identity.reachable_host(caller),
        "brokerIP2": identity.reachable_host(caller),
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


def get_system_topics(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
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
    return _body(bean(topicList=sorted(names)))


def get_runtime_info(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The broker's state as texts by name."""
    table = runtime_info(broker)
    if request.version < DEFAULT_RELEASE.number or broker.identity.release.is_of_4:
        # spelled so before 5.0: mqadmin of 4.9 stumbles over a missing one
        table["getTransferedTps"] = table["getTransferredTps"]
    if broker.identity.release.is_of_4:
        del table["getTransferredTps"]
    return _body(bean(table=table))


def get_ha_status(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
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
    return _body(content)


def exchange_ha_info(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Where slaves find the log (AdminBrokerProcessor#exchangeBrokerHaInfo)."""
    address = broker.identity.ha_address(caller)
    if address is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "no slaves are served here: --ha-listen HOST:PORT would")
    answer = {
        "masterHaAddress": address,
        "masterAddress": broker.identity.address(caller),
        "masterFlushOffset": str(broker.log_end),
    }
    return RemotingCommand(ResponseCode.SUCCESS, answer)


SERVICES: dict[int, Service[Broker]] = {
    RequestCode.GET_TOPIC_CONFIG: Service(get_topic_config, "one topic"),
    RequestCode.GET_ALL_TOPIC_CONFIG: Service(get_all_topic_config, "all topics"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Service(get_group_config, "one group"),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Service(get_all_group_config, "all groups"),
    RequestCode.GET_ALL_CONSUMER_OFFSET: Service(get_all_consumer_offset, "offsets of all groups, as in memory"),
    RequestCode.GET_ALL_DELAY_OFFSET: Service(get_all_delay_offset, "delivered delay levels, as in the store"),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Service(get_all_request_mode, "groups that pop, as in the store"),
    RequestCode.GET_BROKER_CONFIG: Service(get_broker_config, "every key of the version, with the values that count"),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Service(get_system_topics, "topics of the broker's own"),
    RequestCode.GET_BROKER_RUNTIME_INFO: Service(get_runtime_info, "every key of 5.3.3", is_slow=True),
    RequestCode.GET_BROKER_HA_STATUS: Service(get_ha_status, "slaves, and how far each has come"),
    RequestCode.EXCHANGE_BROKER_HA_INFO: Service(exchange_ha_info, "where slaves find the log"),
}
