"""Who the broker is for the others: cluster, name, and an address that can be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqctl.network.remoting.services import Caller
from rmqctl.store.config.versions import DEFAULT_RELEASE, Release

MASTER_ID = 0
ANY_ADDRESS = ("", "0.0.0.0", "::")


class BrokerIdentity(NamedTuple):
    """Cluster and name as brokerClusterName and brokerName say, and where it listens: for clients, and at `ha_port` for
    slaves; None where none can come. `release`: the version of RocketMQ that it names as its own."""

    cluster: str = "DefaultCluster"
    name: str = "broker-a"
    broker_id: int = MASTER_ID
    host: str = "127.0.0.1"
    port: int = 10911
    ha_host: str = ""
    ha_port: int | None = None
    release: Release = DEFAULT_RELEASE

    def address(self, caller: Caller) -> str:
        """Where `caller` can reach the broker: where it listens, or, listening at all addresses of the machine, the one
        of them that the caller came to already."""
        return _reachable(caller, self.host, self.port)

    def reachable_host(self, caller: Caller) -> str:
        """Return the host of `address`, an IPv6 address without brackets."""
        return caller.local_ip if self.host in ANY_ADDRESS else self.host

    def ha_address(self, caller: Caller) -> str | None:
        """The same for slaves; None where none can come."""
        return None if self.ha_port is None else _reachable(caller, self.ha_host, self.ha_port)


def _reachable(caller: Caller, host: str, port: int) -> str:
    host = caller.local_ip if host in ANY_ADDRESS else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def identity_from_properties(properties: Mapping[str, str]) -> BrokerIdentity:
    """The names that a broker.conf gives; RocketMQ's example names where it gives none."""
    default = BrokerIdentity()
    return default._replace(
        cluster=properties.get("brokerClusterName") or default.cluster,
        name=properties.get("brokerName") or default.name,
    )
