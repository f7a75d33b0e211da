"""What a broker does by itself and goes on with after a restart: offsets, retries, delays, transactions; in process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.message import StoredMessage, decode_message
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.store.answers.undispatched import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.callers import Peer, Writing, heartbeat, pulling

COMMIT, ROLLBACK = 8, 12


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store")
    yield made
    made.close()


def _again(writing: Writing) -> Writing:
    """The broker after an orderly restart."""
    writing.close()
    return Writing(writing.store.files.root, writing.config, **writing.properties)


def _config(writing: Writing, name: str) -> Any:
    writing.master.saver.save("done", dict).result(60)
    return parse_config_json((writing.store.files.root / "config" / name).read_text("utf-8"))


# ---- offsets


def test_offsets_are_written_and_never_beyond_the_log(writing: Writing) -> None:
    writing.ask(Request.HEART_BEAT, heartbeat("c", "g", T="*"))
    for _ in range(3):
        writing.send("T", b"x")
    writing.step()
    where: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    # a young queue: a group that is new misses nothing
    assert writing.ask(Request.QUERY_CONSUMER_OFFSET, **where).fields == {"offset": "0"}
    assert writing.ask(Request.QUERY_CONSUMER_OFFSET, **where, setZeroIfNotFound=False).code == 22
    assert writing.ask(Request.QUERY_CONSUMER_OFFSET, **where | {"queueId": 1}).code == 22
    writing.ask(Request.UPDATE_CONSUMER_OFFSET, commitOffset=2, **where)
    writing.ask(Request.PULL_MESSAGE, **pulling("T", 0, 3, consumerGroup="g", sysFlag=5, commitOffset=3))
    writing.ask(Request.UPDATE_CONSUMER_OFFSET, commitOffset=9, **where | {"queueId": 1})
    writing.step(5_000)
    written = _config(writing, "consumerOffset.json")
    assert written["offsetTable"] == {"T@g": {0: 3, 1: 0}}
    assert written["groupTopicMap"] == {"g": ["T"]}
    again = _again(writing)
    assert again.ask(Request.QUERY_CONSUMER_OFFSET, **where).fields == {"offset": "3"}
    path = again.store.files.root / "config/consumerOffset.json"
    again.close()
    path.write_text(path.read_text("utf-8").replace("{0:3", "{0:7"), "utf-8")
    lost = Writing(path.parents[1])
    assert lost.told == ["g was at 7 of T queue 0, which ends at 3: set back"]
    assert lost.ask(Request.QUERY_CONSUMER_OFFSET, **where).fields == {"offset": "3"}
    lost.close()


def test_a_group_is_reset_to_a_time(writing: Writing) -> None:
    times = []
    for number in range(4):
        times.append(writing.now)
        writing.send("T", b"%d" % number)
        writing.now += 1000
    writing.step()
    writing.ask(Request.HEART_BEAT, heartbeat("c", "g", T="*"))
    where: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    writing.ask(Request.UPDATE_CONSUMER_OFFSET, commitOffset=4, **where)
    reset: dict[str, Any] = {"topic": "T", "group": "g", "isForce": True, "timestamp": times[2]}
    answer = writing.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
    assert b'"queueId":0,"topic":"T"}:2' in answer.body
    # a member that does not know it yet commits what it has consumed
    late = writing.ask(Request.UPDATE_CONSUMER_OFFSET, commitOffset=4, **where)
    assert (late.code, late.remark) == (0, "Offset has been previously reset")
    assert writing.ask(Request.QUERY_CONSUMER_OFFSET, **where).fields == {"offset": "2"}
    moved = writing.ask(Request.PULL_MESSAGE, **pulling("T", 0, 4, consumerGroup="g"))
    assert (moved.code, moved.remark, moved.fields["nextBeginOffset"]) == (21, "OFFSET_RESET", "2")
    assert writing.ask(Request.PULL_MESSAGE, **pulling("T", 0, 2, consumerGroup="g")).code == 0
    assert writing.ask(Request.QUERY_CONSUMER_OFFSET, **where).fields == {"offset": "2"}
    assert writing.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, **reset | {"group": "none"}).code == 26


def test_groups_are_made_and_removed(writing: Writing) -> None:
    body: dict[str, Any] = {"groupName": "slow", "retryMaxTimes": 2, "consumeEnable": False}
    assert writing.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body).code == 0
    assert _config(writing, "subscriptionGroup.json")["subscriptionGroupTable"]["slow"]["retryMaxTimes"] == 2
    writing.send("T", b"x")
    assert writing.ask(Request.PULL_MESSAGE, **pulling("T", 0, 0, consumerGroup="slow")).code == 16
    assert writing.ask(Request.DELETE_SUBSCRIPTIONGROUP, groupName="slow").code == 0
    assert writing.broker.groups.find("slow") is None
    assert writing.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "a b"}).code == 29


# ---- delays and retries


def test_a_delayed_message_comes_when_it_is_due_and_survives_a_restart(writing: Writing) -> None:
    answer = writing.send("T", b"late", 3, _DELAY="2", _TAGS="a", _UNIQ_KEY="F" * 32)
    assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "3", "0")
    writing.send("T", b"later", 3, _DELAY="99")
    writing.step(4_999)
    assert writing.stored("T", 3) == []
    again = _again(writing)
    again.now = writing.now + 1
    again.step()
    again.step()
    (late,) = again.stored("T", 3)
    assert (late.body, late.store_timestamp, late.properties()["DELAY"]) == (b"late", again.now, "2")
    assert late.properties()["REAL_TOPIC"] == "T"
    (waiting,) = again.stored("SCHEDULE_TOPIC_XXXX", 17)
    assert waiting.properties()["DELAY"] == "18"
    assert again.content(Request.GET_ALL_DELAY_OFFSET)["offsetTable"] == {2: 1, 18: 0}
    again.step(10_000)
    assert _config(again, "delayOffset.json")["offsetTable"] == {2: 1, 18: 0}
    # a clock that was set back by a day holds no message back for a day: what cannot be due so late comes at once
    again.set_back = 86_400_000
    again.send("T", b"back", 3, _DELAY="1")
    again.step(1_000)
    assert [one.body for one in again.stored("T", 3)][1:] == [b"back", b"later"]
    again.close()


def _sent_back(writing: Writing, stored: StoredMessage, **more: Any) -> int:
    fields: dict[str, Any] = {"group": "g", "offset": stored.physical_offset, "delayLevel": 0, "unitMode": False}
    return writing.ask(Request.CONSUMER_SEND_MSG_BACK, **fields | more).code


def test_what_is_sent_back_comes_again_and_ends_among_the_dead_letters(writing: Writing) -> None:
    writing.send("T", b"x", _KEYS="k", _UNIQ_KEY="F" * 32)
    (first,) = writing.stored("T")
    assert _sent_back(writing, first, maxReconsumeTimes=2) == 0
    writing.step(9_999)
    assert writing.stored("%RETRY%g") == []
    writing.step(1)
    (second,) = writing.stored("%RETRY%g")
    properties = second.properties()
    assert (second.body, second.reconsume_times, properties["RETRY_TOPIC"], properties["DELAY"]) == (b"x", 1, "T", "3")
    assert (properties["ORIGIN_MESSAGE_ID"], properties["WAIT"]) == (first.message_id, "false")
    assert (properties["UNIQ_KEY"], properties["KEYS"]) == ("F" * 32, "k")
    # a second time: it was delivered once, and is delayed anew, by more
    assert _sent_back(writing, second, maxReconsumeTimes=2) == 0
    writing.step(29_999)
    assert len(writing.stored("%RETRY%g")) == 1
    writing.step(1)
    third = writing.stored("%RETRY%g")[1]
    assert (third.reconsume_times, third.properties()["ORIGIN_MESSAGE_ID"]) == (2, first.message_id)
    assert _sent_back(writing, third, maxReconsumeTimes=2) == 0
    (dead,) = writing.stored("%DLQ%g")
    assert (dead.reconsume_times, dead.properties()["DELAY"], dead.properties()["RETRY_TOPIC"]) == (3, "0", "T")
    assert dead.properties()["REAL_TOPIC"] == "%RETRY%g"
    assert writing.content(Request.GET_TOPIC_CONFIG, topic="%DLQ%g")["perm"] == 6
    assert _sent_back(writing, first, delayLevel=-1) == 0
    assert len(writing.stored("%DLQ%g")) == 2
    assert _sent_back(writing, first, offset=first.physical_offset + 1) == 1
    assert _sent_back(writing, first, group="a b") == 26


def test_retries_that_a_client_sends_itself(writing: Writing) -> None:
    fields: dict[str, Any] = {"_DELAY": "1", "_REAL_TOPIC": "%RETRY%g", "_REAL_QID": "0"}
    assert writing.send("%RETRY%g", b"x", reconsumeTimes=1, **fields).code == 0
    writing.step(999)
    assert writing.stored("%RETRY%g") == []
    writing.step(1)
    assert [one.body for one in writing.stored("%RETRY%g")] == [b"x"]
    assert writing.send("%RETRY%g", b"dead", reconsumeTimes=3, maxReconsumeTimes=2, _DELAY="1").code == 0
    assert [one.body for one in writing.stored("%DLQ%g")] == [b"dead"]
    # a group that consumes in order does not come back to what it gave up
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": "%RETRY%g"}
    writing.ask(Request.LOCK_BATCH_MQ, {"clientId": "c", "consumerGroup": "g", "mqSet": [queue]})
    assert writing.send("%RETRY%g", b"ordered", reconsumeTimes=1).code == 0
    assert writing.stored("%DLQ%g")[1].body == b"ordered"


# ---- transactions


def _half(writing: Writing, body: bytes, **more: Any) -> StoredMessage:
    answer = writing.send("Pay", body, 1, sysFlag=4, _TRAN_MSG="true", _PGROUP="P", **more)
    assert (answer.code, answer.fields["queueId"]) == (0, "1")
    return writing.stored(HALF_TOPIC)[-1]


def _end(writing: Writing, half: StoredMessage, how: int, **more: Any) -> int:
    fields: dict[str, Any] = {
        "producerGroup": "P", "tranStateTableOffset": half.queue_offset, "commitLogOffset": half.physical_offset,
        "commitOrRollback": how, "msgId": "x", "fromTransactionCheck": False,
    }  # fmt: skip
    return writing.ask(Request.END_TRANSACTION, **fields | more).code


def test_a_transaction_is_seen_when_it_is_committed_and_only_then(writing: Writing) -> None:
    half, other = _half(writing, b"yes", _TAGS="a", _DELAY="3"), _half(writing, b"no")
    assert (half.sys_flag, half.properties()["REAL_QID"]) == (0, "1")
    assert writing.stored("Pay", 1) == []
    for wrong in (
        {"producerGroup": "Q"}, {"tranStateTableOffset": 9}, {"commitLogOffset": half.physical_offset + 1},
    ):  # fmt: skip
        assert _end(writing, half, COMMIT, **wrong) == Response.SYSTEM_ERROR
    assert [_end(writing, half, how) for how in (0, COMMIT, COMMIT)] == [0, 0, 0]
    assert _end(writing, other, ROLLBACK) == 0
    (seen,) = writing.stored("Pay", 1)
    assert (seen.body, seen.sys_flag, seen.prepared_transaction_offset) == (b"yes", 8, half.physical_offset)
    assert seen.property_bytes == half.property_bytes
    assert [one.body for one in writing.stored(OP_TOPIC)] == [b"0,", b"1,"]
    assert writing.stored(OP_TOPIC)[0].property_bytes == b"WAIT\x01true\x02TAGS\x01d\x02"
    writing.step(30_000)
    offsets = writing.content(Request.GET_ALL_CONSUMER_OFFSET)["offsetTable"]
    assert offsets[f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS"] == {0: 2}
    assert offsets[f"{OP_TOPIC}@CID_RMQ_SYS_TRANS"] == {0: 2}


def test_producers_are_asked_for_what_has_no_end_even_after_a_restart(writing: Writing) -> None:
    writing.ask(Request.HEART_BEAT, {"clientID": "p", "producerDataSet": [{"groupName": "P"}]})
    ended, half = _half(writing, b"ended"), _half(writing, b"open", _UNIQ_KEY="E" * 32)
    _end(writing, ended, ROLLBACK)
    again = _again(writing)
    again.now = writing.now
    producer = Peer("127.0.0.1:7")
    again.ask(Request.HEART_BEAT, {"clientID": "p", "producerDataSet": [{"groupName": "P"}]}, peer=producer)
    again.step(29_999)
    assert producer.sent == []
    again.step(1)
    (asked,) = producer.sent
    copy = again.stored(HALF_TOPIC)[-1]
    assert (copy.queue_offset, copy.body, copy.properties()["TRANSACTION_CHECK_TIMES"]) == (2, b"open", "1")
    assert (asked.code, asked.flag) == (Request.CHECK_TRANSACTION_STATE, 2)
    assert asked.fields["commitLogOffset"] == str(copy.physical_offset)
    assert asked.fields["tranStateTableOffset"] == "2"
    assert asked.fields["transactionId"] == "E" * 32
    shown = decode_message(asked.body, 0, len(asked.body), None)
    assert (shown.topic, shown.queue_id, shown.body) == ("Pay", 1, b"open")
    assert _end(again, copy, COMMIT, fromTransactionCheck=True) == 0
    assert [one.body for one in again.stored("Pay", 1)] == [b"open"]
    again.step(30_000)
    assert len(producer.sent) == 1
    assert half.body == b"open"
    again.close()


def test_a_transaction_that_nobody_ends_is_given_up(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store", transactionCheckMax="2")
    _half(writing, b"open")
    for _ in range(4):
        writing.step(30_000)
    assert len(writing.stored(HALF_TOPIC)) == 3
    (given_up,) = writing.stored(GIVEN_UP_TOPIC)
    assert (given_up.body, given_up.properties()["TRANSACTION_CHECK_TIMES"]) == (b"open", "2")
    immune = _half(writing, b"immune", _CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    writing.step(30_000)
    assert len(writing.stored(HALF_TOPIC)) == 4
    writing.step(90_000)
    assert len(writing.stored(HALF_TOPIC)) == 5
    assert _end(writing, immune, COMMIT) == Response.ILLEGAL_OPERATION
    writing.close()


# ---- a crash


def test_after_a_crash_everything_goes_on_where_it_was(writing: Writing, tmp_path: Path) -> None:
    writing.ask(Request.HEART_BEAT, heartbeat("c", "g", T="*"))
    writing.send("T", b"x")
    writing.send("T", b"late", _DELAY="2")
    half = _half(writing, b"open")
    writing.step()
    where: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    writing.ask(Request.UPDATE_CONSUMER_OFFSET, commitOffset=1, **where)
    writing.step(5_000)
    _config(writing, "consumerOffset.json")
    # as a kill leaves it: `abort` is there, nothing was closed
    shutil.copytree(writing.store.files.root, tmp_path / "killed")
    with MessageStore.open(tmp_path / "killed") as killed:
        killed.recover()
    again = Writing(tmp_path / "killed")
    again.now = writing.now + 30_000
    assert again.told == []
    again.step()
    assert b"late" in [one.body for one in again.stored("T")]
    assert again.ask(Request.QUERY_CONSUMER_OFFSET, **where).fields == {"offset": "1"}
    # its copy took its place already, and ends with it
    assert len(again.stored(HALF_TOPIC)) == 2
    assert _end(again, half, COMMIT) == 0
    assert _end(again, again.stored(HALF_TOPIC)[1], COMMIT) == 0
    assert [one.body for one in again.stored("Pay", 1)] == [b"open"]
    assert [one.body for one in again.stored(OP_TOPIC)] == [b"0,1,"]
    again.step(30_000)
    assert len(again.stored(HALF_TOPIC)) == 2
    again.close()


def test_what_waited_is_seen_although_its_topic_was_not_written_before_a_kill(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store", StoreConfig(mapped_file_size_commit_log=1 << 20))
    writing.send("Level", b"x", _DELAY="1")
    writing.send("Timed", b"x", _TIMER_DELAY_SEC="1")
    writing.send("Pay", b"x", sysFlag=4, _TRAN_MSG="true", _PGROUP="P")
    writing.close()
    # what a kill leaves that comes before the file is written, and after the messages were acknowledged
    (tmp_path / "store/config/topics.json").unlink()
    (tmp_path / "store/config/topics.json.bak").unlink(missing_ok=True)
    again = Writing(tmp_path / "store", writing.config)
    try:
        again.now = writing.now
        assert again.ask(Request.GET_MAX_OFFSET, topic="Level", queueId=0).fields["offset"] == "0"
        for _ in range(4):
            again.step(1_000)
        assert _end(again, again.stored(HALF_TOPIC)[0], COMMIT) == 0
        again.step()
        for topic in ("Level", "Timed", "Pay"):
            assert again.ask(Request.PULL_MESSAGE, **pulling(topic, 0, 0)).code == 0, topic
        assert {"Level", "Timed", "Pay"} <= set(_config(again, "topics.json")["topicConfigTable"])
        # what nobody is to see any more is delivered, and not seen
        again.send("Level", b"gone", _DELAY="1")
        again.ask(Request.DELETE_TOPIC_IN_BROKER, topic="Level")
        again.step(2_000)
        assert again.ask(Request.PULL_MESSAGE, **pulling("Level", 0, 0)).code == Response.TOPIC_NOT_EXIST
    finally:
        again.close()


def test_levels_without_a_queue_are_not_looked_at(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    plain = writing.master.view

    def view(topic: str, queue_id: int) -> Any:
        if topic == "SCHEDULE_TOPIC_XXXX":
            looked_at.append(queue_id)
        return plain(topic, queue_id)

    monkeypatch.setattr(writing.master, "view", view)
    writing.send("T", b"x")
    writing.step(100)
    looked_at.clear()
    writing.step(100)
    assert looked_at == []
    # its queue is new: it is seen with the next step, and then alone
    writing.send("T", b"late", _DELAY=2)
    writing.step(100)
    looked_at.clear()
    writing.step(5_000)
    assert looked_at == [1]
    found = writing.ask(Request.PULL_MESSAGE, **pulling("T", 0, 1))
    assert found.code == 0
    assert b"late" in found.body


def test_the_status_shows_how_far_delays_are_before_that_is_written(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store")
    try:
        writing.send("Orders", b"x", _DELAY="1")
        writing.step(2_000)
        assert len(writing.stored("Orders")) == 1
        table = writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]
        assert table["scheduleMessageOffset_1"] == "1,1"
        assert not (tmp_path / "store/config/delayOffset.json").exists()
    finally:
        writing.close()
