"""Records of POP: the JSON of checkpoints, acknowledgements, entries of kvStore/ and of consumerOrderInfo.json.

Each kind is declared once, as a table of fields; decoding, checking and encoding go by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import parse_long
from rmqctl.formats.errors import CorruptError
from rmqctl.store.queues.dispatch import TIMER_TOPIC

if TYPE_CHECKING:
    from rmqctl.store.queues.queue_table import AnyConsumeQueue
    from rmqctl.store.store_files import StoreFiles

REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
ORDER_FILE = "consumerOrderInfo.json"
KV_FOLDER = "kvStore"
KV_FAMILY = "popState"
CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"

RETRY_PREFIX = "%RETRY%"
POP_SEPARATORS = ("+", "_")
"""Between group and topic in the name of a retry topic of POP: of its second version, and of its first."""
EARLY_MS = 1000
"""How many ms a checkpoint is delivered before the acknowledgements of its messages."""
DELIVER_MS = names.TIMER_PROPERTIES[-1]
MOST_AT_ONCE = 32
"""Messages that one pop hands out (PopMessageProcessor); their acknowledgements are the bits of an int."""
RETRY_FLAGS = (0, 1, 2)
"""retryFlag of an entry of kvStore/: the topic itself, a retry topic of the first or of the second version."""
INT, LONG, TEXT, OFFSETS, BOOL, NOTE = "int", "long", "text", "offsets", "bool", "note"
"""Kinds of fields."""
# longs have a bit less than Java's, so that no sum or difference of two overflows
_LIMITS = {INT: 31, LONG: 62}
_LARGEST = 1 << _LIMITS[LONG]
_REQUIRED: Final = object()
# names of a damaged record may hold half a pair
_ANY = "surrogatepass"


class RecordError(ValueError):
    """A record that a broker cannot use."""


class Field(NamedTuple):
    """A field of a record: its name, its kind, the name that it had before names were shortened, and what it is where
    it is missing (AckMsg, BatchAckMsg, PopCheckPoint, PopConsumerRecord)."""

    name: str
    kind: str
    old_name: str | None = None
    missing: Any = _REQUIRED

    @property
    def is_required(self) -> bool:
        """Whether a broker cannot use a record without it."""
        return self.missing is _REQUIRED

    def of(self, body: Mapping[Any, Any]) -> Any:
        """Return its value in `body`. Raises: RecordError."""
        value = body.get(self.name)
        if value is None and self.old_name is not None:
            value = body.get(self.old_name)
        if value is None:
            if self.missing is _REQUIRED:
                raise RecordError(f"{self.name} is missing")
            return self.missing
        if type(value) is int and self.kind == LONG and -_LARGEST <= value < _LARGEST:
            return value  # as nearly all are
        if self.kind == TEXT:
            if not isinstance(value, str) or not value:
                raise RecordError(f"{self.name} is not a name")
            return value
        if self.kind == BOOL:
            return value is True
        if self.kind == NOTE:
            return str(value)
        if self.kind == OFFSETS:
            if not isinstance(value, list):
                raise RecordError(f"{self.name} is not a list")
            return [number(self.name, one) for one in value]
        return number(self.name, value, _LIMITS[self.kind])


_OF_ALL = (
    Field("c", TEXT, "consumerGroup"),
    Field("t", TEXT, "topic"),
    Field("q", INT, "queueId"),
    Field("so", LONG, "startOffset"),
    Field("pt", LONG, "popTime"),
    Field("bn", NOTE, "brokerName", ""),
)
CHECKPOINT = (
    *_OF_ALL,
    Field("it", LONG, "invisibleTime"),
    Field("n", INT, "num"),
    Field("d", OFFSETS, "queueOffsetDiff", ()),
    Field("bm", INT, "bitMap", 0),
    Field("sp", BOOL, None, False),
    Field("rp", NOTE, None, ""),
)
ACK = (*_OF_ALL, Field("ao", LONG, "ackOffset"))
BATCH_ACK = (*_OF_ALL, Field("aol", OFFSETS, "ackOffsetList"))
KV_ENTRY = (
    Field("groupId", TEXT),
    Field("topicId", TEXT),
    Field("queueId", INT),
    Field("offset", LONG),
    Field("popTime", LONG),
    Field("invisibleTime", LONG),
    Field("retryFlag", INT, None, 0),
    Field("attemptTimes", INT, None, 0),
    Field("suspend", BOOL, None, False),
)


class PopCheckpoint(NamedTuple):
    """What was handed out at once: the messages at `start` plus each of `distances`, from `popped_at` for `invisible`
    (ms). `acked`: bits of messages acknowledged before it was stored; `suspend`: its retry counts no attempt;
    `number`: of messages, which is that of the distances; `put_again`: how often revive failed to store a retry."""

    group: str
    topic: str
    queue_id: int
    start: int
    popped_at: int
    broker: str
    invisible: int
    distances: tuple[int, ...]
    acked: int = 0
    suspend: bool = False
    put_again: str = ""
    number: int = 0

    @property
    def deadline(self) -> int:
        """When the messages become visible again (ms)."""
        return self.popped_at + self.invisible

    @property
    def key(self) -> PopKey:
        """What it has in common with its acknowledgements."""
        return PopKey._make(self[:6])

    def index_of(self, queue_offset: int) -> int | None:
        """Return which of its messages is at a queue offset (#indexOfAck); None for none."""
        distance = queue_offset - self.start
        return self.distances.index(distance) if distance in self.distances else None

    def body(self) -> bytes:
        """Return it as brokers store it, before it is known where."""
        again = {} if not self.put_again else {"rp": self.put_again}
        return _body(
            {"bm": self.acked, "d": list(self.distances), "it": self.invisible, "n": len(self.distances)}
            | {"reviveTime": self.deadline, "ro": 0, "sp": self.suspend, **again},
            self.key,
        )

    @property
    def deliver_at(self) -> int:
        """When it is to reach the revive topic (ms)."""
        return self.deadline - EARLY_MS

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of its message (PopMessageProcessor#genCkUniqueId)."""
        return _unique_key(self.key, self.start, CHECKPOINT_TAG)


class PopKey(NamedTuple):
    """What a checkpoint and its acknowledgements have in common."""

    group: str
    topic: str
    queue_id: int
    start: int
    popped_at: int
    broker: str

    def ack_body(self, offsets: Sequence[int], *, is_batch: bool) -> bytes:
        """Return the acknowledgement of messages as brokers store it."""
        return _body({"ao": -1, "aol": list(offsets)} if is_batch else {"ao": offsets[0]}, self)

    def ack_unique_key(self, offsets: Sequence[int], *, is_batch: bool) -> str:
        """UNIQ_KEY of its message, which has the tag of a single one also for many (#genAckUniqueId)."""
        return _unique_key(self, -1 if is_batch else offsets[0], ACK_TAG)


def _unique_key(key: PopKey, offset: int, tag: str) -> str:
    return f"{key.topic}@{key.queue_id}@{offset}@{key.group}@{key.popped_at}@{key.broker}@{tag}"


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def _body(fields: dict[str, Any], key: PopKey) -> bytes:
    fields |= dict(zip((field.name for field in _OF_ALL), key, strict=True))
    return _to_json(fields).encode("utf-8", _ANY)


class Acknowledgement(NamedTuple):
    """Which messages of a checkpoint a client is done with, by their queue offsets."""

    group: str
    topic: str
    queue_id: int
    start: int
    popped_at: int
    broker: str
    offsets: list[int]

    @property
    def key(self) -> PopKey:
        """What it has in common with its checkpoint."""
        return PopKey._make(self[:6])


class KvEntry(NamedTuple):
    """One message that was handed out, in kvStore/. `put_again`: how often revive failed to store its retry."""

    group: str
    topic: str
    queue_id: int
    offset: int
    popped_at: int
    invisible: int
    retry_flag: int
    put_again: int
    suspend: bool

    @property
    def deadline(self) -> int:
        """When the message becomes visible again (ms)."""
        return self.popped_at + self.invisible

    def key(self) -> bytes:
        """Return the key that a broker keeps it under (PopConsumerRecord#getKeyBytes)."""
        owner = self.group.encode("utf-8", _ANY) + b"@" + self.topic.encode("utf-8", _ANY)
        place = self.queue_id.to_bytes(4, "big", signed=True) + b"@" + self.offset.to_bytes(8, "big", signed=True)
        return self.deadline.to_bytes(8, "big", signed=True) + owner + b"@" + place


def number(name: str, value: object, bits: int = _LIMITS[LONG]) -> int:
    """Return the value of a field as fastjson takes it, which accepts quotes as well. Raises: RecordError."""
    found = parse_long(value.replace(",", "")) if isinstance(value, str) else value
    if not isinstance(found, int) or isinstance(found, bool) or not -(1 << bits) <= found < 1 << bits:
        raise RecordError(f"{name} is not a number, or out of range")
    return found


def parsed(body: bytes) -> Mapping[Any, Any]:
    """Return a JSON object. Raises: RecordError."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise RecordError("not JSON") from None
    if not isinstance(found, dict):
        raise RecordError("not a JSON object")
    return found


def revive_record(tag: str | None, body: bytes) -> PopCheckpoint | Acknowledgement | None:
    """Decode a message of the revive topic by its tag; None for a tag that a broker passes over. Raises: RecordError.
    (PopReviveService#consumeReviveMessage)"""
    if tag not in (CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG):
        return None
    found = parsed(body)
    if tag == CHECKPOINT_TAG:
        fields = {field.name: field.of(found) for field in CHECKPOINT}
        count, distances = fields["n"], fields["d"]
        if not 0 <= count <= MOST_AT_ONCE:
            raise RecordError(f"n is {count}, outside of 0 to {MOST_AT_ONCE}")
        if len(distances) > MOST_AT_ONCE:
            raise RecordError(f"d has {len(distances)} entries, more than {MOST_AT_ONCE}")
        distances = tuple(distances or range(count))
        more = (fields["it"], distances, fields["bm"], fields["sp"], fields["rp"], count)
        return PopCheckpoint._make([*_owner(fields), *more])
    fields = {field.name: field.of(found) for field in (ACK if tag == ACK_TAG else BATCH_ACK)}
    return Acknowledgement._make([*_owner(fields), fields["aol"] if "aol" in fields else [fields["ao"]]])


def _owner(fields: Mapping[str, Any]) -> list[Any]:
    return [fields[field.name] for field in _OF_ALL]


def kv_entry(value: bytes) -> KvEntry:
    """Decode a value of kvStore/. Raises: RecordError."""
    found = parsed(value)
    return KvEntry(*(field.of(found) for field in KV_ENTRY))


def doubts(record: PopCheckpoint | Acknowledgement, deliver: int | None) -> str | None:
    """Return what of a record is not as brokers write it, with its TIMER_DELIVER_MS; None where nothing is."""
    if min(record.start, record.queue_id) < 0:
        return "so or q is negative"
    if isinstance(record, Acknowledgement):
        return None
    if record.number != len(record.distances):
        return f"n is {record.number}, and d has {len(record.distances)} entries"
    if any(first >= second for first, second in pairwise(record.distances)) or min(record.distances, default=0) < 0:
        return "d is not ascending"
    if record.invisible < 0:
        return "it is negative"
    # a delivery time in the past is that of the pop itself (PopReviveService, ChangeInvisibleTimeProcessor)
    if deliver is not None and deliver not in (record.deadline - EARLY_MS, record.popped_at):
        return f"it is delivered at {deliver}, and its messages are visible again at {record.deadline}"
    return None


def doubts_of_entry(key: bytes, entry: KvEntry) -> str | None:
    """Return what of an entry of kvStore/ is not as brokers write it; None where nothing is."""
    if key != entry.key():
        return f"key {key.hex()} is not that of its value"
    if entry.retry_flag not in RETRY_FLAGS:
        return f"retryFlag is {entry.retry_flag}"
    if bool(entry.retry_flag) is not entry.topic.startswith(RETRY_PREFIX):
        return f"retryFlag is {entry.retry_flag}, and the topic is {entry.topic}"
    return None


class OrderedPop(NamedTuple):
    """The last ordered pop of a queue (OrderInfo): its messages and which of them are acknowledged. `until`: when each
    becomes visible again (ms); `consumed`: how often each was handed out before; `attempt_id`: who may pop it again;
    `invisible`: for how long it was popped (ms); `noted_at`: when that was written down (ms)."""

    offsets: tuple[int, ...]
    acked: int
    popped_at: int
    until: tuple[int, ...]
    consumed: tuple[int, ...]
    attempt_id: str | None
    invisible: int = 0
    noted_at: int = 0

    def entry(self) -> dict[str, Any]:
        """Return it as consumerOrderInfo.json has it."""
        first, *others = self.offsets
        visible = self.popped_at + self.invisible
        found: dict[str, Any] = {} if self.attempt_id is None else {"a": self.attempt_id}
        found |= {"cm": self.acked, "i": self.invisible, "l": self.noted_at}
        found |= {"o": [first, *(offset - first for offset in others)]}
        consumed = {offset: count for offset, count in zip(self.offsets, self.consumed, strict=True) if count}
        changed = {offset: until for offset, until in zip(self.offsets, self.until, strict=True) if until != visible}
        found |= {"oc": consumed} if consumed else {}
        found |= {"ot": changed} if changed else {}
        return found | {"popTime": self.popped_at}

    def is_acked(self, number_of: int) -> bool:
        """Return whether the message is acknowledged that comes at this place of `offsets`."""
        return bool(self.acked >> number_of & 1)

    @property
    def next_offset(self) -> int:
        """The offset that the group is at: that of the first message without acknowledgement (#getNextOffset)."""
        open_ones = (offset for at, offset in enumerate(self.offsets) if not self.is_acked(at))
        return next(open_ones, self.offsets[-1] + 1)


def ordered_pop(entry: object) -> OrderedPop:
    """Decode what consumerOrderInfo.json has of a queue. Raises: RecordError."""
    if not isinstance(entry, Mapping):
        raise RecordError("not an object")
    listed = entry.get("o")
    if not isinstance(listed, list) or not listed:
        raise RecordError("o is not a list of offsets")
    first, *distances = (number("o", one) for one in listed)
    offsets = (first, *(first + distance for distance in distances))
    popped_at, invisible = number("popTime", entry.get("popTime")), number("i", entry.get("i"))
    visible = popped_at + invisible
    own, counts = _by_offset(entry, "ot"), _by_offset(entry, "oc")
    attempt = entry.get("a")
    return OrderedPop(
        offsets,
        number("cm", entry.get("cm") or 0) & ((1 << 64) - 1),
        popped_at,
        tuple(own.get(offset, visible) for offset in offsets),
        tuple(counts.get(offset, 0) for offset in offsets),
        attempt if isinstance(attempt, str) else None,
        invisible,
        number("l", entry.get("l") or 0),
    )


def _by_offset(entry: Mapping[Any, Any], name: str) -> dict[int, int]:
    found = entry.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise RecordError(f"{name} is not an object")
    return {number(name, offset): number(name, value) for offset, value in found.items()}


def pop_retry_topics(group: str, topic: str = "") -> tuple[str, ...]:
    """Return the retry topics of a group that consumes `topic` by POP, of the second and of the first version; without
    a topic, what the names of all of them begin with (KeyBuilder#buildPopRetryTopic)."""
    return tuple(f"{RETRY_PREFIX}{group}{separator}{topic}" for separator in POP_SEPARATORS)


def revive_queues(files: StoreFiles) -> list[AnyConsumeQueue]:
    """Return the queues of the revive topics; none where a RocksDB that has the queues is damaged, which is reported
    with these."""
    try:
        return files.queues.of_topics(lambda topic: topic.startswith(REVIVE_PREFIX))
    except CorruptError:
        return []


def timer_queue(files: StoreFiles) -> AnyConsumeQueue | None:
    """Return the queue of the timer, in which records wait, too; None likewise."""
    try:
        return next(iter(files.queues.of_topics(TIMER_TOPIC.__eq__)), None)
    except CorruptError:
        return None


# What of it is in flight: messages of records, and their totals.

FS, KV, ORDERED = "fs", "kv", "ordered"
"""How a broker keeps what it hands out: in the revive topic, in kvStore/, in consumerOrderInfo.json."""
IN_TIMER = -1
"""Place of a record in the revive topic that still waits in the timer."""


class PopOwner(NamedTuple):
    """Whose records these are. `revive_topic` and `revive_queue`: of the records, "" and -1 for entries of kvStore/."""

    group: str
    topic: str
    queue_id: int
    way: str
    revive_topic: str
    revive_queue: int


class HandedOut(NamedTuple):
    """One message of a record. `place`: of the record in the revive topic, IN_TIMER, or -1 in kvStore/;
    `record_offset`: queue offset of the record in the topic that it is in; `is_lost`: the timer never delivers the
    record."""

    owner: PopOwner
    queue_offset: int
    start: int
    popped_at: int
    deadline: int
    is_acked: bool
    is_lost: bool
    suspend: bool
    place: int
    record_offset: int
    physical_offset: int


class Totals(NamedTuple):
    """Messages of one owner, by state; when the first and the last of those without acknowledgement become visible."""

    in_flight: int = 0
    overdue: int = 0
    acknowledged: int = 0
    lost: int = 0
    first_visible: int | None = None
    last_visible: int | None = None
