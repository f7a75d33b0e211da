"""POP at the broker: messages handed out for a time, acknowledged or revived, in order or not."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.broker.pop.records import Outstanding, PopHandle
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.requests import Suspended
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import RELEASES
from rmqctl.store.message_store import MessageStore
from rmqctl.store.pop.records import REVIVE_GROUP, PopCheckpoint, PopKey
from tests.features import feature_store
from tests.network.callers import Writing, messages, popped, with_header
from tests.network.serving import serving_here

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20)
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
RETRY = "%RETRY%g_T"
Make = Callable[..., Writing]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Brokers with a timer over one store, which look for retries after the topic itself; closed in the end."""
    made: list[Writing] = []

    def one(config: StoreConfig = CONFIG, draw: int = 99, **properties: str) -> Writing:
        if made:
            made[-1].close()
        writing = Writing(tmp_path / "store", config, **properties)
        if made:
            writing.now = made[-1].now
        writing.master.pop.draw = lambda: draw
        made.append(writing)
        return writing

    yield one
    for writing in made:
        writing.close()


def _fields(**more: Any) -> dict[str, Any]:
    fields = {
        "consumerGroup": "g", "topic": "T", "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000, "pollTime": 0,
        "bornTime": 0, "initMode": 0, "order": False,
    }  # fmt: skip
    return fields | more


def _pop(writing: Writing, **more: Any) -> RemotingCommand:
    writing.store.wait_for_dispatch()
    answer = writing.ask(Request.POP_MESSAGE, **_fields(**more))
    writing.store.wait_for_dispatch()
    return answer


def _send(writing: Writing, *bodies: bytes, queue_id: int = 0, **more: Any) -> None:
    for body in bodies:
        assert writing.send("T", body, queue_id, **more).code == 0
    writing.store.wait_for_dispatch()


def _handles(answer: RemotingCommand, broker: str = "broker-a") -> list[tuple[int, int, str]]:
    """Queue, offset and handle of each message that an answer hands out, as clients make them."""
    said = answer.fields
    starts = {tuple(one.split(" ")[:2]): one.split(" ")[2] for one in said["startOffsetInfo"].split(";")}
    found = []
    for one in said["msgOffsetInfo"].split(";"):
        flag, queue_id, offsets = one.split(" ")
        for offset in offsets.split(","):
            parts = (starts[flag, queue_id], said["popTime"], said["invisibleTime"], said["reviveQid"], flag, broker)
            found.append((int(queue_id), int(offset), " ".join((*parts, queue_id, offset))))
    return found


def _ack(writing: Writing, handle: str, *, topic: str = "T", group: str = "g", **more: Any) -> RemotingCommand:
    queue_id, offset = handle.split(" ")[6:8]
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "offset": offset, "extraInfo": handle}
    return writing.ask(more.pop("code", Request.ACK_MESSAGE), **(fields | more))


def _later(writing: Writing, seconds: int) -> None:
    for _ in range(seconds * 2):
        writing.step(500)


def test_what_is_not_acknowledged_comes_again_once(make: Make) -> None:
    writing = make()
    _send(writing, b"a", b"b", b"c", _TAGS="x", _KEYS="k")
    answer = _pop(writing, invisibleTime=10_000)
    assert (answer.code, answer.remark, answer.fields["restNum"]) == (0, "FOUND", "0")
    assert answer.fields["startOffsetInfo"] == "0 0 0"
    assert answer.fields["msgOffsetInfo"] == "0 0 0,1,2"
    assert [one.body for one in messages(answer.body)] == [b"a", b"b", b"c"]
    (first, second, _) = _handles(answer)
    assert _pop(writing).code == 210
    assert _ack(writing, first[2]).code == 0
    assert _ack(writing, second[2]).code == 0
    _later(writing, 11)
    assert writing.stored(RETRY) == []
    _later(writing, 4)
    (again,) = writing.stored(RETRY)
    assert (again.body, again.reconsume_times) == (b"c", 1)
    properties = again.properties()
    assert (properties["ORIGIN_GROUP"], properties["1ST_POP_TIME"]) == ("g", answer.fields["popTime"])
    assert (properties["TAGS"], properties["KEYS"]) == ("x", "k")
    answer = _pop(writing)
    assert answer.fields["startOffsetInfo"] == "1 0 0"
    (message,) = messages(answer.body)
    assert (message.topic, message.body, message.reconsume_times) == ("T", b"c", 1)
    handle = message.properties()["POP_CK"]
    assert handle == _handles(answer)[0][2]
    assert _ack(writing, handle, topic=RETRY).code == 0
    _later(writing, 80)
    assert len(writing.stored(RETRY)) == 1
    assert _pop(writing).code == 210
    assert writing.told == []


def test_many_are_acknowledged_at_once_and_a_handle_counts_only_once(make: Make) -> None:
    writing = make()
    _send(writing, *(b"%d" % number for number in range(6)))
    answer = _pop(writing, invisibleTime=5_000)
    handles = _handles(answer)
    start, popped, invisible, revive, *_ = handles[0][2].split(" ")

    def ack(bits: int, **more: Any) -> int:
        one = {
            "c": "g", "t": "T", "r": "0", "so": int(start), "q": 0, "rq": int(revive), "pt": int(popped),
            "it": int(invisible), "b": base64.b64encode(bits.to_bytes(8, "little")).decode(),
        }  # fmt: skip
        return writing.ask(Request.BATCH_ACK_MESSAGE, {"brokerName": "broker-a", "acks": [one | more]}).code

    assert ack(0b101) == 0
    assert ack(0b101) == 0
    assert ack(0b1, c="other", b="AQ==") == 0
    assert ack(1 << 63) == 0
    assert (ack(1, r="7"), ack(1, b="!"), ack(1, pt="x")) == (1, 1, 1)
    assert writing.ask(Request.BATCH_ACK_MESSAGE, {"acks": []}).code == 208
    writing.store.wait_for_dispatch()
    waiting = [one.properties() for one in writing.stored("rmq_sys_wheel_timer")]
    assert [one["TAGS"] for one in waiting] == ["ck", "bAck"]
    _later(writing, 12)
    assert [one.body for one in writing.stored(RETRY)] == [b"1", b"3", b"4", b"5"]


def test_the_invisible_time_of_a_message_is_changed(make: Make) -> None:
    writing = make()
    _send(writing, b"a", b"b")
    first, second = (one[2] for one in _handles(_pop(writing, invisibleTime=5_000)))
    change = Request.CHANGE_MESSAGE_INVISIBLETIME
    writing.step(1000)
    answer = _ack(writing, first, code=change, invisibleTime=20_000)
    assert (answer.code, answer.fields["invisibleTime"]) == (0, "20000")
    popped_at, queue = answer.fields["popTime"], answer.fields["reviveQid"]
    assert (int(popped_at), queue) == (writing.now, first.split(" ")[3])
    assert _ack(writing, second, code=change, invisibleTime=1_000, suspend=True).code == 0
    # the old handle is none any more
    assert _ack(writing, first, code=change, invisibleTime=1).code == 208
    assert _ack(writing, first).code == 0
    _later(writing, 10)
    (again,) = writing.stored(RETRY)
    assert (again.body, again.reconsume_times) == (b"b", 0)
    _later(writing, 20)
    assert [one.body for one in writing.stored(RETRY)] == [b"b", b"a"]


def test_messages_in_order_block_their_queue(make: Make, tmp_path: Path) -> None:
    writing = make()
    _send(writing, b"a", b"b", b"c")
    ordered = {"order": True, "invisibleTime": 30_000}
    answer = _pop(writing, maxMsgNums=2, attemptId="one", **ordered)
    assert (answer.fields["reviveQid"], answer.fields["orderCountInfo"]) == ("999", "0 0 0")
    assert [one.body for one in messages(answer.body)] == [b"a", b"b"]
    first, second = (one[2] for one in _handles(answer))
    assert _pop(writing, attemptId="two", **ordered).code == 210
    # who comes again with the same attempt gets the same
    again = _pop(writing, maxMsgNums=2, attemptId="one", **ordered)
    assert [one.body for one in messages(again.body)] == [b"a", b"b"]
    first, second = (one[2] for one in _handles(again))
    assert _ack(writing, first).code == 0
    assert _ack(writing, first.replace(" 30000 ", " 1 ").replace("0 1", "0 9", 1)).code == 0
    assert writing.master.offsets.find("g", "T", 0) == 1
    answer = _ack(writing, second, code=Request.CHANGE_MESSAGE_INVISIBLETIME, invisibleTime=5_000)
    assert (answer.code, answer.fields["reviveQid"]) == (0, "999")
    writing = make()
    assert _pop(writing, **ordered).code == 210
    _later(writing, 6)
    answer = _pop(writing, maxMsgNums=1, **ordered)
    assert [one.body for one in messages(answer.body)] == [b"b"]
    assert answer.fields["orderCountInfo"] == "0 qo0%1 1;0 0 1"
    assert _ack(writing, _handles(answer)[0][2]).code == 0
    assert [one.body for one in messages(_pop(writing, **ordered).body)] == [b"c"]
    assert writing.stored(REVIVE) == writing.stored("rmq_sys_wheel_timer") == []
    writing.close()
    table = json.loads((tmp_path / "store/config/consumerOrderInfo.json").read_text().replace("0:{", '"0":{'))["table"]
    assert table["T@g"]["0"]["o"] == [2]


def test_a_pop_waits_until_there_is_something_for_it(make: Make) -> None:
    writing = make()
    _send(writing, b"x", _TAGS="x")
    fields = _fields(pollTime=10_000, bornTime=writing.now, exp="y", expType="TAG")
    held = writing.suspended(Request.POP_MESSAGE, **fields)
    assert held.seconds == 10
    assert {("T", -1), (RETRY, -1)} <= {*held.keys}
    # what is passed over is not looked at again
    assert writing.master.offsets.find("g", "T", 0) == 1
    asked = _fields(queueId=-1)
    assert writing.ask(Request.POLLING_INFO, **asked).fields == {"pollingNum": "1"}
    assert not held.is_news()
    _send(writing, b"x", _TAGS="x")
    assert not held.is_news()
    again = held.answer()
    held.on_end()
    assert isinstance(again, Suspended)
    assert writing.ask(Request.POLLING_INFO, **asked).fields == {"pollingNum": "1"}
    _send(writing, b"y", queue_id=2, _TAGS="y")
    assert again.is_news()
    assert [one.body for one in messages(again.answer().body)] == [b"y"]
    again.on_end()
    late = writing.suspended(Request.POP_MESSAGE, **fields)
    writing.now += 10_000
    answer = late.answer()
    assert (answer.code, answer.remark, answer.fields["msgOffsetInfo"]) == (210, "NO_MESSAGE_IN_QUEUE", "")
    assert _pop(writing, **fields).code == 210
    late.on_end()
    assert writing.master.pop.waiting == {}


def test_a_notification_says_whether_a_pop_would_find_something(make: Make) -> None:
    writing = make(popPollingSize="0")
    writing.master.identity = writing.master.identity._replace(release=RELEASES["5.5.0"])
    _send(writing, b"x", _TAGS="x")
    assert writing.ask(Request.NOTIFICATION, **_fields()).fields == {"hasMsg": "true", "pollingFull": "false"}
    asked = _fields(exp="y", expType="TAG", pollTime=5_000, bornTime=writing.now)
    held = writing.suspended(Request.NOTIFICATION, **asked)
    full = writing.ask(Request.NOTIFICATION, **asked)
    assert full.fields == {"hasMsg": "false", "pollingFull": "true"}
    assert writing.ask(Request.POP_MESSAGE, **asked).code == 209
    _send(writing, b"y", _TAGS="y")
    assert held.is_news()
    assert held.answer().fields["hasMsg"] == "true"
    peeked = writing.ask(Request.PEEK_MESSAGE, **_fields(maxMsgNums=1, queueId=0))
    assert [one.body for one in messages(peeked.body)] == [b"y"]
    assert (peeked.remark, peeked.fields["restNum"]) == ("FOUND", "1")
    assert _pop(writing).code == 0
    assert writing.ask(Request.PEEK_MESSAGE, **_fields()).code == 19


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"maxMsgNums": 33}, 29),
        ({"maxMsgNums": -5}, 210),
        ({"queueId": 4}, 29),
        ({"topic": "None"}, 17),
        ({"consumerGroup": "a b"}, 26),
        ({"exp": "a >", "expType": "SQL92"}, 23),
        ({"exp": "a", "expType": "ELSE"}, 23),
        ({"bornTime": 5}, 210),
        ({"invisibleTime": -1}, 29),
        ({"invisibleTime": (1 << 63) - 1}, 29),
        ({"invisibleTime": (1 << 63) - 1, "order": True}, 29),
        ({"pollTime": 1 << 64}, 1),
    ],
)
def test_a_pop_that_cannot_be_is_refused(make: Make, fields: dict[str, Any], code: int) -> None:
    writing = make()
    _send(writing, b"a")
    assert _pop(writing, **fields).code == code
    assert writing.stored("rmq_sys_wheel_timer") == []


@pytest.mark.parametrize(
    "handle",
    [
        "", "0", "0 1 2 3 4", "x 1 2 3 0 broker-a 0 0", "0 {popped} x {revive} 0 broker-a 0 0",
        "0 {popped} 60000 {revive} 0 broker-b 0 0", "1 {popped} 60000 {revive} 0 broker-a 0 0",
        "0 9223372036854775807 9223372036854775807 7 0 broker-a 0 0", "0 {popped} 60000 999 0 broker-a 0 0",
        "0 {popped} 60000 2147483648 0 broker-a 0 0",
    ],
)  # fmt: skip
@pytest.mark.parametrize("code", [Request.ACK_MESSAGE, Request.CHANGE_MESSAGE_INVISIBLETIME])
def test_a_handle_that_was_not_handed_out_changes_nothing(make: Make, handle: str, code: int) -> None:
    writing = make()
    _send(writing, b"a")
    answer = _pop(writing)
    said = {"popped": answer.fields["popTime"], "revive": answer.fields["reviveQid"]}
    fields: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0, "offset": 0, "invisibleTime": 1}
    for more in ({}, {"consumerGroup": "h"}, {"queueId": 1}, {"offset": 1}, {"offset": -1}, {"queueId": 1 << 30}):
        writing.ask(code, extraInfo=handle.format(**said), **(fields | more))
    writing.store.wait_for_dispatch()
    assert len(writing.stored("rmq_sys_wheel_timer")) == 1
    assert writing.master.offsets.find("g", "T", 0) == 1
    assert writing.master.offsets.find("h", "T", 0) is None


def test_a_restart_knows_what_is_in_flight(make: Make) -> None:
    writing = make()
    _send(writing, b"a", b"b", b"c")
    handles = [one[2] for one in _handles(_pop(writing, invisibleTime=10_000))]
    assert _ack(writing, handles[0]).code == 0
    writing = make()
    writing.step()
    assert _pop(writing).code == 210
    assert _ack(writing, handles[0]).code == _ack(writing, handles[1]).code == 0
    assert len(writing.stored("rmq_sys_wheel_timer")) == 3
    _later(writing, 15)
    writing = make()
    _later(writing, 5)
    assert [one.body for one in writing.stored(RETRY)] == [b"c"]


@pytest.mark.parametrize("is_first", [True, False])
def test_retries_of_the_second_version_come_from_their_own_topic(make: Make, is_first: bool) -> None:
    config = CONFIG._replace(enable_retry_topic_v2=True)
    writing = make(config, draw=0 if is_first else 99)
    _send(writing, b"a")
    assert _pop(writing, invisibleTime=1_000).code == 0
    _later(writing, 5)
    assert [one.body for one in writing.stored("%RETRY%g+T")] == [b"a"]
    _send(writing, b"b")
    answer = _pop(writing, maxMsgNums=1)
    assert answer.fields["startOffsetInfo"] == ("2 0 0" if is_first else "0 0 1")
    assert answer.fields["restNum"] == "1"


def test_each_queue_has_its_own_retries_and_they_go_with_the_topic(make: Make) -> None:
    writing = make(useSeparateRetryQueue="true")
    _send(writing, b"a", queue_id=2)
    assert _pop(writing, invisibleTime=1_000).code == 0
    _later(writing, 5)
    assert [one.body for one in writing.stored(RETRY, 2)] == [b"a"]
    assert [one.body for one in messages(_pop(writing).body)] == [b"a"]
    assert writing.ask(Request.DELETE_TOPIC_IN_BROKER, topic="T").code == 0
    assert writing.master.topics.find(RETRY) is None
    assert writing.master.offsets.find("g", RETRY, 2) is None


def test_a_pop_goes_on_soon_where_it_has_not_looked_at_all(make: Make) -> None:
    writing = make(maxFilterMessageSize="16000")
    _send(writing, *(b"x" for _ in range(900)), _TAGS="x")
    _send(writing, b"y", _TAGS="y")
    held = writing.suspended(Request.POP_MESSAGE, **_fields(pollTime=9_000, exp="y", expType="TAG"))
    assert held.seconds == 0
    assert [one.body for one in messages(held.answer().body)] == [b"y"]


def test_nothing_is_handed_out_without_its_checkpoint(make: Make) -> None:
    writing = make(StoreConfig(mapped_file_size_commit_log=1 << 20, timer_max_delay_sec=1))
    _send(writing, b"a")
    assert _pop(writing, invisibleTime=1_000).code == 0
    writing = make(StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False))
    answer = _pop(writing, consumerGroup="h")
    assert (answer.code, "timerWheelEnable is false" in str(answer.remark)) == (1, True)


@pytest.mark.parametrize(("mode", "expected"), [(0, 0), (1, 2)])
def test_where_a_group_without_an_offset_begins(make: Make, mode: int, expected: int) -> None:
    writing = make(initPopOffsetByCheckMsgInMem="false")
    _send(writing, b"a", b"b", b"c")
    answer = _pop(writing, initMode=mode, consumerGroup="new")
    assert answer.fields["startOffsetInfo"] == f"0 0 {expected}"


def test_a_group_that_is_set_back_pops_from_there(make: Make) -> None:
    writing = make()
    _send(writing, b"a", b"b")
    assert _pop(writing).fields["restNum"] == "0"
    writing.master.offsets.reset("g", "T", 0, 1)
    assert [one.body for one in messages(_pop(writing).body)] == [b"b"]


def test_pops_that_wait_are_answered_over_sockets(tmp_path: Path) -> None:
    """By a message for any queue, by an acknowledgement in order, and by a retry; not by what is for others."""
    answers: dict[str, RemotingCommand] = {}

    def pop(client: Client, **more: Any) -> RemotingCommand:
        fields = _fields(pollTime=20_000, **more)
        return client.ask(broker.address, *with_header(Request.POP_MESSAGE, fields), seconds=30)

    with (
        serving_here(tmp_path / "store", CONFIG, {}) as broker,
        Producer(broker.namesrv) as producer,
        contextlib.ExitStack() as stack,
    ):
        clients = [stack.enter_context(contextlib.closing(Client(broker.namesrv))) for _ in range(3)]
        producer.send(Message("T", b"first"), seconds=30)
        first = pop(clients[0], order=True, invisibleTime=60_000)

        def wait(name: str, client: Client, **more: Any) -> threading.Thread:
            def run() -> None:
                answers[name] = pop(client, **more)

            thread, before = threading.Thread(target=run), broker.broker.pop.waiting.total()
            thread.start()
            until = time.monotonic() + 20
            while broker.broker.pop.waiting.total() <= before and time.monotonic() < until:
                time.sleep(0.01)
            return thread

        threads = [wait("in order", clients[1], order=True), wait("tag", clients[2], exp="y", consumerGroup="h")]
        producer.send(Message("T", b"second"), seconds=30)
        ((message, topic, handle),) = popped(first, "g")
        ack = {"consumerGroup": "g", "topic": topic, "queueId": message.queue_id, "offset": 0, "extraInfo": handle}
        clients[0].ask(broker.address, *with_header(Request.ACK_MESSAGE, ack))
        threads[0].join(25)
        assert [one.body for one in messages(answers["in order"].body)] == [b"second"]
        assert "tag" not in answers
        producer.send(Message("T", b"third", properties={"TAGS": "y"}), seconds=30)
        threads[1].join(25)
        assert [one.body for one in messages(answers["tag"].body)] == [b"third"]
        assert pop(clients[0], consumerGroup="i", invisibleTime=500).code == 0
        retried = wait("retry", clients[1], consumerGroup="i", queueId=0)
        retried.join(25)
        assert messages(answers["retry"].body)[0].reconsume_times == 1
        assert broker.broker.pop.waiting.total() == 0


def test_a_popped_message_goes_to_the_dead_letters(make: Make) -> None:
    """As a proxy has it done, which acknowledges it afterwards."""
    writing = make()
    _send(writing, b"a")
    assert _pop(writing, invisibleTime=1_000).code == 0
    _later(writing, 5)
    ((message, topic, handle),) = popped(_pop(writing), "g")
    fields: dict[str, Any] = {"offset": message.physical_offset, "group": "g", "delayLevel": -1, "maxReconsumeTimes": 0}
    assert writing.ask(Request.CONSUMER_SEND_MSG_BACK, **fields, originTopic="T").code == 0
    assert _ack(writing, handle, topic=topic).code == 0
    _later(writing, 70)
    (dead,) = writing.stored("%DLQ%g")
    assert (dead.body, dead.reconsume_times) == (b"a", 2)
    assert len(writing.stored(RETRY)) == 1


def test_a_queue_with_too_many_messages_in_flight_gives_no_more(make: Make) -> None:
    writing = make(enablePopMessageThreshold="true", popInflightMessageThreshold="2")
    _send(writing, *(bytes([at]) for at in range(5)))
    first = _pop(writing, maxMsgNums=3)
    assert _pop(writing).code == 210
    # a handle that counts no more frees nothing
    for _ in range(2):
        assert _ack(writing, _handles(first)[0][2]).code == 0
    assert len(messages(_pop(writing).body)) == 2
    assert _pop(writing).code == 210


def test_revive_goes_behind_an_acknowledgement_whose_checkpoint_never_comes(make: Make) -> None:
    writing = make(enableSkipLongAwaitingAck="true", reviveAckWaitMs="5000")
    key = PopKey("g", "T", 0, 0, writing.now, "broker-a")
    lost = Outstanding(PopCheckpoint(*key, 1000, (0,)), 0)
    assert writing.master.pop.records.acknowledge(lost, [0], is_batch=False) is not None
    for seconds, expected in ((4, None), (6, 0)):
        _later(writing, seconds)
        assert writing.master.offsets.find(REVIVE_GROUP, REVIVE, 0) == expected


def _copies(opened: MessageStore) -> Counter[str | None]:
    return Counter(one.topic for one in opened.messages() if one.topic.startswith("%RETRY%"))


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_in_flight_in_kvstore_is_revived_or_acknowledged(tmp_path: Path, is_killed: bool) -> None:
    store = feature_store("pop-kv", tmp_path)
    with MessageStore.open(store) as opened:
        expected = [one for one in opened.pop().messages() if one.way == "kv"]
        before = _copies(opened)
    assert expected
    shutil.copytree(store / "kvStore", tmp_path / "kvStore")
    config = StoreConfig(enable_retry_topic_v2=True)

    class Then(Writing):
        def make(self, path: Path) -> None:
            self.now = max(one.popped_timestamp for one in expected)
            super().make(path)

    writing = Then(store, config)
    assert any("kvStore.moved/" in line for line in writing.told)
    if is_killed:  # before the database was renamed
        writing.close()
        shutil.rmtree(store / "kvStore.moved")
        shutil.copytree(tmp_path / "kvStore", store / "kvStore")
        writing = Then(store, config)
    writing.step(0)
    done, *others = expected
    pop = PopHandle(0, done.popped_timestamp, done.visible_timestamp - done.popped_timestamp, 0, "0", "broker-a")
    handle = pop.text(done.queue_id, done.queue_offset)
    assert _ack(writing, handle, topic=done.topic, group=done.group).code == 0
    writing.now = max(one.visible_timestamp for one in expected)
    _later(writing, 15)
    writing.close()
    with MessageStore.open(store) as opened:
        assert not (store / "kvStore").exists()
        copies = _copies(opened)
        assert not [one for one in opened.pop().groups() if one.way != "ordered" and one.in_flight + one.overdue]
    assert copies - before == Counter(one.next_topic for one in others if one.next_topic)


@pytest.mark.parametrize(("key", "expected"), [("true", [3, 2, 1, 0]), ("false", [0, 1, 2, 3])])
def test_queues_are_looked_into_upwards_or_downwards(make: Make, key: str, expected: list[int]) -> None:
    writing = make(draw=0, priorityOrderAsc=key)
    for queue_id in range(4):
        _send(writing, bytes([queue_id]), queue_id=queue_id)
    assert [one.queue_id for one in messages(_pop(writing, topic="T").body)] == expected


@pytest.mark.parametrize("is_read", [True, False])
def test_retries_of_the_first_version_are_read_where_that_is_wanted(make: Make, is_read: bool) -> None:
    writing = make()
    _send(writing, b"a")
    assert _pop(writing, invisibleTime=1000).code == 0
    _later(writing, 10)
    config = CONFIG._replace(enable_retry_topic_v2=True)
    writing = make(config, retrieveMessageFromPopRetryTopicV1=str(is_read).lower())
    assert _pop(writing).code == (0 if is_read else 210)
