"""The broker's services, asked without a socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.message import decode_message
from rmqctl.network.remoting.codes import RequestCode as Request
from rmqctl.network.remoting.codes import ResponseCode as Response
from rmqctl.network.remoting.command import ONEWAY_FLAG
from rmqctl.store.read.reader import StoreReader
from tests import goldens, opened
from tests.network.callers import Asking, Peer, heartbeat, pulling

EDGES = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")


@pytest.fixture(scope="module")
def store() -> Path:
    return opened.store_path("broker-real")


@pytest.fixture(scope="module")
def reader() -> StoreReader:
    return opened.reader("broker-real")


@pytest.fixture
def asking(store: Path) -> Asking:
    return Asking(store)


def frames(body: bytes) -> list[tuple[int, int, int]]:
    """Queue, queue offset and physical offset of the good frames that `body` consists of."""
    found, position = [], 0
    while position < len(body):
        message = decode_message(body, position, len(body) - position, None)
        found.append((message.queue_id, message.queue_offset, message.physical_offset))
        position += message.total_size
    return found


# ---- pulling


def test_frames_leave_as_they_lie_in_the_log(asking: Asking, reader: StoreReader) -> None:
    expected = reader.get("Events", 3, 10).messages
    answer = asking.ask(Request.PULL_MESSAGE, **pulling("Events", 3, 10))
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert answer.body == b"".join(
        reader.files.log.read(message.physical_offset, message.total_size) for message in expected
    )
    assert [answer.fields[name] for name in EDGES] == ["0", "30", "0", "30"]


def test_a_whole_queue_comes_pull_by_pull(asking: Asking, reader: StoreReader) -> None:
    offset, found = 0, []
    while offset < 30:
        answer = asking.ask(Request.LITE_PULL_MESSAGE, **pulling("Events", 3, offset, maxMsgNums=7))
        assert len(frames(answer.body)) <= 7
        found += frames(answer.body)
        offset = int(answer.fields["nextBeginOffset"])
    assert [one[1] for one in found] == list(range(30))


def test_tags_are_matched_by_request_and_by_heartbeat(asking: Asking, reader: StoreReader) -> None:
    paid = [message.queue_offset for message in reader.get("Orders", 0, 0, tags="pay").messages]
    answer = asking.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0, subscription="pay || nothing"))
    assert [one[1] for one in frames(answer.body)] == paid
    assert asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Orders="pay")).code == 0
    by_heartbeat = pulling("Orders", 0, 0, sysFlag=0, subVersion=7)
    del by_heartbeat["subscription"]
    assert asking.ask(Request.PULL_MESSAGE, **by_heartbeat).body == answer.body
    nothing = asking.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0, subscription="nothing"))
    assert (nothing.code, nothing.remark, nothing.body) == (20, "NO_MATCHED_MESSAGE", b"")
    assert nothing.fields["nextBeginOffset"] == "15"


@pytest.mark.parametrize(
    ("topic", "offset", "code", "remark", "next_offset"),
    [
        ("Events", 30, 19, "OFFSET_OVERFLOW_ONE", "30"),
        ("Events", 31, 21, "OFFSET_OVERFLOW_BADLY", "30"),
        ("Events", -1, 21, "OFFSET_TOO_SMALL", "0"),
        ("Read-Only", 0, 19, "NO_MESSAGE_IN_QUEUE", "0"),
        ("Read-Only", 5, 21, "NO_MESSAGE_IN_QUEUE", "0"),
    ],
)
def test_what_has_no_message_says_where_to_go_on(
    asking: Asking, topic: str, offset: int, code: int, remark: str, next_offset: str
) -> None:
    queue_id = 3 if topic == "Events" else 0
    answer = asking.ask(Request.PULL_MESSAGE, **pulling(topic, queue_id, offset))
    assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (code, remark, next_offset)
    assert set(EDGES) <= set(answer.fields)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "Nowhere"}, Response.TOPIC_NOT_EXIST),
        ({"topic": "../commitlog"}, Response.TOPIC_NOT_EXIST),
        ({"queueId": 8}, Response.INVALID_PARAMETER),
        ({"queueId": -1}, Response.INVALID_PARAMETER),
        ({"consumerGroup": "no such name!"}, Response.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"subscription": "||"}, Response.SUBSCRIPTION_PARSE_FAILED),
        ({"expressionType": "SQL92"}, Response.SYSTEM_ERROR),
        ({"queueOffset": "1_0"}, Response.SYSTEM_ERROR),
        ({"queueOffset": 1 << 63}, Response.SYSTEM_ERROR),
        ({"sysFlag": 0}, Response.SUBSCRIPTION_NOT_EXIST),
    ],
)
def test_a_pull_that_cannot_be_is_refused_by_its_code(asking: Asking, changes: dict[str, object], code: int) -> None:
    assert asking.ask(Request.PULL_MESSAGE, **(pulling("Events", 0, 0) | changes)).code == code


def test_a_subscription_that_the_broker_has_not_heard_of_yet_is_asked_for(asking: Asking) -> None:
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Events="*"))
    for topic, version, code in (("Events", 8, 25), ("Orders", 7, 24), ("Events", 7, 0)):
        fields = pulling(topic, 0, 0, sysFlag=0, subVersion=version)
        assert asking.ask(Request.PULL_MESSAGE, **fields).code == code


def test_an_end_of_a_queue_is_waited_at_if_the_client_bears_it(asking: Asking) -> None:
    held = asking.suspended(Request.PULL_MESSAGE, **pulling("Events", 3, 30, sysFlag=6, suspendTimeoutMillis=15_000))
    assert (held.seconds, held.key) == (15, ("Events", 3))
    answer = held.answer()
    assert (answer.code, answer.opaque, answer.flag, answer.fields["nextBeginOffset"]) == (19, 9, 1, "30")
    longest = asking.suspended(Request.PULL_MESSAGE, **pulling("Events", 3, 30, sysFlag=6, suspendTimeoutMillis=1 << 40))
    assert longest.seconds == 30


def test_damaged_messages_are_passed_over_and_told(tmp_path: Path) -> None:
    asking = Asking(goldens.golden("crc-flip-old", tmp_path))
    whole = {message["phyOffset"] for message in goldens.truth("clean").messages}
    reader = asking.broker.reader
    damaged = 0
    for queue in reader.queues():
        offset = queue.min_offset(reader.files.log.min_offset)
        while offset < queue.max_offset:
            answer = asking.ask(Request.PULL_MESSAGE, **pulling(queue.topic, queue.queue_id, offset))
            assert answer.code in (0, 20)
            good = frames(answer.body)
            assert {one[2] for one in good} <= whole
            following = int(answer.fields["nextBeginOffset"])
            damaged += following - offset - len(good)
            offset = following
    assert damaged == 1
    assert [line for line in asking.told if "passed over" in line and "CRC" in line]
    assert len(asking.told) == 1


# ---- offsets


def test_offsets_of_queues(asking: Asking, reader: StoreReader) -> None:
    first, last = (reader.store_time("Events", 3, offset) for offset in (0, 29))
    for code, more, name, expected in (
        (Request.GET_MIN_OFFSET, {}, "offset", 0),
        (Request.GET_MAX_OFFSET, {"committed": True}, "offset", 30),
        (Request.GET_EARLIEST_MSG_STORETIME, {}, "timestamp", first),
        (Request.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": last}, "offset", 29),
        (Request.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": last + 1}, "offset", 30),
        (Request.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": last + 1, "boundaryType": "UPPER"}, "offset", 29),
    ):
        assert asking.ask(code, topic="Events", queueId=3, **more).fields == {name: str(expected)}
    for code, fields in (
        (Request.GET_MIN_OFFSET, {"offset": "0"}),
        (Request.GET_MAX_OFFSET, {"offset": "0"}),
        (Request.GET_EARLIEST_MSG_STORETIME, {"timestamp": "-1"}),
        (Request.SEARCH_OFFSET_BY_TIMESTAMP, {"offset": "0"}),
    ):
        assert asking.ask(code, topic="../x", queueId=3, timestamp=0).fields == fields


def test_groups_begin_where_the_store_has_them_and_commit_to_memory(asking: Asking) -> None:
    where = {"topic": "Events", "queueId": 4}
    assert asking.ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup="g-events", **where).fields == {"offset": "24"}
    assert asking.ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup="new", **where).code == Response.QUERY_NOT_FOUND
    commit = {"commitOffset": 3, **where}
    assert asking.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="new", **commit).code == 26
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "new", Events="*"))
    assert asking.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="new", **commit).code == 0
    assert asking.reply(Request.UPDATE_CONSUMER_OFFSET, flag=ONEWAY_FLAG, consumerGroup="g-events", **commit) is None
    for group in ("new", "g-events"):
        assert asking.ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup=group, **where).fields == {"offset": "3"}
    wrong = {"commitOffset": 3, "topic": "Nowhere", "queueId": 0}
    assert asking.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="new", **wrong).code == 17
    asking.ask(Request.PULL_MESSAGE, **pulling("Events", 4, 5, consumerGroup="new", sysFlag=5, commitOffset=5))
    assert asking.ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup="new", **where).fields == {"offset": "5"}
    assert asking.content(Request.GET_ALL_CONSUMER_OFFSET)["offsetTable"]["Events@new"] == {4: 5}


# ---- clients


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


def test_a_silent_client_is_sent_away(asking: Asking) -> None:
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g", Events="*"))
    asking.now += 120_000
    asking.broker.tick()
    assert asking.content(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")["consumerIdList"] == ["c1"]
    asking.now += 1
    asking.broker.tick()
    assert asking.ask(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g").code == 1
    assert asking.ask(Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g").code == 206


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


# ---- single messages


def test_messages_by_key_id_and_place(asking: Asking, reader: StoreReader) -> None:
    message = reader.get("Orders", 0, 0, 1).messages[0]
    frame = reader.files.log.read(message.physical_offset, message.total_size)
    time = {"beginTimestamp": 0, "endTimestamp": (1 << 63) - 1, "maxNum": 32}
    unique = message.properties()["UNIQ_KEY"]
    found = asking.ask(Request.QUERY_MESSAGE, topic="Orders", key=unique, _UNIQUE_KEY_QUERY=True, **time)
    assert (found.code, found.body) == (0, frame)
    assert int(found.fields["indexLastUpdatePhyoffset"]) > 0
    by_key = asking.ask(Request.QUERY_MESSAGE, topic="Orders", key="order-0", **time)
    places = [one[2] for one in frames(by_key.body)]
    assert len(places) > 1
    assert places == sorted(places)
    none = asking.ask(Request.QUERY_MESSAGE, topic="Orders", key="no such key", **time)
    assert (none.code, none.fields["indexLastUpdateTimestamp"]) == (22, "0")
    assert asking.ask(Request.VIEW_MESSAGE_BY_ID, offset=message.physical_offset).body == frame
    beside = asking.ask(Request.VIEW_MESSAGE_BY_ID, offset=message.physical_offset + 1)
    assert beside.code == 1
    assert beside.remark is not None
    assert beside.remark.startswith(f"can not find message by the offset, {message.physical_offset + 1}")
    units = asking.content(Request.QUERY_CONSUME_QUEUE, topic="Orders", queueId=0, index=0, count=2)
    assert (units["minQueueIndex"], units["maxQueueIndex"], len(units["queueData"])) == (0, 15, 2)
    assert units["queueData"][0]["physicOffset"] == message.physical_offset
    assert asking.ask(Request.QUERY_CONSUME_QUEUE, topic="Nowhere", queueId=0, index=0, count=2).code == 1


def test_damage_is_never_called_absence(tmp_path: Path) -> None:
    asking = Asking(goldens.golden("crc-flip-old", tmp_path))
    reader = asking.broker.reader
    damaged = [unit for queue in reader.queues() for unit in reader.get(queue.topic, queue.queue_id, 0).damaged]
    offset = damaged[0].physical_offset
    answer = asking.ask(Request.VIEW_MESSAGE_BY_ID, offset=offset)
    assert answer.code == 1
    assert answer.remark is not None
    assert answer.remark.startswith(f"the message at offset {offset} is damaged")


# ---- the rest


def test_mqadmin_sees_what_a_real_broker_showed(asking: Asking) -> None:
    known = goldens.admin("broker-real")
    for topic, queues in known["topicStats[min,max,lastUpdate]"].items():
        if topic == "RMQ_SYS_TRANS_HALF_TOPIC":
            continue  # that broker went on checking its transactions after it was asked
        reply = asking.ask(Request.GET_TOPIC_STATS_INFO, topic=topic)
        text = reply.body.decode()
        for name, (minimum, maximum, last) in queues.items():
            queue_id = name.rpartition("/")[2]
            key = f'{{"brokerName":"broker-a","queueId":{queue_id},"topic":"{topic}"}}'
            assert f'{key}:{{"lastUpdateTimestamp":{last},"maxOffset":{maximum},"minOffset":{minimum}}}' in text
    for group, queues in known["consumeStats[broker,consumer,lastTimestamp]"].items():
        if isinstance(queues, str):
            continue
        text = asking.ask(Request.GET_CONSUME_STATS, consumerGroup=group).body.decode()
        for name, (broker, consumer, last) in queues.items():
            topic, _, queue_id = name.rpartition("/")
            queue = f'{{"brokerName":"broker-a","queueId":{queue_id},"topic":"{topic}"}}'
            offsets = f'"brokerOffset":{broker},"consumerOffset":{consumer},"lastTimestamp":{last}'
            assert f'{queue}:{{{offsets},"pullOffset":{consumer}}}' in text


def test_configurations_are_those_of_the_store(asking: Asking) -> None:
    topics = asking.content(Request.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
    assert topics["Events"]["readQueueNums"] == 8
    assert asking.content(Request.GET_TOPIC_CONFIG, topic="Events", lo=True) == topics["Events"]
    assert asking.ask(Request.GET_TOPIC_CONFIG, topic="Nowhere").code == 17
    groups = asking.content(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    assert asking.content(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="g-pay") == groups["g-pay"]
    assert asking.content(Request.GET_ALL_DELAY_OFFSET)["offsetTable"] == {1: 71, 14: 0}
    assert "TBW102" in asking.content(Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)["topicList"]
    assert asking.content(Request.QUERY_TOPIC_CONSUME_BY_WHO, topic="Events")["groupList"] == ["g-events", "g-retry"]
    assert "Events" in asking.content(Request.QUERY_TOPICS_BY_CONSUMER, group="g-retry")["topicList"]
    assert b"brokerName=broker-a\n" in asking.ask(Request.GET_BROKER_CONFIG).body
    assert asking.content(Request.GET_BROKER_HA_STATUS)["masterCommitLogMaxOffset"] == asking.broker.log_end
    table = asking.content(Request.GET_BROKER_RUNTIME_INFO)["table"]
    assert table["scheduleMessageOffset_14"] == "0,5"
    spans = asking.ask(Request.QUERY_CONSUME_TIME_SPAN, topic="Pay", group="g-pay").body.decode()
    assert spans.count('"consumeTimeStamp"') == 4


def test_topics_that_only_the_queues_know_are_served(tmp_path: Path) -> None:
    asking = Asking(goldens.golden("clean", tmp_path))
    topics = {topic.name: topic for topic in asking.broker.topics.all()}
    for queue in asking.broker.files.queues.all():
        assert topics[queue.topic].read_queue_nums > queue.queue_id
    first = asking.broker.files.queues.all()[0]
    assert asking.ask(Request.PULL_MESSAGE, **pulling(first.topic, first.queue_id, 0)).code == 0


def test_damaged_configurations_are_told_and_the_store_is_served(tmp_path: Path) -> None:
    store = goldens.golden("broker-real", tmp_path)
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        (store / "config" / name).write_text("{", encoding="ascii")
        (store / "config" / f"{name}.bak").unlink()
    asking = Asking(store)
    assert len(asking.told) == 3
    assert asking.ask(Request.PULL_MESSAGE, **pulling("Events", 3, 0)).code == 0


@pytest.mark.parametrize(
    "code",
    [Request.SEND_MESSAGE, Request.SEND_MESSAGE_V2, Request.SEND_BATCH_MESSAGE, Request.CONSUMER_SEND_MSG_BACK],
)
def test_nothing_is_written(asking: Asking, code: int) -> None:
    assert asking.ask(code).code == Response.SERVICE_NOT_AVAILABLE
    assert asking.reply(code, flag=ONEWAY_FLAG) is None


def test_what_is_not_served_is_said(asking: Asking) -> None:
    answer = asking.ask(200050)
    assert (answer.code, answer.remark) == (3, " request type 200050 not supported")
    assert asking.reply(200050, flag=ONEWAY_FLAG) is None
    assert asking.reply(Request.PULL_MESSAGE, flag=1) is None
    missing = asking.ask(Request.PULL_MESSAGE)
    assert (missing.code, missing.remark) == (1, "the custom field <consumerGroup> is null")
