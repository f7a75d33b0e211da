"""The key index of tiered storage: items that lead to frames in the logs of queues (IndexStoreFile, IndexStoreService).

Uploaded files are segments of tiered storage, with the items of a slot together. Until then they are in the store, with
the items of a slot chained.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.checksums import java_int, key_hash
from rmqctl.formats.errors import CorruptError, UsageError, counted
from rmqctl.formats.layouts import (
    LOCAL_TIERED_INDEX_ITEM,
    LOCAL_TIERED_INDEX_SLOT,
    TIERED_INDEX_HEADER,
    TIERED_INDEX_ITEM,
    TIERED_INDEX_MAGIC,
    TIERED_INDEX_OPEN,
    TIERED_INDEX_SLOT,
)
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import KEYS, UNIQUE_KEY
from rmqctl.store.config.tiered_table import TieredTopics, topic_numbers
from rmqctl.store.files.reading import Descriptors, end_of_nonzero, is_directory, is_file, listed, status_of
from rmqctl.store.index.index_file import LARGEST_FILE
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.tiered import INDEX_TOPIC, SEGMENT, TieredStorage
from rmqctl.store.store_files import StoreFiles

INDEX = "INDEX"
_ITEMS_AT_ONCE = 10_000
_MOST_WRONG = 1000


class Item(NamedTuple):
    """An item: `topic`: its number in the table of topics; `place`: offset in the log of its queue; `seconds`: since
    the file was begun."""

    key_hash: int
    topic: int
    queue_id: int
    place: int
    size: int
    seconds: int


class IndexSegment(NamedTuple):
    """An uploaded index file: its number of slots follows from its length and its number of items. `begin`: when it was
    begun, ms."""

    path: Path
    slots: int
    items: int
    begin: int

    @property
    def items_at(self) -> int:
        """The byte of the first item."""
        return TIERED_INDEX_HEADER.size + self.slots * TIERED_INDEX_SLOT.size


def index_segment(path: Path, size: int, descriptors: Descriptors) -> IndexSegment:
    """Return what the head of a segment of `size` bytes says. CorruptError where it fits no number of slots."""
    head = descriptors.read(path, 0, TIERED_INDEX_HEADER.size) if size >= TIERED_INDEX_HEADER.size else b""
    if len(head) < TIERED_INDEX_HEADER.size:
        raise CorruptError(f"has {size} bytes, which is less than the head of an index", file=path)
    magic, begin, _, _, items = TIERED_INDEX_HEADER.unpack_from(head, 0)
    room = size - TIERED_INDEX_HEADER.size - items * TIERED_INDEX_ITEM.size
    if magic & 0xFFFFFFFF != TIERED_INDEX_MAGIC or items < 0 or room < 0 or room % TIERED_INDEX_SLOT.size:
        raise CorruptError(f"its head fits no index of {size} bytes", file=path)
    return IndexSegment(path, room // TIERED_INDEX_SLOT.size, items, begin)


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
    files = storage.files
    uploaded = (_items(files, segment, wanted) for segment in index_segments(storage, events))
    local = (_chained(files, index, wanted) for index in local_indexes(files, events))
    found = itertools.chain.from_iterable((*uploaded, *local))
    places = {(one.queue_id, one.place, one.size) for one in found if one.key_hash == wanted}
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
    return key in keys_of(message)


def keys_of(message: StoredMessage) -> list[str]:
    """Return what the key index has of a message: its unique key and its KEYS."""
    properties = message.properties()
    return [key for key in (properties.get(UNIQUE_KEY), *properties.get(KEYS, "").split(" ")) if key]


def index_problems(storage: TieredStorage) -> Iterator[tuple[Path, str]]:
    """Yield files of the key index, uploaded or not, with what is wrong with each: heads, and items that lead to no
    message with such a key; and of uploaded ones, slots. Items of messages that have expired are passed over. Errors as
    for `TieredStorage.queues`."""
    damaged: list[CorruptError] = []
    files, events = storage.files, UNHEARD._replace(damage=damaged.append)
    known = _Known(storage, topic_numbers(files.layout.config))
    for segment in index_segments(storage, events):
        lost = segment.items - _reached(files, segment)
        if lost:
            yield segment.path, f"its slots lead to {counted(lost, 'item')} less than it has"
    indexes: list[IndexSegment | LocalIndex] = [*index_segments(storage, UNHEARD), *local_indexes(files, events)]
    for index in indexes:
        begin = index.begin if isinstance(index, IndexSegment) else int(index.path.name)
        found = (text for item in all_items(files, index) if (text := known.problem(item, begin)))
        wrong = list(itertools.islice(found, _MOST_WRONG))
        if len(wrong) == _MOST_WRONG:
            yield index.path, f"at least {_MOST_WRONG} items of {index.items}: {wrong[0]}"
        elif wrong:
            yield index.path, f"{counted(len(wrong), 'item')} of {index.items}: {wrong[0]}"
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


def all_items(files: StoreFiles, index: IndexSegment | LocalIndex) -> Iterator[Item]:
    """Yield all items of a file of the index. UnreadableError."""
    layout = TIERED_INDEX_ITEM if isinstance(index, IndexSegment) else LOCAL_TIERED_INDEX_ITEM
    begin = index.items_at if isinstance(index, IndexSegment) else index.item_at(1)
    for first in range(0, index.items, _ITEMS_AT_ONCE):
        size = min(_ITEMS_AT_ONCE, index.items - first) * layout.size
        data = files.descriptors.read(index.path, begin + first * layout.size, size)
        whole = data[: len(data) - len(data) % layout.size]
        yield from (Item(*fields[:6]) for fields in layout.struct.iter_unpack(whole))


class _Known:
    """The topics and queues that items may lead to."""

    def __init__(self, storage: TieredStorage, numbers: TieredTopics | None) -> None:
        self._queues = {(one.topic, one.queue_id): one for one in storage.queues()}
        self._files, self._numbers = storage.files, numbers

    def problem(self, item: Item, begin: int) -> str:
        """Return what is wrong with an item of a file that was begun at a time in ms; "" for a good one, and where its
        copy may have been removed."""
        if self._numbers is None:
            return ""
        topic = self._numbers.topics.get(item.topic)
        if topic is None:
            return self._numbers.problem(item.topic)
        queue = self._queues.get((topic, item.queue_id))
        if queue is None and not self._is_in_store(topic, item.queue_id):
            return f"there is no queue {item.queue_id} of {topic}"
        if queue is None or not queue.logs or item.place < queue.logs[0].base:
            return ""  # expired
        message, problem = queue.decoded(item.place, item.size)
        if message is None:
            return problem
        hashes = [key_hash(topic, key) for key in keys_of(message)]
        if item.key_hash not in hashes:
            return f"the message at {item.place} of {topic}, queue {item.queue_id} has no such key"
        # Java's division; a message may have been stored before the file was begun
        passed = message.store_timestamp - begin
        seconds = java_int(abs(passed) // 1000 * (-1 if passed < 0 else 1))
        if item.seconds != seconds:
            return (
                f"the message at {item.place} of {topic}, queue {item.queue_id} was stored {seconds} s after the file "
                f"was begun, not {item.seconds} s: queries by time miss it"
            )
        return ""

    def _is_in_store(self, topic: str, queue_id: int) -> bool:
        """Return whether the store has a queue, or cannot tell."""
        try:
            return self._files.queues.find(topic, queue_id) is not None
        except CorruptError:
            return True
        except UsageError:
            return False


def _items(files: StoreFiles, segment: IndexSegment, wanted: int) -> Iterator[Item]:
    """Yield the items of a slot."""
    if not segment.slots:
        return
    at = TIERED_INDEX_HEADER.size + wanted % segment.slots * TIERED_INDEX_SLOT.size
    position, size = TIERED_INDEX_SLOT.unpack_from(files.descriptors.read(segment.path, at, TIERED_INDEX_SLOT.size), 0)
    end = segment.items_at + segment.items * TIERED_INDEX_ITEM.size
    if size <= 0 or position < segment.items_at or position + size > end:
        return
    data = files.descriptors.read(segment.path, position, size)
    for place in range(0, len(data) - TIERED_INDEX_ITEM.size + 1, TIERED_INDEX_ITEM.size):
        yield Item(*TIERED_INDEX_ITEM.unpack_from(data, place))


# Files of the index that are not uploaded yet: slots and chains, as in an index of the store.

LOCAL = "tiered_index_file"
"""The folder in the store. Its folder `compacting` is removed at each start of a broker."""
_DEFAULT_SLOTS = 5_000_000


class LocalIndex(NamedTuple):
    """A file of the index in the store. `begin`: its time of creation, which is its name, ms; `used`: slots in use and
    `items`: those it has, by its head. Items are numbered from 1 on; `slots` is 0 where it has none."""

    path: Path
    size: int
    begin: int
    used: int
    items: int
    slots: int

    def item_at(self, number: int) -> int:
        """Return the byte of an item."""
        return _item_at(self.slots, number)


def _item_at(slots: int, number: int) -> int:
    head = TIERED_INDEX_HEADER.size + slots * LOCAL_TIERED_INDEX_SLOT.size
    return head + number * LOCAL_TIERED_INDEX_ITEM.size


def local_index(path: Path, size: int, descriptors: Descriptors) -> LocalIndex:
    """Return what the head of a file of `size` bytes says. CorruptError where it does not fit the file."""
    head = descriptors.read(path, 0, TIERED_INDEX_HEADER.size) if size >= TIERED_INDEX_HEADER.size else b""
    if len(head) < TIERED_INDEX_HEADER.size:
        raise CorruptError(f"has {size} bytes, which is less than the head of an index", file=path)
    magic, begin, _, used, items = TIERED_INDEX_HEADER.unpack_from(head, 0)
    if size > LARGEST_FILE:
        raise CorruptError(f"has {size} bytes, which is more than an index can have", file=path)
    if magic not in (TIERED_INDEX_MAGIC, TIERED_INDEX_OPEN):
        raise CorruptError(f"its magic code is 0x{magic:08X}", file=path)
    slots = _slots(path, size, items, descriptors) if items > 0 else 0
    if not 0 <= used <= items or slots is None:
        raise CorruptError(f"its head fits no index of {size} bytes", file=path)
    return LocalIndex(path, size, begin, used, items, slots)


def _slots(path: Path, size: int, items: int, descriptors: Descriptors) -> int | None:
    """Return the number of slots, which no field says: the data of the file ends with its last item."""
    width, of_item = LOCAL_TIERED_INDEX_SLOT.size, LOCAL_TIERED_INDEX_ITEM.size
    end = end_of_nonzero(descriptors, path, TIERED_INDEX_HEADER.size, size)
    last = (end - _item_at(0, items)) // width
    fitting: int | None = None
    # a process that was killed may have written one item more than the head says
    for slots in (_DEFAULT_SLOTS, *range(last, last - 2 * of_item // width - 1, -1)):
        if slots > 0 and _item_at(slots, items) < min(end, size) and not (size - _item_at(slots, 0)) % of_item:
            data = descriptors.read(path, _item_at(slots, items), of_item)
            hashed, *_, previous = LOCAL_TIERED_INDEX_ITEM.unpack_from(data.ljust(of_item, b"\0"), 0)
            if 0 <= previous < items == _newest(path, hashed % slots, descriptors):
                return int(slots)
            if end <= _item_at(slots, items + 1):
                fitting = fitting or slots
    return fitting


def _newest(path: Path, slot: int, descriptors: Descriptors) -> int:
    """Return the number of the newest item of a slot."""
    width = LOCAL_TIERED_INDEX_SLOT.size
    data = descriptors.read(path, TIERED_INDEX_HEADER.size + slot * width, width)
    return int(LOCAL_TIERED_INDEX_SLOT.unpack_from(data.ljust(width, b"\0"), 0)[0])


def local_indexes(files: StoreFiles, events: Events) -> Iterator[LocalIndex]:
    """Yield the files of the index in the store, oldest first; those that do not fit are reported. UnreadableError."""
    folder = files.layout.root / LOCAL
    for name in sorted((one for one in listed(folder) if one.isascii() and one.isdigit()), key=int):
        status = status_of(folder / name)
        if status is not None and is_file(folder / name):
            try:
                yield local_index(folder / name, status.st_size, files.descriptors)
            except CorruptError as error:
                events.damaged(error)


def local_index_row(files: StoreFiles) -> dict[str, Any] | None:
    """Return what `info` says of the index in the store; None where no broker uses tiered storage. UnreadableError."""
    if not is_directory(files.layout.root / LOCAL):
        return None
    problems: list[str] = []
    found = list(local_indexes(files, Events(damage=lambda error: problems.append(error.message))))
    return {"files": len(found), "items": sum(one.items for one in found), "problems": problems}


def _chained(files: StoreFiles, index: LocalIndex, wanted: int) -> Iterator[Item]:
    """Yield the items of a slot, newest first, as far as each is older than the one before it."""
    if not index.slots:
        return
    number, of_item = _newest(index.path, wanted % index.slots, files.descriptors), LOCAL_TIERED_INDEX_ITEM.size
    last = index.items + 1
    while 0 < number < last:
        data = files.descriptors.read(index.path, index.item_at(number), of_item)
        *item, previous = LOCAL_TIERED_INDEX_ITEM.unpack_from(data.ljust(of_item, b"\0"), 0)
        yield Item(*item)
        last, number = number, previous
