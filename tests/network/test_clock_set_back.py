"""A broker whose wall clock is set back or forward while it runs: what has to happen after some time still does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode
from rmqctl.store.answers.undispatched import HALF_TOPIC
from rmqctl.store.config.config import StoreConfig
from tests.network.callers import Peer, Writing, heartbeat

HOUR = 3_600_000
STEPS = [HOUR, -HOUR, 400 * 24 * HOUR]
"""By how many ms the clock is set back; forward if negative."""


class Stepped(Writing):
    """A broker whose clock is going to be set back by `back` ms."""

    def __init__(self, path: Path, back: int) -> None:
        super().__init__(path, StoreConfig(mapped_file_size_commit_log=1 << 20))
        self.back = back

    def set_clock(self) -> None:
        """Set the wall clock; the time that passes is not affected."""
        self.set_back = self.back

    def saved(self, name: str) -> Any:
        """Return the content of a file of config/; {} where it is not there."""
        self.master.saver.save("done", dict).result(60)
        path = self.store.files.layout.config / name
        return parse_config_json(path.read_text("utf-8")) if path.exists() else {}


@pytest.fixture(params=STEPS)
def writing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stepped]:
    made = Stepped(tmp_path / "store", request.param)
    yield made
    made.close()


def test_offsets_of_groups_are_saved_when_they_are_due(writing: Stepped) -> None:
    writing.ask(Request.HEART_BEAT, heartbeat("c", "g", T="*"))
    writing.send("T", b"x")
    writing.set_clock()
    writing.ask(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0, commitOffset=1)
    writing.step(4_999)
    assert "T@g" not in writing.saved("consumerOffset.json").get("offsetTable", {})
    writing.step(1)
    assert writing.saved("consumerOffset.json")["offsetTable"]["T@g"] == {0: 1}


def test_offsets_of_delay_levels_are_saved_when_they_are_due(writing: Stepped) -> None:
    writing.send("T", b"late", _DELAY="1")
    writing.step(1_000)
    assert len(writing.stored("T")) == 1
    writing.set_clock()
    writing.step(8_999)
    assert writing.saved("delayOffset.json").get("offsetTable", {}) == {}
    writing.step(1)
    assert writing.saved("delayOffset.json")["offsetTable"] == {1: 1}


def test_the_timer_is_saved_when_it_is_due(writing: Stepped) -> None:
    def checkpoint() -> bytes:
        writing.master.saver.save("done", dict).result(60)
        return (writing.store.files.layout.config / "timercheck").read_bytes()

    writing.send("T", b"late", _TIMER_DELAY_SEC="2")
    writing.step(4_000)
    assert len(writing.stored("T")) == 1
    writing.set_clock()
    before = checkpoint()
    writing.send("T", b"later", _TIMER_DELAY_SEC="2")
    writing.step(999)
    assert checkpoint() == before
    writing.step(1)
    assert checkpoint() != before


def test_a_silent_client_is_sent_away_and_one_that_speaks_stays(writing: Stepped) -> None:
    writing.ask(Request.HEART_BEAT, heartbeat("silent", "g", T="*"), peer=Peer("127.0.0.1:1"))
    writing.ask(Request.HEART_BEAT, heartbeat("stays", "g", T="*"), peer=Peer("127.0.0.1:2"))
    writing.set_clock()
    writing.now += 60_000
    writing.ask(Request.HEART_BEAT, heartbeat("stays", "g", T="*"), peer=Peer("127.0.0.1:2"))

    def members() -> list[str]:
        writing.broker.tick()
        found = writing.content(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
        return sorted(found["consumerIdList"])

    assert members() == ["silent", "stays"]
    writing.now += 60_001
    assert members() == ["stays"]


def test_a_lock_of_a_queue_is_held_for_a_minute(writing: Stepped) -> None:
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": "T"}

    def lock(client: str) -> bool:
        body = {"clientId": client, "consumerGroup": "g", "mqSet": [queue]}
        return bool(writing.content(Request.LOCK_BATCH_MQ, body)["lockOKMQSet"])

    writing.send("T", b"x")
    assert lock("one")
    writing.set_clock()
    writing.now += 60_000
    assert not lock("two")
    writing.now += 1
    assert lock("two")


def test_producers_are_asked_about_transactions_when_it_is_time(writing: Stepped) -> None:
    producer = Peer("127.0.0.1:7")
    writing.ask(Request.HEART_BEAT, {"clientID": "p", "producerDataSet": [{"groupName": "P"}]}, peer=producer)
    writing.send("Pay", b"open", sysFlag=4, _TRAN_MSG="true", _PGROUP="P")
    writing.set_clock()
    writing.step(29_999)
    assert producer.sent == []
    writing.step(1)
    assert len(producer.sent) == 1
    assert len(writing.stored(HALF_TOPIC)) == 2


def test_a_put_waits_for_the_disk_as_long_as_it_is_to(writing: Stepped) -> None:
    from rmqctl.network.remoting.requests import PutWait

    wait = PutWait(writing.broker.elapsed())
    wait.wait_for(ResponseCode.FLUSH_DISK_TIMEOUT, 5_000)
    writing.master._put_waits[wait] = None
    writing.set_clock()
    writing.step(4_999)
    assert not wait.done()
    writing.step(1)
    assert wait.done()
    assert wait.code == ResponseCode.FLUSH_DISK_TIMEOUT


def test_the_running_time_is_what_has_passed(writing: Stepped) -> None:
    writing.set_clock()
    writing.now += 61_000
    found = writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]
    assert found["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"
    assert found["bootTimestamp"] == "1800000000000"
