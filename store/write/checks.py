"""RocketMQ's checks of a message to put, in its order (HookUtils#checkBeforePutMessage). Pure: no files, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

from rmqctl.formats import properties as names
from rmqctl.formats.errors import UsageError
from rmqctl.formats.layouts import SYS_FLAG_INNER_BATCH
from rmqctl.formats.message import Host, Message, utf16_length
from rmqctl.formats.properties import TRANSACTION_NONE, transaction_type
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.reading import disk_space
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.status import PutStatus

RETRY_PREFIX = "%RETRY%"
MAXIMUM_TOPIC_SIZE = 127
MAXIMUM_RETRY_TOPIC_SIZE = 255
# MessageExtEncoder: what a frame may have on top of the largest body
FRAME_ALLOWANCE = 64 * 1024
# DefaultMessageStore#isOSPageCacheBusy: beyond this the time is taken for "never begun"
_BUSY_AT_MOST_MS = 10_000_000
# item size, magic, crc, flag, body length and properties length of one message in a batch
_BATCH_ITEM_OVERHEAD = 4 + 4 + 4 + 4 + 4 + 2


class Refusal(NamedTuple):
    """Why a message is not stored: RocketMQ's status, and a sentence for people."""

    status: PutStatus
    detail: str


class StoreCondition(NamedTuple):
    """What the checks must know of the store. `time_in_lock`: ms since the put lock was taken, None if it is free."""

    is_closed: bool = False
    is_writeable: bool = True
    time_in_lock: int | None = None


def check_store(condition: StoreCondition, config: StoreConfig) -> Refusal | None:
    """Checks 1 to 3: closed, slave, not writeable."""
    if condition.is_closed:
        return Refusal(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
    if config.is_slave and not config.duplication_enable:
        return Refusal(PutStatus.SERVICE_NOT_AVAILABLE, "brokerRole is SLAVE: only its master writes this store")
    if not condition.is_writeable:
        return Refusal(PutStatus.SERVICE_NOT_AVAILABLE, "the store is not writeable any more after an error")
    return None


def check_message(
    message: Message,
    properties: Mapping[str, str],
    condition: StoreCondition,
    config: StoreConfig,
    is_batch_topic: bool,
) -> Refusal | None:
    """Checks 4 to 9 of the message itself; the timer checks 10 and 11 belong to `rmqctl.store.write.prepare`.

    Stricter than RocketMQ if it would store an unreadable message: a topic that cannot be a directory, a negative
    queue, a property with a separator in it.
    """
    refusal = check_topic(message.topic)
    if refusal is not None:
        return refusal
    busy = condition.time_in_lock
    if busy is not None and config.os_page_cache_busy_time_out_mills < busy < _BUSY_AT_MOST_MS:
        return Refusal(PutStatus.OS_PAGE_CACHE_BUSY, f"another put has held the lock for {busy} ms")
    is_inner_batch = bool(message.sys_flag & SYS_FLAG_INNER_BATCH)
    if names.INNER_NUM in properties and not is_inner_batch:
        return Refusal(PutStatus.MESSAGE_ILLEGAL, "has INNER_NUM but is no inner batch")
    if is_inner_batch and not is_batch_topic:
        return Refusal(PutStatus.MESSAGE_ILLEGAL, "is an inner batch, but its topic is no BatchCQ topic")
    if message.topic == SCHEDULE_TOPIC and names.DELAY not in properties:
        return Refusal(PutStatus.MESSAGE_ILLEGAL, "waits in the topic of delayed messages, but has no DELAY")
    if message.queue_id < 0:
        return Refusal(PutStatus.MESSAGE_ILLEGAL, f"queue id {message.queue_id} is negative")
    for name, value in properties.items():
        if "\x02" in value or "\x01" in name or "\x02" in name:
            return Refusal(PutStatus.MESSAGE_ILLEGAL, f"property {name!r} contains a separator")
    return None


def check_topic(topic: str) -> Refusal | None:
    """Check 4: the size of the topic in bytes; and that it can be a directory."""
    size = len(topic) if topic.isascii() else len(topic.encode("utf-8"))
    if size > MAXIMUM_TOPIC_SIZE and not topic.startswith(RETRY_PREFIX):
        return Refusal(PutStatus.MESSAGE_ILLEGAL, f"topic has {size} bytes, at most {MAXIMUM_TOPIC_SIZE} are allowed")
    if size > MAXIMUM_RETRY_TOPIC_SIZE:
        return Refusal(
            PutStatus.MESSAGE_ILLEGAL, f"topic has {size} bytes, at most {MAXIMUM_RETRY_TOPIC_SIZE} are allowed"
        )
    if not is_safe_topic(topic):
        return Refusal(PutStatus.MESSAGE_ILLEGAL, f"topic {topic!r} cannot be a directory name")
    return None


def check_frame(topic: str, properties_size: int, allow_v2: bool) -> Refusal | None:
    """What the frame itself cannot hold; copies of stored messages are checked for this too.

    `properties_size`: bytes, the reserve for a property CRC included.
    """
    if properties_size > names.MAXIMUM_PROPERTIES_SIZE:
        return Refusal(
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            f"properties take {properties_size} bytes, at most {names.MAXIMUM_PROPERTIES_SIZE} fit",
        )
    size = len(topic.encode("utf-8"))
    is_v2 = allow_v2 and utf16_length(topic) > MAXIMUM_TOPIC_SIZE
    # RocketMQ would write a negative length for a short topic of many bytes
    if not 0 < size <= (names.MAXIMUM_PROPERTIES_SIZE if is_v2 else MAXIMUM_TOPIC_SIZE):
        return Refusal(PutStatus.MESSAGE_ILLEGAL, f"a topic of {size} bytes does not fit into the frame")
    return None


def check_sizes(body_size: int, frame_size: int, is_multi_dispatch: bool, config: StoreConfig) -> Refusal | None:
    """Size limits of MessageExtEncoder#encode, in bytes; a multi-dispatch frame has no allowance on top of the body."""
    limit = config.max_message_size
    if body_size > limit:
        return Refusal(PutStatus.MESSAGE_ILLEGAL, f"body has {body_size} bytes, maxMessageSize is {limit}")
    frame_limit = limit if is_multi_dispatch else limit + FRAME_ALLOWANCE
    if frame_size > frame_limit:
        return Refusal(
            PutStatus.MESSAGE_ILLEGAL, f"the frame has {frame_size} bytes, at most {frame_limit} are allowed"
        )
    return None


def check_fits_file(length: int, file_size: int) -> Refusal | None:
    """Refuse what no file can hold: `length` bytes and the blank frame behind it.

    RocketMQ fills two files with blanks, then answers PUT_OK with an append status END_OF_FILE. Nothing is burnt here.
    """
    if length + 8 > file_size:
        return Refusal(
            PutStatus.MESSAGE_ILLEGAL, f"{length} bytes and 8 of a blank frame do not fit into a file of {file_size}"
        )
    return None


def check_batch(
    messages: list[Message], properties: list[Mapping[str, str]], property_sizes: list[int], config: StoreConfig
) -> Refusal | None:
    """What only a classic batch must obey; UsageError where the messages are no batch at all."""
    if len({(message.topic, message.queue_id) for message in messages}) > 1:
        raise UsageError("the messages of a batch must have one topic and one queue", hint="put them one by one")
    for message, found in zip(messages, properties, strict=True):
        if transaction_type(message.sys_flag) != TRANSACTION_NONE:
            return Refusal(PutStatus.MESSAGE_ILLEGAL, "a message of a batch is part of a transaction")
        if found.get(names.DELAY, "0") != "0":
            return Refusal(PutStatus.MESSAGE_ILLEGAL, "a message of a batch is delayed")
    size = sum(
        _BATCH_ITEM_OVERHEAD + len(message.body) + length
        for message, length in zip(messages, property_sizes, strict=True)
    )
    if size > config.max_message_size:
        # RocketMQ throws `message body size exceeded`
        return Refusal(
            PutStatus.MESSAGE_ILLEGAL, f"the batch has {size} bytes, maxMessageSize is {config.max_message_size}"
        )
    return None


def check_types(message: object) -> Refusal | None:
    """Refuse values that no frame can be made of: fields that have another type than `Message` has."""
    if not isinstance(message, Message):
        return Refusal(PutStatus.MESSAGE_ILLEGAL, f"is no message but {_kind(message)}")
    for name, kinds, is_optional in _TYPES:
        value = getattr(message, name)
        if not (is_optional and value is None) and not isinstance(value, kinds):
            return Refusal(PutStatus.MESSAGE_ILLEGAL, f"{name} is {_kind(value)}")
    properties: Mapping[Any, Any] = message.properties
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            return Refusal(
                PutStatus.MESSAGE_ILLEGAL, f"property {name!r} is {_kind(value)}, where names and values are texts"
            )
    return None


def _kind(value: object) -> str:
    return "missing" if value is None else f"of type {type(value).__name__}"


# asked in this order: a look at the protocol takes longer than all the rest of a put
_INTEGER = (int, SupportsIndex)
# name, its types, and whether None means that the store fills it in
_TYPES: tuple[tuple[str, type | tuple[type, ...], bool], ...] = (
    ("topic", str, False),
    ("body", (bytes, bytearray, memoryview), False),
    ("queue_id", _INTEGER, False),
    ("flag", _INTEGER, False),
    ("properties", (dict, Mapping), False),
    ("property_bytes", (bytes, bytearray, memoryview), True),
    ("sys_flag", _INTEGER, False),
    ("born_timestamp", _INTEGER, True),
    ("born_host", Host, False),
    ("store_timestamp", _INTEGER, True),
    ("store_host", Host, True),
    ("reconsume_times", _INTEGER, False),
    ("prepared_transaction_offset", _INTEGER, False),
)

_INT = range(-0x80000000, 0x80000000)
STORE_TIMES = range(253_402_300_800_000)
"""Store times in ms that messages may have: index files are named after such times."""
_LONG = range(-0x8000000000000000, 0x8000000000000000)


def check_ranges(message: Message) -> None:
    """UsageError for a value that its field cannot hold, or text that is not Unicode: no RocketMQ type has them."""
    for name in ("queue_id", "flag", "sys_flag", "reconsume_times"):
        if getattr(message, name) not in _INT:
            raise UsageError(f"{name} {getattr(message, name)} does not fit into 32 bits")
    for name in ("born_timestamp", "prepared_transaction_offset"):
        value = getattr(message, name)
        if value is not None and value not in _LONG:
            raise UsageError(f"{name} {value} does not fit into 64 bits")
    if message.store_timestamp is not None and message.store_timestamp not in STORE_TIMES:
        raise UsageError(f"store_timestamp {message.store_timestamp} is no time in ms between 1970 and 9999")
    for host in (message.born_host, message.store_host):
        if host is not None and (len(host.ip) not in (4, 16) or host.port not in _INT):
            raise UsageError(f"host {host!r} is neither IPv4 nor IPv6 with a port")
    try:
        message.topic.encode("utf-8")
        for name, text in message.properties.items():
            name.encode("utf-8")
            text.encode("utf-8")
        (message.property_bytes or b"").decode("utf-8")
    except UnicodeError as error:
        raise UsageError("topic or properties are not valid UTF-8") from error


# Keeps enough of the disk free that what is in the log can be dispatched to queues and index, whatever happens.

# never given away
_KEPT_FREE = 1024 * 1024
# what a new queue unit or index entry can take: two directories, a block of the file, one of the index's slots
UNIT_COST = 16 * 1024
# the free space is looked up anew after messages of this cost, or of a part of what was free, if that is more
_LOOK_EVERY = 16 * 1024 * 1024
_PART = 8
_LOOK_AT_LEAST_EVERY = 1 << 32
# with less than this, every put waits until everything before it is dispatched
_PLENTY = 256 * 1024 * 1024
# Bytes of queues and index for each byte of messages of queues that are there already, at worst: a unit has 20 bytes
# and a frame at least 91, an index entry 20 and a key with the space behind it at least 2.
_COST_OF_A_BYTE = 11
# what such messages can take besides: all slots of an index file, the rest of a block in each of some thousand queues
_COST_OF_MANY = 64 * 1024 * 1024


class Headroom:
    """A budget of bytes on the disk of the store's root. Queues and index are written after the put has answered, so
    their space must be there before a message is accepted. Another process that fills the disk can still win.

    `wait_for_dispatch` waits until everything up to a physical offset is dispatched. `most_used` (percent): refuse
    puts from there on, as a broker does by diskSpaceWarningLevelRatio; None: never.
    """

    def __init__(self, root: Path, wait_for_dispatch: Callable[[int], None], most_used: int | None = None) -> None:
        self._root = root
        self._wait_for_dispatch = wait_for_dispatch
        self._most_used = most_used
        self._look_every = 0
        self._unlooked = 0
        self._is_scarce = True
        self._settled_offset = 0
        self.is_over_ratio = False

    def settle(self, end_offset: int) -> None:
        """Before the put lock is taken: look at the disk if it is time to, and let the dispatch keep up.

        `end_offset`: the end of the log now. The dispatch is never further behind than the cost of two looks.
        """
        if self._unlooked >= self._look_every:
            self._unlooked = 0
            self._wait_for_dispatch(self._settled_offset)
            self._settled_offset = end_offset
            free = io.free_bytes(self._root)
            self._is_scarce = free < _PLENTY
            self._look_every = min(max(_LOOK_EVERY, free // _PART), _LOOK_AT_LEAST_EVERY)
            self._look_at_ratio()
        if self._is_scarce:
            self._wait_for_dispatch(end_offset)

    def admit(self, cost: int) -> bool:
        """Under the put lock, with the space in the log reserved: return whether `cost` more bytes can be
        dispatched."""
        self._unlooked += cost
        return not self._is_scarce or io.free_bytes(self._root) >= _KEPT_FREE + cost

    def admit_ordinary(self, size: int) -> bool:
        """The same for `size` bytes of messages for queues that exist, which is looked at once for many of them.

        Never where free space is scarce: there each message is to be looked at.
        """
        if self._is_scarce or self._look_every < 4 * _COST_OF_MANY:
            return False
        self._unlooked += size * _COST_OF_A_BYTE
        return True

    def _look_at_ratio(self) -> None:
        if self._most_used is not None:
            used, entire = disk_space(self._root)
            self.is_over_ratio = used * 100 >= self._most_used * entire
