"""What a broker counts, and what it says of it: 28, 315, 208, 202."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqctl.network.broker.admin import get_runtime_info
from rmqctl.network.broker.settings import Counts
from rmqctl.network.remoting.codec import RemotingCommand, parse_body
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.requests import Asked
from tests.network.callers import Peer, Writing, pulling

CLUSTER = "DefaultCluster"


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store")
    yield made
    made.close()


def _minute(writing: Writing, name: str, key: str) -> tuple[int, float, float]:
    found = writing.content(Request.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)["statsMinute"]
    return found["sum"], found["tps"], found["avgpt"]


def test_puts_and_pulls_are_counted(writing: Writing) -> None:
    for _ in range(20):
        assert writing.send("T", b"x" * 100).code == 0
    size = sum(message.total_size for message in writing.stored("T"))
    assert writing.raw(Request.PULL_MESSAGE, b"", **pulling("T", 0, 0, maxMsgNums=5)).code == 0
    assert writing.raw(Request.PULL_MESSAGE, b"", **pulling("T", 0, 20)).code == 19
    writing.step(10_000)
    assert _minute(writing, "TOPIC_PUT_NUMS", "T") == (20, 2.0, 1.0)
    assert _minute(writing, "TOPIC_PUT_SIZE", "T") == (size, size / 10, size / 20)
    assert _minute(writing, "BROKER_PUT_NUMS", CLUSTER)[:2] == (20, 2.0)
    assert _minute(writing, "GROUP_GET_NUMS", "T@g") == (5, 0.5, 5.0)
    assert _minute(writing, "BROKER_GET_NUMS", CLUSTER)[:2] == (5, 0.5)
    for name, key in (("TOPIC_PUT_NUMS", "none"), ("NONSENSE", "T")):
        answer = writing.ask(Request.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")
    info = writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]
    assert (info["putMessageTimesTotal"], info["putMessageSizeTotal"]) == ("20", str(size))
    assert float(info["putMessageAverageSize"]) == size / 20
    assert (info["msgPutTotalTodayNow"], info["msgGetTotalTodayNow"]) == ("20", "5")
    assert (info["putTps"].split(), info["getFoundTps"].split()) == (["2.0"], ["0.1"])
    assert (info["getMissTps"].split(), info["getTotalTps"].split()) == (["0.1"], ["0.2", "0.0", "0.0"])
    assert info["getTransferredTps"].split() == ["0.5"]
    for version, spelling in ((399, info["getTransferredTps"]), (479, None), (513, None)):
        asked = RemotingCommand(Request.GET_BROKER_RUNTIME_INFO, version=version)
        table = parse_body(get_runtime_info(writing.master, Header(), Asked(asked, Peer())).body)["table"]
        assert table.get("getTransferedTps") == spelling
    assert int(info["sendThreadPoolQueueCapacity"]) > 0
    stats = parse_body(writing.ask(Request.GET_CONSUME_STATS, consumerGroup="g", topic="T").body)
    assert stats["consumeTps"] == 0.5
    assert parse_body(writing.ask(Request.GET_TOPIC_STATS_INFO, topic="T").body)["topicPutTps"] == 2.0


def test_what_waits_is_counted_without_the_request_that_asks(writing: Writing) -> None:
    for slow, waiting in ((1, "0"), (3, "2"), (0, "0")):
        writing.broker.slow_requests = partial(int, slow)
        assert writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]["queryThreadPoolQueueSize"] == waiting


def test_what_is_not_on_disk_yet_is_shown(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """As MixAll#humanReadableByteCount writes a size."""
    for size, text in (
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5.0 TiB")
    ):  # fmt: skip
        monkeypatch.setattr(type(writing.store), "unflushed_bytes", size)
        assert writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]["remainHowManyDataToFlush"] == text


def test_a_delayed_message_counts_for_its_topic_when_it_is_delivered(writing: Writing) -> None:
    writing.send("Later", b"x", _DELAY="1")
    writing.step(500)
    assert writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]["msgPutTotalTodayNow"] == "0"
    assert writing.ask(Request.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="Later").code == 1
    for _ in range(3):
        writing.step(1_000)
    assert _minute(writing, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")[0] == 1
    assert _minute(writing, "TOPIC_PUT_NUMS", "Later")[0] == 1
    assert writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]["msgPutTotalTodayNow"] == "1"


def test_what_is_refused_or_sent_back_is_counted(writing: Writing) -> None:
    writing.send("T", b"x")
    back: dict[str, Any] = {"group": "g", "offset": writing.stored("T")[0].physical_offset}
    assert writing.ask(Request.CONSUMER_SEND_MSG_BACK, **back, delayLevel=0).code == 0
    assert writing.ask(Request.CONSUMER_SEND_MSG_BACK, **back, delayLevel=-1).code == 0
    assert _minute(writing, "SNDBCK_PUT_NUMS", "T@g")[0] == 2
    assert _minute(writing, "DLQ_PUT_NUMS", "T@g")[0] == 1
    assert writing.send("T", b"x" * (5 << 20)).code == 13
    assert writing.content(Request.GET_BROKER_RUNTIME_INFO)["table"]["putMessageFailedTimes"] == "1"


SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000


def test_spans_and_mornings() -> None:
    """A clock that is never set for the spans, the date for the days: neither is the other's."""
    noon = int(datetime(2027, 1, 15, 12).timestamp() * 1000)  # here, so that one midnight follows
    counts = Counts("c", 5, noon)
    for hour in range(30):
        counts.put("T", 0, 10, 100, hour % 3, is_system=False)
        for minute in range(60):
            counts.step(5 + hour * HOUR + minute * MINUTE, noon + hour * HOUR + minute * MINUTE)
    now = 5 + 30 * HOUR
    counts.put("T", 0, 1, 100, 700, is_system=False)
    found = counts.figures("TOPIC_PUT_NUMS", "T", now)
    assert found is not None
    assert [one.sum for one in found] == [1, 11, 241]
    assert counts.put_mornings[1] == 130
    assert counts.put_mornings[0] == 0
    counts.step(now + MINUTE, noon + 30 * HOUR)
    assert counts.put_times[6] == 1
    assert counts.put_percentile(0.99) == 700.0
    assert counts.longest_put == 700
    counts.step(now + 3 * MINUTE, noon + 30 * HOUR)
    assert (sum(counts.put_times), counts.put_percentile(0.99)) == (0, 0.0)


def test_rates_are_those_of_their_spans() -> None:
    counts = Counts("c", 0, 0)
    for second in range(1, 100):
        counts.put("T", 0, 2 if second > 90 else 0, 1, 0, is_system=True)
        counts.step(second * SECOND + second % 7, 0)
    ten, minute, *rest = counts.rates()["putTps"].split(" ")
    assert float(ten) == pytest.approx(1.8, rel=0.02)
    assert float(minute) == pytest.approx(0.3, rel=0.02)
    assert rest == [""]
    assert counts.totals() == (0, 0)
