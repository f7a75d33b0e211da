"""Tiered storage: the copy of each queue in segments outside of the store, which may go back further than the store.

The table of segments is in the store (config/tieredStoreMetadata.json); where it is lost or damaged the names and
lengths of the segments say the same (FlatFileStore#load, FlatAppendFile#recover).
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator
from copy import copy as copy_of
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.errors import CorruptError, NotFoundError, UncertainError, UnreadableError, counted
from rmqctl.formats.layouts import (
    CONSUMEQUEUE_UNIT,
    TIERED_INDEX_HEADER,
    TIERED_INDEX_ITEM,
    TIERED_INDEX_MAGIC,
    TIERED_INDEX_SLOT,
)
from rmqctl.formats.message import FrameDamage, Reason, StoredMessage, decode_message
from rmqctl.formats.properties import KEYS, UNIQUE_KEY
from rmqctl.store.config.tiered_table import LOG, TABLE, UNITS, SegmentTable, read_segment_table, topic_numbers
from rmqctl.store.files.layout import is_queue_name, is_safe_topic, topic_directory
from rmqctl.store.files.reading import Descriptors, exists, is_directory, listed, status_of
from rmqctl.store.files.remote import reachable
from rmqctl.store.log.search import MAXIMUM_FRAME_SIZE
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.compacted import StoredFrame, message_in_log
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.store_files import StoreFiles

INDEX_TOPIC = "rmq_sys_INDEX"
SEGMENT = re.compile(r"[0-9a-f]{8}([0-9]{20})")
_CLUSTER = re.compile(r"[0-9a-f]{8}_.+")
_UNITS_AT_ONCE = 1 << 15
_OF_STORES = (
    "commitlog consumequeue consumequeue_ext batchconsumequeue index config timerlog compaction kvStore".split()
)


class Segment(NamedTuple):
    """A file of a copy. `base`: its first offset; `said`: bytes by the table, None if that does not know it; `length`:
    bytes of the file, None without one."""

    path: Path
    base: int
    said: int | None
    length: int | None

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.base + (self.length or 0)

    def holds(self, offset: int, size: int) -> bool:
        """Return whether bytes lie in it."""
        return self.base <= offset and offset + size <= self.end


class TieredMessage(NamedTuple):
    """What a unit of a copy says, and the frame and message that it leads to; None for both with what is wrong.
    `place`: offset in the segments of the log."""

    queue_offset: int
    place: int
    tags_code: int
    frame: bytes | None
    message: StoredMessage | None
    problem: str = ""


class TieredQueue:
    """The copy of one queue; `logs` and `units` are its segments, in order."""

    def __init__(self, files: StoreFiles, topic: str, queue_id: int, logs: list[Segment], units: list[Segment]) -> None:
        """Read nothing yet."""
        self._files = files
        self.topic, self.queue_id, self.logs, self.units = topic, queue_id, logs, units

    @property
    def folder(self) -> Path:
        """Where its segments are."""
        return (self.units or self.logs)[0].path.parent.parent

    @property
    def min_offset(self) -> int:
        """Its first queue offset."""
        return -(-self.units[0].base // CONSUMEQUEUE_UNIT.size) if self.units else 0

    @property
    def max_offset(self) -> int:
        """The queue offset after its last one."""
        return max((one.end // CONSUMEQUEUE_UNIT.size for one in self.units if one.length), default=self.min_offset)

    def messages(self, begin: int, end: int) -> Iterator[TieredMessage]:
        """Yield what is at the queue offsets [begin, end), as far as there are units. UnreadableError."""
        width = CONSUMEQUEUE_UNIT.size
        for segment in self.units:
            first = max(begin, -(-segment.base // width))
            last = min(end, segment.end // width)
            for start in range(first, last, _UNITS_AT_ONCE):
                size = min(_UNITS_AT_ONCE, last - start) * width
                data = self._files.descriptors.read(segment.path, start * width - segment.base, size)
                for at in range(0, len(data) - width + 1, width):
                    yield self._message(start + at // width, *CONSUMEQUEUE_UNIT.unpack_from(data, at))

    def message(self, queue_offset: int) -> TieredMessage | None:
        """Return what is at a queue offset; None where no unit is."""
        return next(self.messages(queue_offset, queue_offset + 1), None)

    def _message(self, queue_offset: int, place: int, size: int, tags_code: int) -> TieredMessage:
        message, problem = self.decoded(place, size)
        if message is not None:
            said = message.topic, message.queue_id, message.queue_offset
            if said != (self.topic, self.queue_id, queue_offset):
                problem = f"its unit leads to message {message.queue_offset} of {message.topic}"
        if message is None or problem:
            return TieredMessage(queue_offset, place, tags_code, None, None, problem)
        return TieredMessage(queue_offset, place, tags_code, self._frame(place, size), message)

    def _frame(self, place: int, size: int) -> bytes | None:
        """Return bytes of its log; None where no segment has them all."""
        segment = next((one for one in self.logs if one.length and one.holds(place, size)), None)
        if segment is None or not 0 < size <= MAXIMUM_FRAME_SIZE:
            return None
        return self._files.descriptors.read(segment.path, place - segment.base, size)

    def decoded(self, place: int, size: int) -> tuple[StoredMessage | None, str]:
        """Return the message at an offset of its log, or what is wrong there. UnreadableError."""
        data = self._frame(place, size)
        if data is None:
            return None, f"no segment has the {size} bytes at {place}"
        try:
            try:
                message = decode_message(data, 0, len(data), place)
            except FrameDamage as damage:
                if damage.reason is not Reason.PROPERTY_CRC:
                    raise
                # it covers the place in the commitlog, which was overwritten; that of the body is good
                message = decode_message(data, 0, len(data), place, check_crc=False)
        except FrameDamage as damage:
            return None, damage.detail
        if message.total_size != size:
            return None, f"the message at {place} has {message.total_size} bytes, not {size}"
        return message, ""

    def begin_of_store(self) -> int | None:
        """Return from which queue offset on the commitlog has the queue; None where it has nothing of it."""
        queue = self._files.queues.find(self.topic, self.queue_id)
        if queue is None or not self._files.log.files:
            return None
        begin = queue.min_offset(self._files.log.min_offset)
        return begin if begin < queue.max_offset else None

    def in_store(self, queue_offset: int) -> StoredFrame | None:
        """Return the message as the store has it; None where it has none. UnreadableError."""
        return message_in_log(self._files, self.topic, self.queue_id, queue_offset)


def tiered_folder(files: StoreFiles) -> Path | None:
    """Return the folder of tieredStoreFilePath; where no setting says it, one in the store that looks like it."""
    said = files.config.tiered_store_file_path
    if said:
        return reachable(said)
    for name in listed(files.layout.root):
        folder = files.layout.root / name
        # what else is in a store has topics below it, and many of them
        if name not in _OF_STORES and is_directory(folder) and has_segments(folder):
            return folder
    return None


def has_segments(folder: Path) -> bool:
    """Return whether a tiered folder has a segment of a queue. UnreadableError."""
    for broker in brokers_of(folder):
        for topic in listed(broker):
            for queue_id in listed(broker / topic):
                if any(SEGMENT.fullmatch(name) for name in listed(broker / topic / queue_id / UNITS)):
                    return True
    return False


class TieredStorage(NamedTuple):
    """The tiered folder of a store, and its table of segments; None where that is lost or damaged."""

    files: StoreFiles
    folder: Path
    table: SegmentTable | None

    def brokers(self) -> list[Path]:
        """Return the folders of brokers; of several, those that have a topic of the table. UnreadableError."""
        found = brokers_of(self.folder)
        topics = {topic for _, topic, _ in self.table or () if is_safe_topic(topic)}
        known = [one for one in found if any(exists(one / topic) for topic in topics)]
        return known if len(found) > 1 and known else found

    def queues(self, topic: str | None = None, queue_id: int | None = None) -> list[TieredQueue]:
        """Return the copies of all queues, of those of a topic, or of one. CorruptError where several brokers have one
        there and no table chooses, UnreadableError."""
        if not is_directory(self.folder):
            text = "the folder of tieredStoreFilePath is not there"
            raise UnreadableError(text, file=self.folder, hint="mount it, or correct -c")
        brokers = self.brokers()
        if self.table is None and len(brokers) > 1:
            names = ", ".join(one.name for one in brokers)
            raise CorruptError(f"{TABLE} is lost, and the folder is of several brokers ({names})", file=self.folder)
        places: dict[tuple[str, int], Path] = {}
        for broker in brokers:
            for name in listed(broker) if topic is None else [topic]:
                if is_safe_topic(name) and name != INDEX_TOPIC:
                    of_topic = topic_directory(broker, name)
                    places |= {(name, int(one)): of_topic / one for one in listed(of_topic) if is_queue_name(one)}
        for _, name, number in self.table or ():
            if topic in (None, name) and is_safe_topic(name) and brokers:
                places.setdefault((name, number), topic_directory(brokers[0], name) / str(number))
        return [
            TieredQueue(self.files, *place, *(_segments(path / kind, kind, place, self.table) for kind in (LOG, UNITS)))
            for place, path in sorted(places.items())
            if queue_id in (None, place[1])
        ]


def tiered_storage(files: StoreFiles, events: Events = Events()) -> TieredStorage:
    """Return the tiered storage of a store. A damaged table is reported. NotFoundError where no folder is known,
    UnreadableError."""
    folder = tiered_folder(files)
    if folder is None:
        hint = "name the broker.conf with tieredStoreFilePath by -c"
        raise NotFoundError("no folder of tiered storage is known", file=files.layout.root, hint=hint)
    try:
        table = read_segment_table(files.layout.config)
    except CorruptError as error:
        events.damaged(error)
        table = None
    return TieredStorage(files, folder, table)


def brokers_of(folder: Path) -> list[Path]:
    """Return the folders of brokers in a tiered folder. UnreadableError."""
    return [
        folder / cluster / broker
        for cluster in listed(folder)
        if _CLUSTER.fullmatch(cluster)
        for broker in listed(folder / cluster)
        if is_directory(folder / cluster / broker)
    ]


def _segments(folder: Path, kind: str, place: tuple[str, int], table: SegmentTable | None) -> list[Segment]:
    """Return the segments of a folder and of the table, in order."""
    named = {int(found[1]): folder / found[0] for found in map(SEGMENT.fullmatch, listed(folder)) if found}
    said = (table or {}).get((kind, *place), {})
    segments = []
    for base in sorted({*named, *said}):
        path = named.get(base) or folder / segment_name(base)
        status = status_of(path) if base in named else None
        segments.append(Segment(path, base, said.get(base), None if status is None else status.st_size))
    return segments


def segment_name(base: int) -> str:
    """Return the name of a segment by its first offset (MessageStoreUtil#offset2FileName)."""
    return f"{hashlib.md5(str(base).encode(), usedforsecurity=False).hexdigest()[:8]}{base:020d}"


def joined_messages(reader: StoreReader, selection: Selection, events: Events) -> Iterator[StoredMessage]:
    """Yield the messages of a topic queue by queue: first those that only tiered storage has, with a physical offset of
    -1, then those of the store. `begin` and `end` are queue offsets.

    NotFoundError for a topic that neither has. What is damaged in the copy and messages that neither has are reported.
    """
    criteria = selection.criteria
    assert criteria.topic is not None
    copies = {
        one.queue_id: one for one in tiered_storage(reader.files, events).queues(criteria.topic, criteria.queue_id)
    }
    own = {
        queue.queue_id
        for queue in reader.files.queues.of_topics(criteria.topic.__eq__)
        if criteria.queue_id in (None, queue.queue_id)
    }
    if not copies and not own:
        raise NotFoundError(
            f"neither the store nor tiered storage has topic {criteria.topic!r}"
            + ("" if criteria.queue_id is None else f", queue {criteria.queue_id}"),
            file=reader.files.layout.root,
        )
    for queue_id in sorted({*copies, *own}):
        begin = selection.begin
        if queue_id in copies:
            copy = copies[queue_id]
            until = copy.begin_of_store()
            for message in _of_copy(copy, begin, _least(copy.max_offset, until, selection.end), events):
                if criteria.matches(message):
                    yield message
            _tell_hole(copy, until, selection, events)
            begin = max(begin, copy.max_offset if until is None else until)
        if queue_id in own and (selection.end is None or begin < selection.end):
            of_queue = copy_of(criteria)
            of_queue.queue_id = queue_id
            chosen = selection._replace(criteria=of_queue, begin=begin)
            yield from reader.telling(events).messages(chosen, "queue")


def _least(*offsets: int | None) -> int:
    return min(offset for offset in offsets if offset is not None)


def _of_copy(copy: TieredQueue, begin: int, end: int, events: Events) -> Iterator[StoredMessage]:
    for one in copy.messages(begin, end):
        if one.message is not None:
            yield one.message._replace(physical_offset=-1)
        else:
            text = f"message {one.queue_offset} of {copy.topic}, queue {copy.queue_id}: {one.problem}"
            events.damaged(CorruptError(text, file=copy.folder))


def _tell_hole(copy: TieredQueue, until: int | None, selection: Selection, events: Events) -> None:
    """Report messages that were removed from the store before they were copied."""
    if until is not None and max(copy.max_offset, selection.begin) < until:
        first = max(copy.max_offset, selection.begin)
        events.damaged(
            UncertainError(
                f"{counted(until - first, 'message')} of {copy.topic}, queue {copy.queue_id}, from offset {first} on: "
                "neither the store nor tiered storage has them",
                file=copy.folder,
                hint=f"a broker starts the copy of the queue again: save it first, `rmqctl cat --tiered "
                f"-t {shlex.quote(copy.topic)} --json --stored-bodies`",
            )
        )


def tiered_rows(files: StoreFiles, topic: str | None, queue_id: int | None, events: Events) -> Iterator[dict[str, Any]]:
    """Yield a row of each queue: what the copy has of it, and what the store has. Errors as for
    `tiered_storage` and `TieredStorage.queues`."""
    for copy in tiered_storage(files, events).queues(topic, queue_id):
        begin = copy.begin_of_store()
        queue = files.queues.find(copy.topic, copy.queue_id)
        first = copy.message(copy.min_offset)
        yield {
            "topic": copy.topic,
            "queue_id": copy.queue_id,
            "tiered_min_offset": copy.min_offset,
            "tiered_max_offset": copy.max_offset,
            "min_offset": begin,
            "max_offset": None if begin is None or queue is None else queue.max_offset,
            "in_neither": 0 if begin is None else max(begin - copy.max_offset, 0),
            "segments": len(copy.logs) + len(copy.units),
            "bytes": sum(one.length or 0 for one in [*copy.logs, *copy.units]),
            "first_store_timestamp": None if first is None or first.message is None else first.message.store_timestamp,
        }


# The key index in tiered storage: the items of a key lead to frames in the logs of queues (IndexStoreFile).

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
