"""What a whole cluster says of itself: its topics, its groups, its brokers (topicList, consumerProgress, clusterList).

Every request is bounded in time, and a broker that did not answer once is not asked again: its part is reported as
missing, and the rest is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rmqctl.formats.errors import NotFoundError, RefusedError, RemoteError
from rmqctl.network.clients.client import BrokerError, Client
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import (
    RemotingCommand,
    RequestCode,
    ResponseCode,
    fastjson,
    integer_of,
    objects,
    parse_body,
    queue_of_key,
    text_of,
)
from rmqctl.network.remoting.headers import Header
from rmqctl.network.topic_config import (
    DEFAULT_TOPIC,
    ORDER_TOPIC_CONFIG,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    retry_topic,
)
from rmqctl.store.answers.groups import BEHIND, CAUGHT_UP, PAST_END, UNKNOWN
from rmqctl.store.config.config_tables import parsed_change
from rmqctl.store.pop.records import RETRY_PREFIX
from rmqctl.store.repair.entries import EntryChange, entry_after, require_possible

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

    `client_ids`: the group's members that are connected. None is unknown; `detail` has the reason.
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
        self, address: str, code: int, header: Header | None = None, allowed: tuple[int, ...] = ()
    ) -> RemotingCommand | RemoteError:
        """Return the answer, or why it is missing."""
        return self._answer(address, lambda: self._client.ask(address, code, header, allowed=allowed))

    def ask_runtime_info(self, address: str) -> RemotingCommand | RemoteError:
        """Return a broker's runtime info, or why it is missing."""
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
    answer = client.ask_name_server(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.GetRouteInfo(topic=topic), allowed=_NO_ROUTE
    )
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
        in_group = headers.ConsumerGroupHeader(consumer_group=group)
        stats = asked.ask(
            address, RequestCode.GET_CONSUME_STATS, headers.GetConsumeStats(consumer_group=group, topic=topic)
        )
        there = asked.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, in_group, _OFFLINE)
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
    """Return the first of the numbers in a text: rates are given over 10, 60 and 600 s."""
    words = text_of(info, name).split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None


# Create, change and delete topics and groups on the brokers of a cluster (mqadmin updateTopic, deleteTopic,
# updateSubGroup, deleteSubGroup).
#
# Each master is asked by itself. What one does not take leaves the others as they are: the answers say so.

_Request = tuple[RequestCode, Header | None, bytes]
_NOT_KNOWN = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


class EntryAt(NamedTuple):
    """An entry on one master, `before` and `after` the change; None if missing.

    `state`: planned, done, unchanged, failed; `detail`: why it failed.
    """

    kind: str
    action: str
    name: str
    cluster: str
    broker: str
    address: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    state: str
    detail: str = ""


def chosen_masters(client: Client, cluster: str | None, brokers: tuple[str, ...]) -> list[BrokerAt]:
    """Return the masters of `cluster`, or of the only cluster, or those of the names `brokers`.

    NotFoundError for a name that the name server does not know; RefusedError where several clusters could be meant;
    RemoteError.
    """
    masters = masters_of(client)
    clusters = sorted({one.cluster for one in masters})
    if cluster is None and len(clusters) > 1 and not brokers:
        raise RefusedError(f"there are several clusters: {', '.join(clusters)}", hint="name one with --cluster")
    found = [one for one in masters if cluster in (None, one.cluster) and (not brokers or one.broker in brokers)]
    missing = sorted(set(brokers) - {one.broker for one in found})
    if missing or not found:
        what = f"no master of the broker {missing[0]}" if missing else f"no master in the cluster {cluster}"
        raise NotFoundError(what if masters else "no master is registered", hint="`rmqctl cluster -n` lists brokers")
    return found


def planned_at(client: Client, wanted: EntryChange, masters: list[BrokerAt]) -> list[EntryAt]:
    """Return what a change does on each of `masters`, with nothing changed yet.

    What one of them has already, or lacks, stays `unchanged` there: a change that did not reach all brokers is
    completed by doing it again. Where that holds for all: RefusedError (create) or NotFoundError (change, delete),
    except for a deleted topic that a name server still routes. UsageError and RefusedError as `require_possible`;
    RemoteError.
    """
    require_possible(wanted)
    entries = [_entry_at(client, wanted, one.address) for one in masters]
    ends = wanted.action != "create"  # needs an entry
    if all((before is None) == ends for before in entries) and not _is_routed(client, wanted):
        entry_after(wanted, entries[0], f"the broker {masters[0].broker}")
    rows = []
    for one, before in zip(masters, entries, strict=True):
        after, state, detail = before, "unchanged", ""
        if (before is None) == ends:
            detail = "is not there" if before is None else "is there already"
        else:
            after = entry_after(wanted, before, f"the broker {one.broker}")
            state = "unchanged" if before == after else "planned"
        place = one.cluster, one.broker, one.address
        rows.append(EntryAt(wanted.kind, wanted.action, wanted.name, *place, before, after, state, detail))
    return rows


def carried_out(
    client: Client, wanted: EntryChange, planned: list[EntryAt], *, removes_offsets: bool = False
) -> Iterator[EntryAt]:
    """Do what is planned, and yield how it ended on each master.

    A name server forgets a deleted topic once no master of the cluster has it. It keeps the list of queues of an
    ordered topic (ORDER_TOPIC_CONFIG), which is set first: a broker that registers takes `order` from it
    (TopicConfigManager#updateOrderTopicConfig). RemoteError where the name servers do not take it.
    """
    is_topic = wanted.kind == "topic"
    if is_topic:
        _set_order(client, wanted.name, [row for row in planned if row.state == "planned"])
    failed: list[EntryAt] = []
    for row in planned:
        result = row
        if row.state == "planned":
            try:
                client.ask(row.address, *_request(wanted, row.after, removes_offsets))
                result = row._replace(state="done")
            except RemoteError as error:
                result = row._replace(state="failed", detail=error.message)
                failed.append(result)
        yield result
    if is_topic and failed:
        _set_order(client, wanted.name, [row._replace(after=row.before) for row in failed])
    elif is_topic and wanted.action == "delete":
        _forget(client, wanted, planned[0].cluster)


def _is_routed(client: Client, wanted: EntryChange) -> bool:
    """Whether it is a deleted topic that a name server still leads clients to."""
    is_deleted_topic = wanted.kind == "topic" and wanted.action == "delete"
    return is_deleted_topic and client.route(wanted.name, anew=True) is not None


def _forget(client: Client, wanted: EntryChange, cluster: str) -> None:
    """Have the name servers forget a topic that no master of a cluster has."""
    masters = [one for one in masters_of(client) if one.cluster == cluster]
    if any(_entry_at(client, wanted, one.address) is not None for one in masters):
        return
    for address in client.name_servers:
        header = headers.DeleteTopicInNamesrv(topic=wanted.name, cluster_name=cluster)
        client.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)


def _entry_at(client: Client, wanted: EntryChange, address: str) -> dict[str, Any] | None:
    """Return the entry that a broker has, None without one. Groups are looked for in the whole table: a broker that is
    asked for one group (352) creates it."""
    if wanted.kind == "group":
        return _of_table(
            client, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable", wanted
        )
    header, allowed = headers.TopicHeader(topic=wanted.name), (int(ResponseCode.TOPIC_NOT_EXIST), _NOT_KNOWN)
    answer = client.ask(address, RequestCode.GET_TOPIC_CONFIG, header, allowed=allowed)
    if answer.code == _NOT_KNOWN:  # 4.x
        return _of_table(client, address, RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable", wanted)
    content = parse_body(answer.body) if answer.code == ResponseCode.SUCCESS else {}
    content.pop("mappingDetail", None)
    return content or None


def _of_table(client: Client, address: str, code: int, table: str, wanted: EntryChange) -> dict[str, Any] | None:
    entries = parse_body(client.ask(address, code).body).get(table)
    found = entries.get(wanted.name) if isinstance(entries, dict) else None
    return found if isinstance(found, dict) else None


def _request(wanted: EntryChange, after: dict[str, Any] | None, removes_offsets: bool) -> _Request:
    """Return code, header and body of the request that brings a broker to an entry, None for a deletion."""
    is_topic = wanted.kind == "topic"
    if after is None and is_topic:
        return RequestCode.DELETE_TOPIC_IN_BROKER, headers.TopicHeader(topic=wanted.name), b""
    if after is None:
        group = headers.DeleteGroup(group_name=wanted.name, clean_offset=removes_offsets)
        return RequestCode.DELETE_SUBSCRIPTIONGROUP, group, b""
    if not is_topic:
        # in a request the attributes are changes, not what follows from them
        body = {**after, "attributes": parsed_change(wanted.attributes)}
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, fastjson(body)
    topic = headers.CreateTopic(
        topic=wanted.name,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=after["readQueueNums"],
        write_queue_nums=after["writeQueueNums"],
        perm=after["perm"],
        topic_filter_type=after.get("topicFilterType") or "SINGLE_TAG",
        topic_sys_flag=after.get("topicSysFlag") or 0,
        order=bool(after.get("order")),
        attributes=wanted.attributes,
    )
    return RequestCode.UPDATE_AND_CREATE_TOPIC, topic, b""


def _set_order(client: Client, topic: str, rows: list[EntryAt]) -> None:
    """Have the name servers list the queues of a topic on the brokers of `rows` as their entries have them after."""
    key = headers.KvKey(namespace=ORDER_TOPIC_CONFIG, key=topic)
    for address in client.name_servers:
        answer = client.ask(address, RequestCode.GET_KV_CONFIG, key, allowed=(int(ResponseCode.QUERY_NOT_FOUND),))
        known = answer.fields.get("value", "") if answer.code == ResponseCode.SUCCESS else ""
        value = _order_list(known, rows)
        if value and value != known:
            setting = headers.PutKvConfig(namespace=key.namespace, key=key.key, value=value)
            client.ask(address, RequestCode.PUT_KV_CONFIG, setting)
        elif known and not value:
            client.ask(address, RequestCode.DELETE_KV_CONFIG, key)


def _order_list(known: str, rows: list[EntryAt]) -> str:
    """Return the list of queues of an ordered topic after what `rows` say of their brokers
    (DefaultMQAdminExtImpl#createOrUpdateOrderConf)."""
    queues = dict(one.split(":", 1) for one in known.split(";") if ":" in one)
    for row in rows:
        if row.after is not None and row.after.get("order"):
            queues[row.broker] = str(integer_of(row.after, "writeQueueNums"))
        else:
            queues.pop(row.broker, None)
    return ";".join(f"{broker}:{number}" for broker, number in queues.items())
