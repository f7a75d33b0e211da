"""Makes a message ready for the log: RocketMQ's hooks and checks for a new one, exact bytes for a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, parse_property_crc
from rmqctl.formats.hosts import Host
from rmqctl.formats.message import FrameParts, Message, StoredMessage, prepare_frame
from rmqctl.formats.properties import encode_properties, parse_properties, replace_property
from rmqctl.formats.sys_flag import has_queue_slot, is_inner_batch
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.queues.dispatch import (
    LMQ_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
    may_lack_further_slots,
    message_count,
)
from rmqctl.store.queues.unit import QueueKey
from rmqctl.store.status import PutStatus
from rmqctl.store.write.delay import Destination, schedule
from rmqctl.store.write.put_checks import (
    Refusal,
    StoreCondition,
    check_frame,
    check_message,
    check_ranges,
    check_sizes,
    check_types,
)
from rmqctl.store.write.topic_types import TopicTypes

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

    def __init__(self, config: StoreConfig, store_host: Host, topics: TopicTypes) -> None:
        self._config = config
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
        destination = schedule(wanted, message.sys_flag, self._config, now)
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
        return tuple(
            (name, 0) if name.startswith(LMQ_PREFIX) else None for name in listed.split(MULTI_DISPATCH_SEPARATOR)
        )

    def _copy(self, message: Message, properties: Mapping[str, str], now: int) -> Prepared | Refusal:
        stored = message.property_bytes
        listed = properties.get(names.INNER_MULTI_DISPATCH, "")
        offsets = properties.get(names.INNER_MULTI_QUEUE_OFFSET, "").split(MULTI_DISPATCH_SEPARATOR)
        queues = listed.split(MULTI_DISPATCH_SEPARATOR) if listed.strip() else []
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

    def complete(self, item: Prepared, queue_offset: int, multi_offsets: Sequence[int]) -> FrameParts | Refusal:
        """The frame of a late message, now that its offsets are known: INNER_BASE of an inner batch (BatchConsumeQueue#
        assignQueueOffset), INNER_MULTI_QUEUE_OFFSET of a multi-dispatch message (CommitLog, doAppend)."""
        message = item.message
        if message is None:
            return item.parts
        stored = message.property_bytes or b""
        if is_inner_batch(message.sys_flag):
            stored = replace_property(stored, names.INNER_BASE, str(queue_offset))
        if item.multi:
            remaining = iter(multi_offsets)
            values = ["" if key is None else str(next(remaining)) for key in item.multi]
            if item.is_copy:
                before = parse_properties(stored)[names.INNER_MULTI_QUEUE_OFFSET].split(MULTI_DISPATCH_SEPARATOR)
                values = [value or old for value, old in zip(values, before, strict=True)]
            stored = replace_property(stored, names.INNER_MULTI_QUEUE_OFFSET, MULTI_DISPATCH_SEPARATOR.join(values))
        return self._parts(message._replace(property_bytes=stored), item.is_copy, bool(item.multi))
