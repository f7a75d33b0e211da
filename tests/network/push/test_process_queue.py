"""What is pulled and not consumed: offsets to commit, sizes, spans, locks and expiry (ProcessQueue)."""

from __future__ import annotations

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.push.process_queue import ProcessQueue


def _messages(*offsets: int, size: int = 10) -> list[StoredMessage]:
    blank = (0, b"", 0, 0, b"", 0, 0, 0)
    return [StoredMessage(0, 0, 0, 0, 0, offset, offset * 100, 0, *blank, b"x" * size, "T", b"") for offset in offsets]


def test_the_smallest_offset_in_flight_is_committed() -> None:
    held = ProcessQueue()
    messages = _messages(5, 6, 9)
    assert held.remove(messages) == -1
    assert held.put(messages) is True
    assert (held.count, held.span, held.low) == (3, 4, 5)
    assert held.remove(messages[1:2]) == 5
    assert held.remove(messages[:1]) == 9
    assert not held.holds(messages[0])
    # none is left: the one after the largest ever held
    assert held.remove(messages[2:]) == 10
    assert (held.count, held.mebibytes, held.span, held.low) == (0, 0, 0, None)


def test_a_message_that_is_pulled_twice_counts_once() -> None:
    held = ProcessQueue()
    assert held.put(_messages(1, 2, size=1 << 20)) is True
    # a consumer in order runs already
    assert held.put(_messages(2, 3, size=1 << 20)) is False
    assert (held.count, held.mebibytes) == (3, 3)


def test_in_order_messages_are_taken_committed_and_put_back() -> None:
    held = ProcessQueue()
    held.put(_messages(1, 2, 3))
    first = held.take(2)
    assert [one.queue_offset for one in first] == [1, 2]
    assert (held.count, held.low) == (3, 1)
    held.put_back([one._replace(reconsume_times=one.reconsume_times + 1) for one in first])
    again = held.take(1)
    assert [(one.queue_offset, one.reconsume_times) for one in again] == [(1, 1)]
    assert held.commit() == 2
    held.take(2)
    held.put_back()
    assert held.commit() == -1
    assert [one.queue_offset for one in held.take(9)] == [2, 3]
    assert held.commit() == 4
    assert held.count == 0
    # with nothing to take the consumer ends, and the next put starts one
    assert held.take(1) == []
    assert held.put(_messages(4)) is True


def test_only_the_first_message_expires_and_only_once_its_callback_began() -> None:
    held = ProcessQueue()
    one, two = _messages(1, 2)
    held.put([one, two])
    assert held.expired(100, 5) is None
    held.begin([two], 0)
    assert held.expired(100, 5) is None
    held.begin([one], 90)
    assert held.expired(95, 5) is None
    assert held.expired(95.1, 5) == one
    assert held.remove_expired(two) == -1
    assert held.remove_expired(one) == 2
    assert held.expired(95.1, 5) == two


def test_locks_and_pulls_grow_old() -> None:
    held = ProcessQueue()
    assert not held.has_valid_lock(held.locked_at)
    held.is_locked = True
    assert held.has_valid_lock(held.locked_at + 30)
    assert not held.has_valid_lock(held.locked_at + 30.1)
    assert not held.is_pull_expired(held.pulled_at + 120)
    assert held.is_pull_expired(held.pulled_at + 120.1)


@pytest.mark.parametrize("size", [0, 3])
def test_a_body_of_any_size_is_counted_back(size: int) -> None:
    held = ProcessQueue()
    held.put(_messages(7, size=size))
    held.take(1)
    assert held.commit() == 8
    assert held._size == 0
