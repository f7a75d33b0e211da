"""Pulling messages, asked without a socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.network.broker.settings import settings_from_properties
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests import goldens, opened
from tests.network.callers import Asking, Writing, frames, heartbeat, pulling

EDGES = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")


@pytest.fixture
def asking() -> Asking:
    return Asking(opened.store_path("broker-real"))


@pytest.fixture(scope="module")
def reader() -> StoreReader:
    return opened.reader("broker-real")


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


@pytest.mark.parametrize(
    "name", ["features", "v4-clean", "innerbatch", "lmq", "cqext", "gap", "torn-zero", "longtopic"]
)
def test_every_queue_of_every_kind_comes_as_the_reader_has_it(name: str) -> None:
    asking, reader = Asking(opened.store_path(name)), opened.reader(name)
    queues = reader.queues()
    assert queues
    for queue in queues:
        offset = queue.min_offset(reader.files.log.min_offset)
        while offset < queue.max_offset:
            expected = reader.get(queue.topic, queue.queue_id, offset)
            answer = asking.ask(Request.PULL_MESSAGE, **pulling(queue.topic, queue.queue_id, offset))
            assert [one[2] for one in frames(answer.body)] == [one.physical_offset for one in expected.messages]
            assert answer.code == (0 if expected.messages else {"OFFSET_FOUND_NULL": 19}.get(expected.status, 20))
            assert int(answer.fields["nextBeginOffset"]) == expected.next_offset > offset
            offset = expected.next_offset


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


def test_sql92_is_matched_by_request_and_by_heartbeat(asking: Asking, reader: StoreReader) -> None:
    asking.broker.settings = settings_from_properties({"enablePropertyFilter": "true"})
    paid = [message.queue_offset for message in reader.get("Orders", 0, 0, tags="pay").messages]
    wanted = {"expressionType": "SQL92", "subscription": "TAGS = 'pay' AND missing IS NULL"}
    answer = asking.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0, **wanted))
    assert [one[1] for one in frames(answer.body)] == paid
    said = heartbeat("c1", "g", Orders=wanted["subscription"], Events="TAGS =")
    for one in said["consumerDataSet"][0]["subscriptionDataSet"]:
        one["expressionType"] = "SQL92"
    assert asking.ask(Request.HEART_BEAT, said).code == 0
    by_heartbeat = {"sysFlag": 0, "subVersion": 7, "subscription": ""}
    again = asking.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0, **by_heartbeat))
    assert again.body == answer.body
    wrong = asking.ask(Request.PULL_MESSAGE, **pulling("Events", 0, 0, **by_heartbeat))
    assert wrong.code == Response.FILTER_DATA_NOT_EXIST


@pytest.mark.parametrize(
    ("kind", "expression", "enabled", "code"),
    [
        ("TAG", "a = ", "false", Response.SUCCESS),
        ("SQL92", "a = 1", "true", Response.SUCCESS),
        ("SQL92", "a = ", "true", Response.SUBSCRIPTION_PARSE_FAILED),
        ("XPATH", "a", "true", Response.SUBSCRIPTION_PARSE_FAILED),
        ("SQL92", "a = 1", "false", Response.SYSTEM_ERROR),
    ],
)
def test_a_filter_is_checked_for_its_client(
    asking: Asking, kind: str, expression: str, enabled: str, code: int
) -> None:
    asking.broker.settings = settings_from_properties({"enablePropertyFilter": enabled})
    wanted = {"topic": "Orders", "subString": expression, "expressionType": kind}
    answer = asking.ask(Request.CHECK_CLIENT_CONFIG, {"clientId": "c", "group": "g", "subscriptionData": wanted})
    assert answer.code == code


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
    assert (held.seconds, held.keys) == (15, (("Events", 3),))
    answer = held.answer()
    assert (answer.code, answer.opaque, answer.flag, answer.fields["nextBeginOffset"]) == (19, 9, 1, "30")
    longest = asking.suspended(
        Request.PULL_MESSAGE, **pulling("Events", 3, 30, sysFlag=6, suspendTimeoutMillis=1 << 40)
    )
    assert longest.seconds == 30


def test_a_hole_in_a_queue_is_not_waited_at(tmp_path: Path) -> None:
    store = goldens.golden("clean", tmp_path)
    reader = StoreReader(StoreFiles(store))
    queue = next(queue for queue in reader.queues() if isinstance(queue, ConsumeQueue) and len(queue.files.files) > 2)
    gone = queue.files.files[1]
    gone.path.unlink()
    answer = Asking(store).ask(
        Request.PULL_MESSAGE, **pulling(queue.topic, queue.queue_id, gone.start_offset // 20, sysFlag=6)
    )
    assert (answer.code, answer.remark) == (19, "OFFSET_FOUND_NULL")
    assert answer.fields["nextBeginOffset"] == str(gone.end_offset // 20)


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


@pytest.mark.parametrize(
    ("properties", "suggested"),
    [
        ({}, (0, 0, 0)),
        ({"accessMessageInMemoryMaxRatio": "0"}, (0, 0, 0)),
        # messages are young; or all are older than what is in memory
        ({"slaveReadEnable": "true"}, (2, 2, 2)),
        ({"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}, (3, 3, 2)),
    ],
)
def test_slaves_are_suggested_for_old_messages(
    tmp_path: Path, properties: dict[str, str], suggested: tuple[int, int, int]
) -> None:
    """The group's brokerId, and whichBrokerWhenConsumeSlowly for what is not in memory; a queue's end is young."""
    asking = Writing(tmp_path / "store", None, **properties)
    try:
        for number in range(3):
            asking.send("Read", b"%d" % number)
        group = {"groupName": "g", "brokerId": 2, "whichBrokerWhenConsumeSlowly": 3}
        assert asking.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group).code == 0
        asking.step()
        pulls = [
            asking.ask(Request.PULL_MESSAGE, **pulling("Read", 0, offset, **more))
            for offset, more in ((0, {}), (1, {"subscription": "none"}), (3, {}))
        ]
        assert [pull.code for pull in pulls] == [0, 20, 19]
        assert tuple(int(pull.fields["suggestWhichBrokerId"]) for pull in pulls) == suggested
    finally:
        asking.close()
