"""Which clients are there, in which groups, and what they subscribe (ConsumerManager, ProducerManager)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqctl.network.remoting.codes import RequestCode, ResponseCode
from rmqctl.network.remoting.fastjson import bean, integer_of, objects, text_of
from rmqctl.network.remoting.services import Caller, RequestError, oneway

EXPIRED_AFTER_MS = 120_000
"""Without a heartbeat for so long a client is gone (CHANNEL_EXPIRED_TIMEOUT)."""
TAG = "TAG"
# of one heartbeat and of all; no client comes near, and whoever does is not remembered
_MOST_SUBSCRIPTIONS = 10_000
_MOST_MEMBERSHIPS = 100_000


_SUBSCRIPTION_DATA: dict[str, Any] = {
    "classFilterMode": False,
    "codeSet": [],
    "expressionType": TAG,
    "subString": "",
    "subVersion": 0,
    "tagsSet": [],
}


class Subscription(NamedTuple):
    """What a group wants of a topic. `bean`: as the client said it, for those who ask."""

    topic: str
    expression: str
    expression_type: str
    version: int
    bean: dict[str, Any]

    @property
    def is_tags(self) -> bool:
        """Whether the expression is one of tags."""
        return self.expression_type == TAG


class ClientChannel(NamedTuple):
    """One client in one group, at its last heartbeat (ms)."""

    client_id: str
    language: str
    version: int
    heard_at: int

    def as_bean(self, caller: Caller) -> dict[str, Any]:
        """The client as lists of connections show it."""
        return bean(clientAddr=caller.remote, clientId=self.client_id, language=self.language, version=self.version)


@dataclass
class ConsumerGroup:
    """The members of a group that are there, and what it subscribes."""

    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    channels: dict[Caller, ClientChannel] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def subscribe(self, wanted: list[Subscription]) -> bool:
        """Take what a member subscribes for what the group does, newer expressions for older ones; whether topics came
        or went (ConsumerGroupInfo#updateSubscription)."""
        known = set(self.subscriptions)
        for one in wanted:
            old = self.subscriptions.get(one.topic)
            if old is None or one.version > old.version:
                self.subscriptions[one.topic] = one
        for topic in known - {one.topic for one in wanted}:
            del self.subscriptions[topic]
        return set(self.subscriptions) != known


class Heartbeat(NamedTuple):
    """What a client says of itself (HeartbeatData)."""

    client_id: str
    producers: list[str]
    consumers: list[dict[str, Any]]
    # the groups of a client that left its subscriptions out, because they are as they were
    is_without_subscriptions: bool


def heartbeat_from_body(content: dict[str, Any]) -> Heartbeat:
    """The heartbeat in a request's body."""
    producers = [text_of(one, "groupName") for one in objects(content.get("producerDataSet"))]
    consumers = [one for one in objects(content.get("consumerDataSet")) if text_of(one, "groupName")]
    return Heartbeat(
        text_of(content, "clientID"),
        [name for name in producers if name][:_MOST_SUBSCRIPTIONS],
        consumers[:_MOST_SUBSCRIPTIONS],
        content.get("withoutSub") is True,
    )


def subscription_from_bean(content: dict[str, Any]) -> Subscription:
    """A SubscriptionData of a heartbeat. What the client left out is as RocketMQ has it."""
    content = {**_SUBSCRIPTION_DATA, **content}
    return Subscription(
        text_of(content, "topic"),
        text_of(content, "subString"),
        text_of(content, "expressionType") or TAG,
        integer_of(content, "subVersion"),
        content,
    )


class ClientManager:
    """Clients by group. Whoever calls says what time it is (ms)."""

    def __init__(self) -> None:
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Caller, ClientChannel]] = {}
        self._memberships = 0

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The members of a group that are there; None if there are none."""
        return self._consumers.get(name)

    def producers(self, name: str) -> dict[Caller, ClientChannel]:
        """The producers of a group that are there."""
        return dict(self._producers.get(name, {}))

    def groups_subscribing(self, topic: str) -> list[str]:
        """Groups that are there and subscribe `topic`."""
        return sorted(name for name, group in list(self._consumers.items()) if topic in group.subscriptions)

    def consumer_groups(self) -> list[str]:
        """Groups that are there."""
        return sorted(self._consumers)

    # ---- coming and going

    def heard(self, caller: Caller, heartbeat: Heartbeat, language: str, version: int, now: int) -> None:
        """A client says what it is and wants; the others of a group that changes are told so. RequestError where more
        are there already than are remembered."""
        self._require_room(caller, heartbeat)
        channel = ClientChannel(heartbeat.client_id, language, version, now)
        for name in heartbeat.producers:
            self._add(self._producers.setdefault(name, {}), caller, channel)
        for consumer in heartbeat.consumers:
            name = text_of(consumer, "groupName")
            group = self._consumers.setdefault(name, ConsumerGroup())
            is_new = self._add(group.channels, caller, channel)
            group.consume_type = text_of(consumer, "consumeType")
            group.message_model = text_of(consumer, "messageModel")
            group.consume_from_where = text_of(consumer, "consumeFromWhere")
            has_changed = False
            if not heartbeat.is_without_subscriptions:
                wanted = objects(consumer.get("subscriptionDataSet"))[:_MOST_SUBSCRIPTIONS]
                has_changed = group.subscribe([subscription_from_bean(one) for one in wanted])
            if is_new or has_changed:
                self._notify(name)

    def _require_room(self, caller: Caller, heartbeat: Heartbeat) -> None:
        groups = (self._consumers.get(text_of(consumer, "groupName")) for consumer in heartbeat.consumers)
        known = [self._producers.get(name, {}) for name in heartbeat.producers]
        known += [{} if group is None else group.channels for group in groups]
        if self._memberships + sum(caller not in channels for channels in known) > _MOST_MEMBERSHIPS:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, f"no more than {_MOST_MEMBERSHIPS} memberships of groups are remembered"
            )

    def _add(self, channels: dict[Caller, ClientChannel], caller: Caller, channel: ClientChannel) -> bool:
        """Note a member; whether it is a new one."""
        is_new = caller not in channels
        self._memberships += is_new
        channels[caller] = channel
        return is_new

    def unregister(self, caller: Caller, producer_group: str | None, consumer_group: str | None) -> None:
        """A client leaves a group."""
        if producer_group is not None:
            self._leave_producers(caller, producer_group)
        if consumer_group is not None:
            self._leave_consumers(caller, consumer_group)

    def lost(self, caller: Caller) -> None:
        """A client's connection ended: it leaves all its groups."""
        for name in list(self._producers):
            self._leave_producers(caller, name)
        for name in list(self._consumers):
            self._leave_consumers(caller, name)

    def expire(self, now: int) -> None:
        """Send away who has been silent for too long."""
        members = list(self._producers.values())
        members += [group.channels for group in self._consumers.values()]
        silent = {
            caller
            for channels in members
            for caller, channel in channels.items()
            if now - channel.heard_at > EXPIRED_AFTER_MS
        }
        for caller in silent:
            self.lost(caller)

    def _leave_producers(self, caller: Caller, name: str) -> None:
        channels = self._producers.get(name, {})
        if channels.pop(caller, None) is not None:
            self._memberships -= 1
        if name in self._producers and not channels:
            del self._producers[name]

    def _leave_consumers(self, caller: Caller, name: str) -> None:
        group = self._consumers.get(name)
        if group is None or group.channels.pop(caller, None) is None:
            return
        self._memberships -= 1
        if group.channels:
            self._notify(name)
        else:
            del self._consumers[name]

    def _notify(self, name: str) -> None:
        """Tell every member to share the queues out anew."""
        command = oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup=name)
        for caller in list(self._consumers[name].channels):
            caller.send(command)
