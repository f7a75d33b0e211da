"""Clients come, say what they want, ask for each other, and go (ClientManageProcessor, ConsumerManageProcessor)."""

from __future__ import annotations

from typing import Any

from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.tables.clients import ConsumerGroup, heartbeat_from_body, subscription_from_bean
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import bean, fastjson, parse_body
from rmqctl.network.remoting.services import Caller, RequestError, Service


def heart_beat(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """A client is there, with its groups and what they subscribe."""
    heartbeat = heartbeat_from_body(request.body)
    for consumer in heartbeat.consumers:
        broker.join(consumer.group)
    broker.clients.heard(caller, heartbeat, request.language, request.version, broker.elapsed())
    return RemotingCommand(ResponseCode.SUCCESS, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})


def unregister_client(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """A client leaves its groups."""
    broker.clients.unregister(caller, request.fields.get("producerGroup"), request.fields.get("consumerGroup"))
    return RemotingCommand(ResponseCode.SUCCESS)


def check_client_config(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Whether a subscription can be understood."""
    subscription = parse_body(request.body).get("subscriptionData")
    if not isinstance(subscription, dict):
        return RemotingCommand(ResponseCode.SUCCESS)
    wanted = subscription_from_bean(subscription)
    # tags are looked at when messages are pulled
    if not wanted.is_tags:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {wanted.expression_type}",
        )
    return RemotingCommand(ResponseCode.SUCCESS)


def get_consumer_list(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Ids of a group's clients, among whom its queues are shared out."""
    name = fields.text(request, "consumerGroup")
    group = broker.clients.consumer_group(name)
    if group is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
    ids = sorted({channel.client_id for channel in group.channels.values()})
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(bean(consumerIdList=ids)))


def _online(broker: Broker, name: str) -> ConsumerGroup:
    group = broker.clients.consumer_group(name)
    if group is None:
        raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    return group


def get_consumer_connections(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The clients of a consumer group."""
    group = _online(broker, fields.text(request, "consumerGroup"))
    content = bean(
        connectionSet=[channel.as_bean(other) for other, channel in list(group.channels.items())],
        consumeFromWhere=group.consume_from_where,
        consumeType=group.consume_type,
        messageModel=group.message_model,
        subscriptionTable={topic: one.bean for topic, one in list(group.subscriptions.items())},
    )
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


def get_producer_connections(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The clients of a producer group."""
    name = fields.text(request, "producerGroup")
    channels = broker.clients.producers(name)
    if not channels:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    connections = [channel.as_bean(other) for other, channel in channels.items()]
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(bean(connectionSet=connections)))


def get_all_producers(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
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
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(bean(data=data)))


def query_subscription(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """What a group that is there subscribes of a topic."""
    name, topic = fields.text(request, "group"), fields.text(request, "topic")
    group = broker.clients.consumer_group(name)
    subscription: Any = None
    if group is not None and topic in group.subscriptions:
        subscription = group.subscriptions[topic].bean
    content = bean(group=name, subscriptionData=subscription, topic=topic)
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


SERVICES: dict[int, Service[Broker]] = {
    RequestCode.HEART_BEAT: Service(heart_beat, "remembered for 120 s; the other members of a group are told (40)"),
    RequestCode.UNREGISTER_CLIENT: Service(unregister_client, "the client leaves its groups"),
    RequestCode.CHECK_CLIENT_CONFIG: Service(check_client_config, "SQL92 is refused, tags are taken as they are"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Service(get_consumer_list, "ids of a group's clients, sorted"),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Service(get_consumer_connections, "clients of a consumer group"),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Service(get_producer_connections, "clients of a producer group"),
    RequestCode.GET_ALL_PRODUCER_INFO: Service(get_all_producers, "clients of all producer groups"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Service(query_subscription, "what a group subscribes of a topic"),
}
