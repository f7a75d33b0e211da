"""Clients that come, say what they want, hear of each other and go, asked without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from rmqctl.network.broker import members as clients
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.network.remoting.requests import Promised
from tests import opened
from tests.network.callers import Asking, Peer, heartbeat


@pytest.fixture
def asking() -> Asking:
    return Asking(opened.store_path("broker-real"))


def test_members_of_a_group_hear_of_each_other(asking: Asking) -> None:
    one, two = Peer("127.0.0.1:1"), Peer("127.0.0.1:2")
    asking.ask(Request.HEART_BEAT, heartbeat("b-second", "g", Events="*"), peer=one)
    asking.ask(Request.HEART_BEAT, heartbeat("a-first", "g", Events="*"), peer=two)
    assert [command.code for command in one.sent] == [Request.NOTIFY_CONSUMER_IDS_CHANGED] * 2
    assert one.sent[0].fields == {"consumerGroup": "g"}
    assert one.sent[0].is_oneway
    told = len(one.sent)
    asking.ask(Request.HEART_BEAT, heartbeat("a-first", "g", Events="*"), peer=two)
    assert len(one.sent) == told
    assert asking.content(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g") == {
        "consumerIdList": ["a-first", "b-second"]
    }
    asking.broker.lost(two)
    assert len(one.sent) == told + 1
    assert asking.content(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g") == {"consumerIdList": ["b-second"]}
    asking.ask(Request.UNREGISTER_CLIENT, peer=one, clientID="b-second", consumerGroup="g")
    assert asking.ask(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g").code == 1


def test_who_goes_leaves_its_own_groups_and_no_room_behind(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_MOST_MEMBERSHIPS", 4)
    stays, goes = Peer("127.0.0.1:1"), Peer("127.0.0.1:2")
    asking.ask(Request.HEART_BEAT, heartbeat("stays", "g", Events="*"), peer=stays)
    # a group's name may be one of producers and of consumers
    both = {**heartbeat("goes", "g", Events="*"), "producerDataSet": [{"groupName": "g"}]}
    for _ in range(2):
        assert asking.ask(Request.HEART_BEAT, both, peer=goes).code == 0
    assert asking.ask(Request.HEART_BEAT, heartbeat("third", "g", Events="*"), peer=Peer("127.0.0.1:3")).code == 2
    asking.ask(Request.UNREGISTER_CLIENT, peer=goes, clientID="goes", producerGroup="g", consumerGroup="other")
    ids = asking.content(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")["consumerIdList"]
    assert ids == ["goes", "stays"]
    asking.broker.lost(goes)
    assert asking.content(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")["consumerIdList"] == ["stays"]
    assert asking.ask(Request.GET_PRODUCER_CONNECTION_LIST, producerGroup="g").code == 1
    assert asking.ask(Request.HEART_BEAT, heartbeat("third", "g", Events="*"), peer=Peer("127.0.0.1:3")).code == 0


def test_a_heartbeat_that_comes_again_counts_again(asking: Asking) -> None:
    one, two = Peer("127.0.0.1:1"), Peer("127.0.0.1:2")
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Events="*"), peer=one)
    asking.ask(Request.HEART_BEAT, heartbeat("c2", "g", Orders="*"), peer=two)
    of_group: dict[str, Any] = {"group": "g", "topic": "Events"}
    assert "subscriptionData" not in asking.content(Request.QUERY_SUBSCRIPTION_BY_CONSUMER, **of_group)
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Events="*"), peer=one)
    assert asking.content(Request.QUERY_SUBSCRIPTION_BY_CONSUMER, **of_group)["subscriptionData"]["topic"] == "Events"


def test_a_queue_is_one_clients_until_it_gives_it_back_or_falls_silent(asking: Asking) -> None:
    def queues(*ids: int) -> list[dict[str, object]]:
        return [{"brokerName": "broker-a", "queueId": queue_id, "topic": "Orders"} for queue_id in ids]

    def lock(client: str, *ids: int) -> object:
        body = {"clientId": client, "consumerGroup": "g", "mqSet": queues(*ids)}
        return asking.content(Request.LOCK_BATCH_MQ, body)["lockOKMQSet"]

    assert lock("one", 0, 1, 9) == queues(0, 1)
    assert lock("two", 1, 2) == queues(2)
    asking.ask(Request.UNLOCK_BATCH_MQ, {"clientId": "two", "consumerGroup": "g", "mqSet": queues(0)})
    asking.ask(Request.UNLOCK_BATCH_MQ, {"clientId": "one", "consumerGroup": "g", "mqSet": queues(1)})
    assert lock("two", 0, 1) == queues(1)
    asking.now += 60_001
    asking.broker.tick()
    assert lock("two", 0, 1) == queues(0, 1)
    assert asking.ask(Request.LOCK_BATCH_MQ, {}).code == 1


def test_a_silent_client_is_sent_away(asking: Asking) -> None:
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Events="*"))
    asking.now += 120_000
    asking.broker.tick()
    assert asking.content(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")["consumerIdList"] == ["c1"]
    asking.now += 1
    asking.broker.tick()
    assert asking.ask(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g").code == 1
    assert asking.ask(Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g").code == 206


def test_a_consumer_is_asked_what_it_does(asking: Asking) -> None:
    """GET_CONSUMER_RUNNING_INFO, which the dashboard and mqadmin's consumerStatus show."""
    member = Peer("127.0.0.1:5001")
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Events="*"), peer=member)
    wanted: dict[str, Any] = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "false"}
    reply = asking.reply(Request.GET_CONSUMER_RUNNING_INFO, **wanted)
    assert isinstance(reply, Promised)
    assert (member.sent[-1].code, member.sent[-1].fields) == (Request.GET_CONSUMER_RUNNING_INFO, wanted)
    member.asked.set_result(RemotingCommand(0, body=b"{}", opaque=1, flag=1))
    assert reply.answer() == RemotingCommand(0, body=b"{}", opaque=9, flag=1)
    reply = asking.reply(Request.GET_CONSUMER_RUNNING_INFO, **wanted)
    member.asked.set_result(None)
    assert reply.answer().code == Response.CONSUME_MSG_TIMEOUT
    gone = asking.ask(Request.GET_CONSUMER_RUNNING_INFO, **wanted | {"clientId": "c2"})
    assert (gone.code, gone.remark) == (Response.SYSTEM_ERROR, "The Consumer <g> <c2> not online")


def test_no_more_clients_are_remembered_than_fit(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_MOST_MEMBERSHIPS", 3)
    one, two = Peer("127.0.0.1:1"), Peer("127.0.0.1:2")
    assert asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Events="*"), peer=one).code == 0
    assert asking.ask(Request.HEART_BEAT, heartbeat("c2", "g", Events="*"), peer=two).code == Response.SYSTEM_BUSY
    assert asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Events="*"), peer=one).code == 0
    asking.broker.lost(one)
    assert asking.ask(Request.HEART_BEAT, heartbeat("c2", "g", Events="*"), peer=two).code == 0


def test_connections_are_shown(asking: Asking) -> None:
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Events="TagA"))
    shown = asking.content(Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    connection = {"clientAddr": "127.0.0.1:5000", "clientId": "c1", "language": "JAVA", "version": 479}
    assert shown["connectionSet"] == [connection]
    assert shown["subscriptionTable"]["Events"]["subString"] == "TagA"
    assert asking.content(Request.GET_PRODUCER_CONNECTION_LIST, producerGroup="P")["connectionSet"] == [connection]
    assert asking.ask(Request.GET_PRODUCER_CONNECTION_LIST, producerGroup="Q").code == 1
    subscription = asking.content(Request.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g", topic="Events")
    assert subscription["subscriptionData"]["subVersion"] == 7


@pytest.mark.parametrize("body", [None, [1], {"consumerDataSet": 3}, {"consumerDataSet": [3, {"groupName": 1}]}])
def test_a_strange_heartbeat_harms_nobody(asking: Asking, body: object) -> None:
    assert asking.ask(Request.HEART_BEAT, body).code in (0, 1)
    assert asking.broker.clients.consumer_groups() == []
