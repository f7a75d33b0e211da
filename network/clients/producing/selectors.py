"""Choice of a queue by the caller: by a key, at random, by machine room (MessageQueueSelector)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Sequence

from rmqctl.formats.errors import UsageError
from rmqctl.formats.hashing import java_hash
from rmqctl.formats.message import Message
from rmqctl.network.remoting.fastjson import MessageQueue

Select = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Returns one of the queues of a message's topic."""

_INT = 1 << 31
_ROOM_SEPARATOR = "@"


def by_hash(key: str | int) -> Select:
    """Return the selector of one queue for one key, the same as a Java client's (SelectMessageQueueByHash)."""
    code = java_hash(key) if isinstance(key, str) else _number_hash(key)

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[abs(code) % len(queues)]

    return select


def by_random() -> Select:
    """Return a selector of random queues (SelectMessageQueueByRandom)."""
    return lambda queues, message: random.choice(queues)


def by_machine_room(rooms: Collection[str]) -> Select:
    """Return a selector of queues in turn, of brokers named `room@name` with a room of `rooms`.

    RocketMQ's own SelectMessageQueueByMachineRoom selects nothing, and its sends fail. Names of brokers are read as its
    consumers do (AllocateMessageQueueByMachineRoom).
    """
    turn = itertools.count()

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        near = [
            queue
            for queue in queues
            if _ROOM_SEPARATOR in queue.broker_name and queue.broker_name.split(_ROOM_SEPARATOR)[0] in rooms
        ]
        if not near:
            raise UsageError(
                "select message queue return null.", hint=f"no broker of the topic is in {', '.join(sorted(rooms))}"
            )
        return near[next(turn) % len(near)]

    return select


def _number_hash(number: int) -> int:
    """Return Integer.hashCode, or Long.hashCode for a number that is no int."""
    if -_INT <= number < _INT:
        return number
    bits = number & (1 << 64) - 1
    folded = (bits ^ bits >> 32) & (1 << 32) - 1
    return folded - (1 << 32) if folded >= _INT else folded
