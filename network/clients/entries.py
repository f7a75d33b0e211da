"""Create, change and delete topics and groups on the brokers of a cluster (mqadmin updateTopic, deleteTopic,
updateSubGroup, deleteSubGroup).

Each master is asked by itself. What one does not take leaves the others as they are: the answers say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rmqctl.formats.errors import NotFoundError, RefusedError, RemoteError
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.survey import BrokerAt, masters_of
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.fastjson import fastjson, integer_of, parse_body
from rmqctl.network.topic_config import DEFAULT_TOPIC, ORDER_TOPIC_CONFIG
from rmqctl.store.config.attributes import parsed_change
from rmqctl.store.repair.config_entries import EntryChange, entry_after, require_possible

_Request = tuple[RequestCode, dict[str, Any], bytes]
_NOT_KNOWN = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


class EntryAt(NamedTuple):
    """An entry on one master, `before` and `after` the change; None where there is none.

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
        client.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": wanted.name, "clusterName": cluster})


def _entry_at(client: Client, wanted: EntryChange, address: str) -> dict[str, Any] | None:
    """Return the entry that a broker has, None without one. Groups are looked for in the whole table: a broker that is
    asked for one group (352) creates it."""
    if wanted.kind == "group":
        return _of_table(
            client, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable", wanted
        )
    fields, allowed = {"topic": wanted.name}, (int(ResponseCode.TOPIC_NOT_EXIST), _NOT_KNOWN)
    answer = client.ask(address, RequestCode.GET_TOPIC_CONFIG, fields, allowed=allowed)
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
    """Return code, fields and body of the request that brings a broker to an entry, None for a deletion."""
    is_topic = wanted.kind == "topic"
    if after is None and is_topic:
        return RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": wanted.name}, b""
    if after is None:
        fields = {"groupName": wanted.name, "cleanOffset": "true" if removes_offsets else "false"}
        return RequestCode.DELETE_SUBSCRIPTIONGROUP, fields, b""
    if not is_topic:
        # in a request the attributes are changes, not what follows from them
        body = {**after, "attributes": parsed_change(wanted.attributes)}
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, fastjson(body)
    settings = {
        **{name: after[name] for name in ("readQueueNums", "writeQueueNums", "perm")},
        "topic": wanted.name,
        "defaultTopic": DEFAULT_TOPIC,
        "topicFilterType": after.get("topicFilterType") or "SINGLE_TAG",
        "topicSysFlag": after.get("topicSysFlag") or 0,
        "order": "true" if after.get("order") else "false",
        "attributes": wanted.attributes,
    }
    return RequestCode.UPDATE_AND_CREATE_TOPIC, settings, b""


def _set_order(client: Client, topic: str, rows: list[EntryAt]) -> None:
    """Have the name servers list the queues of a topic on the brokers of `rows` as their entries have them after."""
    key = {"namespace": ORDER_TOPIC_CONFIG, "key": topic}
    for address in client.name_servers:
        answer = client.ask(address, RequestCode.GET_KV_CONFIG, key, allowed=(int(ResponseCode.QUERY_NOT_FOUND),))
        known = answer.fields.get("value", "") if answer.code == ResponseCode.SUCCESS else ""
        value = _order_list(known, rows)
        if value and value != known:
            client.ask(address, RequestCode.PUT_KV_CONFIG, {**key, "value": value})
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
