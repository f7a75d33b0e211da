"""Tells name servers of others that our broker is there, and with what topics (BrokerOuterAPI#registerBrokerAll)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rmqctl.formats.checksums import body_crc
from rmqctl.formats.errors import RemoteError
from rmqctl.network.broker.broker import Broker
from rmqctl.network.broker.settings import ANY_ADDRESS
from rmqctl.network.broker.tables import NO_VERSION
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import MessageQueue, RequestCode, bean, fastjson
from rmqctl.network.remoting.headers import RegisterBroker, UnregisterBroker
from rmqctl.network.topic_config import TopicConfig
from rmqctl.store.config.config_files import next_version

_LOOK_SECONDS = 0.5


class Registrar:
    """Registers a broker at every one of some name servers, as long as `keep_on` runs."""

    def __init__(self, namesrv: str, broker: Broker, address: str) -> None:
        """`namesrv`: addresses `host:port`, separated by `;`. `address`: where the others reach the broker."""
        self._name_servers = [one for one in namesrv.split(";") if one]
        self._broker = broker
        self._address = address
        self._client = Client(namesrv)
        self._topics: Mapping[str, TopicConfig] = {}
        self._version: dict[str, Any] = dict(NO_VERSION)
        self._silent: set[str] = set()

    async def keep_on(self) -> None:
        """Register now, when the topics change, and every registerNameServerPeriod ms. A refusal is reported once."""
        told_at = 0.0
        while True:
            if self._broker.is_hidden:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            topics = self._broker.routes()
            period = min(max(self._broker.settings.register_name_server_period, 10_000), 60_000) / 1000
            if topics != self._topics or time.monotonic() - told_at >= period:
                if topics != self._topics:
                    # name servers compare versions, and look at the topics of a new one only
                    self._topics, self._version = topics, next_version(self._version, self._broker.clock())
                told_at = time.monotonic()
                await asyncio.to_thread(self._register, self._body())
            await asyncio.sleep(_LOOK_SECONDS)

    def queues_of(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of a topic in the cluster; those of the broker alone where no name server knows it."""
        with contextlib.suppress(RemoteError):
            route = self._client.route(topic)
            if route is not None:
                return list(route.readable)
        return self._broker.own_queues_of(topic)

    def _names(self) -> dict[str, Any]:
        identity = self._broker.identity
        return {
            "broker_name": identity.name, "broker_addr": self._address, "cluster_name": identity.cluster,
            "broker_id": identity.broker_id,
        }  # fmt: skip

    def _body(self) -> bytes:
        table = {name: topic.as_bean() for name, topic in self._topics.items()}
        wrapper = bean(dataVersion=self._version, topicConfigTable=table)
        return fastjson(bean(filterServerList=[], topicConfigSerializeWrapper=wrapper))

    def _register(self, body: bytes) -> None:
        header = RegisterBroker(**self._names(), ha_server_addr=self._ha_address(), body_crc32=body_crc(body))
        limit = self._broker.settings.register_broker_timeout_mills / 1000

        def register_at(name_server: str) -> None:
            try:
                self._client.ask(name_server, RequestCode.REGISTER_BROKER, header, body, seconds=limit)
                self._silent.discard(name_server)
            except RemoteError as error:
                if name_server not in self._silent:
                    self._silent.add(name_server)
                    self._broker.tell(f"not registered at name server {name_server}: {error.message}")

        # one that does not answer keeps none of the others waiting
        with ThreadPoolExecutor(len(self._name_servers)) as threads:
            list(threads.map(register_at, self._name_servers))

    def _ha_address(self) -> str:
        """Return where slaves of other machines reach the log: brokerIP2, where slaves are listened for, or the
        broker's own host; port 0 where none can come."""
        identity = self._broker.identity
        own = self._address.rpartition(":")[0]
        if identity.ha_port is None:
            return f"{own}:0"
        host = self._broker.properties.get("brokerIP2")
        if not host:
            host = own if identity.ha_host in ANY_ADDRESS else identity.ha_host
        return f"[{host}]:{identity.ha_port}" if ":" in host and host[0] != "[" else f"{host}:{identity.ha_port}"

    def leave(self) -> None:
        """Tell them that the broker goes; who does not hear it forgets it by itself."""
        header = UnregisterBroker(**self._names())
        for name_server in self._name_servers:
            try:
                if name_server not in self._silent:
                    self._client.ask(name_server, RequestCode.UNREGISTER_BROKER, header)
            except RemoteError as error:
                self._broker.tell(f"cannot unregister from name server {name_server}: {error.message}")
        self._client.close()
