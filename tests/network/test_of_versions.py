"""What a broker does as the version that it names (`--as`): what the real ones did in tests/interop/test_frames.py."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.requests import FAQ
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import RELEASES
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from tests.network.callers import Writing, heartbeat, pulling

Make = Callable[..., Writing]
OF_5 = [name for name, release in RELEASES.items() if not release.is_of_4]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Writing] = []

    def broker(version: str, config: StoreConfig | None = None, **properties: str) -> Writing:
        class Released(Writing):
            release = RELEASES[version]

        made.append(Released(tmp_path / "store", config, **properties))
        return made[-1]

    yield broker
    for one in made:
        one.close()


@pytest.mark.parametrize("version", OF_5)
def test_a_group_that_is_asked_for_is_created(make: Make, version: str) -> None:
    broker = make(version)
    answer = broker.content(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="g-asked-for")
    assert (answer["groupName"], answer["retryMaxTimes"]) == ("g-asked-for", 16)
    table = broker.content(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    assert "g-asked-for" in table
    bad = broker.ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="bad group!")
    assert (bad.code, bad.remark) == (26, "No group in this broker")


@pytest.mark.parametrize("version", OF_5)
def test_no_group_is_created_where_none_may_be(make: Make, version: str) -> None:
    """But those that RocketMQ has for itself (CID_RMQ_SYS_)."""
    broker = make(version, autoCreateSubscriptionGroup="false")
    answer = broker.ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="g-asked-for")
    assert (answer.code, answer.remark) == (26, "No group in this broker")
    assert broker.ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="CID_RMQ_SYS_NEW").code == 0
    table = broker.content(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    assert "g-asked-for" not in table


def test_4_refuses_with_its_own_codes_and_remarks(make: Make) -> None:
    broker = make("4.9.8")
    assert broker.ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="g").code == 3
    assert broker.ask(Request.QUERY_TOPICS_BY_CONSUMER, group="g").code == 3
    unknown = broker.ask(Request.PULL_MESSAGE, **pulling("Nothing", 0, 0))
    assert unknown.code == 17
    assert FAQ not in str(unknown.remark)
    assert "http://rocketmq.apache.org/docs/faq/" in str(unknown.remark)
    # 5.x has 29 for it
    assert broker.send("a b", b"one").code == 1
    # it looks at no name of a group
    assert broker.send("Orders", b"one").code == 0
    broker.store.wait_for_dispatch()
    pull: dict[str, Any] = pulling("Orders", 0, 0, consumerGroup="bad group!")
    assert broker.ask(Request.PULL_MESSAGE, **pull).code == 0


def test_4_keeps_offsets_of_what_it_does_not_know(make: Make) -> None:
    broker = make("4.9.8")
    where: dict[str, Any] = {"consumerGroup": "nobody", "topic": "Nothing", "queueId": 3}
    assert broker.ask(Request.QUERY_CONSUMER_OFFSET, **where, setZeroIfNotFound=False).fields == {"offset": "0"}
    assert broker.ask(Request.UPDATE_CONSUMER_OFFSET, **where, commitOffset=7).code == 0
    assert broker.ask(Request.QUERY_CONSUMER_OFFSET, **where).fields == {"offset": "7"}


def test_4_leaves_resets_of_groups_without_members_to_mqadmin(make: Make) -> None:
    broker = make("4.9.8")
    assert broker.send("Orders", b"one").code == 0
    reset: dict[str, Any] = {"topic": "Orders", "group": "g", "timestamp": -1, "isForce": True}
    answer = broker.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
    assert (answer.code, answer.remark) == (1, "THe consumer group <g> not exist")
    for queue_id in range(broker.broker.topics.find("Orders").write_queue_nums):  # type: ignore[union-attr]
        broker.broker.offsets.commit("g", "Orders", queue_id, 0)
    answer = broker.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
    assert answer.code == 206
    assert answer.remark == "Consumer not online, so can not reset offset, Group: g Topic: Orders Timestamp: -1"
    assert broker.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, **(reset | {"topic": "Nothing"})).code == 1
    broker.ask(Request.HEART_BEAT, heartbeat("me@1", "g", Orders="*"))
    assert broker.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, **reset).code == 0


@pytest.mark.parametrize("version", RELEASES)
def test_messages_get_the_properties_of_the_version(make: Make, version: str) -> None:
    broker = make(version)
    assert broker.send("Orders", b"one", _UNIQ_KEY="U", _WAIT="true").code == 0
    (message,) = broker.stored("Orders")
    own = {"UNIQ_KEY", "CLUSTER"}
    assert {*message.properties()} == (own if version == "4.9.8" else own | {"MSG_REGION", "TRACE_ON", "WAIT"})


def test_messages_of_a_batch_keep_that_they_are_waited_for(make: Make) -> None:
    broker = make("4.9.8")
    item = struct.pack(">iiiii3sh", 4 * 5 + 3 + 2, 0, 0, 5, 3, b"one", 0)
    assert broker.send("Orders", item * 2, batch=True, _WAIT="true").code == 0
    assert [message.properties()["WAIT"] for message in broker.stored("Orders")] == ["true", "true"]


def test_4_has_topics_without_attributes(make: Make) -> None:
    broker = make("4.9.8")
    made: dict[str, Any] = {
        "topic": "Typed",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "attributes": "+message.type=FIFO",
    }
    assert broker.ask(Request.UPDATE_AND_CREATE_TOPIC, **made).code == 0
    assert broker.broker.topics.find("Typed").attributes == {}  # type: ignore[union-attr]


@pytest.mark.parametrize("version", OF_5)
def test_the_count_of_all_stands_beside_them_since_5_5(make: Make, version: str) -> None:
    """Clients of 5.5.0 ask for more pages until they have as many."""
    broker = make(version)
    for code, table, count in (
        (Request.GET_ALL_TOPIC_CONFIG, "topicConfigTable", "totalTopicNum"),
        (Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable", "totalGroupNum"),
    ):
        answer, all_of_them = broker.ask(code), len(broker.content(code)[table])
        assert answer.fields == ({count: str(all_of_them)} if version == "5.5.0" else {})


@pytest.mark.parametrize("version", OF_5)
def test_a_reset_makes_no_retry_topic(make: Make, version: str) -> None:
    """mqadmin finds a group by that topic: consumerProgress knows none that never consumed (17), reset or not."""
    broker = make(version)
    assert broker.send("Orders", b"one").code == 0
    broker.store.wait_for_dispatch()
    broker.broker.group("g-fresh")
    reset = broker.ask(
        Request.INVOKE_BROKER_TO_RESET_OFFSET, topic="Orders", group="g-fresh", timestamp=0, isForce=True
    )
    assert reset.code == 0
    assert broker.broker.offsets.find("g-fresh", "Orders", 0) == 0
    assert broker.ask(Request.CLONE_GROUP_OFFSET, srcGroup="g-fresh", destGroup="g-cloned", topic="Orders").code == 0
    assert broker.broker.offsets.find("g-cloned", "Orders", 0) == 0
    topics = {*broker.broker.routes()}
    assert topics & {"%RETRY%g-fresh", "%RETRY%g-cloned"} == set()
    broker.ask(Request.HEART_BEAT, heartbeat("me@1", "g-fresh", Orders="*"))
    assert "%RETRY%g-fresh" in broker.broker.routes()


@pytest.mark.parametrize(("version", "longest"), [("4.9.8", 255), ("5.3.3", 255), ("5.5.0", 120)])
def test_names_of_groups_are_as_long_as_in_the_version(make: Make, version: str, longest: int) -> None:
    """As TopicValidator#validateGroup of 5.5.0 says it; a client's group is created without words."""
    broker = make(version)
    good, long = "g" * longest, "g" * (longest + 1)
    assert broker.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": good}).code == 0
    refused = broker.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": long})
    assert refused.code == (1 if version == "4.9.8" else 29)
    assert refused.remark == f"The specified group: {long}, is longer than group max length: {longest}"
    if version != "4.9.8":
        assert broker.ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="h" * longest).code == 0
        assert broker.ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="h" * (longest + 1)).code == 26


@pytest.mark.parametrize(("version", "code"), [("4.9.8", 1), ("5.3.3", 0), ("5.5.0", 0)])
def test_a_topic_of_any_name_is_deleted_since_5(make: Make, version: str, code: int) -> None:
    """AdminBrokerProcessor#deleteTopic asks TopicValidator#validateTopic in 4.9.8 alone."""
    assert make(version).ask(Request.DELETE_TOPIC_IN_BROKER, topic="t" * 128).code == code


@pytest.mark.parametrize(
    ("version", "topic", "remark"),
    [
        ("5.3.3", "t" * 128, "The specified topic is longer than topic max length."),
        ("5.3.3", "%DLQ%" + "t" * 123, "The specified topic is longer than topic max length."),
        ("5.5.0", "t" * 128, "The specified topic: TOPIC, is longer than topic max length: 127"),
        ("5.5.0", "%DLQ%" + "t" * 250, None),
        (
            "5.5.0",
            "%DLQ%" + "t" * 251,
            "The specified topic is DLQ or Retry topic: TOPIC, and it's longer than topic max length: 255",
        ),
    ],
)
def test_names_of_topics_are_as_long_as_in_the_version(
    make: Make, version: str, topic: str, remark: str | None
) -> None:
    answer = make(version).ask(
        Request.UPDATE_AND_CREATE_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=1, writeQueueNums=1, perm=6,
        topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False,
    )  # fmt: skip
    assert answer.remark == (remark and remark.replace("TOPIC", topic))


@pytest.mark.parametrize("version", RELEASES)
def test_4_has_no_timer_and_counts_what_is_put_into_its_own_topics(make: Make, version: str) -> None:
    """A delivery time is a property like others, and the message comes at once (DefaultMessageStore of 4.9.8)."""
    broker = make(version, config=StoreConfig(mapped_file_size_commit_log=1 << 20))
    is_of_4 = RELEASES[version].is_of_4
    assert broker.send("Orders", b"one", _TIMER_DELAY_SEC="3600").code == 0
    assert [len(broker.stored(topic)) for topic in ("Orders", TIMER_TOPIC)] == ([1, 0] if is_of_4 else [0, 1])
    figures = broker.content(Request.GET_BROKER_RUNTIME_INFO)["table"]
    assert figures["msgPutTotalTodayNow"] == str(int(is_of_4))
    assert broker.send("Orders", b"two", _DELAY="1").code == 0
    figures = broker.content(Request.GET_BROKER_RUNTIME_INFO)["table"]
    assert figures["msgPutTotalTodayNow"] == ("2" if is_of_4 else "0")
    topics = broker.content(Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)["topicList"]
    assert (TIMER_TOPIC in topics) == (not is_of_4)
