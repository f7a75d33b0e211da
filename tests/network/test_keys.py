"""Keys of a broker.conf, one case each: what is seen with RocketMQ's default, and what with another value."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.ha.master import MasterServer, SlaveConnection, SlaveLimits
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.topic_config import TopicConfig
from rmqctl.store.clean.options import options_from_config
from rmqctl.store.config.config import StoreConfig, config_from_properties
from rmqctl.store.config.releases import RELEASES
from tests.network.callers import Peer, Writing, heartbeat, pulling

CONFIG = {"mappedFileSizeCommitLog": "1048576", "timerWheelEnable": "false"}
TIMED = {"timerWheelEnable": "true"}
SLOW = {"disableConsumeIfConsumerReadSlowly": "true"}


class _As550(Writing):
    release = RELEASES["5.5.0"]


class _As498(Writing):
    release = RELEASES["4.9.8"]


def _fill(one: Writing, count: int = 40, body: bytes = bytes(100)) -> None:
    one.broker.topics.put(TopicConfig("Orders", 4, 4))
    one.store.put_many([Message("Orders", body, queue_id=0)] * count)
    one.store.wait_for_dispatch()


def _pulled(one: Writing) -> Any:
    _fill(one)
    return int(one.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0, maxMsgNums=32)).fields["nextBeginOffset"])


def _bytes_pulled(one: Writing) -> Any:
    _fill(one, 10, bytes(20_000))
    return int(one.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0, maxMsgNums=8)).fields["nextBeginOffset"])


def _system_group(one: Writing) -> Any:
    return one.broker.groups.find("CID_RMQ_SYS_TRANS") is not None


def _changes_region(one: Writing) -> Any:
    return one.raw(Request.UPDATE_BROKER_CONFIG, b"regionId=x").code


def _recalled(one: Writing) -> Any:
    handle = one.send("Later", b"x", 0, _TIMER_DELAY_SEC="60").fields["recallHandle"]
    assert one.ask(370, producerGroup="P", topic="Later", recallHandle=handle, brokerName="broker-a").code == 0
    last = one.stored("rmq_sys_wheel_timer")[-1]
    return "Later+" in last.properties()["TIMER_DEL_UNIQKEY"]


def _notified(one: Writing) -> Any:
    """How many times the first member hears of the second, at once and after 15 s."""
    first, second = Peer(), Peer("127.0.0.1:5001")
    one.broker.tick()
    one.ask(Request.HEART_BEAT, heartbeat("c1", "g", Orders="*"), peer=first)
    one.now += 15_000
    one.broker.tick()
    before = len(first.sent)
    one.ask(Request.HEART_BEAT, heartbeat("c2", "g", Orders="*"), peer=second)
    counts = [len(first.sent) - before]
    one.now += 15_000
    one.broker.tick()
    return [*counts, len(first.sent) - before]


def _consumes_after_falling(one: Writing) -> Any:
    _fill(one)
    one.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0, maxMsgNums=1))
    one.step(180_000)
    return one.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0)).code


def _routes(one: Writing) -> Any:
    _fill(one, 1)
    seen = ["Orders" in one.broker.routes()]
    one.now += 5000
    return [*seen, "Orders" in one.broker.routes()]


def _timed_code(one: Writing) -> Any:
    answers = []
    for _ in range(5):
        answers.append(one.send("Later", b"x", 0, _TIMER_DELIVER_MS=one.now + 60_000).code)
        one.step()
    return answers


def _saved_at(one: Writing) -> Any:
    """After how many ms the checkpoint of the timer is there."""
    path = one.store.files.layout.config / "timercheck"
    one.send("Later", b"x", 0, _TIMER_DELAY_SEC="600")
    for passed in range(0, 6000, 500):
        one.step(500)
        one.master.saver.save("nothing", dict).result()
        if path.exists():
            return passed + 500
    return None


def _reset(one: Writing) -> Any:
    _fill(one)
    one.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0, sysFlag=5))
    for queue_id in range(4):
        one.broker.offsets.commit("g", "Orders", queue_id, 0)
    fields: dict[str, Any] = {"topic": "Orders", "group": "g", "timestamp": -1, "isForce": "true"}
    return one.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, **fields).code


def _topics_after_a_pull(one: Writing) -> Any:
    """Whether mqadmin sees a topic that a member pulls and does not announce."""
    _fill(one)
    one.ask(Request.HEART_BEAT, heartbeat("c1", "g", Other="*"))
    one.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0, sysFlag=5, commitOffset=1))
    one.now += 2000
    one.broker.tick()
    return b'"topic":"Orders"' in one.ask(Request.GET_CONSUME_STATS, consumerGroup="g", topic="").body


def _gap_in_sync(one: Writing) -> Any:
    asked: list[int] = []

    def keeping_up(end: int, gap: int) -> int:
        asked.append(gap)
        return 0

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(one.broker.slaves, "keeping_up", keeping_up)
        one.master._slaves_in_sync()
    return asked


def _logical_ratio(one: Writing) -> Any:
    return options_from_config(one.config).logical_forcibly_ratio


def _queue_pause(one: Writing) -> Any:
    return options_from_config(one.config).queue_pause


def _assigned(one: Writing) -> Any:
    _fill(one)
    one.ask(Request.HEART_BEAT, heartbeat("c1", "g", Orders="*"))
    body = {
        "topic": "Orders", "consumerGroup": "g", "clientId": "c1", "strategyName": "AVG", "messageModel": "CLUSTERING",
    }  # fmt: skip
    found = one.content(Request.QUERY_ASSIGNMENT, body)["messageQueueAssignments"]
    return sorted({entry["mode"] for entry in found}), len(found)


CASES: list[tuple[str, dict[str, str], Callable[[Writing], Any], Any, Any]] = [
    ("maxTransferCountOnMessageInDisk=3", {"accessMessageInMemoryMaxRatio": "0"}, _pulled, 8, 3),
    ("maxTransferBytesOnMessageInDisk=41000", {"accessMessageInMemoryMaxRatio": "0"}, _bytes_pulled, 3, 2),
    ("enableCreateSysGroup=false", {}, _system_group, True, False),
    ("configBlackList=regionId", {}, _changes_region, 0, 16),
    ("logicalDiskSpaceCleanForciblyThreshold=0.5", {}, _logical_ratio, 80.0, 50.0),
    ("deleteConsumeQueueFilesInterval=7", {}, _queue_pause, 100, 7),
    ("appendTopicForTimerDeleteKey=true", {**TIMED, "recallMessageEnable": "true"}, _recalled, False, True),
    ("defaultMessageRequestMode=POP", {}, _assigned, (["PULL"], 4), (["POP"], 1)),
    ("realTimeNotifyConsumerChange=false", {}, _notified, [1, 1], [0, 1]),
    ("consumerFallbehindThreshold=100", SLOW, _consumes_after_falling, 0, 16),
    ("diskFallRecorded=false", {**SLOW, "consumerFallbehindThreshold": "100"}, _consumes_after_falling, 16, 0),
    ("disableConsumeIfConsumerReadSlowly=true", {"consumerFallbehindThreshold": "100"}, _consumes_after_falling, 0, 16),
    ("disappearTimeAfterStart=4000", {}, _routes, [True, True], [False, True]),
    ("timerCongestNumEachSlot=1", TIMED, _timed_code, [0] * 5, [0, 0, 1, 1, 1]),
    ("timerFlushIntervalMs=3000", TIMED, _saved_at, 1000, 3000),
    ("useServerSideResetOffset=false", {}, _reset, 0, 206),
    ("subscriptionExpiredTimeout=1000", {}, _topics_after_a_pull, True, False),
    ("haMaxGapNotInSync=5", {}, _gap_in_sync, [268_435_456], [5]),
]


def _made(path: Path, settings: dict[str, str], kind: type[Writing] = _As550) -> Writing:
    properties = {**CONFIG, **settings}
    return kind(path, config_from_properties(properties, "broker.conf"), **properties)


@pytest.mark.parametrize(("setting", "others", "seen", "default", "expected"), CASES, ids=[one[0] for one in CASES])
def test_a_key_takes_effect(
    tmp_path: Path, setting: str, others: dict[str, str], seen: Callable[[Writing], Any], default: Any, expected: Any
) -> None:
    key, _, value = setting.partition("=")
    for number, (settings, wanted) in enumerate(((others, default), ({**others, key: value}, expected))):
        broker = _made(tmp_path / str(number), settings)
        try:
            assert seen(broker) == wanted
        finally:
            broker.close()


def test_of_4_x_another_key_says_which_slaves_keep_up(tmp_path: Path) -> None:
    broker = _made(tmp_path / "store", {"haSlaveFallbehindMax": "7"}, _As498)
    try:
        assert _gap_in_sync(broker) == [7]
    finally:
        broker.close()


@pytest.mark.parametrize(("checks", "code", "offset"), [("false", 20, "90"), ("true", 21, "40")])
def test_a_slave_corrects_offsets_where_that_is_set(tmp_path: Path, checks: str, code: int, offset: str) -> None:
    writing = _made(tmp_path / "store", {})
    try:
        _fill(writing)
        writing.broker.files.config = StoreConfig(broker_role="SLAVE")
        writing.broker.settings = writing.broker.settings._replace(offset_check_in_slave=checks == "true")
        answer = writing.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 90))
        assert (answer.code, answer.fields["nextBeginOffset"]) == (code, offset)
    finally:
        writing.close()


def test_a_slave_gets_no_more_in_a_second_than_set() -> None:
    """haFlowControlEnable with maxHaTransferByteInSecond."""
    server = MasterServer.__new__(MasterServer)
    server.limits = SlaveLimits(batch=80, rate=100)
    ours, theirs = socket.socketpair()
    connection = SlaveConnection(server, ours, "slave")
    with ours, theirs, connection._waker, connection._woken:
        assert connection._allowed() == 80
        connection._sent_since = 80
        assert connection._allowed() == 20
        connection._second -= 1.0
        assert connection._allowed() == 80
        server.limits = SlaveLimits(batch=80)
        assert connection._allowed() == 80
