"""The broker's services, asked without a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.network.remoting.codec import ONEWAY_FLAG
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.network.serving import last_store_host
from rmqctl.store.files.lock import StoreLock
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.read.reader import StoreReader
from tests import goldens, opened
from tests.network.callers import Asking, frames, heartbeat, pulling


@pytest.fixture(scope="module")
def store() -> Path:
    return opened.store_path("broker-real")


@pytest.fixture(scope="module")
def reader() -> StoreReader:
    return opened.reader("broker-real")


@pytest.fixture
def asking(store: Path) -> Asking:
    return Asking(store)


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
    where: dict[str, Any] = {"topic": "Events", "queueId": 4}
    assert asking.ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup="g-events", **where).fields == {"offset": "24"}
    assert asking.ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup="new", **where).code == Response.QUERY_NOT_FOUND
    commit: dict[str, Any] = {"commitOffset": 3, **where}
    assert asking.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="new", **commit).code == 26
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "new", Events="*"))
    assert asking.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="new", **commit).code == 0
    assert asking.reply(Request.UPDATE_CONSUMER_OFFSET, flag=ONEWAY_FLAG, consumerGroup="g-events", **commit) is None
    for group in ("new", "g-events"):
        assert asking.ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup=group, **where).fields == {"offset": "3"}
    wrong: dict[str, Any] = {"commitOffset": 3, "topic": "Nowhere", "queueId": 0}
    assert asking.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="new", **wrong).code == 17
    asking.ask(Request.PULL_MESSAGE, **pulling("Events", 4, 5, consumerGroup="new", sysFlag=5, commitOffset=5))
    assert asking.ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup="new", **where).fields == {"offset": "5"}
    assert asking.content(Request.GET_ALL_CONSUMER_OFFSET)["offsetTable"]["Events@new"] == {4: 5}


# ---- single messages


def test_messages_by_key_id_and_place(asking: Asking, reader: StoreReader) -> None:
    message = reader.get("Orders", 0, 0, 1).messages[0]
    frame = reader.files.log.read(message.physical_offset, message.total_size)
    time: dict[str, Any] = {"beginTimestamp": 0, "endTimestamp": (1 << 63) - 1, "maxNum": 32}
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
    answer = asking.ask(200070)
    assert (answer.code, answer.remark) == (3, " request type 200070 not supported")
    assert asking.reply(200070, flag=ONEWAY_FLAG) is None
    answer = asking.ask(Request.POP_MESSAGE)
    assert (answer.code, answer.remark) == (14, "the broker[broker-a] serves its store for reading only")
    assert asking.reply(Request.PULL_MESSAGE, flag=1) is None
    missing = asking.ask(Request.PULL_MESSAGE)
    assert (missing.code, missing.remark) == (1, "the custom field <consumerGroup> is null")


@pytest.mark.parametrize(("name", "is_told"), [("clean", False), ("crash", True), ("broker-real", False)])
def test_messages_that_no_queue_knows_are_told(name: str, is_told: bool, tmp_path: Path) -> None:
    """A consumer would take the end of its queue for the end of the topic."""
    asking = Asking(goldens.golden(name, tmp_path))
    asking.broker.tell_of_unserved()
    last = goldens.truth(name).messages[-1]
    assert len(asking.told) == is_told
    if is_told:
        begin = asking.broker.log_end
        assert f"the last {last['phyOffset'] + last['storeSize'] - begin} bytes of the log" in asking.told[0]
        assert f"from physical offset {begin} on" in asking.told[0]


def test_a_broker_that_runs_is_about_to_put_them_into_queues(tmp_path: Path) -> None:
    store = goldens.golden("crash", tmp_path)
    asking = Asking(store)
    lock = StoreLock(asking.broker.files.layout.lock)
    try:
        asking.broker.tell_of_unserved()
    finally:
        lock.release()
    assert asking.told == []


def test_a_log_whose_end_cannot_be_read_is_served_up_to_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(goldens.golden("clean", tmp_path))
    last, read = asking.broker.files.log.files[-1].path, Descriptors.read

    def failing(self: Descriptors, path: Path, position: int, length: int) -> bytes:
        if path == last:
            raise UnreadableError("cannot be read: Input/output error", file=path)
        return read(self, path, position, length)

    monkeypatch.setattr(Descriptors, "read", failing)
    asking.broker.tell_of_unserved()
    assert asking.told == [f"the end of the log cannot be looked at: {last}: cannot be read: Input/output error"]
    assert last_store_host(asking.broker) is None
    assert asking.ask(Request.PULL_MESSAGE, **pulling("TopicTest", 0, 0)).code == 0
