"""Consumers in order ask for queues of their own, and give them back (AdminBrokerProcessor#lockBatchMQ)."""

from __future__ import annotations

from typing import Any, NamedTuple

from rmqctl.network.broker.broker import Broker
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue, bean, fastjson, integer_of, objects, parse_body, text_of
from rmqctl.network.remoting.services import Caller, RequestError, Service


class _Wanted(NamedTuple):
    group: str
    client_id: str
    queues: list[MessageQueue]


def _wanted(broker: Broker, request: RemotingCommand) -> _Wanted:
    """What a request is about: only queues that are there."""
    content = parse_body(request.body)
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


def lock_batch(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The client asks for queues; the answer names those it has now."""
    wanted = _wanted(broker, request)
    now = broker.elapsed()
    held = [queue for queue in wanted.queues if broker.locks.lock(wanted.group, queue, wanted.client_id, now)]
    beans = [bean(brokerName=queue.broker_name, queueId=queue.queue_id, topic=queue.topic) for queue in held]
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(bean(lockOKMQSet=beans)))


def unlock_batch(broker: Broker, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The client gives queues back."""
    wanted = _wanted(broker, request)
    for queue in wanted.queues:
        broker.locks.unlock(wanted.group, queue, wanted.client_id)
    return RemotingCommand(ResponseCode.SUCCESS)


SERVICES: dict[int, Service[Broker]] = {
    RequestCode.LOCK_BATCH_MQ: Service(lock_batch, "queues for one client of a group, for 60 s"),
    RequestCode.UNLOCK_BATCH_MQ: Service(unlock_batch, "queues are given back"),
}
