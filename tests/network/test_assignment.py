"""Queues that brokers share out among the members of a group (400), and how groups ask for messages (401)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.network.clients.membership import by_circle, by_consistent_hash
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, PushSettings
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.serving import ListeningBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.callers import Peer, Writing, heartbeat


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store")
    for number in range(5):
        assert made.send("Orders", b"x", number, defaultTopicQueueNums=5).code == 0
    for client_id in ("a@1", "b@2"):
        made.ask(Request.HEART_BEAT, heartbeat(client_id, "g", Orders="*"), peer=Peer(f"10.0.0.1:{ord(client_id[0])}"))
    yield made
    made.close()


def _assigned(broker: Writing, **changes: str) -> list[int] | None:
    wanted = {
        "topic": "Orders", "consumerGroup": "g", "clientId": "a@1", "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }  # fmt: skip
    found = broker.content(Request.QUERY_ASSIGNMENT, wanted | changes)
    if "messageQueueAssignments" not in found:
        assert found == {}
        return None
    assert {one["mode"] for one in found["messageQueueAssignments"]} <= {"PULL"}
    queues = [one["messageQueue"] for one in found["messageQueueAssignments"]]
    assert all(queue["topic"] == changes.get("topic", "Orders") for queue in queues)
    assert {queue["brokerName"] for queue in queues} <= {"broker-a"}
    return sorted(queue["queueId"] for queue in queues)


@pytest.mark.parametrize(
    ("changes", "queues"),
    [
        ({}, [0, 1, 2]),
        ({"clientId": "b@2"}, [3, 4]),
        ({"strategyName": "AVG_BY_CIRCLE"}, [0, 2, 4]),
        ({"messageModel": "BROADCASTING"}, [0, 1, 2, 3, 4]),
        ({"topic": "%RETRY%g"}, [0]),
        # not of the group: nothing; what is not known: no list
        ({"clientId": "c@3"}, []),
        ({"clientId": " "}, []),
        ({"clientId": ""}, None),
        ({"topic": "None"}, None),
        ({"consumerGroup": "none"}, None),
        ({"strategyName": "CONSISTENT_HASH"}, None),
    ],
)
def test_queues_are_shared_out(broker: Writing, changes: dict[str, str], queues: list[int] | None) -> None:
    assert _assigned(broker, **changes) == queues


def test_all_queues_are_for_all_without_load_balancing(tmp_path: Path) -> None:
    broker = Writing(tmp_path / "store", None, serverLoadBalancerEnable="false")
    try:
        broker.send("Orders", b"x")
        assert _assigned(broker) == [0, 1, 2, 3]
    finally:
        broker.close()


def test_the_mode_of_a_group_is_kept(broker: Writing, tmp_path: Path) -> None:
    def put(**changes: Any) -> tuple[int, str | None]:
        wanted = {"topic": "Orders", "consumerGroup": "g", "mode": "PULL", "popShareQueueNum": 0}
        answer = broker.ask(Request.SET_MESSAGE_REQUEST_MODE, wanted | changes)
        return int(answer.code), answer.remark

    assert put(topic="%RETRY%g") == (16, "retry topic is not allowed to set mode")
    assert put(topic="None") == (17, "topic[None] not exist")
    assert put(consumerGroup="a b") == (26, "subscription group does not exist")
    assert put(mode="PUSH") == (1, "mode PUSH is not known")
    assert put() == (0, None)
    assert put(consumerGroup="h", mode="POP") == (0, None)
    expected = {
        group: {"consumerGroup": group, "mode": mode, "popShareQueueNum": 0, "topic": "Orders"}
        for group, mode in (("g", "PULL"), ("h", "POP"))
    }
    written = json.loads((tmp_path / "store/config/messageRequestMode.json").read_text())
    assert written == {"messageRequestModeMap": {"Orders": expected}}
    assert broker.content(Request.GET_ALL_MESSAGE_REQUEST_MODE) == written


def _until(found: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_push_consumers_take_what_brokers_assign(tmp_path: Path) -> None:
    bodies: list[bytes] = []

    def take(messages: Any, context: object) -> ConsumeStatus:
        bodies.extend(one.body for one in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    warned: list[str] = []
    options = MemberOptions(begin="first", allocate=by_circle, client_rebalance=False, warn=warned.append)
    settings = PushSettings(rebalance_seconds=0.2, first_pull_seconds=0.0)
    config = StoreConfig(mapped_file_size_commit_log=1 << 20)
    with (
        MessageStore.open(tmp_path / "store", "rw", config, create=True) as store,
        ListeningBroker(store) as served,
        Producer(served.namesrv) as producer,
    ):
        for number in range(8):
            producer.send(Message("Orders", b"%d" % number))
        with PushConsumer(served.namesrv, "g", {"Orders": "*"}, take, settings=settings, options=options) as one:
            _until(lambda: len(bodies) == 8)
            with PushConsumer(served.namesrv, "g", {"Orders": "*"}, take, settings=settings, options=options) as two:
                _until(lambda: two.queues and len(one.queues) < 5)
                first, second = sorted((one, two), key=lambda member: member.client_id)
                orders = [[q.queue_id for q in member.queues if q.topic == "Orders"] for member in (first, second)]
                assert orders == [[0, 2], [1, 3]]
            _until(lambda: len(one.queues) == 5)
    assert not any("shared out" in line for line in warned)
    options = MemberOptions(allocate=by_consistent_hash, client_rebalance=False)
    with pytest.raises(UsageError, match="AVG or AVG_BY_CIRCLE"):
        PushConsumer(served.namesrv, "g", {"Orders": "*"}, take, options=options)
