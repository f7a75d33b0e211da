"""The name server's services, asked without a socket: our own broker's topics, and other brokers that register."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError
from rmqctl.network.broker.settings import BrokerIdentity
from rmqctl.network.nameserver import SERVICES, NameServer, registered_topics
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.requests import Processor
from rmqctl.network.topic_config import TopicConfig
from tests.network.callers import Peer

OWN = BrokerIdentity(host="0.0.0.0", port=10911)
OTHER = {
    "topicConfigSerializeWrapper": {
        "topicConfigTable": {"T": {"readQueueNums": 2, "writeQueueNums": 1, "perm": 6}, "X": 3}
    }
}


class Asked:
    """A name server with one broker of its own and a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.server = NameServer(lambda: self.now)
        topics = {"T": TopicConfig("T", 4, 4, 4)}
        self.server.routes.add_own(OWN.cluster, OWN.name, OWN.address, lambda: topics)
        self.processor: Processor[NameServer] = Processor(self.server, SERVICES, lambda line: None)
        self.peer = Peer(local_ip="10.1.2.3")

    def ask(self, code: int, body: bytes = b"", version: int = 479, **fields: Any) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        reply = self.processor.reply(RemotingCommand(code, texts, body, version=version), self.peer)
        assert isinstance(reply, RemotingCommand)
        return reply

    def content(self, code: int, **fields: Any) -> Any:
        reply = self.ask(code, **fields)
        assert reply.code == 0, reply.remark
        return parse_config_json(reply.body.decode())

    def register(self, name: str = "broker-b", **fields: Any) -> RemotingCommand:
        body = json.dumps(OTHER).encode()
        whole: dict[str, Any] = {
            "clusterName": "C",
            "brokerName": name,
            "brokerId": 0,
            "brokerAddr": "10.9.9.9:1",
        } | fields
        return self.ask(Request.REGISTER_BROKER, body, bodyCrc32=zlib.crc32(body) & 0x7FFFFFFF, **whole)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_a_route_has_the_bytes_of_a_name_server(asked: Asked) -> None:
    route = asked.ask(Request.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert route.body.decode() == (
        '{"brokerDatas":[{"brokerAddrs":{"0":"10.1.2.3:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
        '"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":4,'
        '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    old = asked.ask(Request.GET_ROUTEINFO_BY_TOPIC, version=400, topic="T").body
    assert b'"brokerAddrs":{0:"10.1.2.3:10911"}' in old
    unknown = asked.ask(Request.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
    assert unknown.code == 17
    assert unknown.remark is not None
    assert unknown.remark.startswith("No topic route info in name server for the topic: TBW102\n")


def test_the_cluster_has_the_bytes_of_a_name_server(asked: Asked) -> None:
    assert asked.ask(Request.GET_BROKER_CLUSTER_INFO).body.decode() == (
        '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.1.2.3:10911"},"brokerName":"broker-a",'
        '"cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )


def test_lists_and_settings(asked: Asked) -> None:
    asked.register()
    assert asked.content(Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"topicList": ["T"]}
    assert asked.content(Request.GET_TOPICS_BY_CLUSTER, cluster="C") == {"topicList": ["T"]}
    assert asked.content(Request.GET_TOPICS_BY_CLUSTER, cluster="D") == {"topicList": []}
    names = ["C", "DefaultCluster", "broker-a", "broker-b"]
    assert asked.content(Request.GET_SYSTEM_TOPIC_LIST_FROM_NS)["topicList"] == names
    group = asked.content(Request.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="broker-b")
    assert group["brokerMemberGroup"]["brokerAddrs"] == {0: "10.9.9.9:1"}
    assert asked.ask(Request.GET_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T").code == 22
    assert asked.ask(Request.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG").code == 22
    lines = asked.ask(Request.GET_NAMESRV_CONFIG).body.decode().splitlines()
    assert len(lines) == 40
    assert {"listenPort=9876", "scanNotActiveBrokerInterval=5000"} <= set(lines)
    assert asked.ask(34).code == 3


def test_other_brokers_come_and_go(asked: Asked) -> None:
    assert asked.register().code == 0
    slave = asked.register(brokerId=1, brokerAddr="10.9.9.8:1")
    assert slave.fields == {"masterAddr": "10.9.9.9:1"}
    route = asked.content(Request.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert [broker["brokerAddrs"] for broker in route["brokerDatas"]] == [
        {"0": "10.1.2.3:10911"},
        {"0": "10.9.9.9:1", "1": "10.9.9.8:1"},
    ]
    assert [queues["readQueueNums"] for queues in route["queueDatas"]] == [4, 2]
    asked.now = 120_000
    asked.ask(Request.BROKER_HEARTBEAT, brokerName="broker-b", brokerAddr="10.9.9.8:1")
    asked.now = 120_001
    asked.server.tick()
    broker = asked.server.routes.find("broker-b")
    assert broker is not None
    assert broker.addresses == {1: "10.9.9.8:1"}
    asked.ask(Request.UNREGISTER_BROKER, brokerName="broker-b", brokerId=1)
    assert asked.server.routes.find("broker-b") is None


def test_nobody_takes_the_place_of_our_own_broker(asked: Asked) -> None:
    assert asked.register("broker-a").code == 1
    asked.ask(Request.UNREGISTER_BROKER, brokerName="broker-a", brokerId=0)
    asked.now = 1 << 50
    asked.server.tick()
    assert asked.ask(Request.GET_ROUTEINFO_BY_TOPIC, topic="T").code == 0


def test_a_compressed_registration_is_understood() -> None:
    def counted(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    plain = counted(b"{}") + struct.pack(">i", 2) + counted(b"A 8 4 6 SINGLE_TAG") + counted(b"B 1 1 2 MULTI_TAG {}")
    plain += struct.pack(">i", 0)
    topics = registered_topics(zlib.compress(plain), is_compressed=True, crc=0)
    assert topics == {"A": TopicConfig("A", 8, 4, 6), "B": TopicConfig("B", 1, 1, 2, "MULTI_TAG")}


def test_as_many_topics_as_a_registration_may_have() -> None:
    texts = (b"T%05d 8 8 6 SINGLE_TAG" % number for number in range(100_000))
    plain = struct.pack(">ii", 0, 100_000) + b"".join(struct.pack(">i", len(text)) + text for text in texts)
    assert len(registered_topics(zlib.compress(plain), is_compressed=True, crc=0)) == 100_000
    with pytest.raises(CorruptError, match="100001 topics"):
        registered_topics(zlib.compress(plain[:4] + struct.pack(">i", 100_001) + plain[8:]), is_compressed=True, crc=0)


def test_a_crc_of_a_registration_has_31_bits() -> None:
    """UtilAll#crc32 takes the sign away; a broker in another language may not."""
    body = next(text for text in (b'{"a":%d}' % number for number in range(99)) if zlib.crc32(text) >> 31)
    crc = zlib.crc32(body)
    for right in (crc & 0x7FFFFFFF, crc, crc - (1 << 32)):
        assert registered_topics(body, is_compressed=False, crc=right) == {}
    for wrong in (crc ^ (1 << 30), crc ^ 1):
        with pytest.raises(CorruptError):
            registered_topics(body, is_compressed=False, crc=wrong)


@pytest.mark.parametrize(
    ("body", "is_compressed", "crc"),
    [
        (b"{}", False, 1),
        (b"{", False, 0),
        (b"no zlib", True, 0),
        (zlib.compress(bytes(100))[:-1], True, 0),
        (zlib.compress(bytes(65 << 20)), True, 0),
        (zlib.compress(struct.pack(">i", 5)), True, 0),
        (zlib.compress(struct.pack(">i", -1)), True, 0),
        (zlib.compress(struct.pack(">ii", 0, 1 << 30)), True, 0),
        (zlib.compress(struct.pack(">ii", 0, -1)), True, 0),
        (zlib.compress(struct.pack(">ii", 0, 100_001) + struct.pack(">i", 17) + b"A 8 4 6 SINGLE_TA"), True, 0),
        (zlib.compress(struct.pack(">iii", 0, 1, -1)), True, 0),
        (zlib.compress(struct.pack(">iii", 0, 1, 18) + b"A 8 4 6 SINGLE_TA"), True, 0),
        (zlib.compress(struct.pack(">iii", 0, 1, 3) + b"A 1"), True, 0),
        (zlib.compress(struct.pack(">iii", 0, 1, 17) + b"A one 1 6 SINGLE_"), True, 0),
    ],
)
def test_a_damaged_registration_is_corrupt(body: bytes, is_compressed: bool, crc: int) -> None:
    with pytest.raises(CorruptError):
        registered_topics(body, is_compressed=is_compressed, crc=crc)
