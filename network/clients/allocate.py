"""How the queues of a topic are shared out among the members of a group (AllocateMessageQueueStrategy)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqctl.network.remoting.fastjson import MessageQueue

Allocate = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]
"""allocate(queues, members, who): the queues of `who`; both lists in order."""


def averagely(queues: Sequence[MessageQueue], members: Sequence[str], who: str) -> list[MessageQueue]:
    """Stretches of the same length, the first ones longer by one (AllocateMessageQueueAveragely)."""
    if who not in members:
        return []
    index = list(members).index(who)
    share, more = divmod(len(queues), len(members))
    begin = index * share + min(index, more)
    return list(queues[begin : begin + share + (index < more)])


def by_circle(queues: Sequence[MessageQueue], members: Sequence[str], who: str) -> list[MessageQueue]:
    """One after the other in turn (AllocateMessageQueueAveragelyByCircle)."""
    if who not in members:
        return []
    index = list(members).index(who)
    return [queue for number, queue in enumerate(queues) if number % len(members) == index]
