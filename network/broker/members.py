"""Which clients are there, in which groups, and what they subscribe (ConsumerManager, ProducerManager)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from rmqctl.formats.checksums import murmur3
from rmqctl.formats.errors import UsageError
from rmqctl.network.broker.settings import BrokerIdentity, BrokerSettings
from rmqctl.network.broker.tables import DEFAULT_TOPIC, config_table
from rmqctl.network.remoting.codec import RequestCode, ResponseCode, bean, integer_of, objects, parse_body, text_of
from rmqctl.network.remoting.headers import ConsumerGroupHeader, request
from rmqctl.network.remoting.requests import Caller, RequestError, Tell
from rmqctl.network.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from rmqctl.store.answers.groups import FILTER_FILE, FILTER_TABLE
from rmqctl.store.config.config_files import ROCKSDB_TOPICS
from rmqctl.store.pop.records import REVIVE_PREFIX
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.filter import SQL92, TAG, MessageFilter, TagFilter, sql_filter
from rmqctl.store.store_files import StoreFiles

ACTIVELY = "CONSUME_ACTIVELY"
# of one heartbeat and of all; no client comes near, and whoever does is not remembered
_MOST_SUBSCRIPTIONS = 10_000
_MOST_MEMBERSHIPS = 100_000
# tag expressions no longer than this are kept as they were understood
_USUAL_EXPRESSION = 256
# a client says the same every 30 seconds: heartbeats no longer than this are kept as they were understood
_USUAL_HEARTBEAT, _MOST_UNDERSTOOD = 4096, 2048


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


def filter_of(kind: str, expression: str) -> MessageFilter:
    """Return what a subscription lets through. Raises: UsageError for an invalid expression or an unknown kind."""
    if kind == TAG:
        return _usual_tags(expression) if len(expression) <= _USUAL_EXPRESSION else TagFilter(expression)
    if kind != SQL92:
        raise UsageError(f"{kind!r} is not a kind of filter", hint="RocketMQ knows TAG and SQL92")
    return sql_filter(expression)


@lru_cache(maxsize=1024)
def _usual_tags(expression: str) -> TagFilter:
    return TagFilter(expression)


def refuse_disabled_filter(settings: BrokerSettings, kind: str) -> None:
    """Raise RequestError unless the broker filters by more than tags (enablePropertyFilter)."""
    if kind != TAG and not settings.enable_property_filter:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
        )


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

    def subscribe(self, wanted: tuple[Subscription, ...]) -> bool:
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


class ConsumerData(NamedTuple):
    """What a client says of one consumer group that it is in (ConsumerData)."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: tuple[Subscription, ...]
    is_unit_mode: bool = False


class Heartbeat(NamedTuple):
    """What a client says of itself (HeartbeatData). `producers`: its producer groups."""

    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[ConsumerData, ...]
    # the groups of a client that left its subscriptions out, because they are as they were
    is_without_subscriptions: bool


def heartbeat_from_body(body: bytes) -> Heartbeat:
    """The heartbeat in a request's body; CorruptError where that is no JSON object."""
    return _usual_heartbeat(body) if len(body) <= _USUAL_HEARTBEAT else _heartbeat(body)


def _heartbeat(body: bytes) -> Heartbeat:
    content = parse_body(body)
    producers = (text_of(one, "groupName") for one in objects(content.get("producerDataSet")))
    consumers = map(_consumer_from_bean, objects(content.get("consumerDataSet")))
    return Heartbeat(
        text_of(content, "clientID"),
        tuple(filter(None, producers))[:_MOST_SUBSCRIPTIONS],
        tuple(one for one in consumers if one.group)[:_MOST_SUBSCRIPTIONS],
        content.get("withoutSub") is True,
    )


_usual_heartbeat = lru_cache(_MOST_UNDERSTOOD)(_heartbeat)


def _consumer_from_bean(content: dict[str, Any]) -> ConsumerData:
    wanted = objects(content.get("subscriptionDataSet"))[:_MOST_SUBSCRIPTIONS]
    return ConsumerData(
        text_of(content, "groupName"),
        text_of(content, "consumeType"),
        text_of(content, "messageModel"),
        text_of(content, "consumeFromWhere"),
        tuple(map(subscription_from_bean, wanted)),
        content.get("unitMode") is True,
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
    """Clients by group. The caller gives the time (ms)."""

    def __init__(self) -> None:
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Caller, ClientChannel]] = {}
        # names of the groups that each is in, of producers and of consumers: who goes leaves these alone
        self._produces: dict[Caller, set[str]] = {}
        self._consumes: dict[Caller, set[str]] = {}
        self._memberships = 0
        self.notifies = True
        """Whether members hear that others came or went."""
        self.at_once = True
        """Whether they hear it at once (realTimeNotifyConsumerChange)."""
        self._changed: set[str] = set()
        self._subscribed_at: dict[tuple[str, str], int] = {}
        self._by_id: dict[str, Caller] = {}
        self.subscribed: Callable[[str, tuple[Subscription, ...]], None] = lambda group, wanted: None
        """Called with what a member of a group subscribes, each time that it says so."""
        self.gone: Callable[[str], None] = lambda group: None
        """Called with a group whose last member has left."""

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The members of a group that are there; None if there are none."""
        return self._consumers.get(name)

    def producers(self, name: str) -> dict[Caller, ClientChannel]:
        """The producers of a group that are there."""
        return dict(self._producers.get(name, {}))

    def producer(self, client_id: str) -> Caller | None:
        """The producer that has this id (ProducerManager#findChannel); None if it is not there."""
        return self._by_id.get(client_id)

    def producer_groups(self) -> dict[str, dict[Caller, ClientChannel]]:
        """The producers that are there, by group."""
        return {name: dict(channels) for name, channels in sorted(self._producers.items())}

    def groups_subscribing(self, topic: str) -> list[str]:
        """Groups that are there and subscribe `topic`."""
        return sorted(name for name, group in list(self._consumers.items()) if topic in group.subscriptions)

    def consumer_groups(self) -> list[str]:
        """Groups that are there."""
        return sorted(self._consumers)

    # ---- coming and going

    def heard(self, caller: Caller, heartbeat: Heartbeat, language: str, version: int, now: int) -> None:
        """Register a client with its groups; the other members of a group that changes are notified. RequestError where
        more are there already than are remembered."""
        self._require_room(caller, heartbeat)
        channel = ClientChannel(heartbeat.client_id, language, version, now)
        for name in heartbeat.producers:
            self._producers.setdefault(name, {})[caller] = channel
            self._join(self._produces, caller, name)
            self._by_id[heartbeat.client_id] = caller
        for name, consume_type, message_model, consume_from_where, subscriptions, _ in heartbeat.consumers:
            group = self._consumers.setdefault(name, ConsumerGroup())
            group.channels[caller] = channel
            is_new = self._join(self._consumes, caller, name)
            group.consume_type = consume_type
            group.message_model = message_model
            group.consume_from_where = consume_from_where
            has_changed = not heartbeat.is_without_subscriptions and group.subscribe(subscriptions)
            if not heartbeat.is_without_subscriptions:
                self.subscribed(name, subscriptions)
            if is_new or has_changed:
                self._notify(name)

    def _require_room(self, caller: Caller, heartbeat: Heartbeat) -> None:
        groups = (self._consumers.get(consumer.group) for consumer in heartbeat.consumers)
        known = [self._producers.get(name, {}) for name in heartbeat.producers]
        known += [{} if group is None else group.channels for group in groups]
        if self._memberships + sum(caller not in channels for channels in known) > _MOST_MEMBERSHIPS:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, f"no more than {_MOST_MEMBERSHIPS} memberships of groups are remembered"
            )

    def _join(self, names_of: dict[Caller, set[str]], caller: Caller, name: str) -> bool:
        """Note that a client is in a group; whether it is new there."""
        names = names_of.setdefault(caller, set())
        is_new = name not in names
        names.add(name)
        self._memberships += is_new
        return is_new

    def _part(self, names_of: dict[Caller, set[str]], caller: Caller, name: str) -> bool:
        """Note that a client is in a group no more; whether it was."""
        names = names_of.get(caller, set())
        was_there = name in names
        names.discard(name)
        if was_there and not names:
            del names_of[caller]
        self._memberships -= was_there
        return was_there

    def unregister(self, caller: Caller, producer_group: str | None, consumer_group: str | None) -> None:
        """A client leaves a group."""
        if producer_group is not None:
            self._leave_producers(caller, producer_group)
        if consumer_group is not None:
            self._leave_consumers(caller, consumer_group)

    def lost(self, caller: Caller) -> None:
        """A client's connection ended: it leaves all its groups."""
        for name in sorted(self._produces.get(caller, ())):
            self._leave_producers(caller, name)
        for name in sorted(self._consumes.get(caller, ())):
            self._leave_consumers(caller, name)

    def expire(self, now: int, after: int) -> None:
        """Send away who has been silent for more than `after` ms (channelExpiredTimeout)."""
        members = list(self._producers.values())
        members += [group.channels for group in self._consumers.values()]
        silent = {
            caller for channels in members for caller, channel in channels.items() if now - channel.heard_at > after
        }
        for caller in silent:
            self.lost(caller)

    def notify_changed(self) -> None:
        """Notify members of groups that changed since the last call, where that is not done at once."""
        changed, self._changed = self._changed, set()
        for name in changed & self._consumers.keys():
            self._send_change(name)

    # ---- subscriptions that come with pulls alone (ConsumerManager#compensateSubscribeData)

    def pulls_with(self, group: str, topic: str, now: int) -> None:
        """Note that a member names its subscription of a topic in a pull."""
        if len(self._subscribed_at) < _MOST_MEMBERSHIPS or (group, topic) in self._subscribed_at:
            self._subscribed_at[group, topic] = now

    def forget_pulls(self, before: int) -> None:
        """Forget such subscriptions that no pull has named since."""
        self._subscribed_at = {key: at for key, at in self._subscribed_at.items() if at >= before}

    def subscribes(self, group: str, topic: str) -> bool:
        """Return whether a group whose members say what they subscribe has this topic, by heartbeats or pulls."""
        members = self._consumers.get(group)
        known = members is not None and bool(members.subscriptions)
        return not known or topic in self._consumers[group].subscriptions or (group, topic) in self._subscribed_at

    def _leave_producers(self, caller: Caller, name: str) -> None:
        if self._part(self._produces, caller, name):
            channels = self._producers[name]
            client_id = channels.pop(caller).client_id
            if caller not in self._produces and self._by_id.get(client_id) is caller:
                del self._by_id[client_id]
            if not channels:
                del self._producers[name]

    def _leave_consumers(self, caller: Caller, name: str) -> None:
        if self._part(self._consumes, caller, name):
            channels = self._consumers[name].channels
            del channels[caller]
            if channels:
                self._notify(name)
            else:
                del self._consumers[name]
                self.gone(name)

    def _notify(self, name: str) -> None:
        """Have every member share out the queues again."""
        if self.notifies and self.at_once:
            self._send_change(name)
        elif self.notifies:
            self._changed.add(name)

    def _send_change(self, name: str) -> None:
        command = request(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupHeader(consumer_group=name), oneway=True
        )
        for caller in list(self._consumers[name].channels):
            caller.send(command)


# Topics and groups that every broker has (TopicConfigManager#init, SubscriptionGroupManager#init).

_BOTH = PERM_READ | PERM_WRITE
_SCHEDULE_QUEUES = 18
_BENCHMARK_QUEUES = 1024
_CLUSTER_QUEUES = 16
_GROUPS = (
    "TOOLS_CONSUMER FILTERSRV_CONSUMER SELF_TEST_C_GROUP CID_ONS-HTTP-PROXY CID_ONSAPI_PULL CID_ONSAPI_PERMISSION "
    "CID_ONSAPI_OWNER CID_RMQ_SYS_TRANS"
)


def system_topics(identity: BrokerIdentity, settings: BrokerSettings, *, has_timer: bool) -> list[TopicConfig]:
    """Return those of a broker of the named version."""
    cluster, name = identity.cluster, identity.name
    single = (
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        f"{cluster}_REPLY_TOPIC",
        *([TIMER_TOPIC] if has_timer else []),
        *([settings.msg_trace_topic_name] if settings.trace_topic_enable else []),
        *(ROCKSDB_TOPICS if identity.release.has_lite_topics else []),
    )
    topics = [TopicConfig(topic, 1, 1) for topic in single]
    if not identity.release.is_of_4:
        queues = settings.revive_queue_num
        topics.append(TopicConfig(f"{REVIVE_PREFIX}{cluster}", queues, queues))
    topics += [
        TopicConfig("BenchmarkTest", _BENCHMARK_QUEUES, _BENCHMARK_QUEUES),
        TopicConfig("SCHEDULE_TOPIC_XXXX", _SCHEDULE_QUEUES, _SCHEDULE_QUEUES),
        TopicConfig(cluster, _CLUSTER_QUEUES, _CLUSTER_QUEUES, _inherited(settings.cluster_topic_enable)),
        TopicConfig(name, 1, 1, _inherited(settings.broker_topic_enable)),
    ]
    if settings.auto_create_topic_enable:
        queues = settings.default_topic_queue_nums
        topics.append(TopicConfig(DEFAULT_TOPIC, queues, queues, _BOTH | PERM_INHERIT))
    return topics


def _inherited(is_enabled: bool) -> int:
    """Permissions of a topic whose name is that of the cluster or the broker."""
    return (_BOTH if is_enabled else 0) | PERM_INHERIT


def system_groups() -> list[str]:
    """Groups that tools and the broker itself use."""
    return _GROUPS.split()


# The SQL92 filters of consumer groups, as brokers keep them in config/consumerFilter.json (ConsumerFilterManager).

_BYTE = 8
# a group of which a broker does not know when it was last there
_DEAD_BEFORE_START_MS = 30_000
# what clients may make us remember
_MOST_FILTERS = 10_000


class BloomFilter(NamedTuple):
    """Which bits a group has in the bit maps of ext units: `hashes` of `bits`."""

    bits: int
    hashes: int

    @staticmethod
    def of(settings: BrokerSettings) -> BloomFilter:
        """Return the one for an error rate and a number of consumers (BloomFilter#createByFn)."""
        rate = settings.max_error_rate_of_bloom_filter / 100
        consumers = settings.expect_consumer_num_use_filter
        if not 0.01 <= rate < 1 or consumers < 1:
            raise UsageError("maxErrorRateOfBloomFilter is from 1 to 99, expectConsumerNumUseFilter 1 or more")
        bits = math.ceil(consumers * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return BloomFilter(-(-bits // _BYTE) * _BYTE, math.ceil(math.log(rate) / math.log(0.5)))

    def bean_of(self, group: str, topic: str) -> dict[str, Any]:
        """Return the bits of a group, with Java's overflows (BloomFilter#calcBitPositions)."""
        hashed = murmur3(f"{group}#{topic}".encode("utf-8", "surrogatepass"))
        low, high = hashed & 0xFFFFFFFF, hashed >> 32
        positions = []
        for number in range(1, self.hashes + 1):
            combined = (low + number * high) & 0xFFFFFFFF
            positions.append((combined if combined < 1 << 31 else combined ^ 0xFFFFFFFF) % self.bits)
        return bean(bitNum=self.bits, bitPos=positions)

    def fits(self, data: object) -> bool:
        """Return whether bits in a file are of this filter (BloomFilter#isValid)."""
        positions = data.get("bitPos") if isinstance(data, dict) else None
        return isinstance(positions, list) and len(positions) == self.hashes and data["bitNum"] == self.bits  # type: ignore[index]


class ConsumerFilters:
    """Filters by topic and group, as objects of consumerFilter.json. Times in ms since 1970.

    A filter whose group has left is dead, and forgotten after filterDataCleanTimeSpan (24 h).
    """

    FILE = FILTER_FILE

    def __init__(self, files: StoreFiles, settings: BrokerSettings, tell: Tell, now: int) -> None:
        """CorruptError and UnreadableError for a damaged file."""
        rows, _, _ = config_table(files, FILTER_FILE, FILTER_TABLE, tell, "no filters are known", is_written=True)
        self._bloom = BloomFilter.of(settings)
        self._keep_ms = settings.filter_data_clean_time_span
        self._has_changed = False
        self._rows: dict[str, dict[str, dict[str, Any]]] = {}
        self._load(rows, now)

    def _load(self, rows: dict[Any, Any], now: int) -> None:
        loaded: dict[str, dict[str, dict[str, Any]]] = {}
        for topic, by_group in rows.items():
            groups = by_group.get("groupFilterData") if isinstance(by_group, dict) else None
            for group, found in (groups or {}).items():
                if not isinstance(found, dict) or not isinstance(found.get("expression"), str):
                    continue
                if not self._bloom.fits(found.get("bloomFilterData")):
                    return  # as a broker, which ignores all of them
                row = {"expressionType": SQL92, "clientVersion": 0, "bornTime": 0, **found}
                dead = row.get("deadTime") or max(now - _DEAD_BEFORE_START_MS, row["bornTime"])
                loaded.setdefault(str(topic), {})[str(group)] = {**row, "deadTime": dead, "dead": True}
        self._rows = loaded

    def register(self, group: str, subscriptions: Iterable[Subscription], now: int) -> None:
        """A member of a group subscribes. Invalid expressions have no filter: pulls are refused then."""
        topics = set()
        for one in subscriptions:
            topics.add(one.topic)
            if not one.is_tags and one.expression:
                self._register(group, one, now)
        for topic, by_group in self._rows.items():
            if topic not in topics and group in by_group:
                self._end(by_group[group], now)

    def _register(self, group: str, wanted: Subscription, now: int) -> None:
        by_group = self._rows.get(wanted.topic, {})
        old = by_group.get(group)
        if old is not None and wanted.version <= old["clientVersion"]:
            if wanted.version == old["clientVersion"]:
                self._revive(old)
            return
        said = wanted.expression, wanted.expression_type
        if old is not None and (old["expression"], old["expressionType"]) == said:
            old["clientVersion"] = wanted.version
            self._has_changed = True
            self._revive(old)
            return
        try:
            filter_of(wanted.expression_type, wanted.expression)
        except UsageError:
            self._has_changed |= by_group.pop(group, None) is not None
            return
        if old is None and sum(map(len, self._rows.values())) >= _MOST_FILTERS:
            return
        self._rows.setdefault(wanted.topic, {})[group] = bean(
            bloomFilterData=self._bloom.bean_of(group, wanted.topic), bornTime=now, clientVersion=wanted.version,
            consumerGroup=group, dead=False, deadTime=0, expression=wanted.expression,
            expressionType=wanted.expression_type, topic=wanted.topic,
        )  # fmt: skip
        self._has_changed = True

    def unregister(self, group: str, now: int) -> None:
        """The last member of a group has left."""
        for by_group in self._rows.values():
            if group in by_group:
                self._end(by_group[group], now)

    def _end(self, row: dict[str, Any], now: int) -> None:
        if not row["dead"]:
            row["deadTime"], row["dead"], self._has_changed = now, now >= row["bornTime"], True

    def _revive(self, row: dict[str, Any]) -> None:
        if row["dead"]:
            row["deadTime"], row["dead"], self._has_changed = 0, False, True

    def take_change(self, now: int) -> bool:
        """Return whether the file is to be written, which is to follow then. What is dead for too long is forgotten."""
        for topic, by_group in list(self._rows.items()):
            for group, row in list(by_group.items()):
                if row["dead"] and now - row["deadTime"] >= self._keep_ms:
                    del by_group[group]
                    self._has_changed = True
            if not by_group:
                del self._rows[topic]
        has_changed, self._has_changed = self._has_changed, False
        return has_changed

    def content(self) -> dict[str, Any]:
        """Return what consumerFilter.json is to hold. May be called in another thread."""
        table = {
            topic: {"groupFilterData": {group: dict(row) for group, row in sorted(by_group.items())}, "topic": topic}
            for topic, by_group in sorted(self._rows.items())
        }
        return {FILTER_TABLE: table}
