"""Messages consumed in order, under the broker's lock, and members that take queues over from each other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.push.settings import OrderlyContext, OrderlyStatus
from rmqctl.network.remoting.codec import MessageQueue, RequestCode
from tests.network.push.pushing import LIMIT, Pushing, Seen, refuse, wait_until

SUSPEND = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


def _by_queue(messages: Sequence[StoredMessage]) -> dict[int, list[int]]:
    queues: dict[int, list[int]] = {}
    for message in messages:
        queues.setdefault(message.queue_id, []).append(message.queue_offset)
    return queues


def test_each_queue_comes_in_its_order(pushing: Pushing) -> None:
    pushing.send("Order", *map(str, range(40)))
    running: Counter[int] = Counter()

    def one_at_a_time(message: StoredMessage) -> None:
        running[message.queue_id] += 1
        assert running[message.queue_id] == 1
        running[message.queue_id] -= 1

    seen = Seen(one_at_a_time)
    with pushing.consumer("order", "Order", seen, in_order=True) as consumer:
        consumer.wait_to_the_end()
        assert {queue.topic for queue in consumer.queues} >= {"Order"}
    assert _by_queue(seen.messages) == {queue: list(range(10)) for queue in range(4)}
    assert [pushing.committed("order", "Order", queue) for queue in range(4)] == [10] * 4
    assert pushing.said == []
    # the locks are given up: another client has them at once
    with pushing.consumer("order", "Order", seen, in_order=True) as consumer:
        wait_until(lambda: len([one for one in consumer.queues if one.topic == "Order"]) == 4)


def test_a_failed_message_holds_its_queue_and_is_tried_again(pushing: Pushing) -> None:
    pushing.send("Suspends", *"abc", queue=0)
    pushing.send("Suspends", "other", queue=1)

    def fail_first(message: StoredMessage) -> OrderlyStatus | None:
        if message.body == b"b" and message.reconsume_times == 0:
            return SUSPEND
        if message.body == b"b" and message.reconsume_times == 1:
            raise ValueError("not yet")
        return None

    seen = Seen(fail_first)
    with pushing.consumer("suspends", "Suspends", seen, in_order=True, suspend_seconds=0.01) as consumer:
        consumer.wait_to_the_end()
    assert [body for body in seen.bodies if body != "other"] == ["a", "b", "b", "b", "c"]
    assert [one.reconsume_times for one in seen.messages if one.body == b"b"] == [0, 1, 2]
    assert [line for line in pushing.said if "stays at offset 1: ValueError: not yet" in line] == pushing.said
    assert pushing.stored("%RETRY%suspends") == []


def test_in_order_a_message_is_a_dead_letter_when_its_retries_are_used_up(pushing: Pushing) -> None:
    pushing.send("Order-dead", "a", "b", queue=0)
    seen = Seen(lambda message: SUSPEND if message.body == b"a" else None)
    more: dict[str, Any] = {"max_reconsume_times": 2, "suspend_seconds": 0.01}
    with pushing.consumer("order-dead", "Order-dead", seen, in_order=True, **more) as consumer:
        consumer.wait_to_the_end()
    assert seen.bodies == ["a", "a", "a", "b"]
    wait_until(lambda: pushing.stored("%DLQ%order-dead"))
    (letter,) = pushing.stored("%DLQ%order-dead")
    assert (letter.body, letter.properties()["RETRY_TOPIC"], letter.reconsume_times) == (b"a", "Order-dead", 3)


def test_commit_and_rollback_are_the_callbacks(pushing: Pushing) -> None:
    pushing.send("Manual", *"abcd", queue=0)
    steps = iter([OrderlyStatus.SUCCESS, OrderlyStatus.ROLLBACK, OrderlyStatus.SUCCESS, OrderlyStatus.COMMIT])
    got: list[str] = []

    def consume(messages: Sequence[StoredMessage], context: OrderlyContext) -> OrderlyStatus:
        context.auto_commit, context.suspend_seconds = False, 0.01
        got.extend(one.body.decode() for one in messages)
        return next(steps, OrderlyStatus.SUCCESS)

    consumer = pushing.consumer("manual", "Manual", Seen(), in_order=True)
    consumer._service._listener = consume
    with consumer:
        wait_until(lambda: len(got) == 6)
    # rolled back after two, committed after two, and the rest is not committed
    assert got == ["a", "b", "a", "b", "c", "d"]
    assert pushing.committed("manual", "Manual") == 2


def test_no_two_members_are_on_one_queue_while_queues_move(pushing: Pushing) -> None:
    pushing.send("Moves", *map(str, range(8)))
    released = threading.Event()
    first = Seen(lambda message: released.wait(LIMIT) and None)
    second = Seen()
    one = pushing.consumer("moves", "Moves", first, in_order=True, rebalance_seconds=0.2)
    two = pushing.consumer("moves", "Moves", second, in_order=True, rebalance_seconds=0.2)
    refused: list[MessageQueue] = []
    assert two._locks is not None
    lock = two._locks.lock

    def watched(queue: MessageQueue) -> bool:
        is_locked = lock(queue)
        if queue.topic == "Moves" and not is_locked:
            refused.append(queue)
        return is_locked

    two._locks.lock = watched  # type: ignore[method-assign]
    with one:
        wait_until(lambda: len(first.messages) == 4)
        with two:
            # half of the queues is the second one's, whose callbacks still run at the first one
            wait_until(lambda: sum(held.is_dropped for held in one._member.queues.values()) == 2)
            wait_until(lambda: len(refused) > 2)
            assert second.messages == []
            released.set()
            wait_until(lambda: len({*first.bodies, *second.bodies}) == 8)
            assert second.messages
    # a verdict that comes after the queue was given up does not count: the next owner consumes the message again
    for queue, offsets in _by_queue(second.messages).items():
        assert offsets == sorted(offsets)
        assert set(_by_queue(first.messages)[queue] + offsets) == {0, 1}


def test_without_a_valid_lock_nothing_is_consumed(pushing: Pushing) -> None:
    pushing.send("Locked", *"ab", queue=0)
    seen = Seen()
    consumer = pushing.consumer("locked", "Locked", seen, in_order=True)
    refuse(consumer, RequestCode.LOCK_BATCH_MQ)
    with consumer:
        wait_until(lambda: any("Locked queue 0 cannot be locked" in line for line in pushing.said))
        assert consumer.queues == []
        del consumer._client.ask
        wait_until(lambda: seen.bodies == ["a", "b"])
        (held,) = [held for queue, held in consumer._member.queues.items() if queue[1:] == (0, "Locked")]
        # what another member has by now is left alone, whatever was pulled
        held.is_locked = False
        pushing.send("Locked", "c", queue=0)
        wait_until(lambda: seen.bodies == ["a", "b", "c"])
        assert held.is_locked
