"""The name server's services (DefaultRequestProcessor, ClientRequestProcessor). No socket is needed for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqctl.formats.errors import UsageError
from rmqctl.network.config_defaults import name_server_defaults, name_server_paths
from rmqctl.network.nameserver.register import registered_topics
from rmqctl.network.nameserver.routes import MASTER_ID, RouteTable
from rmqctl.network.remoting import fields
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import bean, fastjson
from rmqctl.network.remoting.services import FAQ, Caller, RequestError, Service
from rmqctl.network.topic_config import ORDER_TOPIC_CONFIG
from rmqctl.store.config.config import parse_properties
from rmqctl.store.config.versions import DEFAULT_RELEASE, Release

_MOST_SETTINGS = 100_000
_ORDER_KEY = "orderMessageEnable"
_BLACK_LIST = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
# MQVersion.V4_9_4: from then on clients read plain JSON
_PLAIN_JSON_VERSION = 401


class NameServer:
    """The routes, and what else a name server knows. `clock`: ms of a clock that is never set."""

    def __init__(
        self,
        clock: Callable[[], int],
        host: str = "127.0.0.1",
        port: int = 9876,
        release: Release = DEFAULT_RELEASE,
    ) -> None:
        self.release = release
        self.settings: dict[str, dict[str, str]] = {}
        """What operators have set by namespace (KVConfigManager)."""
        self.changed: dict[str, str] = {}
        self.routes = RouteTable()
        self.clock = clock
        self.host = host
        self.port = port

    def tick(self) -> None:
        """To be called every few seconds: forgets brokers that are gone."""
        self.routes.expire(self.clock())

    def lost(self, connection: Caller) -> None:
        """A connection ended: a broker that registered over it leaves the routes at once."""
        self.routes.lost(connection)


def _body(content: Any) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, body=fastjson(content))


def get_route(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Which brokers have a topic, and how many queues of it."""
    topic = fields.text(request, "topic")
    found = server.routes.of_topic(topic)
    if not found:
        raise RequestError(
            ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}\n{FAQ}"
        )
    quoted = request.version >= _PLAIN_JSON_VERSION or fields.flag(request, "acceptStandardJsonOnly")
    queues = [
        bean(
            brokerName=broker.name,
            perm=config.perm,
            readQueueNums=config.read_queue_nums,
            topicSysFlag=config.sys_flag,
            writeQueueNums=config.write_queue_nums,
        )
        for broker, config in found
    ]
    brokers = [broker.as_bean(caller, quoted=quoted) for broker, _ in found]
    order = server.settings.get(ORDER_TOPIC_CONFIG, {}).get(topic) if server.changed.get(_ORDER_KEY) == "true" else None
    return _body(bean(brokerDatas=brokers, filterServerTable={}, orderTopicConf=order, queueDatas=queues))


def get_cluster_info(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """All brokers, by name and by cluster."""
    brokers = server.routes.all()
    clusters: dict[str, list[str]] = {}
    for broker in brokers:
        clusters.setdefault(broker.cluster, []).append(broker.name)
    table = {broker.name: broker.as_bean(caller) for broker in brokers}
    return _body(bean(brokerAddrTable=table, clusterAddrTable=clusters))


def get_all_topics(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Names of all topics."""
    return _body(bean(topicList=sorted({name for broker in server.routes.all() for name in broker.topic_table()})))


def get_topics_by_cluster(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Names of a cluster's topics."""
    cluster = fields.text(request, "cluster")
    brokers = [broker for broker in server.routes.all() if broker.cluster == cluster]
    return _body(bean(topicList=sorted({name for broker in brokers for name in broker.topic_table()})))


def get_system_topics(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Names of clusters and brokers, which are topics too."""
    brokers = server.routes.all()
    names = sorted({broker.cluster for broker in brokers} | {broker.name for broker in brokers})
    addresses = [address for broker in brokers for address in broker.address_table(caller).values()]
    return _body(bean(brokerAddr=addresses[0] if addresses else None, topicList=names))


def get_member_group(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """The brokers of one name."""
    cluster, name = fields.text(request, "clusterName"), fields.text(request, "brokerName")
    broker = server.routes.find(name)
    addresses = broker.address_table(caller) if broker is not None and broker.cluster == cluster else {}
    return _body(bean(brokerMemberGroup=bean(brokerAddrs=addresses, brokerName=name, cluster=cluster)))


def get_kv_config(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """A setting of a namespace, such as the queues of an ordered topic."""
    namespace, key = fields.text(request, "namespace"), fields.text(request, "key")
    value = server.settings.get(namespace, {}).get(key)
    if value is not None:
        return RemotingCommand(ResponseCode.SUCCESS, {"value": value})
    raise RequestError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")


def get_kv_list(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """All settings of a namespace."""
    namespace = fields.text(request, "namespace")
    table = server.settings.get(namespace)
    if table is not None:
        return _body(bean(table=dict(sorted(table.items()))))
    raise RequestError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")


def get_config(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """What the name server is set to: every key of the version that is named."""
    settings = {
        **name_server_defaults(server.release),
        **name_server_paths(),
        **server.changed,
        "listenPort": str(server.port),
        # 4.x listens at all addresses
        **({"bindAddress": server.host} if server.release.message_types else {}),
    }
    text = "".join(f"{key}={value}\n" for key, value in sorted(settings.items()))
    return RemotingCommand(ResponseCode.SUCCESS, body=text.encode("utf-8"))


def put_kv_config(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Have a setting of a namespace until the name server ends."""
    namespace, key = request.fields.get("namespace"), request.fields.get("key")
    if namespace is None or key is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
    value = fields.text(request, "value")
    if sum(map(len, server.settings.values())) >= _MOST_SETTINGS and key not in server.settings.get(namespace, {}):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_SETTINGS} settings are remembered")
    server.settings.setdefault(namespace, {})[key] = value
    return RemotingCommand(ResponseCode.SUCCESS)


def delete_kv_config(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Forget a setting."""
    server.settings.get(fields.text(request, "namespace"), {}).pop(fields.text(request, "key"), None)
    return RemotingCommand(ResponseCode.SUCCESS)


def wipe_write_perm(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Have the routes to a broker for reading only, until it registers again or gets its permission back."""
    count = server.routes.permit_writing(fields.text(request, "brokerName"), may_write=False)
    return RemotingCommand(ResponseCode.SUCCESS, {"wipeTopicCount": str(count)})


def add_write_perm(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Have the routes to a broker for writing and reading."""
    count = server.routes.permit_writing(fields.text(request, "brokerName"), may_write=True)
    return RemotingCommand(ResponseCode.SUCCESS, {"addTopicCount": str(count)})


def update_config(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Go by another setting: one that counts here. Others are refused, all of the request with them."""
    try:
        properties = parse_properties(bytes(request.body))
    except UsageError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "string2Properties error") from error
    for key, value in properties.items():
        if key in _BLACK_LIST:
            raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if key != _ORDER_KEY or value not in ("true", "false"):
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"{key} cannot be changed here; {_ORDER_KEY}=true or =false can"
            )
    server.changed |= properties
    return RemotingCommand(ResponseCode.SUCCESS)


# ---- other brokers


def register_broker(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Another broker tells of itself and its topics."""
    cluster, name = fields.text(request, "clusterName"), fields.text(request, "brokerName")
    broker_id, address = fields.long(request, "brokerId"), fields.text(request, "brokerAddr")
    topics = registered_topics(
        request.body,
        is_compressed=fields.flag(request, "compressed"),
        crc=fields.integer(request, "bodyCrc32", 0),
    )
    known = server.routes.find(name)
    has_slaves = known is not None and known.ha_address(caller) is not None
    ha_address = request.fields.get("haServerAddr", "")
    now = server.clock()
    server.routes.register(
        cluster, name, broker_id, address, topics, now, ha_address=ha_address, has_slaves=has_slaves, caller=caller
    )
    master = server.routes.find(name)
    answer = {}
    if broker_id and master is not None and MASTER_ID in (addresses := master.address_table(caller)):
        answer = {"masterAddr": addresses[MASTER_ID]}
        if (ha := master.ha_address(caller)) is not None:
            answer["haServerAddr"] = ha
    return RemotingCommand(ResponseCode.SUCCESS, answer)


def unregister_broker(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Another broker leaves."""
    server.routes.unregister(fields.text(request, "brokerName"), fields.long(request, "brokerId"))
    return RemotingCommand(ResponseCode.SUCCESS)


def broker_heartbeat(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Another broker is still there."""
    server.routes.heard(fields.text(request, "brokerName"), fields.text(request, "brokerAddr"), server.clock())
    return RemotingCommand(ResponseCode.SUCCESS)


def query_data_version(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Whether a broker has to send its topics again: it always has to, no versions are kept."""
    server.routes.heard(fields.text(request, "brokerName"), fields.text(request, "brokerAddr"), server.clock())
    return RemotingCommand(ResponseCode.SUCCESS, {"changed": "true"})


def delete_topic(server: NameServer, request: RemotingCommand, caller: Caller) -> RemotingCommand:
    """Other brokers have a topic no more; our own knows by itself."""
    server.routes.remove_topic(fields.text(request, "topic"))
    return RemotingCommand(ResponseCode.SUCCESS)


SERVICES: dict[int, Service[NameServer]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Service(get_route, "brokers and queues of a topic; 17 if unknown"),
    RequestCode.GET_BROKER_CLUSTER_INFO: Service(get_cluster_info, "all brokers by cluster"),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Service(get_all_topics, "names of all topics"),
    RequestCode.GET_TOPICS_BY_CLUSTER: Service(get_topics_by_cluster, "names of a cluster's topics"),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: Service(get_system_topics, "names of clusters and brokers"),
    RequestCode.GET_BROKER_MEMBER_GROUP: Service(get_member_group, "brokers of one name"),
    RequestCode.GET_KV_CONFIG: Service(get_kv_config, "a setting of a namespace; 22 if there is none"),
    RequestCode.GET_KVLIST_BY_NAMESPACE: Service(get_kv_list, "all settings of a namespace; 22 without any"),
    RequestCode.PUT_KV_CONFIG: Service(put_kv_config, "a setting, until the name server ends"),
    RequestCode.DELETE_KV_CONFIG: Service(delete_kv_config, "the setting is gone"),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: Service(wipe_write_perm, "routes to a broker are for reading only"),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: Service(add_write_perm, "routes to a broker are for writing again"),
    RequestCode.UPDATE_NAMESRV_CONFIG: Service(update_config, "orderMessageEnable counts at once; 16 for others"),
    RequestCode.GET_NAMESRV_CONFIG: Service(get_config, "every key of the version"),
    RequestCode.REGISTER_BROKER: Service(
        register_broker, "another broker and its topics, for 120 s or until its connection ends"
    ),
    RequestCode.UNREGISTER_BROKER: Service(unregister_broker, "another broker leaves"),
    RequestCode.QUERY_DATA_VERSION: Service(query_data_version, "always changed: no versions are kept"),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: Service(
        delete_topic, "other brokers have it no more; our own knows by itself"
    ),
    RequestCode.BROKER_HEARTBEAT: Service(broker_heartbeat, "another broker is still there"),
}
