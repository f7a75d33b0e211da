"""What mqadmin changes: topics, groups, offsets (AdminBrokerProcessor)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from rmqctl.formats.errors import RefusedError, UsageError
from rmqctl.network.broker.master_broker import MasterBroker
from rmqctl.network.broker.tables.groups import is_legal_group
from rmqctl.network.broker.tables.settings import is_changeable, is_cleaning
from rmqctl.network.broker.tables.topics import is_system_topic
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue, bean, fastjson, objects, parse_body, text_of
from rmqctl.network.remoting.services import Caller, Promised, Reply, RequestError, Service, oneway
from rmqctl.network.topic_config import TopicConfig, topic_from_bean
from rmqctl.store.config.attributes import (
    BATCH_QUEUES,
    MESSAGE_TYPE,
    QUEUE_TYPE,
    changed_attributes,
    group_attributes,
    parsed_change,
    topic_attributes,
)
from rmqctl.store.config.config import parse_properties
from rmqctl.store.config.topic_names import MOST_QUEUES, topic_problem

_DEFAULT_QUEUES = 16
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


def _own_topic(broker: MasterBroker, name: str) -> str:
    """A topic that may be created and deleted; RequestError."""
    problem = topic_problem(name, broker.identity.release)
    if problem is None and is_system_topic(name, broker.identity.cluster, broker.identity.name):
        problem = f"The topic[{name}] is conflict with system topic."
    if problem is not None:
        raise RequestError(ResponseCode.INVALID_PARAMETER, problem)
    return name


def update_and_create_topic(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Have a topic as the request says, a new one or one that is there."""
    name = _own_topic(broker, fields.text(request, "topic"))
    readable = fields.integer(request, "readQueueNums", _DEFAULT_QUEUES)
    writable = fields.integer(request, "writeQueueNums", _DEFAULT_QUEUES)
    perm = fields.integer(request, "perm", 6)
    if not 0 <= readable <= MOST_QUEUES or not 0 <= writable <= MOST_QUEUES or not 0 <= perm <= _MOST_PERM:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER, f"{readable} and {writable} queues with perm {perm} are no topic's"
        )
    with _refusing():
        # 4.x has none
        said = "" if broker.identity.release.is_of_4 else request.fields.get("attributes", "")
        change = parsed_change(said)
    topic = TopicConfig(
        name,
        readable,
        writable,
        perm,
        request.fields.get("topicFilterType") or "SINGLE_TAG",
        fields.integer(request, "topicSysFlag", 0),
        fields.flag(request, "order"),
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


def update_and_create_topics(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Have several topics, all of them or none (CreateTopicListRequestBody)."""
    topics = []
    for one in objects(parse_body(request.body).get("topicConfigList")):
        topic = topic_from_bean(_own_topic(broker, text_of(one, "topicName")), one)
        if max(topic.read_queue_nums, topic.write_queue_nums) > MOST_QUEUES or not 0 <= topic.perm <= _MOST_PERM:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"{topic.name} has more queues or perm than a topic can")
        topics.append(_with_attributes(broker, topic))
    for topic in topics:
        broker.topics.put(topic)
    return _when_written(broker.save_topics())


def delete_topic(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Forget a topic and the offsets that groups have of it. What was sent to it stays in log and queues, which have to
    agree with each other."""
    name = _own_topic(broker, fields.text(request, "topic"))
    broker.topics.remove(name)
    broker.offsets.remove(topic=name)
    return _when_written(broker.save_topics())


def update_group(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Have a group with these settings."""
    return _put_groups(broker, [parse_body(request.body)])


def update_groups(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Have several groups, all of them or none (SubscriptionGroupList)."""
    return _put_groups(broker, objects(parse_body(request.body).get("groupConfigList")))


def _put_groups(broker: MasterBroker, groups: list[dict[str, Any]]) -> Reply:
    for settings in groups:
        if not is_legal_group(text_of(settings, "groupName")):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, f"{text_of(settings, 'groupName')!r} is no name of a group"
            )
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


def delete_group(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> Reply:
    """Remove a group, with its offsets if that is asked for."""
    name = fields.text(request, "groupName")
    broker.groups.remove(name)
    if fields.flag(request, "cleanOffset") or fields.flag(request, "removeOffset"):
        broker.offsets.remove(group=name)
    return _when_written(broker.save_groups())


def reset_offset(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Set a group to a time or an offset in a topic (AdminBrokerProcessor#resetOffset): its next pulls begin there."""
    name, group = fields.text(request, "topic"), fields.text(request, "group")
    if broker.identity.release.is_of_4:
        _refuse_as_4(broker, name, group, fields.text(request, "timestamp"))
    topic = broker.topic(name, f"Topic {name} does not exist")
    timestamp, only = fields.long(request, "timestamp"), fields.integer(request, "queueId", _FOR_ALL_QUEUES)
    given = fields.long(request, "offset", -1)
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
            offset = current if is_forward and not fields.flag(request, "isForce") and current is not None else found
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


def _refuse_as_4(broker: MasterBroker, topic: str, group: str, timestamp: str) -> None:
    """4.x has the members of a group set their offsets: mqadmin sets those of a group without members itself where it
    is answered so (Broker2Client#resetOffset)."""
    found = broker.topics.find(topic)
    if found is None:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
        )
    if any(broker.offsets.find(group, topic, queue_id) is None for queue_id in range(found.write_queue_nums)):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
    if broker.clients.consumer_group(group) is None:
        raise RequestError(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}",
        )


def clone_offsets(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Have a group be where another one is, in one topic or in all that this one has offsets of. Topics that a group
    which is there does not subscribe any more are left out, unless it is said to be offline."""
    source, target = fields.text(request, "srcGroup"), fields.text(request, "destGroup")
    only, is_offline = request.fields.get("topic", ""), fields.flag(request, "offline")
    members = None if is_offline else broker.clients.consumer_group(source)
    broker.group(target)
    for topic in [only] if only else broker.offsets.topics_of(source):
        if broker.topics.find(topic) is None or (members is not None and topic not in members.subscriptions):
            continue
        for queue_id, offset in broker.offsets.of(source, topic).items():
            broker.offsets.commit(target, topic, queue_id, offset)
    return RemotingCommand(ResponseCode.SUCCESS)


def update_broker_config(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Go by other settings, all that are named or none. They are kept until the broker ends: a broker.conf belongs to
    whoever wrote it."""
    try:
        properties = parse_properties(bytes(request.body))
        for key in properties:
            _refuse_to_change(broker, key)
        broker.change_settings(properties)
    except UsageError as error:
        raise RequestError(ResponseCode.INVALID_PARAMETER, error.message) from error
    said = ", ".join(f"{key}={value}" for key, value in properties.items())
    if said:
        broker.tell(f"{caller.remote} has changed settings, until this broker ends: {said}")
    return RemotingCommand(ResponseCode.SUCCESS)


def _refuse_to_change(broker: MasterBroker, key: str) -> None:
    if key in _BLACK_LIST:
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
    """Have the members share the queues out anew, which lets them pull at once."""
    members = broker.clients.consumer_group(group)
    for caller in list(members.channels) if members is not None else ():
        caller.send(oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup=group))


def get_all_delay_offset(broker: MasterBroker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """How far the delay levels have been delivered now."""
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(broker.delays.table()))


SERVICES: dict[int, Service[MasterBroker]] = {
    RequestCode.UPDATE_BROKER_CONFIG: Service(
        update_broker_config,
        "settings count at once, until the broker ends; all of them or none, others refused with 16",
    ),
    RequestCode.UPDATE_AND_CREATE_TOPIC: Service(update_and_create_topic, "a topic, answered when it is written"),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Service(update_and_create_topics, "several topics, all or none"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Service(update_groups, "several groups, all or none"),
    RequestCode.DELETE_TOPIC_IN_BROKER: Service(
        delete_topic, "nobody sees it any more, its offsets are gone; created again it goes on behind its old messages"
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Service(update_group, "a group, answered when it is written"),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Service(delete_group, "a group, and its offsets if asked for"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Service(
        reset_offset, "a group's next pulls begin at a time or an offset (21)", is_slow=True
    ),
    RequestCode.CLONE_GROUP_OFFSET: Service(clone_offsets, "a group is where another one is"),
    RequestCode.GET_ALL_DELAY_OFFSET: Service(get_all_delay_offset, "delivered delay levels, as they are now"),
}
