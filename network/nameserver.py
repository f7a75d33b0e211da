"""The name server's services (DefaultRequestProcessor, ClientRequestProcessor). No socket is needed for them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqctl.formats.checksums import body_crc
from rmqctl.formats.errors import CorruptError, UsageError
from rmqctl.network.config_defaults import name_server_defaults, name_server_paths
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    bean,
    json_answer,
    parse_body,
)
from rmqctl.network.remoting.headers import Header
from rmqctl.network.remoting.requests import FAQ, Asked, Caller, RequestError, Service
from rmqctl.network.topic_config import (
    ORDER_TOPIC_CONFIG,
    PERM_READ,
    PERM_WRITE,
    UNIT,
    UNIT_SUBSCRIPTION,
    TopicConfig,
    topic_from_bean,
)
from rmqctl.store.config.config import parse_properties
from rmqctl.store.config.releases import DEFAULT_RELEASE, Release

# What a broker says when it registers: its topics, as JSON or compressed (RegisterBrokerBody).

_INT32 = struct.Struct(">i")
_LARGEST_BODY = 64 * 1024 * 1024
_MOST_TOPICS = 100_000


def registered_topics(body: bytes, *, is_compressed: bool, crc: int) -> dict[str, TopicConfig]:
    """The topics in a registration's body. CorruptError for a body that is damaged, or larger than any broker's.

    `crc`: CRC32 of the body, 0 if the broker gave none.
    """
    if crc and body and body_crc(body) != crc & 0x7FFFFFFF:
        raise CorruptError("the registration's body does not match its CRC32")
    if not body:
        return {}
    return _from_compressed(_inflated(body)) if is_compressed else _from_json(body)


def _from_json(body: bytes) -> dict[str, TopicConfig]:
    wrapper = parse_body(body).get("topicConfigSerializeWrapper")
    table = wrapper.get("topicConfigTable") if isinstance(wrapper, dict) else None
    if not isinstance(table, dict):
        return {}
    return {
        name: topic_from_bean(name, one)
        for name, one in table.items()
        if isinstance(name, str) and isinstance(one, dict)
    }


def _inflated(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, _LARGEST_BODY)
    except zlib.error as error:
        raise CorruptError(f"the registration does not decompress: {error}") from error
    if not inflater.eof:
        raise CorruptError("the registration's body is cut short, or larger than any broker's")
    return plain


def _from_compressed(plain: bytes) -> dict[str, TopicConfig]:
    """int32 length and data version; int32 count and, for each topic, int32 length and its settings as text."""
    length, position = _length(plain, 0)
    position += length
    if len(plain) - position < _INT32.size:
        raise CorruptError("the registration ends before its topics")
    (count,) = _INT32.unpack_from(plain, position)
    position += _INT32.size
    if not 0 <= count <= _MOST_TOPICS:
        raise CorruptError(f"a registration of {count} topics is larger than any broker's")
    topics: dict[str, TopicConfig] = {}
    for _ in range(count):
        length, position = _length(plain, position)
        topic = _topic(plain[position : position + length])
        topics[topic.name] = topic
        position += length
    return topics


def _length(plain: bytes, position: int) -> tuple[int, int]:
    """A length that is held against what is left, and where what it counts begins."""
    if len(plain) - position < _INT32.size:
        raise CorruptError("the registration is cut short")
    (length,) = _INT32.unpack_from(plain, position)
    if not 0 <= length <= len(plain) - position - _INT32.size:
        raise CorruptError(f"{length} bytes do not fit into what is left of the registration")
    return length, position + _INT32.size


def _topic(text: bytes) -> TopicConfig:
    """`name read-queues write-queues perm filter-type [attributes]` (TopicConfig#encode)."""
    try:
        name, readable, writable, perm, filter_type, *_ = text.decode("utf-8").split(" ")
        return TopicConfig(name, int(readable), int(writable), int(perm), filter_type)
    except ValueError as error:
        raise CorruptError(f"a topic of the registration does not parse: {text[:80]!r}") from error


# Brokers and their topics, as they have registered (RouteInfoManager). Whoever calls says what time it is (ms).

EXPIRED_AFTER_MS = 120_000
"""A broker that does not register again for so long is gone (DEFAULT_BROKER_CHANNEL_EXPIRED_TIME)."""

_MOST_BROKERS = 1000
MASTER_ID = 0


class Registration(NamedTuple):
    """What a broker says of itself when it registers."""

    cluster: str
    name: str
    broker_id: int
    address: str
    topics: Mapping[str, TopicConfig]
    ha_address: str = ""


@dataclass
class RegisteredBroker:
    """The brokers of one name. `addresses` by broker id; `heard_at` (ms) and `connections`, the one of the last
    registration, by broker id too. What our own broker has is
    looked up when it is asked for: `own_address` and `own_topics` stand for it. `ha_address`: where slaves find the
    master's log, None if they do not."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    heard_at: dict[int, int] = field(default_factory=dict)
    connections: dict[int, Caller] = field(default_factory=dict)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    own_address: Callable[[Caller], str] | None = None
    own_topics: Callable[[], Mapping[str, TopicConfig]] | None = None
    ha_address: Callable[[Caller], str | None] = lambda caller: None
    is_own_wiped: bool = False

    def topic_table(self) -> Mapping[str, TopicConfig]:
        """Its topics by name."""
        if self.own_topics is None:
            return self.topics
        if not self.is_own_wiped:
            return self.own_topics()
        return {name: topic._replace(perm=topic.perm & ~PERM_WRITE) for name, topic in self.own_topics().items()}

    def address_table(self, caller: Caller) -> dict[int, str]:
        """Addresses by broker id, as `caller` can reach them."""
        own = {} if self.own_address is None else {MASTER_ID: self.own_address(caller)}
        return own | dict(sorted(self.addresses.items()))

    def as_bean(self, caller: Caller, *, quoted: bool = False) -> dict[str, Any]:
        """BrokerData of a route. `quoted`: ids as texts, which plain JSON demands."""
        addresses: dict[Any, str] = dict(self.address_table(caller))
        if quoted:
            addresses = {str(broker_id): address for broker_id, address in addresses.items()}
        return bean(brokerAddrs=addresses, brokerName=self.name, cluster=self.cluster, enableActingMaster=False)


class RouteTable:
    """Registered brokers by name."""

    def __init__(self) -> None:
        self._brokers: dict[str, RegisteredBroker] = {}

    def add_own(
        self,
        cluster: str,
        name: str,
        address: Callable[[Caller], str],
        topics: Callable[[], Mapping[str, TopicConfig]],
        ha_address: Callable[[Caller], str | None] = lambda caller: None,
    ) -> None:
        """Our own broker, which is there for good."""
        self._brokers[name] = RegisteredBroker(
            cluster, name, own_address=address, own_topics=topics, ha_address=ha_address
        )

    def register(self, one: Registration, now: int, *, has_slaves: bool = False, caller: Caller | None = None) -> None:
        """Another broker is there, with these topics. RequestError where it takes our own broker's name and place: only
        its slaves may have the name, if it `has_slaves`."""
        name, broker_id = one.name, one.broker_id
        broker = self._brokers.get(name)
        is_own = broker is not None and broker.own_address is not None
        if is_own and (broker_id == MASTER_ID or not has_slaves):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the broker name {name} is taken by the store served here")
        if broker is None:
            if len(self._brokers) >= _MOST_BROKERS:
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_BROKERS} brokers can register")
            broker = self._brokers[name] = RegisteredBroker(one.cluster, name)
        if broker_id not in broker.addresses and len(broker.addresses) >= _MOST_BROKERS:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_BROKERS} brokers of a name can register"
            )
        broker.addresses[broker_id] = one.address
        broker.heard_at[broker_id] = now
        if caller is not None:
            broker.connections[broker_id] = caller
        if is_own:
            return
        broker.cluster = one.cluster
        if broker_id == MASTER_ID:
            broker.ha_address = lambda caller: one.ha_address or None
        if broker_id == min(broker.addresses):
            # a broker of 5.x tells only of those that have changed, between the times that it tells of all
            broker.topics = {**broker.topics, **one.topics}

    def heard(self, name: str, address: str, now: int) -> None:
        """A broker that registered before is still there."""
        broker = self._brokers.get(name)
        for broker_id, known in broker.addresses.items() if broker is not None else ():
            if broker is not None and known == address:
                broker.heard_at[broker_id] = now

    def unregister(self, name: str, broker_id: int) -> None:
        """A broker leaves."""
        broker = self._brokers.get(name)
        if broker is None:
            return
        broker.addresses.pop(broker_id, None)
        broker.heard_at.pop(broker_id, None)
        broker.connections.pop(broker_id, None)
        if not broker.addresses and broker.own_address is None:
            del self._brokers[name]

    def lost(self, connection: Caller) -> None:
        """A connection ended: brokers that registered over it last are gone (RouteInfoManager#onChannelDestroy)."""
        for broker in list(self._brokers.values()):
            for broker_id, last in list(broker.connections.items()):
                if last is connection:
                    self.unregister(broker.name, broker_id)

    def remove_topic(self, topic: str) -> None:
        """Other brokers have a topic no more; one that has it after all tells so again."""
        for broker in self._brokers.values():
            broker.topics = {name: config for name, config in broker.topics.items() if name != topic}

    def permit_writing(self, name: str, *, may_write: bool) -> int:
        """Have all routes to the brokers of a name for reading only, or for both again; return how many topics these
        are. A broker of others that registers its topics again overrules it; our own keeps it."""
        broker = self._brokers.get(name)
        if broker is None:
            return 0
        if broker.own_topics is not None:
            broker.is_own_wiped = not may_write
        else:
            both = PERM_READ | PERM_WRITE
            broker.topics = {
                topic: config._replace(perm=both if may_write else config.perm & ~PERM_WRITE)
                for topic, config in broker.topics.items()
            }
        return len(broker.topic_table())

    def expire(self, now: int) -> None:
        """Forget brokers that were silent for too long."""
        for broker in list(self._brokers.values()):
            for broker_id, heard_at in list(broker.heard_at.items()):
                if now - heard_at > EXPIRED_AFTER_MS:
                    self.unregister(broker.name, broker_id)

    def all(self) -> list[RegisteredBroker]:
        """All brokers, by name."""
        return [broker for _, broker in sorted(self._brokers.items())]

    def find(self, name: str) -> RegisteredBroker | None:
        """The brokers of that name."""
        return self._brokers.get(name)

    def of_topic(self, topic: str) -> list[tuple[RegisteredBroker, TopicConfig]]:
        """Brokers that have `topic`, with their settings for it."""
        found = ((broker, broker.topic_table().get(topic)) for broker in self.all())
        return [(broker, config) for broker, config in found if config is not None]

    def queues_of(self, topic: str) -> list[MessageQueue] | None:
        """Queues of `topic` that can be read; None for a topic that no broker has."""
        found = self.of_topic(topic)
        return [queue for broker, config in found for queue in config.readable_queues(broker.name)] if found else None


_MOST_SETTINGS = 100_000
_ORDER_KEY = "orderMessageEnable"
_BLACK_LIST = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
# MQVersion.V4_9_4: from then on clients read plain JSON
_PLAIN_JSON_VERSION = 401


class NameServer:
    """The routes, and what else a name server knows. `clock`: ms of a clock that is never set."""

    def __init__(
        self, clock: Callable[[], int], host: str = "127.0.0.1", port: int = 9876, release: Release = DEFAULT_RELEASE
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


def get_route(server: NameServer, header: headers.GetRouteInfo, asked: Asked) -> RemotingCommand:
    """Which brokers have a topic, and how many queues of it."""
    topic = header.topic
    found = server.routes.of_topic(topic)
    if not found:
        raise RequestError(
            ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}\n{FAQ}"
        )
    quoted = asked.request.version >= _PLAIN_JSON_VERSION or header.accept_standard_json_only
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
    brokers = [broker.as_bean(asked.caller, quoted=quoted) for broker, _ in found]
    order = server.settings.get(ORDER_TOPIC_CONFIG, {}).get(topic) if server.changed.get(_ORDER_KEY) == "true" else None
    return json_answer(bean(brokerDatas=brokers, filterServerTable={}, orderTopicConf=order, queueDatas=queues))


def get_cluster_info(server: NameServer, header: Header, asked: Asked) -> RemotingCommand:
    """All brokers, by name and by cluster."""
    brokers = server.routes.all()
    clusters: dict[str, list[str]] = {}
    for broker in brokers:
        clusters.setdefault(broker.cluster, []).append(broker.name)
    table = {broker.name: broker.as_bean(asked.caller) for broker in brokers}
    return json_answer(bean(brokerAddrTable=table, clusterAddrTable=clusters))


def get_all_topics(server: NameServer, header: Header, asked: Asked) -> RemotingCommand:
    """Names of all topics."""
    return json_answer(
        bean(topicList=sorted({name for broker in server.routes.all() for name in broker.topic_table()}))
    )


def get_unit_topics(server: NameServer, header: Header, asked: Asked) -> RemotingCommand:
    """Names of topics with the sys flag that is asked for; the first broker of a topic counts."""
    flags: dict[str, int] = {}
    for broker in server.routes.all():
        for name, topic in broker.topic_table().items():
            flags.setdefault(name, topic.sys_flag)
    bit = UNIT if asked.request.code == RequestCode.GET_UNIT_TOPIC_LIST else UNIT_SUBSCRIPTION
    without = UNIT if asked.request.code == RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST else 0
    return json_answer(
        bean(topicList=sorted(name for name, flag in flags.items() if flag & bit and not flag & without))
    )


def get_topics_by_cluster(server: NameServer, header: headers.GetTopicsByCluster, asked: Asked) -> RemotingCommand:
    """Names of a cluster's topics."""
    cluster = header.cluster
    brokers = [broker for broker in server.routes.all() if broker.cluster == cluster]
    return json_answer(bean(topicList=sorted({name for broker in brokers for name in broker.topic_table()})))


def get_system_topics(server: NameServer, header: Header, asked: Asked) -> RemotingCommand:
    """Names of clusters and brokers, which are topics too."""
    brokers = server.routes.all()
    names = sorted({broker.cluster for broker in brokers} | {broker.name for broker in brokers})
    addresses = [address for broker in brokers for address in broker.address_table(asked.caller).values()]
    return json_answer(bean(brokerAddr=addresses[0] if addresses else None, topicList=names))


def get_member_group(server: NameServer, header: headers.GetBrokerMemberGroup, asked: Asked) -> RemotingCommand:
    """The brokers of one name."""
    cluster, name = header.cluster_name, header.broker_name
    broker = server.routes.find(name)
    addresses = broker.address_table(asked.caller) if broker is not None and broker.cluster == cluster else {}
    return json_answer(bean(brokerMemberGroup=bean(brokerAddrs=addresses, brokerName=name, cluster=cluster)))


def get_kv_config(server: NameServer, header: headers.KvKey, asked: Asked) -> RemotingCommand:
    """A setting of a namespace, such as the queues of an ordered topic."""
    namespace, key = header.namespace, header.key
    value = server.settings.get(namespace, {}).get(key)
    if value is not None:
        return RemotingCommand(ResponseCode.SUCCESS, {"value": value})
    raise RequestError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")


def get_kv_list(server: NameServer, header: headers.KvNamespace, asked: Asked) -> RemotingCommand:
    """All settings of a namespace."""
    namespace = header.namespace
    table = server.settings.get(namespace)
    if table is not None:
        return json_answer(bean(table=dict(sorted(table.items()))))
    raise RequestError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")


def get_config(server: NameServer, header: Header, asked: Asked) -> RemotingCommand:
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


def put_kv_config(server: NameServer, header: headers.PutKvConfig, asked: Asked) -> RemotingCommand:
    """Have a setting of a namespace until the name server ends."""
    namespace, key = header.namespace, header.key
    if namespace is None or key is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
    value = header.value
    if sum(map(len, server.settings.values())) >= _MOST_SETTINGS and key not in server.settings.get(namespace, {}):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_SETTINGS} settings are remembered")
    server.settings.setdefault(namespace, {})[key] = value
    return RemotingCommand(ResponseCode.SUCCESS)


def delete_kv_config(server: NameServer, header: headers.KvKey, asked: Asked) -> RemotingCommand:
    """Forget a setting."""
    server.settings.get(header.namespace, {}).pop(header.key, None)
    return RemotingCommand(ResponseCode.SUCCESS)


def wipe_write_perm(server: NameServer, header: headers.BrokerNameHeader, asked: Asked) -> RemotingCommand:
    """Have the routes to a broker for reading only, until it registers again or gets its permission back."""
    count = server.routes.permit_writing(header.broker_name, may_write=False)
    return RemotingCommand(ResponseCode.SUCCESS, {"wipeTopicCount": str(count)})


def add_write_perm(server: NameServer, header: headers.BrokerNameHeader, asked: Asked) -> RemotingCommand:
    """Have the routes to a broker for writing and reading."""
    count = server.routes.permit_writing(header.broker_name, may_write=True)
    return RemotingCommand(ResponseCode.SUCCESS, {"addTopicCount": str(count)})


def update_config(server: NameServer, header: Header, asked: Asked) -> RemotingCommand:
    """Go by another setting: one that counts here. Others are refused, all of the request with them."""
    try:
        properties = parse_properties(bytes(asked.request.body))
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


def register_broker(server: NameServer, header: headers.RegisterBroker, asked: Asked) -> RemotingCommand:
    """Register another broker and its topics."""
    cluster, name = header.cluster_name, header.broker_name
    broker_id, address = header.broker_id, header.broker_addr
    topics = registered_topics(asked.request.body, is_compressed=header.compressed, crc=header.body_crc32)
    known = server.routes.find(name)
    has_slaves = known is not None and known.ha_address(asked.caller) is not None
    said = Registration(cluster, name, broker_id, address, topics, header.ha_server_addr)
    server.routes.register(said, server.clock(), has_slaves=has_slaves, caller=asked.caller)
    master = server.routes.find(name)
    answer = {}
    if broker_id and master is not None and MASTER_ID in (addresses := master.address_table(asked.caller)):
        answer = {"masterAddr": addresses[MASTER_ID]}
        if (ha := master.ha_address(asked.caller)) is not None:
            answer["haServerAddr"] = ha
    return RemotingCommand(ResponseCode.SUCCESS, answer)


def unregister_broker(server: NameServer, header: headers.UnregisterBroker, asked: Asked) -> RemotingCommand:
    """Another broker leaves."""
    server.routes.unregister(header.broker_name, header.broker_id)
    return RemotingCommand(ResponseCode.SUCCESS)


def broker_heartbeat(server: NameServer, header: headers.BrokerHeartbeat, asked: Asked) -> RemotingCommand:
    """Another broker is still there."""
    server.routes.heard(header.broker_name, header.broker_addr, server.clock())
    return RemotingCommand(ResponseCode.SUCCESS)


def query_data_version(server: NameServer, header: headers.BrokerHeartbeat, asked: Asked) -> RemotingCommand:
    """Whether a broker has to send its topics again: it always has to, no versions are kept."""
    server.routes.heard(header.broker_name, header.broker_addr, server.clock())
    return RemotingCommand(ResponseCode.SUCCESS, {"changed": "true"})


def delete_topic(server: NameServer, header: headers.DeleteTopicInNamesrv, asked: Asked) -> RemotingCommand:
    """Other brokers have a topic no more; our own knows by itself."""
    server.routes.remove_topic(header.topic)
    return RemotingCommand(ResponseCode.SUCCESS)


SERVICES: dict[int, Service[NameServer]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Service(get_route, "brokers and queues of a topic; 17 if unknown"),
    RequestCode.GET_BROKER_CLUSTER_INFO: Service(get_cluster_info, "all brokers by cluster"),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Service(get_all_topics, "names of all topics"),
    RequestCode.GET_TOPICS_BY_CLUSTER: Service(get_topics_by_cluster, "names of a cluster's topics"),
    RequestCode.GET_UNIT_TOPIC_LIST: Service(get_unit_topics, "topics made by producers in unit mode"),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: Service(get_unit_topics, "retry topics of consumers in unit mode"),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Service(get_unit_topics, "those without the flag of producers"),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: Service(get_system_topics, "names of clusters and brokers"),
    RequestCode.GET_BROKER_MEMBER_GROUP: Service(get_member_group, "brokers of one name"),
    RequestCode.GET_KV_CONFIG: Service(get_kv_config, "a setting of a namespace; 22 without one"),
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
