"""Settings of a broker.conf that requests are answered by: RocketMQ's codes and remarks (BrokerConfig)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.network.broker.config_keys import WITHOUT_EFFECT, broker_keys
from rmqctl.network.broker.settings import settings_from_properties
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.network.topic_config import TopicConfig
from rmqctl.store.config.config import StoreConfig
from tests.network.callers import Peer, Writing, heartbeat, pulling
from tests.network.serving import serving_here

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Writing]]:
    """Make brokers with settings, each over a store of its own."""
    brokers: list[Writing] = []

    def make(config: StoreConfig | None = None, **properties: str) -> Writing:
        brokers.append(Writing(tmp_path / f"store-{len(brokers)}", config, **properties))
        return brokers[-1]

    yield make
    for one in brokers:
        one.close()


def _fill(broker: Writing, count: int, body: bytes = b"x", **properties: str) -> None:
    broker.broker.topics.put(TopicConfig("Orders", 4, 4))
    broker.store.put_many([Message("Orders", body, queue_id=0, properties=properties)] * count)
    broker.store.wait_for_dispatch()


def _pull(broker: Writing, offset: int = 0, **more: object) -> RemotingCommand:
    return broker.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, offset, **more))


def test_a_pull_waits_for_the_short_time_without_long_polling(made: Callable[..., Writing]) -> None:
    broker = made(longPollingEnable="false", shortPollingTimeMills="700")
    broker.send("Orders", b"one")
    broker.store.wait_for_dispatch()
    held = broker.suspended(Request.PULL_MESSAGE, **pulling("Orders", 0, 1, sysFlag=6, suspendTimeoutMillis=15_000))
    assert held.seconds == 0.7


def test_kinds_of_pulls_are_refused(made: Callable[..., Writing]) -> None:
    broker = made(litePullMessageEnable="false", rejectPullConsumerEnable="true")
    broker.send("Orders", b"one")
    broker.store.wait_for_dispatch()
    lite = broker.ask(Request.LITE_PULL_MESSAGE, **pulling("Orders", 0, 0))
    assert (lite.code, lite.fields["forbiddenType"]) == (Response.NO_PERMISSION, "1")
    assert lite.remark == "the broker[127.0.0.1] for lite pull consumer is forbidden"
    answer = _pull(broker)
    assert answer.code == Response.SUBSCRIPTION_NOT_EXIST
    assert "the pull consumer is rejected by server" in (answer.remark or "")
    broker.ask(Request.HEART_BEAT, heartbeat("c1", "g", Orders="*"))
    assert _pull(broker).code == 0


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({}, 32),
        ({"max_transfer_count_on_message_in_memory": 40}, 40),
        ({"max_transfer_count_on_message_in_memory": 5}, 5),
        ({"max_transfer_bytes_on_message_in_memory": 4000}, 3),
    ],
)
def test_a_pull_gives_what_is_set(made: Callable[..., Writing], config: dict[str, Any], count: int) -> None:
    broker = made(CONFIG._replace(**config))
    _fill(broker, 50, bytes(1000))
    assert len(broker.store.get("Orders", 0, 0, limit=50).messages) == count
    assert int(_pull(broker, maxMsgNums=50).fields["nextBeginOffset"]) == count


def test_a_pull_with_tags_looks_through_what_is_set(made: Callable[..., Writing]) -> None:
    broker = made(CONFIG._replace(max_filter_message_size=2000))
    _fill(broker, 150)
    assert _pull(broker, subscription="none", sysFlag=4).fields["nextBeginOffset"] == "100"


def test_sends_are_refused_before_their_time(made: Callable[..., Writing]) -> None:
    broker = made(startAcceptSendRequestTimeStamp="1800000001000")
    answer = broker.send("Orders", b"one")
    assert answer.code == Response.SYSTEM_ERROR
    assert re.fullmatch(r"broker unable to service, until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,000", answer.remark or "")
    broker.now += 1000
    assert broker.send("Orders", b"one").code == 0


def test_system_topics_may_be_changed_where_that_is_set(made: Callable[..., Writing]) -> None:
    wanted: dict[str, Any] = {
        "topic": "BenchmarkTest", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }  # fmt: skip
    assert made().reply(Request.UPDATE_AND_CREATE_TOPIC, **wanted).code == Response.INVALID_PARAMETER
    broker = made(validateSystemTopicWhenUpdateTopic="false")
    broker.reply(Request.UPDATE_AND_CREATE_TOPIC, **wanted)
    topic = broker.broker.topics.find("BenchmarkTest")
    assert topic is not None
    assert topic.write_queue_nums == 2


def test_traces_have_the_topic_that_is_set(made: Callable[..., Writing]) -> None:
    broker = made(traceTopicEnable="true", msgTraceTopicName="Traces")
    assert broker.broker.topics.find("Traces") is not None
    assert broker.broker.topics.find("RMQ_SYS_TRACE_TOPIC") is None


def test_clients_are_forgotten_after_the_time_that_is_set(made: Callable[..., Writing]) -> None:
    broker = made(channelExpiredTimeout="40000")
    broker.ask(Request.HEART_BEAT, heartbeat("c1", "g", Orders="*"))
    for passed, is_there in ((39_000, True), (2_000, False)):
        broker.now += passed
        broker.broker.tick()
        assert (broker.broker.clients.consumer_group("g") is not None) is is_there


def test_members_hear_of_others_only_where_that_is_set(made: Callable[..., Writing]) -> None:
    for enabled, count in (("true", 1), ("false", 0)):
        broker = made(notifyConsumerIdsChangedEnable=enabled)
        broker.broker.tick()
        one, other = Peer(), Peer("127.0.0.1:5001")
        broker.ask(Request.HEART_BEAT, heartbeat("c1", "g", Orders="*"), peer=one)
        before = len(one.sent)
        broker.ask(Request.HEART_BEAT, heartbeat("c2", "g", Orders="*"), peer=other)
        assert len(one.sent) - before == count


def test_the_timer_stops_where_that_is_set(made: Callable[..., Writing]) -> None:
    for stopped in ("timerStopEnqueue", "timerStopDequeue"):
        broker = made(CONFIG._replace(timer_wheel_enable=True), **{stopped: "true"})
        assert broker.send("Later", b"x", 0, _TIMER_DELAY_SEC="2").code == 0
        for _ in range(50):
            broker.step(100)
        assert list(broker.stored("Later", 0)) == []
        assert broker.raw(Request.UPDATE_BROKER_CONFIG, f"{stopped}=false".encode()).code == 0
        for _ in range(20):
            broker.step(100)
        assert [one.body for one in broker.stored("Later", 0)] == [b"x"]


def test_clients_that_are_not_wanted_are_not_known(made: Callable[..., Writing]) -> None:
    body = heartbeat("c1", "g", Orders="*")
    body["consumerDataSet"][0]["consumeType"] = "CONSUME_ACTIVELY"
    body["producerDataSet"] = [{"groupName": "p"}]
    for unwanted in (False, True):
        pulls, registers = str(unwanted).lower(), str(not unwanted).lower()
        broker = made(rejectPullConsumerEnable=pulls, rejectTransactionMessage="true", enableRegisterProducer=registers)
        broker.ask(Request.HEART_BEAT, body)
        assert (broker.broker.clients.consumer_group("g") is None) is unwanted
        assert (broker.broker.clients.producers("p") == {}) is unwanted


def test_no_more_messages_of_a_unique_key_than_set(made: Callable[..., Writing]) -> None:
    broker = made(defaultQueryMaxNum="2")
    _fill(broker, 5, UNIQ_KEY="K")
    fields: dict[str, Any] = {"topic": "Orders", "key": "K", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    answer = broker.ask(Request.QUERY_MESSAGE, **fields, _UNIQUE_KEY_QUERY="true")
    every = broker.ask(Request.QUERY_MESSAGE, **fields)
    assert len(answer.body) * 5 == len(every.body) * 2


def test_a_silent_connection_ends_after_the_time_that_is_set(tmp_path: Path) -> None:
    from rmqctl.network.clients.client import Client

    with serving_here(tmp_path / "store", CONFIG, {"serverChannelMaxIdleTimeSeconds": "1"}) as served:
        client = Client(served.namesrv)
        connection = client.connection(served.address)
        until = time.monotonic() + 60
        while connection.is_open and time.monotonic() < until:
            time.sleep(0.05)
        assert not connection.is_open
        client.close()


def test_slaves_get_heartbeats_as_set(tmp_path: Path) -> None:
    settings = settings_from_properties(
        {"haSendHeartbeatInterval": "1500", "haHousekeepingInterval": "9000", "haTransferBatchSize": "4096"}
    )
    assert (settings.ha_send_heartbeat_interval, settings.ha_housekeeping_interval) == (1500, 9000)
    assert settings.ha_transfer_batch_size == 4096


def test_every_key_of_a_broker_is_a_setting_or_is_said_to_be_none() -> None:
    without = {one.key: one.effect for one in broker_keys() if one.counts_for == "nothing" and one.releases}
    patterns = [(why, pattern) for why, listed in WITHOUT_EFFECT for pattern in listed.split()]
    found = {key: next(one for one in patterns if fnmatchcase(key, one[1])) for key in without}
    assert {key: why for key, (why, _) in found.items()} == without
    assert [one for one in patterns if one not in found.values()] == []


def test_a_wrong_value_is_what_a_broker_takes_at_its_start() -> None:
    """As MixAll#properties2Object of 4.9.8, 5.3.3 and 5.5.0: anything but `true` is false, and no number is none."""
    said: list[str] = []
    wrong = {"autoCreateTopicEnable": "yes", "defaultTopicQueueNums": "4 "}
    settings = settings_from_properties(wrong, said.append)
    assert (settings.auto_create_topic_enable, settings.default_topic_queue_nums) == (False, 8)
    assert said == [
        "autoCreateTopicEnable='yes' is neither true nor false: a broker takes false",
        "defaultTopicQueueNums='4 ' is no whole number: a broker takes 8",
    ]
    with pytest.raises(UsageError, match="is neither true nor false"):
        settings_from_properties(wrong)
