"""All that is in a store as its users get it: by ours and by a real broker, in the same words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.message import StoredMessage
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import QueueKey
from tests.interop.views import BrokerView, MessageView

Key = tuple[str, str]
"""A topic and a key to look up in it."""

MOST_ANSWERS = 64
"""How many messages the driver asks for by a key."""


class Slot(NamedTuple):
    """A place in a queue."""

    topic: str
    queue_id: int
    queue_offset: int


class Facts(NamedTuple):
    """What a consumer learns of one message; hosts as "10.1.2.3:80". Its body is decompressed, and its sys flag without
    the bit that says so, which the decoder of 5.x takes away with it (MessageDecoder#decode)."""

    physical_offset: int
    size: int
    body_sha256: str
    properties: dict[str, str]
    times: tuple[int, int]
    hosts: tuple[str, str]
    sys_flag: int
    numbers: tuple[int, int, int]
    message_id: str

    @property
    def end(self) -> int:
        """Physical offset behind it."""
        return self.physical_offset + self.size

    def index_keys(self) -> list[str]:
        """What it is indexed by."""
        return [*self.properties.get("KEYS", "").split(), self.properties.get("UNIQ_KEY", "")]


class Queue(NamedTuple):
    """Begin and end, and between them physical offset, size and tags code of each unit."""

    begin: int
    end: int
    units: list[tuple[int, int, int]]


class Seen(NamedTuple):
    """A store: where its log begins and ends, the queues that have an end, the messages by the place they were asked
    for, the physical offsets of what was found by a key, and the places where nothing can be read, each with that from
    which on a consumer is told to go on. `packed`: those of them where ours sees a message whose body cannot be
    unpacked."""

    begin: int
    end: int
    queues: dict[QueueKey, Queue]
    messages: dict[Slot, Facts]
    answers: dict[Key, set[int]]
    stumbled: dict[Slot, int]
    packed: set[Slot]

    def messages_end(self) -> int:
        """Physical offset behind the last message that is in a queue; 0 without any."""
        return max((facts.end for facts in self.messages.values()), default=0)

    def without(self, slots: set[Slot]) -> Seen:
        """All but these places."""
        messages = {slot: facts for slot, facts in self.messages.items() if slot not in slots}
        places = {facts.physical_offset for facts in messages.values()}
        answers = {key: offsets & places for key, offsets in self.answers.items()}
        stumbled = {slot: going_on for slot, going_on in self.stumbled.items() if slot not in slots}
        return self._replace(messages=messages, answers=answers, stumbled=stumbled)

    def passed_over(self) -> set[Slot]:
        """The places between one where nothing can be read and that where a consumer goes on."""
        return {
            slot._replace(queue_offset=offset)
            for slot, going_on in self.stumbled.items()
            for offset in range(slot.queue_offset + 1, going_on)
        }


def by_broker(view: BrokerView) -> Seen:
    """What the real one saw."""
    # who asks for a placeholder gets what is behind it
    messages = {Slot(m.asked_topic, m.asked_queue_id, m.next_offset - 1): _of_view(m) for m in view.messages}
    keyed: dict[Key, set[int]] = {}
    for slot, found in messages.items():
        for key in found.index_keys():
            keyed.setdefault((slot.topic, key), set()).add(found.physical_offset)
    # a broker answers by the hash of the key alone, and leaves it to clients to look at the messages
    answers = {
        (query.topic, query.key): {*query.physical_offsets} & keyed.get((query.topic, query.key), set())
        for query in view.queries
    }
    queues = {
        (queue.topic, queue.queue_id): Queue(queue.min_offset, queue.max_offset, [unit[1:] for unit in queue.units])
        for queue in view.queues
        if queue.max_offset
    }
    stumbled = {Slot(topic, queue_id, offset): going_on for topic, queue_id, offset, _, going_on in view.anomalies}
    return Seen(view.min_offset, view.max_offset, queues, messages, answers, stumbled, set())


def by_us(root: Path, config: StoreConfig, keys: Iterable[Key]) -> Seen:
    """What a MessageStore sees that is open for reading."""
    with MessageStore.open(root, config=config) as store:
        begin = store.files.log.min_offset
        last = store.last_messages(1, events=Events(damage=lambda damage: None))
        found = Seen(begin, last[-1].end if last else begin, {}, {}, {}, {}, set())
        for queue in store.reader.queues():
            first, end = queue.min_offset(begin), queue.max_offset
            units = list(queue.units(first, end))
            if end:
                shown = [(unit.physical_offset, unit.size, unit.tags_code) for unit in units]
                found.queues[queue.topic, queue.queue_id] = Queue(first, end, shown)
            for unit in units:
                if not unit.is_placeholder:  # everybody is led on to what is behind it
                    _read(store, Slot(queue.topic, queue.queue_id, unit.queue_offset), found)
        places = {facts.physical_offset for facts in found.messages.values()}
        for topic, key in keys:
            messages = store.query(topic, key, limit=MOST_ANSWERS).messages
            # one that is in no queue is not compared
            found.answers[topic, key] = {message.physical_offset for message in messages} & places
    return found


def _read(store: MessageStore, slot: Slot, found: Seen) -> None:
    result = store.get(*slot, limit=1)
    # where a message cannot be read, ours goes on to the next that can
    if result.messages and result.messages[0].queue_offset == slot.queue_offset:
        try:
            found.messages[slot] = _of_stored(result.messages[0])
        except CorruptError:  # the decoder of brokers and clients gives up there, too (MessageDecoder#decode)
            found.packed.add(slot)
            found.stumbled[slot] = result.next_offset
    else:
        found.stumbled[slot] = result.next_offset


def _of_stored(message: StoredMessage) -> Facts:
    body_sha256 = hashlib.sha256(message.plain_body()).hexdigest()
    return _facts(message, message.total_size, body_sha256, message.properties())


def _of_view(message: MessageView) -> Facts:
    return _facts(message, message.size, message.body_sha256, message.properties)


def _facts(message: StoredMessage | MessageView, size: int, body_sha256: str, properties: dict[str, str]) -> Facts:
    return Facts(
        message.physical_offset,
        size,
        body_sha256,
        properties,
        (message.store_timestamp, message.born_timestamp),
        (str(message.born_host), str(message.store_host)),
        message.sys_flag & ~SYS_FLAG_COMPRESSED,
        (message.flag, message.reconsume_times, message.prepared_transaction_offset),
        message.message_id,
    )


def differences(ours: Seen, real: Seen) -> list[str]:
    """What ours and the broker do not see alike in the same store; where the log ends is not among it."""
    wrong = [] if ours.begin == real.begin else [f"begin: {ours.begin}, the broker's {real.begin}"]
    wrong += [f"only one can read {slot}" for slot in sorted(ours.stumbled.keys() ^ real.stumbled.keys())]
    for what in ("queues", "messages", "answers"):
        mine, theirs = getattr(ours, what), getattr(real, what)
        for key in sorted(mine.keys() | theirs.keys()):
            if mine.get(key) != theirs.get(key):
                wrong.append(f"{what} {key}: {_apart(mine.get(key), theirs.get(key))}")
    return wrong


def lacks(before: Seen, after: Seen) -> list[str]:
    """What is not there any more, or not as it was, in a store that has only grown since."""
    wrong = [
        f"message {slot}: {_apart(facts, after.messages.get(slot))}"
        for slot, facts in before.messages.items()
        if after.messages.get(slot) != facts
    ]
    for key, queue in before.queues.items():
        now = after.queues.get(key)
        if now is None or now.begin != queue.begin or now.units[: len(queue.units)] != queue.units:
            wrong.append(f"queue {key}: {queue}, the broker's {now}")
    return wrong + [
        f"answer {key}: {sorted(offsets)}, the broker's {sorted(after.answers[key])}"
        for key, offsets in before.answers.items()
        if not offsets <= after.answers[key]
    ]


def _apart(mine: object, theirs: object) -> str:
    """Of two records only the fields that differ."""
    if isinstance(mine, Facts) and isinstance(theirs, Facts):
        pairs = zip(Facts._fields, mine, theirs, strict=True)
        return ", ".join(f"{name} {one}, the broker's {other}" for name, one, other in pairs if one != other)
    return f"{mine}, the broker's {theirs}"
