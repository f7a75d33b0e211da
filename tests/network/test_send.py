"""What producers send: checked, completed, stored, answered; in process."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.properties import encode_properties
from rmqctl.network.broker import tables as saver
from rmqctl.network.remoting.codec import ONEWAY_FLAG, RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.network.remoting.requests import Promised
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.callers import Writing, heartbeat, pulling, wait_for_end


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store")
    yield made
    made.close()


def test_a_message_is_stored_as_a_broker_stores_it(writing: Writing) -> None:
    answer = writing.send("Orders", b"one", 2, _KEYS="k1 k2", _UNIQ_KEY="F" * 32, _WAIT="true", _TAGS="pay", flag=7)
    assert answer.code == Response.SUCCESS, answer.remark
    (stored,) = writing.stored("Orders", 2)
    assert answer.fields == {
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": stored.message_id, "queueId": "2",
        "queueOffset": "0", "transactionId": "F" * 32,
    }  # fmt: skip
    # the order of a HashMap with 128 buckets, as a real broker was seen to write it
    assert list(stored.properties()) == ["MSG_REGION", "UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT", "TRACE_ON"]
    assert stored.properties()["CLUSTER"] == "DefaultCluster"
    assert (stored.body, stored.flag, str(stored.born_host)) == (b"one", 7, "127.0.0.1:5000")
    assert [one.queue_offset for one in writing.store.query("Orders", "k2", 0, 1 << 60, 5).messages] == [0]
    # the topic that was made for it: four queues as the client asked, of the eight that TBW102 lends
    topic = writing.content(Request.GET_TOPIC_CONFIG, topic="Orders")
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (4, 4, 6)
    assert len(writing.send("Orders", b"two", -1).fields["transactionId"]) == 32


def test_both_forms_of_the_header_and_oneway(writing: Writing) -> None:
    short: dict[str, Any] = {
        "a": "P", "b": "T", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 5, "h": 3, "i": "TAGS\x01x\x02", "j": 2,
        "k": False, "m": False, "n": "broker-a",
    }  # fmt: skip
    assert writing.raw(Request.SEND_MESSAGE_V2, b"short", **short).code == 0
    assert writing.reply(Request.SEND_MESSAGE_V2, flag=ONEWAY_FLAG, **short) is None
    first, second = writing.stored("T", 1)
    assert (first.born_timestamp, first.flag, first.reconsume_times, first.body) == (5, 3, 2, b"short")
    assert second.body == b""


@pytest.mark.parametrize(
    ("topic", "fields", "code"),
    [
        ("a b", {}, Response.INVALID_PARAMETER),
        ("", {}, Response.INVALID_PARAMETER),
        ("x" * 128, {}, Response.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", {}, Response.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {}, Response.NO_PERMISSION),
        ("New", {"defaultTopic": "Nothing"}, Response.TOPIC_NOT_EXIST),
        ("New", {"queueId": 4}, Response.INVALID_PARAMETER),
        ("New", {"queueId": "x"}, Response.SYSTEM_ERROR),
        ("New", {"_DELAY": "x"}, Response.MESSAGE_ILLEGAL),
        ("New", {"_TIMER_DELAY_SEC": "5"}, Response.SYSTEM_ERROR),
        ("New", {"_A": "a" * 32_768}, Response.MESSAGE_ILLEGAL),
    ],
)
def test_what_is_refused(writing: Writing, topic: str, fields: dict[str, Any], code: Response) -> None:
    given = {"queue_id": fields["queueId"], **fields} if "queueId" in fields else fields
    given = {name: value for name, value in given.items() if name != "queueId"}
    answer = writing.send(topic, b"x", **given)
    assert (answer.code, answer.fields.get("TRACE_ON")) == (
        code,
        "true" if code != Response.SYSTEM_ERROR else answer.fields.get("TRACE_ON"),
    )
    assert writing.master.log_end == 0


def test_bodies_that_are_too_large(writing: Writing) -> None:
    assert writing.send("T", b"x" * (4 * 1024 * 1024 + 1)).code == Response.MESSAGE_ILLEGAL


def test_without_automatic_topics(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store", autoCreateTopicEnable="false")
    assert writing.send("New", b"x").code == Response.TOPIC_NOT_EXIST
    made: dict[str, Any] = {
        "topic": "New",
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": 6,
        "attributes": "+message.type=NORMAL",
    }
    assert writing.ask(Request.UPDATE_AND_CREATE_TOPIC, **made).code == 0
    assert writing.send("New", b"x", 1).code == 0
    writing.close()
    again = Writing(tmp_path / "store", autoCreateTopicEnable="false")
    assert again.content(Request.GET_TOPIC_CONFIG, topic="New")["attributes"] == {"message.type": "NORMAL"}
    assert [one.body for one in again.stored("New", 1)] == [b"x"]
    assert again.ask(Request.UPDATE_AND_CREATE_TOPIC, **{**made, "topic": "TBW102"}).code == 29
    assert again.ask(Request.DELETE_TOPIC_IN_BROKER, topic="New").code == 0
    assert again.ask(Request.PULL_MESSAGE, **pulling("New", 1, 0)).code == Response.TOPIC_NOT_EXIST
    again.close()


def test_a_deleted_topic_is_not_seen_and_costs_no_restart(writing: Writing) -> None:
    for body in (b"one", b"two"):
        writing.send("Gone", body)
    writing.ask(Request.HEART_BEAT, heartbeat("c", "g", Gone="*"))
    where: dict[str, Any] = {"consumerGroup": "g", "topic": "Gone", "queueId": 0}
    writing.ask(Request.UPDATE_CONSUMER_OFFSET, commitOffset=2, **where)
    assert writing.ask(Request.DELETE_TOPIC_IN_BROKER, topic="Gone").code == 0
    assert "Gone" not in writing.master.topics.routes()
    writing.close()
    with MessageStore.open(writing.store.files.root) as deleted:
        # a topic that nobody is to see is no topic that somebody forgot
        assert "RMQ-CFG-006" not in {finding.code for finding in deleted.check()}
    again = Writing(writing.store.files.root)
    assert "Gone" not in again.master.topics.routes()
    assert again.ask(Request.PULL_MESSAGE, **pulling("Gone", 0, 0)).code == Response.TOPIC_NOT_EXIST
    assert again.content(Request.GET_ALL_CONSUMER_OFFSET)["offsetTable"] == {}
    assert again.send("Gone", b"three").fields["queueOffset"] == "2"
    assert again.ask(Request.QUERY_CONSUMER_OFFSET, **where).fields == {"offset": "0"}
    again.close()
    last = Writing(writing.store.files.root)
    assert [one.body for one in last.stored("Gone")] == [b"one", b"two", b"three"]
    last.close()


def _batch(*bodies: bytes) -> bytes:
    items = []
    for number, body in enumerate(bodies):
        properties = encode_properties({"KEYS": f"b{number}", "UNIQ_KEY": f"{number:032d}"})
        size = 20 + len(body) + 2 + len(properties)
        items.append(
            struct.pack(">iiiii", size, 0, 0, number, len(body))
            + body
            + struct.pack(">h", len(properties))
            + properties
        )
    return b"".join(items)


def test_a_batch_is_stored_whole_or_not_at_all(writing: Writing) -> None:
    common: dict[str, Any] = {"code": Request.SEND_MESSAGE, "batch": True, "_UNIQ_KEY": "E" * 32, "_WAIT": "true"}
    answer = writing.send("B", _batch(b"0", b"1", b"2"), 1, **common)
    assert answer.code == 0, answer.remark
    stored = writing.stored("B", 1)
    assert answer.fields["msgId"].split(",") == [one.message_id for one in stored]
    assert [(one.body, one.flag, one.properties()["KEYS"]) for one in stored] == [
        (b"0", 0, "b0"), (b"1", 1, "b1"), (b"2", 2, "b2"),
    ]  # fmt: skip
    # properties of their own first, then those of the batch, whose id is the one that counts
    assert {one.properties()["UNIQ_KEY"] for one in stored} == {"E" * 32}
    assert stored[1].property_bytes.startswith(b"KEYS\x01b1\x02UNIQ_KEY\x01" + b"0" * 31 + b"1\x02MSG_REGION")
    end = writing.master.log_end
    for body in (b"", b"\x00\x00\x00\x05", _batch(b"0", b"1")[:-1], _batch(b"x" * 3_000_000, b"y" * 2_000_000)):
        assert writing.send("B", body, 1, **common).code == Response.MESSAGE_ILLEGAL
    assert writing.send("%RETRY%g", _batch(b"0"), **common).code == Response.MESSAGE_ILLEGAL
    assert writing.master.log_end == end


def test_synchronous_sends_share_a_flush_and_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20, flush_disk_type="SYNC_FLUSH")
    writing = Writing(tmp_path / "store", config)
    flush = writing.store._writing._flush
    monkeypatch.setattr(flush, "_group_commit", lambda: None)
    flush.thread._step = lambda: None
    replies = [writing_reply(writing, f"{number}".encode()) for number in range(3)]
    late = writing_reply(writing, b"late")
    assert not any(reply.done.done() for reply in replies)
    flush.flush_now()
    answers = [_answer(reply) for reply in (*replies, late)]
    assert [answer.code for answer in answers] == [0] * 4
    assert [answer.fields["queueOffset"] for answer in answers] == ["0", "1", "2", "3"]
    waiting = writing_reply(writing, b"too late")
    writing.now += 5_000
    writing.master.step()
    answer = _answer(waiting)
    assert (answer.code, answer.fields["queueOffset"]) == (Response.FLUSH_DISK_TIMEOUT, "4")
    flush.flush_now()
    writing.close()


def writing_reply(writing: Writing, body: bytes) -> Promised:
    fields = {
        "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    }  # fmt: skip
    reply = writing.processor.reply(RemotingCommand(Request.SEND_MESSAGE, fields, body), writing.peer)
    assert isinstance(reply, Promised)
    return reply


def _answer(reply: Promised) -> RemotingCommand:
    wait_for_end(reply.done)
    return reply.answer()


def test_pulls_that_wait_hear_of_messages_they_want(writing: Writing) -> None:
    writing.send("T", b"first", _TAGS="a")
    writing.store.wait_for_dispatch()
    waiting: dict[str, Any] = pulling("T", 0, 1, sysFlag=6, subscription="b")
    held = writing.suspended(Request.PULL_MESSAGE, **waiting)
    assert held.keys == (("T", 0),)
    assert not held.is_news()
    writing.send("T", b"second", _TAGS="a")
    writing.store.wait_for_dispatch()
    assert not held.is_news()
    writing.send("T", b"third", _TAGS="b")
    writing.store.wait_for_dispatch()
    assert held.is_news()
    answer = held.answer()
    assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "3")
    assert b"third" in answer.body
    assert b"second" not in answer.body


def test_a_damaged_table_is_not_written_over(tmp_path: Path) -> None:
    Writing(tmp_path / "store").close()
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"):
        path = tmp_path / "store/config" / name
        path.with_name(f"{name}.bak").unlink(missing_ok=True)
        good = path.read_bytes()
        path.write_bytes(good[:20])
        with pytest.raises(Exception, match="does not parse") as refused:
            Writing(tmp_path / "store")
        assert "move it away" in str(getattr(refused.value, "hint", ""))
        assert path.read_bytes() == good[:20]
        path.write_bytes(good)


def test_members_find_their_retry_topic(writing: Writing) -> None:
    assert writing.ask(Request.HEART_BEAT, heartbeat("c", "g", T="*")).code == 0
    assert writing.content(Request.GET_TOPIC_CONFIG, topic="%RETRY%g")["perm"] == 6
    assert writing.content(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")["retryMaxTimes"] == 16


def test_many_new_topics_are_written_once_for_all(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    gate = threading.Event()

    def write(path: Path, content: Any) -> None:
        gate.wait(60)
        written.append(len([name for name in content["topicConfigTable"] if name.startswith("New")]))

    monkeypatch.setattr(saver, "write_config", write)
    for number in range(50):
        assert writing.send(f"New{number}", b"x").code == 0
    gate.set()
    writing.master.save_topics().result(60)
    # the first one may have begun with any number of them
    assert written[-1] == 50
    assert len(written) <= 3


def test_a_broker_without_permission_to_read(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store", brokerPermission="2")
    assert writing.send("T", b"x").code == 0
    refused = writing.ask(Request.PULL_MESSAGE, **pulling("T", 0, 0))
    assert (refused.code, refused.fields) == (Response.NO_PERMISSION, {"forbiddenType": "1"})
    writing.close()
