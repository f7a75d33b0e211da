"""Records of POP: the JSON of checkpoints, acknowledgements, entries of kvStore/ and of consumerOrderInfo.json.

Each kind is declared once, as a table of fields; decoding, checking and encoding go by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqctl.formats.checksums import parse_long
from rmqctl.formats.errors import CorruptError

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
# a checkpoint is delivered before the acknowledgements of its messages
_EARLY_MS = 1000
MOST_AT_ONCE = 32
"""Messages that one pop hands out (PopMessageProcessor); their acknowledgements are the bits of an int."""
RETRY_FLAGS = (0, 1, 2)
"""retryFlag of an entry of kvStore/: the topic itself, a retry topic of the first or of the second version."""
_INT, _LONG, _TEXT, _OFFSETS, _BOOL = "int", "long", "text", "offsets", "bool"
# longs have a bit less than Java's, so that no sum or difference of two overflows
_LIMITS = {_INT: 31, _LONG: 62}
_LARGEST = 1 << _LIMITS[_LONG]
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

    def of(self, body: Mapping[Any, Any]) -> Any:
        """Return its value in `body`. Raises: RecordError."""
        value = body.get(self.name)
        if value is None and self.old_name is not None:
            value = body.get(self.old_name)
        if value is None:
            if self.missing is _REQUIRED:
                raise RecordError(f"{self.name} is missing")
            return self.missing
        if type(value) is int and self.kind == _LONG and -_LARGEST <= value < _LARGEST:
            return value  # as nearly all are
        if self.kind == _TEXT:
            if not isinstance(value, str) or not value:
                raise RecordError(f"{self.name} is not a name")
            return value
        if self.kind == _BOOL:
            return value is True
        if self.kind == _OFFSETS:
            if not isinstance(value, list):
                raise RecordError(f"{self.name} is not a list")
            return [number(self.name, one) for one in value]
        return number(self.name, value, _LIMITS[self.kind])


_OF_ALL = (
    Field("c", _TEXT, "consumerGroup"),
    Field("t", _TEXT, "topic"),
    Field("q", _INT, "queueId"),
    Field("so", _LONG, "startOffset"),
    Field("pt", _LONG, "popTime"),
)
CHECKPOINT = (
    *_OF_ALL,
    Field("it", _LONG, "invisibleTime"),
    Field("n", _INT, "num"),
    Field("d", _OFFSETS, "queueOffsetDiff", ()),
    Field("bm", _INT, "bitMap", 0),
    Field("sp", _BOOL, None, False),
)
ACK = (*_OF_ALL, Field("ao", _LONG, "ackOffset"))
BATCH_ACK = (*_OF_ALL, Field("aol", _OFFSETS, "ackOffsetList"))
KV_ENTRY = (
    Field("groupId", _TEXT),
    Field("topicId", _TEXT),
    Field("queueId", _INT),
    Field("offset", _LONG),
    Field("popTime", _LONG),
    Field("invisibleTime", _LONG),
    Field("retryFlag", _INT, None, 0),
    Field("attemptTimes", _INT, None, 0),
    Field("suspend", _BOOL, None, False),
)


class PopCheckpoint(NamedTuple):
    """What was handed out at once: the messages at `start` plus each of `distances`, from `popped_at` for `invisible`
    (ms). `acked`: bits of messages acknowledged before it was stored; `suspend`: its retry counts no attempt;
    `number`: of messages, which is that of the distances."""

    group: str
    topic: str
    queue_id: int
    start: int
    popped_at: int
    invisible: int
    distances: tuple[int, ...]
    acked: int
    suspend: bool
    number: int

    @property
    def deadline(self) -> int:
        """When the messages become visible again (ms)."""
        return self.popped_at + self.invisible


class Acknowledgement(NamedTuple):
    """Which messages of a checkpoint a client is done with, by their queue offsets."""

    group: str
    topic: str
    queue_id: int
    start: int
    popped_at: int
    offsets: list[int]


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
        names = self.group.encode("utf-8", _ANY) + b"@" + self.topic.encode("utf-8", _ANY)
        place = self.queue_id.to_bytes(4, "big", signed=True) + b"@" + self.offset.to_bytes(8, "big", signed=True)
        return self.deadline.to_bytes(8, "big", signed=True) + names + b"@" + place


def number(name: str, value: object, bits: int = _LIMITS[_LONG]) -> int:
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
        return PopCheckpoint._make([*_owner(fields), fields["it"], distances, fields["bm"], fields["sp"], count])
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
    if deliver is not None and deliver not in (record.deadline - _EARLY_MS, record.popped_at):
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
    becomes visible again (ms); `consumed`: how often each was handed out before; `attempt_id`: who may pop it again."""

    offsets: tuple[int, ...]
    acked: int
    popped_at: int
    until: tuple[int, ...]
    consumed: tuple[int, ...]
    attempt_id: str | None

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
    popped_at = number("popTime", entry.get("popTime"))
    visible = popped_at + number("i", entry.get("i"))
    own, counts = _by_offset(entry, "ot"), _by_offset(entry, "oc")
    attempt = entry.get("a")
    return OrderedPop(
        offsets,
        number("cm", entry.get("cm") or 0) & ((1 << 64) - 1),
        popped_at,
        tuple(own.get(offset, visible) for offset in offsets),
        tuple(counts.get(offset, 0) for offset in offsets),
        attempt if isinstance(attempt, str) else None,
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
