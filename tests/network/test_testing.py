"""The fixture for tests of others, as they use it: a broker that any client reaches, with a store of its own."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import Message
from rmqctl.network.serving import ListeningBroker
from rmqctl.network.testing import RocketMQ, rocketmq  # noqa: F401 - a fixture
from rmqctl.store.message_store import MessageStore
from tests.rmqctl.looking import run


def test_what_is_sent_is_consumed_and_stands_in_the_store(rocketmq: RocketMQ) -> None:  # noqa: F811 - the fixture
    with rocketmq.producer() as producer:
        sent = producer.send(Message("Orders", b"one", properties={"TAGS": "paid"}))
    with rocketmq.consumer("checking", "Orders") as consumer:
        (got,) = consumer.poll(20)
    assert (got.body, got.queue_offset) == (b"one", sent.queue_offset)
    (kept,) = rocketmq.store.get("Orders", sent.queue.queue_id, 0).messages
    assert kept.properties()["UNIQ_KEY"] == sent.unique_key
    assert "Orders" in run("topics", "-n", rocketmq.namesrv).out
    assert rocketmq.told == []


def test_where_it_cannot_listen_that_is_raised_and_nothing_is_left(tmp_path: Path) -> None:
    before = threading.active_count()
    with MessageStore.open(tmp_path / "store", "rw", create=True) as store:
        with pytest.raises(RefusedError, match="cannot listen at"):
            ListeningBroker(store, host="192.0.2.1").__enter__()
        assert not [one for one in threading.enumerate() if one.name == "rmqctl-broker"]
    assert threading.active_count() == before
