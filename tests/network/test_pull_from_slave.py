"""Consumers pull from the broker that a master suggests, fall back to the master, and commit to it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.broker.settings import BrokerIdentity
from rmqctl.network.clients.client import Client, PullNodes, route_of
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, PushSettings
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode, parse_body
from rmqctl.network.serving import ListeningBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.callers import with_header

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
QUEUE = MessageQueue("broker-a", 0, "T")
ROUTE = b"""{"brokerDatas":[{"brokerName":"broker-a","brokerAddrs":{0:"m",1:"s",2:"t"}}],
"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}"""
LIMIT = 10


def _suggesting(broker_id: int) -> RemotingCommand:
    return RemotingCommand(0, {"suggestWhichBrokerId": str(broker_id)})


def test_the_suggested_broker_is_pulled_from() -> None:
    route = route_of("T", ROUTE)
    nodes = PullNodes()
    assert nodes.find(QUEUE, route) == ("m", False)
    nodes.suggested(QUEUE, _suggesting(2))
    assert nodes.find(QUEUE, route) == ("t", True)
    assert nodes.find(QUEUE._replace(queue_id=1), route) == ("m", False)
    nodes.failed(QUEUE, "t")
    assert nodes.find(QUEUE, route) == ("m", False)
    nodes.suggested(QUEUE, _suggesting(2))
    assert nodes.find(QUEUE, route) == ("m", False)
    nodes = PullNodes()
    # the one after it, then any, where it is gone
    nodes.suggested(QUEUE, _suggesting(1))
    alone = route_of("T", ROUTE.replace(b',1:"s"', b""))
    assert nodes.find(QUEUE, alone) == ("t", True)
    alone = route_of("T", ROUTE.replace(b',1:"s",2:"t"', b""))
    assert nodes.find(QUEUE, alone) == ("m", False)
    nodes.suggested(QUEUE, RemotingCommand(0, {}))
    assert nodes.find(QUEUE, route) == ("m", False)
    # a master that is away
    alone = route_of("T", ROUTE.replace(b'0:"m",', b""))
    assert nodes.find(QUEUE, alone) == ("s", True)
    assert nodes.find(QUEUE._replace(broker_name="b"), route) is None


class _Pair(NamedTuple):
    namesrv: str
    master: ListeningBroker
    slave: ListeningBroker
    end_slave: Callable[[], object]
    store: MessageStore


def _fill(store: MessageStore, mark: str, count: int = 60) -> None:
    for number in range(count):
        store.put(Message("T", f"{mark} {number}".encode(), queue_id=0))
    store.wait_for_dispatch()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Pair]:
    """Two brokers of one name; the first suggests the second. Messages say where they are."""
    from rmqctl.network.broker import pull

    answered = pull._answer

    def suggests(*given: Any) -> RemotingCommand:
        found = answered(*given)
        return found._replace(fields={**found.fields, "suggestWhichBrokerId": "1"})

    monkeypatch.setattr(pull, "_answer", suggests)
    with contextlib.ExitStack() as stack:
        stores = [
            stack.enter_context(MessageStore.open(tmp_path / name, "rw", CONFIG, create=True))
            for name in ("master", "slave", "names")
        ]
        for store, mark in zip(stores[:2], ("master", "slave"), strict=True):
            _fill(store, mark)
        # a broker beside them has the name server: ours takes slaves of its own broker only where it hands out the log
        names = stack.enter_context(ListeningBroker(stores[2], BrokerIdentity(name="names"))).namesrv
        master = stack.enter_context(ListeningBroker(stores[0], register_at=names))
        ended = stack.enter_context(contextlib.ExitStack())
        identity = BrokerIdentity(broker_id=1)
        slave = ended.enter_context(ListeningBroker(stores[1], identity, register_at=names))
        client = Client(names)
        _wait(lambda: len(_brokers(client)) == 2)
        client.close()
        yield _Pair(names, master, slave, ended.close, stores[0])


def _brokers(client: Client) -> dict[str, Any]:
    answer = client.ask_name_server(*with_header(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}), allowed=(17,))
    if answer.code:
        return {}
    body = answer.body
    return {name: address for one in parse_body(body)["brokerDatas"] for name, address in one["brokerAddrs"].items()}


def _wait(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def _committed(address: str, group: str) -> int | None:
    client = Client("")
    fields = {"consumerGroup": group, "topic": "T", "queueId": 0, "setZeroIfNotFound": "false"}
    answer = client.ask(address, *with_header(RequestCode.QUERY_CONSUMER_OFFSET, fields), allowed=(22,))
    client.close()
    return None if answer.code else int(answer.fields["offset"])


WANTED = [*(f"master {number}" for number in range(32)), *(f"slave {number}" for number in range(32, 60))]


def _poll(consumer: Consumer, bodies: list[str]) -> int:
    bodies += [one.body.decode() for one in consumer.poll(0.1)]
    return len(bodies)


def test_a_consumer_pulls_from_the_slave_and_goes_on_at_the_master(pair: _Pair) -> None:
    bodies: list[str] = []
    with Consumer(pair.namesrv, "lite", "T", begin="first") as consumer:
        _wait(lambda: _poll(consumer, bodies) >= 60)
        assert bodies == WANTED
        consumer.commit()
        assert (_committed(pair.master.address, "lite"), _committed(pair.slave.address, "lite")) == (60, None)
        pair.end_slave()
        _fill(pair.store, "master", 1)
        _wait(lambda: _poll(consumer, bodies) >= 61)
    assert bodies[60:] == ["master 0"]
    assert _committed(pair.master.address, "lite") == 61


def test_a_push_consumer_pulls_from_the_slave_and_goes_on_at_the_master(pair: _Pair) -> None:
    bodies: list[str] = []
    warned: list[str] = []

    def take(messages: Sequence[StoredMessage], context: object) -> ConsumeStatus:
        bodies.extend(one.body.decode() for one in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    options = MemberOptions(begin="first", warn=warned.append)
    settings = PushSettings(threads=1, first_pull_seconds=0, error_seconds=0.2)
    with PushConsumer(pair.namesrv, "push", {"T": "*"}, take, settings=settings, options=options) as consumer:
        _wait(lambda: len(bodies) >= 60)
        assert bodies == WANTED
        consumer.commit()
        assert (_committed(pair.master.address, "push"), _committed(pair.slave.address, "push")) == (60, None)
        pair.end_slave()
        _fill(pair.store, "master", 1)
        _wait(lambda: len(bodies) >= 61)
    assert bodies[60:] == ["master 0"]
    assert _committed(pair.master.address, "push") == 61
    assert warned == []
