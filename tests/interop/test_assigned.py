"""Queues that brokers assign: ours as the real 5.3.3, a Java consumer at ours, and our consumer at the real one."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus
from rmqctl.network.remoting.codec import RequestCode
from tests.interop.brokers import java, mqadmin, real_broker
from tests.interop.members import wait_for
from tests.network.callers import heartbeat
from tests.network.serving import serving
from tests.rmqctl.looking import run

pytestmark = pytest.mark.interop

VERSION = "5.3.3"
_WANTED = {
    "topic": "Orders", "consumerGroup": "g", "clientId": "a@1", "strategyName": "AVG", "messageModel": "CLUSTERING",
}  # fmt: skip
_CHANGES: tuple[dict[str, str], ...] = (
    {},
    {"clientId": "b@2"},
    {"strategyName": "AVG_BY_CIRCLE"},
    {"messageModel": "BROADCASTING"},
    {"topic": "%RETRY%g"},
    {"clientId": "c@3"},
    {"clientId": " "},
    {"clientId": ""},
    {"topic": "None"},
    {"consumerGroup": "none"},
    {"strategyName": "CONSISTENT_HASH"},
)
_MODES: tuple[dict[str, Any], ...] = (
    {"topic": "%RETRY%g"},
    {"topic": "None"},
    {"consumerGroup": "a b"},
    {},
    {"consumerGroup": "h"},
)
_CODES = tuple(range(1, 30))


def _answers(namesrv: str, broker: str) -> list[Any]:
    """Return what a broker says to a group of two clients: assignments, modes, and what it keeps of these."""
    found: list[Any] = []
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(Client(namesrv))) for _ in range(2)]
        for client, client_id in zip(clients, ("a@1", "b@2"), strict=True):
            client.ask(broker, RequestCode.HEART_BEAT, body=json.dumps(heartbeat(client_id, "g", Orders="*")).encode())
        wait_for(lambda: clients[0].route("%RETRY%g", anew=True) is not None)
        for changes in _CHANGES:
            body = json.dumps(_WANTED | changes).encode()
            answer = clients[0].ask(broker, RequestCode.QUERY_ASSIGNMENT, body=body, allowed=_CODES)
            content = json.loads(answer.body)
            key = "messageQueueAssignments"
            content = {key: sorted(map(json.dumps, content[key]))} if key in content else content
            found.append((changes, int(answer.code), content))
        for change in _MODES:
            wanted = {"topic": "Orders", "consumerGroup": "g", "mode": "PULL", "popShareQueueNum": 0} | change
            body = json.dumps(wanted).encode()
            answer = clients[0].ask(broker, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body, allowed=_CODES)
            found.append((change, int(answer.code), answer.remark))
        found.append(json.loads(clients[0].ask(broker, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE).body))
    return found


def _produce(namesrv: str) -> None:
    with Producer(namesrv) as producer:
        for number in range(12):
            producer.send(Message("Orders", b"%d" % number))


def test_a_broker_of_ours_assigns_as_the_real_one(tmp_path: Path) -> None:
    settings = {"timerWheelEnable": "false", "brokerName": "broker-a"}
    bodies: list[bytes] = []

    def take(messages: Any, context: object) -> ConsumeStatus:
        bodies.extend(one.body for one in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    with real_broker(VERSION, tmp_path / "real", tmp_path / "store", settings) as real:
        mqadmin(VERSION, tmp_path, real.namesrv, f"updateTopic -b {real.broker} -t Orders -r 5 -w 5")
        theirs = _answers(real.namesrv, real.broker)
        _produce(real.namesrv)
        options = MemberOptions(begin="first", client_rebalance=False)
        with PushConsumer(real.namesrv, "ours", {"Orders": "*"}, take, options=options) as consumer:
            wait_for(lambda: len(bodies) == 12)
            assert [queue.queue_id for queue in consumer.queues if queue.topic == "Orders"] == [0, 1, 2, 3, 4]
        command = ("consume", "-n", real.namesrv, "-t", "Orders", "-g", "line", "--no-client-rebalance", "--json")
        assert len(run(*command).objects) == 12
        # it asks the broker indeed
        mqadmin(VERSION, tmp_path, real.namesrv, f"setConsumeMode -b {real.broker} -t Orders -g line -m POP -q 8")
        _produce(real.namesrv)
        code, _, err = run(*command)
        assert (code, "assigns queues by POP, which is not supported here" in err) == (3, True)
    with serving(tmp_path / "ours", "--writable", "--create") as served:
        mqadmin(VERSION, tmp_path, served.namesrv, f"updateTopic -b {served.broker} -t Orders -r 5 -w 5")
        ours = _answers(served.namesrv, served.broker)
        _produce(served.namesrv)
        lines = java(VERSION, tmp_path, "Assigned", served.namesrv, "Orders", "java", "12")
        assert sum(line.startswith("message") for line in lines) == 12
        assert served.end() == 0
    assert ours == theirs
