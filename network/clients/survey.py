"""What a whole cluster says of itself: its topics, its groups, its brokers (topicList, consumerProgress, clusterList).

Every request is bounded in time, and a broker that did not answer once is not asked again: what it would have said is
told as missing, and the rest is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rmqctl.formats.errors import RemoteError
from rmqctl.network.clients.client import BrokerError, Client
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import integer_of, objects, parse_body, queue_of_key, text_of
from rmqctl.network.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE, retry_topic
from rmqctl.store.answers.dead_letters import RETRY_PREFIX
from rmqctl.store.answers.groups import BEHIND, CAUGHT_UP, PAST_END, UNKNOWN

Missing = Callable[[RemoteError], None]
"""Hears of each server that did not answer as it should, once."""

_PERMS = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
_OFFLINE = (int(ResponseCode.CONSUMER_NOT_ONLINE),)
_NO_ROUTE = (int(ResponseCode.TOPIC_NOT_EXIST),)


class TopicAt(NamedTuple):
    """A topic on the brokers of one name. `perm` as PermName#perm2String has it, such as `RW-`."""

    topic: str
    cluster: str
    broker: str
    read_queues: int
    write_queues: int
    perm: str


class GroupAt(NamedTuple):
    """A group in one queue, as its broker says. `lag`: messages from `offset` up to the queue's end, `max_offset`;
    `in_flight`: those of them that were pulled already. `last_consumed_timestamp`: store time (ms) of the message
    before `offset`. A queue that the group has no offset of counts as offset 0, which is how brokers count it.

    `client_ids`: the group's members that are connected. None is what nobody knows; `detail` says why.
    """

    group: str
    topic: str | None
    broker: str | None
    queue_id: int | None
    state: str
    offset: int | None = None
    max_offset: int | None = None
    lag: int | None = None
    in_flight: int | None = None
    last_consumed_timestamp: int | None = None
    clients: int | None = None
    client_ids: list[str] | None = None
    detail: str = ""


class BrokerAt(NamedTuple):
    """A broker. Rates are messages a second over the last 10 s, ratios those of the disks that hold log and queues, 0
    to 1, -1 where the broker cannot tell. None for one that did not answer; `detail` says so."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str | None = None
    in_tps: float | None = None
    out_tps: float | None = None
    log_disk: float | None = None
    queue_disk: float | None = None
    detail: str = ""


class _Asked:
    """A client's requests to brokers, without those that are in vain."""

    def __init__(self, client: Client, missing: Missing) -> None:
        self._client = client
        self._missing = missing
        self._silent: dict[str, RemoteError] = {}

    def ask(
        self, address: str, code: int, fields: Mapping[str, Any] | None = None, allowed: tuple[int, ...] = ()
    ) -> RemotingCommand | RemoteError:
        """The answer, or why there is none."""
        return self._answer(address, lambda: self._client.ask(address, code, fields, allowed=allowed))

    def ask_runtime_info(self, address: str) -> RemotingCommand | RemoteError:
        """What a broker tells of itself, or why it does not."""
        return self._answer(address, lambda: self._client.ask_runtime_info(address))

    def _answer(self, address: str, request: Callable[[], RemotingCommand]) -> RemotingCommand | RemoteError:
        if address in self._silent:
            return self._silent[address]
        try:
            return request()
        except BrokerError as error:
            # it is there, but does not answer this
            self._missing(error)
            return error
        except RemoteError as error:
            self._silent[address] = error
            self._missing(error)
            return error


def topics_at(client: Client, topic: str | None = None) -> Iterator[TopicAt]:
    """All topics, or `topic`, by name and broker, as the name server routes them. RemoteError where it does not
    answer."""
    names = [topic] if topic is not None else _topic_names(client)
    for name in names:
        content = _route(client, name)
        clusters = {text_of(one, "brokerName"): text_of(one, "cluster") for one in objects(content.get("brokerDatas"))}
        for one in sorted(objects(content.get("queueDatas")), key=lambda one: text_of(one, "brokerName")):
            broker, perm = text_of(one, "brokerName"), integer_of(one, "perm")
            letters = "".join(letter if perm & bit else "-" for bit, letter in _PERMS)
            queues = integer_of(one, "readQueueNums"), integer_of(one, "writeQueueNums")
            yield TopicAt(name, clusters.get(broker, ""), broker, *queues, letters)


def _topic_names(client: Client) -> list[str]:
    content = parse_body(client.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)
    listed = content.get("topicList")
    return sorted(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else []


def _route(client: Client, topic: str) -> dict[str, Any]:
    """TopicRouteData, empty where the topic is unknown."""
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, allowed=_NO_ROUTE)
    return parse_body(answer.body) if answer.body else {}


def groups_at(client: Client, group: str | None, topic: str | None, missing: Missing) -> Iterator[GroupAt]:
    """All groups, or `group`, in all topics, or `topic`, by group, topic, broker and queue.

    Groups are those with a retry topic, which every group gets when its first member comes. RemoteError where the name
    server does not answer; brokers that do not are `missing`.
    """
    asked = _Asked(client, missing)
    names = (
        [group]
        if group is not None
        else [name.removeprefix(RETRY_PREFIX) for name in _topic_names(client) if name.startswith(RETRY_PREFIX)]
    )
    for name in names:
        route = client.route(retry_topic(name), anew=True)
        if route is None:
            continue
        yield from _group_at(asked, name, topic, route.addresses)


def _group_at(asked: _Asked, group: str, topic: str | None, addresses: Mapping[str, str]) -> Iterator[GroupAt]:
    rows: list[GroupAt] = []
    members: set[str] | None = set()
    details: list[str] = []
    for _, address in sorted(addresses.items()):
        fields = {"consumerGroup": group}
        stats = asked.ask(address, RequestCode.GET_CONSUME_STATS, {**fields, "topic": topic})
        there = asked.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields, _OFFLINE)
        if isinstance(stats, RemoteError):
            details.append(stats.message)
        else:
            rows += _rows(group, stats.body)
        if isinstance(there, RemoteError):
            members = None
        elif members is not None and there.code == ResponseCode.SUCCESS:
            members |= {text_of(one, "clientId") for one in objects(parse_body(there.body).get("connectionSet"))}
    listed = None if members is None else sorted(members)
    rows = [row for row in rows if topic in (None, row.topic)]
    if not rows and topic is None:
        detail = "; ".join(details) or "no broker has an offset of it: it has not consumed, or keeps its offsets itself"
        rows = [GroupAt(group, None, None, None, UNKNOWN, detail=detail)]
    for row in sorted(rows, key=lambda one: (one.topic or "", one.broker or "", one.queue_id or 0)):
        yield row._replace(clients=None if listed is None else len(listed), client_ids=listed)


def _rows(group: str, body: bytes) -> Iterator[GroupAt]:
    """Rows of the queues in a ConsumeStats, whose keys are objects."""
    table = parse_body(body).get("offsetTable")
    for key, one in table.items() if isinstance(table, dict) else ():
        queue = queue_of_key(key)
        if queue is None or not isinstance(one, dict):
            continue
        offset, end = integer_of(one, "consumerOffset"), integer_of(one, "brokerOffset")
        state = CAUGHT_UP if offset == end else BEHIND if offset < end else PAST_END
        yield GroupAt(
            group,
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            state,
            offset,
            end,
            end - offset,
            # 4.x does not say it
            max(0, integer_of(one, "pullOffset") - offset) if "pullOffset" in one else None,
            integer_of(one, "lastTimestamp") or None,
        )


def _registered(client: Client) -> list[BrokerAt]:
    content = parse_body(client.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    table = content.get("brokerAddrTable")
    found: list[BrokerAt] = []
    for one in table.values() if isinstance(table, dict) else ():
        if isinstance(one, dict) and isinstance(one.get("brokerAddrs"), dict):
            for broker_id, address in one["brokerAddrs"].items():
                if not str(broker_id).isdecimal():
                    continue
                found.append(
                    BrokerAt(text_of(one, "cluster"), text_of(one, "brokerName"), int(broker_id), str(address))
                )
    return sorted(found)


def masters_of(client: Client) -> list[BrokerAt]:
    """Return the masters that the name server knows, which are not asked. RemoteError where it does not answer."""
    return [one for one in _registered(client) if one.broker_id == 0]


def brokers_at(client: Client, missing: Missing) -> Iterator[BrokerAt]:
    """All brokers, by cluster, name and id. RemoteError where the name server does not answer; brokers that do not are
    given without what they would have said."""
    asked = _Asked(client, missing)
    for broker in _registered(client):
        answer = asked.ask_runtime_info(broker.address)
        if isinstance(answer, RemoteError):
            yield broker._replace(detail=answer.message)
            continue
        info = parse_body(answer.body).get("table")
        info = info if isinstance(info, dict) else {}
        yield broker._replace(
            version=text_of(info, "brokerVersionDesc") or None,
            in_tps=_first(info, "putTps"),
            # 4.x spells it with one r
            out_tps=_first(info, "getTransferredTps" if "getTransferredTps" in info else "getTransferedTps"),
            log_disk=_first(info, "commitLogDiskRatio"),
            queue_disk=_first(info, "consumeQueueDiskRatio"),
        )


def _first(info: Mapping[str, Any], name: str) -> float | None:
    """The first of the numbers in a text: rates are told over 10, 60 and 600 s."""
    words = text_of(info, name).split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None
