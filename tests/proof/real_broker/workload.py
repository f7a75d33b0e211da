"""Random messages that ours puts, by ways and kinds that brokers know too."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rmqctl.formats.compression import compress
from rmqctl.formats.message import Message, parse_host
from rmqctl.formats.properties import (
    COMPRESSION_ZLIB_LEGACY,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    has_queue_slot,
)
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.put import PutResult
from tests.proof.real_broker.seen import Slot

LOG_FILE, QUEUE_FILE = 16384, 400
SETTINGS = {
    "store.mappedFileSizeCommitLog": str(LOG_FILE),
    "store.mappedFileSizeConsumeQueue": str(QUEUE_FILE),
    "store.maxHashSlotNum": "20",
    "store.maxIndexNum": "60",
    "store.enableCompaction": "false",
    "store.timerWheelEnable": "false",
}
"""Of every store, for brokers; `chosen_settings` adds some by chance."""

TOPICS = ("Orders", "Events", "Ünïcödé|消息")
NAMES = tuple(f"k{number}" for number in range(12))
_CHOICES: tuple[dict[str, str], ...] = (
    {},
    {},
    {"store.flushDiskType": "SYNC_FLUSH"},
    {"store.messageIndexSafe": "true"},
    {"store.checkCRCOnRecover": "false"},
)
# ours alone: a broker of 4.9.8 does not know the settings, and reads what comes of them
_OWN_CHOICES: tuple[dict[str, object], ...] = (
    {},
    {},
    {"enabled_append_prop_crc": True},
    {"transient_store_pool_enable": True},
)
_PUTS = (3, 12)
_LARGEST = 5000
_OFTEN_SMALL = 300
_HOSTS = tuple(map(parse_host, ("10.9.8.7:4321", "[2001:db8::1]:10911", "127.0.0.1:10911")))
_BETWEEN_MS = 700
_HOUR_MS = 3_600_000


def chosen_settings(chance: random.Random) -> dict[str, str]:
    """Those of one store."""
    return SETTINGS | chance.choice(_CHOICES)


def put_some(root: Path, config: StoreConfig, chance: random.Random, *, kill: bool) -> set[Slot]:
    """Put messages into the store, which is made if it is not there; the slots of what was acknowledged.

    The first message is stored an hour ago if nothing is there yet. With `kill` the store is left as a killed process
    leaves it: everything is in the page cache, and so on the disk that others see.
    """
    is_new = not (root / "commitlog").exists()
    now = int(time.time() * 1000)
    first = now - _HOUR_MS if is_new else now
    clock = itertools.count(first, _BETWEEN_MS if is_new else 1).__next__
    own = config._replace(**chance.choice(_OWN_CHOICES))  # type: ignore[arg-type]  # fields of the class
    slots: set[Slot] = set()
    store = MessageStore.open(root, "rw", own, create=True, clock=clock, allocate_ahead=False)
    try:
        for _ in range(chance.randint(*_PUTS)):
            slots |= _put(store, chance)
        if chance.random() < 0.5:
            store.flush()
        if kill:
            store.wait_for_dispatch()
            copy = root.with_name(root.name + "-killed")
            shutil.copytree(root, copy)
    finally:
        store.close()
    if kill:
        shutil.rmtree(root)
        copy.rename(root)
    return slots


def _put(store: MessageStore, chance: random.Random) -> set[Slot]:
    """One way of putting, and the slots of what a queue has to show."""
    way = chance.choice(("one", "one", "many", "batch"))
    messages = [_message(chance) for _ in range(1 if way == "one" else chance.randint(2, 20))]
    if way == "batch":
        topic, queue_id = chance.choice(TOPICS), chance.randrange(3)
        messages = [
            Message(topic, bytes(chance.randbytes(20)), queue_id, properties=_properties(chance)) for _ in messages
        ]
    results: Sequence[PutResult] = (
        [store.put(messages[0])] if way == "one" else store.put_many(messages, batch=way == "batch")
    )
    slots = set()
    for message, result in zip(messages, results, strict=True):
        assert result.status.is_stored, result
        if has_queue_slot(message.sys_flag):
            assert result.queue_offset is not None
            slots.add(_slot(message, result.queue_offset))
    return slots


def _slot(message: Message, queue_offset: int) -> Slot:
    """A delayed message waits in the queue of its level."""
    level = message.properties.get("DELAY")
    if level is not None:
        return Slot("SCHEDULE_TOPIC_XXXX", int(level) - 1, queue_offset)
    return Slot(message.topic, message.queue_id, queue_offset)


def _properties(chance: random.Random) -> dict[str, str]:
    properties = {}
    if chance.random() < 0.8:
        properties["KEYS"] = " ".join(chance.sample(NAMES, chance.randint(1, 3)))
    if chance.random() < 0.6:
        properties["TAGS"] = chance.choice(("TagA", "TagB", "标签"))
    if chance.random() < 0.8:
        properties["UNIQ_KEY"] = f"{chance.getrandbits(128):032X}"
    if chance.random() < 0.2:
        properties["wïde"] = "x" * chance.randint(0, 900)
    return properties


def _message(chance: random.Random) -> Message:
    size = chance.randint(0, _LARGEST if chance.random() < 0.1 else _OFTEN_SMALL)
    body, properties, flag = chance.randbytes(size), _properties(chance), 0
    kind = chance.choice(("plain",) * 6 + ("delay", "zipped", "old transaction"))
    if kind == "delay":
        properties["DELAY"] = str(chance.randint(1, 18))
    elif kind == "zipped":
        body, flag = compress(body * 3, COMPRESSION_ZLIB_LEGACY), 0x1
    elif kind == "old transaction":
        flag = chance.choice((TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK))
    return Message(
        chance.choice(TOPICS),
        body,
        chance.randrange(3),
        flag=chance.randint(-5, 5),
        properties=properties,
        sys_flag=flag,
        born_timestamp=int(time.time() * 1000) - chance.randint(0, 1000),
        born_host=chance.choice(_HOSTS),
        store_host=chance.choice(_HOSTS),
    )
