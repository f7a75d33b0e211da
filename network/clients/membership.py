"""Membership of a consumer group: what a member announces and answers, and what the group's live members subscribe."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.errors import RefusedError, RemoteError, UsageError, counted
from rmqctl.network.clients.client import BrokerError, Client, Route, Where
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    bean,
    fastjson,
    json_answer,
    objects,
    parse_body,
    queue_of_key,
    text_of,
)
from rmqctl.network.remoting.headers import ConsumerGroupHeader
from rmqctl.store.pop.records import RETRY_PREFIX
from rmqctl.store.read.filter import SUBSCRIBE_ALL, TAG, BySql, client_filter, expression_type

CLUSTERING, BROADCASTING = "CLUSTERING", "BROADCASTING"
_POPS = "CONSUME_POP"
_OFFLINE = (int(ResponseCode.CONSUMER_NOT_ONLINE),)
_MOST_NAMED = 3
_CLIENT_VERSION = "V5_3_3"


_FROM = {"first": "FIRST_OFFSET", "last": "LAST_OFFSET"}


def consumer_heartbeat(
    group: str,
    subscriptions: Mapping[str, str],
    begin: Where,
    message_model: str = CLUSTERING,
    *,
    unit_mode: bool = False,
) -> dict[str, Any]:
    """Return the heartbeat of a push consumer (HeartbeatData): `subscriptions` are expressions by topic.

    The hashes of the tags are part of it: brokers select by them for every member of the group.
    """
    version = time.time_ns() // 1_000_000
    wanted = []
    for topic, expression in subscriptions.items():
        tags = sorted(client_filter(expression).tags)
        wanted.append(
            bean(
                classFilterMode=False,
                codeSet=sorted({java_hash(tag) for tag in tags}),
                expressionType=expression_type(expression),
                subString=expression,
                subVersion=version,
                tagsSet=tags,
                topic=topic,
            )
        )
    consumer = bean(
        groupName=group,
        consumeType="CONSUME_PASSIVELY",
        messageModel=message_model,
        consumeFromWhere="CONSUME_FROM_" + _FROM.get(str(begin), "TIMESTAMP"),
        subscriptionDataSet=wanted,
        unitMode=unit_mode,
    )
    return {"consumerDataSet": [consumer], "producerDataSet": []}


class LiveGroup(NamedTuple):
    """The members of a group that brokers know, without one's own, and what the group subscribes.

    `subscriptions`: kind and expression by topic, without the group's retry topic, which every push consumer has.
    """

    client_ids: tuple[str, ...]
    subscriptions: Mapping[str, tuple[str, str]]
    message_model: str = ""
    consume_type: str = ""

    @property
    def members(self) -> str:
        """The number of members and the first of their ids."""
        named = ", ".join(self.client_ids[:_MOST_NAMED])
        more = len(self.client_ids) - _MOST_NAMED
        return f"{counted(len(self.client_ids), 'live member')} ({named}{f' and {more} more' if more > 0 else ''})"

    def conflict(self, wanted: Mapping[str, str], message_model: str = CLUSTERING) -> str | None:
        """Return why a member that subscribes `wanted` alone (tags by topic) would take messages from the others.

        Every member gets its share of every topic's queues, whether it reads them or not.
        """
        if not self.client_ids:
            return None
        if self.message_model not in ("", message_model):
            return f"they consume as {self.message_model}, not as {message_model}"
        if self.consume_type == _POPS:
            return "they consume by POP"
        own = {topic: (expression_type(one), _comparable(one)) for topic, one in wanted.items()}
        theirs = {
            name: (kind, _comparable(expression if kind == TAG else BySql(expression)))
            for name, (kind, expression) in self.subscriptions.items()
        }
        if theirs in ({}, own):
            return None
        said = ", ".join(f"{name} {expression!r}" for name, (_, expression) in sorted(self.subscriptions.items()))
        ours = ", ".join(f"{topic} {tags!r}" for topic, tags in sorted(wanted.items()))
        return f"they subscribe {said}; this one subscribes {ours}"


def _comparable(subscription: str) -> object:
    if expression_type(subscription) != TAG:
        return str(subscription)
    is_all = subscription.strip() in ("", SUBSCRIBE_ALL)
    return frozenset() if is_all else frozenset(map(str.strip, subscription.split("||")))


def check_filters(client: Client, address: str, group: str, announced: Iterable[Mapping[str, Any]]) -> None:
    """Ask a broker whether it understands the SQL92 subscriptions of a heartbeat. BrokerError where it filters by tags
    alone (enablePropertyFilter), or takes an expression for invalid (MQClientInstance#checkClientInBroker)."""
    for one in announced:
        if one["expressionType"] != TAG:
            body = bean(clientId=client.client_id, group=group, subscriptionData=one)
            client.ask(address, RequestCode.CHECK_CLIENT_CONFIG, body=fastjson(body))


def group_members(client: Client, route: Route, group: str) -> list[str]:
    """Return the client ids of a group's members, as the first broker that answers knows them. RemoteError."""
    problem = RemoteError(f"no broker is known that has members of group {group!r}")
    for address in route.addresses.values():
        try:
            answer = client.ask(
                address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(consumer_group=group)
            )
            return sorted(str(one) for one in parse_body(answer.body).get("consumerIdList", []))
        except RemoteError as error:
            problem = error
    raise problem


def share_of(client: Client, route: Route, group: str, allocate: Allocate) -> list[MessageQueue]:
    """Return the queues of a topic that are for this member. RemoteError."""
    return list(allocate(sorted(route.readable), group_members(client, route, group), client.client_id))


def live_group(client: Client, addresses: set[str], group: str) -> LiveGroup:
    """Ask the brokers at `addresses` for the members of `group`. RemoteError where none of them answers."""
    problems: list[RemoteError] = []
    client_ids: set[str] = set()
    found = LiveGroup((), {})
    subscriptions: dict[str, tuple[str, str]] = {}
    for address in sorted(addresses):
        header = ConsumerGroupHeader(consumer_group=group)
        try:
            answer = client.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, allowed=_OFFLINE)
        except RemoteError as error:
            problems.append(error)
            continue
        if answer.code != ResponseCode.SUCCESS:
            continue
        content = parse_body(answer.body)
        others = {text_of(one, "clientId") for one in objects(content.get("connectionSet"))} - {client.client_id}
        if not others:
            continue
        client_ids |= others
        found = found._replace(
            message_model=text_of(content, "messageModel"), consume_type=text_of(content, "consumeType")
        )
        table = content.get("subscriptionTable")
        for topic, one in table.items() if isinstance(table, dict) else ():
            if isinstance(one, dict) and not str(topic).startswith(RETRY_PREFIX):
                subscriptions[str(topic)] = (text_of(one, "expressionType") or TAG, text_of(one, "subString"))
    if problems and len(problems) == len(addresses):
        raise problems[-1]
    return found._replace(client_ids=tuple(sorted(client_ids)), subscriptions=subscriptions)


def look_at_others(
    client: Client,
    addresses: set[str],
    group: str,
    wanted: Mapping[str, str],
    *,
    force: bool,
    is_broadcast: bool = False,
) -> tuple[str, bool]:
    """Return the line about live members of a group that a member joins, empty without any, and whether they subscribe
    otherwise than `wanted` (tags by topic). That is a RefusedError unless `force`; RemoteError as of `live_group`.

    A user that may consume need not be allowed to ask for the members (GET of the group), and consumes all the same.
    """
    try:
        others = live_group(client, addresses, group)
    except BrokerError as error:
        if error.answer_code != ResponseCode.NO_PERMISSION:
            raise
        return f"whether group {group!r} has other members is not known: {error.message}", False
    has = f"group {group!r} has {others.members}"
    conflict = others.conflict(wanted, BROADCASTING if is_broadcast else CLUSTERING)
    if conflict is not None and not force:
        raise RefusedError(
            f"{has}; {conflict}: it would take messages from them and not read all of these",
            hint="use a group of your own or none, stop the members first, or join all the same (--force)",
        )
    if conflict is not None:
        return f"{has}; {conflict}: messages of theirs may wait until this ends", True
    if is_broadcast or not others.client_ids:
        return "", False
    return f"{has}: a share of their queues, those of retries included, is consumed here until this ends", False


def unrouted(topic: str) -> RemoteError:
    """Return the error for a topic whose messages no broker has."""
    return RemoteError(
        f"no broker has messages of topic {topic!r}", hint="`rmqctl topics` lists those that name servers know"
    )


def not_committed(queue: MessageQueue, offset: int, error: RemoteError) -> str:
    """Return the line about an offset that its broker did not take."""
    return f"offset {offset} of {queue.topic} queue {queue.queue_id} is not committed: {error.message}"


# ---- answers of a member to requests that brokers send it


def not_a_member(command: RemotingCommand, group: str) -> RemotingCommand:
    """Return the answer to a request that needs a member of its group with a callback, without such a member."""
    asked = command.fields.get("consumerGroup", group)
    return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"The Consumer Group <{asked}> not exist in this consumer")


def offsets_to_set(command: RemotingCommand, group: str) -> dict[MessageQueue, int]:
    """Return the offsets at which queues of a topic are to begin (220); none for another group. CorruptError."""
    if command.fields.get("group") != group:
        return {}
    topic = command.fields.get("topic", "")
    table = parse_body(command.body).get("offsetTable") if command.body else None
    found = {queue_of_key(key): offset for key, offset in table.items()} if isinstance(table, dict) else {}
    return {
        queue: offset
        for queue, offset in found.items()
        if queue is not None and queue.topic == topic and isinstance(offset, int)
    }


def status_answer(command: RemotingCommand, group: str, offsets: Mapping[MessageQueue, int]) -> RemotingCommand:
    """Return the answer that says how far a member is in the queues of a topic (221)."""
    is_own, topic = command.fields.get("group") == group, command.fields.get("topic", "")
    found = {queue: offset for queue, offset in sorted(offsets.items()) if is_own and queue.topic == topic}
    return json_answer(bean(consumerTable={}, messageQueueTable=found))


def running_info_answer(
    command: RemotingCommand,
    client: Client,
    properties: Mapping[str, str],
    queues: Mapping[MessageQueue, Mapping[str, Any]],
    statuses: Mapping[str, Any],
    announced: list[Any],
) -> RemotingCommand:
    """Return settings, subscriptions, queues and figures of a member, with the stacks of all threads if asked for
    (307). `announced`: subscriptions as in its heartbeats."""
    wants_stacks = command.fields.get("jstackEnable", "").lower() == "true"
    always = {
        "PROP_CLIENT_VERSION": _CLIENT_VERSION,
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_NAMESERVER_ADDR": "".join(f"{one};" for one in client.name_servers),
    }
    body = bean(
        jstack=_stacks() if wants_stacks else None,
        mqPopTable={},
        mqTable={queue: queues[queue] for queue in sorted(queues)},
        properties={**always, **properties},
        statusTable=dict(statuses),
        subscriptionSet=announced,
        userConsumerInfo={},
    )
    return json_answer(body)


def _stacks() -> str:
    """Return the stacks of all threads, as UtilAll#jstack lays them out."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    blocks: list[str] = []
    for number, frame in sorted(sys._current_frames().items()):
        lines = [f"{names.get(number, '?'):<40}TID: {number} STATE: RUNNABLE"]
        for entry in reversed(traceback.extract_stack(frame)):
            lines.append(f"{names.get(number, '?'):<40}{entry.name}({entry.filename}:{entry.lineno})")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


# How the queues of a topic are shared out among the members of a group (AllocateMessageQueueStrategy).

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


STRATEGY_NAMES: dict[Allocate, str] = {averagely: "AVG", by_circle: "AVG_BY_CIRCLE"}
"""Strategies that brokers have as well, with RocketMQ's names."""


def by_config(mine: Collection[MessageQueue]) -> Allocate:
    """Return the configured queues, independent of other members (AllocateMessageQueueByConfig)."""
    return lambda queues, members, who: list(mine)


def by_machine_room(rooms: Collection[str]) -> Allocate:
    """Return queues of brokers in these zones, which are named `zone@broker`, in stretches; the rest goes to one after
    the other (AllocateMessageQueueByMachineRoom)."""

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
    """Return queues of brokers in the member's own zone, shared out `within` the zone; those of zones without members
    are shared by all (AllocateMachineRoomNearby). `room_of`: the zone of a broker's name or of a client id."""

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
        raise UsageError(f"{name!r} has no zone", hint="name the zone of every broker and member")
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
