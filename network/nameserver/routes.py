"""Brokers and their topics, as they have registered (RouteInfoManager). Whoever calls says what time it is (ms)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.fastjson import bean
from rmqctl.network.remoting.services import Caller, RequestError
from rmqctl.network.topic_config import PERM_READ, PERM_WRITE, TopicConfig

EXPIRED_AFTER_MS = 120_000
"""A broker that does not register again for so long is gone (DEFAULT_BROKER_CHANNEL_EXPIRED_TIME)."""

_MOST_BROKERS = 1000
MASTER_ID = 0


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

    def register(
        self,
        cluster: str,
        name: str,
        broker_id: int,
        address: str,
        topics: Mapping[str, TopicConfig],
        now: int,
        *,
        ha_address: str = "",
        has_slaves: bool = False,
        caller: Caller | None = None,
    ) -> None:
        """Another broker is there, with these topics. RequestError where it takes our own broker's name and place: only
        its slaves may have the name, if it `has_slaves`."""
        broker = self._brokers.get(name)
        is_own = broker is not None and broker.own_address is not None
        if is_own and (broker_id == MASTER_ID or not has_slaves):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the broker name {name} is taken by the store served here")
        if broker is None:
            if len(self._brokers) >= _MOST_BROKERS:
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_BROKERS} brokers can register")
            broker = self._brokers[name] = RegisteredBroker(cluster, name)
        if broker_id not in broker.addresses and len(broker.addresses) >= _MOST_BROKERS:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"no more than {_MOST_BROKERS} brokers of a name can register"
            )
        broker.addresses[broker_id] = address
        broker.heard_at[broker_id] = now
        if caller is not None:
            broker.connections[broker_id] = caller
        if is_own:
            return
        broker.cluster = cluster
        if broker_id == MASTER_ID:
            broker.ha_address = lambda caller: ha_address or None
        if broker_id == min(broker.addresses):
            # a broker of 5.x tells only of those that have changed, between the times that it tells of all
            broker.topics = {**broker.topics, **topics}

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
