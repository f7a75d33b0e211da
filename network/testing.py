"""A fixture of pytest: a broker without a JVM, for the tests of programs that talk to RocketMQ.

    pytest_plugins = ["rmqctl.network.testing"]          # in the conftest.py of the tests


    def test_orders_are_sent(rocketmq):
        place_order(rocketmq.namesrv)                    # whatever is to be tested, with a client of any language
        with rocketmq.consumer("checking", "Orders") as consumer:
            assert consumer.poll(5)[0].body == b"one"

Whoever imports this needs pytest, which rmqctl itself does without.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.serving import ListeningBroker
from rmqctl.store.message_store import MessageStore


class RocketMQ:
    """A broker that listens, and the store that it serves. `told`: what it had to say.

    `namesrv` is what any client is given as the name server's address; topics are made when they are sent to.
    """

    def __init__(self, store: MessageStore, broker: ListeningBroker, told: list[str]) -> None:
        self.store = store
        self.namesrv = broker.namesrv
        self.address = broker.address
        self.told = told

    def producer(self, group: str = "testing") -> Producer:
        """A producer of ours, connected to it. A context manager."""
        return Producer(self.namesrv, group)

    def consumer(self, group: str, topic: str) -> Consumer:
        """A consumer of ours that begins at the first message. A context manager."""
        return Consumer(self.namesrv, group, topic, begin="first")


@pytest.fixture
def rocketmq(tmp_path: Path) -> Iterator[RocketMQ]:
    """A whole broker with an empty store of its own, listening at this machine's free ports."""
    told: list[str] = []
    with (
        MessageStore.open(tmp_path / "rocketmq-store", "rw", create=True) as store,
        ListeningBroker(store, tell=told.append) as broker,
    ):
        yield RocketMQ(store, broker, told)
