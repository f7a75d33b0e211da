"""What producers and consumers share: routes, connections, heartbeats (MQClientInstance)."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import RemoteError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.channel import LANGUAGE, AddressError, Answered, Connection, Dial, SocketChannel
from rmqctl.network.remoting.codec import (
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    fastjson,
    integer_of,
    objects,
    text_of,
)
from rmqctl.network.remoting.headers import (
    GetRouteInfo,
    Header,
    PullMessage,
    QueryConsumerOffset,
    QueueHeader,
    SearchOffset,
    UnregisterClient,
    UpdateConsumerOffset,
    request,
)
from rmqctl.network.topic_config import PERM_READ, PERM_WRITE
from rmqctl.network.unique_ids import own_address
from rmqctl.store.answers.dead_letters import DLQ_PREFIX
from rmqctl.store.config.config_files import is_brokers_own
from rmqctl.store.pop.records import RETRY_PREFIX
from rmqctl.store.read.filter import expression_type

# Where the queues of a topic are, as a name server says (TopicRouteData).

_MASTER = 0
_AVOIDED_SECONDS = 30.0


class Route(NamedTuple):
    """A topic's queues that can be written to and read from, in RocketMQ's order, and the brokers' addresses by name:
    those of masters, or of the slaves with the lowest ids. `replicas`: all addresses of each name, by broker id."""

    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    addresses: dict[str, str]
    replicas: Mapping[str, Mapping[int, str]] = MappingProxyType({})


class PullNodes:
    """Which broker of a name each queue is pulled from: the one that its last answer suggested (PullAPIWrapper).

    A slave that failed is avoided for 30 s, by when a route without it is known.
    """

    def __init__(self) -> None:
        self._suggested: dict[MessageQueue, int] = {}
        self._avoided: dict[str, float] = {}

    def suggested(self, queue: MessageQueue, answer: RemotingCommand) -> None:
        """Note what the answer to a pull says of the next one."""
        text = answer.fields.get("suggestWhichBrokerId", "")
        self._suggested[queue] = int(text) if text.isascii() and text.isdigit() else _MASTER

    def failed(self, queue: MessageQueue, address: str) -> None:
        """Note that a slave did not answer as it should."""
        self._suggested.pop(queue, None)
        self._avoided[address] = time.monotonic() + _AVOIDED_SECONDS

    def find(self, queue: MessageQueue, route: Route | None) -> tuple[str, bool] | None:
        """Return the address to pull a queue from, and whether that is a slave's; None where the route has none."""
        by_id = route.replicas.get(queue.broker_name) if route is not None else None
        if not by_id:
            return None
        wanted = self._suggested.get(queue, _MASTER)
        # MQClientInstance#findBrokerAddressInSubscribe
        for broker_id in (wanted, wanted + 1) if wanted != _MASTER else ():
            address = by_id.get(broker_id)
            if address is not None and self._avoided.get(address, 0.0) <= time.monotonic():
                return address, True
        lowest = min(by_id)
        return by_id[lowest], lowest != _MASTER


PULL_LOST_SECONDS = 45.0
"""How long an answer to a pull is waited for: a broker that looks at its pulls every 5 s answers up to 20 s late."""
_PULL_ANSWERS = (
    int(ResponseCode.SUCCESS),
    int(ResponseCode.PULL_NOT_FOUND),
    int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    int(ResponseCode.PULL_OFFSET_MOVED),
)
# PullSysFlag: commit the offset of the request, wait for messages, the subscription is in the request
_COMMIT, _SUSPEND, _SUBSCRIPTION = 1, 2, 4
# brokerSuspendMaxTimeMillis of a push consumer
_SUSPEND_MS = 15_000


def pull_request(
    group: str,
    queue: MessageQueue,
    offset: int,
    count: int,
    subscription: str,
    *,
    commit: int = 0,
    at_slave: bool = False,
) -> RemotingCommand:
    """Return the request for up to `count` messages from `offset` on, which waits for some; masters commit `commit`."""
    flags = _SUSPEND | _SUBSCRIPTION | (_COMMIT if commit > 0 and not at_slave else 0)
    header = PullMessage(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset, max_msg_nums=count,
        sys_flag=flags, commit_offset=commit, sub_version=0, suspend_timeout_millis=_SUSPEND_MS,
        expression_type=expression_type(subscription), subscription=subscription, broker_name=queue.broker_name,
    )  # fmt: skip
    return request(RequestCode.PULL_MESSAGE, header)


def pull_answer(address: str, answer: RemotingCommand) -> RemotingCommand:
    """Return the answer to a pull. BrokerError for a failure."""
    if answer.code not in _PULL_ANSWERS:
        raise BrokerError.of(address, answer)
    return answer


def young_enough(found: list[StoredMessage], begin: int) -> list[StoredMessage]:
    """Return messages from the first one on that was stored at `begin` (ms) or later."""
    first = next((number for number, one in enumerate(found) if one.store_timestamp >= begin), len(found))
    return found[first:]


def route_of(topic: str, body: bytes) -> Route:
    """The route in the body of an answer (MQClientInstance#topicRouteData2TopicPublishInfo). CorruptError."""
    content = parse_config_json(body.decode("utf-8", "replace"))
    content = content if isinstance(content, dict) else {}
    addresses: dict[str, str] = {}
    replicas: dict[str, dict[int, str]] = {}
    masters: set[str] = set()
    for broker in objects(content.get("brokerDatas")):
        listed: dict[Any, Any] = broker.get("brokerAddrs") or {}
        by_id = {int(broker_id): str(address) for broker_id, address in listed.items()}
        name = text_of(broker, "brokerName")
        if by_id:
            addresses[name] = by_id[min(by_id)]
            replicas[name] = by_id
        if _MASTER in by_id:
            masters.add(name)
    writable: list[MessageQueue] = []
    readable: list[MessageQueue] = []
    for queue in sorted(objects(content.get("queueDatas")), key=lambda one: text_of(one, "brokerName")):
        name, perm = text_of(queue, "brokerName"), integer_of(queue, "perm")
        if perm & PERM_WRITE and name in masters:
            writable += (MessageQueue(name, number, topic) for number in range(integer_of(queue, "writeQueueNums")))
        if perm & PERM_READ and name in addresses:
            readable += (MessageQueue(name, number, topic) for number in range(integer_of(queue, "readQueueNums")))
    ordered = text_of(content, "orderTopicConf")
    if ordered:
        # an ordered topic keeps its queues while one of their brokers is away, so that keys keep their queues
        writable = list(_ordered_queues(topic, ordered))
    return Route(tuple(writable), tuple(readable), addresses, replicas)


def _ordered_queues(topic: str, text: str) -> Iterator[MessageQueue]:
    """Yield the queues of an ordered topic: `broker:count;broker:count` (orderTopicConf)."""
    for one in text.split(";"):
        name, _, count = one.partition(":")
        if count.isascii() and count.isdigit():
            yield from (MessageQueue(name, number, topic) for number in range(int(count)))


# Addresses of name servers (NameServerAddressUtils).

_ENDPOINT = re.compile(r"(?:\w+://)?MQ_INST_\w+_\w+\..*", re.ASCII)


def name_server_addresses(namesrv: str) -> list[str]:
    """Return the addresses `host:port` in `namesrv`: one or more, separated by `;`, or one as `http://host:port`."""
    if namesrv.strip().startswith("http://"):
        namesrv = namesrv.strip().rpartition("/")[2]
    return [address for address in namesrv.split(";") if address]


def namespace_of(namesrv: str) -> str:
    """Return the namespace in an address such as `http://MQ_INST_user_name.host:port`; empty where it has none."""
    if not _ENDPOINT.fullmatch(namesrv):
        return ""
    return namesrv.partition(".")[0].rpartition("/")[2]


Where = Literal["first", "last"] | int
"""Where a group begins that has no offset: at the first message, after the last, or at a store time (ms)."""
Warn = Callable[[str], object]
"""Gets a line for what goes wrong."""
log_warning: Warn = logging.getLogger("rmqctl.network").warning

SECONDS = 3.0
"""How long an answer is waited for (sendMsgTimeout, mqClientApiTimeout)."""
_ROUTE_SECONDS = 30.0
_HEARTBEAT_SECONDS = 30.0
_FIRST_FIGURES_SECONDS = 5.0
_STARTING_SECONDS = 0.2
_UNREGISTER_SECONDS = 1.0


class BrokerError(RemoteError):
    """A server answered with a code that is no success: `answer_code`."""

    code = "RMQ-E-019"
    answer_code = 0

    @classmethod
    def of(cls, address: str, answer: RemotingCommand) -> BrokerError:
        """The error for an answer."""
        error = cls(f"{address} answered with {answer.code}: {answer.remark or 'it does not say why'}")
        error.answer_code = answer.code
        return error


def unknown_broker(queue: MessageQueue) -> RemoteError:
    """Return the error for a queue of a broker that is in no route."""
    return RemoteError(f"no name server knows broker {queue.broker_name!r} of topic {queue.topic!r}")


class Client:
    """One client of a cluster. `dial` opens channels: over TCP unless another way is given.

    Requests that servers send are handed to `on_request` with the address they came from.
    """

    _count = 0

    def __init__(
        self,
        namesrv: str,
        dial: Dial = SocketChannel,
        on_request: Callable[[str, RemotingCommand], Answered] = lambda address, command: None,
        *,
        instance: str = "",
        unit: str = "",
    ) -> None:
        """`namesrv`: as for `name_server_addresses`. `instance`: the instanceName, by default process and time; `unit`:
        the unitName. Both are part of the client id (ClientConfig#buildMQClientId)."""
        Client._count += 1
        instance = instance or f"{os.getpid()}#{time.time_ns()}{Client._count}"
        parts = own_address() or "127.0.0.1", instance, unit
        self.client_id = "@".join(parts if unit.strip() else parts[:2])
        self._name_servers = name_server_addresses(namesrv)
        self._dial = dial
        self._on_request = on_request
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._routes: dict[str, tuple[float, Route]] = {}
        self._heartbeat: dict[str, Any] | None = None
        self._heartbeat_seconds = _HEARTBEAT_SECONDS
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def name_servers(self) -> list[str]:
        """Addresses of the name servers."""
        return list(self._name_servers)

    # ---- requests

    def connection(self, address: str) -> Connection:
        """A connection that is open, a new one if need be. RemoteError."""
        found = self.open_connection(address)
        if found is not None:
            return found
        if self._closing.is_set():
            raise RemoteError(f"{address} is asked for nothing more: the client is closed")
        made = Connection(address, self._dial, lambda command: self._on_request(address, command))
        with self._lock:
            found = self._connections.get(address)
            if found is None or not found.is_open:
                self._connections[address] = found = made
        if found is not made:
            # somebody else was faster
            made.close()
            return found
        if self._heartbeat is not None and address in self.brokers():
            if self._heartbeat.get("consumerDataSet"):
                self._beat_at(address)
            else:
                # a producer waits for the answer to its message only, which a frozen broker does not give
                made.submit(request(RequestCode.HEART_BEAT, body=fastjson(self._heartbeat)))
        return made

    def open_connection(self, address: str) -> Connection | None:
        """Return a connection that is open; no server is asked."""
        found = self._connections.get(address)
        return found if found is not None and found.is_open else None

    def brokers(self) -> set[str]:
        """Return the addresses of all brokers that are to know this client: consumers may pull from slaves."""
        routes = [route for _, route in list(self._routes.values())]
        if self._heartbeat is not None and self._heartbeat.get("consumerDataSet"):
            return {address for route in routes for by_id in route.replicas.values() for address in by_id.values()}
        return {address for route in routes for address in route.addresses.values()}

    def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        seconds: float = SECONDS,
        allowed: tuple[int, ...] = (),
    ) -> RemotingCommand:
        """The answer of a server. RemoteError; BrokerError for a code that is neither success nor `allowed`."""
        answer = self.connection(address).request(request(code, header, body), seconds)
        if answer.code != ResponseCode.SUCCESS and answer.code not in allowed:
            raise BrokerError.of(address, answer)
        return answer

    def ask_runtime_info(self, address: str) -> RemotingCommand:
        """Return a broker's runtime info; errors as of `ask`.

        A broker of RocketMQ answers with a NoSuchElementException until it has counted what it stores for the first
        time, a second or more after it began to listen (StoreStatsService#getPutTps of an empty list): it is asked
        again for 5 s.
        """
        end = time.monotonic() + _FIRST_FIGURES_SECONDS
        while True:
            try:
                return self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
            except BrokerError as error:
                is_starting = error.answer_code == ResponseCode.SYSTEM_ERROR and "NoSuchElement" in error.message
                if not is_starting or time.monotonic() >= end or self._closing.wait(_STARTING_SECONDS):
                    raise

    # ---- routes

    def route(self, topic: str, *, anew: bool = False) -> Route | None:
        """Return where a topic is; None if no name server knows it. It is looked up every 30 s, or `anew`.

        If it is not looked up again, name servers that are away or have forgotten it leave the route as it was.
        """
        found = self._routes.get(topic)
        if found is None or anew:
            return self._look_up(topic)
        if time.monotonic() - found[0] < _ROUTE_SECONDS:
            return found[1]
        with contextlib.suppress(RemoteError):
            looked_up = self._look_up(topic)
            if looked_up is not None:
                return looked_up
        self._routes[topic] = time.monotonic(), found[1]
        return found[1]

    def _look_up(self, topic: str) -> Route | None:
        header, allowed = GetRouteInfo(topic=topic), (int(ResponseCode.TOPIC_NOT_EXIST),)
        answer = self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, allowed=allowed)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        route = route_of(topic, answer.body)
        self._routes[topic] = (time.monotonic(), route)
        return route

    def address_of(self, queue: MessageQueue) -> str:
        """Return the address of the broker of a queue. RemoteError where no name server knows it."""
        route = self.route(queue.topic)
        if route is None or queue.broker_name not in route.addresses:
            raise unknown_broker(queue)
        return route.addresses[queue.broker_name]

    def bound_of(self, queue: MessageQueue, code: RequestCode, timestamp: int | None = None) -> int:
        """Return an offset of a queue as its broker has it: GET_MIN_OFFSET or GET_MAX_OFFSET, with a store time
        SEARCH_OFFSET_BY_TIMESTAMP. RemoteError."""
        header: Header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
        if timestamp is not None:
            header = SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp)
        return int(self.ask(self.address_of(queue), code, header).fields["offset"])

    def first_offset(self, queue: MessageQueue, begin: Where) -> int:
        """Return the offset at which a group begins that has none (computePullFromWhere). RemoteError."""
        if begin == "first":
            return self.bound_of(queue, RequestCode.GET_MIN_OFFSET)
        if begin == "last":
            return self.bound_of(queue, RequestCode.GET_MAX_OFFSET)
        # brokers of 4.x return the nearest message: never one after the first of that time if asked for 1 ms earlier
        return self.bound_of(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, max(0, begin - 1))

    def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return the offset of a group in a queue as its broker has it, None without one. RemoteError."""
        # young queues have offset 0 for everybody, which is not what the group was asked to begin with
        header = QueryConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        allowed = (int(ResponseCode.QUERY_NOT_FOUND),)
        answer = self.ask(self.address_of(queue), RequestCode.QUERY_CONSUMER_OFFSET, header, allowed=allowed)
        return int(answer.fields["offset"]) if answer.code == ResponseCode.SUCCESS else None

    def known_route(self, topic: str) -> Route | None:
        """Return the route that was looked up last; no server is asked."""
        found = self._routes.get(topic)
        return None if found is None else found[1]

    def ask_name_server(
        self, code: int, header: Header | None = None, *, allowed: tuple[int, ...] = ()
    ) -> RemotingCommand:
        """The answer of the first name server that gives one; errors as of `ask`."""
        problem: RemoteError = AddressError("no name server is given", hint="name one as HOST:PORT")
        for address in list(self._name_servers):
            try:
                return self.ask(address, code, header, allowed=allowed)
            except RemoteError as error:
                problem = error
                with self._lock:
                    # the next one comes first from now on, unless another thread has seen to that
                    if self._name_servers[0] == address:
                        self._name_servers = [*self._name_servers[1:], address]
        raise problem

    # ---- heartbeats

    def start_heartbeats(self, content: dict[str, Any], seconds: float = _HEARTBEAT_SECONDS) -> None:
        """Announce this client to every known broker, now and every `seconds`."""
        self._heartbeat = {"clientID": self.client_id, **content}
        self._heartbeat_seconds = seconds
        self.beat()
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat_on, name="rmqctl-heartbeat", daemon=True)
            self._thread.start()

    def _beat_on(self) -> None:
        while not self._closing.wait(self._heartbeat_seconds):
            self.beat()

    def beat(self) -> None:
        """Tell the brokers now: of the slaves those that are pulled from, without waiting for them."""
        masters = {address for _, route in list(self._routes.values()) for address in route.addresses.values()}
        with self._lock:
            connected = {address for address, one in self._connections.items() if one.is_open}
        for address in sorted(masters | (self.brokers() & connected)):
            try:
                connection = self.connection(address)
                if address not in masters:
                    connection.submit(request(RequestCode.HEART_BEAT, body=fastjson(self._heartbeat)))
                elif connection.is_open:
                    self._beat_at(address)
            except RemoteError:
                continue  # the next request will say so

    def _beat_at(self, address: str) -> None:
        self.ask(address, RequestCode.HEART_BEAT, body=fastjson(self._heartbeat))

    def commit_offset(self, group: str, queue: MessageQueue, offset: int, *, is_oneway: bool = False) -> None:
        """Have the broker of a queue keep the offset of a group; with `is_oneway` without an answer. RemoteError."""
        header = UpdateConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        if is_oneway:
            self.connection(self.address_of(queue)).oneway(request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        else:
            self.ask(self.address_of(queue), RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def unregister(self, header: UnregisterClient) -> None:
        """Have every connected broker forget this client in the group of `header`, and wait 1 s for their answers."""
        # before it is forgotten that slaves know a consumer, too
        brokers = self.brokers()
        self._heartbeat = None
        command = request(RequestCode.UNREGISTER_CLIENT, replace(header, client_id=self.client_id))
        with self._lock:
            known = [self._connections[one] for one in brokers if one in self._connections]
        asked = []
        for connection in known:
            # a broker that is gone forgets its clients
            with contextlib.suppress(RemoteError):
                if connection.is_open:
                    asked.append(connection.submit(command))
        wait(asked, _UNREGISTER_SECONDS)

    def close(self) -> None:
        """End all connections."""
        self._closing.set()
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()


__all__ = ["LANGUAGE", "SECONDS", "BrokerError", "Client", "name_server_addresses", "namespace_of"]


# Names of topics and groups within a namespace (NamespaceUtil).

_SEPARATOR = "%"
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
INSTANCE_ID = "INSTANCE_ID"
"""Property of a message that was sent within a namespace."""


def with_namespace(namespace: str, name: str) -> str:
    """Return the name of a topic or group as brokers know it. System names have no namespace."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, rest = _parts(name)
    return name if rest.startswith(namespace + _SEPARATOR) else f"{prefix}{namespace}{_SEPARATOR}{rest}"


def without_namespace(namespace: str, name: str) -> str:
    """Return the name without the namespace; a name of another namespace is left as it is."""
    prefix, rest = _parts(name)
    if not namespace or _is_system(name) or not rest.startswith(namespace + _SEPARATOR):
        return name
    return prefix + rest[len(namespace) + 1 :]


def _parts(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return is_brokers_own(name) or name.startswith(_SYSTEM_GROUP_PREFIX)
