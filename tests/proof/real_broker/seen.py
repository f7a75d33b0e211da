"""All that is in a store as its users get it: by ours and by a real broker, in the same words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.message import StoredMessage
from rmqctl.formats.sys_flag import SYS_FLAG_COMPRESSED
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.dispatch import index_keys
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
    own_slot: Slot
    body_sha256: str
    keys: str | None
    tags: str | None
    properties: dict[str, str]
    times: tuple[int, int]
    hosts: tuple[str, str]
    numbers: tuple[int, int, int, int]
    message_id: str


class Seen(NamedTuple):
    """A store: where its log begins and ends, begin and end of each queue that has an end, the messages by the place
    they were asked for, the physical offsets of what was found by a key, and the places where nothing can be read."""

    begin: int
    end: int
    queues: dict[tuple[str, int], tuple[int, int]]
    messages: dict[Slot, Facts]
    answers: dict[Key, set[int]]
    stumbled: set[Slot]


def by_broker(view: BrokerView) -> Seen:
    """What the real one saw."""
    messages = {Slot(m.asked_topic, m.asked_queue_id, m.asked_offset): _of_view(m) for m in view.messages}
    keyed: dict[Key, set[int]] = {}
    for found in messages.values():
        for key in keys_of(found):
            keyed.setdefault((found.own_slot.topic, key), set()).add(found.physical_offset)
    # a broker answers by the hash of the key alone, and leaves it to clients to look at the messages
    answers = {
        (query.topic, query.key): {*query.physical_offsets} & keyed.get((query.topic, query.key), set())
        for query in view.queries
    }
    queues = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in view.queues if q.max_offset}
    return Seen(view.min_offset, view.max_offset, queues, messages, answers, {Slot(*one[:3]) for one in view.anomalies})


def by_us(root: Path, config: StoreConfig, keys: Iterable[Key]) -> Seen:
    """What a MessageStore sees that is open for reading."""
    with MessageStore.open(root, config=config) as store:
        found = Seen(store.files.log.min_offset, _end(store), {}, {}, {}, set())
        for row in store.queues():
            queue = row["topic"], row["queue_id"]
            if row["max_offset"]:
                found.queues[queue] = row["min_offset"], row["max_offset"]
            _read(store, queue, row["min_offset"], row["max_offset"], found)
        slots = {facts.physical_offset for facts in found.messages.values()}
        for topic, key in keys:
            result = store.query(topic, key, limit=MOST_ANSWERS)
            # a rolled back message has no queue, so nobody compares its key
            found.answers[topic, key] = {m.physical_offset for m in result.messages} & slots
    return found


def _end(store: MessageStore) -> int:
    messages = store.last_messages(1, on_damage=lambda damage: None)
    return messages[-1].end if messages else store.files.log.min_offset


def _read(store: MessageStore, queue: tuple[str, int], begin: int, end: int, found: Seen) -> None:
    for offset in range(begin, end):
        result = store.get(*queue, offset, 1)
        # where a message cannot be read, ours goes on to the next that can
        if result.messages and result.messages[0].queue_offset == offset:
            found.messages[Slot(*queue, offset)] = of_stored(result.messages[0])
        else:
            found.stumbled.add(Slot(*queue, offset))


def of_stored(message: StoredMessage) -> Facts:
    """A message of ours."""
    properties = message.properties()
    return Facts(
        message.physical_offset,
        message.total_size,
        Slot(message.topic, message.queue_id, message.queue_offset),
        hashlib.sha256(message.plain_body()).hexdigest(),
        properties.get("KEYS"),
        properties.get("TAGS"),
        properties,
        (message.store_timestamp, message.born_timestamp),
        (str(message.born_host), str(message.store_host)),
        (message.sys_flag & ~SYS_FLAG_COMPRESSED, message.flag, message.reconsume_times, message.prepared_transaction_offset),
        message.message_id,
    )


def _of_view(m: MessageView) -> Facts:
    return Facts(
        m.physical_offset,
        m.size,
        Slot(m.topic, m.queue_id, m.queue_offset),
        m.body_sha256,
        m.keys,
        m.tags,
        m.properties,
        (m.store_timestamp, m.born_timestamp),
        (m.born_host, m.store_host),
        (m.sys_flag & ~SYS_FLAG_COMPRESSED, m.flag, m.reconsume_times, m.prepared_transaction_offset),
        m.message_id,
    )


def keys_of(facts: Facts) -> list[str]:
    """What it is indexed by."""
    return [*(facts.keys or "").split(" "), facts.properties.get("UNIQ_KEY", "")]


def differences(ours: Seen, real: Seen) -> list[str]:
    """What ours and the broker do not see alike in the same store."""
    wrong = [
        f"{name}: {getattr(ours, name)}, the broker's {getattr(real, name)}"
        for name in ("begin", "end", "stumbled")
        if getattr(ours, name) != getattr(real, name)
    ]
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
    for queue, (begin, end) in before.queues.items():
        now = after.queues.get(queue)
        if now is None or now[0] != begin or now[1] < end:
            wrong.append(f"queue {queue}: {begin}..{end}, the broker's {now}")
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
