"""A message that a broker gives to one consumer, as mqadmin's `queryMsgById -g -d` and the dashboard have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import LOCAL_HOST, format_offset_message_id
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.network.remoting.codec import ResponseCode as Response
from rmqctl.network.remoting.requests import Promised
from tests import goldens
from tests.network.callers import Asking, Peer, frames, heartbeat

DIRECTLY = Request.CONSUME_MESSAGE_DIRECTLY


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Asking:
    return Asking(goldens.golden("broker-real", tmp_path_factory.mktemp("store")))


def _wanted(offset: int, client_id: str = "c1") -> dict[str, Any]:
    message_id = format_offset_message_id(LOCAL_HOST, offset)
    return {"consumerGroup": "g-events", "clientId": client_id, "msgId": message_id, "topic": "Events"}


def test_a_message_is_given_to_one_consumer_and_its_answer_handed_on(asking: Asking) -> None:
    member = Peer("127.0.0.1:5001")
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g-events", Events="*"), peer=member)
    message = next(one for one in goldens.truth("broker-real").messages if one["topic"] == "Events")
    before = asking.broker.offsets.as_table()
    wanted = _wanted(message["phyOffset"])
    reply = asking.reply(DIRECTLY, **wanted)
    assert isinstance(reply, Promised)
    sent = member.sent[-1]
    more = {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
    assert (sent.code, sent.fields) == (DIRECTLY, wanted | more)
    assert frames(sent.body) == [(message["queueId"], message["queueOffset"], message["phyOffset"])]
    member.asked.set_result(RemotingCommand(0, body=b'{"consumeResult":"CR_SUCCESS"}', opaque=1, flag=1))
    assert reply.answer() == RemotingCommand(0, body=b'{"consumeResult":"CR_SUCCESS"}', opaque=9, flag=1)
    assert asking.broker.offsets.as_table() == before
    reply = asking.reply(DIRECTLY, **wanted)
    member.asked.set_result(None)
    late = reply.answer()
    assert (late.code, late.remark) == (
        Response.CONSUME_MSG_TIMEOUT, "consumer <g-events> <c1> Timeout: no answer within 10 s",
    )  # fmt: skip


def test_what_cannot_be_given_is_said_and_nobody_asked(asking: Asking) -> None:
    member = Peer("127.0.0.1:5002")
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g-events", Events="*"), peer=member)
    sent = len(member.sent)
    for fields, remark in (
        (_wanted(0, "c9"), "The Consumer <g-events> <c9> not online"),
        (_wanted(1 << 40), "can not find message by the offset, 1099511627776: "),
        (_wanted(0) | {"msgId": "none"}, "message id 'none' is malformed"),
    ):
        answer = asking.ask(DIRECTLY, **fields)
        assert answer.code == Response.SYSTEM_ERROR
        assert (answer.remark or "").startswith(remark)
    assert len(member.sent) == sent


def test_a_damaged_message_is_called_damaged(tmp_path: Path) -> None:
    asking = Asking(goldens.golden("crc-flip-third", tmp_path))
    truth = goldens.truth("crc-flip-third").messages
    damaged = next(one["phyOffset"] for one in truth if not one["checkOk"])
    asking.ask(Request.HEART_BEAT, heartbeat("c1", "g-events", Events="*"))
    answer = asking.ask(DIRECTLY, **_wanted(damaged))
    assert answer.code == Response.SYSTEM_ERROR
    assert f"the message at offset {damaged} is damaged" in (answer.remark or "")
    assert [one.code for one in asking.peer.sent] == [Request.NOTIFY_CONSUMER_IDS_CHANGED][: len(asking.peer.sent)]
