"""Requests that brokers send to push consumers: their state, their offsets, one message, a reset of offsets."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from rmqctl.network.clients.client import BrokerError, Client
from rmqctl.network.clients.push.push_consumer import PushConsumer
from rmqctl.network.clients.push.settings import ConsumeFigures, ConsumeStatus, OrderlyStatus
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    fastjson,
    parse_body,
    queue_of_key,
)
from tests.network.callers import with_header
from tests.network.push.pushing import LIMIT, Pushing, Seen, wait_until

Code = RequestCode


def ask(pushing: Pushing, code: RequestCode, **fields: Any) -> dict[str, Any]:
    """The broker's answer to an operator, who asks for one of its clients."""
    client = Client(pushing.local.namesrv, pushing.local.dial)
    try:
        return parse_body(client.ask("broker", *with_header(code, fields), seconds=LIMIT).body)
    finally:
        client.close()


def of(consumer: PushConsumer) -> Mapping[str, str]:
    return {"consumerGroup": consumer._member.group, "clientId": consumer.client_id}


def test_a_consumer_says_how_it_is(pushing: Pushing) -> None:
    pushing.send("State", "good", "good", "bad", queue=1)
    seen = Seen(lambda message: ConsumeStatus.RECONSUME_LATER if message.body == b"bad" else None)
    with pushing.consumer("states", "State", seen, tags="* ", threads=3) as consumer:
        consumer.wait_to_the_end()
        info = ask(pushing, Code.GET_CONSUMER_RUNNING_INFO, **of(consumer), jstackEnable="true")
        properties = info["properties"]
        assert (properties["PROP_CONSUME_TYPE"], properties["PROP_CONSUMEORDERLY"]) == ("CONSUME_PASSIVELY", "false")
        assert (properties["consumerGroup"], properties["consumeThreadMax"]) == ("states", "3")
        assert {one["topic"] for one in info["subscriptionSet"]} == {"State", "%RETRY%states"}
        queues = {queue_of_key(key): value for key, value in info["mqTable"].items()}
        queue = queues[MessageQueue("broker-a", 1, "State")]
        assert (queue["commitOffset"], queue["cachedMsgCount"], queue["droped"]) == (3, 0, False)
        status = info["statusTable"]["State"]
        assert status["consumeFailedMsgs"] == 1
        assert (round(status["consumeOKTPS"] * 60), round(status["pullTPS"] * 60)) == (2, 3)
        assert "rebalance-states" in info["jstack"]
        assert "jstack" not in ask(pushing, Code.GET_CONSUMER_RUNNING_INFO, **of(consumer), jstackEnable="false")


def test_a_consumer_says_where_it_is(pushing: Pushing) -> None:
    pushing.send("Where", "x", "y", queue=2)
    with pushing.consumer("places", "Where", Seen()) as consumer:
        consumer.wait_to_the_end()
        content = ask(pushing, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="Where", group="places")
        (table,) = content["consumerTable"].values()
        assert {queue_of_key(key): offset for key, offset in table.items()}[MessageQueue("broker-a", 2, "Where")] == 2
        of_another = RemotingCommand(Code.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "Where", "group": "other"})
        answer = consumer._asked("broker", of_another)
        assert parse_body(answer.result(LIMIT).body)["messageQueueTable"] == {}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("verdict", "in_order", "said"),
    [
        (ConsumeStatus.CONSUME_SUCCESS, False, "CR_SUCCESS"),
        (ConsumeStatus.RECONSUME_LATER, False, "CR_LATER"),
        (OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, True, "CR_LATER"),
        (OrderlyStatus.SUCCESS, True, "CR_SUCCESS"),
        (None, False, "CR_RETURN_NULL"),
        (ValueError("no"), False, "CR_THROW_EXCEPTION"),
    ],
)
def test_one_message_is_consumed_for_an_operator(
    pushing: Pushing, verdict: Any, in_order: bool, said: str, request: pytest.FixtureRequest
) -> None:
    name = f"Directly-{request.node.callspec.id.replace('.', '-')}"
    pushing.send(name, "one", queue=0)
    (stored,) = pushing.stored(name)
    got: list[str] = []

    def decide(messages: Any, context: Any) -> Any:
        got.append(messages[0].body.decode())
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    seen = Seen()
    seen.concurrently = seen.in_order = decide  # type: ignore[method-assign]
    with pushing.consumer(name, name, seen, in_order=in_order, begin="last") as consumer:
        wait_until(lambda: consumer.queues)
        result = ask(pushing, Code.CONSUME_MESSAGE_DIRECTLY, **of(consumer), msgId=stored.message_id)
    assert (result["consumeResult"], result["order"], result["autoCommit"]) == (said, in_order, True)
    assert result.get("remark") == ("ValueError: no" if said == "CR_THROW_EXCEPTION" else None)
    assert got == ["one"]


def test_a_slow_message_holds_up_nothing_else(pushing: Pushing) -> None:
    pushing.send("Slow", "one", queue=0)
    (stored,) = pushing.stored("Slow")
    goes_on = threading.Event()
    seen = Seen(lambda message: None if message.body != b"one" else goes_on.wait(LIMIT) and None)
    with pushing.consumer("slows", "Slow", seen, begin="last") as consumer:
        wait_until(lambda: len(consumer.queues) >= 4)
        done: list[dict[str, Any]] = []
        fields = {**of(consumer), "msgId": stored.message_id}
        asking = threading.Thread(target=lambda: done.append(ask(pushing, Code.CONSUME_MESSAGE_DIRECTLY, **fields)))
        asking.start()
        wait_until(lambda: seen.messages)
        pushing.send("Slow", "two", queue=1)
        wait_until(lambda: seen.bodies == ["one", "two"])
        assert "PROP_CONSUME_TYPE" in ask(pushing, Code.GET_CONSUMER_RUNNING_INFO, **of(consumer))["properties"]
        goes_on.set()
        asking.join(LIMIT)
    assert [one["consumeResult"] for one in done] == ["CR_SUCCESS"]


def test_offsets_are_reset_in_a_running_consumer(pushing: Pushing) -> None:
    pushing.send("Again", *"abc", queue=0)
    seen = Seen()
    with pushing.consumer("resets", "Again", seen, threads=1) as consumer:
        wait_until(lambda: seen.bodies == ["a", "b", "c"])
        # a broker of 5.x sets the offsets itself, and the next pulls say so
        fields = {"topic": "Again", "group": "resets", "timestamp": "0", "isForce": "true"}
        ask(pushing, Code.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
        # a message ends the pull that waits at the broker
        pushing.send("Again", "d", queue=0)
        wait_until(lambda: seen.bodies == [*"abc", *"abcd"])
        # one of 4.x has the members set them
        body = fastjson({"offsetTable": {MessageQueue("broker-a", 0, "Again"): 2}})
        command = RemotingCommand(Code.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "Again", "group": "resets"}, body)
        consumer._asked("broker", command)
        wait_until(lambda: seen.bodies == [*"abc", *"abcd", *"cd"])
    assert pushing.committed("resets", "Again") == 4


def test_a_round_of_sharing_out_before_a_reset_is_dealt_with_keeps_it(pushing: Pushing) -> None:
    """The round finds the dropped queue, commits and removes it: what it commits is the offset of the reset."""
    pushing.send("Rounds", *"abc", queue=0)
    seen = Seen()
    with pushing.consumer("rounds", "Rounds", seen, threads=1) as consumer:
        wait_until(lambda: seen.bodies == ["a", "b", "c"])
        queue = MessageQueue("broker-a", 0, "Rounds")
        # the pull that follows has been sent: it commits as well, and a real answer would have come to it
        wait_until(lambda: consumer._pulls._pulls[queue].next_offset == 3)
        wait_until(lambda: consumer._pulls._pulls[queue].answer is not None)
        moved = RemotingCommand(ResponseCode.PULL_OFFSET_MOVED, {"nextBeginOffset": "0"})

        def round_before_it() -> None:
            consumer._pulls._take(consumer._pulls._pulls[queue], "broker", moved)
            consumer._rebalance.run()

        consumer._background.soon(round_before_it)
        wait_until(lambda: seen.bodies == [*"abc", *"abc"])


def test_requests_for_another_group_or_of_another_kind_are_refused(pushing: Pushing) -> None:
    pushing.send("Other", "x", queue=0)
    with pushing.consumer("others", "Other", Seen()) as consumer:
        for code in (Code.GET_CONSUMER_RUNNING_INFO, Code.CONSUME_MESSAGE_DIRECTLY):
            answer: Any = consumer._asked("broker", RemotingCommand(code, {"consumerGroup": "no"}))
            assert answer.result(LIMIT).remark == "The Consumer Group <no> not exist in this consumer"
        broken = RemotingCommand(Code.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "others"}, b"nothing")
        answer = consumer._asked("broker", broken)
        assert answer.result(LIMIT).code == 1
        assert consumer._asked("broker", RemotingCommand(99)) is None
        with pytest.raises(BrokerError, match="not online"):
            ask(pushing, Code.GET_CONSUMER_RUNNING_INFO, consumerGroup="others", clientId="gone")


def test_figures_are_of_the_last_minute() -> None:
    now = [0.0]
    figures = ConsumeFigures(lambda: now[0])
    figures.consumed("T", 2, 1, 0.5)
    figures.consumed("T", 2, 0, 1.5)
    figures.pulled("T", 30, 0.25)
    assert figures.status("T") == {
        "consumeFailedMsgs": 1, "consumeFailedTPS": 1 / 60, "consumeOKTPS": 4 / 60, "consumeRT": 1000.0,
        "pullRT": 250.0, "pullTPS": 0.5,
    }  # fmt: skip
    now[0] = 60.0
    figures.pulled("T", 6, 0.25)
    assert figures.status("T") == {
        "consumeFailedMsgs": 1, "consumeFailedTPS": 0.0, "consumeOKTPS": 0.0, "consumeRT": 0.0, "pullRT": 250.0,
        "pullTPS": 0.1,
    }  # fmt: skip
    now[0] = 3600.0
    assert figures.status("T")["consumeFailedMsgs"] == 0
