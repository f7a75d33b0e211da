"""What is said of one message: a verdict, and the evidence for it in the order in which a message lives."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UnsupportedError, UsageError
from rmqctl.formats.message import StoredMessage, parse_offset_message_id
from rmqctl.formats.notebook import as_html
from rmqctl.store.answers.dead_letters import DLQ_PREFIX, ORIGIN_ID, said_first
from rmqctl.store.answers.undispatched import GIVEN_UP_TOPIC, HALF_TOPIC, ROCKSDB_HALF_TOPIC
from rmqctl.store.options import UNHEARD
from rmqctl.store.pop.records import RETRY_PREFIX
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.filter import Criteria, TopicFilter
from rmqctl.store.read.frames import MessageRemovedError, message_at
from rmqctl.store.read.query import END_OF_TIME, KeyQuery, QueryResult, lookup, lookup_offset_id, may_be_offset_id
from rmqctl.store.read.reader import StoreReader, messages_by_key
from rmqctl.store.read.select import Selection, in_log_order


class Stage(enum.StrEnum):
    """What a step of the evidence is about, in their order."""

    STORED = "stored"
    QUEUE = "queue"
    INDEX = "index"
    DELAY = "delay"
    HALF = "half"
    GROUP = "group"
    FILTER = "filter"
    RETRY = "retry"
    DEAD = "dead"
    EXPIRY = "expiry"


class Verdict(enum.StrEnum):
    """What a message's whereabouts come to; the gravest thing of those that apply comes first here."""

    DAMAGED = "damaged"
    EXPIRED = "expired"
    ABSENT = "absent"
    NO_SLOT = "no-slot"
    PENDING = "pending"
    ROLLED_BACK = "rolled-back"
    GAVE_UP = "gave-up"
    CANCELLED = "cancelled"
    WAITING = "waiting"
    NOT_DELIVERED = "not-delivered"
    OVERDUE = "overdue"
    DEAD = "dead"
    RETRYING = "retrying"
    BLOCKED = "blocked"
    UNREAD = "unread"
    UNKNOWN = "unknown"
    FILTERED = "filtered"
    READ = "read"
    STORED = "stored"


class Step(NamedTuple):
    """One piece of evidence. `state` is a word of its stage (docs/commands.md), `detail` says it to people.

    `timestamp` (ms) is that of what the step tells: stored, due, given up, expires. `group_offset` is the queue offset
    that a group reads next; `distance` is the number of messages before this one, negative if the group is past it.
    None is what does not apply, or is not known.
    """

    stage: Stage
    state: str
    detail: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    timestamp: int | None = None
    group: str | None = None
    group_offset: int | None = None
    distance: int | None = None


class GroupVerdict(NamedTuple):
    """What one group has made of the message."""

    group: str
    state: Verdict
    detail: str


class Whereabouts(NamedTuple):
    """One message. `found_by` says what `asked` turned out to be; None where nothing was found. The identity of the
    message is None if it cannot be read; `groups` and `evidence` may still have something."""

    asked: str
    found_by: str | None
    state: Verdict
    sentence: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    msg_id: str | None = None
    unique_key: str | None = None
    keys: str | None = None
    tags: str | None = None
    store_timestamp: int | None = None
    groups: tuple[GroupVerdict, ...] = ()
    evidence: tuple[Step, ...] = ()

    def _repr_html_(self) -> str:
        return as_html(self)


def step_at(stage: Stage, state: str, detail: str, message: StoredMessage) -> Step:
    """A step about a message that is stored, with its place and store time."""
    place = (message.topic, message.queue_id, message.queue_offset, message.physical_offset, message.store_timestamp)
    return Step(stage, state, detail, *place)


def place_of(message: StoredMessage) -> str:
    """`topic queue offset`, as `rmqctl where` takes it."""
    return f"{message.topic} {message.queue_id} {message.queue_offset}"


# What somebody has in hand to name a message by, and what it leads to: an id, an offset, or a place in a queue.

BY_PLACE = "place in a queue"
BY_OFFSET = "physical offset"
BY_ID = "offset id"
BY_KEY = "key"
BY_UNIQUE_KEY = "unique key"
_LARGEST_OFFSET = (1 << 63) - 1
# slots that are looked at on either side of one that leads nowhere
_NEIGHBOURS = 1000


class Place(NamedTuple):
    """A place of a queue."""

    topic: str
    queue_id: int
    queue_offset: int


@dataclass
class Named:
    """Result of one name without a search for keys: a message, or the reason without one (`error`); `place` may be
    known of a message that cannot be read."""

    how: str
    message: StoredMessage | None = None
    error: RmqctlError | None = None
    place: Place | None = None
    physical_offset: int | None = None


def place_in(words: list[str]) -> Place:
    """`TOPIC QUEUE OFFSET`; UsageError for anything else."""
    topic, queue_id, queue_offset = words
    number = whole_number(queue_id)
    if number is None or not _is_offset(queue_offset):
        raise UsageError(
            f"{' '.join(words)!r} is not a topic, a queue id and a queue offset",
            hint="write one KEY, ID or OFFSET, or TOPIC QUEUE OFFSET as in `rmqctl where Orders 3 1000`",
        )
    return Place(topic, number, int(queue_offset))


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _LARGEST_OFFSET


def at_place(reader: StoreReader, place: Place) -> Named:
    """The message in a slot of a queue. If the queue does not lead to it, the log between the neighbouring messages is
    searched, with a note. NotFoundError for an unknown queue, UnsupportedError if it is in a RocksDB and the log has no
    such message."""
    named = Named(BY_PLACE, place=place)
    try:
        queue = reader.queue(place.topic, place.queue_id)
    except (NotFoundError, UnsupportedError) as error:
        reader.events.noted(f"{error.message}: the whole commitlog is searched")
        named.message = _in_log(reader, place, (0, None))
        if named.message is None:
            raise
        return named
    begin, end = queue.min_offset(reader.files.log.min_offset), queue.max_offset
    if place.queue_offset < begin:
        lost = reader.in_empty_file(queue, place.queue_offset)
        named.error = lost or MessageRemovedError(f"the queue begins at {begin} now")
        first, log_begin = queue.unit(begin), reader.files.log.min_offset
        # a cleaner removes the files of a queue that lead before the log, which a queue without them begins after
        may_be_there = queue.unit(begin - 1) is None and first is not None and first.physical_offset > log_begin
        if lost is None and first is not None and may_be_there:
            named.message = _in_log(reader, place, (log_begin, first.physical_offset))
        return named
    unit = next(queue.units(place.queue_offset, place.queue_offset + 1), None)
    if unit is not None and unit.is_written:
        named.physical_offset = unit.physical_offset
        try:
            named.message = reader.view_without_ext(queue).message_of(unit)
        except (CorruptError, NotFoundError) as error:
            named.error = error
            if not _is_message(reader, unit.physical_offset):
                return named
        else:
            return named
    elif place.queue_offset >= end:
        named.error = NotFoundError(f"the queue ends at {end}, and the log behind its last message has no such one")
    else:
        what = "is in no file of the queue" if unit is None else "leads nowhere"
        named.error = CorruptError(f"slot {place.queue_offset} {what}", file=queue.directory)
    reader.events.noted(
        f"slot {place.queue_offset} of {place.topic} queue {place.queue_id} leads to no message of its own: "
        "the commitlog is searched for it"
    )
    named.message = _in_log(reader, place, _span_around(queue, place.queue_offset))
    first = queue.unit(0)
    if named.message is None and place.queue_offset >= end and first is not None and first.is_written:
        # one that the queue had before its topic was created again
        named.message = _in_log(reader, place, (reader.files.log.min_offset, first.physical_offset))
    return named


def _is_message(reader: StoreReader, physical_offset: int) -> bool:
    """Return whether any good message begins there."""
    try:
        message_at(reader.files.log, physical_offset)
    except (CorruptError, NotFoundError):
        return False
    return True


def _span_around(queue: AnyConsumeQueue, queue_offset: int) -> tuple[int, int | None]:
    """Physical offsets from the last message before a slot to the first one behind it: their order is the log's."""
    begin, end = 0, None
    for unit in queue.units(max(0, queue_offset - _NEIGHBOURS), queue_offset + _NEIGHBOURS):
        if unit.is_written and unit.queue_offset < queue_offset:
            begin = unit.physical_offset
        elif unit.is_written and unit.queue_offset > queue_offset and end is None:
            end = unit.physical_offset
    if begin == 0 and queue_offset > queue.max_offset:
        last = queue.unit(queue.max_offset - 1)
        begin = last.physical_offset if last is not None and last.is_written else 0
    return (begin, end) if end is None or begin < end else (0, None)


def _in_log(reader: StoreReader, place: Place, span: tuple[int, int | None]) -> StoredMessage | None:
    """The last message that says of itself that it has that place: earlier ones are of lives before the topic was
    created again. Damage on the way is not reported, only that of the slot."""
    end = END_OF_TIME if span[1] is None else span[1]
    criteria = Criteria(topic=place.topic, queue_id=place.queue_id)
    log = reader.files.log
    events = reader.events._replace(damage=UNHEARD.damage)
    walked = in_log_order(log, Selection(criteria, max(span[0], 0), end), events, span[0] if span[0] > 0 else None)
    last = None
    for one in walked:
        last = one if one.queue_offset == place.queue_offset else last
    return last


def by_offset(reader: StoreReader, text: str) -> Named | None:
    """What begins at a physical offset, or is named by an offset id; None where `text` is neither."""
    if _is_offset(text) and len(text) < 20:
        return _looked_up(Named(BY_OFFSET, physical_offset=int(text)), reader, None)
    if may_be_offset_id(reader.files, text):
        return _looked_up(Named(BY_ID, physical_offset=parse_offset_message_id(text)[1]), reader, text)
    return None


def _looked_up(named: Named, reader: StoreReader, message_id: str | None) -> Named:
    try:
        if message_id is not None:
            named.message = lookup_offset_id(reader.files, message_id)
        else:
            named.message = lookup(reader.files, named.physical_offset or 0)
    except (CorruptError, NotFoundError) as error:
        named.error = error
    return named


def search_key(message: StoredMessage) -> str | None:
    """What the copies of a message are found by: its unique key, which they keep, else the first of its keys."""
    properties = message.properties()
    if names.UNIQUE_KEY in properties:
        return properties[names.UNIQUE_KEY]
    return next(iter(names.split_keys(properties.get(names.KEYS))), None)


# a key may be on any number of messages, and all of them would be kept in memory
_MOST = 10_000


def copies_with(reader: StoreReader, key: str, also: set[str]) -> QueryResult:
    """Every message with `key`, among its KEYS or as its unique key, in any topic; the topics `also` are asked for even
    if nothing else in the store names them. UnreadableError."""
    copies = messages_by_key(reader.files, KeyQuery("", key, limit=_MOST), TopicFilter(), None, reader.events, also)
    if len(copies.messages) == _MOST:
        reader.events.noted(f"{_MOST} messages or more have the key {key!r}: only the newest of them are looked at")
    return copies


# Which stored messages are one message to those who sent and consume it: its copies, by the properties they keep.


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


_BY_TOPIC = {HALF_TOPIC: Role.HALF, ROCKSDB_HALF_TOPIC: Role.HALF, GIVEN_UP_TOPIC: Role.GIVEN_UP}
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
        """The copy to report: the one in its topic, else the first that is left."""
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

    Copies keep the unique key (UNIQ_KEY). All elements of a batch may share one. ORIGIN_MESSAGE_ID, the id of the
    message that was consumed first, then separates retries and dead letters
    (AbstractSendMessageProcessor#consumerSendMsgBack).
    """
    by_key: dict[str, list[StoredMessage]] = {}
    for message in sorted(messages, key=lambda one: one.physical_offset):
        key = message.properties().get(names.UNIQUE_KEY) or _first_id(message)
        by_key.setdefault(key, []).append(message)
    found = [family for same in by_key.values() for family in _families_of(same)]
    return sorted(found, key=lambda one: one.shown.physical_offset, reverse=True)


def _first_id(message: StoredMessage) -> str:
    """Return the substitute of a unique key: the id of the message when it was first consumed."""
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
