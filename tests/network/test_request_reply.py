"""Request and reply: between clients of ours, and what the broker does with a reply."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import RemoteError, UsageError
from rmqctl.formats.message import Message
from rmqctl.formats.properties import encode_properties
from rmqctl.network.clients.channel import SocketChannel
from rmqctl.network.clients.client import BrokerError
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer, reply_to
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.requests import Promised
from rmqctl.network.serving import LocalBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.callers import Asking, Peer, Writing
from tests.network.serving import serving_here

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
TOPIC = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture(params=["local", "remote"])
def reached(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, object]]:
    if request.param == "local":
        with MessageStore.open(tmp_path / "store", "rw", CONFIG, create=True) as store, LocalBroker(store) as broker:
            yield broker.namesrv, broker.dial
    else:
        with serving_here(tmp_path / "store", CONFIG, {}) as ready:
            yield ready.namesrv, SocketChannel


def test_a_request_gets_its_reply(reached: tuple[str, object]) -> None:
    namesrv, dial = reached
    with Producer(namesrv, "asks", dial) as asker, Producer(namesrv, "replies", dial) as replier:  # type: ignore[arg-type]
        asker.send(Message("Ask", b"plain"))
        got: list[bytes] = []

        def serve() -> None:
            with Consumer(namesrv, "serves", "Ask", begin="first", dial=dial) as consumer:
                until = time.monotonic() + 60
                while len(got) < 3 and time.monotonic() < until:
                    for message in consumer.poll(1):
                        got.append(message.plain_body())
                        if message.properties().get("CORRELATION_ID"):
                            replier.reply(message, b"re: " + message.plain_body()[:9] + b"!" * 5000)
                        else:
                            with pytest.raises(UsageError, match="wants no reply"):
                                replier.reply(message, b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        replies = [asker.request(Message("Ask", body), seconds=30) for body in (b"one", b"two" * 3000)]
        thread.join(60)
        assert [reply.body for reply in replies] == [b"re: one" + b"!" * 5000, b"re: twotwotwo" + b"!" * 5000]
        assert {reply.topic for reply in replies} == {TOPIC}
        assert all(int(reply.properties["PUSH_REPLY_TIME"]) > 0 for reply in replies)
        with pytest.raises(RemoteError, match=r"no consumer has replied within 0\.2 s"):
            asker.request(Message("Ask", b"nobody is there"), seconds=0.2)


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store")
    yield made
    made.close()


def _header(**properties: str) -> dict[str, object]:
    return {
        "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 7, "flag": 3, "reconsumeTimes": 0, "unitMode": False,
        "properties": encode_properties(properties).decode(),
    }  # fmt: skip


def _short(header: dict[str, object]) -> dict[str, object]:
    names = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
    names += "reconsumeTimes unitMode"
    return {letter: header[name] for letter, name in zip("abcdefghijk", names.split(), strict=True)}


@pytest.mark.parametrize("code", [Request.SEND_REPLY_MESSAGE, Request.SEND_REPLY_MESSAGE_V2])
def test_a_reply_is_pushed_and_stored(writing: Writing, code: int) -> None:
    asker = Peer("127.0.0.1:5001")
    writing.ask(Request.HEART_BEAT, {"clientID": "a1", "producerDataSet": [{"groupName": "P"}]}, peer=asker)
    header = _header(REPLY_TO_CLIENT="a1", CORRELATION_ID="c", MSG_TYPE="reply")
    header = _short(header) if code == Request.SEND_REPLY_MESSAGE_V2 else header
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in header.items()}
    reply = writing.processor.reply(RemotingCommand(code, texts, b"re", opaque=9), writing.peer)
    assert isinstance(reply, Promised)
    sent = asker.sent[-1]
    assert (sent.code, sent.body, sent.fields["topic"], sent.fields["flag"]) == (326, b"re", TOPIC, "3")
    assert sent.fields["bornHost"] == writing.peer.remote
    assert f"PUSH_REPLY_TIME\x01{writing.now}" in sent.fields["properties"]
    assert not sent.is_oneway
    asker.asked.set_result(RemotingCommand(0, opaque=1, flag=1))
    answer = reply.answer()
    assert (answer.code, answer.fields["queueOffset"], answer.fields["MSG_REGION"]) == (0, "0", "DefaultRegion")
    (stored,) = writing.stored(TOPIC)
    assert (stored.body, stored.properties()["CORRELATION_ID"], answer.fields["msgId"]) == (
        b"re",
        "c",
        stored.message_id,
    )
    assert "PUSH_REPLY_TIME" not in stored.properties()
    # the one who asked says no, or nothing
    for said in (RemotingCommand(1, opaque=2, flag=1), None):
        reply = writing.processor.reply(RemotingCommand(code, texts, b"re", opaque=9), writing.peer)
        asker.asked.set_result(said)
        answer = reply.answer()  # type: ignore[union-attr]
        assert (answer.code, answer.remark) == (1, "push reply message to a1fail.")
    assert len(writing.stored(TOPIC)) == 3


def test_a_reply_that_no_client_waits_for_is_stored_and_said(writing: Writing) -> None:
    answer = writing.raw(Request.SEND_REPLY_MESSAGE, b"re", **_header(REPLY_TO_CLIENT="gone"))
    assert (answer.code, answer.remark) == (1, "push reply message fail, channel of <gone> not found.")
    answer = writing.raw(Request.SEND_REPLY_MESSAGE, b"re", **_header())
    assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
    assert len(writing.stored(TOPIC)) == 2
    asker = Peer()
    writing.ask(Request.HEART_BEAT, {"clientID": "a1", "producerDataSet": [{"groupName": "P"}]}, peer=asker)
    assert writing.broker.clients.producer("a1") is asker
    writing.ask(Request.UNREGISTER_CLIENT, peer=asker, clientID="a1", producerGroup="P")
    assert writing.broker.clients.producer("a1") is None


def test_a_reply_need_not_be_stored(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store", storeReplyMessageEnable="false")
    answer = writing.raw(Request.SEND_REPLY_MESSAGE, b"re", **_header(REPLY_TO_CLIENT="gone"))
    assert (answer.code, writing.stored(TOPIC)) == (1, [])
    writing.close()


def test_replies_are_refused_by_a_broker_that_reads_only(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", CONFIG, create=True):
        pass
    asking = Asking(tmp_path / "store")
    assert asking.ask(Request.SEND_REPLY_MESSAGE_V2).code == 14


def test_a_reply_to_a_client_that_is_gone_is_an_error(reached: tuple[str, object]) -> None:
    namesrv, dial = reached
    with Producer(namesrv, "replies", dial) as replier:  # type: ignore[arg-type]
        asked = {"CLUSTER": "DefaultCluster", "REPLY_TO_CLIENT": "gone", "CORRELATION_ID": "c"}
        with pytest.raises(BrokerError, match="channel of <gone> not found"):
            replier.send(reply_to(Message("Ask", b"", properties=asked), b"x"), seconds=5)
