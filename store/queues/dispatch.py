"""What a message implies: slots in consume queues and keys in the index (CommitLogDispatcher)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import java_long, parse_int, parse_long, parse_short, tag_key, tags_code
from rmqctl.formats.message import MINIMUM_FRAME_SIZE, StoredMessage
from rmqctl.formats.properties import TRANSACTION_ROLLBACK, has_queue_slot, is_inner_batch, transaction_type
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.queues.consumequeue import BatchConsumeQueue, ConsumeQueue, QueueKey, QueueUnit

if TYPE_CHECKING:
    import numpy as np

_Offsets = TypeVar("_Offsets", int, "np.ndarray[Any, np.dtype[np.int64]]")
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
LMQ_PREFIX = "%LMQ%"
MULTI_DISPATCH_SEPARATOR = ","
_NOT_FURTHER = ("%RETRY%", "rmq_sys_")
# a queue whose units still have positions of 64 bits
_SLOTS = range(10**18)


class QueueSlot(NamedTuple):
    """A unit and the queue it belongs to. `is_batch`: the queue has 46-byte units. `is_further`: a property of the
    message names the queue (multi-dispatch), `listed` times; `is_copy`: it may be a copy, which takes no slot there."""

    topic: str
    queue_id: int
    unit: QueueUnit
    is_batch: bool
    is_further: bool = False
    listed: int = 1
    is_copy: bool = False


def unit_tags_code(message: StoredMessage, properties: dict[str, str], delay_levels: Sequence[int]) -> int:
    """Tag hash, or the absolute delivery time in ms for a message of the schedule topic.

    (CommitLog#checkMessageAndReturnSize) A level that the table lacks counts as one second. Where the level is no int,
    a broker makes no unit: its recovery ends the log before the message (predict/frames.py). Here the message keeps its
    slot, with the tag hash, so that it can be read.
    """
    level = delay_level(message.topic, properties)
    if level > 0:
        level = min(level, len(delay_levels))
        return java_long(message.store_timestamp + (delay_levels[level - 1] if level else 1000))
    return tags_code(properties.get(names.TAGS))


# a count that no unit of a batch queue holds: such a message is refused, and a finding
_TOO_MANY = 1 << 31


def highest_plausible(physical_offset: _Offsets, per_file: int) -> _Offsets:
    """The highest queue offset that a message at a physical offset, or at each of several, can have.

    Every message of a queue took the space of a frame in the log. What brokers are known to skip beyond that is less
    than a file of the queue, of `per_file` units. No checksum covers queueOffset.
    """
    return physical_offset // MINIMUM_FRAME_SIZE + per_file


def delay_level(topic: str, properties: dict[str, str]) -> int:
    """Return the level of a message of the schedule topic as Integer.parseInt reads it; 0 without, and for no int."""
    return parse_int(properties.get(names.DELAY, "0")) or 0 if topic == SCHEDULE_TOPIC else 0


def message_count(sys_flag: int, properties: dict[str, str], is_batch_queue: bool) -> int:
    """Queue offsets a message takes: those of its inner batch, else one (CommitLog#getMessageNum)."""
    if not is_inner_batch(sys_flag) and not is_batch_queue:
        return 1
    text = properties.get(names.INNER_NUM, "1")
    count = parse_short(text)
    if count is None and text.isdecimal():
        return _TOO_MANY
    return max(1, count or 1)


def queue_slots(
    message: StoredMessage, delay_levels: Sequence[int], is_batch_topic: bool = False
) -> Iterator[QueueSlot]:
    """The slots a message takes: none if it is prepared or rolled back, several with multi-dispatch.

    Topics that cannot be directory names get none, so that no path leads outside the store.
    """
    if not has_queue_slot(message.sys_flag):
        return
    properties = message.properties()
    code = unit_tags_code(message, properties, delay_levels)
    is_batch = is_batch_topic or is_inner_batch(message.sys_flag)
    unit = QueueUnit(message.queue_offset, message.physical_offset, message.total_size, code)
    if is_batch:
        unit = unit._replace(
            store_timestamp=message.store_timestamp, batch_size=message_count(message.sys_flag, properties, is_batch)
        )
    if is_safe_topic(message.topic) and message.queue_id >= 0:
        yield QueueSlot(message.topic, message.queue_id, unit, is_batch)
    yield from _multi_dispatch(message, properties, code)


def split_further(listed: str) -> list[str]:
    """Return the parts of a list of further queues or their offsets, none empty at the end (as Java splits)."""
    return listed.rstrip(MULTI_DISPATCH_SEPARATOR).split(MULTI_DISPATCH_SEPARATOR)


def may_lack_further_slots(topic: str) -> bool:
    """Return whether messages of a topic take no slot in the further queues that their properties name: 5.x leaves out
    copies, which keep the properties of the original (MultiDispatchUtils#isNeedHandleMultiDispatch)."""
    return topic.startswith(_NOT_FURTHER) or topic == SCHEDULE_TOPIC


def _multi_dispatch(message: StoredMessage, properties: dict[str, str], code: int) -> Iterator[QueueSlot]:
    """Slots in further queues. The offsets property is only ever written by a broker with LMQ enabled.

    4.9.8 gives copies such as retries new offsets and a slot; 5.x gives them none, see `may_lack_further_slots`. A
    queue that is listed twice has one offset in both places, as brokers count it on after the message
    (LmqDispatch#wrapLmqDispatch), and one slot.
    """
    listed = properties.get(names.INNER_MULTI_DISPATCH, "")
    offsets = properties.get(names.INNER_MULTI_QUEUE_OFFSET, "")
    if not listed.strip() or not offsets.strip():
        return
    queues, slots = split_further(listed), split_further(offsets)
    if len(queues) != len(slots):
        return
    is_copy = may_lack_further_slots(message.topic)
    for (name, slot), times in Counter(zip(queues, slots, strict=True)).items():
        offset = parse_long(slot)
        if not is_safe_topic(name) or offset is None or offset not in _SLOTS:
            continue
        queue_id = 0 if name.startswith(LMQ_PREFIX) else message.queue_id
        unit = QueueUnit(offset, message.physical_offset, message.total_size, code)
        yield QueueSlot(name, queue_id, unit, False, is_further=True, listed=times, is_copy=is_copy)


class FurtherSlots:
    """The places that messages have in further queues, for those that come in the log's order.

    Since 5.0 a broker counts a queue on by two for a message that lists it twice, and gives the message one slot of it
    (LmqDispatch#updateLmqOffsets): until its next start the offsets of later messages are ahead of their places, where
    the queue ends (ConsumeQueue#putMessagePositionInfo). `find`: the queue in the store, which shows how far the first
    message of it is ahead.
    """

    def __init__(self, find: Callable[[str, int], ConsumeQueue | BatchConsumeQueue | None]) -> None:
        self._find = find
        self._next: dict[QueueKey, tuple[int, int] | None] = {}

    def placed(self, slot: QueueSlot) -> QueueSlot:
        """Return the slot with the offset that is its place; one that is in no further queue as it is."""
        if not slot.is_further:
            return slot
        key, offset = (slot.topic, slot.queue_id), slot.unit.queue_offset
        if key not in self._next:
            self._next[key] = self._first(slot)
        following = self._next[key]
        if following is None:
            return slot
        expected, ahead = following
        if slot.is_copy and offset != expected - ahead:
            return slot
        if offset < expected:
            ahead = 0
        self._next[key] = offset + slot.listed, ahead + slot.listed - 1
        return slot._replace(unit=slot.unit._replace(queue_offset=offset - ahead)) if ahead else slot

    def _first(self, slot: QueueSlot) -> tuple[int, int] | None:
        """The queue offset of a queue's first message, and how far it is ahead of its place in the store; None for a
        queue of another kind, where units are found by these offsets."""
        queue, unit = self._find(slot.topic, slot.queue_id), slot.unit
        if queue is None:
            return unit.queue_offset, 0
        if not isinstance(queue, ConsumeQueue) or queue.kind != ConsumeQueue.kind:
            return None
        there = range(queue.first_slot, min(unit.queue_offset, queue.max_offset))
        place = bisect_left(there, unit.physical_offset, key=lambda at: _physical_offset(queue, at))
        is_there = place < len(there) and _physical_offset(queue, there[place]) == unit.physical_offset
        return unit.queue_offset, unit.queue_offset - there[place] if is_there else 0


def places_in(
    queue: ConsumeQueue | BatchConsumeQueue, message: StoredMessage, delay_levels: Sequence[int]
) -> list[int]:
    """Return the places that a message has in one queue of the store."""
    further = FurtherSlots(lambda topic, queue_id: queue)
    slots = queue_slots(message, delay_levels, queue.kind == "BatchCQ")
    own = [slot for slot in slots if (slot.topic, slot.queue_id) == (queue.topic, queue.queue_id)]
    return [further.placed(slot).unit.queue_offset for slot in own]


def _physical_offset(queue: ConsumeQueue, slot: int) -> int:
    unit = queue.unit(slot)
    return -1 if unit is None else unit.physical_offset


def index_keys(message: StoredMessage, *, with_tags: bool = False) -> list[str]:
    """Return the keys under which a message is indexed, each once: unique key, then KEYS (IndexService#buildIndex).

    `with_tags`: the key of its tag comes last, as RocketMQ indexes it since 5.4; see store/index/index_service.py.
    Rolled back messages are not indexed. RocketMQ indexes a repeated key again; rmqctl does not.
    """
    if transaction_type(message.sys_flag) == TRANSACTION_ROLLBACK:
        return []
    properties = message.properties()
    keys = [properties[names.UNIQUE_KEY]] if names.UNIQUE_KEY in properties else []
    keys += names.split_keys(properties.get(names.KEYS))
    if with_tags and names.TAGS in properties:
        keys.append(tag_key(properties[names.TAGS]))
    return list(dict.fromkeys(keys))
