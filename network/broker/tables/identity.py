"""Who the broker is for the others: cluster, name, and an address that can be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqctl.network.remoting.services import Caller

MASTER_ID = 0
_ANY = ("", "0.0.0.0", "::")


class BrokerIdentity(NamedTuple):
    """Cluster and name as brokerClusterName and brokerName say, and where it listens."""

    cluster: str = "DefaultCluster"
    name: str = "broker-a"
    broker_id: int = MASTER_ID
    host: str = "127.0.0.1"
    port: int = 10911

    def address(self, caller: Caller) -> str:
        """Where `caller` can reach the broker: where it listens, or, listening at all addresses of the machine, the one
        of them that the caller came to already."""
        host = caller.local_ip if self.host in _ANY else self.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def identity_from_properties(properties: Mapping[str, str]) -> BrokerIdentity:
    """The names that a broker.conf gives; RocketMQ's example names where it gives none."""
    default = BrokerIdentity()
    return default._replace(
        cluster=properties.get("brokerClusterName") or default.cluster,
        name=properties.get("brokerName") or default.name,
    )
