"""What operators ask of a broker beyond settings, and of a name server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.broker.services import SERVICES, services_of
from rmqctl.network.clients.channel import messages_of
from rmqctl.network.clients.client import Client
from rmqctl.network.nameserver import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.nameserver import NameServer, Registration
from rmqctl.network.remoting.codec import RemotingCommand, parse_body, queue_of_key
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.requests import Processor, Promised
from rmqctl.network.topic_config import TopicConfig, retry_topic
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import RELEASES
from tests.goldens import keys_of_servers
from tests.network.callers import Peer, Writing, heartbeat, pulling, with_header
from tests.network.serving import serving

TIMED = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=True)


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store", TIMED, recallMessageEnable="true")
    yield made
    made.close()


def _raw(writing: Writing, code: int, content: Any) -> RemotingCommand:
    return writing.raw(code, json.dumps(content).encode())


def test_topics_and_groups_come_in_lists_all_or_none(writing: Writing) -> None:
    def topic(name: str, **more: Any) -> dict[str, Any]:
        return {"topicName": name, "readQueueNums": 2, "writeQueueNums": 3, "perm": 6, **more}

    wanted = [topic("A", attributes={"+message.type": "FIFO"}), topic("B")]
    assert _raw(writing, Request.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": wanted}).code == 0
    made = writing.content(Request.GET_TOPIC_CONFIG, topic="A")
    assert (made["readQueueNums"], made["writeQueueNums"], made["attributes"]) == (2, 3, {"message.type": "FIFO"})
    for bad in (topic("a b"), topic("D", attributes={"+message.type": "X"}), topic("D", readQueueNums=1 << 20)):
        answer = _raw(writing, Request.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": [topic("C"), bad]})
        assert answer.code in (1, 29)
    assert writing.ask(Request.GET_TOPIC_CONFIG, topic="C").code == 17
    groups = [{"groupName": "g1"}, {"groupName": "g2", "retryMaxTimes": 2}]
    code = Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    assert _raw(writing, code, {"groupConfigList": groups}).code == 0
    assert writing.content(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="g2")["retryMaxTimes"] == 2
    assert _raw(writing, code, {"groupConfigList": [{"groupName": "g3"}, {"groupName": "a b"}]}).code == 29
    assert writing.broker.groups.find("g3") is None


def test_a_group_has_no_retry_topic_before_it_consumes(writing: Writing) -> None:
    """mqadmin consumerProgress lists a group for each retry topic; a broker makes that when the first member comes,
    not for a reset or a clone."""
    for number in range(4):
        writing.send("T", b"%d" % number, 0)
    names = ("made", "comes", "reset", "cloned")
    wanted = {"groupConfigList": [{"groupName": name} for name in names]}
    assert _raw(writing, Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, wanted).code == 0
    found = [writing.broker.topics.find(retry_topic(name)) for name in names]
    assert found == [None, None, None, None]
    writing.ask(Request.HEART_BEAT, heartbeat("c1", "comes", T="*"))
    reset: dict[str, Any] = {"topic": "T", "group": "reset", "timestamp": -1, "isForce": "true"}
    assert writing.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, **reset).code == 0
    assert writing.ask(Request.CLONE_GROUP_OFFSET, srcGroup="reset", destGroup="cloned", topic="T").code == 0
    found = [writing.broker.topics.find(retry_topic(name)) for name in names]
    assert [one is not None for one in found] == [False, True, False, False]


def test_producers_and_members_are_listed(writing: Writing) -> None:
    member, other = Peer("127.0.0.1:5001"), Peer("127.0.0.1:5002")
    writing.ask(Request.HEART_BEAT, heartbeat("c1", "g", T="*"), peer=member)
    writing.ask(Request.HEART_BEAT, heartbeat("c2", "g", T="*"), peer=other)
    writing.now += 5_000
    data = writing.content(Request.GET_ALL_PRODUCER_INFO)["data"]
    assert [(one["clientId"], one["remoteIP"]) for one in data["P"]] == [
        ("c1", f"/{member.remote}"),
        ("c2", f"/{other.remote}"),
    ]
    assert {one["lastUpdateTimestamp"] for one in data["P"]} == {writing.now - 5_000}
    status = Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    reply = writing.reply(status, topic="T", group="g")
    assert isinstance(reply, Promised)
    assert (member.sent[-1].code, member.sent[-1].fields) == (221, {"topic": "T", "group": "g"})
    body = b'{"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"T"}:7}}'
    member.asked.set_result(RemotingCommand(0, body=body))
    assert not reply.done.done()
    other.asked.set_result(None)
    assert reply.done.done()
    ((client, table),) = parse_body(reply.answer().body)["consumerTable"].items()
    assert (client, [(queue_of_key(key), offset) for key, offset in table.items()]) == ("c1", [(("b", 1, "T"), 7)])
    sent = len(member.sent)
    writing.reply(status, topic="T", group="g", clientAddr="c2")
    assert len(member.sent) == sent
    answer = writing.ask(status, topic="T", group="none")
    assert (answer.code, answer.remark) == (1, "No Any Consumer online in the consumer group: [none]")


def test_a_group_may_be_forbidden_a_topic(writing: Writing, tmp_path: Path) -> None:
    writing.send("T", b"x")
    writing.ask(Request.HEART_BEAT, heartbeat("c1", "g", T="*"))
    forbid = Request.UPDATE_AND_GET_GROUP_FORBIDDEN
    topic: dict[str, Any] = {"group": "g", "topic": "T"}
    pull = pulling("T", 0, 0, sysFlag=0, subVersion=7)
    assert writing.content(forbid, **topic) == {"group": "g", "readable": True, "topic": "T"}
    # the message is dispatched a moment after it is stored
    end = time.monotonic() + 60
    while writing.ask(Request.PULL_MESSAGE, **pull).code != 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert writing.ask(Request.PULL_MESSAGE, **pull).code == 0
    assert writing.content(forbid, **topic, readable=False)["readable"] is False
    answer = writing.ask(Request.PULL_MESSAGE, **pull)
    assert (answer.code, answer.remark) == (16, "the consumer group[g] is forbidden for topic[T]")
    writing.close()
    again = Writing(tmp_path / "store")
    assert again.content(forbid, **topic)["readable"] is False
    assert again.content(forbid, **topic, readable=True)["readable"] is True
    again.close()


def test_consume_stats_of_all_groups_have_topics_in_order_too(writing: Writing) -> None:
    """mqadmin brokerConsumeStats asks with isOrder=false: topics in order are left out only of the reverse."""
    queues: dict[str, Any] = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    for topic, is_order in (("Plain", False), ("Ordered", True)):
        writing.ask(Request.UPDATE_AND_CREATE_TOPIC, topic=topic, order=is_order, **queues)
        writing.send(topic, b"x")
        writing.broker.group("g")
        writing.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic=topic, queueId=0, commitOffset=1)

    def topics(is_order: bool) -> set[str]:
        answer = writing.ask(Request.GET_BROKER_CONSUME_STATS, isOrder=is_order)
        (stats,) = [one["g"] for one in parse_body(answer.body)["consumeStatsList"] if "g" in one]
        queues = [queue_of_key(key) for one in stats for key in one["offsetTable"]]
        return {queue.topic for queue in queues if queue is not None}

    assert topics(False) == {"Plain", "Ordered"}
    assert topics(True) == {"Ordered"}


def test_the_smallest_offset_of_all_groups(writing: Writing) -> None:
    for _ in range(5):
        writing.send("T", b"x")
    for group, offset in (("a", 2), ("b", 4), ("c", 1)):
        writing.broker.group(group)
        writing.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic="T", queueId=0, commitOffset=offset)
    code = Request.QUERY_CORRECTION_OFFSET
    assert writing.content(code, topic="T")["correctionOffsets"] == {0: 1}
    assert writing.content(code, topic="T", filterGroups="c,x")["correctionOffsets"] == {0: 2}
    assert writing.broker.offsets.find("c", "T", 0) == 1
    assert writing.content(code, topic="T", filterGroups="c", compareGroup="c")["correctionOffsets"] == {
        0: (1 << 63) - 1
    }
    # nobody is before the group that is compared
    assert writing.content(code, topic="T", compareGroup="c")["correctionOffsets"] == {0: 1}
    for offset in (2, 3):
        writing.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="c", topic="T", queueId=0, commitOffset=offset)
        found = writing.content(code, topic="T", filterGroups="c", compareGroup="c")["correctionOffsets"]
        assert found == {0: 2}
    writing.broker.group("d")
    writing.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="d", topic="T", queueId=0, commitOffset=0)
    assert writing.content(code, topic="T")["correctionOffsets"] == {0: 0}


@pytest.mark.parametrize("queue_id", [-1, -(1 << 31)])
def test_no_offset_of_a_negative_queue(writing: Writing, queue_id: int) -> None:
    writing.send("T", b"x")
    writing.broker.group("g")
    kept: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": queue_id}
    answer = writing.ask(Request.UPDATE_CONSUMER_OFFSET, **kept, commitOffset=1)
    assert (answer.code, answer.remark) == (1, f"queueId[{queue_id}] is no queue")
    assert writing.broker.offsets.find("g", "T", queue_id) is None


@pytest.mark.parametrize("offset", [0, (1 << 63) - 1])
def test_an_offset_is_a_long(writing: Writing, offset: int) -> None:
    writing.send("T", b"x")
    writing.broker.group("g")
    kept: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    assert writing.ask(Request.UPDATE_CONSUMER_OFFSET, **kept, commitOffset=offset).code == 0
    assert writing.ask(Request.QUERY_CONSUMER_OFFSET, **kept).fields["offset"] == str(offset)
    assert writing.ask(Request.UPDATE_CONSUMER_OFFSET, **kept, commitOffset=1 << 63).code != 0
    assert writing.broker.offsets.find("g", "T", 0) == offset


def test_files_are_removed_only_where_that_is_allowed(writing: Writing) -> None:
    for code in (Request.CLEAN_EXPIRED_CONSUMEQUEUE, Request.DELETE_EXPIRED_COMMITLOG):
        answer = writing.ask(code)
        assert (answer.code, "serve --clean" in (answer.remark or "")) == (16, True)
    assert writing.ask(Request.CLEAN_UNUSED_TOPIC).code == 0
    writing.send("T", b"x")
    writing.stored("T")
    writing.ask(Request.DELETE_TOPIC_IN_BROKER, topic="T")
    assert writing.ask(Request.CLEAN_UNUSED_TOPIC).code == 16


@pytest.mark.parametrize(
    ("code", "fields", "answer", "remark"),
    [
        (Request.GET_BROKER_EPOCH_CACHE, {}, 1, "this request only for controllerMode "),
        (Request.NOTIFY_BROKER_ROLE_CHANGED, {}, 0, None),
        (Request.NOTIFY_MIN_BROKER_ID_CHANGE, {}, 0, None),
        (Request.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": 7}, 0, None),
        (Request.GET_COLD_DATA_FLOW_CTR_INFO, {}, 0, None),
        (Request.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, {}, 0, None),
        (Request.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, 16, None),
        (Request.SET_COMMITLOG_READ_MODE, {}, 1, "set commitlog readahead mode param error"),
        (Request.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": 0}, 0, "set commitlog readahead mode success, mode: 0"),
        (Request.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": 1}, 16, None),
        (Request.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": 9}, 29, "set commitlog readahead mode param value error"),
        (Request.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, {}, 1, None),
        (Request.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": "topics;"}, 0, "export done."),
        (Request.SWITCH_TIMER_ENGINE, {"E_T": "F"}, 3, " request type 5001 not supported"),
        (Request.UPDATE_AND_CREATE_STATIC_TOPIC, {}, 1, None),
        (Request.GET_TIMER_CHECK_POINT, {}, 1, "The checkpoint is null"),
        (Request.GET_TIMER_METRICS, {}, 1, "The timer message store is null"),
        (Request.RESUME_CHECK_HALF_MESSAGE, {"msgId": "x"}, 1, None),
        (Request.POP_ROLLBACK, {}, 0, None),
    ],
)
def test_other_modes_are_off(
    writing: Writing, code: int, fields: dict[str, Any], answer: int, remark: str | None
) -> None:
    got = writing.ask(code, **fields)
    assert got.code == answer
    assert remark in (None, got.remark)


def test_the_engine_of_timers_is_that_of_5_5(tmp_path: Path) -> None:
    class Released(Writing):
        release = RELEASES["5.5.0"]

    writing = Released(tmp_path / "store")
    got = writing.ask(Request.SWITCH_TIMER_ENGINE, E_T="F")
    assert (got.code, got.remark) == (29, "broker timerWheelEnable is false")
    writing.close()


def test_half_messages_are_asked_about_again(writing: Writing) -> None:
    sent = writing.send("T", b"half", sysFlag=4, _TRAN_MSG="true", _PGROUP="P")
    assert writing.ask(Request.RESUME_CHECK_HALF_MESSAGE, msgId=sent.fields["msgId"]).code == 0
    again = writing.stored("RMQ_SYS_TRANS_HALF_TOPIC")
    assert [message.properties().get("TRANSACTION_CHECK_TIMES") for message in again] == [None, "0"]


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_a_timed_message_is_taken_back(timed: Writing, release: str) -> None:
    timed.broker.identity = timed.broker.identity._replace(release=RELEASES[release])
    assert timed.send("T", b"plain").fields.get("recallHandle") is None
    due = timed.now + 5_000
    kept = timed.send("T", b"kept", _TIMER_DELIVER_MS=str(due))
    sent = timed.send("T", b"taken back", _TIMER_DELIVER_MS=str(due))
    timed.step(100)
    assert timed.content(Request.GET_TIMER_METRICS)["timingCount"]["T"]["count"] == 2
    assert len(timed.ask(Request.GET_TIMER_CHECK_POINT).body) == 56
    recall: dict[str, Any] = {"producerGroup": "P", "topic": "T", "recallHandle": sent.fields["recallHandle"]}
    answer = timed.ask(Request.RECALL_MESSAGE, **recall)
    assert (answer.code, answer.fields["msgId"]) == (0, sent.fields["transactionId"])
    for _ in range(80):
        timed.step(100)
    assert [message.body for message in timed.stored("T")] == [b"plain", b"kept"]
    late = timed.ask(Request.RECALL_MESSAGE, **recall | {"recallHandle": kept.fields["recallHandle"]})
    assert (late.code, late.remark) == (604, "recall failed, timestamp invalid")


def test_what_cannot_be_taken_back(timed: Writing, tmp_path: Path) -> None:
    due = timed.now + 5_000
    handle = timed.send("T", b"x", _TIMER_DELIVER_MS=str(due)).fields["recallHandle"]
    timed.send("Other", b"x")

    def ask(topic: str, text: str) -> tuple[int, str | None]:
        answer = timed.ask(Request.RECALL_MESSAGE, producerGroup="P", topic=topic, recallHandle=text)
        return answer.code, answer.remark

    assert ask("T", "nonsense") == (604, "recall handle is invalid")
    assert ask("T", "") == (604, "recall handle is invalid")
    assert ask("Other", handle) == (604, "recall failed, topic not match")
    assert ask("Nowhere", handle) == (17, "recall failed, the topic[Nowhere] not exist")
    timed.close()
    off = Writing(tmp_path / "off", TIMED)
    answer = off.ask(Request.RECALL_MESSAGE, producerGroup="P", topic="T", recallHandle=handle)
    assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")
    off.close()


def test_units_say_what_a_group_subscribes(writing: Writing) -> None:
    writing.send("T", b"x", _TAGS="a")
    writing.stored("T")
    units: dict[str, Any] = {"topic": "T", "queueId": 0, "index": 0, "count": 2}
    assert "filterData" not in writing.content(Request.QUERY_CONSUME_QUEUE, **units)
    offline = writing.content(Request.QUERY_CONSUME_QUEUE, **units, consumerGroup="g")
    assert (offline["filterData"], "subscriptionData" in offline) == ("g@T is not online!", False)
    writing.ask(Request.HEART_BEAT, heartbeat("c1", "g", T="a"))
    online = writing.content(Request.QUERY_CONSUME_QUEUE, **units, consumerGroup="g")
    assert (online["filterData"], online["subscriptionData"]["subString"]) == ("null", "a")


def test_messages_are_found_by_their_tag(writing: Writing) -> None:
    for number, tag in enumerate(("a", "b", "a", "a || b", "a")):
        writing.send("T", b"%d" % number, number % 2, _TAGS=tag)
    writing.stored("T")
    query: dict[str, Any] = {"topic": "T", "key": "a", "maxNum": 2, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
    assert writing.ask(Request.QUERY_MESSAGE, **query, indexType="T").code == 22
    writing.broker.identity = writing.broker.identity._replace(release=RELEASES["5.5.0"])

    def bodies(**more: Any) -> list[bytes]:
        answer = writing.ask(Request.QUERY_MESSAGE, **query | more, indexType="T")
        return [message.body for message in messages_of(answer.body)] if answer.code == 0 else []

    assert bodies() == [b"2", b"4"]
    assert bodies(maxNum=9) == [b"0", b"2", b"4"]
    assert bodies(key="a || b") == [b"3"]
    assert bodies(key="none") == []
    assert bodies(topic="Nowhere") == []
    assert bodies(beginTimestamp=writing.now + 1) == []


def test_an_older_version_knows_fewer_requests() -> None:
    known = {name: services_of(writable=True, release=release).keys() for name, release in RELEASES.items()}
    assert known["5.5.0"] == SERVICES.keys()
    assert known["5.5.0"] - known["5.3.3"] == {Request.SWITCH_TIMER_ENGINE}
    assert {10, 11, 28, 315, 324, 328, 329} <= known["4.9.8"]
    assert not {18, 60, 225, 351, 361, 370, 907, 1007, 2003} & known["4.9.8"]


def test_the_version_stands_in_every_header(tmp_path: Path) -> None:
    with serving(tmp_path / "store", "--writable", "--create", "--as", "5.5.0") as served:
        client = Client(served.namesrv)
        for address in (served.namesrv, served.broker):
            answer = client.ask(
                address,
                *with_header(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}),
                allowed=(3, 17),
            )
            assert answer.version == RELEASES["5.5.0"].number
        table = parse_body(client.ask(served.broker, Request.GET_BROKER_RUNTIME_INFO).body)["table"]
        assert (table["brokerVersionDesc"], table.get("brokerVersion")) == ("V5_5_0", None)
        client.close()


class _Names:
    """A name server that is asked without a socket."""

    def __init__(self) -> None:
        self.server = NameServer(lambda: 0)
        topics = {"T": TopicConfig("T", 4, 4), "U": TopicConfig("U", 1, 1, 4)}
        self.server.routes.add_own("C", "own", lambda caller: "1.1.1.1:1", lambda: topics)
        self.server.routes.register(Registration("C", "other", 0, "2.2.2.2:2", topics), 0)
        self.processor = Processor(self.server, NAME_SERVER_SERVICES, lambda line: None)

    def ask(self, code: int, body: bytes = b"", **fields: Any) -> RemotingCommand:
        reply = self.processor.reply(RemotingCommand(code, fields, body), Peer())
        assert isinstance(reply, RemotingCommand)
        return reply

    def perms(self, topic: str) -> dict[str, int]:
        route = parse_body(self.ask(Request.GET_ROUTEINFO_BY_TOPIC, topic=topic).body)
        return {one["brokerName"]: one["perm"] for one in route["queueDatas"]}


def test_settings_of_a_name_server() -> None:
    names = _Names()
    place: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    assert names.ask(Request.GET_KV_CONFIG, **place).code == 22
    assert names.ask(Request.PUT_KV_CONFIG, **place, value="own:4").code == 0
    assert names.ask(Request.GET_KV_CONFIG, **place).fields == {"value": "own:4"}
    assert parse_body(names.ask(Request.GET_KVLIST_BY_NAMESPACE, **place).body) == {"table": {"T": "own:4"}}
    route = Request.GET_ROUTEINFO_BY_TOPIC
    assert "orderTopicConf" not in parse_body(names.ask(route, topic="T").body)
    assert names.ask(Request.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n").code == 0
    assert parse_body(names.ask(route, topic="T").body)["orderTopicConf"] == "own:4"
    assert b"orderMessageEnable=true\n" in names.ask(Request.GET_NAMESRV_CONFIG).body
    assert names.ask(Request.UPDATE_NAMESRV_CONFIG, b"kvConfigPath=/x\n").code == 16
    assert names.ask(Request.UPDATE_NAMESRV_CONFIG, b"clusterTest=true\n").code == 16
    assert names.ask(Request.DELETE_KV_CONFIG, **place).code == 0
    assert names.ask(Request.GET_KV_CONFIG, **place).code == 22
    assert names.ask(Request.PUT_KV_CONFIG, namespace="N", value="v").remark == "namespace or key is null"


def test_a_broker_is_taken_out_of_writing_and_put_back() -> None:
    names = _Names()
    for name in ("own", "other"):
        answer = names.ask(Request.WIPE_WRITE_PERM_OF_BROKER, brokerName=name)
        assert (answer.code, answer.fields) == (0, {"wipeTopicCount": "2"})
    assert names.perms("T") == {"own": 4, "other": 4}
    for name in ("own", "other"):
        assert names.ask(Request.ADD_WRITE_PERM_OF_BROKER, brokerName=name).fields == {"addTopicCount": "2"}
    # a broker of others gets both for all its topics, as with RocketMQ; our own has what it is configured with
    assert (names.perms("T"), names.perms("U")) == ({"own": 6, "other": 6}, {"own": 4, "other": 6})
    assert names.ask(Request.WIPE_WRITE_PERM_OF_BROKER, brokerName="none").fields == {"wipeTopicCount": "0"}


@pytest.mark.parametrize("release", RELEASES)
def test_a_version_has_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """Those that RocketMQ's own start-up gives its brokers and name servers (tests/golden/servers)."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "home"))

    class Released(Writing):
        pass

    Released.release = RELEASES[release]
    writing = Released(tmp_path / "store", brokerPermission="4", nonsense="1")
    writing.broker.name_servers = "127.0.0.1:9876"
    text = writing.ask(Request.GET_BROKER_CONFIG).body.decode()
    table = dict(line.split("=", 1) for line in text.splitlines())
    keys = keys_of_servers(release)
    # and what the broker.conf says beside them
    assert sorted({*keys["broker"], "nonsense"} ^ table.keys()) == []
    assert table["namesrvAddr"] == "127.0.0.1:9876"
    assert table["storePathCommitLog"] == str(tmp_path / "store" / "commitlog")
    assert table["rocketmqHome"] == str(tmp_path / "home")
    assert (table["brokerPermission"], table["mappedFileSizeCommitLog"]) == ("4", str(1 << 20))
    assert (table["nonsense"], table["brokerName"]) == ("1", "broker-a")
    assert (table["brokerIP1"], table["brokerIP2"]) == ("127.0.0.1", "127.0.0.1")
    assert ("timerWheelEnable" in table) is (release != "4.9.8")
    # a running broker has reckoned it from its Bloom filter
    assert table["bitMapLengthConsumeQueueExt"] == "112"
    assert (table["haListenPort"], table.get("bindAddress")) == ("0", None if release == "4.9.8" else "127.0.0.1")
    rocksdb = {"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"}
    has = rocksdb if release == "5.5.0" else set[str]()
    assert rocksdb & set(writing.content(Request.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]) == has
    assert rocksdb & set(writing.content(Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)["topicList"]) == has
    server = NameServer(lambda: 0, "10.1.1.1", release=RELEASES[release])
    processor = Processor(server, NAME_SERVER_SERVICES, lambda line: None)
    answer = processor.reply(RemotingCommand(Request.GET_NAMESRV_CONFIG), Peer())
    assert isinstance(answer, RemotingCommand)
    named = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
    assert sorted({*keys["namesrv"]} ^ named.keys()) == []
    assert named.get("bindAddress") == (None if release == "4.9.8" else "10.1.1.1")
    assert named["rocketmqHome"] == str(tmp_path / "home")
    assert named["kvConfigPath"] == str(tmp_path / "namesrv" / "kvConfig.json")
    assert named["configStorePath"] == str(tmp_path / "namesrv" / "namesrv.properties")
    info = writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]
    assert info["brokerVersionDesc"] == RELEASES[release].text
    # 5.5.0 no longer sends the number
    assert info.get("brokerVersion") == {"4.9.8": "409", "5.3.3": "479"}.get(release)
    writing.close()
