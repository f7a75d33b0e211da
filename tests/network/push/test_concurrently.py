"""Messages consumed concurrently: what acknowledges, what is retried and when, and what holds pulls back."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeContext, ConsumeStatus, PushSettings
from rmqctl.network.remoting.codec import RequestCode
from tests.network.push.pushing import LIMIT, Pushing, Seen, refuse, wait_until

LATER = ConsumeStatus.RECONSUME_LATER
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
INCOMPRESSIBLE = random.Random(1).randbytes(700_000).hex()
"""A body of which a producer's compression leaves more than half."""


def _delayed(pushing: Pushing, group: str, level: int) -> list[StoredMessage]:
    """Messages of a group that wait at a delay level."""
    found = pushing.stored(SCHEDULE, level - 1)
    return [one for one in found if one.properties().get("REAL_TOPIC") == f"%RETRY%{group}"]


def test_all_is_consumed_and_committed(pushing: Pushing) -> None:
    pushing.send("All", *map(str, range(12)))
    seen = Seen()
    with pushing.consumer("all", "All", seen) as consumer:
        consumer.wait_to_the_end()
        assert consumer.count == 12
    assert sorted(seen.bodies, key=int) == [str(number) for number in range(12)]
    assert set(seen.sizes) == {1}
    assert [pushing.committed("all", "All", queue) for queue in range(4)] == [3, 3, 3, 3]
    # the group goes on where it was
    with pushing.consumer("all", "All", seen) as consumer:
        consumer.wait_to_the_end()
    assert len(seen.messages) == 12
    assert pushing.said == []


@pytest.mark.parametrize("failure", ["later", "none", "raises", "other"])
def test_everything_but_success_is_a_retry(pushing: Pushing, failure: str) -> None:
    def consume(messages: Sequence[StoredMessage], context: ConsumeContext) -> Any:
        seen.concurrently(messages, context)
        if messages[0].reconsume_times:
            return ConsumeStatus.CONSUME_SUCCESS
        if failure == "raises":
            raise ValueError("cannot be consumed")
        return {"later": LATER, "none": None, "other": "CONSUME_SUCCESS"}[failure]

    seen = Seen()
    topic, group = f"Fails-{failure}", f"fails-{failure}"
    pushing.send(topic, "x", queue=0)
    consumer = pushing.consumer(group, topic, seen)
    consumer._service._listener = consume
    with consumer:
        wait_until(lambda: len(seen.messages) == 2)
    first, again = seen.messages
    # it comes in the retry topic, and the callback sees its own topic
    assert (again.topic, again.body, again.reconsume_times) == (topic, b"x", 1)
    assert again.properties()["RETRY_TOPIC"] == topic
    assert again.properties()["ORIGIN_MESSAGE_ID"] == first.message_id
    assert pushing.committed(group, topic) == 1
    assert pushing.committed(group, f"%RETRY%{group}") == 1
    assert [line for line in pushing.said if "ValueError: cannot be consumed" in line] == pushing.said
    assert bool(pushing.said) is (failure == "raises")


def test_without_a_level_the_broker_waits_3_plus_n(pushing: Pushing) -> None:
    pushing.send("Level", "x", queue=0)

    def consume(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeStatus:
        return LATER

    options = MemberOptions("first", dial=pushing.local.dial)
    with PushConsumer(pushing.local.namesrv, "level", {"Level": "*"}, consume, options=options) as consumer:
        consumer.wait_to_the_end()
        assert [one.properties()["DELAY"] for one in _delayed(pushing, "level", 3)] == ["3"]


def test_messages_with_no_retries_left_are_dead_letters(pushing: Pushing) -> None:
    pushing.send("Dead", "x", queue=0)
    seen = Seen(lambda message: LATER)
    with pushing.consumer("dead", "Dead", seen, max_reconsume_times=1):
        wait_until(lambda: pushing.stored("%DLQ%dead"))
    assert [one.reconsume_times for one in seen.messages] == [0, 1]
    (letter,) = pushing.stored("%DLQ%dead")
    assert (letter.body, letter.reconsume_times, letter.properties()["RETRY_TOPIC"]) == (b"x", 2, "Dead")
    # a level of -1 is the dead letters at once
    pushing.send("Dead", "y", queue=1)

    def give_up(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeStatus:
        context.delay_level = -1
        return LATER

    consumer = pushing.consumer("dead", "Dead", seen)
    consumer._service._listener = give_up
    with consumer:
        wait_until(lambda: len(pushing.stored("%DLQ%dead")) == 2)


def test_a_batch_is_acknowledged_in_part(pushing: Pushing) -> None:
    pushing.send("Batch", *"abcde", queue=0)
    got: list[list[str]] = []

    def consume(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeStatus:
        got.append([one.body.decode() for one in messages])
        context.delay_level, context.acknowledged = 1, None if messages[0].reconsume_times else 1
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = pushing.consumer("batch", "Batch", Seen(), batch_size=3)
    consumer._service._listener = consume
    with consumer:
        wait_until(lambda: sum(map(len, got)) == 8)
    assert sorted(got[:2]) == [["a", "b", "c"], ["d", "e"]]
    assert sorted(body for batch in got[2:] for body in batch) == ["b", "c", "e"]


def test_what_the_broker_does_not_take_back_is_sent_as_a_message(pushing: Pushing) -> None:
    pushing.send("Sent", "x", queue=0)
    seen = Seen(lambda message: None if message.reconsume_times else LATER)
    consumer = pushing.consumer("sent", "Sent", seen)
    refuse(consumer, RequestCode.CONSUMER_SEND_MSG_BACK)
    with consumer:
        wait_until(lambda: _delayed(pushing, "sent", 3))
    (waiting,) = _delayed(pushing, "sent", 3)
    properties = waiting.properties()
    assert (waiting.reconsume_times, waiting.body, properties["RETRY_TOPIC"]) == (1, b"x", "Sent")
    assert properties["ORIGIN_MESSAGE_ID"] == seen.messages[0].properties()["UNIQ_KEY"]
    assert {"RECONSUME_TIME", "MAX_RECONSUME_TIMES"} & properties.keys() == set()
    assert pushing.committed("sent", "Sent") == 1
    # with no retries left the broker makes a dead letter of it
    pushing.send("Sent", "y", queue=1)
    consumer = pushing.consumer("sent", "Sent", seen, max_reconsume_times=0)
    refuse(consumer, RequestCode.CONSUMER_SEND_MSG_BACK)
    with consumer:
        wait_until(lambda: pushing.stored("%DLQ%sent"))
    assert [one.body for one in pushing.stored("%DLQ%sent")] == [b"y"]


def test_what_no_broker_takes_is_consumed_here_again(pushing: Pushing, monkeypatch: pytest.MonkeyPatch) -> None:
    pushing.send("Again", "x", "y", queue=0)
    seen = Seen(lambda message: LATER if message.body == b"x" and message.reconsume_times < 2 else None)
    consumer = pushing.consumer("again", "Again", seen, retry_seconds=0.05)
    refuse(consumer, RequestCode.CONSUMER_SEND_MSG_BACK)
    monkeypatch.setattr(consumer._send_back, "send_as_message", lambda message: False)
    with consumer:
        wait_until(lambda: len(seen.messages) == 4)
        consumer.wait_to_the_end()
    assert [one.reconsume_times for one in seen.messages if one.body == b"x"] == [0, 1, 2]
    assert pushing.committed("again", "Again") == 2


def test_a_callback_that_hangs_holds_its_message_for_the_time_out(pushing: Pushing) -> None:
    pushing.send("Hangs", "x", "y", queue=0)
    released = threading.Event()
    seen = Seen(lambda message: LATER if message.body == b"x" and released.wait(LIMIT) else None)
    with pushing.consumer("hangs", "Hangs", seen, consume_timeout=0.2) as consumer:
        wait_until(lambda: _delayed(pushing, "hangs", 3))
        consumer.wait_to_the_end()
        consumer.commit()
        assert pushing.committed("hangs", "Hangs") == 2
        released.set()
        wait_until(lambda: consumer.count == 2)
    # its late verdict does not send it back once more
    assert len(_delayed(pushing, "hangs", 3)) == 1
    assert _delayed(pushing, "hangs", 1) == []


@pytest.mark.parametrize(
    ("limits", "body", "most"),
    [
        ({"pull_threshold_for_queue": 2}, "x", 3),
        ({"pull_threshold_for_topic": 1}, "x", 2),
        ({"pull_threshold_size_for_queue": 1}, INCOMPRESSIBLE, 3),
        ({"concurrent_max_span": 2}, "x", 4),
    ],
)
def test_pulls_wait_while_too_much_is_held(pushing: Pushing, limits: dict[str, Any], body: str, most: int) -> None:
    name = f"Flow-{next(iter(limits))}"
    pushing.send(name, *[body] * 8, queue=0)
    released = threading.Event()
    seen = Seen(lambda message: None if message.queue_offset else released.wait(LIMIT) and None)
    with pushing.consumer(name, name, seen, threads=1, pull_batch_size=1, **limits) as consumer:
        wait_until(lambda: consumer._pulls.held_back > 2)
        (pulls,) = [one for one in consumer._pulls._pulls.values() if one.queue == (("broker-a", 0, name))]
        assert pulls.next_offset == most
        released.set()
        consumer.wait_to_the_end()
    assert len(seen.messages) == 8


def test_no_more_messages_are_handed_out_than_the_limit(pushing: Pushing) -> None:
    pushing.send("Limit", *map(str, range(12)))
    seen = Seen()
    # one thread: with several the limit may leave a message out whose successor is consumed, and comes again
    with pushing.consumer("limit", "Limit", seen, limit=5, batch_size=2, threads=1) as consumer:
        consumer.wait()
    assert len(seen.messages) == 5
    with pushing.consumer("limit", "Limit", seen) as consumer:
        consumer.wait_to_the_end()
    assert sorted(seen.bodies, key=int) == [str(number) for number in range(12)]


def test_a_paused_consumer_pulls_nothing_more(pushing: Pushing) -> None:
    pushing.send("Pauses", "x", queue=0)
    seen = Seen()
    consumer = pushing.consumer("pauses", "Pauses", seen)
    consumer.pause()
    with consumer:
        wait_until(lambda: len(consumer.queues) == 5)
        assert seen.messages == []
        consumer.resume()
        wait_until(lambda: seen.messages)


def test_tags_and_time_choose_messages(pushing: Pushing) -> None:
    pushing.send("Tagged", "a", queue=0, tags="paid")
    pushing.send("Tagged", "b", "c", queue=0, tags="sent")
    seen = Seen()
    with pushing.consumer("tagged", "Tagged", seen, tags="sent || other") as consumer:
        consumer.wait_to_the_end()
    assert sorted(seen.bodies) == ["b", "c"]
    assert pushing.committed("tagged", "Tagged") == 3
    later = pushing.stored("Tagged")[2].store_timestamp
    timed = Seen()
    with pushing.consumer("timed", "Tagged", timed, begin=later) as consumer:
        consumer.wait_to_the_end()
    assert "a" not in timed.bodies or pushing.stored("Tagged")[0].store_timestamp >= later
    assert "c" in timed.bodies
    late = Seen()
    with pushing.consumer("late", "Tagged", late, begin="last") as consumer:
        consumer.wait_to_the_end()
    assert late.messages == []


def test_a_consumer_that_commits_nothing_leaves_the_group_where_it_is(pushing: Pushing) -> None:
    pushing.send("Looks", "x", queue=0)
    for _ in range(2):
        seen = Seen()
        with pushing.consumer("looks", "Looks", seen, commit=False) as consumer:
            consumer.wait_to_the_end()
        assert seen.bodies == ["x"]
    assert pushing.committed("looks", "Looks") is None


def test_an_offset_out_of_range_is_corrected(pushing: Pushing) -> None:
    pushing.send("Moved", "x", queue=0)
    pushing.local.broker.offsets.commit("moved", "Moved", 0, 99)
    seen = Seen()
    with pushing.consumer("moved", "Moved", seen):
        wait_until(lambda: pushing.committed("moved", "Moved") == 1)
        pushing.send("Moved", "y", queue=0)
        wait_until(lambda: seen.bodies == ["y"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": 0},
        {"batch_size": 1025},
        {"pull_batch_size": 0},
        {"concurrent_max_span": 65536},
        {"pull_threshold_for_topic": 0},
        {"max_reconsume_times": -2},
        {"consume_timeout": 0.0},
        {"suspend_seconds": float("nan")},
    ],
)
def test_settings_have_rocketmqs_limits(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        PushSettings(**wrong)


def test_names_and_callbacks_are_checked(pushing: Pushing) -> None:
    for group, topics in (("a b", {"T": "*"}), ("g" * 256, {"T": "*"}), ("g", {}), ("g", {"T": "||"})):
        with pytest.raises(UsageError):
            PushConsumer("local", group, topics, Seen().concurrently)
    with pytest.raises(UsageError, match="one callback"):
        PushConsumer("local", "g", {"T": "*"})
    assert PushSettings(pull_threshold_for_topic=10, pull_threshold_size_for_topic=3).queue_limits(4) == (2, 1)
    assert PushSettings().queue_limits(4) == (1000, 100)
    assert (PushSettings().max_retries(is_orderly=False), PushSettings().max_retries(is_orderly=True)) == (
        16,
        2**31 - 1,
    )
