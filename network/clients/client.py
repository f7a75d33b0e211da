"""What producers and consumers share: routes, connections, heartbeats (MQClientInstance)."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from typing import Any

from rmqctl.formats.errors import RemoteError
from rmqctl.network.clients.channel import LANGUAGE, Answered, Connection, Dial
from rmqctl.network.clients.routes import Route, route_of
from rmqctl.network.clients.sockets import SocketChannel
from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.fastjson import fastjson
from rmqctl.network.unique_ids import own_address

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
    ) -> None:
        """`namesrv`: addresses `host:port`, separated by `;`."""
        Client._count += 1
        self.client_id = f"{own_address() or '127.0.0.1'}@{os.getpid()}#{time.time_ns()}{Client._count}"
        self._name_servers = [address for address in namesrv.split(";") if address]
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
        with self._lock:
            found = self._connections.get(address)
        if found is not None and found.is_open:
            return found
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
                made.submit(RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson(self._heartbeat)))
        return made

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
        fields: Mapping[str, Any] | None = None,
        body: bytes = b"",
        *,
        seconds: float = SECONDS,
        allowed: tuple[int, ...] = (),
    ) -> RemotingCommand:
        """The answer of a server. RemoteError; BrokerError for a code that is neither success nor `allowed`."""
        answer = self.connection(address).request(RemotingCommand(code, texts(fields or {}), body), seconds)
        if answer.code != ResponseCode.SUCCESS and answer.code not in allowed:
            raise BrokerError.of(address, answer)
        return answer

    def ask_runtime_info(self, address: str) -> RemotingCommand:
        """What a broker tells of itself; errors as of `ask`.

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

        Where it is not looked up anew, name servers that are away or have forgotten it leave the route as it was.
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
        fields, allowed = {"topic": topic}, (int(ResponseCode.TOPIC_NOT_EXIST),)
        answer = self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, allowed=allowed)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        route = route_of(topic, answer.body)
        self._routes[topic] = (time.monotonic(), route)
        return route

    def known_route(self, topic: str) -> Route | None:
        """Return the route that was looked up last; no server is asked."""
        found = self._routes.get(topic)
        return None if found is None else found[1]

    def ask_name_server(
        self, code: int, fields: Mapping[str, Any] | None = None, *, allowed: tuple[int, ...] = ()
    ) -> RemotingCommand:
        """The answer of the first name server that gives one; errors as of `ask`."""
        problem: RemoteError = RemoteError("no name server is given", hint="name one as HOST:PORT")
        for address in list(self._name_servers):
            try:
                return self.ask(address, code, fields, allowed=allowed)
            except RemoteError as error:
                problem = error
                # the next one comes first from now on
                self._name_servers = [*self._name_servers[1:], self._name_servers[0]]
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
                    connection.submit(RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson(self._heartbeat)))
                elif connection.is_open:
                    self._beat_at(address)
            except RemoteError:
                continue  # the next request will say so

    def _beat_at(self, address: str) -> None:
        self.ask(address, RequestCode.HEART_BEAT, body=fastjson(self._heartbeat))

    def unregister(self, fields: Mapping[str, Any]) -> None:
        """Have every connected broker forget this client in the group of `fields`, and wait 1 s for their answers."""
        # before it is forgotten that slaves know a consumer, too
        brokers = self.brokers()
        self._heartbeat = None
        command = RemotingCommand(RequestCode.UNREGISTER_CLIENT, texts({"clientID": self.client_id, **fields}))
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


def texts(fields: Mapping[str, Any]) -> dict[str, str]:
    """Fields of a header as texts; what is None is left out."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
        if value is not None
    }


__all__ = ["LANGUAGE", "SECONDS", "BrokerError", "Client", "texts"]
