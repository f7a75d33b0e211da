"""Makes a message ready for the log: RocketMQ's hooks and checks for a new one, exact bytes for a copy."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, java_long, parse_int, parse_long, parse_property_crc
from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.formats.message import FrameParts, Host, Message, StoredMessage, prepare_frame
from rmqctl.formats.properties import (
    encode_properties,
    has_queue_slot,
    is_inner_batch,
    parse_properties,
    replace_property,
)
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_files import load_config, topic_type
from rmqctl.store.queues.consumequeue import QueueKey
from rmqctl.store.queues.dispatch import (
    LMQ_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    may_lack_further_slots,
    message_count,
    split_further,
)
from rmqctl.store.status import PutStatus
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.wheel import PRECISION_MS, timer_precision
from rmqctl.store.write.checks import (
    Refusal,
    StoreCondition,
    check_frame,
    check_message,
    check_ranges,
    check_sizes,
    check_types,
)

# Delayed messages: rewriting to the schedule topic (levels) or to the timer topic (HookUtils).

_DELAY_SECONDS, _DELAY_MS, _DELIVER_MS = names.TIMER_PROPERTIES


class Destination(NamedTuple):
    """Where a message goes and with which properties."""

    topic: str
    queue_id: int
    properties: Mapping[str, str]


def schedule(
    wanted: Destination,
    sys_flag: int,
    config: StoreConfig,
    now: int,
    precision: Callable[[], int] = lambda: PRECISION_MS,
) -> Destination | Refusal:
    """The place where a message with a delay waits, `wanted` itself for one without (HookUtils#handleScheduleMessage).

    `now` in ms; `precision`: gives timerPrecisionMs. A delay level wins over timer properties, which are removed then.
    A message that was delivered after its delay keeps all of its properties when it is stored for good: its real topic
    is the one that it is in then, and it is not delayed again. Prepared and rolled back messages wait for their
    transaction first. A message that already is in one of the two topics stays as it is, so that a copy keeps its real
    topic. WHEEL_TIMER_FLOW_CONTROL cannot arise: nothing here knows the broker's wheel.
    """
    properties = wanted.properties
    if not has_queue_slot(sys_flag) or wanted.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        return wanted
    if names.DELAY not in properties and not any(name in properties for name in names.TIMER_PROPERTIES):
        return wanted
    if properties.get(names.REAL_TOPIC) == wanted.topic:
        return wanted
    level = parse_int(properties.get(names.DELAY, "0"))
    if level is None:
        return Refusal(PutStatus.MESSAGE_ILLEGAL, f"delay level {properties[names.DELAY]!r} is no number")
    if level > 0:
        return _to_level(wanted, level, config)
    return _to_timer(wanted, config, now, precision)


def topic_in_log(message: Message, config: StoreConfig) -> str:
    """Return the topic under which a message is stored, which for one that waits is that of the delays."""
    properties = message.properties
    if message.topic == properties.get(names.REAL_TOPIC) or not has_queue_slot(message.sys_flag):
        return message.topic
    if (parse_int(properties.get(names.DELAY, "0")) or 0) > 0:
        return SCHEDULE_TOPIC
    waits = names.TIMER_OUT_MS not in properties and any(name in properties for name in names.TIMER_PROPERTIES)
    return TIMER_TOPIC if waits and config.timer_wheel_enable else message.topic


def _with_origin(wanted: Destination, properties: dict[str, str]) -> dict[str, str]:
    return properties | {names.REAL_TOPIC: wanted.topic, names.REAL_QUEUE_ID: str(wanted.queue_id)}


def _to_level(wanted: Destination, level: int, config: StoreConfig) -> Destination:
    properties = {name: value for name, value in wanted.properties.items() if name not in names.TIMER_PROPERTIES}
    highest = len(config.delay_levels())
    if level > highest:
        level = highest
        properties[names.DELAY] = str(level)
    return Destination(SCHEDULE_TOPIC, level - 1, _with_origin(wanted, properties))


def _to_timer(
    wanted: Destination, config: StoreConfig, now: int, precision: Callable[[], int]
) -> Destination | Refusal:
    properties = wanted.properties
    if names.TIMER_OUT_MS in properties or not any(name in properties for name in names.TIMER_PROPERTIES):
        return wanted
    if config.timer_wheel_enable is None:
        return wanted
    if not config.timer_wheel_enable:
        return Refusal(
            PutStatus.WHEEL_TIMER_NOT_ENABLE, "the message has a delivery time, but timerWheelEnable is false"
        )
    deliver = _deliver_at(properties, now)
    if deliver is None:
        return Refusal(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, "the delivery time of the message is no number")
    if deliver <= now:
        if names.TIMER_DELETE_UNIQUE_KEY in properties:
            return Refusal(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, "the timer to be deleted is due already")
        return wanted
    if java_long(deliver - now) > config.timer_max_delay_sec * 1000:
        return Refusal(
            PutStatus.WHEEL_TIMER_MSG_ILLEGAL, f"the delay is longer than timerMaxDelaySec={config.timer_max_delay_sec}"
        )
    more = {names.TIMER_OUT_MS: str(_slot_time(deliver, precision()))}
    return Destination(TIMER_TOPIC, 0, _with_origin(wanted, dict(properties) | more))


def _slot_time(deliver: int, precision: int) -> int:
    # an exact multiple is lowered by one step as well
    return (deliver - 1) // precision * precision


def timer_out(properties: Mapping[str, str], now: int, precision: int) -> int | None:
    """Return the time (ms) for which a message that is put now would wait on a wheel with slots of `precision` (ms);
    None without a legal delivery time."""
    is_timed = any(name in properties for name in names.TIMER_PROPERTIES)
    deliver = _deliver_at(properties, now) if is_timed else None
    return None if deliver is None or deliver <= now else _slot_time(deliver, precision)


def _deliver_at(properties: Mapping[str, str], now: int) -> int | None:
    if _DELAY_SECONDS in properties:
        seconds = parse_long(properties[_DELAY_SECONDS])
        return None if seconds is None else java_long(now + seconds * 1000)
    if _DELAY_MS in properties:
        delay = parse_long(properties[_DELAY_MS])
        return None if delay is None else java_long(now + delay)
    return parse_long(properties[_DELIVER_MS])


# Which topics have batch consume queues: by the queues on disk, else by config/topics.json.

_BATCH = "BatchCQ"


class TopicTypes:
    """Queue types of topics. A topic has one type: the first message of a new topic settles it."""

    def __init__(self, files: StoreFiles) -> None:
        self._is_batch: dict[str, bool] = _configured(files)
        self._is_batch.update({queue.topic: queue.kind == _BATCH for queue in files.queues.all()})

    def is_batch(self, topic: str) -> bool:
        """Whether the queues of `topic` have 46-byte units."""
        return self._is_batch.get(topic, False)

    def settle(self, topic: str, is_batch: bool) -> bool:
        """Make `is_batch` the type of a new topic; whether it agrees with the type of a known one."""
        return self._is_batch.setdefault(topic, is_batch) == is_batch


def _configured(files: StoreFiles) -> dict[str, bool]:
    """What topics.json or its backup says. One that does not parse says nothing: the queues on disk still do."""
    try:
        loaded = load_config(files.layout.config / "topics.json")
        topics = () if loaded is None else loaded.content["topicConfigTable"].items()
        return {topic: topic_type(entry) == _BATCH for topic, entry in topics if topic_type(entry) is not None}
    except (CorruptError, UnreadableError, AttributeError, KeyError, TypeError):
        return {}


_MAXIMUM_COUNT = 0x7FFF
# written by the store itself, never taken over from a producer
_OWN_PROPERTIES = (names.CRC32, names.INNER_MULTI_QUEUE_OFFSET)


def wants_durability(properties: Mapping[str, str]) -> bool:
    """Whether a message wants to be as durable as the store makes messages before it is answered: WAIT is absent or
    true (MessageExt#isWaitStoreMsgOK)."""
    return properties.get(names.WAIT, "true").lower() == "true"


def copy_of(stored: StoredMessage) -> Message:
    """`stored` as a message to be put `as_stored`: every byte but the offsets is kept."""
    return Message(
        topic=stored.topic,
        body=stored.body,
        queue_id=stored.queue_id,
        flag=stored.flag,
        property_bytes=stored.property_bytes,
        sys_flag=stored.sys_flag,
        born_timestamp=stored.born_timestamp,
        born_host=stored.born_host,
        store_timestamp=stored.store_timestamp,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )


class Prepared(NamedTuple):
    """A message ready to be appended.

    `key`: its queue, None if it takes no slot; `slots`: queue offsets it takes. A late message has properties that
    depend on queue offsets: `multi` are the names and keys of further queues (None: a name that gets no offset).
    `units`: how much of queues and index it will take. `is_waiting`: it wants to be on disk before the answer.
    `is_simple`: it gets one unit of 20 bytes.
    """

    parts: FrameParts
    key: QueueKey | None
    slots: int
    units: int
    properties_size: int
    is_waiting: bool
    store_timestamp: int | None = None
    message: Message | None = None
    multi: tuple[QueueKey | None, ...] = ()
    is_copy: bool = False
    is_simple: bool = False

    @property
    def is_late(self) -> bool:
        """Whether the frame must be completed once the queue offsets are known."""
        return self.message is not None


class Preparation:
    """Prepares messages for one store. `store_host` is what new messages get."""

    def __init__(self, files: StoreFiles, store_host: Host, topics: TopicTypes) -> None:
        self._config = files.config
        # the wheel is read for the first timed message
        self._precision = functools.cache(lambda: timer_precision(files.layout, files.config, files.descriptors))
        self._store_host = store_host
        self._topics = topics

    def prepare(self, message: Message, now: int, condition: StoreCondition, as_stored: bool) -> Prepared | Refusal:
        """Check and encode `message`. `now` in ms. UsageError for values that no frame can hold.

        `as_stored`: a copy of a stored message, which keeps every byte but the offsets that this store assigns.
        """
        refusal = check_types(message)
        if refusal is not None:
            return refusal
        check_ranges(message)
        stored = message.property_bytes
        properties = message.properties if stored is None else parse_properties(stored)
        if as_stored:
            return self._copy(message, properties, now)
        refusal = check_message(message, properties, condition, self._config, self._topics.is_batch(message.topic))
        if refusal is not None:
            return refusal
        wanted = Destination(message.topic, message.queue_id, properties)
        destination = schedule(wanted, message.sys_flag, self._config, now, self._precision)
        if isinstance(destination, Refusal):
            return destination
        multi = self._multi_dispatch(destination)
        kept = self._kept_properties(destination.properties, bool(multi))
        if destination is not wanted or kept is not properties:
            stored = None
        changed = message._replace(
            topic=destination.topic,
            queue_id=destination.queue_id,
            properties=kept,
            property_bytes=encode_properties(kept) if stored is None else stored,
            born_timestamp=now if message.born_timestamp is None else message.born_timestamp,
        )
        return self._prepared(changed, kept, multi, is_copy=False)

    def _kept_properties(self, properties: Mapping[str, str], is_multi: bool) -> Mapping[str, str]:
        """`properties` without those that are ours to write; a multi-dispatch message loses WAIT as well."""
        dropped = (*_OWN_PROPERTIES, names.WAIT) if is_multi else _OWN_PROPERTIES
        if not any(name in properties for name in dropped):
            return properties
        return {name: value for name, value in properties.items() if name not in dropped}

    def _multi_dispatch(self, destination: Destination) -> tuple[QueueKey | None, ...]:
        """Further queues of the message, if the store has LMQ (MultiDispatchUtils#isNeedHandleMultiDispatch).

        Only names with the LMQ prefix get an offset.
        """
        listed = destination.properties.get(names.INNER_MULTI_DISPATCH, "")
        if not self._config.enable_lmq or not listed.strip() or may_lack_further_slots(destination.topic):
            return ()
        return tuple((name, 0) if name.startswith(LMQ_PREFIX) else None for name in split_further(listed))

    def _copy(self, message: Message, properties: Mapping[str, str], now: int) -> Prepared | Refusal:
        stored = message.property_bytes
        listed = properties.get(names.INNER_MULTI_DISPATCH, "")
        offsets = split_further(properties.get(names.INNER_MULTI_QUEUE_OFFSET, ""))
        queues = split_further(listed) if listed.strip() else []
        multi: tuple[QueueKey | None, ...] = ()
        if len(queues) == len(offsets):
            multi = tuple(
                (name, 0 if name.startswith(LMQ_PREFIX) else message.queue_id) if offset.isdecimal() else None
                for name, offset in zip(queues, offsets, strict=True)
            )
        copied = message._replace(
            properties=properties,
            property_bytes=encode_properties(properties) if stored is None else stored,
            born_timestamp=now if message.born_timestamp is None else message.born_timestamp,
        )
        return self._prepared(copied, properties, multi, is_copy=True)

    def _prepared(
        self, message: Message, properties: Mapping[str, str], multi: tuple[QueueKey | None, ...], *, is_copy: bool
    ) -> Prepared | Refusal:
        parts = self._parts(message, is_copy, bool(multi))
        if isinstance(parts, Refusal):
            return parts
        is_batch = is_inner_batch(message.sys_flag) or self._topics.is_batch(message.topic)
        if not self._topics.settle(message.topic, is_batch):
            return Refusal(PutStatus.MESSAGE_ILLEGAL, f"topic {message.topic!r} has simple queues, not batch queues")
        count = message_count(message.sys_flag, dict(properties), is_batch) if is_batch else 1
        if count > _MAXIMUM_COUNT:
            return Refusal(PutStatus.MESSAGE_ILLEGAL, f"INNER_NUM {count} does not fit into a batch queue's unit")
        key = (message.topic, message.queue_id) if has_queue_slot(message.sys_flag) else None
        keys = 1 + len(names.split_keys(properties.get(names.KEYS)))
        is_late = bool(multi) or (is_inner_batch(message.sys_flag) and key is not None)
        return Prepared(
            parts,
            key,
            count,
            1 + len(multi) + keys,
            len(message.property_bytes or b""),
            wants_durability(properties),
            message.store_timestamp if is_copy else None,
            message if is_late else None,
            multi,
            is_copy,
            key is not None and not is_batch and not multi,
        )

    def _parts(self, message: Message, is_copy: bool, is_multi: bool) -> FrameParts | Refusal:
        """The frame's parts, or what forbids the frame."""
        stored = message.property_bytes or b""
        with_crc = self._config.enabled_append_prop_crc
        if is_copy:
            # the CRC covers the physical offset: a copy has it where the original had it, but computed anew
            with_crc = parse_property_crc(stored[-PROPERTY_CRC_SIZE:]) is not None
            if with_crc:
                stored = stored[:-PROPERTY_CRC_SIZE]
        size = len(stored)
        if with_crc:
            size += PROPERTY_CRC_SIZE + (bool(stored) and not stored.endswith(names.PROPERTY_SEPARATOR))
        allow_v2 = is_copy or self._config.auto_message_version_on_topic_len
        refusal = check_frame(message.topic, size, allow_v2)
        if refusal is not None:
            return self._as_multi(refusal) if is_multi and not is_copy else refusal
        if stored is not message.property_bytes:
            message = message._replace(property_bytes=stored)
        store_host = self._store_host if message.store_host is None else message.store_host
        message = message._replace(born_host=message.born_host.as_written)
        parts = prepare_frame(
            message, store_host.as_written, message.born_timestamp or 0, with_property_crc=with_crc, allow_v2=allow_v2
        )
        if not is_copy:
            refusal = check_sizes(len(message.body), parts.total_size, is_multi, self._config)
        return refusal or parts

    def _as_multi(self, refusal: Refusal) -> Refusal:
        """Properties of a multi-dispatch message are measured at the append, where the answer is another one."""
        return Refusal(PutStatus.MESSAGE_ILLEGAL, refusal.detail)

    def complete(
        self, item: Prepared, queue_offset: int, multi_offsets: Mapping[QueueKey, int]
    ) -> FrameParts | Refusal:
        """The frame of a late message, now that its offsets are known: INNER_BASE of an inner batch (BatchConsumeQueue#
        assignQueueOffset), INNER_MULTI_QUEUE_OFFSET of a multi-dispatch message (CommitLog, doAppend)."""
        message = item.message
        if message is None:
            return item.parts
        stored = message.property_bytes or b""
        if is_inner_batch(message.sys_flag):
            stored = replace_property(stored, names.INNER_BASE, str(queue_offset))
        if item.multi:
            values = ["" if key is None else str(multi_offsets[key]) for key in item.multi]
            if item.is_copy:
                before = split_further(parse_properties(stored)[names.INNER_MULTI_QUEUE_OFFSET])
                values = [value or old for value, old in zip(values, before, strict=True)]
            stored = replace_property(stored, names.INNER_MULTI_QUEUE_OFFSET, MULTI_DISPATCH_SEPARATOR.join(values))
        return self._parts(message._replace(property_bytes=stored), item.is_copy, bool(item.multi))


# Writes the properties of ordinary messages: functions made once for each set of names (see encode_properties).
#
# Messages have few properties and many messages the same ones. For each number of them there is an f-string, which
# takes a quarter of the time of a loop.

# what makes a message take the slow path
UNUSUAL_PROPERTIES = frozenset(
    (
        names.DELAY,
        *names.TIMER_PROPERTIES,
        names.INNER_NUM,
        names.INNER_MULTI_DISPATCH,
        names.INNER_MULTI_QUEUE_OFFSET,
        names.CRC32,
    )
)

STORED_UNUSUAL = "(?:^|\x02)(?:{})\x01".format("|".join(map(re.escape, sorted(UNUSUAL_PROPERTIES))))
"""Matches stored properties that one of these names is, or may be, among: for Python's `re` and for Arrow's RE2."""
_search_unusual = re.compile(STORED_UNUSUAL.encode("ascii")).search

Writer = Callable[[Mapping[str, str]], str | None]
"""The property string of properties with certain names; None if a value holds a separator. TypeError for a value that
is no text."""


def property_template(property_names: tuple[str, ...]) -> str | None:
    """The property string with `%s` for the values; None if the names need more than that."""
    for name in property_names:
        if type(name) is not str or name in UNUSUAL_PROPERTIES or name.startswith(names.TRANSIENT_PREFIX):
            return None
        if "\x01" in name or "\x02" in name:
            return None
    return "".join(name.replace("%", "%%") + "\x01%s\x02" for name in property_names)


def joined_alike(property_names: tuple[str, ...], values: list[str]) -> str:
    """The property strings of many messages one behind the other, which all have these names (see
    `property_template`). `values`: those of all messages. TypeError for a value that is no text."""
    pieces = [""] * (2 * len(values))
    # a property begins with the separator that ends the one before it
    pieces[::2] = [f"\x02{name}\x01" for name in property_names] * (len(values) // len(property_names))
    pieces[1::2] = values
    pieces[0] = pieces[0][1:]
    pieces.append("\x02")
    return "".join(pieces)


def usual_stored(stored: object) -> bytes | None:
    """`stored`, if these are the bytes of properties which go to the log as they are; None for any others."""
    if type(stored) is not bytes or _search_unusual(stored):
        return None
    try:
        stored.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return stored


def property_writer(property_names: tuple[str, ...]) -> Writer | None:
    """The writer for these names; None if they need more than that."""
    template = property_template(property_names)
    if template is None:
        return None
    heads = [name + "\x01" for name in property_names]
    if len(heads) in _WRITERS:
        return _WRITERS[len(heads)](*heads)

    def write(properties: Mapping[str, str]) -> str | None:
        values = tuple(properties.values())
        return None if "\x02" in "".join(values) else template % values

    return write


def _one(a: str) -> Writer:
    def write(properties: Mapping[str, str]) -> str | None:
        (s,) = properties.values()
        return None if "\x02" in s else f"{a}{s}\x02"

    return write


def _two(a: str, b: str) -> Writer:
    def write(properties: Mapping[str, str]) -> str | None:
        s, t = properties.values()
        return None if "\x02" in s or "\x02" in t else f"{a}{s}\x02{b}{t}\x02"

    return write


def _three(a: str, b: str, c: str) -> Writer:
    def write(properties: Mapping[str, str]) -> str | None:
        s, t, u = properties.values()
        return None if "\x02" in s or "\x02" in t or "\x02" in u else f"{a}{s}\x02{b}{t}\x02{c}{u}\x02"

    return write


def _four(a: str, b: str, c: str, d: str) -> Writer:
    def write(properties: Mapping[str, str]) -> str | None:
        s, t, u, v = properties.values()
        if "\x02" in s or "\x02" in t or "\x02" in u or "\x02" in v:
            return None
        return f"{a}{s}\x02{b}{t}\x02{c}{u}\x02{d}{v}\x02"

    return write


_WRITERS: dict[int, Callable[..., Writer]] = {1: _one, 2: _two, 3: _three, 4: _four}
