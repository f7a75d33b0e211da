"""Clients come, say what they want, ask for each other, and go (ClientManageProcessor, ConsumerManageProcessor)."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import parse_offset_message_id
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.members import (
    ACTIVELY,
    ConsumerGroup,
    filter_of,
    heartbeat_from_body,
    refuse_disabled_filter,
    subscription_from_bean,
)
from rmqctl.network.broker.query import frame_at
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    bean,
    fastjson,
    integer_of,
    json_answer,
    objects,
    parse_body,
    queue_of_key,
    text_of,
)
from rmqctl.network.remoting.headers import Header, request
from rmqctl.network.remoting.requests import Asked, Caller, Promised, Reply, RequestError


def heart_beat(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """A client is there, with its groups and what they subscribe."""
    settings, heartbeat = broker.settings, heartbeat_from_body(asked.request.body)
    if settings.reject_pull_consumer_enable:
        pushed = tuple(one for one in heartbeat.consumers if one.consume_type != ACTIVELY)
        heartbeat = heartbeat._replace(consumers=pushed)
    if settings.reject_transaction_message and not settings.enable_register_producer:
        # who is asked about no transaction need not be known (ProducerManager#registerProducer)
        heartbeat = heartbeat._replace(producers=())
    for consumer in heartbeat.consumers:
        broker.join(consumer.group, is_unit_mode=consumer.is_unit_mode)
    broker.clients.heard(asked.caller, heartbeat, asked.request.language, asked.request.version, broker.elapsed())
    return RemotingCommand(ResponseCode.SUCCESS, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})


def unregister_client(broker: Broker, header: headers.UnregisterClient, asked: Asked) -> RemotingCommand:
    """A client leaves its groups."""
    broker.clients.unregister(asked.caller, header.producer_group, header.consumer_group)
    return RemotingCommand(ResponseCode.SUCCESS)


def check_client_config(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """Whether a subscription can be understood."""
    subscription = parse_body(asked.request.body).get("subscriptionData")
    if not isinstance(subscription, dict):
        return RemotingCommand(ResponseCode.SUCCESS)
    wanted = subscription_from_bean(subscription)
    # tags are looked at when messages are pulled
    if not wanted.is_tags:
        refuse_disabled_filter(broker.settings, wanted.expression_type)
        try:
            filter_of(wanted.expression_type, wanted.expression)
        except UsageError as error:
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
    return RemotingCommand(ResponseCode.SUCCESS)


def get_consumer_list(broker: Broker, header: headers.ConsumerGroupHeader, asked: Asked) -> RemotingCommand:
    """Ids of a group's clients, among whom its queues are shared out."""
    name = header.consumer_group
    group = broker.clients.consumer_group(name)
    if group is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
    ids = sorted({channel.client_id for channel in group.channels.values()})
    return json_answer(bean(consumerIdList=ids))


def _online(broker: Broker, name: str) -> ConsumerGroup:
    group = broker.clients.consumer_group(name)
    if group is None:
        raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    return group


def get_consumer_connections(broker: Broker, header: headers.ConsumerGroupHeader, asked: Asked) -> RemotingCommand:
    """The clients of a consumer group."""
    group = _online(broker, header.consumer_group)
    content = bean(
        connectionSet=[channel.as_bean(other) for other, channel in list(group.channels.items())],
        consumeFromWhere=group.consume_from_where,
        consumeType=group.consume_type,
        messageModel=group.message_model,
        subscriptionTable={topic: one.bean for topic, one in list(group.subscriptions.items())},
    )
    return json_answer(content)


def get_producer_connections(broker: Broker, header: headers.ProducerGroupHeader, asked: Asked) -> RemotingCommand:
    """The clients of a producer group."""
    name = header.producer_group
    channels = broker.clients.producers(name)
    if not channels:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    connections = [channel.as_bean(other) for other, channel in channels.items()]
    return json_answer(bean(connectionSet=connections))


def get_all_producers(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """The clients of all producer groups (ProducerTableInfo)."""
    data = {
        group: [
            bean(
                clientId=channel.client_id,
                language=channel.language,
                lastUpdateTimestamp=broker.clock() - (broker.elapsed() - channel.heard_at),
                # Java's text of a socket address
                remoteIP=f"/{other.remote}",
                version=channel.version,
            )
            for other, channel in channels.items()
        ]
        for group, channels in broker.clients.producer_groups().items()
    }
    return json_answer(bean(data=data))


def query_subscription(broker: Broker, header: headers.GroupTopicHeader, asked: Asked) -> RemotingCommand:
    """What a group that is there subscribes of a topic."""
    name, topic = header.group, header.topic
    group = broker.clients.consumer_group(name)
    subscription: Any = None
    if group is not None and topic in group.subscriptions:
        subscription = group.subscriptions[topic].bean
    content = bean(group=name, subscriptionData=subscription, topic=topic)
    return json_answer(content)


# What is asked of a broker and answered by one of its consumers (AdminBrokerProcessor#callConsumer).

_ANSWERS_WITHIN_SECONDS = 10.0
_STATUS_WITHIN_SECONDS = 5.0


def get_consumer_running_info(broker: Broker, header: headers.GetConsumerRunningInfo, asked: Asked) -> Reply:
    """What a consumer says of itself."""
    return _called(header, _member(broker, header), asked.request)


def consume_message_directly(broker: Broker, header: headers.ConsumeMessageDirectly, asked: Asked) -> Reply:
    """Have one consumer consume the message of an offset id, independent of the group's offsets, and return the
    result."""
    member = _member(broker, header)
    try:
        _, offset = parse_offset_message_id(header.msg_id)
    except UsageError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, error.message) from error
    more = {"brokerName": broker.identity.name}
    topic = broker.topics.find(header.topic)
    if topic is not None:
        more["topicSysFlag"] = str(topic.sys_flag)
    group = broker.groups.find(header.consumer_group)
    if group is not None:
        more["groupSysFlag"] = str(group["groupSysFlag"])
    fields, body = {**asked.request.fields, **more}, frame_at(broker, offset)
    return _called(header, member, asked.request._replace(fields=fields, body=body))


def get_consumer_status(broker: Broker, header: headers.GetConsumerStatus, asked: Asked) -> Reply:
    """By client, how far each member of a group, or the one of `clientAddr`, says that it is in a topic."""
    name, topic = header.group, header.topic
    only = header.client_addr.strip()
    group = broker.clients.consumer_group(name)
    if group is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{name}]")
    command = request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, headers.GroupTopicHeader(group=name, topic=topic))
    members = list(group.channels.items())
    waiting = _All(
        {
            channel.client_id: member.ask(command, _STATUS_WITHIN_SECONDS)
            for member, channel in members
            if not only or only == channel.client_id
        }
    )

    def gathered() -> RemotingCommand:
        tables = [
            f"{json.dumps(client_id)}:{_queue_table(answer)}"
            for client_id, answer in waiting.answers()
            if answer is not None and answer.code == ResponseCode.SUCCESS and answer.body
        ]
        body = '{"consumerTable":{' + ",".join(tables) + '},"messageQueueTable":{}}'
        return RemotingCommand(ResponseCode.SUCCESS, body=body.encode("utf-8", "backslashreplace"))

    return Promised(waiting, gathered)


def _queue_table(answer: RemotingCommand) -> str:
    """Return the table in a member's answer as a body has it: keys are queues."""
    table = parse_body(answer.body).get("messageQueueTable")
    rows = table.items() if isinstance(table, dict) else ()
    queues = ((queue_of_key(key), offset) for key, offset in rows)
    return fastjson({queue: offset for queue, offset in queues if queue is not None}).decode()


class _All:
    """Answers of several members: an Awaited that has ended when each is there or is waited for no longer."""

    def __init__(self, asked: dict[str, Future[RemotingCommand | None]]) -> None:
        self._asked = asked

    def done(self) -> bool:
        """See Awaited."""
        return all(future.done() for future in self._asked.values())

    def add_done_callback(self, told: Callable[[Any], object], /) -> None:
        """See Awaited."""
        left = [future for future in self._asked.values() if not future.done()]
        if not left:
            told(self)
            return
        count = len(left)

        def one(_: object) -> None:
            nonlocal count
            count -= 1
            if not count:
                told(self)

        for future in left:
            future.add_done_callback(one)

    def answers(self) -> list[tuple[str, RemotingCommand | None]]:
        """Return what each has answered, by client id."""
        return [(client_id, future.result()) for client_id, future in sorted(self._asked.items())]


def _member(broker: Broker, header: headers.GetConsumerRunningInfo | headers.ConsumeMessageDirectly) -> Caller:
    """The client that is asked for, one of a group; RequestError if it is not there."""
    name, client_id = header.consumer_group, header.client_id
    group = broker.clients.consumer_group(name)
    members = {} if group is None else group.channels
    found = next((one for one, channel in list(members.items()) if channel.client_id == client_id), None)
    if found is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id}> not online")
    return found


def _called(
    header: headers.GetConsumerRunningInfo | headers.ConsumeMessageDirectly, member: Caller, request: RemotingCommand
) -> Promised:
    """The member's answer, handed on as it is."""
    command = RemotingCommand(request.code, request.fields, request.body)
    done = member.ask(command, _ANSWERS_WITHIN_SECONDS)

    def handed_on() -> RemotingCommand:
        answer = done.result()
        if answer is None:
            raise RequestError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{header.consumer_group}> <{header.client_id}> Timeout: "
                f"no answer within {_ANSWERS_WITHIN_SECONDS:g} s",
            )
        return RemotingCommand(answer.code, answer.fields, answer.body, answer.remark)

    return Promised(done, handed_on)


# Consumers in order ask for queues of their own, and give them back (AdminBrokerProcessor#lockBatchMQ).


class _Wanted(NamedTuple):
    group: str
    client_id: str
    queues: list[MessageQueue]


def _wanted(broker: Broker, asked: Asked) -> _Wanted:
    """What a request is about: only queues that are there."""
    content = parse_body(asked.request.body)
    group, client_id = text_of(content, "consumerGroup"), text_of(content, "clientId")
    if not group or not client_id:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "consumerGroup and clientId must be named")
    queues = [_queue(one) for one in objects(content.get("mqSet"))]
    return _Wanted(group, client_id, [queue for queue in queues if _is_there(broker, queue)])


def _queue(content: dict[str, Any]) -> MessageQueue:
    return MessageQueue(text_of(content, "brokerName"), integer_of(content, "queueId", -1), text_of(content, "topic"))


def _is_there(broker: Broker, queue: MessageQueue) -> bool:
    topic = broker.topics.find(queue.topic)
    return topic is not None and 0 <= queue.queue_id < topic.read_queue_nums


def lock_batch(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """The client asks for queues; the answer names those it has now."""
    wanted = _wanted(broker, asked)
    now = broker.elapsed()
    held = [queue for queue in wanted.queues if broker.locks.lock(wanted.group, queue, wanted.client_id, now)]
    beans = [bean(brokerName=queue.broker_name, queueId=queue.queue_id, topic=queue.topic) for queue in held]
    return json_answer(bean(lockOKMQSet=beans))


def unlock_batch(broker: Broker, header: Header, asked: Asked) -> RemotingCommand:
    """The client gives queues back."""
    wanted = _wanted(broker, asked)
    for queue in wanted.queues:
        broker.locks.unlock(wanted.group, queue, wanted.client_id)
    return RemotingCommand(ResponseCode.SUCCESS)
