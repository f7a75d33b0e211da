"""The key index in tiered storage: the items of a key lead to frames in the logs of queues (IndexStoreFile)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.errors import CorruptError, counted
from rmqctl.formats.layouts import TIERED_INDEX_HEADER, TIERED_INDEX_ITEM, TIERED_INDEX_MAGIC, TIERED_INDEX_SLOT
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import KEYS, UNIQUE_KEY
from rmqctl.store.config.tiered_table import topic_numbers
from rmqctl.store.files.reading import Descriptors, listed, status_of
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.tiered import INDEX_TOPIC, SEGMENT, TieredQueue, TieredStorage
from rmqctl.store.store_files import StoreFiles

INDEX = "INDEX"
_ITEMS_AT_ONCE = 10_000


class IndexSegment(NamedTuple):
    """An uploaded index file: its number of slots follows from its length and its number of items."""

    path: Path
    slots: int
    items: int

    @property
    def items_at(self) -> int:
        """The byte of the first item."""
        return TIERED_INDEX_HEADER.size + self.slots * TIERED_INDEX_SLOT.size


def index_segment(path: Path, size: int, descriptors: Descriptors) -> IndexSegment:
    """Return what the head of a segment of `size` bytes says. CorruptError where it fits no number of slots."""
    head = descriptors.read(path, 0, TIERED_INDEX_HEADER.size) if size >= TIERED_INDEX_HEADER.size else b""
    if len(head) < TIERED_INDEX_HEADER.size:
        raise CorruptError(f"has {size} bytes, which is less than the head of an index", file=path)
    magic, _, _, _, items = TIERED_INDEX_HEADER.unpack_from(head, 0)
    room = size - TIERED_INDEX_HEADER.size - items * TIERED_INDEX_ITEM.size
    if magic & 0xFFFFFFFF != TIERED_INDEX_MAGIC or items < 0 or room < 0 or room % TIERED_INDEX_SLOT.size:
        raise CorruptError(f"its head fits no index of {size} bytes", file=path)
    return IndexSegment(path, room // TIERED_INDEX_SLOT.size, items)


def index_segments(storage: TieredStorage, events: Events) -> Iterator[IndexSegment]:
    """Yield the segments of the key index, those that do not fit are reported. UnreadableError."""
    for broker in storage.brokers():
        of_index = broker / INDEX_TOPIC / "0" / INDEX
        for name in listed(of_index):
            status = status_of(of_index / name) if SEGMENT.fullmatch(name) else None
            if status is not None:
                try:
                    yield index_segment(of_index / name, status.st_size, storage.files.descriptors)
                except CorruptError as error:
                    events.damaged(error)


def messages_with_key(storage: TieredStorage, topic: str, key: str, events: Events) -> list[StoredMessage]:
    """Return the messages of a topic with a key or unique key, as far as the index in tiered storage leads to them.

    Oldest first; their physical offset is -1. Items that lead to no good message are reported. Errors as for
    `TieredStorage.queues`.
    """
    wanted = key_hash(topic, key)
    places = {
        (queue_id, offset, size)
        for segment in index_segments(storage, events)
        for found, queue_id, offset, size in _items(storage.files, segment, wanted)
        if found == wanted
    }
    queues = {one.queue_id: one for one in storage.queues(topic)} if places else {}
    messages = []
    for queue_id, offset, size in sorted(places):
        # another topic may have the same hash
        message, problem = queues[queue_id].decoded(offset, size) if queue_id in queues else (None, "")
        if problem:
            events.damaged(CorruptError(f"an index item leads to {offset}: {problem}", file=queues[queue_id].folder))
        if message is not None and message.topic == topic and has_key(message, key):
            messages.append(message._replace(physical_offset=-1))
    return sorted(messages, key=lambda message: message.store_timestamp)


def has_key(message: StoredMessage, key: str) -> bool:
    """Return whether a message has a key among its KEYS or as its unique key."""
    return key in _keys(message)


def _keys(message: StoredMessage) -> tuple[str | None, ...]:
    properties = message.properties()
    return properties.get(UNIQUE_KEY), *properties.get(KEYS, "").split(" ")


def index_problems(storage: TieredStorage) -> Iterator[tuple[Path, str]]:
    """Yield segments of the key index with what is wrong with each: heads, slots, and items that lead to no message
    with such a key. Items of messages that have expired are passed over. Errors as for `TieredStorage.queues`."""
    damaged: list[CorruptError] = []
    queues = {(one.topic, one.queue_id): one for one in storage.queues()}
    topics = topic_numbers(storage.files.layout.config)
    for segment in index_segments(storage, UNHEARD._replace(damage=damaged.append)):
        lost = segment.items - _reached(storage.files, segment)
        if lost:
            yield segment.path, f"its slots lead to {counted(lost, 'item')} less than it has"
        wrong = [
            text
            for item in _all_items(storage.files, segment)
            if (text := _problem(topics, queues, item) if topics else "")
        ]
        if wrong:
            yield segment.path, f"{counted(len(wrong), 'item')} of {segment.items}: {wrong[0]}"
    for error in damaged:
        yield Path(error.file or storage.folder), error.message


def _reached(files: StoreFiles, segment: IndexSegment) -> int:
    """Count the items that their slots lead to."""
    width, count = TIERED_INDEX_ITEM.size, 0
    table = files.descriptors.read(segment.path, TIERED_INDEX_HEADER.size, segment.slots * TIERED_INDEX_SLOT.size)
    for slot in range(len(table) // TIERED_INDEX_SLOT.size):
        position, size = TIERED_INDEX_SLOT.unpack_from(table, slot * TIERED_INDEX_SLOT.size)
        if size > 0:
            data = files.descriptors.read(segment.path, max(position, 0), size)
            hashes = [TIERED_INDEX_ITEM.unpack_from(data, at)[0] for at in range(0, len(data) - width + 1, width)]
            count += sum(one % segment.slots == slot for one in hashes)
    return count


def _all_items(files: StoreFiles, segment: IndexSegment) -> Iterator[tuple[int, ...]]:
    """Yield hash, topic's number, queue id, offset, size and seconds of all items."""
    width = TIERED_INDEX_ITEM.size
    for first in range(0, segment.items, _ITEMS_AT_ONCE):
        count = min(_ITEMS_AT_ONCE, segment.items - first)
        data = files.descriptors.read(segment.path, segment.items_at + first * width, count * width)
        yield from (TIERED_INDEX_ITEM.unpack_from(data, at) for at in range(0, len(data) - width + 1, width))


def _problem(topics: dict[int, str], queues: dict[tuple[str, int], TieredQueue], item: tuple[int, ...]) -> str:
    """Return what is wrong with an item; "" for a good one."""
    found, number, queue_id, offset, size, _ = item
    topic = topics.get(number)
    if topic is None:
        return f"no topic has the number {number}"
    queue = queues.get((topic, queue_id))
    if queue is None or not queue.logs or offset < queue.logs[0].base:
        return ""  # expired
    message, problem = queue.decoded(offset, size)
    if message is None:
        return problem
    hashes = [key_hash(topic, key) for key in _keys(message) if key]
    return "" if found in hashes else f"the message at {offset} of {topic}, queue {queue_id} has no such key"


def _items(files: StoreFiles, segment: IndexSegment, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield hash, queue id, offset and size of the items of a slot."""
    if not segment.slots:
        return
    at = TIERED_INDEX_HEADER.size + wanted % segment.slots * TIERED_INDEX_SLOT.size
    position, size = TIERED_INDEX_SLOT.unpack_from(files.descriptors.read(segment.path, at, TIERED_INDEX_SLOT.size), 0)
    end = segment.items_at + segment.items * TIERED_INDEX_ITEM.size
    if size <= 0 or position < segment.items_at or position + size > end:
        return
    data = files.descriptors.read(segment.path, position, size)
    for place in range(0, len(data) - TIERED_INDEX_ITEM.size + 1, TIERED_INDEX_ITEM.size):
        found, _, queue_id, offset, length, _ = TIERED_INDEX_ITEM.unpack_from(data, place)
        yield found, queue_id, offset, length
