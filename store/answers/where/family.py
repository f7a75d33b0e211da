"""Which stored messages are one message to those who sent and consume it: its copies, by the properties they keep."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from rmqctl.formats import properties as names
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.dead_letters import DLQ_PREFIX, ORIGIN_ID, RETRY_PREFIX, said_first
from rmqctl.store.answers.half_topics import GIVEN_UP_TOPIC, HALF_TOPIC
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC


class Role(enum.Enum):
    """What a stored message is in the life of the one that was sent."""

    SENT = enum.auto()
    HALF = enum.auto()
    GIVEN_UP = enum.auto()
    DELAYED = enum.auto()
    TIMED = enum.auto()
    RETRY_WAITS = enum.auto()
    RETRY = enum.auto()
    DEAD = enum.auto()


_BY_TOPIC = {HALF_TOPIC: Role.HALF, GIVEN_UP_TOPIC: Role.GIVEN_UP}
_HOPS = (Role.RETRY_WAITS, Role.RETRY, Role.DEAD)


def role_of(message: StoredMessage) -> Role:
    """By its topic, and by where it is to go from there."""
    if message.topic in _BY_TOPIC:
        return _BY_TOPIC[message.topic]
    if message.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        if message.properties().get(names.REAL_TOPIC, "").startswith(RETRY_PREFIX):
            return Role.RETRY_WAITS
        return Role.DELAYED if message.topic == SCHEDULE_TOPIC else Role.TIMED
    if not _was_consumed(message):
        return Role.SENT
    if message.topic.startswith(RETRY_PREFIX):
        return Role.RETRY
    return Role.DEAD if message.topic.startswith(DLQ_PREFIX) else Role.SENT


def _was_consumed(message: StoredMessage) -> bool:
    """Whether it is a copy that a broker made when a group could not consume it, not one sent to its topic as it is."""
    properties = message.properties()
    return message.reconsume_times > 0 or "RETRY_TOPIC" in properties or said_first(properties, ORIGIN_ID) is not None


def named_in_hop(message: StoredMessage) -> str:
    """What the topic of a retry or a dead letter names: its consumer group, and behind it the topic where the group
    consumes by POP, which has a retry topic for each (KeyBuilder#buildPopRetryTopic)."""
    topic = message.topic
    if topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        topic = message.properties().get(names.REAL_TOPIC, "")
    return topic.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)


@dataclass
class Family:
    """One message with its copies, each list in the order they were stored. `sent`: as consumers of its topic see it,
    more than one where it was committed again; `origin_id`: what the retries say of it where none is there.
    `again`: others with the same unique key: sent twice, or of the same batch."""

    unique_key: str | None
    sent: list[StoredMessage] = field(default_factory=list)
    halves: list[StoredMessage] = field(default_factory=list)
    given_up: list[StoredMessage] = field(default_factory=list)
    delayed: list[StoredMessage] = field(default_factory=list)
    hops: list[StoredMessage] = field(default_factory=list)
    again: list[StoredMessage] = field(default_factory=list)
    origin_id: str | None = None

    @property
    def members(self) -> list[StoredMessage]:
        """All copies, in the order they were stored."""
        every = [*self.sent, *self.halves, *self.given_up, *self.delayed, *self.hops]
        return sorted(every, key=lambda one: one.physical_offset)

    @property
    def shown(self) -> StoredMessage:
        """The one to speak of: as it lies in its topic, else the first that is left."""
        return self.sent[0] if self.sent else self.members[0]

    @property
    def topic(self) -> str | None:
        """The topic that it was sent to."""
        if self.sent:
            return self.sent[0].topic
        properties = self.shown.properties()
        return properties.get("RETRY_TOPIC") if self.shown in self.hops else properties.get(names.REAL_TOPIC)

    def has(self, physical_offset: int) -> bool:
        """Whether the message that is stored there is one of the copies."""
        return any(one.physical_offset == physical_offset for one in self.members)


def families(messages: Iterable[StoredMessage]) -> list[Family]:
    """Messages put together that are one to their consumers, the latest first.

    Copies keep the unique key (UNIQ_KEY). All elements of a batch may share one; there, and in general, retries and
    dead letters are told apart by ORIGIN_MESSAGE_ID, the id of the message that was consumed first
    (AbstractSendMessageProcessor#consumerSendMsgBack).
    """
    by_key: dict[str, list[StoredMessage]] = {}
    for message in sorted(messages, key=lambda one: one.physical_offset):
        key = message.properties().get(names.UNIQUE_KEY) or _first_id(message)
        by_key.setdefault(key, []).append(message)
    found = [family for same in by_key.values() for family in _families_of(same)]
    return sorted(found, key=lambda one: one.shown.physical_offset, reverse=True)


def _first_id(message: StoredMessage) -> str:
    """What stands in for a unique key: the id that the message had when it was consumed first."""
    return said_first(message.properties(), ORIGIN_ID) or message.message_id


def _families_of(same: list[StoredMessage]) -> list[Family]:
    """The families among messages with one unique key."""
    by_role: dict[Role, list[StoredMessage]] = {role: [] for role in Role}
    for message in same:
        by_role[role_of(message)].append(message)
    sent = by_role[Role.SENT]
    hops = sorted((one for role in _HOPS for one in by_role[role]), key=lambda one: one.physical_offset)
    delayed = sorted((*by_role[Role.DELAYED], *by_role[Role.TIMED]), key=lambda one: one.physical_offset)
    key = same[0].properties().get(names.UNIQUE_KEY)
    if by_role[Role.HALF] or by_role[Role.GIVEN_UP] or delayed:
        return [Family(key, sent, by_role[Role.HALF], by_role[Role.GIVEN_UP], delayed, hops)]
    found = [Family(key, [one], again=[other for other in sent if other is not one]) for one in sent]
    left: dict[str | None, Family] = {}
    for hop in hops:
        origin = said_first(hop.properties(), ORIGIN_ID)
        owners = [family for family in found if family.sent[0].message_id == origin]
        # a client that could not send it back names the unique key instead (DefaultMQPushConsumerImpl#sendMessageBack)
        owner = owners[0] if owners else found[0] if len(found) == 1 and origin in (key, None) else None
        if owner is None:
            owner = left.setdefault(origin, Family(key, origin_id=origin))
        owner.hops.append(hop)
    return [*found, *left.values()]
