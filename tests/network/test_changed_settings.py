"""Settings that mqadmin changes while a broker runs (UPDATE_BROKER_CONFIG): all that a request names, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.network.broker.settings import BrokerSettings, is_changeable
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from tests.network.callers import Writing, pulling

CHANGE = Request.UPDATE_BROKER_CONFIG


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store", brokerPermission="6")
    yield made
    made.close()


def _change(writing: Writing, *lines: str) -> RemotingCommand:
    return writing.raw(CHANGE, "\n".join(lines).encode())


def test_a_broker_can_be_drained(writing: Writing) -> None:
    """Producers learn it from the route, and who sends in spite of it is refused as a broker refuses."""
    assert writing.send("Orders", b"one").code == 0
    assert writing.broker.routes()["Orders"].perm == 6
    assert _change(writing, "# no more messages", "brokerPermission=4").code == 0
    assert writing.broker.routes()["Orders"].perm == 4
    assert writing.ask(Request.CONSUMER_SEND_MSG_BACK, offset=0, group="g", delayLevel=0).code == Response.NO_PERMISSION
    assert b"brokerPermission=4\n" in writing.ask(Request.GET_BROKER_CONFIG).body
    assert _change(writing, "brokerPermission=2").code == 0
    assert writing.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0)).code == Response.NO_PERMISSION
    assert _change(writing, "brokerPermission=6").code == 0
    writing.store.wait_for_dispatch()
    assert writing.ask(Request.PULL_MESSAGE, **pulling("Orders", 0, 0)).code == 0
    assert writing.broker.routes()["Orders"].perm == 6
    assert len(writing.told) == 3
    assert "127.0.0.1:5000 has changed settings, until this broker ends: brokerPermission=4" in writing.told[0]


def test_topics_and_groups_are_made_or_not_from_then_on(writing: Writing) -> None:
    off = ("autoCreateTopicEnable=false", "autoCreateSubscriptionGroup=false")
    assert _change(writing, *off).code == 0
    assert writing.send("New", b"one").code == Response.TOPIC_NOT_EXIST
    assert writing.ask(Request.PULL_MESSAGE, **pulling("New", 0, 0, consumerGroup="new")).code == 26
    assert _change(writing, *(line.replace("false", "true") for line in off)).code == 0
    assert writing.send("New", b"one").code == 0
    assert writing.ask(Request.PULL_MESSAGE, **pulling("New", 0, 0, consumerGroup="new")).code != 26


def test_a_broker_that_began_without_made_topics_can_have_them(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store", autoCreateTopicEnable="false")
    try:
        assert writing.send("New", b"one").code == Response.TOPIC_NOT_EXIST
        assert _change(writing, "autoCreateTopicEnable=true").code == 0
        assert writing.send("New", b"one").code == 0
    finally:
        writing.close()


@pytest.mark.parametrize(
    ("line", "code", "remark"),
    [
        ("rocketmqHome=/tmp", 16, "Can not update config in black list."),
        ("storePathRootDir=/tmp", 16, "storePathRootDir cannot be changed while the broker runs"),
        ("defaultTopicQueueNums=4", 16, "defaultTopicQueueNums cannot be changed while the broker runs"),
        ("nonsense=1", 16, "nonsense cannot be changed while the broker runs"),
        ("fileReservedTime=1", 16, "this broker removes no files"),
        ("transactionCheckMax=many", 29, "transactionCheckMax='many' is no whole number"),
        ("regionId=a\x01b", 29, "regionId"),
        # as java.util.Properties has it: a key without a value
        ("nothing", 16, "nothing cannot be changed while the broker runs"),
        ("regionId=\\u00zz", 29, "Malformed"),
    ],
)
def test_all_of_a_request_counts_or_none(writing: Writing, line: str, code: int, remark: str) -> None:
    answer = _change(writing, "transactionCheckMax=3", line)
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert writing.broker.settings == BrokerSettings()
    assert "transactionCheckMax" not in writing.broker.properties
    assert writing.told == []


def test_nothing_to_change_is_done(writing: Writing) -> None:
    assert _change(writing).code == 0
    assert writing.told == []


def test_files_expire_by_what_was_said_last(tmp_path: Path) -> None:
    """Whoever sees the disk fill has the old files go, without an end of the broker."""
    writing = Writing(tmp_path / "store")
    try:
        writing.store._writer.start_cleaning()  # type: ignore[union-attr]
        service = writing.store._writer._clean  # type: ignore[union-attr]
        assert service is not None
        assert _change(writing, "deleteWhen=25", "fileReservedTime=x").code == Response.INVALID_PARAMETER
        assert (writing.store.files.config.file_reserved_time, writing.store.files.config.delete_when) == (72, "04")
        # an hour that never comes, as a broker takes it
        assert _change(writing, "deleteWhen=25").code == 0
        service.step()
        assert service._scheduled is not None
        assert service._scheduled.options.hours() == frozenset()
        assert _change(writing, "fileReservedTime=1", "deleteWhen=00;12").code == 0
        service.step()
        assert service._scheduled is not None
        options = service._scheduled.options
        assert (options.reserved_time, options.delete_when, options.scheduled) == (3_600_000, "00;12", True)
        assert _change(writing, "cleanResourceInterval=1").code == Response.NO_PERMISSION
    finally:
        writing.close()


def test_every_setting_that_counts_once_is_refused() -> None:
    refused = {"clusterTopicEnable", "brokerTopicEnable", "traceTopicEnable", "mappedFileSizeTimerLog"}
    assert not any(is_changeable(key) for key in {*refused, "defaultTopicQueueNums", "flushDiskType", ""})


def test_the_black_list_is_that_of_broker_conf(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store", configBlackList="regionId;traceOn")
    try:
        assert _change(writing, "regionId=x").remark == "Can not update config in black list."
        assert _change(writing, "slaveReadEnable=true").code == 0
    finally:
        writing.close()
