"""Where topics are, and which queues consumers are to ask (RouteActivity)."""

from __future__ import annotations

from typing import Any

from rmqctl.network.broker.broker import Broker
from rmqctl.network.grpc.messages import accepted_types
from rmqctl.network.grpc.protocol import AddressScheme, Code, Permission, v2
from rmqctl.network.grpc.service import OK, GrpcBroker, StatusError, group_of, topic_of
from rmqctl.network.topic_config import PERM_READ, PERM_WRITE, TopicConfig

_MOST_ADDRESSES = 64


def _endpoints(service: GrpcBroker, given: Any) -> Any:
    """Return where the client reaches us: at the hosts that it named, and at our port."""
    hosts = [one.host for one in given.addresses[:_MOST_ADDRESSES]] or [service.broker.identity.host]
    addresses = [v2.Address(host=host, port=service.port) for host in hosts]
    return v2.Endpoints(scheme=given.scheme or AddressScheme.IPv4, addresses=addresses)


def _topic(broker: Broker, resource: Any) -> TopicConfig:
    name = topic_of(resource)
    found = broker.routes().get(name)
    if found is None:
        raise StatusError(Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {name}")
    return found


def _queue(topic: Any, queue_id: int, permission: Permission, broker: Any) -> Any:
    return v2.MessageQueue(topic=topic, id=queue_id, permission=permission, broker=broker)


async def query_route(service: GrpcBroker, request: Any) -> Any:
    """Name every queue of a topic: those for both first, then those for one alone."""
    topic = _topic(service.broker, request.topic)
    endpoints = _endpoints(service, request.endpoints)
    broker = v2.Broker(name=service.broker.identity.name, endpoints=endpoints)
    reads = topic.read_queue_nums if topic.perm & PERM_READ else 0
    writes = topic.write_queue_nums if topic.perm & PERM_WRITE else 0
    both = min(reads, writes)
    alone = Permission.READ if reads > writes else Permission.WRITE
    queues = [
        _queue(request.topic, number, Permission.READ_WRITE if number < both else alone, broker)
        for number in range(max(reads, writes))
    ]
    for queue in queues:
        queue.accept_message_types.extend(accepted_types(topic))
    return v2.QueryRouteResponse(status=OK, message_queues=queues)


async def query_assignment(service: GrpcBroker, request: Any) -> Any:
    """Name the queues that a member of a group is to ask: all at once, for one that consumes in order one by one."""
    topic = _topic(service.broker, request.topic)
    group = service.broker.group(group_of(request.group))
    if not topic.perm & PERM_READ or not topic.read_queue_nums:
        raise StatusError(Code.FORBIDDEN, "no readable queue")
    broker = v2.Broker(name=service.broker.identity.name, endpoints=_endpoints(service, request.endpoints))
    permission = Permission.READ_WRITE if topic.perm & PERM_WRITE else Permission.READ
    numbers = range(topic.read_queue_nums) if group["consumeMessageOrderly"] is True else (-1,)
    assignments = [v2.Assignment(message_queue=_queue(request.topic, one, permission, broker)) for one in numbers]
    return v2.QueryAssignmentResponse(status=OK, assignments=assignments)
