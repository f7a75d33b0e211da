"""Where the queues of a topic are, as a name server says (TopicRouteData)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rmqctl.formats.config_json import parse_config_json
from rmqctl.network.remoting.fastjson import MessageQueue, integer_of, objects, text_of
from rmqctl.network.topic_config import PERM_READ, PERM_WRITE

_MASTER = 0


class Route(NamedTuple):
    """A topic's queues that can be written to and read from, in RocketMQ's order, and the brokers' addresses by name:
    those of masters, or of whoever is left to read from."""

    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    addresses: dict[str, str]


def route_of(topic: str, body: bytes) -> Route:
    """The route in the body of an answer (MQClientInstance#topicRouteData2TopicPublishInfo). CorruptError."""
    content = parse_config_json(body.decode("utf-8", "replace"))
    content = content if isinstance(content, dict) else {}
    addresses: dict[str, str] = {}
    masters: set[str] = set()
    for broker in objects(content.get("brokerDatas")):
        listed: dict[Any, Any] = broker.get("brokerAddrs") or {}
        by_id = {int(broker_id): str(address) for broker_id, address in listed.items()}
        name = text_of(broker, "brokerName")
        if by_id:
            addresses[name] = by_id[min(by_id)]
        if _MASTER in by_id:
            masters.add(name)
    writable: list[MessageQueue] = []
    readable: list[MessageQueue] = []
    for queue in sorted(objects(content.get("queueDatas")), key=lambda one: text_of(one, "brokerName")):
        name, perm = text_of(queue, "brokerName"), integer_of(queue, "perm")
        if perm & PERM_WRITE and name in masters:
            writable += (MessageQueue(name, number, topic) for number in range(integer_of(queue, "writeQueueNums")))
        if perm & PERM_READ and name in addresses:
            readable += (MessageQueue(name, number, topic) for number in range(integer_of(queue, "readQueueNums")))
    ordered = text_of(content, "orderTopicConf")
    if ordered:
        # an ordered topic keeps its queues while one of their brokers is away, so that keys keep their queues
        writable = list(_ordered_queues(topic, ordered))
    return Route(tuple(writable), tuple(readable), addresses)


def _ordered_queues(topic: str, text: str) -> Iterator[MessageQueue]:
    """Yield the queues of an ordered topic: `broker:count;broker:count` (orderTopicConf)."""
    for one in text.split(";"):
        name, _, count = one.partition(":")
        if count.isascii() and count.isdigit():
            yield from (MessageQueue(name, number, topic) for number in range(int(count)))
