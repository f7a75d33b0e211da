"""Where the queues of a topic are, as a name server says (TopicRouteData)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rmqctl.formats.config_json import parse_config_json
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import MessageQueue, integer_of, objects, text_of
from rmqctl.network.topic_config import PERM_READ, PERM_WRITE

_MASTER = 0
_AVOIDED_SECONDS = 30.0


class Route(NamedTuple):
    """A topic's queues that can be written to and read from, in RocketMQ's order, and the brokers' addresses by name:
    those of masters, or of the slaves with the lowest ids. `replicas`: all addresses of each name, by broker id."""

    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    addresses: dict[str, str]
    replicas: Mapping[str, Mapping[int, str]] = MappingProxyType({})


class PullNodes:
    """Which broker of a name each queue is pulled from: the one that its last answer suggested (PullAPIWrapper).

    A slave that failed is avoided for 30 s, by when a route without it is known.
    """

    def __init__(self) -> None:
        self._suggested: dict[MessageQueue, int] = {}
        self._avoided: dict[str, float] = {}

    def suggested(self, queue: MessageQueue, answer: RemotingCommand) -> None:
        """Note what the answer to a pull says of the next one."""
        text = answer.fields.get("suggestWhichBrokerId", "")
        self._suggested[queue] = int(text) if text.isascii() and text.isdigit() else _MASTER

    def failed(self, queue: MessageQueue, address: str) -> None:
        """Note that a slave did not answer as it should."""
        self._suggested.pop(queue, None)
        self._avoided[address] = time.monotonic() + _AVOIDED_SECONDS

    def find(self, queue: MessageQueue, route: Route | None) -> tuple[str, bool] | None:
        """Return the address to pull a queue from, and whether that is a slave's; None where the route has none."""
        by_id = route.replicas.get(queue.broker_name) if route is not None else None
        if not by_id:
            return None
        wanted = self._suggested.get(queue, _MASTER)
        # MQClientInstance#findBrokerAddressInSubscribe
        for broker_id in (wanted, wanted + 1) if wanted != _MASTER else ():
            address = by_id.get(broker_id)
            if address is not None and self._avoided.get(address, 0.0) <= time.monotonic():
                return address, True
        lowest = min(by_id)
        return by_id[lowest], lowest != _MASTER


def route_of(topic: str, body: bytes) -> Route:
    """The route in the body of an answer (MQClientInstance#topicRouteData2TopicPublishInfo). CorruptError."""
    content = parse_config_json(body.decode("utf-8", "replace"))
    content = content if isinstance(content, dict) else {}
    addresses: dict[str, str] = {}
    replicas: dict[str, dict[int, str]] = {}
    masters: set[str] = set()
    for broker in objects(content.get("brokerDatas")):
        listed: dict[Any, Any] = broker.get("brokerAddrs") or {}
        by_id = {int(broker_id): str(address) for broker_id, address in listed.items()}
        name = text_of(broker, "brokerName")
        if by_id:
            addresses[name] = by_id[min(by_id)]
            replicas[name] = by_id
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
    return Route(tuple(writable), tuple(readable), addresses, replicas)


def _ordered_queues(topic: str, text: str) -> Iterator[MessageQueue]:
    """Yield the queues of an ordered topic: `broker:count;broker:count` (orderTopicConf)."""
    for one in text.split(";"):
        name, _, count = one.partition(":")
        if count.isascii() and count.isdigit():
            yield from (MessageQueue(name, number, topic) for number in range(int(count)))
