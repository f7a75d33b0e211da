"""A small store with every kind of file, the same each time: 64 KiB of bytes that say something."""

from __future__ import annotations

import itertools
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.layouts import (
    CONSUMEQUEUE_EXT_UNIT_HEAD,
    CONSUMEQUEUE_UNIT,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
)
from rmqctl.formats.message import Message, StoredMessage, parse_host
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.consumequeue import ext_offset
from rmqctl.store.store_files import StoreFiles
from tests.goldens import golden

SLOTS = 40
CONFIG = StoreConfig(
    mapped_file_size_commit_log=32768,
    mapped_file_size_consume_queue=400,
    mapped_file_size_consume_queue_ext=1024,
    enable_consume_queue_ext=True,
    max_hash_slot_num=SLOTS,
    max_index_num=200,
    timer_wheel_enable=False,
    enabled_append_prop_crc=False,
)
TOPICS = ("Events", "Orders")
BEGUN = 1_700_000_000_000
_OF_A_BROKER = ("config/timercheck", "config/timermetrics", "config/transactionMetrics")
_WITHOUT_CHECKSUM = 26
_WITH_CHECKSUM = 26


class Used(NamedTuple):
    """A stretch of bytes of one field: file, relative to the store, what it is part of, which field, and where."""

    file: str
    structure: str
    field: str
    offset: int
    size: int


def make(folder: Path) -> list[StoredMessage]:
    """Write the store `folder`/store; what is in it."""
    root = folder / "store"
    clock = itertools.count(BEGUN, 1000).__next__
    for crc, numbers in ((False, range(_WITHOUT_CHECKSUM)), (True, range(_WITHOUT_CHECKSUM, 52))):
        # one queue alone gets ext units, below
        config = CONFIG._replace(enabled_append_prop_crc=crc, enable_consume_queue_ext=False)
        host = parse_host("10.1.2.3:10911")
        with MessageStore.open(
            root, "rw", config, create=True, clock=clock, store_host=host, allocate_ahead=False
        ) as store:
            for number in numbers:
                assert store.put(_message(number)).status.is_stored
    _add_ext(root)
    _add_files_of_a_broker(folder, root)
    for path in (root / "commitlog").iterdir():
        os.utime(path, (BEGUN // 1000, BEGUN // 1000 + 60))
    with StoreFiles(root, CONFIG) as files:
        return [record for record in walk(files.log) if isinstance(record, StoredMessage)]


def _message(number: int) -> Message:
    """Bodies of about a kilobyte; two topics, four queues; keys, tags, hosts of both kinds, delays, transactions."""
    properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"order-{number % 7} all", "TAGS": f"Tag{number % 3}"}
    properties["from"] = "a customer"
    if number % 13 == 5:
        properties["DELAY"] = "3"
    host = parse_host("10.9.8.7:4321") if number % 5 else parse_host("[2001:db8::1]:4321")
    return Message(
        topic=TOPICS[number % 2],
        body=bytes((number * 31 + place * 7) & 0xFF for place in range(700 + number * 11)),
        queue_id=number // 2 % 2,
        properties=properties,
        born_timestamp=BEGUN + number,
        born_host=host,
        flag=number,
    )


def _add_ext(root: Path) -> None:
    """Let one queue keep its tags in ext units, as a broker with enableConsumeQueueExt writes them."""
    queue = root / "consumequeue/Events/0/00000000000000000000"
    with StoreFiles(root, CONFIG) as files:
        stored = [record for record in walk(files.log) if isinstance(record, StoredMessage)]
    times = [one.store_timestamp for one in stored if (one.topic, one.queue_id) == ("Events", 0)]
    data = bytearray(queue.read_bytes())
    ext = bytearray()
    for number, time in enumerate(times):
        place = number * CONSUMEQUEUE_UNIT.size + CONSUMEQUEUE_UNIT.offset("tags_code")
        (code,) = struct.unpack_from(">q", data, place)
        unit = CONSUMEQUEUE_EXT_UNIT_HEAD.struct.pack(CONSUMEQUEUE_EXT_UNIT_HEAD.size, code, time, 0)
        struct.pack_into(">q", data, place, len(ext) - (1 << 63))
        ext += unit
    queue.write_bytes(data)
    folder = root / "consumequeue_ext/Events/0"
    folder.mkdir(parents=True)
    (folder / queue.name).write_bytes(ext.ljust(1024, b"\0"))


def _add_files_of_a_broker(folder: Path, root: Path) -> None:
    """Its configuration and its timer's files, as a real one left them."""
    broker = golden("broker-real", folder)
    (root / "config").mkdir()
    for name in _OF_A_BROKER:
        shutil.copy2(broker / name, root / name)
    (root / "timerlog").mkdir()
    timer_log = (broker / "timerlog/00000000000000000000").read_bytes().rstrip(b"\0")
    (root / "timerlog/00000000000000000000").write_bytes(timer_log.ljust(4096, b"\0"))
    with (broker / "timerwheel").open("rb") as file:
        wheel = file.read().lstrip(b"\0")[:320]
    (root / "timerwheel").write_bytes(wheel.ljust(4096, b"\0"))
    (root / "config/consumerOffset.json").write_text(
        '{"dataVersion":{"counter":4},"offsetTable":{"Events@readers":{0:3,1:2},"Orders@readers":{0:1}}}'
    )
    (root / "config/delayOffset.json").write_text('{"offsetTable":{3:0}}')
    queues = '"readQueueNums":2,"writeQueueNums":2,"perm":6'
    topics = (f'"{name}":{{"topicName":"{name}",{queues}}}' for name in (*TOPICS, "SCHEDULE_TOPIC_XXXX"))
    (root / "config/topics.json").write_text(f'{{"topicConfigTable":{{{",".join(topics)}}}}}')
    (root / "config/subscriptionGroup.json").write_text(
        '{"subscriptionGroupTable":{"readers":{"groupName":"readers","consumeEnable":true,"retryMaxTimes":16}}}'
    )
    shutil.rmtree(broker)


def used_bytes(root: Path) -> Iterator[Used]:
    """Every byte up to the last one of its file that is not zero, field by field."""
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = path.relative_to(root).as_posix()
        end = len(path.read_bytes().rstrip(b"\0"))
        if name.startswith(("config/", "timer", "lock")):
            if end:
                yield Used(name, name.removesuffix("/00000000000000000000"), "", 0, end)
            continue
        for one in _dumped(name, path):
            if one.size and one.offset < end:
                yield one._replace(size=min(one.size, end - one.offset))


def _dumped(name: str, path: Path) -> Iterator[Used]:
    _, items = MessageStore.dump(path)
    if name.startswith("index/"):
        yield Used(name, "index entry 0", "", INDEX_HEADER.size + SLOTS * INDEX_SLOT.size, INDEX_ENTRY.size)
    for item in items:
        structure = item.kind
        if structure == "message" and b"__CRC32#\x01" in item.raw:
            structure = "message with __CRC32#"
        elif structure == "unit" and ext_offset(CONSUMEQUEUE_UNIT.unpack_from(item.raw, 0)[2]) is not None:
            structure = "unit with an ext address"
        for field in item.fields:
            yield Used(name, structure, field.name, field.offset, field.size)
