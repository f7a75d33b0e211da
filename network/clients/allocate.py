"""How the queues of a topic are shared out among the members of a group (AllocateMessageQueueStrategy)."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from rmqctl.formats.errors import UsageError
from rmqctl.network.remoting.fastjson import MessageQueue

Allocate = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]
"""allocate(queues, members, who): the queues of `who`; both lists in order. All members have to have the same."""

_VIRTUAL_NODES = 10


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


def by_config(mine: Collection[MessageQueue]) -> Allocate:
    """Those that are named, whoever else is there (AllocateMessageQueueByConfig)."""
    return lambda queues, members, who: list(mine)


def by_machine_room(rooms: Collection[str]) -> Allocate:
    """Queues of brokers of these rooms, which are named `room@broker`, in stretches; what is left over goes to one
    after the other (AllocateMessageQueueByMachineRoom)."""

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], who: str) -> list[MessageQueue]:
        if who not in members:
            return []
        # as Java splits: empty parts at the end do not count
        parts = [(queue, queue.broker_name.rstrip("@").split("@")) for queue in queues]
        near = [queue for queue, names in parts if len(names) == 2 and names[0] in rooms]
        index, (share, more) = list(members).index(who), divmod(len(near), len(members))
        left_over = near[share * len(members) + index :][:1] if index < more else []
        return near[index * share : (index + 1) * share] + left_over

    return allocate


def by_machine_room_nearby(room_of: Callable[[str], str], within: Allocate = averagely) -> Allocate:
    """Queues of brokers in the member's own room, shared out `within` the room; those of rooms without members are
    shared by all (AllocateMachineRoomNearby). `room_of`: the room of a broker's name or of a client id."""

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], who: str) -> list[MessageQueue]:
        if who not in members:
            return []
        rooms: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            rooms.setdefault(_known_room(queue.broker_name, room_of), []).append(queue)
        near: dict[str, list[str]] = {}
        for member in members:
            near.setdefault(_known_room(member, room_of), []).append(member)
        own = room_of(who)
        mine = list(within(rooms.pop(own, []), near[own], who))
        for room in sorted(rooms.keys() - near.keys()):
            mine += within(rooms[room], members, who)
        return mine

    return allocate


def _known_room(name: str, room_of: Callable[[str], str]) -> str:
    room = room_of(name)
    if not room:
        raise UsageError(f"{name!r} is in no machine room", hint="name the room of every broker and member")
    return room


def by_consistent_hash(queues: Sequence[MessageQueue], members: Sequence[str], who: str) -> list[MessageQueue]:
    """Each to the next member on a ring of hashes: few change hands when members come and go
    (AllocateMessageQueueConsistentHash)."""
    ring = {_hash(f"{member}-{number}"): member for member in members for number in range(_VIRTUAL_NODES)}
    places = sorted(ring)

    def member_of(queue: MessageQueue) -> str:
        text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return ring[places[bisect_left(places, _hash(text)) % len(places)]]

    return [queue for queue in queues if member_of(queue) == who] if who in members else []


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
